"""Accuracy under attack of one classifier for all levels: Fig. 9 and App. C."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING

from reproduce.attacks import (
    CPU,
    FIXED_CPU,
    G_V_STAR,
    ORANGE,
    Arena,
    Attacks,
    AttackScale,
    FixedScale,
    G,
    arena,
    fixed_arena,
    lines_of,
    points_table,
)
from reproduce.comparisons import MIDDLE
from reproduce.figures import Figure, Gaps, Line, plot_gaps, plot_plane
from reproduce.harness import Context, Experiment, Result
from reproduce.scales import Need, pair_needs, size
from reproduce.statistics import paired

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
        "σ_s = σ_a, with paired 95 % intervals over images.",
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
    arenas, plots = [], []
    for sigma, eps in product(scale.sigmas, scale.budgets):
        arenas.append(extended_arena(context, scale, sigma, eps))
        lines = lines_of([replace(arenas[-1], title="")], (G, G_V_STAR))
        plots.append(partial(plot_plane, lines=lines, title=f"σ_a′ = {sigma:g}, γ = {eps:g}"))
    figure = Figure(
        "universal-extended",
        "App. C: PGD through f, noise and h: g_v* on f_u, λ growing from the larger marker on, and "
        "g on the classifier of the middle σ_a, σ_s growing alike; filled: g at σ_s = σ_a.",
        plots,
        columns=len(scale.budgets),
        height=2.9,
    )
    caption = "g_v* on f_u of σ_a′, and g on the classifier of the middle σ_a."
    return Result([figure], [points_table("universal-extended", caption, arenas)])


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
