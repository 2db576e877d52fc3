"""Fig. 9: one classifier f_u for all levels against the fixed ones, under the strong attack."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from reproduce.attacked import (
    FIXED_CPU,
    G_V_STAR,
    Arena,
    Attacks,
    FixedScale,
    G,
    Point,
    fixed_arena,
    fixed_needs,
    shown,
)
from reproduce.claims import shown_difference, verdict_of
from reproduce.comparing import (
    COLOURS,
    best,
    clean_gap,
    dominating,
    lines_of,
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
from reproduce.tradeoffs import Line, plot_tradeoff
from varsmooth.report.figures import colours
from varsmooth.report.statistics import PairedDifference

REPLACED_FROM = 0.37
"""The σ_a from which on the paper would replace the fixed classifiers."""

CLOSE = 0.02
"""A replacement may be worse by so much, if its interval also reaches 0."""


@dataclass(frozen=True, kw_only=True)
class UniversalScale(FixedScale):
    """h of f_u is told σ_a = ½ and trained toward σ_t = 1."""

    eps: float = size("γ", 0.3)
    universal: float = size("σ_a′ of f_u", 1.0)
    universal_lams: tuple[float, ...] = size(
        "λ on f_u", tuple(round(0.05 * k, 2) for k in range(19))
    )
    levels: tuple[float, ...] = size("σ_s of g on f_u", (0.06, 0.12, 0.25, 0.37, 0.5, 0.75, 1.0))

    @property
    def need(self) -> Need:
        return Need(f"universal-{self.universal:.2f}", selector=True)


@dataclass(frozen=True)
class Universal:
    """The points of f_u: g at each σ_s, g_v* at each λ."""

    swept: dict[float, Point]
    learned: Sequence[Point]

    @property
    def lines(self) -> list[Line]:
        orange = colours(2)[1]
        ends = (self.learned[0], self.learned[-1])
        names = [p.knob if any(p is end for end in ends) else "" for p in self.learned]
        return [
            Line(
                "g on f_u, σ_s swept",
                [point.outcomes for point in self.swept.values()],
                [f"{level:g}" for level in self.swept],
                orange,
                filled=False,
                dashed=True,
                marker="s",
            ),
            Line("g_v* on f_u, λ swept", [p.outcomes for p in self.learned], names, orange),
        ]


def needs(scale: UniversalScale) -> list[Need]:
    return [*fixed_needs(scale), scale.need]


def run(context: Context, scale: UniversalScale) -> Result:
    attacks = Attacks(context, scale, scale.eps)
    arenas = [
        fixed_arena(attacks, scale, sigma, {G_V_STAR: attacks.g_v_star}) for sigma in scale.sigmas
    ]
    one = universal_of(attacks, scale)
    baselines = Line(
        "g, σ_s = σ_a",
        [arena.baseline.outcomes for arena in arenas],
        [arena.title for arena in arenas],
        COLOURS[G],
        filled=False,
        dashed=True,
        marker="s",
    )
    figure = Figure(
        "universal",
        f"Clean against robust accuracy under PGD through f, noise and h, γ = {scale.eps:g}: the "
        "classifier f_u for all levels (orange; g named by its σ_s) against classifiers of one σ_a "
        "each (grey: g at σ_s = σ_a; blue: g_v*). λ grows along g_v* from the larger point on. "
        "Pale bars: 95 % intervals over images; all points share images, so their differences are "
        "more certain.",
        [
            partial(
                plot_tradeoff,
                lines=[baselines, *lines_of(arenas, (G_V_STAR,)), *one.lines],
                title=f"γ = {scale.eps:g}",
            )
        ],
        legend="upper left",
        height=4.8,
    )
    middle = one.swept[scale.universal / 2]
    title = f"f_u, {shown(scale.need)}"
    arena_u = Arena(title, middle, {G: [*one.swept.values()], G_V_STAR: one.learned})
    every = [*arenas, arena_u]
    table = points_table(
        "universal",
        f"g and g_v* on fixed classifiers and on f_u, whose gaps are to g at σ_s = "
        f"{scale.universal / 2:g}.",
        every,
    )
    claims = [
        same_level_claim(arenas, one, scale),
        selector_claim(arenas, one),
        replace_claim(arenas, one),
    ]
    return Result([figure], [table], claims, records_of(every))


def universal_of(attacks: Attacks, scale: UniversalScale) -> Universal:
    levels = sorted({*scale.levels, *scale.sigmas, scale.universal / 2})
    return Universal(
        {level: attacks.g(scale.need, level) for level in levels},
        [attacks.g_v_star(scale.need, lam) for lam in scale.universal_lams],
    )


def same_level_claim(arenas: Sequence[Arena], one: Universal, scale: UniversalScale) -> Claim:
    """g on f_u against g on f, both at σ_s = σ_a."""
    gaps, told = dict[float, PairedDifference](), []
    for sigma, arena in zip(scale.sigmas, arenas, strict=True):
        mine = one.swept[sigma]
        gaps[sigma] = robust_gap(mine, arena.baseline)
        told.append(
            f"{arena.title}: robust {shown_difference(gaps[sigma])}, clean "
            f"{shown_difference(clean_gap(mine, arena.baseline))}"
        )
    large = [gap for sigma, gap in gaps.items() if sigma >= REPLACED_FROM]
    return Claim(
        "g is better on f_u than on the fixed f, especially at larger σ_a",
        "Fig. 9",
        "g on f_u less g on f, both at σ_s = σ_a, points: " + "; ".join(told),
        verdict_of(large),
        f"verdict from the robust gaps at σ_a ≥ {REPLACED_FROM}; no hindsight"
        if large
        else f"no model of σ_a ≥ {REPLACED_FROM} here",
        {f"{sigma:g}": gap.value for sigma, gap in gaps.items()},
    )


def selector_claim(arenas: Sequence[Arena], one: Universal) -> Claim:
    """g_v* on f_u against the most robust g_v* on each f."""
    gaps, told, numbers = list[PairedDifference](), [], {}
    for arena in arenas:
        rival = best(arena.methods[G_V_STAR])
        mine = dominating(one.learned, rival)
        clean, robust = clean_gap(mine, rival), robust_gap(mine, rival)
        gaps += [clean, robust]
        numbers[arena.title] = [clean.value, robust.value]
        told.append(
            f"{mine.knob} against {arena.title}, {rival.knob}: clean {shown_difference(clean)}, "
            f"robust {shown_difference(robust)}"
        )
    return Claim(
        "g_v* is better on f_u than on the fixed f, especially at larger σ_a",
        "Fig. 9",
        "g_v* on f_u less g_v* on f, points: " + "; ".join(told),
        verdict_of(gaps),
        "on f the most robust λ, on f_u the λ whose smaller gain is largest; with hindsight",
        numbers,
    )


def replace_claim(arenas: Sequence[Arena], one: Universal) -> Claim:
    """From which σ_a on f_u is nowhere worse than g on f at σ_s = σ_a."""
    every = [*one.swept.values(), *one.learned]
    told, replaced = [], dict[float, bool]()
    for arena in arenas:
        mine = dominating(every, arena.baseline)
        gaps = clean_gap(mine, arena.baseline), robust_gap(mine, arena.baseline)
        sigma = float(arena.baseline.level)
        replaced[sigma] = all(gap.value >= -CLOSE and gap.interval().high >= 0 for gap in gaps)
        told.append(
            f"{arena.title} by {mine.method}, {mine.knob}: clean {shown_difference(gaps[0])}, "
            f"robust {shown_difference(gaps[1])}: {'yes' if replaced[sigma] else 'no'}"
        )
    large = [able for sigma, able in replaced.items() if sigma >= REPLACED_FROM]
    verdict: Verdict = "untested"
    if large:
        verdict = "held" if all(large) else "partly" if any(large) else "not"
    return Claim(
        f"f_u can replace the fixed models from about σ_a = {REPLACED_FROM} on",
        "Fig. 9",
        "can the best point of f_u replace g at σ_s = σ_a? " + "; ".join(told),
        verdict,
        f"yes: at most {100 * CLOSE:g} points worse, clean and robust, and no interval below 0; "
        "f_u's setting chosen with hindsight"
        + ("" if large else f"; no model of σ_a ≥ {REPLACED_FROM} here"),
        {f"{sigma:g}": able for sigma, able in replaced.items()},
    )


EXPERIMENT = Experiment(
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
    needs,
    run,
)
