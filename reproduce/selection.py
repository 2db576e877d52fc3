"""What the selector chooses: its bounds (Fig. 4, App. A and B) and clean accuracy (Fig. 6a)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np

from reproduce.harness import (
    Claim,
    Context,
    Experiment,
    Figure,
    Need,
    Result,
    Scale,
    VotingScale,
    pair_needs,
    size,
)
from reproduce.plots import Points, plot_percentile_bounds, plot_points, plot_selector_bounds
from reproduce.replay import CPU, Certified, CertifyScale, raw_samples, spread_of
from reproduce.verdicts import judged
from varsmooth import bounds
from varsmooth.bounds import Floats
from varsmooth.evaluation.options import DataOptions, ModelOptions, PredictOptions
from varsmooth.evaluation.report.figures import colours
from varsmooth.evaluation.report.outcomes import Outcomes
from varsmooth.evaluation.report.statistics import Interval, PairedDifference, Share, mean_interval
from varsmooth.evaluation.report.tables import Cell, Table
from varsmooth.evidence import SelectorEvidence
from varsmooth.rounding import rounded

SHIFTS = tuple(0.25 * step for step in range(17))
"""D/σ_m of the table."""


@dataclass(frozen=True, kw_only=True)
class PercentilesScale(Scale):
    """Nothing is sampled: q_l and q_u are functions of N_h, D/σ_m and α_h."""

    unused = ("sigmas", "images", "data", "seed")

    sample_sizes: tuple[int, ...] = size("N_h", (1_000, 10_000, 100_000))
    alpha_select: float = size("α_h", 1e-5, stated=False)


def gaps(n: int, a: float) -> list[float]:
    """How far q_u/n lies above Φ(D/σ_m) at each shift where it exists, in percentage points."""
    found = []
    for shift in SHIFTS:
        _, upper = bounds.order_statistics(n, shift, 1.0, a)
        if upper <= n:
            found.append(100 * (upper / n - float(bounds.normal_cdf(shift))))
    return found


def percentiles(context: Context, scale: PercentilesScale) -> Result:
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
    ends = [float(bounds.normal_quantile(a ** (1 / n))) for n in largest]  # p̄ⁿ = a
    gaps_shown = [f"{gap:.2f} points at N_h = {n:,}" for n, gap in largest.items()]
    claim = Claim(
        "Empirical bounds approach the theoretical ones as N_h grows",
        "Fig. 4b, App. A",
        f"largest gap {gaps_shown[0]}, {gaps_shown[-1]}",
        f"largest gap between q_u/N_h and p̄: {'; '.join(gaps_shown)}. A bound exists up to "
        f"D/σ_m = {', '.join(f'{end:.2f}' for end in ends)}, respectively",
        "trivial",
        "exact binomial arithmetic, no sampling",
        {"largest_gap": {str(n): gap for n, gap in largest.items()}},
    )
    return Result([figure], [table], [claim], notes=["q_l and q_u at α_h/2 per side"])


def _percentage(share: float) -> Cell:
    return Cell(rounded(100 * share, 2), share)


def _index(q: int, n: int, exists: bool) -> Cell:
    return _percentage(q / n) if exists else Cell("–")


PERCENTILES = Experiment(
    "percentiles",
    "Fig. 4, App. A",
    "percentiles of h that bound its median, in theory and from N_h samples",
    {"cpu": PercentilesScale(), "paper": PercentilesScale()},
    {"cpu": "seconds", "paper": "seconds"},
    percentiles,
    lambda scale: [],
)


@dataclass(frozen=True, kw_only=True)
class BoundsScale(CertifyScale):
    """App. B: the test set, λ = 0, N_h = 1000 (here 1001, so that the median is a sample)."""

    unused = (
        "precision",
        "n",
        "n0",
        "multiples",
        "percentiles",
        "held_out",
        "held_out_draws",
        "choice",
    )

    images: int = size("test images", 10_000)
    distances: tuple[float, ...] = size(
        "D", (0.0, 0.05, 0.1, 0.2, 0.3, 0.4), stated=False, zero=True
    )
    lams: tuple[float, ...] = size("λ", (0.0,))


def bounds_at(samples: Floats, distance: float, sigma_m: float, alpha_select: float) -> Floats:
    """h_ql, h_50 and h_qu of every image (n, 3); NaN where no sample is a bound."""
    seen = [SelectorEvidence(tuple(row), sigma_m) for row in samples.tolist()]
    ends = np.array([one.median_range(distance, alpha_select) for one in seen])  # (n, 2)
    ends[(ends == 0) | np.isinf(ends)] = np.nan
    return np.insert(ends, 1, [one.median for one in seen], axis=1)


def _mean_of(column: Floats) -> list[float | None]:
    """A mean over images with its interval; None where no sample is a bound."""
    if np.isnan(column).any():
        return [None, None, None]
    return [float(column.mean()), *mean_interval(column)]


def mean_bounds(model: Certified, scale: BoundsScale, lam: float) -> Floats:
    """At each D the means of h_ql, h_50 and h_qu over images, with intervals: (D, 3, 3)."""
    name = f"σ_a = {model.sigma_a:g}, λ = {lam:g}"

    def make() -> list[list[list[float | None]]]:
        run = model.samples_run(lam, [model.sigma_a])
        samples, sigma_m = raw_samples(run), run.header["selector"]["sigma_m"]
        each = [bounds_at(samples, d, sigma_m, scale.alpha_select) for d in scale.distances]
        return [[_mean_of(column) for column in part.T] for part in each]

    return np.array(model.context.fact(f"bounds, {name}", make), dtype=float)


def selector_bounds(context: Context, scale: BoundsScale) -> Result:
    """How far an attacker of budget D can move the smoothed selector's output."""
    plots, rows = [], []
    measured: dict[str, list[float]] = {}
    for sigma_a, lam in product(scale.sigmas, scale.lams):
        found = mean_bounds(Certified(context, scale, sigma_a), scale, lam)
        name = f"σ_a = {sigma_a:g}, λ = {lam:g}"
        low, middle, high = found[:, :, 0].T  # (D,) each
        plots.append(
            partial(
                plot_selector_bounds,
                distances=np.array(scale.distances),
                lower=low,
                median=middle,
                upper=high,
                title=f"h for {name}",
            )
        )
        measured[name] = [float(w) for w in (high - low) / middle]
        head = [Cell(f"{sigma_a:g}", sigma_a), Cell(f"{lam:g}", lam)]
        for distance, means in zip(scale.distances, found, strict=True):
            rows.append([*head, Cell(f"{distance:g}", distance), *map(_mean, means)])
    table = Table(
        "selector-bounds",
        "Mean over images of the bounds on the selector's output under an attack of budget D, with "
        "95 % intervals over images; – where no sample is a bound (only clipping is one there).",
        ["σ_a", "λ", "D", "h_ql", "h_50%", "h_qu"],
        rows,
    )
    figure = Figure(
        "selector-bounds",
        "Mean bounds of h under an attack of budget D. A line ends where no order statistic of "
        "N_h samples is a bound.",
        plots,
        columns=len(scale.lams),
        height=3.2,
    )
    return Result([figure], [table], [growth_claim(scale, measured)])


def growth_claim(scale: BoundsScale, widths: dict[str, list[float]]) -> Claim:
    """The bounds move apart as the budget grows; what is measured is how far."""
    shown = "; ".join(
        f"{name}: " + ", ".join("none" if np.isnan(x) else f"{100 * x:.2g} %" for x in w)
        for name, w in widths.items()
    )
    name, widest = max(widths.items(), key=lambda item: float(np.nanmax(item[1])))
    budgets = ", ".join(f"{d:g}" for d in scale.distances)
    return Claim(
        "Deviations of the selector's bounds from its median grow with the budget",
        "App. B",
        f"width at most {100 * float(np.nanmax(widest)):.2g} % of the median ({name})",
        f"(mean h_qu − mean h_ql) / mean h_50% at D = {budgets}: {shown}",
        "trivial",
        "order statistics of the same samples: true of any h",
        {k: [None if np.isnan(x) else x for x in w] for k, w in widths.items()},
    )


def _mean(mean: Floats) -> Cell:
    value, low, high = (float(number) for number in mean)
    if np.isnan(value):
        return Cell("–")
    return Cell(f"{value:.4f} [{low:.4f}–{high:.4f}]", value, Interval(low, high))


SELECTOR_BOUNDS = Experiment(
    "selector-bounds",
    "App. B",
    "bounds of the smoothed selector's output against the budget D",
    {"cpu": BoundsScale(**CPU, lams=(0.0, 0.2)), "paper": BoundsScale()},
    {"cpu": "5 min", "paper": "1 h on a GPU after training"},
    selector_bounds,
)


# Fig. 6a: clean accuracy


@dataclass(frozen=True, kw_only=True)
class CleanScale(VotingScale):
    """Fig. 6a: λ steers g_v, σ_s steers g."""

    n: int = size("votes N", 1000)
    lams: tuple[float, ...] = size("λ", (0.0, 0.1, 0.2, 0.3, 0.4))


@dataclass(frozen=True)
class Pair:
    """g_v at one λ beside g at its mean σ_s, under the same noise."""

    sigma_a: float
    lam: float
    learned: Outcomes
    fixed: Outcomes

    @property
    def gap(self) -> PairedDifference:
        return PairedDifference.of(self.learned.correct, self.fixed.correct)


def clean(context: Context, scale: CleanScale) -> Result:
    """Clean accuracy against the noise level, for g and for g_v with its mean σ_s."""
    series, pairs = [], []
    for sigma_a, colour in zip(scale.sigmas, colours(len(scale.sigmas)), strict=True):
        mine = [pair_at(context, scale, sigma_a, lam) for lam in scale.lams]
        series += [
            _points(f"g, σ_a = {sigma_a:g}", [p.fixed for p in mine], colour, filled=False),
            _points(f"g_v, σ_a = {sigma_a:g}", [p.learned for p in mine], colour, filled=True),
        ]
        pairs += mine
    figure = Figure(
        "clean",
        "Clean accuracy against the noise level: the mean of all selected σ_s for g_v (solid, λ "
        "grows from left to right), and g at these levels (dashed). Bars: 95 % intervals over "
        "images; g and g_v share images and noise, so their differences are far more certain than "
        "the bars.",
        [partial(plot_points, series=series, xlabel="(mean) σ_s", ylabel="clean accuracy (%)")],
        legend="lower left",
        height=4.4,
    )
    notes = [context.selectors_of_g_v(pair_needs(scale))]
    return Result([figure], [_clean_table(pairs)], [clean_claim(pairs)], notes)


def pair_at(context: Context, scale: CleanScale, sigma_a: float, lam: float) -> Pair:
    """g_v at one λ, and g at its mean σ_s.

    Their noise is the same, and so are their votes where the levels agree: what differs is the
    level, not luck.
    """
    need, title = Need.fixed(sigma_a, selector=True), f"g_v, σ_a = {sigma_a:g}, λ = {lam:g}"
    learned = predicted(context, scale, title, lambda: context.g_v_options(need, lam))
    level = context.fact(f"mean σ_s of {title}", lambda: float(learned.sigmas.mean()))

    def fixed() -> ModelOptions:
        return ModelOptions(context.model(Need.fixed(sigma_a)), sigma=level)

    return Pair(sigma_a, lam, learned, predicted(context, scale, f"g beside {title}", fixed))


def predicted(
    context: Context, scale: CleanScale, name: str, model: Callable[[], ModelOptions]
) -> Outcomes:
    """A run that predicts by plain majority."""

    def asked() -> tuple[ModelOptions, DataOptions, PredictOptions]:
        data = context.images(scale.data, "test", scale.images)
        return model(), data, PredictOptions(n=scale.n, alpha=None, seed=scale.seed)

    return context.majority(name, asked)


def _points(label: str, runs: Sequence[Outcomes], colour: str, filled: bool) -> Points:
    means = [float(run.sigmas.mean()) for run in runs]
    return Points(
        label, means, [Share.of(run.correct) for run in runs], colour=colour, filled=filled
    )


def _clean_table(pairs: Sequence[Pair]) -> Table:
    rows = []
    for pair in pairs:
        sigmas = pair.learned.sigmas
        rows.append(
            [
                Cell(f"{pair.sigma_a:g}", pair.sigma_a),
                Cell(f"{pair.lam:g}", pair.lam),
                Cell(f"{sigmas.mean():.4f}", float(sigmas.mean())),
                Cell(f"{sigmas.std():.4f}", float(sigmas.std())),
                Cell.share(Share.of(pair.learned.correct)),
                Cell(f"{pair.fixed.sigmas[0]:.4f}", float(pair.fixed.sigmas[0])),
                Cell.share(Share.of(pair.fixed.correct)),
                Cell.difference(pair.gap),
            ]
        )
    return Table(
        "clean",
        "Clean accuracy in % of g_v, and of g at g_v's mean σ_s under the same noise; the "
        "difference in percentage points, paired by image, with 95 % intervals.",
        ["σ_a", "λ", "mean σ_s", "sd of σ_s", "g_v", "σ_s of g", "g", "g_v − g"],
        rows,
    )


CLEAN_GAIN = "g_v has better clean accuracy than g at equal mean σ_s"


def clean_claim(pairs: Sequence[Pair]) -> Claim:
    """At equal mean σ, g_v is more often right than g."""
    return judged(
        CLEAN_GAIN,
        "Fig. 6a",
        {f"σ_a = {pair.sigma_a:g}, λ = {pair.lam:g}": pair.gap for pair in pairs},
        "clean accuracy of g_v minus that of g",
        spread_of([pair.learned.sigmas for pair in pairs]),
    )


CLEAN = Experiment(
    "clean",
    "Fig. 6a",
    "clean accuracy of g_v and g against the noise level",
    {"cpu": CleanScale(images=250), "paper": CleanScale()},
    {"cpu": "20 min", "paper": "1 h on a GPU after training"},
    clean,
    median=False,
)
