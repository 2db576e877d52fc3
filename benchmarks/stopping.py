"""Ways to stop voting early, on simulated votes: mean samples until p > p0 is shown at level α.

    python -m benchmarks.stopping

Every way looks after the same numbers of votes, those of `certify_at`. Seconds, no network.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import logsumexp
from scipy.stats import binom

from varsmooth import bounds
from varsmooth.bounds import Floats
from varsmooth.sampling import next_look

ALPHA = 1e-3
N_MAX = 100_000
N0 = 100
TOLERANCE = 0.05
POWER = 0.9
DECISIONS = ((0.8, 0.5), (0.99, 0.9), (0.8, 0.7), (0.6, 0.55))
PROBABILITIES = (0.52, 0.55, 0.6, 0.7, 0.8, 0.9, 0.99, 0.999)

Test = Callable[[Floats, Floats, float, np.random.Generator], Any]
"""(successes (trials, looks), votes (looks,), p0, random) → whether each look shows p > p0."""


def mixture(top: Floats, n: Floats, p0: float, _: np.random.Generator) -> Any:
    """Ours: the e-process with a Beta(½,½) prior cut to (p0, 1)."""
    return bounds.log_e_value(top, n, p0) >= -math.log(ALPHA)


def betting(top: Floats, n: Floats, p0: float, _: np.random.Generator) -> Any:
    """A gambler's wealth: the mean over bets λ of Π (1 + λ (X_i − p0)), half as large step by step.

    20 bets, geometric below the largest that cannot go bankrupt: an average of Kelly gamblers.
    """
    bets = 0.999 / p0 * 2.0 ** -np.arange(0, 10, 0.5)
    wealth = [top * np.log1p(b * (1 - p0)) + (n - top) * np.log1p(-b * p0) for b in bets]
    return logsumexp(np.stack(wealth), axis=0) - math.log(len(bets)) >= -math.log(ALPHA)


def planned_looks(top: Floats, n: Floats, p0: float, random: np.random.Generator) -> Any:
    """Randomized Clopper–Pearson each time the votes have doubled, α divided over the looks.

    As Voráček (2024) proposes: the k-th look spends α · 6/(π k)², a union bound.
    """
    rejected = np.zeros(top.shape, dtype=bool)
    looks = np.unique(np.searchsorted(n, 32 * 2.0 ** np.arange(13)).clip(0, len(n) - 1))
    for k, look in enumerate(looks, start=1):
        tail = binom.sf(top[:, look], n[look], p0)
        tie = random.random(len(top)) * binom.pmf(top[:, look], n[look], p0)
        rejected[:, look] = tail + tie <= ALPHA * 6 / (math.pi * k) ** 2
    return rejected


WAYS: dict[str, Test] = {
    "mixture (ours)": mixture,
    "betting": betting,
    "randomized CP, doubling": planned_looks,
}


def radius_target(p: float) -> float:
    """p0 at 95 % of the radius that N_MAX votes and Clopper–Pearson give at the mean count."""
    full = bounds.normal_quantile(bounds.clopper_pearson_lower(N_MAX * p, N_MAX, ALPHA))
    return float(bounds.normal_cdf((1 - TOLERANCE) * full))


def oracle(p: float, p0: float) -> int | None:
    """The fixed N at which Clopper–Pearson shows p > p0 with probability POWER, knowing p."""
    n = np.unique(np.geomspace(10, N_MAX, 3000).astype(int))
    enough = bounds.clopper_pearson_lower(binom.ppf(1 - POWER, n, p), n, ALPHA) >= p0
    return int(n[enough.argmax()]) if enough.any() else None


def planned(p: float, trials: int, random: np.random.Generator) -> tuple[float, float]:
    """Mean N planned per image on N0 draws, as ISS does, and how often it reaches the target.

    N is the least that should give 95 % of the radius of N_MAX, if the draws' share were p.
    """
    seen = np.clip(random.binomial(N0, p, trials) / N0, 0.5 + 1 / N0, 1 - 0.5 / N0)
    sizes = np.unique(np.geomspace(10, N_MAX, 300).astype(int))
    lower = bounds.clopper_pearson_lower(sizes * seen[:, None], sizes, ALPHA)
    enough = lower >= np.array([radius_target(float(q)) for q in seen])[:, None]
    n = np.where(enough.any(axis=1), sizes[enough.argmax(axis=1)], N_MAX)
    reached = bounds.clopper_pearson_lower(random.binomial(n, p), n, ALPHA) >= radius_target(p)
    return float(n.mean()), float(reached.mean())


def run(trials: int = 400, seed: int = 0) -> list[dict[str, Any]]:
    """One row per p and p0; samples of a way that did not succeed count as N_MAX."""
    random = np.random.default_rng(seed)
    looks = [16]
    while looks[-1] < N_MAX:
        looks.append(next_look(looks[-1], N_MAX))
    n = np.array(looks, dtype=np.float64)
    rows = []
    targets = [(p, radius_target(p), True) for p in PROBABILITIES]
    for p, p0, radius in targets + [(*pair, False) for pair in DECISIONS]:
        steps = np.diff(n, prepend=0).astype(int)
        top = random.binomial(steps, p, size=(trials, len(n))).cumsum(axis=1).astype(np.float64)
        row: dict[str, Any] = {"p": p, "p0": p0, "radius": radius, "oracle": oracle(p, p0)}
        for name, test in WAYS.items():
            with np.errstate(divide="ignore"):
                shown = np.asarray(test(top, n, p0, random))
            row[name] = float(np.where(shown.any(axis=1), n[shown.argmax(axis=1)], N_MAX).mean())
        if radius:
            row["planned"], row["planned reaches"] = planned(p, trials, random)
        rows.append(row)
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """The rows in Markdown."""
    head = ["true p", "to show p >", "N of an oracle", *WAYS, "planned N (reaches it)"]
    lines = [head, ["--:"] * len(head)]
    for row in rows:
        plan = f"{row['planned']:,.0f} ({row['planned reaches']:.0%})" if row["radius"] else ""
        counts = [f"{row[name]:,.0f}" for name in WAYS]
        counts.insert(0, "–" if row["oracle"] is None else f"{row['oracle']:,}")
        lines.append([f"{row['p']:g}", f"{row['p0']:.4f}", *counts, plan])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


if __name__ == "__main__":
    print(table(run()))
