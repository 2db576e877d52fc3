"""Accuracy under attack of one classifier for all levels: Fig. 9 and App. C."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from reproduce.arenas import (
    COLOURS,
    CPU,
    FIXED_CPU,
    G_V_STAR,
    Arena,
    Attacks,
    AttackScale,
    FixedScale,
    G,
    Point,
    against_best,
    arena,
    averaged,
    best,
    chosen_claim,
    clean,
    clean_gap,
    dominance,
    fixed_arena,
    lines_of,
    most_points,
    plane,
    points_table,
    robust,
    robust_gap,
)
from reproduce.harness import Claim, Context, Experiment, Need, Result, pair_needs, size
from reproduce.plots import Line
from reproduce.verdicts import MARGIN, AnyOf, MeanDifference, judged
from varsmooth.evaluation.report.figures import colours
from varsmooth.evaluation.report.statistics import PairedDifference

# Fig. 9: one classifier for all levels

REPLACED_FROM = 0.37
"""The σ_a from which on the paper would replace the fixed classifiers."""


@dataclass(frozen=True, kw_only=True)
class UniversalScale(FixedScale):
    """h of f_u has σ_a = ½ as input and is trained toward σ_t = 1."""

    unused = ("choice", "selector_samples", "closer")

    eps: float = size("γ", 0.3)
    universal: float = size("σ_a′ of f_u", 1.0)
    universal_lams: tuple[float, ...] = size(
        "λ on f_u", tuple(round(0.05 * k, 2) for k in range(19))
    )
    levels: tuple[float, ...] = size(
        "σ_s of g on f_u", (0.06, 0.12, 0.25, 0.37, 0.5, 0.75, 1.0), stated=False
    )

    @property
    def need(self) -> Need:
        return Need.universal(self.universal)


def universal(context: Context, scale: UniversalScale) -> Result:
    """f_u against classifiers of one σ_a each, under the strong attack."""
    attacks = Attacks(context, scale, scale.eps)
    star = {G_V_STAR: Attacks.g_v_star}
    arenas = [fixed_arena(attacks, scale, sigma, star) for sigma in scale.sigmas]
    half = scale.universal / 2
    levels = sorted({*scale.levels, *scale.sigmas, half})
    title = f"f_u, {scale.need.title}"
    one = arena(attacks, title, (scale.need, half), levels, scale.need, scale.universal_lams, star)
    learned, swept = one.methods[G_V_STAR], dict(zip(levels, one.methods[G], strict=True))
    orange = colours(2)[1]
    ends = (learned[0], learned[-1])
    hollow: dict[str, Any] = {"filled": False, "dashed": True, "marker": "s"}
    lines = [
        Line(
            "g, σ_s = σ_a",
            [each.baseline.outcomes for each in arenas],
            [each.title for each in arenas],
            COLOURS[G],
            **hollow,
        ),
        *lines_of(arenas, (G_V_STAR,)),
        Line(
            "g on f_u, σ_s swept",
            [point.outcomes for point in swept.values()],
            [f"{level:g}" for level in levels],
            orange,
            **hollow,
        ),
        Line(
            "g_v* on f_u, λ swept",
            [point.outcomes for point in learned],
            [point.knob if point in ends else "" for point in learned],
            orange,
        ),
    ]
    figure = plane(
        "universal",
        f"Clean against robust accuracy under PGD through f, noise and h, γ = {scale.eps:g}: the "
        "classifier f_u for all levels (orange; g named by its σ_s) against classifiers of one σ_a "
        "each (grey: g at σ_s = σ_a; blue: g_v*). λ grows along g_v* from the larger marker on.",
        {f"γ = {scale.eps:g}": lines},
        legend="upper left",
        height=4.8,
    )
    table = points_table(
        "universal",
        f"g and g_v* on fixed classifiers and on f_u, whose gaps are to g at σ_s = {half:g}.",
        [*arenas, one],
    )
    rivals = dict(zip(scale.sigmas, arenas, strict=True))
    return Result([figure], [table], universal_claims(rivals, swept, learned))


def nearest(points: Sequence[Point], sigma: float) -> Point:
    """The one whose mean σ_s without attack is nearest to sigma."""
    return min(points, key=lambda point: abs(float(point.outcomes.clean_sigmas.mean()) - sigma))


def accuracies(title: str, one: Point, other: Point) -> dict[str, PairedDifference]:
    """Differences in clean and in robust accuracy."""
    return {
        f"{title}, clean": clean_gap(one, other),
        f"{title}, robust": robust_gap(one, other),
    }


def universal_claims(
    rivals: Mapping[float, Arena], swept: Mapping[float, Point], learned: Sequence[Point]
) -> list[Claim]:
    """g and g_v* on f_u against the fixed classifiers, and whether f_u replaces these."""

    def some(at: Arena, mine: Sequence[Point], rival: Point) -> AnyOf:
        return AnyOf(
            [
                accuracies(f"{p.method}, {p.knob} against {at.title}, {rival.knob}", p, rival)
                for p in mine
            ]
        )

    def more(gains: Mapping[float, Any], method: str, what: str) -> dict[str, MeanDifference]:
        small, large = min(gains), max(gains)
        title = f"{method}, σ_a = {large:g} − {small:g}, {what}"
        return {title: averaged([gains[large] - gains[small]])} if small < large else {}

    def gains_of(column: Callable[[Point], Any], method: str) -> dict[float, Any]:
        """What f_u gains over f at each σ_a, image by image."""
        found = {}
        for sigma, at in rivals.items():
            one, other = swept[sigma], at.baseline
            if method == G_V_STAR:
                one, other = (nearest(p, sigma) for p in (learned, at.methods[G_V_STAR]))
            found[sigma] = 1 * column(one) - column(other)
        return found

    most = most_points(list(rivals.values()), G_V_STAR)
    grown = [
        judged(
            f"{method} performs better on f_u especially at larger σ_a",
            "Fig. 9",
            [
                more(gains_of(clean, method), method, "clean")
                | more(gains_of(robust, method), method, "robust")
            ],
            f"gain in accuracy of {method} on f_u over f at the largest σ_a minus that at the "
            "smallest, clean and robust",
            f"both must hold; {how}",
        )
        for method, how in (
            (G, "σ_s = σ_a"),
            (G_V_STAR, "each at the λ whose mean σ_s is nearest to σ_a"),
        )
    ]
    replaced = {sigma: at for sigma, at in rivals.items() if sigma >= REPLACED_FROM}
    return [
        judged(
            "g performs better on f_u than on the fixed f",
            "Fig. 9: “especially at relatively larger σ_a”",
            [accuracies(at.title, swept[sigma], at.baseline) for sigma, at in rivals.items()],
            "accuracy of g on f_u minus that of g on f, both at σ_s = σ_a, clean and robust",
            "both must hold; no hindsight",
        ),
        judged(
            "g_v* performs better on f_u than on the fixed f",
            "Fig. 9: “especially at relatively larger σ_a”",
            [some(at, learned, best(at.methods[G_V_STAR])) for at in rivals.values()],
            "accuracy of g_v* on f_u minus that of g_v* on f, clean and robust",
            "both must hold at one λ on f_u; the most robust λ on f; both with hindsight",
            theirs=most,
        ),
        *grown,
        judged(
            f"f_u could replace each fixed f from σ_a = {REPLACED_FROM} on",
            "Fig. 9",
            [some(at, [*swept.values(), *learned], at.baseline) for at in replaced.values()],
            "accuracy of the best point of f_u minus that of g on f at σ_s = σ_a, clean and robust",
            f"both must hold; f_u's setting chosen with hindsight; judged at σ_a = "
            f"{', '.join(f'{sigma:g}' for sigma in replaced)}",
            margin=MARGIN,
        ),
    ]


UNIVERSAL = Experiment(
    "universal",
    "Fig. 9",
    "one classifier for all levels against the fixed ones, strong attack",
    {
        "cpu": UniversalScale(
            **FIXED_CPU,
            universal_lams=(0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 0.9),
            levels=(0.12, 0.25, 0.37, 0.5, 1.0),
        ),
        "paper": UniversalScale(),
    },
    {"cpu": "25 min after strong-attack", "paper": "10 h on a GPU after training"},
    universal,
    lambda scale: [*pair_needs(scale), scale.need],
)


# App. C: three ranges, three budgets

MIDDLE = {0.25: 0.12, 0.5: 0.25, 1.0: 0.5}
"""The σ_a of the baseline for each σ_a′: the middle of its range, as in the paper."""

NARROW, FAR = 0.25, 0.5
"""The σ_a′ and γ at which the paper sees both methods drop, and where it sweeps λ further."""


@dataclass(frozen=True, kw_only=True)
class ExtendedScale(AttackScale):
    """h has σ_a′/2 as input and is trained toward σ_t = σ_a′."""

    unused = ("selector_samples",)

    sigmas: tuple[float, ...] = size("σ_a′", (0.25, 0.5, 1.0))
    budgets: tuple[float, ...] = size("γ", (0.1, 0.3, 0.5))
    lams: tuple[float, ...] = size("λ", (0.0, 0.1, 0.2, 0.3, 0.4, 0.5))
    far_lams: tuple[float, ...] = size(
        f"λ at σ_a′ = {NARROW:g} and γ = {FAR:g}", tuple(round(0.1 * k, 1) for k in range(10))
    )
    multiples: tuple[float, ...] = size(
        "swept σ_s / σ_a of g", (0.5, 0.75, 1.0, 1.25, 1.5, 2.0), stated=False
    )

    def lams_of(self, universal: float, eps: float) -> tuple[float, ...]:
        return self.far_lams if (universal, eps) == (NARROW, FAR) else self.lams


def middle_of(universal: float) -> float:
    """The σ_a of the baseline."""
    return MIDDLE.get(universal, universal / 2)


EXTENDED_GAIN = (
    "For each σ_a′ and γ, g_v* on f_u performs better than g on the f of the mid-range σ_a"
)


def universal_extended(context: Context, scale: ExtendedScale) -> Result:
    """g_v* on f_u for three ranges σ_a′ and three budgets γ, against g of the middle σ_a."""
    arenas = {
        (sigma, eps): extended_arena(context, scale, sigma, eps)
        for sigma in scale.sigmas
        for eps in scale.budgets
    }
    figure = plane(
        "universal-extended",
        "Clean against robust accuracy under PGD through f, noise and h: g_v* on f_u, λ growing "
        "from the larger marker on, and g on the classifier of the middle σ_a, σ_s growing alike; "
        "the label marks σ_s = σ_a.",
        {
            f"σ_a′ = {sigma:g}, γ = {eps:g}": lines_of(
                [replace(at, title=f"σ_a = {middle_of(sigma):g}")], (G, G_V_STAR)
            )
            for (sigma, eps), at in arenas.items()
        },
        columns=len(scale.budgets),
        legend="upper left",
        height=3.3,
    )
    every = list(arenas.values())
    table = points_table(
        "universal-extended",
        "g_v* on f_u of σ_a′, and g on the classifier of the middle σ_a.",
        every,
    )
    why = "clean and robust must hold at the same λ, chosen with hindsight"
    claims = [
        judged(
            EXTENDED_GAIN,
            "ours, on App. C: “performed well” at σ_a′ = 0.25, “performed better” at 0.5 and 1",
            [dominance(at, [G_V_STAR], at.baseline) for at in every],
            "accuracy of g_v* on f_u minus that of g on f at σ_s = σ_a, clean and robust",
            f"{why}; {against_best(every, G_V_STAR)}",
            every=True,
        ),
        judged(
            f"{EXTENDED_GAIN}, at its most robust σ_s",
            "ours, on App. C: “by sweeping σ_s”",
            [dominance(at, [G_V_STAR], best(at.methods[G])) for at in every],
            "accuracy of g_v* on f_u minus that of g on f, clean and robust",
            f"{why}; σ_s with hindsight",
            theirs=most_points(every, G),
            every=True,
        ),
        chosen_claim(every, G_V_STAR, "App. C", " on f_u", " on the f of the mid-range σ_a"),
        far_claim(arenas),
        depends_claim(arenas),
        sweep_claim(arenas),
    ]
    return Result([figure], [table], claims)


def extended_arena(context: Context, scale: ExtendedScale, universal: float, eps: float) -> Arena:
    """g_v* on f_u against g on the middle fixed classifier at one γ."""
    sigma_a, need = middle_of(universal), Need.universal(universal)
    fixed, lams = Need.fixed(sigma_a), scale.lams_of(universal, eps)
    return arena(
        Attacks(context, scale, eps),
        f"{need.title} against {fixed.title}",
        (fixed, sigma_a),
        sorted({sigma_a, *(round(sigma_a * multiple, 4) for multiple in scale.multiples)}),
        need,
        lams,
        {G_V_STAR: Attacks.g_v_star},
        choose=G_V_STAR,
    )


Extended = Mapping[tuple[float, float], Arena]
"""An arena for each σ_a′ and γ."""


def far_claim(arenas: Extended) -> Claim:
    """Both drop as γ grows, and ours is more robust at the largest."""
    near, far = (end(eps for _, eps in arenas) for end in (min, max))

    def case(sigma: float) -> dict[str, PairedDifference]:
        low, high = arenas[sigma, near], arenas[sigma, far]
        before, ours = best(low.methods[G_V_STAR]), best(high.methods[G_V_STAR])
        title, rival = f"σ_a′ = {sigma:g}", high.baseline
        return {
            f"{title}, g_v*, {before.knob} and {ours.knob}": robust_gap(before, ours),
            f"{title}, g, {rival.knob}": robust_gap(low.baseline, rival),
            f"{title}, {ours.knob} against {rival.knob}": robust_gap(ours, rival),
        }

    return judged(
        f"For each σ_a′ both drop as γ grows to {far:g}, and g_v* on f_u is more robust there",
        "App. C",
        [case(sigma) for sigma in dict.fromkeys(sigma for sigma, _ in arenas) if near < far],
        f"robust accuracy at γ = {near:g} minus that at {far:g}, of g_v* on f_u and of g on f at "
        f"σ_s = σ_a; and of g_v* minus that of g at {far:g}",
        "all three must hold; the most robust λ at each γ, with hindsight",
        ours=most_points(list(arenas.values()), G_V_STAR),
        every=True,
    )


def depends_claim(arenas: Extended) -> Claim:
    """g_v* at its most robust λ on the f_u of the widest and of the narrowest range."""
    low, high = (end(sigma for sigma, _ in arenas) for end in (min, max))
    gaps: dict[str, PairedDifference] = {}
    for eps in dict.fromkeys(eps for _, eps in arenas) if low < high else {}:
        wide, narrow = (best(arenas[sigma, eps].methods[G_V_STAR]) for sigma in (high, low))
        gaps |= apart(f"γ = {eps:g}", (f"σ_a′ = {high:g}", wide), (f"σ_a′ = {low:g}", narrow))
    return judged(
        "The performance on f_u depends on σ_a′",
        "App. C",
        gaps,
        "accuracy of g_v* on the better f_u minus that on the other, of the largest and the "
        "smallest σ_a′, at the most robust λ of each",
        "confirmed if an interval excludes 0; λ with hindsight",
        ours=most_points(list(arenas.values()), G_V_STAR) ** 2,
    )


def apart(
    title: str, one: tuple[str, Point], other: tuple[str, Point]
) -> dict[str, PairedDifference]:
    """How far two points differ, in clean and in robust accuracy: the better minus the other."""
    gaps = {}
    for what, gap in (("clean", clean_gap), ("robust", robust_gap)):
        pair = (one, other) if gap(one[1], other[1]).value >= 0 else (other, one)
        (first, better), (second, worse) = pair
        gaps[f"{title}, {first} − {second}, {what}"] = gap(better, worse)
    return gaps


def sweep_claim(arenas: Extended) -> Claim:
    """g_v* at the smallest λ and at the largest."""
    cases = []
    for (sigma, eps), at in arenas.items():
        first, last = at.methods[G_V_STAR][0], at.methods[G_V_STAR][-1]
        title = f"σ_a′ = {sigma:g}, γ = {eps:g}"
        if first is not last:
            cases.append(apart(title, (first.knob, first), (last.knob, last)))
    return judged(
        "g_v* demonstrates different clean and robust accuracy by sweeping λ",
        "App. C",
        cases,
        "accuracy of g_v* on f_u at the better of the smallest and the largest λ minus that at the "
        "other, clean and robust",
        "both must differ in one case; an interval that excludes 0 shows it",
    )


UNIVERSAL_EXTENDED = Experiment(
    "universal-extended",
    "App. C",
    "one classifier for a range of levels against that of the middle level, for three budgets",
    {
        "cpu": ExtendedScale(
            **CPU, lams=(0.0, 0.2, 0.4), far_lams=(0.0, 0.2, 0.4, 0.9), multiples=(0.5, 1.0, 1.5)
        ),
        "paper": ExtendedScale(),
    },
    {"cpu": "2.5 h", "paper": "15 h on a GPU after training"},
    universal_extended,
    lambda scale: [
        need
        for sigma in scale.sigmas
        for need in (Need.universal(sigma), Need.fixed(middle_of(sigma)))
    ],
)
