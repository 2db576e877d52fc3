"""Accuracy under attack: Fig. 6b, 7 and 8, g at the same mean σ_s, and how strong attacks are."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from reproduce.attacks import (
    CLIPPED,
    FIXED_CPU,
    G_V,
    G_V_STAR,
    Arena,
    Attacks,
    FixedScale,
    G,
    Point,
    Run,
    fixed_arena,
    gaps_of,
    lines_of,
    points_table,
)
from reproduce.certified import clip_table
from reproduce.comparisons import TABLE_2
from reproduce.exact import CLIP_PERCENTILES
from reproduce.figures import Figure, plot_gaps, plot_plane
from reproduce.harness import Context, Experiment, Result
from reproduce.replay import CPU as CERTIFY_CPU
from reproduce.replay import CertifyScale, clip_of
from reproduce.scales import Need, pair_needs, size


def two_views(name: str, caption: str, arenas: Sequence[Arena], method: str) -> Figure:
    """The paper's plane, and what the method gains at each λ, paired by image."""
    return Figure(
        name,
        f"{caption} Left: one line per σ_a, from the larger marker on λ grows along {method} and "
        "σ_s along g; filled: g at σ_s = σ_a. Right: robust accuracy minus that of g at "
        "σ_s = σ_a, with paired 95 % intervals over images.",
        [
            partial(plot_plane, lines=lines_of(arenas, (G, method))),
            partial(
                plot_gaps, series=gaps_of(arenas, method), xlabel="λ", ylabel="gain over g (points)"
            ),
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
    arenas = []
    for sigma in scale.sigmas:
        attacks = Attacks(context, scale.at(sigma), scale.eps, "weak")
        arenas.append(fixed_arena(attacks, scale, sigma, {G_V: Attacks.g_v}))
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


def strong_attack(context: Context, scale: StrongScale) -> Result:
    """g_v and g_v* under an attack on all of them; the weak attack beside it."""
    methods: dict[str, Run] = {G_V: Attacks.g_v, G_V_STAR: Attacks.g_v_star}
    by_budget: dict[float, list[Arena]] = {}
    for sigma_a in scale.sigmas:
        need, sizes = Need.fixed(sigma_a, selector=True), scale.at(sigma_a)
        for eps in scale.budgets:
            at = fixed_arena(Attacks(context, sizes, eps), scale, sigma_a, methods)
            by_budget.setdefault(eps, []).append(at)
            weak = Attacks(context, sizes, eps, "weak")
            weak.g(need, sigma_a)
            for run in methods.values():
                for lam in scale.lams_of(sigma_a):
                    run(weak, need, lam)
    planes = [
        partial(plot_plane, lines=lines_of(arenas, (G, G_V, G_V_STAR)), title=f"γ = {eps:g}")
        for eps, arenas in by_budget.items()
    ]
    gains = [
        partial(
            plot_gaps,
            series=gaps_of(arenas, G_V_STAR, G_V),
            xlabel="λ",
            ylabel="g_v* minus g_v (points)",
        )
        for arenas in by_budget.values()
    ]
    figure = Figure(
        "strong-attack",
        "Fig. 7: g_v, g_v* and g under PGD through f, noise and h. Above: one line per σ_a, from "
        "the larger marker on λ grows along g_v and g_v*, and σ_s along g; filled: g at σ_s = "
        "σ_a. Below: robust accuracy of g_v* minus that of g_v at each λ, with paired 95 % "
        "intervals over images.",
        [*planes, *gains],
        columns=len(planes),
        height=3.6,
        width=max(5.0, 4.5 * len(planes)),
    )
    arenas = [at for each in by_budget.values() for at in each]
    table = points_table("strong-attack", "g_v, g_v* and g under the strong attack.", arenas)
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
    sizes = CertifyScale(
        data=scale.data,
        seed=scale.seed,
        held_out=scale.held_out,
        held_out_draws=scale.held_out_draws,
    )
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
            attacks[sigma].unattacked(Need.fixed(sigma, selector=True), lam)
    base = two_views("clipping", "", arenas, G_V_STAR)
    changed = partial(
        plot_gaps,
        series=gaps_of(arenas, CLIPPED, G_V_STAR),
        xlabel="λ",
        ylabel="clipped minus not clipped (points)",
    )
    figure = replace(
        base,
        caption=f"Fig. 8: g_v* and g under PGD through f, noise and h, γ = {scale.eps:g}. "
        f"{base.caption.strip().replace('Right', 'Middle')} Right: robust accuracy of g_v* clipped "
        "minus not clipped; the two planes of the paper would look alike.",
        plots=[*base.plots, changed],
        width=12.5,
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
    {
        "cpu": ClippingScale(
            **FIXED_CPU,
            held_out=CERTIFY_CPU["held_out"],
            held_out_draws=CERTIFY_CPU["held_out_draws"],
        ),
        "paper": ClippingScale(),
    },
    {"cpu": "1.5 h, half of it shared with strong-attack", "paper": "10 h on a GPU after training"},
    clipping,
)
