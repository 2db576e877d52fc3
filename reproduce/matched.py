"""Is it the level or the choice per image? g at the same mean σ_s, on the same f."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from reproduce.attacks import (
    CPU,
    G_V,
    G_V_STAR,
    LAMS,
    Attacks,
    AttackScale,
    Kind,
    Point,
    Run,
)
from reproduce.comparisons import TABLE_2
from reproduce.figures import Figure, Gaps, plot_gaps
from reproduce.harness import Context, Experiment, Result
from reproduce.scales import Need, pair_needs, size
from reproduce.statistics import Differences, paired, pooled
from varsmooth.evaluation.report.figures import colours
from varsmooth.evaluation.report.tables import Cell, Table

PARTS = ("weak", "strong", "universal", "table-2")


@dataclass(frozen=True, kw_only=True)
class MatchedScale(AttackScale):
    """weak: Fig. 6b; strong: Fig. 8; universal: Fig. 9; table-2: clipped to the paper's ranges."""

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

    def lams_of(self, sigma_a: float) -> tuple[float, ...]:
        return self.lams if sigma_a in self.every_lam else self.few_lams

    @property
    def needs(self) -> list[Need]:
        universal = [Need.universal(self.universal)] if "universal" in self.parts else []
        return [*pair_needs(self), *universal]


def matched(context: Context, scale: MatchedScale) -> Result:
    """Each g_v and g_v* beside g at its mean σ_s, on the same f, under the same attack.

    The paper compares with g at σ_s = σ_a, which is another level, and on f_u with other f.
    """
    panels: dict[str, list[Gaps]] = {}
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
                gaps = beside(attacks, run, Need.fixed(sigma_a, selector=True), lams)
                panels.setdefault(title, []).append(gaps)
        strong = Attacks(context, scale, eps)
        if "universal" in scale.parts:
            need = Need.universal(scale.universal)
            gaps = beside(strong, Attacks.g_v_star, need, scale.universal_lams)
            panels[f"{G_V_STAR} on f_u, strong attack, γ = {eps:g}"] = [gaps]
        if "table-2" in scale.parts:
            clips = [clipped_gain(strong, sigma_a) for sigma_a in scale.sigmas]
            shown = [gaps for gaps in clips if gaps.x]
            panels |= {f"{G_V_STAR} clipped to Table 2, γ = {eps:g}": shown} if shown else {}
    plots = [
        partial(
            plot_gaps,
            series=[
                replace(gaps, colour=colour)
                for gaps, colour in zip(series, colours(len(series)), strict=True)
            ],
            xlabel="λ",
            ylabel="gain over g at the mean σ_s (points)",
            title=title,
        )
        for title, series in panels.items()
    ]
    figure = Figure(
        "matched",
        "Robust accuracy minus that of g at the mean σ_s, on the same f, with paired 95 % "
        "intervals over images.",
        plots,
        height=3.6,
        width=4.2 * len(plots),
    )
    table = Table(
        "matched",
        "Robust accuracy minus that of g at the mean σ_s on the same f, in percentage points, "
        "paired by image.",
        ["method and attack", "model", "λ", "minus g"],
        [
            [Cell.of(title), Cell.of(gaps.label), Cell(f"{lam:g}", lam), gap_cell(gap)]
            for title, series in panels.items()
            for gaps in series
            for lam, gap in zip(gaps.x, gaps.differences, strict=True)
        ],
    )
    notes = [context.selectors_of_g_v(pair_needs(scale))]
    return Result([figure] if plots else [], [table], notes)


def gap_cell(gap: Differences) -> Cell:
    estimate = pooled([gap])
    return Cell(estimate.text(), estimate.value, estimate.interval())


def beside(attacks: Attacks, run: Run, need: Need, lams: Sequence[float]) -> Gaps:
    """A method at each λ minus g at its mean σ_s."""
    gaps: list[Differences] = []
    for lam in lams:
        learned = run(attacks, need, lam)
        name = f"{learned.method}, {need.title}, {learned.setting}, {attacks.kind} attack"
        level = attacks.context.fact(f"mean σ_s of {name}", partial(mean_level, learned))
        gaps.append(paired(learned.outcomes, attacks.g(need, level).outcomes))
    return Gaps(need.title, list(lams), gaps)


def mean_level(point: Point) -> float:
    return float(point.outcomes.clean_sigmas.mean())


def clipped_gain(attacks: Attacks, sigma_a: float) -> Gaps:
    """g_v* clipped to Table 2 minus g_v*, at each λ where the clip changes any σ_s.

    Where every σ_s lies beyond the clip, g at its end is the same classifier, and cheaper.
    """
    need, gaps = Need.fixed(sigma_a, selector=True), dict[float, Differences]()
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
    "ours, on Fig. 6b, 8 and 9 and Table 2",
    "g_v and g_v* against g at their mean σ_s, on the same f, under the same attack",
    {
        "cpu": MatchedScale(**CPU, every_lam=(0.25,), few_lams=(0.0, 0.2, 0.4), strong_lams=(0.2,)),
        "paper": MatchedScale(),
    },
    {"cpu": "40 min", "paper": "10 h on a GPU after training"},
    matched,
    lambda scale: scale.needs,
)
