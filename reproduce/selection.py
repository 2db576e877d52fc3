"""What the selector chooses: its bounds (Fig. 4, App. A and B) and clean accuracy (Fig. 6a)."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np

from reproduce.exact import SHIFTS
from reproduce.figures import (
    Figure,
    Gaps,
    plot_gaps,
    plot_lines,
    plot_percentile_bounds,
    plot_selector_bounds,
)
from reproduce.harness import Context, Experiment, Result, number
from reproduce.replay import CPU, HELD_OUT, Certified, CertifyScale, raw_samples
from reproduce.scales import Need, Scale, VotingScale, pair_needs, size
from reproduce.statistics import paired
from varsmooth import bounds
from varsmooth.bounds import Floats
from varsmooth.evaluation.options import DataOptions, ModelOptions, PredictOptions
from varsmooth.evaluation.report.figures import colours
from varsmooth.evaluation.report.outcomes import Outcomes
from varsmooth.evaluation.report.statistics import Interval, PairedDifference, Share, mean_interval
from varsmooth.evaluation.report.summaries import UNKNOWN
from varsmooth.evaluation.report.tables import Cell, Table, Value
from varsmooth.evidence import SelectorEvidence
from varsmooth.rounding import rounded


@dataclass(frozen=True, kw_only=True)
class PercentilesScale(Scale):
    """Nothing is sampled: q_l and q_u are functions of N_h, D/σ_m and α_h."""

    unused = ("sigmas", "images", "data", "seed")

    sample_sizes: tuple[int, ...] = size("N_h", (1_000, 10_000, 100_000))
    alpha_select: float = size("α_h", 1e-5, stated=False)


def percentiles(context: Context, scale: PercentilesScale) -> Result:
    a = scale.alpha_select / 2
    rows = []
    for n, shift in product(scale.sample_sizes, SHIFTS):
        lower, upper = bounds.order_statistics(n, shift, 1.0, a)
        theory = float(bounds.normal_cdf(shift))
        row: dict[str, Value] = {"N_h": n, "D/σ_m": number(shift)}
        row |= {"p̲ %": _percentage(1 - theory)}
        row |= {"q_l / N_h %": _percentage(lower / n) if lower >= 1 else UNKNOWN}
        row |= {"p̄ %": _percentage(theory)}
        row |= {"q_u / N_h %": _percentage(upper / n) if upper <= n else UNKNOWN}
        rows.append(row)
    table = Table.of(
        "percentiles",
        "Percentiles of h that bound its median under a shift of norm D: in theory, and from N_h "
        "samples as order statistics q / N_h; – where no sample is a bound.",
        rows,
    )
    figure = Figure(
        "percentiles",
        "Fig. 4b and App. A: percentiles of h(x+ε) that bound its median at x+δ, ‖δ‖ ≤ D. A dashed "
        "line ends where no order statistic is a valid bound; beyond, only clipping bounds h.",
        [partial(plot_percentile_bounds, n=n, a=a) for n in scale.sample_sizes],
        height=3.2,
        width=10.0,
    )
    return Result([figure], [table], ["q_l and q_u at α_h/2 per side"])


def _percentage(share: float) -> Cell:
    return Cell(rounded(100 * share, 2), share)


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

    unused = ("precision", "n", "n0", "multiples", "percentiles", *HELD_OUT)

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
    plots, rows = [], list[dict[str, Value]]()
    for sigma_a, lam in product(scale.sigmas, scale.lams):
        found = mean_bounds(Certified(context, scale, sigma_a), scale, lam)
        title = f"h for σ_a = {sigma_a:g}, λ = {lam:g}"
        distances = np.array(scale.distances)
        plots.append(
            partial(plot_selector_bounds, distances=distances, means=found[:, :, 0], title=title)
        )
        for distance, means in zip(scale.distances, found, strict=True):
            low, middle, high = map(_mean, means)
            row: dict[str, Value] = {"σ_a": number(sigma_a), "λ": number(lam)}
            row |= {"D": number(distance), "h_ql": low, "h_50%": middle, "h_qu": high}
            rows.append(row)
    table = Table.of(
        "selector-bounds",
        "Mean over images of the bounds on the selector's output under an attack of budget D, with "
        "95 % intervals over images; – where no sample is a bound (only clipping is one there).",
        rows,
    )
    figure = Figure(
        "selector-bounds",
        "App. B: mean bounds of h under an attack of budget D, relative to its median. A line ends "
        "where no order statistic of N_h samples is a bound.",
        plots,
        columns=min(4, len(plots)),
        height=2.8,
        width=3.1 * min(4, len(plots)),
    )
    return Result([figure], [table])


def _mean(mean: Floats) -> Cell:
    value, low, high = (float(number) for number in mean)
    if np.isnan(value):
        return UNKNOWN
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


def clean(context: Context, scale: CleanScale) -> Result:
    """Clean accuracy against the noise level, for g and for g_v with its mean σ_s."""
    lines, series, rows = [], [], []
    for sigma_a, colour in zip(scale.sigmas, colours(len(scale.sigmas)), strict=True):
        pairs = [pair_at(context, scale, sigma_a, lam) for lam in scale.lams]
        learned, fixed = zip(*pairs, strict=True)
        for name, style, runs in (("g", "s--", fixed), ("g_v", "o-", learned)):
            x = [float(run.sigmas.mean()) for run in runs]
            y = [100 * float(run.correct.mean()) for run in runs]
            lines.append((f"{name}, σ_a = {sigma_a:g}", x, y, colour, style))
        gaps = [paired(*pair) for pair in pairs]
        series.append(Gaps(f"_σ_a = {sigma_a:g}", scale.lams, gaps, colour))
        rows += [
            _clean_row(sigma_a, *each) for each in zip(scale.lams, learned, fixed, strict=True)
        ]
    figure = Figure(
        "clean",
        "Fig. 6a. Left: clean accuracy against the noise level: the mean of all selected σ_s for "
        "g_v (solid, λ grows from left to right), and g at these levels (dashed). Right: g_v minus "
        "g at its mean σ_s, with paired 95 % intervals over images.",
        [
            partial(plot_lines, lines=lines, xlabel="mean σ_s", ylabel="clean accuracy (%)"),
            partial(plot_gaps, series=series, ylabel="g_v minus g (points)"),
        ],
        height=3.7,
        width=9.0,
    )
    table = Table.of(
        "clean",
        "Clean accuracy in % of g_v, and of g at g_v's mean σ_s under the same noise; the "
        "difference in percentage points, paired by image, with 95 % intervals.",
        rows,
    )
    return Result([figure], [table], [context.selectors_of_g_v(pair_needs(scale))])


def _clean_row(sigma_a: float, lam: float, learned: Outcomes, fixed: Outcomes) -> dict[str, Value]:
    return {
        "σ_a": number(sigma_a),
        "λ": number(lam),
        "mean σ_s": number(float(learned.sigmas.mean()), ".4f"),
        "sd of σ_s": number(float(learned.sigmas.std()), ".4f"),
        "g_v": Share.of(learned.correct),
        "σ_s of g": number(float(fixed.sigmas[0]), ".4f"),
        "g": Share.of(fixed.correct),
        "g_v − g": PairedDifference.of(learned.correct, fixed.correct),
    }


def pair_at(
    context: Context, scale: CleanScale, sigma_a: float, lam: float
) -> tuple[Outcomes, Outcomes]:
    """g_v at one λ, and g at its mean σ_s.

    Their noise is the same, and so are their votes where the levels agree: what differs is the
    level, not chance.
    """

    def run(name: str, model: Callable[[], ModelOptions]) -> Outcomes:
        """Predicted by plain majority."""

        def options() -> tuple[ModelOptions, DataOptions, PredictOptions]:
            data = context.images(scale.data, "test", scale.images)
            return model(), data, PredictOptions(n=scale.n, alpha=None, seed=scale.seed)

        return context.voted("predict", name, options)

    need, title = Need.pair(sigma_a), f"g_v, σ_a = {sigma_a:g}, λ = {lam:g}"
    learned = run(title, lambda: context.g_v_options(need, lam))
    level = context.fact(f"mean σ_s of {title}", lambda: float(learned.sigmas.mean()))
    alone = Need.fixed(sigma_a)
    fixed = run(f"g beside {title}", lambda: ModelOptions(context.model(alone), sigma=level))
    return learned, fixed


CLEAN = Experiment(
    "clean",
    "Fig. 6a",
    "clean accuracy of g_v and g against the noise level",
    {"cpu": CleanScale(images=250), "paper": CleanScale()},
    {"cpu": "20 min", "paper": "1 h on a GPU after training"},
    clean,
    median=False,
)
