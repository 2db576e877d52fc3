"""Facts behind verdicts that are not differences between runs: arithmetic, ranges, counts.

The counterexample: three levels are not a bound. f is right everywhere but on the shell
0.36 √d ≤ ‖z − x‖ ≤ 0.39 √d, which noise of level σ hits only if σ is near 0.375. h is linear:
h(x) = 0.33, and it moves by 0.25 per unit of distance. The three levels at D = 0.68 are 0.16, 0.33
and 0.5; an attacker at distance 0.18 makes h choose 0.375.
"""

import csv
from typing import Any

import numpy as np
from scipy.stats import ncx2

from reproduce.comparisons import TABLE_2, Committed
from reproduce.statistics import Estimate
from varsmooth import bounds
from varsmooth.bounds import normal_quantile
from varsmooth.rounding import rounded

DIMENSIONS, SHELL = 3072, (0.36, 0.39)
CENTRE, SLOPE, BUDGET = 0.33, 0.25, 0.68
ATTACKED = 0.18

CLIP_PERCENTILES = (5, 95)
"""The range of σ_s over images: what Table 2 clips to, as we read it, and our rule for a clip."""


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


def counterexample(evidence: Committed) -> str:
    """Inside the three-level radius f can be wrong almost surely."""
    radius, level = three_level_radius(1000, 1e-3), CENTRE + SLOPE * ATTACKED
    return (
        f"radius {rounded(radius)}; at distance {ATTACKED:g} f is right with probability "
        f"{right(level, ATTACKED):.2g}"
    )


SHIFTS = tuple(0.25 * step for step in range(17))
"""D/σ_m of the table of percentiles."""


def largest_gap(n: int, a: float) -> float:
    """How far q_u/n lies above Φ(D/σ_m) where it exists, in percentage points, at most."""
    pairs = [(shift, bounds.order_statistics(n, shift, 1.0, a)[1]) for shift in SHIFTS]
    return max(
        100 * (upper / n - float(bounds.normal_cdf(shift))) for shift, upper in pairs if upper <= n
    )


def percentile_gaps(evidence: Committed) -> str:
    sizes, a = evidence.sizes["sample_sizes"], evidence.sizes["alpha_select"] / 2
    small, large = sizes[0], sizes[-1]
    return (
        f"largest gap {largest_gap(small, a):.2f} points at N_h = {small:,}, "
        f"{largest_gap(large, a):.2f} at {large:,}"
    )


def bounds_width(evidence: Committed) -> str:
    """How far the mean bounds lie apart, where they exist, relative to the median."""
    widths = []
    for found in evidence.facts.values():
        low, middle, high = np.array(found, dtype=float)[:, :, 0].T  # (D,) each
        widths.append(np.nanmax((high - low) / middle))
    return f"they are at most {100 * max(widths):.1f} % of the median apart"


def dual_cost(evidence: Committed) -> str:
    sizes = evidence.sizes
    return f"{sizes['n_select']} evaluations of h in addition to {sizes['n']} votes of f"


def relative_width(ends: Any) -> Any:
    """The width of a range of levels relative to its middle."""
    low, high = ends
    return 2 * (high - low) / (high + low)


def table_2_widths(evidence: Committed) -> str:
    """The 5–95 % range of σ_s over test images, beside the clip ranges of Table 2."""
    ours, theirs = [], []
    for (s, lam), clip in TABLE_2.items():
        attacked = evidence.runs.get(f"g_v*, σ_a = {s:g}, λ = {lam:g}, γ = 0.3, strong attack")
        if attacked is not None:
            levels = attacked.clean_sigmas
        else:
            levels = evidence.runs[f"g_v*, σ_a = {s:g}, λ = {lam:g}, no attack"].sigmas
        ours.append(100 * relative_width(np.percentile(levels, CLIP_PERCENTILES)))
        theirs.append(100 * relative_width(clip))
    return (
        f"{min(ours):.1f} to {max(ours):.0f} % wide, theirs {min(theirs):.0f} to "
        f"{max(theirs):.0f} %"
    )


def memorised(evidence: Committed) -> str:
    """What h gains on its training images minus what it gains on others, λ = 0.2, released f.

    The gain over the single level that is best on training images, in the objective. Both sets of
    images are independent, so the variances of the two means add.
    """
    (study,) = (seen for name, seen in evidence.facts.items() if "f released" in name)
    last = study[max(study, key=int)]
    z = float(normal_quantile(0.975))
    gains = [last[which]["0.2"]["gain"] for which in ("training", "held-out")]
    errors = [(high - low) / 2 / z for _, low, high in gains]
    images = 2 * int(evidence.sizes["images"])
    return Estimate(gains[0][0] - gains[1][0], float(np.hypot(*errors)), images).text(1.0, 3)


def summed_kl(evidence: Committed) -> str:
    """σ_s with the KL summed over 3072 dimensions, relative to σ_t = 2 σ_a = 0.5."""
    found = [
        evidence.facts[f"σ_s on held-out images: KL summed over dimensions, λ = {lam}"][0] / 0.5
        for lam in ("0.2", "0.4")
    ]
    return f"{100 * found[0]:.1f} % of σ_t at λ = 0.2, {100 * found[1]:.1f} % at 0.4"


def cascade_violations(evidence: Committed) -> str:
    with (evidence.folder / "cascade-attack.csv").open(encoding="utf-8", newline="") as file:
        lines = [line for line in csv.reader(file) if len(line) > 3 and line[3].isdigit()]
    inside = sum(int(line[3]) for line in lines if float(line[1]) < 1)
    beyond = [line for line in lines if float(line[1]) > 1]
    return (
        f"{inside} of {lines[0][2]} images inside 0.95 R, "
        f"{beyond[0][3]} of {beyond[0][2]} at {float(beyond[0][1]):g} R"
    )
