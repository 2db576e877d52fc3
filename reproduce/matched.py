"""Beside Experiment B: g at the same mean σ_s on the same f, and how strong the attacks are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

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
from reproduce.figures import Gaps, plot_gaps, plot_rows
from reproduce.harness import Context, Experiment, Figure, Result
from reproduce.scales import Need, pair_needs, size
from reproduce.statistics import Differences, paired, pooled
from varsmooth.evaluation.report.figures import colours
from varsmooth.evaluation.report.statistics import PairedDifference, Share
from varsmooth.evaluation.report.tables import Cell, Table

# Is it the level or the choice per image?

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


# Are the attacks strong enough?

SETTINGS = {
    "steps": "PGD steps",
    "samples": "EOT draws per step",
    "n_median_attack": "draws of h's median in the attack",
    "selector_samples": "draws of h per step on g_v",
}
"""What is tried: fields of the scale."""

WEAK = "weak attack on g_v"
METHODS = (G_V_STAR, G_V, WEAK)


@dataclass(frozen=True, kw_only=True)
class ConvergenceScale(AttackScale):
    """One configuration; the settings under test are the scale's own steps and draws."""

    unused = ("choice",)

    sigmas: tuple[float, ...] = size("σ_a", (0.25,), stated=False)
    methods: tuple[str, ...] = size("methods", METHODS, stated=False, among=METHODS)
    lam: float = size("λ", 0.2, stated=False)
    eps: float = size("γ", 0.3, stated=False)
    tried_steps: tuple[int, ...] = size("PGD steps tried", (50, 200, 500, 1000), stated=False)
    tried_samples: tuple[int, ...] = size("EOT draws tried", (4, 8, 16, 32), stated=False)
    tried_n_median_attack: tuple[int, ...] = size(
        "draws of h's median tried", (5, 11, 23), stated=False, odd=True
    )
    tried_selector_samples: tuple[int, ...] = size("draws of h tried", (1, 4, 8), stated=False)

    def tried(self, method: str) -> list[dict[str, int]]:
        """The chosen setting, each other value of each setting that matters, and all doubled."""
        absent = {
            G_V_STAR: {"selector_samples"},
            G_V: {"n_median_attack"},
            WEAK: {"samples", "n_median_attack", "selector_samples"},
        }[method]
        used = [name for name in SETTINGS if name not in absent]
        changes = [
            {name: value}
            for name in used
            for value in getattr(self, f"tried_{name}")
            if value != getattr(self, name)
        ]
        twice = {name: 2 * getattr(self, name) for name in used}
        if "n_median_attack" in twice:
            twice["n_median_attack"] += 1  # a median of an odd number
        return [{}, *changes, *([] if method == WEAK else [twice])]


def attack_convergence(context: Context, scale: ConvergenceScale) -> Result:
    """Robust accuracy as one setting of the attack grows and the others stay."""
    rows, gaps = [], dict[str, Differences]()
    for sigma_a in scale.sigmas:
        for method in scale.methods:
            every = scale.tried(method)
            points = [attacked(context, scale, sigma_a, method, change) for change in every]
            for change, point in zip(every, points, strict=True):
                what = ", ".join(f"{SETTINGS[name]} {value}" for name, value in change.items())
                title = f"{method}, σ_a = {sigma_a:g}"
                one, other = point.outcomes, points[0].outcomes
                gap = Cell("–")
                if point is not points[0]:
                    gaps[f"{method}: {'all doubled' if len(change) > 1 else what}"] = paired(
                        one, other
                    )
                    gap = Cell.difference(PairedDifference.of(one.correct, other.correct))
                sigma = float(one.sigmas.mean())
                cells = [Cell(f"{sigma:.4f}", sigma), Cell.share(Share.of(one.correct)), gap]
                rows.append([Cell.of(title), Cell.of(what or "as chosen"), *cells])
    figure = Figure(
        "attack-convergence",
        f"Robust accuracy with more steps or draws minus that with the chosen ones, γ = "
        f"{scale.eps:g}, λ = {scale.lam:g}; paired 95 % intervals over images.",
        [partial(plot_rows, rows=gaps, xlabel="difference in robust accuracy (points)")],
        height=0.9 + 0.3 * len(gaps),
        width=7.0,
    )
    table = Table(
        "attack-convergence",
        "Accuracy in % under attack as one setting changes, and the difference to the chosen "
        "settings in percentage points, paired by image; with 95 % intervals.",
        ["method", "setting", "mean σ_s attacked", "robust", "minus the chosen"],
        rows,
    )
    return Result([figure], [table])


def attacked(
    context: Context,
    scale: ConvergenceScale,
    sigma_a: float,
    method: str,
    change: Mapping[str, int],
) -> Point:
    """A method under the attack with some settings changed; its name tells all of them."""
    values: dict[str, Any] = dict(change)
    changed = replace(scale, **values)
    drawn = method == G_V and changed.selector_samples > 1
    shown = [name for name in SETTINGS if name != "selector_samples" or drawn]
    suffix = "".join(f", {SETTINGS[name]} {getattr(changed, name)}" for name in shown)
    kind: Kind = "weak" if method == WEAK else "strong"
    attacks = Attacks(context, changed, scale.eps, kind, suffix=suffix)
    run = attacks.g_v_star if method == G_V_STAR else attacks.g_v
    return run(Need.fixed(sigma_a, selector=True), scale.lam)


ATTACK_CONVERGENCE = Experiment(
    "attack-convergence",
    "ours, on Experiment B",
    "robust accuracy as steps and draws of the attack grow",
    {
        "cpu": ConvergenceScale(
            **CPU,
            tried_steps=(10, 20, 50, 200, 500),
            tried_samples=(1, 2, 4, 8),
            tried_n_median_attack=(5, 11, 23),
        ),
        "paper": ConvergenceScale(),
    },
    {"cpu": "6 h", "paper": "10 h on a GPU after training"},
    attack_convergence,
)
