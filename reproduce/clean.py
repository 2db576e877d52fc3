"""Fig. 6a: clean accuracy against the noise level, for g and for g_v with its mean σ_s."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from reproduce.claims import shown_difference, verdict_of
from reproduce.context import Context
from reproduce.curves import Points, plot_points
from reproduce.experiment import (
    Claim,
    Experiment,
    Figure,
    Need,
    Result,
    size,
)
from reproduce.levels import (
    ALL_LAMS,
    CPU,
    CertifyScale,
    fixed_runs,
    selector_options,
    table_levels,
)
from reproduce.outcomes import majority
from varsmooth.report.figures import colours
from varsmooth.report.outcomes import Outcomes
from varsmooth.report.statistics import PairedDifference, Share
from varsmooth.report.tables import Cell, Table


@dataclass(frozen=True, kw_only=True)
class CleanScale(CertifyScale):
    """Fig. 6a: λ steers g_v, σ_s steers g."""

    lams: tuple[float, ...] = size("λ", ALL_LAMS)


@dataclass(frozen=True)
class Pair:
    """g_v at one λ beside g at the level of the table next to its mean σ_s."""

    sigma_a: float
    lam: float
    learned: Outcomes
    fixed: Outcomes

    @property
    def gap(self) -> PairedDifference:
        return PairedDifference.of(self.learned.correct, self.fixed.correct)


def needs(scale: CleanScale) -> list[Need]:
    return [Need.fixed(sigma, selector=True) for sigma in scale.sigmas]


def run(context: Context, scale: CleanScale) -> Result:
    series, pairs, records = [], [], []
    for sigma_a, colour in zip(scale.sigmas, colours(len(scale.sigmas)), strict=True):
        levels = table_levels(context, scale, sigma_a)
        fixed = [
            majority(found, f"g, σ_a = {sigma_a:g}, σ_s = {level:.3g}")
            for found, level in zip(
                fixed_runs(context, scale, sigma_a, levels), levels, strict=True
            )
        ]
        learned = [learned_run(context, scale, sigma_a, lam, levels) for lam in scale.lams]
        for lam, one in zip(scale.lams, learned, strict=True):
            nearest = int(np.abs(np.log(levels) - np.log(one.sigmas.mean())).argmin())
            pairs.append(Pair(sigma_a, lam, one, fixed[nearest]))
        series += [
            _points(f"g, σ_a = {sigma_a:g}", fixed, colour, filled=False),
            _points(f"g_v, σ_a = {sigma_a:g}", learned, colour, filled=True),
        ]
        records += [*fixed, *learned]
    figure = Figure(
        "clean",
        "Clean accuracy against the noise level: σ_s for g (dashed), the mean of all selected σ_s "
        "for g_v (solid, λ from left to right as listed). Bars: 95 % intervals over images; g and "
        "g_v share images and votes, so their differences are far more certain than the bars.",
        [partial(plot_points, series=series, xlabel="(mean) σ_s", ylabel="clean accuracy (%)")],
        legend="lower left",
        height=4.4,
    )
    notes = ["Each selected σ_s is snapped to the nearest level of the vote table"]
    return Result([figure], [_table(pairs)], [clean_claim(pairs)], records, notes)


def learned_run(
    context: Context, scale: CleanScale, sigma_a: float, lam: float, levels: Sequence[float]
) -> Outcomes:
    """g_v: h evaluated once on x + ε, ε ~ N(0, σ_a² I), snapped to the table's levels."""
    need = Need.fixed(sigma_a, selector=True)
    model = selector_options(context, need, lam, levels, draws=1)
    data = context.images(scale.data, "test", scale.images)
    settings = replace(scale.settings, method="conditional")
    name = f"g_v, σ_a = {sigma_a:g}, λ = {lam:g}"
    return majority(context.certify(name, model, data, settings), name)


def _points(label: str, runs: Sequence[Outcomes], colour: str, filled: bool) -> Points:
    means = [float(run.sigmas.mean()) for run in runs]
    return Points(
        label, means, [Share.of(run.correct) for run in runs], colour=colour, filled=filled
    )


def _table(pairs: Sequence[Pair]) -> Table:
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
        "Clean accuracy in % of g_v, and of g at the level next to g_v's mean σ_s; the difference "
        "in percentage points, paired by image, with 95 % intervals.",
        ["σ_a", "λ", "mean σ_s", "sd of σ_s", "g_v", "σ_s of g", "g", "g_v − g"],
        rows,
    )


def clean_claim(pairs: Sequence[Pair]) -> Claim:
    """At equal mean σ, g_v is more often right than g."""
    gaps = [pair.gap for pair in pairs]
    told = "; ".join(
        f"σ_a = {pair.sigma_a:g}, λ = {pair.lam:g}: {shown_difference(gap)}"
        for pair, gap in zip(pairs, gaps, strict=True)
    )
    spread = max(float(pair.learned.sigmas.std() / pair.learned.sigmas.mean()) for pair in pairs)
    verdict = verdict_of(gaps)
    if verdict == "partly" and max(abs(gap.value) for gap in gaps) < 0.02:
        verdict = "not"
    return Claim(
        "g_v has better clean accuracy than g at equal mean σ",
        "Fig. 6a",
        f"g_v − g in points: {told}",
        verdict,
        f"selected σ_s differ between images by {100 * spread:.0f} % at most (sd/mean): there is "
        "little that g_v does differently",
        {"gaps": [gap.value for gap in gaps]},
    )


EXPERIMENT = Experiment(
    "clean",
    "Fig. 6a",
    "clean accuracy of g_v and g against the noise level",
    {"cpu": CleanScale(**CPU), "paper": CleanScale()},
    {"cpu": "1 min after certified", "paper": "minutes after certified"},
    needs,
    run,
)
