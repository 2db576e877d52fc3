"""Fig. 2: certified accuracy against radius for σ_s = σ_a, and for one σ_a under many σ_s."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np

from reproduce.claims import shown_difference, verdict_of
from reproduce.context import Context
from reproduce.curves import Curve, plot_curves
from reproduce.experiment import (
    Claim,
    Experiment,
    Figure,
    Need,
    Result,
    size,
)
from reproduce.levels import CPU, CertifyScale, fixed_runs, sweep
from reproduce.outcomes import best_at, certified
from varsmooth.report.figures import colours
from varsmooth.report.outcomes import Outcomes
from varsmooth.report.statistics import PairedDifference
from varsmooth.report.summaries import certified_accuracy_table, round_radii


@dataclass(frozen=True, kw_only=True)
class TradeoffScale(CertifyScale):
    """Fig. 2 has every σ_a at σ_s = σ_a, and one σ_a under the whole sweep."""

    swept: float = size("σ_a of the sweep", 0.5)


def needs(scale: TradeoffScale) -> list[Need]:
    return [Need.fixed(sigma) for sigma in dict.fromkeys((*scale.sigmas, scale.swept))]


def run(context: Context, scale: TradeoffScale) -> Result:
    equal = []
    for sigma_a in scale.sigmas:
        (found,) = fixed_runs(context, scale, sigma_a, [sigma_a])
        equal.append(certified(found, f"σ_s = σ_a = {sigma_a:g}"))
    levels = sweep(scale, scale.swept)
    runs = fixed_runs(context, scale, scale.swept, levels)
    swept = [
        certified(found, f"σ_a = {scale.swept:g}, σ_s = {level:.3g}")
        for found, level in zip(runs, levels, strict=True)
    ]
    figure = Figure(
        "tradeoff",
        f"Certified accuracy against radius. Left: σ_s = σ_a. Right: σ_a = {scale.swept:g} under "
        "various σ_s. Bands: pointwise 95 % intervals over images.",
        [
            partial(plot_curves, curves=[Curve(r.name, [r], band=True) for r in equal]),
            partial(plot_curves, curves=_shaded(swept), title=f"σ_a = {scale.swept:g}"),
        ],
        height=3.9,
    )
    every = [*equal, *swept]
    table = certified_accuracy_table(every, (), round_radii(every))
    claims = [sizes_claim(equal), sweep_claim(swept, levels)]
    return Result([figure], [table], claims, every)


def _shaded(runs: Sequence[Outcomes]) -> list[Curve]:
    shades = colours(max(len(runs), 8))
    return [
        Curve(f"σ_s = {run.sigmas[0]:.3g}", [run], shade)
        for run, shade in zip(runs, shades, strict=False)
    ]


def sizes_claim(runs: Sequence[Outcomes]) -> Claim:
    """Smaller σ: higher accuracy, smaller radius."""
    gaps = [
        PairedDifference.of(small.reach >= 0, large.reach >= 0) for small, large in pairwise(runs)
    ]
    furthest = [max(0.0, float(run.reach.max())) for run in runs]
    accuracy = [float((run.reach >= 0).mean()) for run in runs]
    verdict = verdict_of(gaps)
    if verdict == "held" and furthest != sorted(furthest):
        verdict = "partly"
    told = "; ".join(
        f"{run.name}: {100 * share:.1f} % at r = 0, furthest radius {far:.2f}"
        for run, share, far in zip(runs, accuracy, furthest, strict=True)
    )
    steps = ", ".join(shown_difference(gap) for gap in gaps)
    return Claim(
        "Smaller σ gives higher certified accuracy and smaller certified radius",
        "Fig. 2a",
        told + (f". Accuracy lost from each σ to the next: {steps}" if steps else ""),
        verdict,
        "paired by image at r = 0" if gaps else "one σ_a only; run it with more models",
        {"accuracy": accuracy, "furthest": furthest},
    )


def sweep_claim(runs: Sequence[Outcomes], levels: Sequence[float]) -> Claim:
    """One f under many σ_s: small levels win near r = 0, large ones far out."""
    top = max(0.0, *(float(run.reach.max()) for run in runs))
    radii = [float(r) for r in np.linspace(0, top, 6)[:-1]]
    best = [levels[runs.index(best_at(runs, r))] for r in radii]
    rising = best == sorted(best) and best[0] < best[-1]
    told = "; ".join(f"r = {r:.2f}: {level:.3g}" for r, level in zip(radii, best, strict=True))
    return Claim(
        "For one f, σ_s trades certified accuracy against radius",
        "Fig. 2b",
        f"best σ_s at each radius: {told}",
        "held" if rising else "partly" if best[0] < best[-1] else "not",
        "the best σ_s grows with the radius" if rising else "the best σ_s does not only grow",
        {"radii": radii, "best": best},
    )


EXPERIMENT = Experiment(
    "tradeoff",
    "Fig. 2",
    "certified accuracy against radius for different noise levels",
    {"cpu": TradeoffScale(**CPU), "paper": TradeoffScale()},
    {"cpu": "10 min", "paper": "1 h on a GPU after training"},
    needs,
    run,
)
