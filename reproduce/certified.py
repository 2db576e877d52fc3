"""Certified accuracy: Fig. 2, and Fig. 5 with Tables 1 and 2."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, pairwise

import numpy as np

from reproduce.counterexample import counterexample_claim
from reproduce.harness import Claim, Context, Experiment, Figure, Need, Result, size
from reproduce.plots import Curve, plot_curves
from reproduce.replay import (
    CLIP_PERCENTILES,
    CPU,
    Certified,
    CertifyScale,
    clip_of,
    sweep,
)
from reproduce.verdicts import AnyOf, MeanDifference, judged, shown_gap
from varsmooth import bounds
from varsmooth.bounds import Floats, average_certified_radius
from varsmooth.evaluation.report.figures import colours
from varsmooth.evaluation.report.outcomes import Outcomes
from varsmooth.evaluation.report.statistics import (
    PairedDifference,
    certified_counts,
)
from varsmooth.evaluation.report.summaries import certified_accuracy_table, round_radii
from varsmooth.evaluation.report.tables import Cell, Table
from varsmooth.rounding import percent, rounded

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


def best_at(runs: Sequence[Outcomes], radius: float) -> Outcomes:
    """The run with the highest certified accuracy at a radius; the first of equals."""
    return max(runs, key=lambda run: int(certified_counts(run.reach, radius)))


def gap_at(first: Sequence[Outcomes], second: Sequence[Outcomes], r: float) -> PairedDifference:
    """Certified accuracy at r of the best of some runs minus that of the best of others."""
    one, other = best_at(first, r), best_at(second, r)
    assert np.array_equal(one.ids, other.ids)
    return PairedDifference.of(one.reach >= r, other.reach >= r)


def shares_at(runs: Sequence[Outcomes], radii: Sequence[float]) -> Floats:
    """The best certified accuracy at each radius, (m,)."""
    return np.array([certified_counts(best_at(runs, r).reach, r) / len(runs[0]) for r in radii])


# Fig. 2: the trade-off


@dataclass(frozen=True, kw_only=True)
class TradeoffScale(CertifyScale):
    """Fig. 2 has every σ_a at σ_s = σ_a, and one σ_a under the whole sweep."""

    unused = ("n_select", "alpha_select", "percentiles", "held_out", "held_out_draws", "choice")

    swept: float = size("σ_a of the sweep", 0.5)


def tradeoff(context: Context, scale: TradeoffScale) -> Result:
    """Certified accuracy against radius for σ_s = σ_a, and for one σ_a under many σ_s."""

    def at(name: str, sigma_a: float, level: float) -> Outcomes:
        return Certified(context, scale, sigma_a).fixed(name, level)

    equal = [at(f"σ_s = σ_a = {sigma:g}", sigma, sigma) for sigma in scale.sigmas]
    title, levels = f"σ_a = {scale.swept:g}", sweep(scale, scale.swept)
    swept = [at(f"{title}, σ_s = {level:.3g}", scale.swept, level) for level in levels]
    shaded = [
        Curve(f"σ_s = {level:.3g}", [run], shade)
        for run, level, shade in zip(swept, levels, colours(max(len(swept), 8)), strict=False)
    ]
    figure = Figure(
        "tradeoff",
        f"Certified accuracy against radius. Left: σ_s = σ_a. Right: {title} under "
        "various σ_s. Bands: pointwise 95 % intervals over images.",
        [
            partial(plot_curves, curves=[Curve(r.name, [r], band=True) for r in equal]),
            partial(plot_curves, curves=shaded, title=title),
        ],
        height=3.9,
    )
    every = [*equal, *swept]
    table = certified_accuracy_table(every, (), round_radii(every))
    claims = [
        sizes_claim(equal, scale),
        *sweep_claims(swept, levels, scale),
        close_claim(swept, levels, scale.swept),
    ]
    return Result([figure], [table], claims)


def far(scale: CertifyScale) -> list[float]:
    """Where a larger σ may win, in multiples of the smaller, which could still certify there.

    With N = 1000 votes at α = 0.001 a unanimous vote proves 2.46 σ.
    """
    return [share for share in (1.5, 2.0, 2.25) if share < reach_of(scale, 1.0)]


def far_words(scale: CertifyScale) -> str:
    """Where the larger σ must win, in words."""
    shares = " or ".join(f"{share:g}" for share in far(scale))
    return (
        f"r = {shares} times the smaller, with hindsight (from "
        f"{reach_of(scale, 1.0):.3g} times on the smaller certifies nothing, and the larger wins "
        "by arithmetic)"
    )


def traded(
    small: Outcomes,
    large: Outcomes,
    s: float,
    t: float,
    name: str,
    shares: Sequence[float],
) -> list[dict[str, PairedDifference]]:
    """The smaller level wins at r = 0, and the larger further out, at one of several radii."""
    return [
        {
            f"r = 0, {name} = {s:.3g} − {t:.3g}": gap_at([small], [large], 0.0),
            f"r = {share * s:.3g}, {name} = {t:.3g} − {s:.3g}": gap_at([large], [small], share * s),
        }
        for share in shares
    ]


def sizes_claim(runs: Sequence[Outcomes], scale: TradeoffScale) -> Claim:
    """Smaller σ: more images certified near r = 0, fewer far out."""
    return judged(
        "Each smaller σ gives higher certified accuracy, while sacrificing certified radius",
        "Fig. 2a",
        [
            AnyOf(traded(small, large, s, t, "σ", far(scale)))
            for (small, s), (large, t) in pairwise(zip(runs, scale.sigmas, strict=True))
        ],
        "certified accuracy at the first σ minus that at the second",
        f"both must hold: the smaller σ wins at r = 0, and the larger at {far_words(scale)}",
        every=True,
    )


def sweep_claims(
    swept: Sequence[Outcomes], levels: Sequence[float], scale: TradeoffScale
) -> list[Claim]:
    """One f under two σ_s: the smaller wins near r = 0, the larger far out."""
    pairs = list(combinations(zip(swept, levels, strict=True), 2))
    best = ", ".join(
        f"{levels[swept.index(best_at(swept, r))]:.3g} at r = {r:g}"
        for r in (k * scale.swept / 2 for k in range(6))
    )

    def some_pair(shares: Sequence[float]) -> AnyOf:
        return AnyOf(
            [
                case
                for (small, s), (large, t) in pairs
                for case in traded(small, large, s, t, "σ_s", shares)
            ]
        )

    beyond = 1.01 * reach_of(scale, 1.0)
    what = "certified accuracy at the first σ_s minus that at the second"
    both = "both must hold for some pair of σ_s: the smaller wins at r = 0, and the larger at"
    return [
        judged(
            "For one f, σ_s trades certified accuracy against radius",
            "Fig. 2b",
            [some_pair([beyond])],
            what,
            f"{both} r = {beyond:.3g} times the smaller, which certifies nothing there; the best "
            f"σ_s with hindsight: {best}",
        ),
        judged(
            "For one f, a larger σ_s certifies more images even where the smaller could certify",
            "ours, on Fig. 2b",
            [some_pair(far(scale))],
            what,
            f"{both} {far_words(scale)}",
        ),
    ]


def reach_of(scale: CertifyScale, level: float) -> float:
    """The largest radius that N votes prove at a level: if all of them agree."""
    return float(bounds.class_radius(scale.n, scale.n, level, scale.alpha))


def close_claim(swept: Sequence[Outcomes], levels: Sequence[float], sigma_a: float) -> Claim:
    """What f was trained for serves it better than half and twice as much noise."""
    radii = [np.maximum(run.reach, 0) for run in swept]
    at = _nearest(levels, sigma_a)
    ends = dict.fromkeys(_nearest(levels, share * sigma_a) for share in (0.5, 2.0))
    return judged(
        "f trained with a fixed σ_a works well with σ_s close to σ_a",
        "§3.1: “is expected to work well”, on Fig. 2b",
        [
            {
                f"σ_s = {levels[at]:.3g} − {levels[end]:.3g}": MeanDifference(
                    (radii[at] - radii[end]).tolist()
                )
                for end in ends
                if end != at
            }
        ],
        "average radius at σ_s = σ_a minus that at half and at twice σ_a, or the nearest of the "
        "sweep, counting wrong images as 0",
        "both must hold; the average radius is our measure; it is "
        + ", ".join(
            f"{rounded(each.mean())} at {level:.3g}"
            for each, level in zip(radii, levels, strict=True)
        ),
        digits=3,
    )


def _nearest(levels: Sequence[float], level: float) -> int:
    return int(np.abs(np.array(levels) - level).argmin())


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


@dataclass(frozen=True)
class Methods:
    """Every method of Fig. 5 on the model of one σ_a: runs to take the best of at each radius.

    chosen: g_v* without attack on h and g, at the λ and the σ_s that held-out images chose.
    """

    sigma_a: float
    clips: dict[float, tuple[float, float]]
    chosen: tuple[Outcomes, Outcomes] | None
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


def certified(context: Context, scale: CertifiedScale) -> Result:
    """Certified accuracy of g_v* with and without attack on h, and of the baselines."""
    methods = [methods_of(Certified(context, scale, sigma), scale) for sigma in scale.sigmas]
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
    low, high = CLIP_PERCENTILES
    notes = [
        "each σ_s is snapped to the nearest of several levels, percentiles of σ_s on held-out "
        "images",
        "an image whose class according to the selection draws is not its label counts as wrong, "
        "without a vote",
        f"clip: percentiles {low} and {high} of σ_s on held-out images, for each λ",
    ]
    tables = [_accuracy_table(methods), _clip_table(methods)]
    return Result([figure], tables, claims_of(methods, scale), notes)


def methods_of(model: Certified, scale: CertifiedScale) -> Methods:
    """All runs of one σ_a."""
    distances, lams = scale.table_1(model.sigma_a)
    clips = {lam: clip_of(model.context, scale, model.sigma_a, lam) for lam in lams}
    levels, choice = model.levels, model.chosen(lams)
    swept = [model.g(level) for level in levels]
    unattacked = {lam: model.conditional(lam) for lam in lams}
    return Methods(
        model.sigma_a,
        clips,
        None if choice is None else (unattacked[choice[0]], swept[levels.index(choice[1])]),
        swept,
        equal=[swept[_nearest(levels, model.sigma_a)]],
        unattacked=list(unattacked.values()),
        attacked=[model.paper(lam, d) for lam in lams for d in distances],
        clipped=[model.paper(lam, d, clips[lam]) for lam in lams for d in distances],
        sound=[model.sound(lam, clips[lam]) for lam in lams],
    )


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
    rows = [
        [Cell(f"{found.sigma_a:g}", found.sigma_a), *clip_cells(found.sigma_a, lam, clip)]
        for found in methods
        for lam, clip in found.clips.items()
    ]
    return Table("clip-thresholds", CLIP_CAPTION, CLIP_COLUMNS, rows)


CLIP_COLUMNS = ["σ_a", "λ", "Table 2", "our h_l", "our h_u"]
CLIP_CAPTION = (
    "h_l and h_u: those of the paper's Table 2, which belong to its models, and ours, by the rule: "
    f"percentiles {CLIP_PERCENTILES[0]} and {CLIP_PERCENTILES[1]} of σ_s on held-out images."
)


def clip_cells(sigma_a: float, lam: float, clip: tuple[float, float]) -> list[Cell]:
    """λ, the paper's thresholds and ours."""
    theirs = TABLE_2.get((sigma_a, lam))
    shown = "–" if theirs is None else f"{theirs[0]:.2f}, {theirs[1]:.2f}"
    return [Cell(f"{lam:g}", lam), Cell(shown), *(Cell(f"{end:.4f}", end) for end in clip)]


def claims_of(methods: Sequence[Methods], scale: CertifiedScale) -> list[Claim]:
    """The sentences of the paper's Experiment A, and what one setting for all radii gains."""
    hindsight = "the best λ at each radius, with hindsight, as in the paper"
    of_both = "the best λ and D at each radius, with hindsight, as in the paper"
    multiples = (
        f"at r = 0, ½, 1, 1½ and 2 times σ_a, as far as {scale.n} votes at the σ_s of most images "
        "can certify"
    )

    def beyond(runs_of: Callable[[Methods], Sequence[Outcomes]]) -> str:
        return left_out(methods, scale, lambda m, r: gap_at(m.unattacked, runs_of(m), r))

    lams = max(len(m.unattacked) for m in methods)
    sigmas = max(len(m.swept) for m in methods)
    attacked = max(len(m.attacked) for m in methods)

    def in_reach(
        gap: Callable[[Methods, float], PairedDifference],
    ) -> dict[str, PairedDifference]:
        return {
            f"σ_a = {m.sigma_a:g}, r = {r:g}{near_the_end(m, r, scale)}": gap(m, r)
            for m in methods
            for r in m.radii
            if r <= usual_reach(m.unattacked, scale)
        }

    return [
        judged(
            "Without an attack on h, g_v* certifies more images than the baseline σ_s = σ_a",
            "Fig. 5",
            in_reach(lambda m, r: gap_at(m.unattacked, m.equal, r)),
            f"certified accuracy of g_v* minus that of g {multiples}",
            "; ".join(filter(None, (hindsight, beyond(lambda m: m.equal)))),
            ours=lams,
        ),
        judged(
            "Without an attack on h, g_v* certifies more images than the best σ_s at each radius",
            "Fig. 5",
            in_reach(lambda m, r: gap_at(m.unattacked, m.swept, r)),
            f"certified accuracy of g_v* minus that of g {multiples}",
            "; ".join(
                filter(
                    None,
                    (
                        "the best λ and the best σ_s at each radius, with hindsight",
                        beyond(lambda m: m.swept),
                    ),
                )
            ),
            ours=lams,
            theirs=sigmas,
        ),
        chosen_claim(methods),
        judged(
            "With an attack on h, g_v* is close to the baselines if D is small",
            "Fig. 5, discussion, conclusion",
            [
                {
                    f"σ_a = {m.sigma_a:g}, r = {r:g}, {name}": gap_at(m.attacked, runs_of(m), r)
                    for name, runs_of in BASELINES.items()
                    for r in _budgets(m, scale)[:1]
                }
                for m in methods
            ],
            "certified accuracy of g_v* with attack on h minus that of g, at r = D for the "
            "smallest D > 0",
            f"against both baselines; {of_both}",
            margin=CLOSE,
            ours=attacked,
            theirs=sigmas,
        ),
        judged(
            "With an attack on h, g_v* falls behind the baselines as the radius grows",
            "ours, on Fig. 5: “can degrade as radius becomes larger”",
            [
                {
                    f"σ_a = {m.sigma_a:g}, {name}": _widening(m, scale, runs_of)
                    for name, runs_of in BASELINES.items()
                }
                for m in methods
            ],
            "certified accuracy of g minus that of g_v* with attack on h, at r = D for the "
            "largest D, minus the same for the smallest D",
            f"against both baselines; {of_both}; beyond the largest D g_v* certifies nothing, by "
            "definition",
            ours=sigmas * attacked,
            theirs=sigmas * attacked,
        ),
        attack_claim(methods, scale),
        clipping_claim(methods, scale),
        Claim(
            "Dual smoothing requires more computing resources",
            "discussion: “potentially”",
            f"{scale.n_select} evaluations of h in addition to {scale.n} votes of f",
            f"{scale.n_select} evaluations of h in addition to {scale.n} votes of f, cast at three "
            "levels if h may be attacked",
            "trivial",
            "by definition of g_v*",
        ),
        larger_average(methods, "without an attack on h", lambda m: m.unattacked),
        larger_average(methods, "certified soundly", lambda m: m.sound),
        cost_claim(methods, scale),
        counterexample_claim(scale.n, scale.alpha),
    ]


CLOSE = 0.05
"""What "close to the baseline" allows."""


def _budgets(model: Methods, scale: CertifiedScale) -> list[float]:
    return [d for d in scale.table_1(model.sigma_a)[0] if d > 0]


BASELINES: dict[str, Callable[[Methods], Sequence[Outcomes]]] = {
    "g at σ_s = σ_a": lambda m: m.equal,
    "g at its best σ_s": lambda m: m.swept,
}


def _widening(
    m: Methods, scale: CertifiedScale, runs_of: Callable[[Methods], Sequence[Outcomes]]
) -> MeanDifference:
    """How much further g_v* with attack on h is behind g at the largest D than at the smallest."""
    budgets = _budgets(m, scale)

    def behind(r: float) -> Floats:
        first, second = (best_at(runs, r).reach >= r for runs in (runs_of(m), m.attacked))
        return first.astype(float) - second

    return MeanDifference((behind(budgets[-1]) - behind(budgets[0])).tolist(), bound=1.0)


def left_out(
    methods: Sequence[Methods],
    scale: CertifiedScale,
    gap: Callable[[Methods, float], PairedDifference],
) -> str:
    """Which radii are beyond N votes at the levels of h, in words."""
    found = [
        f"σ_a = {m.sigma_a:g}, r = {r:g}: {shown_gap(gap(m, r))}"
        for m in methods
        for r in m.radii
        if r > usual_reach(m.unattacked, scale)
    ]
    because = f"left out, as {scale.n} votes at the σ_s of most images cannot certify so far: "
    return because + ", ".join(found) if found else ""


def near_the_end(m: Methods, r: float, scale: CertifiedScale) -> str:
    """A mark for a radius that almost no image can reach."""
    at_the_end = r > 0.9 * usual_reach(m.unattacked, scale)
    return f" (in the last tenth of what {scale.n} votes can certify)" if at_the_end else ""


def usual_reach(runs: Sequence[Outcomes], scale: CertifiedScale) -> float:
    """The largest radius that N votes prove at the σ_s of at least half of the images of a run."""
    return reach_of(scale, max(float(np.median(run.sigmas)) for run in runs))


def attack_claim(methods: Sequence[Methods], scale: CertifiedScale) -> Claim:
    """What the attack on h costs at the same λ; it cannot gain."""
    lost = {}
    for m in methods:
        distances, lams = scale.table_1(m.sigma_a)
        pairs = zip(lams, m.unattacked, strict=True)
        settings = [(lam, free, d) for lam, free in pairs for d in distances]
        for (lam, free, d), attacked in zip(settings, m.attacked, strict=True):
            name = f"σ_a = {m.sigma_a:g}, λ = {lam:g}, r = D = {d:g}"
            lost[name] = gap_at([free], [attacked], d)
    largest = max(lost, key=lambda name: lost[name].value)
    what = "certified accuracy of g_v* without an attack on h minus that with it, points"
    return Claim(
        "Certified robustness becomes worse if the input of h is attacked",
        "Fig. 5, discussion",
        f"at r = D it loses {100 * lost[largest].value:.1f} points at most ({largest})",
        f"{what}: " + "; ".join(f"{name}: {shown_gap(gap)}" for name, gap in lost.items()),
        "trivial",
        "it cannot become better, as the median is one of the three levels; beyond D nothing is "
        "certified, by definition",
        {name: gap.value for name, gap in lost.items()},
        what,
    )


def chosen_claim(methods: Sequence[Methods]) -> Claim:
    """λ and σ_s fixed beforehand, judged by what they were chosen for."""
    known = [m.chosen for m in methods if m.chosen is not None]
    return judged(
        "With λ and σ_s chosen on held-out images, g_v* without an attack on h has a larger "
        "average radius than g",
        "ours, on Fig. 5",
        {
            f"{learned.name} against σ_s = {fixed.sigmas[0]:.3g}": MeanDifference(
                (np.maximum(learned.reach, 0) - np.maximum(fixed.reach, 0)).tolist()
            )
            for learned, fixed in known
        },
        "average radius of g_v* minus that of g, counting wrong images as 0",
        "λ and σ_s of the largest average radius on held-out images",
        digits=3,
    )


def clipping_claim(methods: Sequence[Methods], scale: CertifiedScale) -> Claim:
    """Clipping under attack on h, at the same λ and D, and how many radii it changed at all."""
    pairs, gaps = [], {}
    for m in methods:
        distances, lams = scale.table_1(m.sigma_a)
        settings = [(lam, d) for lam in lams for d in distances]
        for (lam, d), one, other in zip(settings, m.clipped, m.attacked, strict=True):
            pairs.append((one, other))
            gaps[f"σ_a = {m.sigma_a:g}, λ = {lam:g}, r = D = {d:g}"] = gap_at([one], [other], d)
    changed = sum(int((one.radii != other.radii).sum()) for one, other in pairs)
    return judged(
        "Clipping reduces the loss from the attack on h",
        "Fig. 5, discussion",
        gaps,
        "certified accuracy of g_v* with attack on h, clipped minus not clipped, at r = D",
        f"clipping changed {changed} of {sum(len(one) for one, _ in pairs)} radii",
        verdict=None if changed else "trivial",
    )


def larger_average(
    methods: Sequence[Methods], how: str, runs_of: Callable[[Methods], Sequence[Outcomes]]
) -> Claim:
    """The best λ against the best σ_s, by the average certified radius of one run."""
    gaps, shown = {}, []
    for found in methods:
        ours, theirs = (_largest_average(runs) for runs in (runs_of(found), found.swept))
        radii, others = (np.maximum(run.reach, 0) for run in (ours, theirs))
        gaps[f"σ_a = {found.sigma_a:g}"] = MeanDifference((radii - others).tolist())
        shown.append(
            f"σ_a = {found.sigma_a:g}: {rounded(radii.mean())} with "
            f"{100 * ours.correct.mean():.1f} % correct against {rounded(others.mean())} with "
            f"{100 * theirs.correct.mean():.1f} %"
        )
    return judged(
        f"At a single λ, g_v* {how} has a larger average radius than any single σ_s",
        "ours, on Fig. 5",
        gaps,
        "average radius of g_v* minus that of g, counting wrong images as 0",
        "; ".join(shown) + "; λ (of Table 1) and σ_s chosen with hindsight",
        digits=3,
        ours=max(len(runs_of(m)) for m in methods),
        theirs=max(len(m.swept) for m in methods),
    )


KEPT = 0.9
"""The sound certificate should keep this share of the unattacked average radius."""


def cost_claim(methods: Sequence[Methods], scale: CertifiedScale) -> Claim:
    """What it costs that the certificate holds whatever the attacker does to h."""
    gaps, shown = {}, []
    for m in methods:
        lams = scale.table_1(m.sigma_a)[1]
        for lam, *runs in zip(lams, m.sound, m.unattacked, strict=True):
            sound, free = (np.maximum(run.reach, 0) for run in runs)
            title = f"σ_a = {m.sigma_a:g}, λ = {lam:g}"
            gaps[title] = MeanDifference((sound - KEPT * free).tolist())
            shown.append(f"{title}: {rounded(sound.mean())} of {rounded(free.mean())}")
    return judged(
        "Soundness against attacks on h costs at most a tenth of the average radius",
        "ours, on Fig. 5",
        gaps,
        f"average radius, sound minus {KEPT:g} times unattacked, counting wrong images as 0",
        f"{'; '.join(shown)}; the tenth is ours; sound: clipped",
        digits=3,
        every=True,
    )


def _largest_average(runs: Sequence[Outcomes]) -> Outcomes:
    return max(runs, key=lambda run: average_certified_radius(run.reach))


CERTIFIED = Experiment(
    "certified",
    "Fig. 5, Tables 1 and 2",
    "certified accuracy of g_v* with and without attack on h, and of the baselines",
    {"cpu": CertifiedScale(**CPU), "paper": CertifiedScale()},
    {"cpu": "15 min for each σ_a", "paper": "hours on a GPU after training"},
    certified,
)
