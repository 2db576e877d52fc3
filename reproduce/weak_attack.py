"""Fig. 6b: PGD on f alone, which knows nothing of noise and selector; g_v against g."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from reproduce.attacked import (
    FIXED_CPU,
    G_V,
    Arena,
    Attacks,
    FixedScale,
    G,
    fixed_arena,
    fixed_needs,
)
from reproduce.claims import shown_difference, verdict_of
from reproduce.comparing import (
    averaged,
    best,
    clean_gap,
    lines_of,
    points_table,
    records_of,
    robust_gap,
    spread,
)
from reproduce.context import Context
from reproduce.experiment import Claim, Experiment, Figure, Result, size
from reproduce.tradeoffs import plot_tradeoff


@dataclass(frozen=True, kw_only=True)
class WeakScale(FixedScale):
    """The paper attacks f with 200 iterations; its γ is not told."""

    steps: int = size("PGD steps", 200)
    eps: float = size("γ", 0.3)


def run(context: Context, scale: WeakScale) -> Result:
    attacks = Attacks(context, scale, scale.eps, "weak")
    arenas = [fixed_arena(attacks, scale, sigma, {G_V: attacks.g_v}) for sigma in scale.sigmas]
    figure = Figure(
        "weak-attack",
        f"Clean against robust accuracy of g_v and g under PGD on f alone, γ = {scale.eps:g}. A "
        "line for each σ_a, from its larger point on: λ grows along g_v, σ_s along g, named where "
        "σ_s = σ_a. Pale bars: 95 % intervals over images; all points share images, so their "
        "differences are more certain.",
        [partial(plot_tradeoff, lines=lines_of(arenas, (G, G_V)), title=f"γ = {scale.eps:g}")],
        legend="upper left",
        height=4.6,
    )
    table = points_table("weak-attack", "g_v and g under PGD on f alone.", arenas)
    claims = [better_claim(arenas), larger_claim(arenas)]
    return Result([figure], [table], claims, records_of(arenas))


def better_claim(arenas: Sequence[Arena]) -> Claim:
    """With the right λ, g_v is more robust than g at σ_s = σ_a."""
    told, gaps, swept = [], [], []
    for arena in arenas:
        chosen = best(arena.methods[G_V])
        gaps.append(robust_gap(chosen, arena.baseline))
        swept.append(robust_gap(chosen, best(arena.methods[G])))
        told.append(
            f"{arena.title}, {chosen.knob}: robust {shown_difference(gaps[-1])}, clean "
            f"{shown_difference(clean_gap(chosen, arena.baseline))}"
        )
    fair = ", ".join(shown_difference(gap) for gap in swept)
    return Claim(
        "Under the weak attack g_v has better robust accuracy than g with the right λ",
        "Fig. 6b",
        "g_v at its best λ less g at σ_s = σ_a, points: " + "; ".join(told),
        verdict_of(gaps),
        "λ chosen with hindsight, as in the paper; against the best fixed σ_s, chosen alike: "
        f"{fair}; {spread([p for arena in arenas for p in arena.methods[G_V]])}",
        {
            "robust": [gap.value for gap in gaps],
            "against_best_fixed": [gap.value for gap in swept],
        },
    )


def larger_claim(arenas: Sequence[Arena]) -> Claim:
    """The gain grows with σ_a: that of the largest less that of the smallest."""
    statement = "The gain of g_v under the weak attack is larger for larger σ_a"
    if len(arenas) < 2:
        return Claim(statement, "Fig. 6b", "one σ_a only", "untested", "run it with more models")
    gains = []
    for arena in (arenas[0], arenas[-1]):
        correct = best(arena.methods[G_V]).outcomes.correct.astype(int)
        gains.append(correct - arena.baseline.outcomes.correct)
    growth = averaged([gains[1] - gains[0]])
    return Claim(
        statement,
        "Fig. 6b",
        f"gain at {arenas[-1].title} less gain at {arenas[0].title}: "
        f"{shown_difference(growth)} points",
        verdict_of([growth]),
        "paired by image; λ chosen with hindsight at both ends",
        {"growth": growth.value},
    )


EXPERIMENT = Experiment(
    "weak-attack",
    "Fig. 6b",
    "clean against robust accuracy of g_v and g, PGD on f alone",
    {"cpu": WeakScale(**FIXED_CPU), "paper": WeakScale()},
    {"cpu": "25 min", "paper": "1 h on a GPU after training"},
    fixed_needs,
    run,
)
