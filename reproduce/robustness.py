"""Accuracy under attack: Fig. 6b and 7, and whether the attacks have converged."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from reproduce.arenas import (
    CPU,
    FIXED_CPU,
    G_V,
    G_V_STAR,
    Arena,
    Attacks,
    AttackScale,
    FixedScale,
    G,
    Kind,
    Point,
    against_best,
    averaged,
    best,
    chosen_claim,
    clean,
    fixed_arena,
    lines_of,
    lost,
    most_points,
    moved,
    over_lams,
    plane,
    points_table,
    robust,
    robust_gap,
    shift,
    spread,
)
from reproduce.harness import Claim, Context, Experiment, Figure, Need, Result, pair_needs, size
from reproduce.plots import Points, plot_points
from reproduce.verdicts import MARGIN, MeanDifference, judged
from varsmooth.report.tables import Cell, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes


# Are the attacks strong enough?

KNOBS = {
    "steps": "PGD steps",
    "samples": "EOT draws per step",
    "n_median_attack": "draws of h's median in the attack",
    "selector_samples": "draws of h per step on g_v",
}
"""What is tried: fields of the scale."""

WEAK = "g_v, weak attack"


@dataclass(frozen=True, kw_only=True)
class ConvergenceScale(AttackScale):
    """One configuration; the settings under test are the scale's own steps and draws."""

    sigmas: tuple[float, ...] = size("σ_a", (0.25,), stated=False)
    methods: tuple[str, ...] = size("methods", (G_V_STAR, G_V, WEAK), stated=False)
    lam: float = size("λ", 0.2, stated=False)
    eps: float = size("γ", 0.3, stated=False)
    tried_steps: tuple[int, ...] = size("PGD steps tried", (50, 200, 500, 1000), stated=False)
    tried_samples: tuple[int, ...] = size("EOT draws tried", (4, 8, 16, 32), stated=False)
    tried_n_median_attack: tuple[int, ...] = size(
        "draws of h's median tried", (5, 11, 23), stated=False
    )
    tried_selector_samples: tuple[int, ...] = size("draws of h tried", (1, 4, 8), stated=False)

    def tried(self, method: str) -> dict[str, list[int]]:
        """The values of each setting that this method has, the scale's own among them."""
        absent = {
            G_V_STAR: {"selector_samples"},
            G_V: {"n_median_attack"},
            WEAK: {"samples", "n_median_attack", "selector_samples"},
        }[method]
        return {
            knob: sorted({getattr(self, knob), *getattr(self, f"tried_{knob}")})
            for knob in KNOBS
            if knob not in absent
        }

    def with_knobs(self, values: Mapping[str, int]) -> "ConvergenceScale":
        changes: dict[str, Any] = dict(values)
        return replace(self, **changes)


@dataclass(frozen=True)
class Study:
    """One method: a point for each value of each knob, and with everything doubled."""

    title: str
    chosen: Point
    tried: dict[str, dict[int, Point]]
    doubled: Point | None

    @property
    def points(self) -> list[Point]:
        every = [point for points in self.tried.values() for point in points.values()]
        return every if self.doubled is None else [*every, self.doubled]

    def stronger(self) -> dict[str, Point]:
        """What the verdict looks at: every value beyond the chosen one, and all doubled."""
        found: dict[str, Point] = {}
        for knob, points in self.tried.items():
            at = next(value for value, point in points.items() if point is self.chosen)
            found |= {f"{KNOBS[knob]} {at} → {v}": p for v, p in points.items() if v > at}
        return found if self.doubled is None else found | {"everything doubled": self.doubled}


def attack_convergence(context: Context, scale: ConvergenceScale) -> Result:
    """Robust accuracy as one setting of the attack grows and the others stay."""
    studies = [
        study_of(context, scale, sigma, method)
        for sigma in scale.sigmas
        for method in scale.methods
    ]
    knobs = [knob for knob in KNOBS if any(len(s.tried.get(knob, ())) > 1 for s in studies)]
    figure = Figure(
        "attack-convergence",
        f"Accuracy under PGD, γ = {scale.eps:g}, λ = {scale.lam:g}, as one setting of the attack "
        "grows and the others stay. Bars: 95 % intervals over images; all points share images, so "
        "their differences are more certain, see the table.",
        [partial(_plot_convergence, studies=studies, knob=knob) for knob in knobs],
        columns=min(3, len(knobs)),
        height=3.6,
    )
    claim = judged(
        "The attacks have converged: more steps or draws do not lower robust accuracy",
        "ours",
        {
            f"{study.title}, {what}": robust_gap(point, study.chosen)
            for study in studies
            for what, point in study.stronger().items()
        },
        "robust accuracy under the stronger attack minus that under the chosen one",
        margin=MARGIN,
    )
    return Result([figure], [convergence_table(studies)], [claim])


def study_of(context: Context, scale: ConvergenceScale, sigma_a: float, method: str) -> Study:
    need, tried = Need.fixed(sigma_a, selector=True), scale.tried(method)

    def attacked(values: Mapping[str, int]) -> Point:
        changed = scale.with_knobs(values)
        shown = [knob for knob in KNOBS if knob != "selector_samples" or method == G_V]
        settings = [f"{KNOBS[knob]} {getattr(changed, knob)}" for knob in shown]
        if method == G_V and changed.selector_samples == 1:
            settings.pop()
        kind: Kind = "weak" if method == WEAK else "strong"
        attacks = Attacks(context, changed, scale.eps, kind, suffix=f", {', '.join(settings)}")
        return (attacks.g_v_star if method == G_V_STAR else attacks.g_v)(need, scale.lam)

    chosen = attacked({})
    found = {
        knob: {v: chosen if v == getattr(scale, knob) else attacked({knob: v}) for v in values}
        for knob, values in tried.items()
    }
    twice = {knob: 2 * getattr(scale, knob) for knob in ("steps", "samples")}
    twice["n_median_attack"] = 2 * scale.n_median_attack + 1
    doubled = None if method == WEAK else attacked(twice)
    return Study(f"{method}, σ_a = {sigma_a:g}", chosen, found, doubled)


def _plot_convergence(axes: "Axes", studies: Sequence[Study], knob: str) -> None:
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


def convergence_table(studies: Sequence[Study]) -> Table:
    rows = []
    for study in studies:
        lines = [
            (KNOBS[knob], str(value), point)
            for knob, points in study.tried.items()
            for value, point in points.items()
        ]
        if study.doubled is not None:
            lines.append(("everything", "doubled", study.doubled))
        for what, value, point in lines:
            same = point is study.chosen
            gap = Cell("–") if same else Cell.difference(robust_gap(point, study.chosen))
            sigma = float(point.outcomes.sigmas.mean())
            head = [Cell.of(study.title), Cell.of(what), Cell.of(value)]
            rows.append([*head, Cell(f"{sigma:.4f}", sigma), Cell.share(point.robust), gap])
    return Table(
        "attack-convergence",
        "Accuracy in % under attack as one setting changes, and the difference to the chosen "
        "settings in percentage points, paired by image; with 95 % intervals.",
        ["method", "setting", "value", "mean σ_s attacked", "robust", "minus the chosen"],
        rows,
    )


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


# Fig. 6b: PGD on f alone


@dataclass(frozen=True, kw_only=True)
class WeakScale(FixedScale):
    """The paper attacks f with 200 iterations and does not state γ."""

    steps: int = size("PGD steps", 200)
    eps: float = size("γ", 0.3, stated=False)


def weak_attack(context: Context, scale: WeakScale) -> Result:
    """g_v against g under PGD on f alone, which knows nothing of noise and selector."""
    attacks = Attacks(context, scale, scale.eps, "weak")
    arenas = [
        fixed_arena(attacks, scale, sigma, {G_V: Attacks.g_v}, choose=G_V) for sigma in scale.sigmas
    ]
    figure = plane(
        "weak-attack",
        f"Clean against robust accuracy of g_v and g under PGD on f alone, γ = {scale.eps:g}. One "
        "line per σ_a, starting at the larger marker; λ grows along g_v, σ_s along g; the label "
        "marks σ_s = σ_a.",
        {f"γ = {scale.eps:g}": lines_of(arenas, (G, G_V))},
        legend="upper left",
    )
    table = points_table("weak-attack", "g_v and g under PGD on f alone.", arenas)
    claims = [
        weak_claim(arenas),
        chosen_claim(arenas, G_V, "Fig. 6b"),
        growth_claim(arenas),
        unmoved_claim(arenas),
    ]
    return Result([figure], [table], claims, [context.selectors_of_g_v(pair_needs(scale))])


def weak_claim(arenas: Sequence[Arena]) -> Claim:
    """With the right λ, g_v is more robust than g at σ_s = σ_a."""
    chosen = [(each, best(each.methods[G_V])) for each in arenas]
    return judged(
        "Under the weak attack g_v is more robust than g if the appropriate λ is chosen",
        "Fig. 6b",
        {f"{each.title}, {p.knob}": robust_gap(p, each.baseline) for each, p in chosen},
        "robust accuracy of g_v at its best λ minus that of g at σ_s = σ_a",
        f"λ chosen with hindsight, as in the paper; {against_best(arenas, G_V)}; "
        f"{spread([p for each in arenas for p in each.methods[G_V]])}",
        ours=most_points(arenas, G_V),
    )


def growth_claim(arenas: Sequence[Arena]) -> Claim:
    """The gain grows with σ_a: that of the largest minus that of the smallest."""

    def gain(each: Arena) -> Any:
        return robust(best(each.methods[G_V])).astype(int) - robust(each.baseline)

    first, last = arenas[0], arenas[-1]
    gaps = {f"{last.title} − {first.title}": averaged([gain(last) - gain(first)])}
    return judged(
        "The gain of g_v under the weak attack is larger for larger σ_a",
        "Fig. 6b",
        gaps if len(arenas) > 1 else {},
        "gain in robust accuracy of g_v at the largest σ_a minus that at the smallest",
        "λ chosen with hindsight at both ends",
        ours=most_points(arenas, G_V),
        theirs=most_points(arenas, G_V),
    )


UNMOVED = 0.01
"""How far σ_s may move, relative to itself, where h counts as not affected."""


def unmoved_claim(arenas: Sequence[Arena]) -> Claim:
    """The weak attack does not know h; does h choose the same σ_s?"""
    return judged(
        "The weak attack does not affect h",
        "Fig. 6b",
        {each.title: averaged(-shift(point) for point in each.methods[G_V]) for each in arenas},
        "minus how far the attack moves σ_s of g_v relative to itself, mean over images and λ",
        margin=UNMOVED,
        unit="%",
    )


WEAK_ATTACK = Experiment(
    "weak-attack",
    "Fig. 6b",
    "clean against robust accuracy of g_v and g, PGD on f alone",
    {"cpu": WeakScale(**FIXED_CPU), "paper": WeakScale()},
    {"cpu": "40 min", "paper": "1 h on a GPU after training"},
    weak_attack,
)


# Fig. 7: adaptive PGD through f, noise and h


@dataclass(frozen=True, kw_only=True)
class StrongScale(FixedScale):
    """The paper does not state the iterations of Fig. 7."""

    steps: int = size("PGD steps", 200, stated=False)
    budgets: tuple[float, ...] = size("γ", (0.1, 0.3))


@dataclass(frozen=True)
class Arenas:
    """One σ_a: an arena for each γ, and the weak attack at the largest.

    weak: the points of g at σ_s = σ_a, of g_v and of g_v* under PGD on f.
    """

    sigma_a: float
    arenas: Sequence[Arena]
    weak: Mapping[str, Sequence[Point]]

    @property
    def title(self) -> str:
        return self.arenas[0].title

    def excess(self, at: Arena) -> MeanDifference:
        """How much more g_v loses than g_v*, mean over λ."""
        return over_lams(at.methods[G_V], at.methods[G_V_STAR], lost)

    def drop(self, method: str) -> MeanDifference:
        """Robust accuracy under the weak attack minus that under the strong one, mean over λ."""
        last = self.arenas[-1]
        hard = [last.baseline] if method == G else last.methods[method]
        return over_lams(self.weak[method], hard, robust)


def strong_attack(context: Context, scale: StrongScale) -> Result:
    """Mono smoothing g_v and dual smoothing g_v* under an attack on all of them."""
    models = [model_of(context, scale, sigma) for sigma in scale.sigmas]
    by_budget = [[model.arenas[i] for model in models] for i in range(len(scale.budgets))]
    figure = plane(
        "strong-attack",
        "Clean against robust accuracy of g_v, g_v* and g under PGD through f, noise and h. One "
        "line per σ_a, starting at the larger marker; λ grows along g_v and g_v*, σ_s along g; the "
        "label marks σ_s = σ_a.",
        {f"γ = {each[0].eps:g}": lines_of(each, (G, G_V, G_V_STAR)) for each in by_budget},
        legend="upper left",
    )
    arenas = [each for budget in by_budget for each in budget]
    table = points_table("strong-attack", "g_v, g_v* and g under the adaptive attack.", arenas)
    own = context.selectors_of_g_v(pair_needs(scale))
    return Result([figure], [table], strong_claims(models, own), [own])


def model_of(context: Context, scale: StrongScale, sigma_a: float) -> Arenas:
    need = Need.fixed(sigma_a, selector=True)
    methods = {G_V: Attacks.g_v, G_V_STAR: Attacks.g_v_star}
    arenas = [
        fixed_arena(Attacks(context, scale, eps), scale, sigma_a, methods) for eps in scale.budgets
    ]
    weak = Attacks(context, scale, scale.budgets[-1], "weak")
    points: dict[str, list[Point]] = {G: [weak.g(need, sigma_a)]}
    for method, run in methods.items():
        points[method] = [run(weak, need, lam) for lam in scale.lams_of(sigma_a)]
    return Arenas(sigma_a, arenas, points)


LITTLE = 0.05
"""What "a little" clean accuracy is at most."""


def _named() -> dict[str, MeanDifference]:
    return {}


def relative(model: Arenas, point: Point) -> Any:
    """σ_s of every image without the attack, relative to σ_a (n,)."""
    return point.outcomes.clean_sigmas / model.sigma_a


def strong_claims(models: Sequence[Arenas], own: str) -> list[Claim]:
    """What the adaptive attack takes from g_v, from g and from g_v*."""
    alone: dict[str, dict[str, MeanDifference]] = {G: {}, G_V: {}, G_V_STAR: {}}
    drops, excess, growth, reached = (_named() for _ in range(4))
    cost, little, robuster, further, far = (_named() for _ in range(5))
    gentle, strict, smaller = (_named() for _ in range(3))
    for model in models:
        first, last = model.arenas[0], model.arenas[-1]
        for method, found in alone.items():
            found[f"{method}, {model.title}"] = model.drop(method)
        more = np.subtract(model.drop(G_V).values, model.drop(G).values)
        drops[model.title] = averaged([more])
        for at in model.arenas:
            title, star = f"{model.title}, γ = {at.eps:g}", at.methods[G_V_STAR]
            excess[title] = model.excess(at)
            reached[title] = averaged(shift(point) - UNMOVED for point in at.methods[G_V])
            robuster[title] = over_lams(star, at.methods[G_V], robust)
        star = last.methods[G_V_STAR]
        if first is not last:
            more = np.subtract(model.excess(last).values, model.excess(first).values)
            growth[model.title] = averaged([more])
            further[model.title] = over_lams(star, first.methods[G_V_STAR], shift)
            far[f"{model.title}, γ = {last.eps:g}"] = averaged(shift(p) - UNMOVED for p in star)
        if len(star) > 1:
            title = f"{model.title}, {star[0].knob} and {star[-1].knob}"
            gentle[f"{title}, clean"] = over_lams(star[:1], star[-1:], clean)
            strict[f"{title}, robust"] = over_lams(star[-1:], star[:1], robust)
            smaller[f"{title}, σ_s"] = over_lams(star[-1:], star[:1], partial(relative, model))
        cost[model.title] = over_lams(first.methods[G_V], first.methods[G_V_STAR], clean)
        less = LITTLE - np.array(cost[model.title].values)
        little[f"{model.title}, what is left of 5 points"] = averaged([less])
    eps = [each.eps for each in models[0].arenas]
    of_g_v_points, of_star = (
        [point for model in models for point in model.arenas[-1].methods[method]]
        for method in (G_V, G_V_STAR)
    )
    return [
        judged(
            "PGD that knows g, or h and g_v or g_v*, is stronger than PGD on f",
            "Experiment B, on Fig. 7",
            list(alone.values()),
            f"robust accuracy under the weak attack minus that under the strong one, γ = "
            f"{eps[-1]:g}, of g at σ_s = σ_a, of g_v and of g_v*, mean over λ",
            f"all three must hold; {spread(of_g_v_points)}",
        ),
        judged(
            "The robust accuracy of g_v drops from the weak to the strong attack",
            "Fig. 7",
            alone[G_V],
            f"robust accuracy of g_v under the weak attack minus that under the strong one, γ = "
            f"{eps[-1]:g}, mean over λ",
            f"{spread(of_g_v_points)}; {moved(of_g_v_points)}",
        ),
        judged(
            "PGD is effective against h in g_v: it moves σ_s by more than 1 %",
            "Fig. 7",
            reached,
            "how far the attack moves σ_s of g_v relative to itself, mean over images and λ, minus "
            "1 %",
            f"the 1 % are ours; {moved(of_g_v_points)}",
            unit="%",
        ),
        judged(
            "g_v drops because h is attacked: it drops more than g",
            "ours, on Fig. 7",
            drops,
            "drop from the weak to the strong attack of g_v (mean over λ) minus that of g at "
            "σ_s = σ_a",
            f"γ = {eps[-1]:g}; {moved(of_g_v_points)}",
        ),
        judged(
            "Under the strong attack g_v* drops less than g_v",
            "Fig. 7",
            excess,
            "share of images that are right and that the attack makes wrong, of g_v minus that of "
            "g_v*, mean over λ",
            f"of g_v*, {moved(of_star)}; {own}",
        ),
        judged(
            "g_v* drops less than g_v especially for larger γ",
            "Fig. 7",
            growth,
            f"how much more g_v loses than g_v* at γ = {eps[-1]:g}, minus the same at {eps[0]:g}",
        ),
        judged(
            "Under the strong attack g_v* has better robust accuracy than g_v",
            "Fig. 7",
            robuster,
            "robust accuracy of g_v* minus that of g_v, mean over λ",
            own,
        ),
        judged(
            "Median smoothing costs a little clean accuracy",
            "Fig. 7",
            [cost, little],
            "clean accuracy of g_v minus that of g_v*, mean over λ; and what it lacks of 5 points",
            f"both must hold; {own}",
        ),
        judged(
            "An attack with a larger budget moves σ_s further, and by more than 1 %",
            "ours, on the discussion: harder to select better σ_s",
            [further, far],
            f"how far the attack moves σ_s of g_v* relative to itself, mean over λ: at γ = "
            f"{eps[-1]:g} minus the same at {eps[0]:g}; and at γ = {eps[-1]:g} minus 1 %",
            f"both must hold; {moved(of_star)}",
            unit="%",
        ),
        judged(
            "Minimizing the cross-entropy alone encourages a smaller σ_s and degrades robustness",
            "§3.1, on Fig. 7",
            [smaller, strict],
            "g_v* at the largest λ minus that at λ = 0: σ_s / σ_a, and robust accuracy",
            f"both must hold; γ = {eps[-1]:g}",
            unit="%",
        ),
        judged(
            "Smaller λ gives better clean accuracy, larger λ higher robustness",
            "§3.1, on Fig. 7",
            [gentle, strict],
            "accuracy of g_v*: clean at the smallest λ minus that at the largest, robust at the "
            "largest λ minus that at the smallest",
            f"both must hold; γ = {eps[-1]:g}",
        ),
    ]


STRONG_ATTACK = Experiment(
    "strong-attack",
    "Fig. 7",
    "clean against robust accuracy of g_v, g_v* and g, PGD through f, noise and h",
    {"cpu": StrongScale(**FIXED_CPU), "paper": StrongScale()},
    {"cpu": "2.5 h", "paper": "10 h on a GPU after training"},
    strong_attack,
)
