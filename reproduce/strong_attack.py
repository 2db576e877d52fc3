"""Fig. 7: adaptive PGD through f, noise and h; mono smoothing g_v and dual smoothing g_v*."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from reproduce.attacked import (
    FIXED_CPU,
    G_V,
    G_V_STAR,
    Arena,
    Attacks,
    FixedScale,
    G,
    Point,
    fixed_arena,
    fixed_needs,
)
from reproduce.claims import shown_difference, verdict_of
from reproduce.comparing import (
    averaged,
    lines_of,
    loss_gap,
    moved,
    points_table,
    records_of,
    spread,
)
from reproduce.context import Context
from reproduce.experiment import Claim, Experiment, Figure, Need, Result, size
from reproduce.tradeoffs import plot_tradeoff
from varsmooth.report.statistics import MeanDifference

SOURCE = "Fig. 7"


@dataclass(frozen=True, kw_only=True)
class StrongScale(FixedScale):
    """The paper does not tell the iterations of Fig. 7."""

    steps: int = size("PGD steps", 200)
    budgets: tuple[float, ...] = size("γ", (0.1, 0.3))


@dataclass(frozen=True)
class Model:
    """One σ_a: an arena for each γ, and g_v under the weak attack at the largest γ."""

    arenas: Sequence[Arena]
    weak: Sequence[Point]

    @property
    def title(self) -> str:
        return self.arenas[0].title

    def excess(self, arena: Arena) -> MeanDifference:
        """How much more g_v loses than g_v*."""
        return loss_gap(arena.methods[G_V], arena.methods[G_V_STAR])


def run(context: Context, scale: StrongScale) -> Result:
    models = [model_of(context, scale, sigma) for sigma in scale.sigmas]
    by_budget = [[model.arenas[i] for model in models] for i in range(len(scale.budgets))]
    figure = Figure(
        "strong-attack",
        "Clean against robust accuracy of g_v, g_v* and g under PGD through f, noise and h. A line "
        "for each σ_a, from its larger point on: λ grows along g_v and g_v*, σ_s along g, named "
        "where σ_s = σ_a. Pale bars: 95 % intervals over images; all points share images, so their "
        "differences are more certain.",
        [
            partial(
                plot_tradeoff,
                lines=lines_of(arenas, (G, G_V, G_V_STAR)),
                title=f"γ = {arenas[0].eps:g}",
            )
            for arenas in by_budget
        ],
        legend="upper left",
        height=4.6,
    )
    arenas = [arena for each in by_budget for arena in each]
    table = points_table("strong-attack", "g_v, g_v* and g under the adaptive attack.", arenas)
    claims = [drop_claim(models), less_claim(models), larger_claim(models), clean_claim(models)]
    weak = [point.outcomes for model in models for point in model.weak]
    return Result([figure], [table], claims, [*records_of(arenas), *weak])


def model_of(context: Context, scale: StrongScale, sigma_a: float) -> Model:
    need = Need.fixed(sigma_a, selector=True)
    arenas = []
    for eps in scale.budgets:
        attacks = Attacks(context, scale, eps)
        methods = {G_V: attacks.g_v, G_V_STAR: attacks.g_v_star}
        arenas.append(fixed_arena(attacks, scale, sigma_a, methods))
    weak = Attacks(context, scale, scale.budgets[-1], "weak")
    return Model(arenas, [weak.g_v(need, lam) for lam in scale.lams_of(sigma_a)])


def drop_claim(models: Sequence[Model]) -> Claim:
    """What g_v kept under the weak attack and loses under the strong one."""
    gaps = {}
    for model in models:
        strong = model.arenas[-1].methods[G_V]
        gaps[model.title] = averaged(
            weak.outcomes.correct.astype(int) - hard.outcomes.correct
            for weak, hard in zip(model.weak, strong, strict=True)
        )
    attacked = [point for model in models for point in model.arenas[-1].methods[G_V]]
    return Claim(
        "The robust accuracy of g_v drops under the strong attack, however well it did under the "
        "weak one",
        SOURCE,
        f"weak less strong at γ = {models[0].arenas[-1].eps:g}, mean over λ, points: "
        + _told(gaps),
        verdict_of(list(gaps.values())),
        f"{spread(attacked)}; {moved(attacked)}",
        {title: gap.value for title, gap in gaps.items()},
    )


def less_claim(models: Sequence[Model]) -> Claim:
    """g_v* loses less to the attack than g_v."""
    gaps = {
        f"{model.title}, γ = {arena.eps:g}": model.excess(arena)
        for model in models
        for arena in model.arenas
    }
    attacked = [point for model in models for point in model.arenas[-1].methods[G_V_STAR]]
    return Claim(
        "Under the strong attack g_v* drops less than g_v",
        SOURCE,
        "loss (clean less robust) of g_v less that of g_v*, mean over λ, points: " + _told(gaps),
        verdict_of(list(gaps.values())),
        f"paired by image and λ; of g_v*, {moved(attacked)}",
        {title: gap.value for title, gap in gaps.items()},
    )


def larger_claim(models: Sequence[Model]) -> Claim:
    """That difference grows with γ."""
    statement = "g_v* drops less than g_v especially at larger γ"
    gaps = {}
    for model in models:
        low, high = (model.excess(arena).values for arena in (model.arenas[0], model.arenas[-1]))
        gaps[model.title] = MeanDifference([b - a for a, b in zip(low, high, strict=True)])
    low_eps, high_eps = (models[0].arenas[i].eps for i in (0, -1))
    if low_eps == high_eps:
        return Claim(statement, SOURCE, "one γ only", "untested", "run it with more budgets")
    return Claim(
        statement,
        SOURCE,
        f"what g_v loses more than g_v* at γ = {high_eps:g} less the same at {low_eps:g}, points: "
        + _told(gaps),
        verdict_of(list(gaps.values())),
        "paired by image and λ",
        {title: gap.value for title, gap in gaps.items()},
    )


def clean_claim(models: Sequence[Model]) -> Claim:
    """What the median costs without attack."""
    gaps = {}
    for model in models:
        one, both = (model.arenas[0].methods[method] for method in (G_V, G_V_STAR))
        gaps[model.title] = averaged(
            a.outcomes.clean_correct.astype(int) - b.outcomes.clean_correct
            for a, b in zip(one, both, strict=True)
        )
    return Claim(
        "Median smoothing costs a little clean accuracy",
        SOURCE,
        "clean accuracy of g_v less that of g_v*, mean over λ, points: " + _told(gaps),
        verdict_of(list(gaps.values())),
        "one h, trained in the scheme of g_v*, serves both",
        {title: gap.value for title, gap in gaps.items()},
    )


def _told(gaps: dict[str, MeanDifference]) -> str:
    return "; ".join(f"{title}: {shown_difference(gap)}" for title, gap in gaps.items())


EXPERIMENT = Experiment(
    "strong-attack",
    SOURCE,
    "clean against robust accuracy of g_v, g_v* and g, PGD through f, noise and h",
    {"cpu": StrongScale(**FIXED_CPU), "paper": StrongScale()},
    {"cpu": "2.5 h", "paper": "10 h on a GPU after training"},
    fixed_needs,
    run,
)
