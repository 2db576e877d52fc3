"""Are the attacks strong enough? Robust accuracy as steps and draws double, one at a time and all.

Every other attack experiment takes its settings from here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from reproduce.attacked import (
    CPU,
    G_V,
    G_V_STAR,
    Attacks,
    AttackScale,
    Point,
)
from reproduce.claims import shown_difference
from reproduce.comparing import (
    lowered,
    robust_gap,
)
from reproduce.context import Context
from reproduce.curves import Points, plot_points
from reproduce.experiment import Claim, Experiment, Figure, Need, Result, size
from varsmooth.report.statistics import Difference
from varsmooth.report.tables import Cell, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

KNOBS = {
    "steps": "PGD steps",
    "samples": "EOT draws per step",
    "n_median_attack": "draws of h's median in the attack",
}
"""What is doubled: fields of the scale."""


@dataclass(frozen=True, kw_only=True)
class ConvergenceScale(AttackScale):
    """One configuration; the settings under test are the scale's own steps and draws."""

    sigmas: tuple[float, ...] = size("σ_a", (0.25,))
    methods: tuple[str, ...] = size("methods", (G_V_STAR, G_V))
    lam: float = size("λ", 0.2)
    eps: float = size("γ", 0.3)
    smaller: int = size("halvings of each setting", 3)
    larger: int = size("doublings of each setting", 1)

    def doubled(self, knob: str, times: int) -> "ConvergenceScale":
        """One setting doubled so many times, halved if negative; a median stays odd."""
        value = max(1, int(getattr(self, knob) * 2.0**times))
        even = knob == "n_median_attack" and value % 2 == 0
        changes: dict[str, Any] = {knob: value + even}
        return replace(self, **changes)

    @property
    def everything_doubled(self) -> "ConvergenceScale":
        found = self
        for knob in KNOBS:
            found = found.doubled(knob, 1)
        return found


@dataclass(frozen=True)
class Study:
    """One method: a point for each value of each knob, and with everything doubled."""

    title: str
    chosen: Point
    tried: dict[str, dict[int, Point]]
    doubled: Point

    @property
    def points(self) -> list[Point]:
        return [*(p for points in self.tried.values() for p in points.values()), self.doubled]

    def stronger(self) -> dict[str, Point]:
        """What the verdict looks at: every doubling beyond the chosen settings."""
        found: dict[str, Point] = {}
        for knob, points in self.tried.items():
            at = next(value for value, point in points.items() if point is self.chosen)
            more = {f"{KNOBS[knob]} {at} → {v}": point for v, point in points.items() if v > at}
            found |= more
        return found | {"everything doubled": self.doubled}


def needs(scale: ConvergenceScale) -> list[Need]:
    return [Need.fixed(sigma, selector=True) for sigma in scale.sigmas]


def run(context: Context, scale: ConvergenceScale) -> Result:
    studies = [
        study_of(context, scale, sigma, method)
        for sigma in scale.sigmas
        for method in scale.methods
    ]
    figure = Figure(
        "attack-convergence",
        f"Accuracy under PGD through f, noise and h, γ = {scale.eps:g}, λ = {scale.lam:g}, as one "
        "setting of the attack doubles and the others stay. Bars: 95 % intervals over images; all "
        "points share images, so their differences are more certain, see the table.",
        [partial(_plot, studies=studies, knob=knob) for knob in KNOBS],
        height=3.6,
    )
    records = {p.outcomes.name: p.outcomes for study in studies for p in study.points}
    return Result([figure], [table_of(studies)], [claim_of(studies)], list(records.values()))


def study_of(context: Context, scale: ConvergenceScale, sigma_a: float, method: str) -> Study:
    def attacked(changed: ConvergenceScale) -> Point:
        attacks = Attacks(context, changed, scale.eps)
        run = {G_V: attacks.g_v, G_V_STAR: attacks.g_v_star}[method]
        found = run(Need.fixed(sigma_a, selector=True), scale.lam)
        settings = ", ".join(f"{what} {getattr(changed, knob)}" for knob, what in KNOBS.items())
        name = f"{found.outcomes.name}, {settings}"
        return replace(found, outcomes=replace(found.outcomes, name=name))

    chosen = attacked(scale)
    tried: dict[str, dict[int, Point]] = {}
    for knob in KNOBS:
        if knob == "n_median_attack" and method == G_V:
            continue  # g_v takes no median
        sizes = [scale.doubled(knob, times) for times in range(-scale.smaller, scale.larger + 1)]
        tried[knob] = {
            getattr(changed, knob): chosen if changed == scale else attacked(changed)
            for changed in sizes
        }
    title = f"{method}, σ_a = {sigma_a:g}"
    return Study(title, chosen, tried, attacked(scale.everything_doubled))


def _plot(axes: "Axes", studies: Sequence[Study], knob: str) -> None:
    series = [
        Points(
            study.title,
            [float(value) for value in study.tried[knob]],
            [point.robust for point in study.tried[knob].values()],
        )
        for study in studies
        if knob in study.tried
    ]
    plot_points(axes, series, KNOBS[knob], "accuracy under attack (%)")
    ticks = sorted({x for points in series for x in points.x})
    ends = [end for study in studies for p in study.points for end in p.robust.interval()]
    axes.set_ylim(100 * min(ends) - 2, 100 * max(ends) + 6)  # one scale for all, and a legend
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])


def table_of(studies: Sequence[Study]) -> Table:
    rows = []
    for study in studies:
        lines = [
            (KNOBS[knob], str(value), point)
            for knob, points in study.tried.items()
            for value, point in points.items()
        ]
        for what, value, point in [*lines, ("everything", "doubled", study.doubled)]:
            same = point is study.chosen
            gap = Cell("–") if same else Cell.difference(robust_gap(point, study.chosen))
            sigma = float(point.outcomes.sigmas.mean())
            head = [Cell.of(study.title), Cell.of(what), Cell.of(value)]
            rows.append([*head, Cell(f"{sigma:.4f}", sigma), Cell.share(point.robust), gap])
    return Table(
        "attack-convergence",
        "Accuracy in % under attack as one setting changes, and the difference to the chosen "
        "settings in percentage points, paired by image; with 95 % intervals.",
        ["method", "setting", "value", "mean σ_s attacked", "robust", "less the chosen"],
        rows,
    )


def claim_of(studies: Sequence[Study]) -> Claim:
    """Twice the effort changes robust accuracy by no more than its interval."""
    gaps = {
        f"{study.title}, {what}": robust_gap(point, study.chosen)
        for study in studies
        for what, point in study.stronger().items()
    }
    stronger = lowered(gaps)
    return Claim(
        "The attacks have converged: twice the steps or draws find no more",
        "ours",
        "change of robust accuracy, points: "
        + "; ".join(f"{title}: {shown_difference(gap)}" for title, gap in gaps.items()),
        "not" if stronger else "held",
        "held if no doubling lowers robust accuracy beyond its paired interval; "
        f"{_hidden(gaps)} points more could hide in these intervals"
        + (f"; stronger were: {', '.join(stronger)}" if stronger else ""),
        {title: gap.value for title, gap in gaps.items()},
    )


def _hidden(gaps: Mapping[str, Difference]) -> str:
    """The largest drop that no interval excludes."""
    return f"{-100 * min(gap.interval().low for gap in gaps.values()):.1f}"


EXPERIMENT = Experiment(
    "attack-convergence",
    "Experiment B (settings)",
    "robust accuracy as steps and draws of the attack double",
    {"cpu": ConvergenceScale(**CPU), "paper": ConvergenceScale()},
    {"cpu": "45 min", "paper": "10 h on a GPU after training"},
    needs,
    run,
)
