"""Certificates (Fig. 2 and 5), bounds of the selector (Fig. 4, App. A, B), clean accuracy (6a)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from reproduce.comparisons import CLIP_PERCENTILES, SHIFTS, TABLE_2, CertifiedRuns
from reproduce.figures import (
    PAIRED,
    Curve,
    Figure,
    Gaps,
    plot_certified_gaps,
    plot_curves,
    plot_gaps,
    plot_lines,
    plot_percentile_bounds,
    plot_selector_bounds,
)
from reproduce.harness import Context, Experiment, Result, number
from reproduce.replay import (
    CPU,
    HELD_OUT,
    Certified,
    CertifyScale,
    Replay,
    clip_of,
    raw_samples,
    sweep,
)
from reproduce.scales import Need, Scale, VotingScale, pair_needs, size
from reproduce.statistics import paired
from varsmooth import bounds
from varsmooth.bounds import Floats
from varsmooth.evaluation.options import DataOptions, ModelOptions, PredictOptions
from varsmooth.evaluation.report.figures import colours
from varsmooth.evaluation.report.outcomes import Outcomes
from varsmooth.evaluation.report.statistics import Interval, PairedDifference, Share, mean_interval
from varsmooth.evaluation.report.summaries import UNKNOWN, certified_accuracy_table, round_radii
from varsmooth.evaluation.report.tables import Cell, Table, Value
from varsmooth.evidence import SelectorEvidence
from varsmooth.rounding import percent, rounded

TABLE_1: dict[float, tuple[tuple[float, ...], tuple[float, ...]]] = {
    0.12: ((0.0, 0.05, 0.1, 0.2), (0.0, 0.1, 0.2)),
    0.25: ((0.0, 0.05, 0.1, 0.2, 0.3), (0.0, 0.1, 0.2)),
    0.5: ((0.0, 0.05, 0.1, 0.2, 0.3), (0.0,)),
    1.0: ((0.0, 0.05, 0.1, 0.2, 0.3, 0.4), (0.0,)),
}
"""D and λ for each σ_a, as in the paper."""
OTHERS = ((0.0, 0.05, 0.1, 0.2, 0.3), (0.0,))
"""For a σ_a that is not in Table 1."""


# Fig. 2: the trade-off


@dataclass(frozen=True, kw_only=True)
class TradeoffScale(CertifyScale):
    """Fig. 2 has every σ_a at σ_s = σ_a, and one σ_a under the whole sweep."""

    unused = ("n_select", "alpha_select", "percentiles", *HELD_OUT)

    swept: float = size("σ_a of the sweep", 0.5)


def tradeoff(context: Context, scale: TradeoffScale) -> Result:
    """Certified accuracy against radius for σ_s = σ_a, and for one σ_a under many σ_s."""

    def at(name: str, sigma_a: float, level: float) -> Outcomes:
        return Certified(context, scale, sigma_a).g(level, name)

    equal = [at(f"σ_s = σ_a = {sigma:g}", sigma, sigma) for sigma in scale.sigmas]
    title, levels = f"σ_a = {scale.swept:g}", sweep(scale, scale.swept)
    swept = [at(f"{title}, σ_s = {level:.3g}", scale.swept, level) for level in levels]
    shades = colours(max(len(swept), 8))
    figure = Figure(
        "tradeoff",
        f"Fig. 2: certified accuracy against radius. Left: σ_s = σ_a. Right: {title} under "
        "various σ_s. Bands: pointwise 95 % intervals over images.",
        [
            partial(
                plot_curves,
                curves=[Curve(r.name, [r], band=True) for r in equal],
                title="σ_s = σ_a",
                own_legend=True,
            ),
            partial(
                plot_curves,
                curves=[
                    Curve(f"σ_s = {level:.3g}", [run], shade)
                    for run, level, shade in zip(swept, levels, shades, strict=False)
                ],
                title=title,
                own_legend=True,
            ),
        ],
        height=3.7,
        width=9.0,
    )
    every = [*equal, *swept]
    return Result([figure], [certified_accuracy_table(every, (), round_radii(every))])


TRADEOFF = Experiment(
    "tradeoff",
    "Fig. 2",
    "certified accuracy against radius for different noise levels",
    {"cpu": TradeoffScale(**CPU), "paper": TradeoffScale()},
    {"cpu": "10 min", "paper": "1 h on a GPU after training"},
    tradeoff,
    lambda scale: [Need.fixed(sigma) for sigma in dict.fromkeys((*scale.sigmas, scale.swept))],
)


# Fig. 5, Tables 1 and 2: g_v* with and without attack on h


def curves_of(runs: CertifiedRuns) -> list[Curve]:
    """Every method of Fig. 5 on the model of one σ_a."""
    blue, orange, green, pink = colours(4)
    attacked, clipped = (
        [run for each in runs_at.values() for run in each]
        for runs_at in (runs.attacked, runs.clipped)
    )
    return [
        Curve("g, best σ_s at each radius", runs.swept, "#888888"),
        Curve("g, σ_s = σ_a", [runs.equal], pink),
        Curve("g_v*, attack on h (three levels)", attacked, orange, dashes="-", width=3.0),
        Curve("g_v*, the same, clipped", clipped, "#000000", dashes=":", width=1.8),
        Curve("g_v*, sound (ours), clipped", runs.sound, green, width=1.0),
        Curve("g_v*, no attack on h", runs.free, blue, dashes=(0, (5, 2)), width=1.4),
    ]


def certified(context: Context, scale: CertifyScale) -> Result:
    """Certified accuracy of g_v* with and without attack on h, and of the baselines."""
    clips = {}
    for sigma_a in scale.sigmas:
        model, (distances, lams) = Certified(context, scale, sigma_a), TABLE_1.get(sigma_a, OTHERS)
        model.chosen(lams)
        for level in model.levels:
            model.g(level)
        for lam in lams:
            clip = clips[sigma_a, lam] = clip_of(context, scale, sigma_a, lam)
            model.star(lam, "no attack on h", Replay.conditional)
            model.star(lam, "sound", partial(Replay.sound, clip=clip), clip)
            for distance, each in product(distances, (None, clip)):
                paper = partial(Replay.paper, distance=distance, clip=each)
                model.star(lam, f"attack on h, D = {distance:g}", paper, each)
    models = [CertifiedRuns.of(context.evidence.runs, sigma_a) for sigma_a in scale.sigmas]
    above, below = [], []
    for runs in models:
        base, *others = curves = curves_of(runs)
        title = f"σ_a = {runs.sigma_a:g}"
        above.append(partial(plot_curves, curves=curves, title=title))
        until = min(2 * runs.sigma_a, runs.reach)
        below.append(
            partial(plot_certified_gaps, base=base, curves=others, until=until, title=title)
        )
    look: dict[str, Any] = {
        "columns": min(2, len(models)),
        "height": 3.1,
        "width": 6.4 if len(models) < 2 else 8.4,
    }
    figures = [
        Figure(
            "certified",
            "Fig. 5: certified accuracy of g_v* and of the baselines. Each line is the best of its "
            "runs at each radius: over σ_s for g, over the D and λ of Table 1 for g_v*. Three "
            "levels are a heuristic, capped at D.",
            above,
            **look,
        ),
        Figure(
            "certified-gaps",
            "The same minus g at its best σ_s for each radius, up to twice σ_a or nine tenths of "
            "what the votes can certify; band: paired 95 % interval of g_v* without an attack on "
            "h.",
            below,
            **look,
        ),
    ]
    low, high = CLIP_PERCENTILES
    notes = [
        "each σ_s is snapped to the nearest of several levels, percentiles of σ_s on held-out "
        "images",
        "an image whose class according to the selection draws is not its label counts as wrong, "
        "without a vote",
        f"clip: percentiles {low} and {high} of σ_s on held-out images, for each λ",
    ]
    return Result(figures, [_accuracy_table(models), clip_table(clips)], notes)


def _accuracy_table(models: Sequence[CertifiedRuns]) -> Table:
    rows = list[dict[str, Value]]()
    for runs in models:
        radii, fine = np.linspace(0, 2 * runs.sigma_a, 5), np.linspace(0, 2 * runs.sigma_a, 81)
        curves = curves_of(runs)
        ideal = curves[0].accuracy(fine)
        for curve in curves:
            row: dict[str, Value] = {"σ_a": number(runs.sigma_a), "method": curve.label}
            n = len(curve.runs[0])
            for k, share in enumerate(curve.accuracy(radii)):
                row[f"r = {k / 2:g} σ_a"] = Cell(percent(round(share * n), n), float(share))
            best = max(run.average_radius for run in curve.runs)
            row["best ACR"] = Cell(f"{np.floor(1000 * best) / 1000:.3f}", best)
            regret = 100 * float(np.max(ideal - curve.accuracy(fine)))
            rows.append(row | {"regret": number(regret, ".1f")})
    return Table.of(
        "certified-accuracy",
        "Certified accuracy in % at multiples of σ_a, the best of each method's runs at each "
        "radius; the best average certified radius (ACR) of one run; and the regret: percentage "
        "points below the envelope over σ_s where the method is furthest below it, up to 2 σ_a.",
        rows,
    )


def clip_table(clips: Mapping[tuple[float, float], tuple[float, float]]) -> Table:
    """The paper's thresholds and ours, for each σ_a and λ."""
    rows = list[dict[str, Value]]()
    for (sigma_a, lam), clip in clips.items():
        theirs = TABLE_2.get((sigma_a, lam))
        text = "–" if theirs is None else f"{theirs[0]:.2f}, {theirs[1]:.2f}"
        row: dict[str, Value] = {"σ_a": number(sigma_a), "λ": number(lam), "Table 2": Cell(text)}
        ours = dict(zip(("our h_l", "our h_u"), (number(end, ".4f") for end in clip), strict=True))
        rows.append(row | ours)
    low, high = CLIP_PERCENTILES
    return Table.of(
        "clip-thresholds",
        "h_l and h_u: those of the paper's Table 2, which belong to its models, and ours, by the "
        f"rule: percentiles {low} and {high} of σ_s on held-out images.",
        rows,
    )


CERTIFIED = Experiment(
    "certified",
    "Fig. 5, Tables 1 and 2",
    "certified accuracy of g_v* with and without attack on h, and of the baselines",
    {"cpu": CertifyScale(**CPU), "paper": CertifyScale()},
    {"cpu": "15 min for each σ_a", "paper": "hours on a GPU after training"},
    certified,
)


# Fig. 4, App. A and B: bounds of the selector


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
        bounds = mean_bounds(Certified(context, scale, sigma_a), scale, lam)
        title = f"h for σ_a = {sigma_a:g}, λ = {lam:g}"
        distances = np.array(scale.distances)
        plots.append(
            partial(plot_selector_bounds, distances=distances, means=bounds[:, :, 0], title=title)
        )
        for distance, means in zip(scale.distances, bounds, strict=True):
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
        f"g at its mean σ_s, {PAIRED}.",
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
