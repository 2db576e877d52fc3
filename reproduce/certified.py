"""Certified accuracy: Fig. 2, and Fig. 5 with Tables 1 and 2."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from reproduce.comparisons import TABLE_2, CertifiedRuns
from reproduce.exact import CLIP_PERCENTILES
from reproduce.figures import Curve, Figure, plot_certified_gaps, plot_curves
from reproduce.harness import Context, Experiment, Result, number
from reproduce.replay import CPU, HELD_OUT, Certified, CertifyScale, clip_of, sweep
from reproduce.scales import Need, size
from varsmooth.evaluation.report.figures import colours
from varsmooth.evaluation.report.outcomes import Outcomes
from varsmooth.evaluation.report.summaries import certified_accuracy_table, round_radii
from varsmooth.evaluation.report.tables import Cell, Table, Value
from varsmooth.rounding import percent

TABLE_1: dict[float, tuple[tuple[float, ...], tuple[float, ...]]] = {
    0.12: ((0.0, 0.05, 0.1, 0.2), (0.0, 0.1, 0.2)),
    0.25: ((0.0, 0.05, 0.1, 0.2, 0.3), (0.0, 0.1, 0.2)),
    0.5: ((0.0, 0.05, 0.1, 0.2, 0.3), (0.0,)),
    1.0: ((0.0, 0.05, 0.1, 0.2, 0.3, 0.4), (0.0,)),
}
"""D and λ for each σ_a, as in the paper."""


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


@dataclass(frozen=True, kw_only=True)
class CertifiedScale(CertifyScale):
    """D and λ are those of Table 1 for each σ_a; for another σ_a, these."""

    other_distances: tuple[float, ...] = size(
        "D of a σ_a not in Table 1", (0.0, 0.05, 0.1, 0.2, 0.3), stated=False, zero=True
    )
    other_lams: tuple[float, ...] = size("λ of a σ_a not in Table 1", (0.0,), stated=False)

    @property
    def idle(self) -> tuple[str, ...]:
        return ("other_distances", "other_lams") if {*self.sigmas} <= {*TABLE_1} else ()

    def table_1(self, sigma_a: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return TABLE_1.get(sigma_a, (self.other_distances, self.other_lams))


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


def certified(context: Context, scale: CertifiedScale) -> Result:
    """Certified accuracy of g_v* with and without attack on h, and of the baselines."""
    clips = {}
    for sigma_a in scale.sigmas:
        model, (distances, lams) = Certified(context, scale, sigma_a), scale.table_1(sigma_a)
        model.chosen(lams)
        for level in model.levels:
            model.g(level)
        for lam in lams:
            clip = clips[sigma_a, lam] = clip_of(context, scale, sigma_a, lam)
            model.conditional(lam)
            model.sound(lam, clip)
            for distance in distances:
                model.paper(lam, distance)
                model.paper(lam, distance, clip)
    models = [CertifiedRuns.of(context.evidence.runs, sigma_a) for sigma_a in scale.sigmas]
    above, below = [], []
    for runs in models:
        base, *others = curves = curves_of(runs)
        above.append(partial(plot_curves, curves=curves, title=f"σ_a = {runs.sigma_a:g}"))
        gaps = partial(plot_certified_gaps, base=base, curves=others, until=2 * runs.sigma_a)
        below.append(gaps)
    figure = Figure(
        "certified",
        "Fig. 5: certified accuracy of g_v* and of the baselines. Above: each line is the best of "
        "its runs at each radius: over σ_s for g, over the D and λ of Table 1 for g_v*. Below: the "
        "same minus g at its best σ_s for each radius, up to twice σ_a; band: paired 95 % interval "
        "of g_v* without an attack on h. Three levels are a heuristic, capped at D.",
        [*above, *below],
        columns=len(models),
        height=3.3,
        width=max(6.4, 3.4 * len(models)),
    )
    low, high = CLIP_PERCENTILES
    notes = [
        "each σ_s is snapped to the nearest of several levels, percentiles of σ_s on held-out "
        "images",
        "an image whose class according to the selection draws is not its label counts as wrong, "
        "without a vote",
        f"clip: percentiles {low} and {high} of σ_s on held-out images, for each λ",
    ]
    return Result([figure], [_accuracy_table(models), clip_table(clips)], notes)


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
    {"cpu": CertifiedScale(**CPU), "paper": CertifiedScale()},
    {"cpu": "15 min for each σ_a", "paper": "hours on a GPU after training"},
    certified,
)
