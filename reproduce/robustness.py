"""Accuracy under attack: Fig. 6b to 9, App. C, and g at the same mean σ_s."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

from reproduce.attacks import (
    CLIPPED,
    CPU,
    FIXED_CPU,
    G_V,
    G_V_STAR,
    ORANGE,
    Arena,
    Attacks,
    AttackScale,
    FixedScale,
    G,
    Kind,
    Point,
    Run,
    arena,
    fixed_arena,
    gaps_of,
    lines_of,
    points_table,
)
from reproduce.certified import clip_table
from reproduce.comparisons import CLIP_PERCENTILES, LAMS, MIDDLE, TABLE_2
from reproduce.figures import PAIRED, Figure, Gaps, Line, plot_gaps, plot_plane
from reproduce.harness import Context, Experiment, Result, gap_cell, number
from reproduce.replay import CertifyScale, clip_of
from reproduce.scales import Need, pair_needs, size
from reproduce.statistics import Differences, paired
from varsmooth.evaluation.report.figures import colours
from varsmooth.evaluation.report.tables import Cell, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def two_views(name: str, caption: str, arenas: Sequence[Arena], method: str) -> Figure:
    """The paper's plane, and what the method gains at each λ, paired by image."""
    return Figure(
        name,
        f"{caption} Left: one line per σ_a, from the larger marker on λ grows along {method} and "
        "σ_s along g; filled: g at σ_s = σ_a. Right: robust accuracy minus that of g at "
        f"σ_s = σ_a, {PAIRED}.",
        [
            partial(plot_plane, lines=lines_of(arenas, (G, method))),
            partial(plot_gaps, series=gaps_of(arenas, method), ylabel="gain over g (points)"),
        ],
        height=3.8,
        width=9.0,
    )


# Fig. 6b: PGD on f alone


@dataclass(frozen=True, kw_only=True)
class WeakScale(FixedScale):
    """The paper attacks f with 200 iterations and does not state γ."""

    unused = ("samples", "n_median_attack", "selector_samples", "n_median")

    steps: int = size("PGD steps", 200)
    eps: float = size("γ", 0.3, stated=False)


def weak_attack(context: Context, scale: WeakScale) -> Result:
    """g_v against g under PGD on f alone, which knows nothing of noise and selector."""
    arenas = [
        fixed_arena(
            Attacks(context, scale.at(sigma), scale.eps, "weak"), scale, sigma, {G_V: Attacks.g_v}
        )
        for sigma in scale.sigmas
    ]
    caption = f"Fig. 6b: g_v and g under PGD on f alone, γ = {scale.eps:g}."
    figure = two_views("weak-attack", caption, arenas, G_V)
    table = points_table("weak-attack", "g_v and g under PGD on f alone.", arenas)
    return Result([figure], [table], [context.selectors_of_g_v(pair_needs(scale))])


WEAK_ATTACK = Experiment(
    "weak-attack",
    "Fig. 6b",
    "clean against robust accuracy of g_v and g, PGD on f alone",
    {"cpu": WeakScale(**FIXED_CPU), "paper": WeakScale()},
    {"cpu": "40 min", "paper": "1 h on a GPU after training"},
    weak_attack,
    median=False,
)


# Fig. 7: PGD through f, noise and h


@dataclass(frozen=True, kw_only=True)
class StrongScale(FixedScale):
    """The paper does not state the iterations of Fig. 7."""

    steps: int = size("PGD steps", 200, stated=False)
    budgets: tuple[float, ...] = size("γ", (0.1, 0.3))
    methods: tuple[str, ...] = size("methods", (G_V, G_V_STAR), among=(G_V, G_V_STAR))

    @property
    def median(self) -> bool:
        return G_V_STAR in self.methods


def strong_attack(context: Context, scale: StrongScale) -> Result:
    """g_v and g_v* under an attack on all of them; the weak attack beside it."""
    every: dict[str, Run] = {G_V: Attacks.g_v, G_V_STAR: Attacks.g_v_star}
    methods = {name: run for name, run in every.items() if name in scale.methods}
    one, other = (G_V_STAR, G_V) if len(methods) == 2 else (scale.methods[0], G)
    by_budget: dict[float, list[Arena]] = {}
    for sigma_a in scale.sigmas:
        need, sizes = Need.pair(sigma_a), scale.at(sigma_a)
        for eps in scale.budgets:
            at = fixed_arena(Attacks(context, sizes, eps), scale, sigma_a, methods)
            by_budget.setdefault(eps, []).append(at)
            weak = Attacks(context, sizes, eps, "weak")
            weak.g(need, sigma_a)
            for run in methods.values():
                for lam in scale.lams_of(sigma_a):
                    run(weak, need, lam)
    planes = [
        partial(plot_plane, lines=lines_of(arenas, (G, *methods)), title=f"γ = {eps:g}")
        for eps, arenas in by_budget.items()
    ]
    gains = [
        partial(
            plot_gaps, series=gaps_of(arenas, one, other), ylabel=f"{one} minus {other} (points)"
        )
        for arenas in by_budget.values()
    ]
    figure = Figure(
        "strong-attack",
        f"Fig. 7: {', '.join(methods)} and g under PGD through f, noise and h. Above: one line "
        f"per σ_a, from the larger marker on λ grows along {' and '.join(methods)}, and σ_s along "
        f"g; filled: g at σ_s = σ_a. Below: robust accuracy of {one} minus that of {other}"
        f"{' at σ_s = σ_a' * (other == G)}, {PAIRED}.",
        [*planes, *gains],
        columns=(len(planes), len(gains)),
        height=3.6,
        width=max(5.0, 4.5 * len(planes)),
    )
    arenas = [at for each in by_budget.values() for at in each]
    caption = f"{', '.join(methods)} and g under the strong attack."
    table = points_table("strong-attack", caption, arenas)
    return Result([figure], [table], [context.selectors_of_g_v(pair_needs(scale))])


STRONG_ATTACK = Experiment(
    "strong-attack",
    "Fig. 7",
    "clean against robust accuracy of g_v, g_v* and g, PGD through f, noise and h",
    {"cpu": StrongScale(**FIXED_CPU), "paper": StrongScale()},
    {"cpu": "2.5 h", "paper": "10 h on a GPU after training"},
    strong_attack,
)


# Fig. 8: clipping


@dataclass(frozen=True, kw_only=True)
class ClippingScale(FixedScale):
    """The paper attacks with 500 iterations and does not state γ."""

    unused = ("selector_samples",)

    steps: int = size("PGD steps", 500)
    eps: float = size("γ", 0.3, stated=False)
    held_out: int = size("held-out images", 5000, stated=False)
    held_out_draws: int = size("selector draws per held-out image", 1001, stated=False, odd=True)


def clipping(context: Context, scale: ClippingScale) -> Result:
    """g_v* without and with clipping of h, against g, under the strong attack."""
    attacks = {sigma: Attacks(context, scale.at(sigma), scale.eps) for sigma in scale.sigmas}
    same = ("data", "seed", "held_out", "held_out_draws")
    sizes = CertifyScale(**{name: getattr(scale, name) for name in same})
    clips = {
        (sigma, lam): clip_of(context, sizes, sigma, lam)
        for sigma in scale.sigmas
        for lam in scale.lams_of(sigma)
    }

    def clipped(attacks: Attacks, need: Need, lam: float) -> Point:
        return attacks.g_v_star(need, lam, clips[float(need.level), lam])

    methods: dict[str, Run] = {G_V_STAR: Attacks.g_v_star, CLIPPED: clipped}
    arenas = [fixed_arena(each, scale, sigma, methods) for sigma, each in attacks.items()]
    for sigma, lam in TABLE_2:  # whose range of σ_s is compared with the clip
        if sigma in attacks and lam not in scale.lams_of(sigma):
            attacks[sigma].unattacked(Need.pair(sigma), lam)
    base = two_views("clipping", "", arenas, G_V_STAR)
    gaps, ylabel = gaps_of(arenas, CLIPPED, G_V_STAR), "clipped minus not clipped (points)"
    views = base.caption.strip().replace("Left", "Above").replace("Right", "Below, left")
    figure = replace(
        base,
        caption=f"Fig. 8: g_v* and g under PGD through f, noise and h, γ = {scale.eps:g}. {views} "
        "Right: robust accuracy of g_v* clipped minus not clipped; the two planes of the paper "
        "would look alike.",
        plots=[*base.plots, partial(plot_gaps, series=gaps, ylabel=ylabel)],
        columns=(1, 2),
        height=3.4,
    )
    tables = [
        points_table("clipping", "g_v* without and with clipping, and g.", arenas),
        clip_table(clips),
    ]
    low, high = CLIP_PERCENTILES
    note = f"clip: percentiles {low} and {high} of σ_s on held-out images, for each λ"
    return Result([figure], tables, [note])


CLIPPING = Experiment(
    "clipping",
    "Fig. 8, Table 2",
    "clean against robust accuracy of g_v* without and with clipping, and of g",
    {"cpu": ClippingScale(**FIXED_CPU, held_out=200, held_out_draws=51), "paper": ClippingScale()},
    {"cpu": "1.5 h, half of it shared with strong-attack", "paper": "10 h on a GPU after training"},
    clipping,
)


# Fig. 9: one classifier for all levels


@dataclass(frozen=True, kw_only=True)
class UniversalScale(FixedScale):
    """h of f_u has σ_a = ½ as input and is trained toward σ_t = 1."""

    unused = ("selector_samples", "closer")

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
    swept, learned = one.methods[G], one.methods[G_V_STAR]
    lines = [
        *lines_of(arenas, (G, G_V_STAR)),
        Line("g on f_u, σ_s swept", [p.outcomes for p in swept], "", ORANGE, None, True, "s"),
        Line("g_v* on f_u, λ swept", [p.outcomes for p in learned], "", ORANGE),
    ]
    at_sigma_a = {point.value: point.outcomes for point in swept}
    pairs = [(at_sigma_a[at.baseline.value], at.baseline.outcomes) for at in arenas]
    gains = [
        Gaps(what, range(len(arenas)), [paired(*pair, column) for pair in pairs])
        for what, column in (("clean accuracy", "clean_correct"), ("robust accuracy", "correct"))
    ]
    figure = Figure(
        "universal",
        f"Fig. 9: PGD through f, noise and h, γ = {scale.eps:g}. Left: the classifier f_u for all "
        "levels (orange) against classifiers of one σ_a each (grey: g, filled at σ_s = σ_a; blue: "
        "g_v*); λ and σ_s grow from the larger marker on. Right: g on f_u minus g on f, both at "
        f"σ_s = σ_a, {PAIRED}.",
        [
            partial(plot_plane, lines=lines),
            partial(plot_universal_gains, series=gains, sigmas=scale.sigmas),
        ],
        height=3.9,
        width=9.0,
    )
    caption = f"g and g_v* on fixed classifiers and on f_u, whose gaps are to g at σ_s = {half:g}."
    return Result([figure], [points_table("universal", caption, [*arenas, one])])


def plot_universal_gains(axes: "Axes", series: Sequence[Gaps], sigmas: Sequence[float]) -> None:
    """Gains at each σ_a, evenly spaced."""
    plot_gaps(axes, series, "f_u minus f (points)", xlabel="σ_a")
    axes.set_xticks(range(len(sigmas)), [f"{sigma:g}" for sigma in sigmas])


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


def universal_extended(context: Context, scale: ExtendedScale) -> Result:
    """g_v* on f_u for three ranges σ_a′ and three budgets γ, against g of the middle σ_a."""
    arenas = {
        (sigma, eps): extended_arena(context, scale, sigma, eps)
        for sigma, eps in product(scale.sigmas, scale.budgets)
    }
    planes = [
        partial(
            plot_plane,
            lines=lines_of([replace(at, title="")], (G, G_V_STAR)),
            title=f"σ_a′ = {sigma:g}, γ = {eps:g}",
        )
        for (sigma, eps), at in arenas.items()
    ]
    ranges = [Need.universal(sigma).title for sigma in scale.sigmas]
    gains = []
    for eps in scale.budgets:
        titled = [
            replace(arenas[sigma, eps], title=title)
            for sigma, title in zip(scale.sigmas, ranges, strict=True)
        ]
        ylabel, title = "g_v* on f_u minus g (points)", f"γ = {eps:g}"
        series = gaps_of(titled, G_V_STAR)
        gains.append(partial(plot_gaps, series=series, ylabel=ylabel, title=title))
    look: dict[str, Any] = {"columns": len(scale.budgets), "height": 2.9}
    figures = [
        Figure(
            "universal-extended",
            "App. C: PGD through f, noise and h: g_v* on f_u, λ growing from the larger marker on, "
            "and g on the classifier of the middle σ_a, σ_s growing alike; filled: g at σ_s = σ_a.",
            planes,
            **look,
        ),
        Figure(
            "universal-extended-gaps",
            "Robust accuracy of g_v* on f_u minus that of g on the classifier of the middle σ_a at "
            f"σ_s = σ_a, {PAIRED}.",
            gains,
            **look,
        ),
    ]
    caption = "g_v* on f_u of σ_a′, and g on the classifier of the middle σ_a."
    return Result(figures, [points_table("universal-extended", caption, [*arenas.values()])])


def extended_arena(context: Context, scale: ExtendedScale, universal: float, eps: float) -> Arena:
    """g_v* on f_u against g on the middle fixed classifier at one γ."""
    sigma_a, need = middle_of(universal), Need.universal(universal)
    fixed, lams = Need.fixed(sigma_a), scale.lams_of(universal, eps)
    levels = sorted({sigma_a, *(round(sigma_a * multiple, 4) for multiple in scale.multiples)})
    attacks, star = Attacks(context, scale, eps), {G_V_STAR: Attacks.g_v_star}
    return arena(attacks, fixed.title, (fixed, sigma_a), levels, need, lams, star)


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


# The level or the choice per image? g at the same mean σ_s, on the same f

PARTS = ("weak", "strong", "universal", "extended", "table-2")


@dataclass(frozen=True, kw_only=True)
class MatchedScale(AttackScale):
    """weak: Fig. 6b; strong: Fig. 8; universal: Fig. 9; extended: App. C; table-2: its clips."""

    unused = ("selector_samples",)

    steps: int = size("PGD steps", 200, stated=False)
    parts: tuple[str, ...] = size("comparisons", PARTS, stated=False, among=PARTS)
    lams: tuple[float, ...] = size("λ", LAMS)
    every_lam: tuple[float, ...] = size("σ_a with every λ", (0.12, 0.25, 0.5, 1.0))
    few_lams: tuple[float, ...] = size("λ at the other σ_a", LAMS)
    strong_lams: tuple[float, ...] = size("λ under the strong attack", LAMS, stated=False)
    universal: float = size("σ_a′ of f_u", 1.0)
    universal_lams: tuple[float, ...] = size("λ on f_u", (0.2, 0.4), stated=False)
    budgets: tuple[float, ...] = size("γ", (0.3,), stated=False)
    ranges: tuple[float, ...] = size("σ_a′ of App. C", tuple(MIDDLE))
    range_lams: tuple[float, ...] = size("λ at these σ_a′", (0.2,), stated=False)
    range_budgets: tuple[float, ...] = size("γ at these σ_a′", (0.1, 0.3, 0.5))

    def lams_of(self, sigma_a: float) -> tuple[float, ...]:
        return self.lams if sigma_a in self.every_lam else self.few_lams

    @property
    def needs(self) -> list[Need]:
        ranges = [self.universal] * ("universal" in self.parts)
        ranges += self.ranges if "extended" in self.parts else ()
        return [*pair_needs(self), *map(Need.universal, dict.fromkeys(ranges))]


def matched(context: Context, scale: MatchedScale) -> Result:
    """Each g_v and g_v* beside g at its mean σ_s, on the same f, under the same attack.

    The paper compares with g at σ_s = σ_a, which is another level, and on f_u with other f.
    """
    panels: dict[str, list[Gaps]] = {}
    tints = dict(zip(scale.sigmas, colours(len(scale.sigmas)), strict=True))
    for eps in scale.budgets:
        for part, method, run in (
            ("weak", G_V, Attacks.g_v),
            ("strong", G_V_STAR, Attacks.g_v_star),
        ):
            kind: Kind = "weak" if part == "weak" else "strong"
            attacks = Attacks(context, scale, eps, kind)
            title = f"{method}, {kind} attack, γ = {eps:g}"
            for sigma_a in scale.sigmas if part in scale.parts else ():
                lams = scale.lams_of(sigma_a) if kind == "weak" else scale.strong_lams
                gaps = beside(attacks, run, Need.pair(sigma_a), lams)
                panels.setdefault(title, []).append(replace(gaps, colour=tints[sigma_a]))
        strong = Attacks(context, scale, eps)
        if "universal" in scale.parts:
            need = Need.universal(scale.universal)
            gaps = beside(strong, Attacks.g_v_star, need, scale.universal_lams)
            panels[f"{G_V_STAR} on f_u of {need.title}, γ = {eps:g}"] = [gaps]
        if "table-2" in scale.parts:
            clips = {sigma_a: clipped_gain(strong, sigma_a) for sigma_a in scale.sigmas}
            shown = [replace(gaps, colour=tints[s]) for s, gaps in clips.items() if gaps.x]
            panels |= {f"{G_V_STAR} clipped to Table 2, γ = {eps:g}": shown} if shown else {}
    ranges = product(scale.range_budgets, scale.ranges if "extended" in scale.parts else ())
    for eps, sigma_a in ranges:
        strong, need = Attacks(context, scale, eps), Need.universal(sigma_a)
        gaps = beside(strong, Attacks.g_v_star, need, scale.range_lams)
        panels.setdefault(f"{G_V_STAR} on f_u, γ = {eps:g}", []).append(gaps)
    figure = Figure(
        "matched",
        "Robust accuracy minus that of g at the mean σ_s, on the same f; where h is clipped to "
        f"Table 2, minus that without the clip; {PAIRED}.",
        [
            partial(plot_gaps, series=series, ylabel="difference (points)", title=title)
            for title, series in panels.items()
        ],
        columns=[2] * -(-len(panels) // 2),
        height=3.3,
        width=8.6,
    )
    table = Table(
        "matched",
        "Robust accuracy minus that of g at the mean σ_s on the same f, or of g_v* without the "
        "clip, in percentage points, paired by image.",
        ["method and attack", "model", "λ", "difference"],
        [
            [Cell.of(title), Cell.of(gaps.label), number(lam), gap_cell(gap)]
            for title, series in panels.items()
            for gaps in series
            for lam, gap in zip(gaps.x, gaps.differences, strict=True)
        ],
    )
    notes = [context.selectors_of_g_v(pair_needs(scale))]
    return Result([figure] if panels else [], [table], notes)


def beside(attacks: Attacks, run: Run, need: Need, lams: Sequence[float]) -> Gaps:
    """A method at each λ minus g at its mean σ_s."""
    gaps: list[Differences] = []
    for lam in lams:
        learned = run(attacks, need, lam)
        levels = learned.outcomes.clean_sigmas
        name = f"{learned.method}, {need.title}, {learned.setting}, {attacks.kind} attack"
        level = attacks.context.fact(f"mean σ_s of {name}", partial(float, levels.mean()))
        gaps.append(paired(learned.outcomes, attacks.g(need, level).outcomes))
    return Gaps(need.title, list(lams), gaps)


def clipped_gain(attacks: Attacks, sigma_a: float) -> Gaps:
    """g_v* clipped to Table 2 minus g_v*, at each λ where the clip changes any σ_s.

    Where every σ_s lies beyond the clip, g at its end is the same classifier, and cheaper.
    """
    need, gaps = Need.pair(sigma_a), dict[float, Differences]()
    for lam, (low, high) in ((lam, clip) for (s, lam), clip in TABLE_2.items() if s == sigma_a):
        levels = attacks.unattacked(need, lam).sigmas
        if (levels >= high).all() or (levels <= low).all():
            clipped = attacks.g(need, high if (levels >= high).all() else low)
        elif (levels < low).any() or (levels > high).any():
            clipped = attacks.g_v_star(need, lam, (low, high))
        else:
            continue
        gaps[lam] = paired(clipped.outcomes, attacks.g_v_star(need, lam).outcomes)
    return Gaps(need.title, list(gaps), list(gaps.values()))


MATCHED = Experiment(
    "matched",
    "ours, on Fig. 6b, 8 and 9, App. C and Table 2",
    "g_v and g_v* against g at their mean σ_s, on the same f, under the same attack",
    {
        "cpu": MatchedScale(**CPU, every_lam=(0.25,), few_lams=(0.0, 0.2, 0.4), strong_lams=(0.2,)),
        "paper": MatchedScale(),
    },
    {"cpu": "40 min", "paper": "10 h on a GPU after training"},
    matched,
    lambda scale: scale.needs,
)
