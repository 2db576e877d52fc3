"""Three levels are not a bound: an f and an h for which the paper's radius is too large.

f is right everywhere but on the shell 0.36 √d ≤ ‖z − x‖ ≤ 0.39 √d, which noise of level σ hits only
if σ is near 0.375. h is linear: h(x) = 0.33, and it moves by 0.25 per unit of distance. The three
levels at D = 0.68 are 0.16, 0.33 and 0.5; an attacker at distance 0.18 makes h choose 0.375.
"""

import numpy as np
from scipy.stats import ncx2

from reproduce.harness import Claim
from varsmooth import bounds
from varsmooth.rounding import rounded

DIMENSIONS, SHELL = 3072, (0.36, 0.39)
CENTRE, SLOPE, BUDGET = 0.33, 0.25, 0.68
ATTACKED = 0.18


def right(sigma: float, distance: float = 0.0) -> float:
    """P(f(x' + σ ε) is right) at ‖x' − x‖ = distance, exactly: ‖z − x‖² is noncentral χ²."""
    shift = max((distance / sigma) ** 2, 1e-9)
    inner, outer = (ncx2.cdf(DIMENSIONS * (r / sigma) ** 2, DIMENSIONS, shift) for r in SHELL)
    return float(1 - (outer - inner))


def three_level_radius(n: int, alpha: float) -> float:
    """The paper's radius: the smallest at the three levels with n votes, capped at D."""
    levels = (CENTRE - SLOPE * BUDGET, CENTRE, CENTRE + SLOPE * BUDGET)
    radii = [float(bounds.class_radius(np.floor(n * right(s)), n, s, alpha)) for s in levels]
    return min(*radii, BUDGET)


def counterexample_claim(n: int, alpha: float) -> Claim:
    """Inside the three-level radius f can be wrong almost surely."""
    radius, level = three_level_radius(n, alpha), CENTRE + SLOPE * ATTACKED
    p = right(level, ATTACKED)
    found = (
        f"three-level radius {rounded(radius)}; at distance {ATTACKED:g}, where h chooses "
        f"{level:g}, f is right with probability {p:.2g}"
    )
    return Claim(
        "The worst of three levels bounds the certified radius from below",
        "ours, on §3.2: “guaranteed lower bounds”, which Experiment A obtains “approximately”",
        found,
        found,
        "refuted" if radius > ATTACKED and p < 0.5 else "undecided",
        f"a counterexample, computed exactly: N = {n}, α = {alpha:g}; levels between the three are "
        "never looked at",
        {"radius": radius, "distance": ATTACKED, "probability": p},
    )
