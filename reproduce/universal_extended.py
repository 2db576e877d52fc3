"""App. C: g_v* on f_u for three ranges σ_a′ and three budgets γ, against g of the middle σ_a."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from reproduce.attacked import (
    CPU,
    G_V_STAR,
    Arena,
    Attacks,
    AttackScale,
    G,
    Point,
    shown,
)
from reproduce.claims import shown_difference, verdict_of
from reproduce.comparing import (
    averaged,
    best,
    clean_gap,
    dominating,
    lines_of,
    loss_gap,
    points_table,
    records_of,
    robust_gap,
)
from reproduce.context import Context
from reproduce.experiment import (
    Claim,
    Experiment,
    Figure,
    Need,
    Result,
    Verdict,
    size,
)
from reproduce.tradeoffs import plot_tradeoff
from varsmooth.report.statistics import PairedDifference

SOURCE = "App. C"

MIDDLE = {0.25: 0.12, 0.5: 0.25, 1.0: 0.5}
"""The σ_a of the baseline for each σ_a′: the middle of its range, as in the paper."""

NARROW, FAR = 0.25, 0.5
"""The σ_a′ and γ at which the paper sees both methods drop, and where it sweeps λ further."""


@dataclass(frozen=True, kw_only=True)
class ExtendedScale(AttackScale):
    """h is told σ_a′/2 and trained toward σ_t = σ_a′."""

    sigmas: tuple[float, ...] = size("σ_a′", (0.25, 0.5, 1.0))
    budgets: tuple[float, ...] = size("γ", (0.1, 0.3, 0.5))
    lams: tuple[float, ...] = size("λ", (0.0, 0.1, 0.2, 0.3, 0.4, 0.5))
    far_lams: tuple[float, ...] = size(
        f"λ at σ_a′ = {NARROW:g} and γ = {FAR:g}", tuple(round(0.1 * k, 1) for k in range(10))
    )
    multiples: tuple[float, ...] = size("swept σ_s / σ_a of g", (0.5, 0.75, 1.0, 1.25, 1.5, 2.0))

    def lams_of(self, universal: float, eps: float) -> tuple[float, ...]:
        return self.far_lams if (universal, eps) == (NARROW, FAR) else self.lams


@dataclass(frozen=True)
class Range:
    """One σ_a′: an arena for each γ."""

    universal: float
    arenas: Sequence[Arena]


def middle_of(universal: float) -> float:
    """The σ_a of the baseline."""
    return MIDDLE.get(universal, universal / 2)


def needs(scale: ExtendedScale) -> list[Need]:
    return [
        need
        for universal in scale.sigmas
        for need in (
            Need(f"universal-{universal:.2f}", selector=True),
            Need.fixed(middle_of(universal)),
        )
    ]


def run(context: Context, scale: ExtendedScale) -> Result:
    ranges = [
        Range(universal, [arena_of(context, scale, universal, eps) for eps in scale.budgets])
        for universal in scale.sigmas
    ]
    arenas = [arena for each in ranges for arena in each.arenas]
    figure = Figure(
        "universal-extended",
        "Clean against robust accuracy under PGD through f, noise and h: g_v* on f_u, λ growing "
        "from the larger point on, and g on the classifier of the middle σ_a, σ_s growing alike, "
        "named where σ_s = σ_a. Pale bars: 95 % intervals over images; all points share images, "
        "so their differences are more certain.",
        [
            partial(
                plot_tradeoff,
                lines=lines_of(
                    [replace(arena, title=f"σ_a = {middle_of(each.universal):g}")], (G, G_V_STAR)
                ),
                title=f"σ_a′ = {each.universal:g}, γ = {arena.eps:g}",
            )
            for each in ranges
            for arena in each.arenas
        ],
        columns=len(scale.budgets),
        legend="upper left",
        height=3.3,
    )
    table = points_table(
        "universal-extended",
        "g_v* on f_u of σ_a′, and g on the classifier of the middle σ_a.",
        arenas,
    )
    claims = [better_claim(ranges), drop_claim(ranges)]
    return Result([figure], [table], claims, records_of(arenas))


def arena_of(context: Context, scale: ExtendedScale, universal: float, eps: float) -> Arena:
    """g_v* on f_u against g on the middle fixed classifier at one γ."""
    attacks = Attacks(context, scale, eps)
    need, middle = Need(f"universal-{universal:.2f}", selector=True), middle_of(universal)
    fixed = Need.fixed(middle)
    levels = sorted({middle, *(round(middle * multiple, 4) for multiple in scale.multiples)})
    swept = {level: attacks.g(fixed, level) for level in levels}
    learned = [attacks.g_v_star(need, lam) for lam in scale.lams_of(universal, eps)]
    title = f"{shown(fixed)} against {shown(need)}"
    return Arena(title, swept[middle], {G: [*swept.values()], G_V_STAR: learned})


def better_claim(ranges: Sequence[Range]) -> Claim:
    """g_v* on f_u beats g of the middle σ_a."""
    told, gaps, fair, numbers = [], list[PairedDifference](), [], {}
    for each in ranges:
        for arena in each.arenas:
            chosen = dominating(arena.methods[G_V_STAR], arena.baseline)
            clean, robust = (gap(chosen, arena.baseline) for gap in (clean_gap, robust_gap))
            gaps += [clean, robust]
            title = f"σ_a′ = {each.universal:g}, γ = {arena.eps:g}"
            numbers[title] = [clean.value, robust.value]
            fair.append(
                shown_difference(robust_gap(best(arena.methods[G_V_STAR]), best(arena.methods[G])))
            )
            told.append(
                f"{title}, {chosen.knob}: clean {shown_difference(clean)}, "
                f"robust {shown_difference(robust)}"
            )
    return Claim(
        "For each σ_a′ g_v* on f_u beats g of the mid-range σ_a",
        SOURCE,
        "g_v* on f_u less g on f at σ_s = σ_a, points: " + "; ".join(told),
        verdict_of(gaps),
        "at the λ whose smaller gain is largest, with hindsight; most robust λ against most robust "
        "σ_s: " + ", ".join(fair),
        numbers,
    )


def drop_claim(ranges: Sequence[Range]) -> Claim:
    """At σ_a′ = ¼ and γ = ½ both drop, ours less."""
    statement = f"At γ = {FAR:g} with σ_a′ = {NARROW:g} both drop, and g_v* on f_u less"
    far = [a for each in ranges if each.universal == NARROW for a in each.arenas if a.eps == FAR]
    if not far:
        return Claim(statement, SOURCE, "not run here", "untested", f"needs σ_a′ = {NARROW:g}")
    (arena,) = far
    ours, theirs = best(arena.methods[G_V_STAR]), arena.baseline
    losses = [averaged([point.lost]) for point in (ours, theirs)]
    less = loss_gap([theirs], [ours])
    both = all(loss.interval().low > 0 for loss in losses)
    verdict: Verdict = verdict_of([less]) if both else "not"
    return Claim(
        statement,
        SOURCE,
        f"loss (clean less robust): g_v*, {ours.knob}: {_loss(ours)}; g, {theirs.knob}: "
        f"{_loss(theirs)}; g loses {shown_difference(less)} points more",
        verdict,
        "the most robust λ, with hindsight",
        {"g_v*": losses[0].value, "g": losses[1].value, "less": less.value},
    )


def _loss(point: Point) -> str:
    return f"{shown_difference(averaged([point.lost]))} from {100 * point.clean.value:.1f} %"


EXPERIMENT = Experiment(
    "universal-extended",
    SOURCE,
    "one classifier for a range of levels against that of the middle level, for three budgets",
    {
        "cpu": ExtendedScale(
            **CPU, lams=(0.0, 0.2, 0.4), far_lams=(0.0, 0.2, 0.4, 0.9), multiples=(0.5, 1.0, 1.5)
        ),
        "paper": ExtendedScale(),
    },
    {"cpu": "1.5 h", "paper": "15 h on a GPU after training"},
    needs,
    run,
)
