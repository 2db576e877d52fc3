"""Accuracy under attack: Fig. 6b, 7, 8 and 9, App. C, and whether the attacks have converged."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from reproduce.attacks import (
    CLIPPED,
    COLOURS,
    CPU,
    FIXED_CPU,
    G_V,
    G_V_STAR,
    Arena,
    Attacks,
    AttackScale,
    FixedScale,
    G,
    Point,
    averaged,
    best,
    clean_gap,
    dominating,
    fixed_arena,
    lines_of,
    loss_gap,
    moved,
    points_table,
    robust_gap,
    spread,
)
from reproduce.certification import TABLE_2
from reproduce.context import Context
from reproduce.experiment import (
    Claim,
    Experiment,
    Figure,
    Need,
    Result,
    Verdict,
    pair_needs,
    size,
)
from reproduce.levels import CLIP_PERCENTILES, CertifyScale, clip_of
from reproduce.levels import CPU as CERTIFY_CPU
from reproduce.plots import Line, Points, plot_points, plot_tradeoff
from reproduce.verdicts import (
    Difference,
    MeanDifference,
    lowered,
    shown_difference,
    told,
    verdict_of,
    weakest,
)
from varsmooth.report.figures import colours
from varsmooth.report.statistics import PairedDifference
from varsmooth.report.tables import Cell, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Are the attacks strong enough?


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


def attack_convergence(context: Context, scale: ConvergenceScale) -> Result:
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
        [partial(_plot_convergence, studies=studies, knob=knob) for knob in KNOBS],
        height=3.6,
    )
    return Result([figure], [convergence_table(studies)], [convergence_claim(studies)])


def study_of(context: Context, scale: ConvergenceScale, sigma_a: float, method: str) -> Study:
    def attacked(changed: ConvergenceScale) -> Point:
        settings = ", ".join(f"{what} {getattr(changed, knob)}" for knob, what in KNOBS.items())
        attacks = Attacks(context, changed, scale.eps, suffix=f", {settings}")
        run = {G_V: attacks.g_v, G_V_STAR: attacks.g_v_star}[method]
        return run(Need.fixed(sigma_a, selector=True), scale.lam)

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


def convergence_claim(studies: Sequence[Study]) -> Claim:
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


ATTACK_CONVERGENCE = Experiment(
    "attack-convergence",
    "Experiment B (settings)",
    "robust accuracy as steps and draws of the attack double",
    {"cpu": ConvergenceScale(**CPU), "paper": ConvergenceScale()},
    {"cpu": "45 min", "paper": "10 h on a GPU after training"},
    attack_convergence,
)


# Fig. 6b: PGD on f alone


@dataclass(frozen=True, kw_only=True)
class WeakScale(FixedScale):
    """The paper attacks f with 200 iterations; its γ is not told."""

    steps: int = size("PGD steps", 200)
    eps: float = size("γ", 0.3)


def weak_attack(context: Context, scale: WeakScale) -> Result:
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
    claims = [weak_better_claim(arenas), weak_larger_claim(arenas)]
    return Result([figure], [table], claims)


def weak_better_claim(arenas: Sequence[Arena]) -> Claim:
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


def weak_larger_claim(arenas: Sequence[Arena]) -> Claim:
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


WEAK_ATTACK = Experiment(
    "weak-attack",
    "Fig. 6b",
    "clean against robust accuracy of g_v and g, PGD on f alone",
    {"cpu": WeakScale(**FIXED_CPU), "paper": WeakScale()},
    {"cpu": "25 min", "paper": "1 h on a GPU after training"},
    weak_attack,
)


# Fig. 7: adaptive PGD through f, noise and h


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


def strong_attack(context: Context, scale: StrongScale) -> Result:
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
    return Result([figure], [table], claims)


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
        "Fig. 7",
        f"weak less strong at γ = {models[0].arenas[-1].eps:g}, mean over λ, points: " + told(gaps),
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
        "Fig. 7",
        "loss (clean less robust) of g_v less that of g_v*, mean over λ, points: " + told(gaps),
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
        return Claim(statement, "Fig. 7", "one γ only", "untested", "run it with more budgets")
    return Claim(
        statement,
        "Fig. 7",
        f"what g_v loses more than g_v* at γ = {high_eps:g} less the same at {low_eps:g}, points: "
        + told(gaps),
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
        "Fig. 7",
        "clean accuracy of g_v less that of g_v*, mean over λ, points: " + told(gaps),
        verdict_of(list(gaps.values())),
        "one h, trained in the scheme of g_v*, serves both",
        {title: gap.value for title, gap in gaps.items()},
    )


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
    """The paper attacks with 500 iterations; its γ is not told."""

    eps: float = size("γ", 0.3)
    held_out: int = size("held-out images", 5000)
    held_out_draws: int = size("selector draws per held-out image", 1001)


Clips = dict[tuple[float, float], tuple[float, float]]


def clipping(context: Context, scale: ClippingScale) -> Result:
    attacks = Attacks(context, scale, scale.eps)
    clips = clips_of(context, scale)

    def clipped(need: Need, lam: float) -> Point:
        return attacks.g_v_star(need, lam, clips[float(need.level), lam])

    methods = {G_V_STAR: attacks.g_v_star, CLIPPED: clipped}
    arenas = [fixed_arena(attacks, scale, sigma, methods) for sigma in scale.sigmas]
    titles = {G_V_STAR: "without clipping", CLIPPED: "with clipping"}
    figure = Figure(
        "clipping",
        f"Clean against robust accuracy of g_v* and g under PGD through f, noise and h, γ = "
        f"{scale.eps:g}. A line for each σ_a, from its larger point on: λ grows along g_v*, σ_s "
        "along g, named where σ_s = σ_a. Pale bars: 95 % intervals over images; all points share "
        "images, so their differences are more certain.",
        [
            partial(plot_tradeoff, lines=lines_of(arenas, (G, method)), title=title)
            for method, title in titles.items()
        ],
        height=4.6,
    )
    low, high = CLIP_PERCENTILES
    return Result(
        [figure],
        [
            points_table("clipping", "g_v* without and with clipping, and g.", arenas),
            clip_table(clips),
        ],
        [clipping_better_claim(arenas), alike_claim(arenas)],
        [f"Clip: percentiles {low} and {high} of σ_s on held-out images, for each λ"],
    )


def clips_of(context: Context, scale: ClippingScale) -> Clips:
    """h_l and h_u for each σ_a and λ, by the rule of `certified`, on held-out images."""
    sizes = CertifyScale(
        data=scale.data,
        seed=scale.seed,
        held_out=scale.held_out,
        held_out_draws=scale.held_out_draws,
    )
    return {
        (sigma, lam): clip_of(context, sizes, sigma, lam)
        for sigma in scale.sigmas
        for lam in scale.lams_of(sigma)
    }


def clip_table(clips: Clips) -> Table:
    rows = []
    for (sigma, lam), (low, high) in clips.items():
        theirs = TABLE_2.get((sigma, lam))
        rows.append(
            [
                Cell(f"{sigma:g}", sigma),
                Cell(f"{lam:g}", lam),
                Cell("–" if theirs is None else f"{theirs[0]:.2f}, {theirs[1]:.2f}"),
                Cell(f"{low:.4f}", low),
                Cell(f"{high:.4f}", high),
            ]
        )
    return Table(
        "clip-thresholds",
        "h_l and h_u: those of the paper's Table 2, which belong to its models, and ours.",
        ["σ_a", "λ", "Table 2", "our h_l", "our h_u"],
        rows,
    )


def clipping_better_claim(arenas: Sequence[Arena]) -> Claim:
    """g_v* beats g at σ_s = σ_a in clean and robust accuracy, clipped or not."""
    told, verdicts, numbers = [], list[Verdict](), {}
    for method in (G_V_STAR, CLIPPED):
        gaps = list[PairedDifference]()
        for arena in arenas:
            chosen = dominating(arena.methods[method], arena.baseline)
            clean, robust = (gap(chosen, arena.baseline) for gap in (clean_gap, robust_gap))
            gaps += [clean, robust]
            told.append(
                f"{method}, {arena.title}, {chosen.knob}: clean {shown_difference(clean)}, "
                f"robust {shown_difference(robust)}"
            )
            numbers[f"{method}, {arena.title}"] = [clean.value, robust.value]
        verdicts.append(verdict_of(gaps))
    return Claim(
        "Regardless of clipping, g_v* has better clean and robust accuracy than the baselines",
        "Fig. 8",
        "g_v* less g at σ_s = σ_a, points: " + "; ".join(told),
        weakest(verdicts),
        "at the λ whose smaller gain is largest, with hindsight; the verdict is the weaker of that "
        f"without clipping ({verdicts[0]}) and that with ({verdicts[1]})",
        numbers,
    )


def alike_claim(arenas: Sequence[Arena]) -> Claim:
    """What clipping changes under attack, over all λ."""
    gaps = {
        f"{arena.title}, {free.knob}": robust_gap(clipped, free)
        for arena in arenas
        for free, clipped in zip(arena.methods[G_V_STAR], arena.methods[CLIPPED], strict=True)
    }
    return Claim(
        "Clipping, which helps the certificate, costs no robust accuracy",
        "Fig. 8",
        "clipped less not clipped, robust, points: "
        + "; ".join(f"{title}: {shown_difference(gap)}" for title, gap in gaps.items()),
        "not" if lowered(gaps) else "held",
        "held if nowhere the interval lies below 0",
        {title: gap.value for title, gap in gaps.items()},
    )


CLIPPING = Experiment(
    "clipping",
    "Fig. 8",
    "clean against robust accuracy of g_v* without and with clipping, and of g",
    {
        "cpu": ClippingScale(
            **FIXED_CPU,
            held_out=CERTIFY_CPU["held_out"],
            held_out_draws=CERTIFY_CPU["held_out_draws"],
        ),
        "paper": ClippingScale(),
    },
    {"cpu": "1 h, half of it shared with strong-attack", "paper": "10 h on a GPU after training"},
    clipping,
)


# Fig. 9: one classifier for all levels


REPLACED_FROM = 0.37
"""The σ_a from which on the paper would replace the fixed classifiers."""

CLOSE = 0.02
"""A replacement may be worse by so much, if its interval also reaches 0."""


@dataclass(frozen=True, kw_only=True)
class UniversalScale(FixedScale):
    """h of f_u is told σ_a = ½ and trained toward σ_t = 1."""

    eps: float = size("γ", 0.3)
    universal: float = size("σ_a′ of f_u", 1.0)
    universal_lams: tuple[float, ...] = size(
        "λ on f_u", tuple(round(0.05 * k, 2) for k in range(19))
    )
    levels: tuple[float, ...] = size("σ_s of g on f_u", (0.06, 0.12, 0.25, 0.37, 0.5, 0.75, 1.0))

    @property
    def need(self) -> Need:
        return Need(f"universal-{self.universal:.2f}", selector=True)


@dataclass(frozen=True)
class Universal:
    """The points of f_u: g at each σ_s, g_v* at each λ."""

    swept: dict[float, Point]
    learned: Sequence[Point]

    @property
    def lines(self) -> list[Line]:
        orange = colours(2)[1]
        ends = (self.learned[0], self.learned[-1])
        names = [p.knob if any(p is end for end in ends) else "" for p in self.learned]
        return [
            Line(
                "g on f_u, σ_s swept",
                [point.outcomes for point in self.swept.values()],
                [f"{level:g}" for level in self.swept],
                orange,
                filled=False,
                dashed=True,
                marker="s",
            ),
            Line("g_v* on f_u, λ swept", [p.outcomes for p in self.learned], names, orange),
        ]


def universal_needs(scale: UniversalScale) -> list[Need]:
    return [*pair_needs(scale), scale.need]


def universal(context: Context, scale: UniversalScale) -> Result:
    attacks = Attacks(context, scale, scale.eps)
    arenas = [
        fixed_arena(attacks, scale, sigma, {G_V_STAR: attacks.g_v_star}) for sigma in scale.sigmas
    ]
    one = universal_of(attacks, scale)
    baselines = Line(
        "g, σ_s = σ_a",
        [arena.baseline.outcomes for arena in arenas],
        [arena.title for arena in arenas],
        COLOURS[G],
        filled=False,
        dashed=True,
        marker="s",
    )
    figure = Figure(
        "universal",
        f"Clean against robust accuracy under PGD through f, noise and h, γ = {scale.eps:g}: the "
        "classifier f_u for all levels (orange; g named by its σ_s) against classifiers of one σ_a "
        "each (grey: g at σ_s = σ_a; blue: g_v*). λ grows along g_v* from the larger point on. "
        "Pale bars: 95 % intervals over images; all points share images, so their differences are "
        "more certain.",
        [
            partial(
                plot_tradeoff,
                lines=[baselines, *lines_of(arenas, (G_V_STAR,)), *one.lines],
                title=f"γ = {scale.eps:g}",
            )
        ],
        legend="upper left",
        height=4.8,
    )
    middle = one.swept[scale.universal / 2]
    title = f"f_u, {scale.need.title}"
    arena_u = Arena(title, middle, {G: [*one.swept.values()], G_V_STAR: one.learned})
    every = [*arenas, arena_u]
    table = points_table(
        "universal",
        f"g and g_v* on fixed classifiers and on f_u, whose gaps are to g at σ_s = "
        f"{scale.universal / 2:g}.",
        every,
    )
    claims = [
        same_level_claim(arenas, one, scale),
        selector_claim(arenas, one),
        replace_claim(arenas, one),
    ]
    return Result([figure], [table], claims)


def universal_of(attacks: Attacks, scale: UniversalScale) -> Universal:
    levels = sorted({*scale.levels, *scale.sigmas, scale.universal / 2})
    return Universal(
        {level: attacks.g(scale.need, level) for level in levels},
        [attacks.g_v_star(scale.need, lam) for lam in scale.universal_lams],
    )


def same_level_claim(arenas: Sequence[Arena], one: Universal, scale: UniversalScale) -> Claim:
    """g on f_u against g on f, both at σ_s = σ_a."""
    gaps, told = dict[float, PairedDifference](), []
    for sigma, arena in zip(scale.sigmas, arenas, strict=True):
        mine = one.swept[sigma]
        gaps[sigma] = robust_gap(mine, arena.baseline)
        told.append(
            f"{arena.title}: robust {shown_difference(gaps[sigma])}, clean "
            f"{shown_difference(clean_gap(mine, arena.baseline))}"
        )
    large = [gap for sigma, gap in gaps.items() if sigma >= REPLACED_FROM]
    return Claim(
        "g is better on f_u than on the fixed f, especially at larger σ_a",
        "Fig. 9",
        "g on f_u less g on f, both at σ_s = σ_a, points: " + "; ".join(told),
        verdict_of(large),
        f"verdict from the robust gaps at σ_a ≥ {REPLACED_FROM}; no hindsight"
        if large
        else f"no model of σ_a ≥ {REPLACED_FROM} here",
        {f"{sigma:g}": gap.value for sigma, gap in gaps.items()},
    )


def selector_claim(arenas: Sequence[Arena], one: Universal) -> Claim:
    """g_v* on f_u against the most robust g_v* on each f."""
    gaps, told, numbers = list[PairedDifference](), [], {}
    for arena in arenas:
        rival = best(arena.methods[G_V_STAR])
        mine = dominating(one.learned, rival)
        clean, robust = clean_gap(mine, rival), robust_gap(mine, rival)
        gaps += [clean, robust]
        numbers[arena.title] = [clean.value, robust.value]
        told.append(
            f"{mine.knob} against {arena.title}, {rival.knob}: clean {shown_difference(clean)}, "
            f"robust {shown_difference(robust)}"
        )
    return Claim(
        "g_v* is better on f_u than on the fixed f, especially at larger σ_a",
        "Fig. 9",
        "g_v* on f_u less g_v* on f, points: " + "; ".join(told),
        verdict_of(gaps),
        "on f the most robust λ, on f_u the λ whose smaller gain is largest; with hindsight",
        numbers,
    )


def replace_claim(arenas: Sequence[Arena], one: Universal) -> Claim:
    """From which σ_a on f_u is nowhere worse than g on f at σ_s = σ_a."""
    every = [*one.swept.values(), *one.learned]
    told, replaced = [], dict[float, bool]()
    for arena in arenas:
        mine = dominating(every, arena.baseline)
        gaps = clean_gap(mine, arena.baseline), robust_gap(mine, arena.baseline)
        sigma = float(arena.baseline.level)
        replaced[sigma] = all(gap.value >= -CLOSE and gap.interval().high >= 0 for gap in gaps)
        told.append(
            f"{arena.title} by {mine.method}, {mine.knob}: clean {shown_difference(gaps[0])}, "
            f"robust {shown_difference(gaps[1])}: {'yes' if replaced[sigma] else 'no'}"
        )
    large = [able for sigma, able in replaced.items() if sigma >= REPLACED_FROM]
    verdict: Verdict = "untested"
    if large:
        verdict = "held" if all(large) else "partly" if any(large) else "not"
    return Claim(
        f"f_u can replace the fixed models from about σ_a = {REPLACED_FROM} on",
        "Fig. 9",
        "can the best point of f_u replace g at σ_s = σ_a? " + "; ".join(told),
        verdict,
        f"yes: at most {100 * CLOSE:g} points worse, clean and robust, and no interval below 0; "
        "f_u's setting chosen with hindsight"
        + ("" if large else f"; no model of σ_a ≥ {REPLACED_FROM} here"),
        {f"{sigma:g}": able for sigma, able in replaced.items()},
    )


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
    universal_needs,
)


# App. C: three ranges, three budgets


MIDDLE = {0.25: 0.12, 0.5: 0.25, 1.0: 0.5}
"""The σ_a of the baseline for each σ_a′: the middle of its range, as in the paper."""

NARROW, FAR = 0.25, 0.5
"""The σ_a′ and γ at which the paper sees both methods drop, and where it sweeps λ further."""


@dataclass(frozen=True, kw_only=True)
class ExtendedScale(AttackScale):
    """h is told σ_a′/2 and trained toward σ_t = σ_a′."""

    sigmas: tuple[float, ...] = size("σ_a′", (0.25, 0.5, 1.0))
    budgets: tuple[float, ...] = size("γ", (0.1, 0.3, 0.5))
    lams: tuple[float, ...] = size("λ", (0.0, 0.1, 0.2, 0.3, 0.4, 0.5))
    far_lams: tuple[float, ...] = size(
        f"λ at σ_a′ = {NARROW:g} and γ = {FAR:g}", tuple(round(0.1 * k, 1) for k in range(10))
    )
    multiples: tuple[float, ...] = size("swept σ_s / σ_a of g", (0.5, 0.75, 1.0, 1.25, 1.5, 2.0))

    def lams_of(self, universal: float, eps: float) -> tuple[float, ...]:
        return self.far_lams if (universal, eps) == (NARROW, FAR) else self.lams


@dataclass(frozen=True)
class Range:
    """One σ_a′: an arena for each γ."""

    universal: float
    arenas: Sequence[Arena]


def middle_of(universal: float) -> float:
    """The σ_a of the baseline."""
    return MIDDLE.get(universal, universal / 2)


def extended_needs(scale: ExtendedScale) -> list[Need]:
    return [
        need
        for universal in scale.sigmas
        for need in (
            Need(f"universal-{universal:.2f}", selector=True),
            Need.fixed(middle_of(universal)),
        )
    ]


def universal_extended(context: Context, scale: ExtendedScale) -> Result:
    ranges = [
        Range(universal, [arena_of(context, scale, universal, eps) for eps in scale.budgets])
        for universal in scale.sigmas
    ]
    arenas = [arena for each in ranges for arena in each.arenas]
    figure = Figure(
        "universal-extended",
        "Clean against robust accuracy under PGD through f, noise and h: g_v* on f_u, λ growing "
        "from the larger point on, and g on the classifier of the middle σ_a, σ_s growing alike, "
        "named where σ_s = σ_a. Pale bars: 95 % intervals over images; all points share images, "
        "so their differences are more certain.",
        [
            partial(
                plot_tradeoff,
                lines=lines_of(
                    [replace(arena, title=f"σ_a = {middle_of(each.universal):g}")], (G, G_V_STAR)
                ),
                title=f"σ_a′ = {each.universal:g}, γ = {arena.eps:g}",
            )
            for each in ranges
            for arena in each.arenas
        ],
        columns=len(scale.budgets),
        legend="upper left",
        height=3.3,
    )
    table = points_table(
        "universal-extended",
        "g_v* on f_u of σ_a′, and g on the classifier of the middle σ_a.",
        arenas,
    )
    claims = [extended_better_claim(ranges), extended_drop_claim(ranges)]
    return Result([figure], [table], claims)


def arena_of(context: Context, scale: ExtendedScale, universal: float, eps: float) -> Arena:
    """g_v* on f_u against g on the middle fixed classifier at one γ."""
    attacks = Attacks(context, scale, eps)
    need, middle = Need(f"universal-{universal:.2f}", selector=True), middle_of(universal)
    fixed = Need.fixed(middle)
    levels = sorted({middle, *(round(middle * multiple, 4) for multiple in scale.multiples)})
    swept = {level: attacks.g(fixed, level) for level in levels}
    learned = [attacks.g_v_star(need, lam) for lam in scale.lams_of(universal, eps)]
    title = f"{fixed.title} against {need.title}"
    return Arena(title, swept[middle], {G: [*swept.values()], G_V_STAR: learned})


def extended_better_claim(ranges: Sequence[Range]) -> Claim:
    """g_v* on f_u beats g of the middle σ_a."""
    told, gaps, fair, numbers = [], list[PairedDifference](), [], {}
    for each in ranges:
        for arena in each.arenas:
            chosen = dominating(arena.methods[G_V_STAR], arena.baseline)
            clean, robust = (gap(chosen, arena.baseline) for gap in (clean_gap, robust_gap))
            gaps += [clean, robust]
            title = f"σ_a′ = {each.universal:g}, γ = {arena.eps:g}"
            numbers[title] = [clean.value, robust.value]
            fair.append(
                shown_difference(robust_gap(best(arena.methods[G_V_STAR]), best(arena.methods[G])))
            )
            told.append(
                f"{title}, {chosen.knob}: clean {shown_difference(clean)}, "
                f"robust {shown_difference(robust)}"
            )
    return Claim(
        "For each σ_a′ g_v* on f_u beats g of the mid-range σ_a",
        "App. C",
        "g_v* on f_u less g on f at σ_s = σ_a, points: " + "; ".join(told),
        verdict_of(gaps),
        "at the λ whose smaller gain is largest, with hindsight; most robust λ against most robust "
        "σ_s: " + ", ".join(fair),
        numbers,
    )


def extended_drop_claim(ranges: Sequence[Range]) -> Claim:
    """At σ_a′ = ¼ and γ = ½ both drop, ours less."""
    statement = f"At γ = {FAR:g} with σ_a′ = {NARROW:g} both drop, and g_v* on f_u less"
    far = [a for each in ranges if each.universal == NARROW for a in each.arenas if a.eps == FAR]
    if not far:
        return Claim(statement, "App. C", "not run here", "untested", f"needs σ_a′ = {NARROW:g}")
    (arena,) = far
    ours, theirs = best(arena.methods[G_V_STAR]), arena.baseline
    losses = [averaged([point.lost]) for point in (ours, theirs)]
    less = loss_gap([theirs], [ours])
    both = all(loss.interval().low > 0 for loss in losses)
    verdict: Verdict = verdict_of([less]) if both else "not"
    return Claim(
        statement,
        "App. C",
        f"loss (clean less robust): g_v*, {ours.knob}: {_loss(ours)}; g, {theirs.knob}: "
        f"{_loss(theirs)}; g loses {shown_difference(less)} points more",
        verdict,
        "the most robust λ, with hindsight",
        {"g_v*": losses[0].value, "g": losses[1].value, "less": less.value},
    )


def _loss(point: Point) -> str:
    return f"{shown_difference(averaged([point.lost]))} from {100 * point.clean.value:.1f} %"


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
    {"cpu": "1.5 h", "paper": "15 h on a GPU after training"},
    universal_extended,
    extended_needs,
)
