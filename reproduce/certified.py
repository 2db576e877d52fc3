"""Experiment A: Fig. 5, Tables 1 and 2. Certified accuracy of g_v* with and without attack on h."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from reproduce.claims import shown_difference, shown_radius_gap, verdict_of
from reproduce.context import Context
from reproduce.curves import Curve, plot_curves
from reproduce.experiment import (
    Claim,
    Experiment,
    Figure,
    Need,
    Result,
    Verdict,
    size,
)
from reproduce.levels import (
    CPU,
    CertifyScale,
    fixed_runs,
    held_out_medians,
    selector_run,
    table_levels,
)
from reproduce.outcomes import certified, gap_at, shares_at
from reproduce.replay import Replay, VoteTable
from varsmooth.report.outcomes import Outcomes
from varsmooth.report.statistics import (
    MeanDifference,
    PairedDifference,
    average_certified_radius,
)
from varsmooth.report.tables import Cell, Table
from varsmooth.rounding import percent
from varsmooth.selectors import Grid

TABLE_1: dict[float, tuple[tuple[float, ...], tuple[float, ...]]] = {
    0.12: ((0.0, 0.05, 0.1, 0.2), (0.0, 0.1, 0.2)),
    0.25: ((0.0, 0.05, 0.1, 0.2, 0.3), (0.0, 0.1, 0.2)),
    0.5: ((0.0, 0.05, 0.1, 0.2, 0.3), (0.0,)),
    1.0: ((0.0, 0.05, 0.1, 0.2, 0.3, 0.4), (0.0,)),
}
"""D and λ for each σ_a, as in the paper."""

TABLE_2: dict[tuple[float, float], tuple[float, float]] = {
    (0.12, 0.0): (0.06, 0.10),
    (0.12, 0.1): (0.08, 0.11),
    (0.12, 0.2): (0.09, 0.12),
    (0.25, 0.0): (0.16, 0.24),
    (0.25, 0.1): (0.18, 0.25),
    (0.25, 0.2): (0.20, 0.27),
    (0.5, 0.0): (0.34, 0.48),
    (1.0, 0.0): (0.68, 1.10),
}
"""h_l and h_u for each σ_a and λ, as in the paper; they belong to the authors' models."""

CLIP_PERCENTILES = (5, 95)
"""Our rule: clip h to these percentiles of σ_s over held-out images."""


@dataclass(frozen=True, kw_only=True)
class CertifiedScale(CertifyScale):
    """D and λ are those of Table 1 for each σ_a; for another σ_a, these."""

    distances: tuple[float, ...] = size("D of a σ_a not in Table 1", (0.0, 0.05, 0.1, 0.2, 0.3))
    lams: tuple[float, ...] = size("λ of a σ_a not in Table 1", (0.0,))

    def table_1(self, sigma_a: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return TABLE_1.get(sigma_a, (self.distances, self.lams))


@dataclass(frozen=True)
class Methods:
    """Every method of Fig. 5 on the model of one σ_a: runs to take the best of at each radius."""

    sigma_a: float
    clips: dict[float, tuple[float, float]]
    levels: tuple[float, ...]
    swept: Sequence[Outcomes]
    equal: Sequence[Outcomes]
    attacked: Sequence[Outcomes]
    clipped: Sequence[Outcomes]
    unattacked: Sequence[Outcomes]
    sound: Sequence[Outcomes]

    @property
    def curves(self) -> list[Curve]:
        return [
            Curve("g, envelope over σ_s", self.swept, "#888888"),
            Curve("g, σ_s = σ_a", self.equal, "#000000", band=True),
            Curve("g_v*, no attack on h (conditional)", self.unattacked),
            Curve("g_v*, attack on h (heuristic)", self.attacked),
            Curve("g_v*, attack on h, clipped (heuristic)", self.clipped),
            Curve("g_v*, ours, clipped (sound)", self.sound),
        ]

    @property
    def radii(self) -> list[float]:
        """Where methods are compared: from 0 to twice σ_a."""
        return [k * self.sigma_a / 2 for k in range(5)]


def needs(scale: CertifiedScale) -> list[Need]:
    return [Need.fixed(sigma, selector=True) for sigma in scale.sigmas]


def run(context: Context, scale: CertifiedScale) -> Result:
    methods = [methods_of(context, scale, sigma_a) for sigma_a in scale.sigmas]
    figure = Figure(
        "certified",
        "Certified accuracy of g_v* and of the baselines. Each line is the best of its runs at "
        "each radius: over σ_s for the envelope, over the D and λ of Table 1 for g_v*. Solid: "
        "sound; dashed: conditional (h assumed unattacked); dotted: heuristic (three levels, "
        "capped at D). Band: pointwise 95 % interval over images.",
        [
            partial(plot_curves, curves=found.curves, title=f"σ_a = {found.sigma_a:g}")
            for found in methods
        ],
        columns=min(2, len(methods)),
        legend="upper right",
        height=3.7,
    )
    records = [
        run
        for found in methods
        for runs in (found.swept, found.unattacked, found.attacked, found.clipped, found.sound)
        for run in runs
    ]
    low, high = CLIP_PERCENTILES
    notes = [
        "Each σ_s is snapped to the nearest level of the vote table",
        f"clip: percentiles {low} and {high} of σ_s on held-out images, for each λ",
    ]
    tables = [_accuracy_table(methods), _clip_table(methods)]
    return Result([figure], tables, claims_of(methods, scale), records, notes)


def methods_of(context: Context, scale: CertifiedScale, sigma_a: float) -> Methods:
    """All runs of one σ_a; only votes at each level and samples of h at each λ are drawn."""
    distances, lams = scale.table_1(sigma_a)
    levels = table_levels(context, scale, sigma_a)
    fixed = fixed_runs(context, scale, sigma_a, levels)
    replays = replays_of(context, scale, sigma_a, lams, levels, VoteTable(fixed))
    clips = {lam: clip_of(held_out_medians(context, scale, sigma_a, lam)) for lam in lams}
    swept = [
        certified(found, f"g, σ_a = {sigma_a:g}, σ_s = {level:.3g}")
        for found, level in zip(fixed, levels, strict=True)
    ]
    return Methods(
        sigma_a,
        clips,
        levels,
        swept,
        equal=[swept[int(np.abs(np.array(levels) - sigma_a).argmin())]],
        attacked=[replay.paper(d) for replay in replays.values() for d in distances],
        clipped=[replay.paper(d, clips[lam]) for lam, replay in replays.items() for d in distances],
        unattacked=[replay.conditional() for replay in replays.values()],
        sound=[replay.sound(clips[lam]) for lam, replay in replays.items()],
    )


def replays_of(
    context: Context,
    scale: CertifyScale,
    sigma_a: float,
    lams: Sequence[float],
    levels: Sequence[float],
    table: VoteTable,
) -> dict[float, Replay]:
    """The stored evidence of g_v* at each λ."""
    runs = {lam: selector_run(context, scale, sigma_a, lam, levels) for lam in lams}
    label = f"g_v*, σ_a = {sigma_a:g}"
    return {lam: Replay(table, found, f"{label}, λ = {lam:g}") for lam, found in runs.items()}


def clip_of(
    medians: Sequence[float] | np.ndarray[tuple[int], np.dtype[np.float64]],
) -> tuple[float, float]:
    """h_l and h_u from σ_s on held-out images."""
    low, high = (float(q) for q in np.percentile(medians, CLIP_PERCENTILES))
    return low, max(high, low * (1 + 1e-6))


def _accuracy_table(methods: Sequence[Methods]) -> Table:
    rows = []
    for found in methods:
        fine = np.linspace(0, found.radii[-1], 81)
        ideal = found.curves[0].accuracy(fine)
        for curve in found.curves:
            n = len(curve.runs[0])
            regret = 100 * float(np.max(ideal - curve.accuracy(fine)))
            shares = shares_at(curve.runs, found.radii)
            best = max(average_certified_radius(run.reach) for run in curve.runs)
            cells = [Cell(percent(round(s * n), n), float(s)) for s in shares]
            head = [Cell(f"{found.sigma_a:g}", found.sigma_a), Cell.of(curve.label)]
            tail = [
                Cell(f"{np.floor(1000 * best) / 1000:.3f}", best),
                Cell(f"{regret:.1f}", regret),
            ]
            rows.append([*head, *cells, *tail])
    return Table(
        "certified-accuracy",
        "Certified accuracy in % at multiples of σ_a, the best of each method's runs at each "
        "radius; the best average certified radius (ACR) of one run; and the regret: percentage "
        "points below the envelope over σ_s where the method is furthest below it, up to 2 σ_a.",
        ["σ_a", "method", *(f"r = {k / 2:g} σ_a" for k in range(5)), "best ACR", "regret"],
        rows,
    )


def _clip_table(methods: Sequence[Methods]) -> Table:
    rows = []
    for found in methods:
        for lam, clip in found.clips.items():
            theirs = TABLE_2.get((found.sigma_a, lam))
            left = Grid.make(found.levels, clip).levels
            rows.append(
                [
                    Cell(f"{found.sigma_a:g}", found.sigma_a),
                    Cell(f"{lam:g}", lam),
                    Cell("–" if theirs is None else f"{theirs[0]:.2f}, {theirs[1]:.2f}"),
                    Cell(f"{clip[0]:.3f}, {clip[1]:.3f}"),
                    Cell(", ".join(f"{level:.3f}" for level in left)),
                ]
            )
    return Table(
        "clip-thresholds",
        "h_l and h_u: those of the paper's Table 2, which belong to its models, and ours, by the "
        f"rule: percentiles {CLIP_PERCENTILES[0]} and {CLIP_PERCENTILES[1]} of σ_s on held-out "
        "images; and the levels of the vote table that our thresholds leave.",
        ["σ_a", "λ", "Table 2", "ours", "levels left"],
        rows,
    )


def claims_of(methods: Sequence[Methods], scale: CertifiedScale) -> list[Claim]:
    """The sentences of the paper's Experiment A, and what one setting for all radii gains."""
    return [
        compared(
            methods,
            "g_v* without attack on h beats the baseline σ_s = σ_a in certified accuracy",
            lambda m: [gap_at(m.unattacked, m.equal, r) for r in m.radii],
            "at r = 0, ½, 1, 1½ and 2 times σ_a",
            "best λ at each radius, with hindsight, as in the paper; what a single σ_s can do "
            "likewise is in the next line",
        ),
        compared(
            methods,
            "g_v* without attack on h beats the envelope of the σ_s sweep",
            lambda m: [gap_at(m.unattacked, m.swept, r) for r in m.radii],
            "at r = 0, ½, 1, 1½ and 2 times σ_a",
            "both sides take their best run at each radius",
        ),
        near_and_far(methods, scale),
        compared(
            methods,
            "Clipping alleviates what the attack on h costs",
            lambda m: [gap_at(m.clipped, m.attacked, d) for d in scale.table_1(m.sigma_a)[0]],
            "clipped less not clipped, at r = D for each D of Table 1",
            "paired by image",
        ),
        larger_average(
            methods,
            "With one λ, g_v* without attack on h has a larger average radius than any one σ_s",
            lambda m: m.unattacked,
        ),
        larger_average(
            methods,
            "With one λ, g_v* certified soundly has a larger average radius than any one σ_s",
            lambda m: m.sound,
        ),
    ]


def larger_average(
    methods: Sequence[Methods],
    statement: str,
    runs_of: Callable[[Methods], Sequence[Outcomes]],
) -> Claim:
    """The best λ against the best σ_s of the table, by the average certified radius of one run."""
    told, gaps = [], {}
    for found in methods:
        ours, theirs = (_largest_average(runs) for runs in (runs_of(found), found.swept))
        radii, others = (np.maximum(run.reach, 0) for run in (ours, theirs))
        gap = gaps[f"{found.sigma_a:g}"] = MeanDifference((radii - others).tolist())
        told.append(
            f"σ_a = {found.sigma_a:g}: {radii.mean():.3f} with {100 * ours.correct.mean():.1f} % "
            f"right against {others.mean():.3f} with {100 * theirs.correct.mean():.1f} %, "
            f"{shown_radius_gap(gap)}"
        )
    return Claim(
        statement,
        "ours, on Fig. 5",
        "average radius, wrong images 0: " + "; ".join(told),
        verdict_of(list(gaps.values())),
        "λ (of Table 1) and σ_s chosen with hindsight, paired by image",
        {sigma: gap.value for sigma, gap in gaps.items()},
    )


def _largest_average(runs: Sequence[Outcomes]) -> Outcomes:
    return max(runs, key=lambda run: average_certified_radius(run.reach))


def compared(
    methods: Sequence[Methods],
    statement: str,
    gaps_of: Callable[[Methods], list[PairedDifference]],
    where: str,
    why: str,
) -> Claim:
    """A claim that one method is better than another, from paired gaps for each σ_a."""
    gaps = {f"{found.sigma_a:g}": gaps_of(found) for found in methods}
    told = "; ".join(
        f"σ_a = {sigma}: " + ", ".join(shown_difference(gap) for gap in each)
        for sigma, each in gaps.items()
    )
    every = [gap for each in gaps.values() for gap in each]
    equal = not any(gap.only_first or gap.only_second for gap in every)
    return Claim(
        statement,
        "Fig. 5",
        f"points {where}: {told}",
        "untested" if equal else verdict_of(every),
        "equal on every image: there is no difference to judge" if equal else why,
        {sigma: [gap.value for gap in each] for sigma, each in gaps.items()},
    )


def near_and_far(methods: Sequence[Methods], scale: CertifiedScale) -> Claim:
    """With attack on h: close to the baseline for small D, worse for large D."""
    told, near, far = [], [], []
    numbers = {}
    for found in methods:
        budgets = [d for d in scale.table_1(found.sigma_a)[0] if d > 0]
        gaps = [gap_at(found.attacked, found.equal, d) for d in budgets]
        near.append(gaps[0])
        far.append(gaps[-1])
        numbers[f"{found.sigma_a:g}"] = [gap.value for gap in gaps]
        told.append(
            f"σ_a = {found.sigma_a:g}: "
            + ", ".join(
                f"{shown_difference(gap)} at r = D = {d:g}"
                for gap, d in zip(gaps, budgets, strict=True)
            )
        )
    close = all(gap.value >= -0.05 for gap in near)
    worse = any(gap.interval().high < 0 for gap in far)
    verdict: Verdict = "held" if close and worse else "partly" if close or worse else "not"
    return Claim(
        "With attack on h, g_v* is close to the baseline for small D and worse for large D",
        "Fig. 5",
        "g_v* (i) less g at σ_s = σ_a, points: " + "; ".join(told),
        verdict,
        "close: within 5 points at the smallest D; worse: an interval below 0 at the largest D. "
        "A radius is capped at D, so beyond the largest D nothing is certified, by definition",
        numbers,
    )


EXPERIMENT = Experiment(
    "certified",
    "Fig. 5, Tables 1 and 2",
    "certified accuracy of g_v* with and without attack on h, and of the baselines",
    {"cpu": CertifiedScale(**CPU), "paper": CertifiedScale()},
    {"cpu": "15 min for each σ_a", "paper": "hours on a GPU after training"},
    needs,
    run,
)
