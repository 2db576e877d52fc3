"""Fig. 4 and App. A: which percentiles of h bound its median, in theory and from N_h samples."""

from dataclasses import dataclass
from functools import partial

import numpy as np

from reproduce.context import Context
from reproduce.curves import plot_percentile_bounds
from reproduce.experiment import Claim, Experiment, Figure, Result, Scale, size
from varsmooth import bounds
from varsmooth.report.tables import Cell, Table
from varsmooth.rounding import rounded

SHIFTS = tuple(0.25 * step for step in range(17))
"""D/σ_m of the table."""


@dataclass(frozen=True, kw_only=True)
class PercentilesScale(Scale):
    """Nothing is sampled: q_l and q_u are functions of N_h, D/σ_m and α_h."""

    sample_sizes: tuple[int, ...] = size("N_h", (1_000, 10_000, 100_000))
    alpha_select: float = size("α_h", 1e-5)


def gaps(n: int, a: float) -> list[float]:
    """How far q_u/n lies above Φ(D/σ_m) at each shift where it exists, in percentage points."""
    found = []
    for shift in SHIFTS:
        _, upper = bounds.order_statistics(n, shift, 1.0, a)
        if upper <= n:
            found.append(100 * (upper / n - float(bounds.normal_cdf(shift))))
    return found


def run(context: Context, scale: PercentilesScale) -> Result:
    a = scale.alpha_select / 2
    rows, largest = [], {}
    for n in scale.sample_sizes:
        largest[n] = max(gaps(n, a))
        for shift in SHIFTS:
            lower, upper = bounds.order_statistics(n, shift, 1.0, a)
            theory = float(bounds.normal_cdf(shift))
            rows.append(
                [
                    Cell.of(n),
                    Cell(f"{shift:g}", shift),
                    _percentage(1 - theory),
                    _index(lower, n, lower >= 1),
                    _percentage(theory),
                    _index(upper, n, upper <= n),
                ]
            )
    table = Table(
        "percentiles",
        "Percentiles of h that bound its median under a shift of norm D: in theory, and from N_h "
        "samples as order statistics q / N_h; – where no sample is a bound.",
        ["N_h", "D/σ_m", "p̲ %", "q_l / N_h %", "p̄ %", "q_u / N_h %"],
        rows,
    )
    figure = Figure(
        "percentiles",
        "Percentiles of h(x+ε) that bound its median at x+δ, ‖δ‖ ≤ D. A dashed line ends where "
        "no order statistic is a valid bound; beyond, only clipping bounds h.",
        [partial(plot_percentile_bounds, n=n, a=a) for n in scale.sample_sizes],
        height=3.4,
        legend=None,
    )
    shrinks = bool(np.all(np.diff([largest[n] for n in scale.sample_sizes]) < 0))
    ends = [float(bounds.normal_quantile(a ** (1 / n))) for n in largest]  # p̄ⁿ = a
    claim = Claim(
        "Empirical bounds approach the theoretical ones as N_h grows",
        "Fig. 4b, App. A",
        "largest gap between q_u/N_h and p̄: "
        + "; ".join(f"{gap:.2f} points at N_h = {n:,}" for n, gap in largest.items())
        + ". A bound exists up to D/σ_m = "
        + ", ".join(f"{end:.2f}" for end in ends)
        + ", respectively",
        "held" if shrinks else "not",
        "exact binomial arithmetic, no sampling",
        {"largest_gap": {str(n): gap for n, gap in largest.items()}},
    )
    return Result([figure], [table], [claim], notes=["q_l and q_u at α_h/2 per side"])


def _percentage(share: float) -> Cell:
    return Cell(rounded(100 * share, 2), share)


def _index(q: int, n: int, exists: bool) -> Cell:
    return _percentage(q / n) if exists else Cell("–")


EXPERIMENT = Experiment(
    "percentiles",
    "Fig. 4, App. A",
    "percentiles of h that bound its median, in theory and from N_h samples",
    {"cpu": PercentilesScale(), "paper": PercentilesScale()},
    {"cpu": "seconds", "paper": "seconds"},
    lambda scale: [],
    run,
)
