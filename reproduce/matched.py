"""Is it the level or the choice per image? Attacks on g at the mean σ_s of g_v, on the same f.

The paper compares g_v and g_v* with g at σ_s = σ_a, which is another mean noise level, and g_v* on
f_u with g on other classifiers. Here each point has g at its own mean σ_s on its own f beside it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from reproduce.arenas import CPU, G_V, G_V_STAR, LAMS, Attacks, AttackScale, Kind, Point
from reproduce.certified import TABLE_2
from reproduce.harness import Context, Experiment, Need, Result, size

PARTS = ("weak", "strong", "universal", "table-2")


@dataclass(frozen=True, kw_only=True)
class MatchedScale(AttackScale):
    """weak: Fig. 6b; strong: Fig. 8; universal: Fig. 9; table-2: clipped to the paper's ranges."""

    unused = ("choice", "selector_samples")

    steps: int = size("PGD steps", 200, stated=False)
    parts: tuple[str, ...] = size("comparisons", PARTS, stated=False, among=PARTS)
    lams: tuple[float, ...] = size("λ", LAMS)
    every_lam: tuple[float, ...] = size("σ_a with every λ", (0.12, 0.25, 0.5, 1.0))
    few_lams: tuple[float, ...] = size("λ at the other σ_a", LAMS)
    universal: float = size("σ_a′ of f_u", 1.0)
    universal_lams: tuple[float, ...] = size("λ on f_u", (0.1, 0.2, 0.3, 0.4), stated=False)
    budgets: tuple[float, ...] = size("γ", (0.3,), stated=False)

    def lams_of(self, sigma_a: float) -> tuple[float, ...]:
        return self.lams if sigma_a in self.every_lam else self.few_lams


def beside(attacks: Attacks, need: Need, learned: Point) -> Point:
    """g on the same f at the mean σ_s of a learned classifier, under the same attack."""
    name = f"{learned.method}, {need.title}, {learned.knob}, {attacks.kind} attack"
    level = attacks.context.fact(
        f"mean σ_s of {name}", lambda: float(learned.outcomes.clean_sigmas.mean())
    )
    return attacks.g(need, level)


def clipped(attacks: Attacks, need: Need, lam: float, clip: tuple[float, float]) -> None:
    """g_v* clipped; g at an end of the clip where every σ_s lies beyond it, as then both agree."""
    low, high = clip
    levels = attacks.unattacked(need, lam).sigmas
    if (levels >= high).all() or (levels <= low).all():
        attacks.g(need, high if (levels >= high).all() else low)
    elif (levels < low).any() or (levels > high).any():
        attacks.g_v_star(need, lam, clip)


def matched(context: Context, scale: MatchedScale) -> Result:
    """Every learned classifier with g beside it; every point is a run of the records."""
    for eps in scale.budgets:
        kinds: Sequence[tuple[str, Kind, str]] = (
            ("weak", "weak", G_V),
            ("strong", "strong", G_V_STAR),
        )
        for part, kind, method in kinds:
            if part in scale.parts:
                attacks = Attacks(context, scale, eps, kind)
                for sigma_a in scale.sigmas:
                    need = Need.fixed(sigma_a, selector=True)
                    for lam in scale.lams_of(sigma_a):
                        run = attacks.g_v if method == G_V else attacks.g_v_star
                        beside(attacks, need, run(need, lam))
        attacks = Attacks(context, scale, eps, "strong")
        if "universal" in scale.parts:
            need = Need.universal(scale.universal)
            for lam in scale.universal_lams:
                beside(attacks, need, attacks.g_v_star(need, lam))
        if "table-2" in scale.parts:
            for (sigma_a, lam), clip in TABLE_2.items():
                if sigma_a in scale.sigmas:
                    clipped(attacks, Need.fixed(sigma_a, selector=True), lam, clip)
    return Result([], [], [])


MATCHED = Experiment(
    "matched",
    "Fig. 6b, 8 and 9, Table 2",
    "g at the mean σ_s of g_v or g_v*, on the same f, under the same attack",
    {
        "cpu": MatchedScale(**CPU, every_lam=(0.25,), few_lams=(0.0, 0.2, 0.4)),
        "paper": MatchedScale(),
    },
    {"cpu": "40 min", "paper": "10 h on a GPU after training"},
    matched,
    lambda scale: [
        *(Need.fixed(sigma, selector=True) for sigma in scale.sigmas),
        Need.universal(scale.universal),
    ],
)
