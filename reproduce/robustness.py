"""Accuracy under attack: Fig. 6b, 7, 8 and 9, App. C, and whether the attacks have converged."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

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
    Kind,
    Point,
    Run,
    arena,
    averaged,
    best,
    clean,
    clean_gap,
    dominating,
    fixed_arena,
    lines_of,
    lost,
    moved,
    over_lams,
    points_table,
    robust,
    robust_gap,
    spread,
)
from reproduce.certification import CLIP_CAPTION, CLIP_COLUMNS, TABLE_2, clip_cells
from reproduce.context import Context
from reproduce.experiment import Claim, Experiment, Figure, Need, Result, Verdict, pair_needs, size
from reproduce.levels import CLIP_PERCENTILES, CertifyScale, clip_of
from reproduce.levels import CPU as CERTIFY_CPU
from reproduce.plots import Line, Points, plot_points, plot_tradeoff
from reproduce.verdicts import MARGIN, Gaps, MeanDifference, judged, shown_gap, verdict_of, weakest
from varsmooth.bounds import Floats
from varsmooth.report.figures import colours
from varsmooth.report.statistics import PairedDifference
from varsmooth.report.tables import Cell, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plane(name: str, caption: str, plots: Mapping[str, Sequence[Line]], **look: Any) -> Figure:
    """Clean against robust accuracy: one plot for each title."""
    drawn = [partial(plot_tradeoff, lines=lines, title=title) for title, lines in plots.items()]
    intervals = (
        "Pale bars: 95 % intervals over images; all points share images, so their differences "
        "are more certain."
    )
    return Figure(name, f"{caption} {intervals}", drawn, **{"height": 4.6, **look})


def chosen_claim(arenas: Sequence[Arena], method: str, source: str) -> Claim:
    """A method against g, both at the setting that held-out images chose."""
    known = [each for each in arenas if each.chosen]
    return judged(
        f"With λ and σ_s fixed beforehand, {method} is more robust than g",
        f"ours, on {source}",
        {
            f"{each.title}, γ = {each.eps:g}, {each.chosen[method].knob} against "
            f"{each.chosen[G].knob}": robust_gap(each.chosen[method], each.chosen[G])
            for each in known
        },
        f"robust accuracy of {method} minus that of g",
        "the most robust λ and σ_s on held-out images",
    )


def dominance(arenas: Sequence[Arena], method: str) -> dict[str, PairedDifference]:
    """Clean and robust gains over g at σ_s = σ_a, where the smaller of both is largest."""
    gaps = {}
    for each in arenas:
        point = dominating(each.methods[method], each.baseline)
        title = f"{method}, {each.title}, γ = {each.eps:g}, {point.knob}"
        gaps[f"{title}, clean"] = clean_gap(point, each.baseline)
        gaps[f"{title}, robust"] = robust_gap(point, each.baseline)
    return gaps


DOMINANCE = "the λ whose smaller gain, clean or robust, is largest, with hindsight, as in the paper"


def against_best(arenas: Sequence[Arena], method: str) -> str:
    """The most robust λ against the most robust σ_s, in words."""
    gaps = [robust_gap(best(each.methods[method]), best(each.methods[G])) for each in arenas]
    return "against the most robust σ_s, with hindsight: " + ", ".join(map(shown_gap, gaps))


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
        "The attacks have converged: more steps or draws find no more",
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
    "Experiment B (settings)",
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
        f"Clean against robust accuracy of g_v and g under PGD on f alone, γ = {scale.eps:g}. A "
        "line for each σ_a, from its larger point on: λ grows along g_v, σ_s along g, named where "
        "σ_s = σ_a.",
        {f"γ = {scale.eps:g}": lines_of(arenas, (G, G_V))},
        legend="upper left",
    )
    table = points_table("weak-attack", "g_v and g under PGD on f alone.", arenas)
    claims = [weak_claim(arenas), chosen_claim(arenas, G_V, "Fig. 6b"), growth_claim(arenas)]
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
        "robust gain of g_v at the largest σ_a minus that at the smallest",
        "λ chosen with hindsight at both ends",
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
class Model:
    """One σ_a: an arena for each γ; g_v and g at σ_s = σ_a under the weak attack at the largest."""

    arenas: Sequence[Arena]
    weak_g_v: Sequence[Point]
    weak_g: Point

    @property
    def title(self) -> str:
        return self.arenas[0].title

    def excess(self, at: Arena) -> MeanDifference:
        """How much more g_v loses than g_v*, mean over λ."""
        return over_lams(at.methods[G_V], at.methods[G_V_STAR], lost)


def strong_attack(context: Context, scale: StrongScale) -> Result:
    """Mono smoothing g_v and dual smoothing g_v* under an attack on all of them."""
    models = [model_of(context, scale, sigma) for sigma in scale.sigmas]
    by_budget = [[model.arenas[i] for model in models] for i in range(len(scale.budgets))]
    figure = plane(
        "strong-attack",
        "Clean against robust accuracy of g_v, g_v* and g under PGD through f, noise and h. A line "
        "for each σ_a, from its larger point on: λ grows along g_v and g_v*, σ_s along g, named "
        "where σ_s = σ_a.",
        {f"γ = {each[0].eps:g}": lines_of(each, (G, G_V, G_V_STAR)) for each in by_budget},
        legend="upper left",
    )
    arenas = [each for budget in by_budget for each in budget]
    table = points_table("strong-attack", "g_v, g_v* and g under the adaptive attack.", arenas)
    own = context.selectors_of_g_v(pair_needs(scale))
    return Result([figure], [table], strong_claims(models, own), [own])


def model_of(context: Context, scale: StrongScale, sigma_a: float) -> Model:
    need = Need.fixed(sigma_a, selector=True)
    methods = {G_V: Attacks.g_v, G_V_STAR: Attacks.g_v_star}
    arenas = [
        fixed_arena(Attacks(context, scale, eps), scale, sigma_a, methods) for eps in scale.budgets
    ]
    weak = Attacks(context, scale, scale.budgets[-1], "weak")
    points = [weak.g_v(need, lam) for lam in scale.lams_of(sigma_a)]
    return Model(arenas, points, weak.g(need, sigma_a))


def _named() -> dict[str, MeanDifference]:
    return {}


def strong_claims(models: Sequence[Model], own: str) -> list[Claim]:
    """What the adaptive attack takes from g_v, from g and from g_v*."""
    drops, excess, growth, cost, alone = _named(), _named(), _named(), _named(), list[str]()
    for model in models:
        first, last = model.arenas[0], model.arenas[-1]
        strong = last.methods[G_V]
        of_g = robust(model.weak_g).astype(int) - robust(last.baseline)
        of_g_v = [
            robust(weak).astype(int) - robust(hard)
            for weak, hard in zip(model.weak_g_v, strong, strict=True)
        ]
        drops[model.title] = averaged(drop - of_g for drop in of_g_v)
        alone.append(shown_gap(averaged(of_g_v)))
        excess |= {f"{model.title}, γ = {at.eps:g}": model.excess(at) for at in model.arenas}
        if first is not last:
            more = np.subtract(model.excess(last).values, model.excess(first).values)
            growth[model.title] = averaged([more])
        cost[model.title] = over_lams(first.methods[G_V], first.methods[G_V_STAR], clean)
    eps = [each.eps for each in models[0].arenas]
    of_g_v_points, of_star = (
        [point for model in models for point in model.arenas[-1].methods[method]]
        for method in (G_V, G_V_STAR)
    )
    return [
        judged(
            "Under the strong attack g_v loses what it kept under the weak one, because h is "
            "attacked",
            "Fig. 7",
            drops,
            f"robust accuracy under the weak attack minus that under the strong one at γ = "
            f"{eps[-1]:g}, of g_v (mean over λ) minus the same of g at σ_s = σ_a",
            f"the drop of g_v alone: {', '.join(alone)}; {spread(of_g_v_points)}; "
            f"{moved(of_g_v_points)}",
        ),
        judged(
            "Under the strong attack g_v* drops less than g_v",
            "Fig. 7",
            excess,
            "loss (clean − robust) of g_v minus that of g_v*, mean over λ",
            f"of g_v*, {moved(of_star)}; {own}",
        ),
        judged(
            "g_v* drops less than g_v especially for larger γ",
            "Fig. 7",
            growth,
            f"what g_v loses more than g_v* at γ = {eps[-1]:g} minus the same at {eps[0]:g}",
        ),
        judged(
            "Median smoothing costs a little clean accuracy",
            "Fig. 7",
            cost,
            "clean accuracy of g_v minus that of g_v*, mean over λ",
            own,
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


# Fig. 8: clipping


@dataclass(frozen=True, kw_only=True)
class ClippingScale(FixedScale):
    """The paper attacks with 500 iterations and does not state γ."""

    steps: int = size("PGD steps", 500)
    eps: float = size("γ", 0.3, stated=False)
    held_out: int = size("held-out images", 5000, stated=False)
    held_out_draws: int = size("selector draws per held-out image", 1001, stated=False)


Clips = dict[tuple[float, float], tuple[float, float]]


def clipping(context: Context, scale: ClippingScale) -> Result:
    """g_v* without and with clipping of h, against g, under the strong attack."""
    attacks = Attacks(context, scale, scale.eps)
    sizes = CertifyScale(
        data=scale.data,
        seed=scale.seed,
        held_out=scale.held_out,
        held_out_draws=scale.held_out_draws,
    )
    clips: Clips = {
        (sigma, lam): clip_of(context, sizes, sigma, lam)
        for sigma in scale.sigmas
        for lam in scale.lams_of(sigma)
    }

    def clipped(attacks: Attacks, need: Need, lam: float) -> Point:
        return attacks.g_v_star(need, lam, clips[float(need.level), lam])

    methods: dict[str, Run] = {G_V_STAR: Attacks.g_v_star, CLIPPED: clipped}
    arenas = [fixed_arena(attacks, scale, s, methods, choose=G_V_STAR) for s in scale.sigmas]
    figure = plane(
        "clipping",
        f"Clean against robust accuracy of g_v* and g under PGD through f, noise and h, γ = "
        f"{scale.eps:g}. A line for each σ_a, from its larger point on: λ grows along g_v*, σ_s "
        "along g, named where σ_s = σ_a.",
        {
            "without clipping": lines_of(arenas, (G, G_V_STAR)),
            "with clipping": lines_of(arenas, (G, CLIPPED)),
        },
    )
    rows = [[Cell(f"{s:g}", s), *clip_cells(s, lam, clip)] for (s, lam), clip in clips.items()]
    tables = [
        points_table("clipping", "g_v* without and with clipping, and g.", arenas),
        Table("clip-thresholds", CLIP_CAPTION, CLIP_COLUMNS, rows),
    ]
    claims = [
        regardless_claim(arenas),
        chosen_claim(arenas, G_V_STAR, "Fig. 8"),
        alike_claim(arenas),
        *table_2_claims(scale, arenas),
    ]
    low, high = CLIP_PERCENTILES
    note = f"Clip: percentiles {low} and {high} of σ_s on held-out images, for each λ"
    return Result([figure], tables, claims, [note])


def regardless_claim(arenas: Sequence[Arena]) -> Claim:
    """g_v* beats g at σ_s = σ_a in clean and robust accuracy, clipped or not."""
    parts: list[Gaps] = [dominance(arenas, method) for method in (G_V_STAR, CLIPPED)]
    verdicts = [verdict_of(part.values()) for part in parts]
    return judged(
        "Regardless of clipping, g_v* has better clean and robust accuracy than the baselines",
        "Fig. 8",
        {**parts[0], **parts[1]},
        "g_v* minus g at σ_s = σ_a",
        f"{DOMINANCE}; without clipping {verdicts[0]}, with clipping {verdicts[1]}; "
        f"{against_best(arenas, G_V_STAR)}",
        verdict=weakest(verdicts),
    )


def alike_claim(arenas: Sequence[Arena]) -> Claim:
    """What clipping changes under attack, over all λ."""
    pairs = [
        (f"{each.title}, {free.knob}", clipped, free)
        for each in arenas
        for free, clipped in zip(each.methods[G_V_STAR], each.methods[CLIPPED], strict=True)
    ]
    changed = sum(int((a.outcomes.sigmas != b.outcomes.sigmas).sum()) for _, a, b in pairs)
    return judged(
        "Clipping costs no robust accuracy",
        "ours, on Fig. 8",
        {title: robust_gap(clipped, free) for title, clipped, free in pairs},
        "robust accuracy of g_v* clipped minus that of g_v* not clipped",
        f"clipping changed the level of {changed} of "
        f"{sum(len(a.outcomes) for _, a, _ in pairs)} attacked images",
        margin=MARGIN,
        verdict=None if changed else "trivial",
    )


def table_2_claims(scale: ClippingScale, arenas: Sequence[Arena]) -> list[Claim]:
    """Middle and width of the 5–95 % range of σ_s on test images against Table 2, row by row."""
    chosen = {
        (sigma_a, lam): point.outcomes.clean_sigmas
        for sigma_a, at in zip(scale.sigmas, arenas, strict=True)
        for lam, point in zip(scale.lams_of(sigma_a), at.methods[G_V_STAR], strict=True)
        if (sigma_a, lam) in TABLE_2
    }
    return [
        table_2_claim(chosen, "middle", middle, 0.1),
        table_2_claim(chosen, "width", relative_width, 0.5),
    ]


def table_2_claim(
    chosen: Mapping[tuple[float, float], Floats],
    what: str,
    measure: Callable[[Any], Any],
    tolerance: float,
) -> Claim:
    """Ours divided by the paper's, with an interval over images (bootstrap)."""
    shown, verdicts, numbers = [], list[Verdict](), {}
    rng = np.random.default_rng(0)
    for (sigma_a, lam), sigmas in chosen.items():
        again = rng.choice(sigmas, (1000, len(sigmas)))
        ours, theirs = measure(np.percentile(sigmas, CLIP_PERCENTILES)), TABLE_2[sigma_a, lam]
        ratios = measure(np.percentile(again, CLIP_PERCENTILES, axis=1)) / measure(theirs)
        low, high = (float(q) for q in np.percentile(ratios, [2.5, 97.5]))
        inside = 1 - tolerance < low and high < 1 + tolerance
        outside = high < 1 - tolerance or low > 1 + tolerance
        verdicts.append("held" if inside else "not" if outside else "undecided")
        name = f"σ_a = {sigma_a:g}, λ = {lam:g}"
        numbers[name] = float(ours)
        shown.append(
            f"{name}: {ours:.3g} against {measure(theirs):.3g}, ratio [{low:.2f}, {high:.2f}]"
        )
    held, other = verdicts.count("held"), verdicts.count("not")
    return Claim(
        f"Table 2: for every σ_a and λ, σ_s of h has the {what} of the paper's range",
        "Table 2",
        f"{held} rows of {len(verdicts)} agree, {other} differ",
        f"{what} of the 5–95 % range of σ_s over test images against the paper's: "
        + "; ".join(shown),
        "partly" if held and other else weakest(verdicts),
        f"agrees if the ratio lies within 1 ± {tolerance:g}, differs if it lies outside; the width "
        "is relative to the middle",
        numbers,
    )


def middle(ends: Any) -> Any:
    low, high = ends
    return (low + high) / 2


def relative_width(ends: Any) -> Any:
    low, high = ends
    return 2 * (high - low) / (high + low)


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


# Fig. 9: one classifier for all levels

REPLACED_FROM = 0.37
"""The σ_a from which on the paper would replace the fixed classifiers."""


@dataclass(frozen=True, kw_only=True)
class UniversalScale(FixedScale):
    """h of f_u is told σ_a = ½ and trained toward σ_t = 1."""

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
    learned, swept = one.methods[G_V_STAR], dict(zip(levels, one.methods[G], strict=True))
    orange = colours(2)[1]
    ends = (learned[0], learned[-1])
    hollow: dict[str, Any] = {"filled": False, "dashed": True, "marker": "s"}
    lines = [
        Line(
            "g, σ_s = σ_a",
            [each.baseline.outcomes for each in arenas],
            [each.title for each in arenas],
            COLOURS[G],
            **hollow,
        ),
        *lines_of(arenas, (G_V_STAR,)),
        Line(
            "g on f_u, σ_s swept",
            [point.outcomes for point in swept.values()],
            [f"{level:g}" for level in levels],
            orange,
            **hollow,
        ),
        Line(
            "g_v* on f_u, λ swept",
            [point.outcomes for point in learned],
            [point.knob if point in ends else "" for point in learned],
            orange,
        ),
    ]
    figure = plane(
        "universal",
        f"Clean against robust accuracy under PGD through f, noise and h, γ = {scale.eps:g}: the "
        "classifier f_u for all levels (orange; g named by its σ_s) against classifiers of one σ_a "
        "each (grey: g at σ_s = σ_a; blue: g_v*). λ grows along g_v* from the larger point on.",
        {f"γ = {scale.eps:g}": lines},
        legend="upper left",
        height=4.8,
    )
    table = points_table(
        "universal",
        f"g and g_v* on fixed classifiers and on f_u, whose gaps are to g at σ_s = {half:g}.",
        [*arenas, one],
    )
    rivals = dict(zip(scale.sigmas, arenas, strict=True))
    return Result([figure], [table], universal_claims(rivals, swept, learned))


def universal_claims(
    rivals: Mapping[float, Arena], swept: Mapping[float, Point], learned: Sequence[Point]
) -> list[Claim]:
    """g and g_v* on f_u against the fixed classifiers, and whether f_u replaces these."""
    same = {at.title: robust_gap(swept[sigma], at.baseline) for sigma, at in rivals.items()}
    better, instead = {}, {}
    for sigma, at in rivals.items():
        rival = best(at.methods[G_V_STAR])
        mine = dominating(learned, rival)
        title = f"{mine.knob} against {at.title}, {rival.knob}"
        better[f"{title}, clean"] = clean_gap(mine, rival)
        better[f"{title}, robust"] = robust_gap(mine, rival)
        if sigma >= REPLACED_FROM:
            mine = dominating([*swept.values(), *learned], at.baseline)
            title = f"{at.title} by {mine.method}, {mine.knob}"
            instead[f"{title}, clean"] = clean_gap(mine, at.baseline)
            instead[f"{title}, robust"] = robust_gap(mine, at.baseline)
    large = [gap for sigma, gap in zip(rivals, same.values(), strict=True) if sigma > 0.25]
    return [
        judged(
            "g performs better on f_u than on the fixed f, especially at larger σ_a",
            "Fig. 9",
            same,
            "robust accuracy of g on f_u minus that of g on f, both at σ_s = σ_a",
            "no hindsight; the verdict is on σ_a > 0.25",
            verdict=verdict_of(large),
        ),
        judged(
            "g_v* performs better on f_u than on the fixed f, especially at larger σ_a",
            "Fig. 9",
            better,
            "g_v* on f_u minus g_v* on f",
            "on f the most robust λ, on f_u the λ whose smaller gain is largest, with hindsight",
        ),
        judged(
            f"f_u could replace the fixed f from σ_a = {REPLACED_FROM} on",
            "Fig. 9",
            instead,
            "the best point of f_u minus g on f at σ_s = σ_a",
            "f_u's setting chosen with hindsight",
            margin=MARGIN,
        ),
    ]


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
    arenas = {
        (sigma, eps): extended_arena(context, scale, sigma, eps)
        for sigma in scale.sigmas
        for eps in scale.budgets
    }
    figure = plane(
        "universal-extended",
        "Clean against robust accuracy under PGD through f, noise and h: g_v* on f_u, λ growing "
        "from the larger point on, and g on the classifier of the middle σ_a, σ_s growing alike, "
        "named where σ_s = σ_a.",
        {
            f"σ_a′ = {sigma:g}, γ = {eps:g}": lines_of(
                [replace(at, title=f"σ_a = {middle_of(sigma):g}")], (G, G_V_STAR)
            )
            for (sigma, eps), at in arenas.items()
        },
        columns=len(scale.budgets),
        legend="upper left",
        height=3.3,
    )
    every = list(arenas.values())
    table = points_table(
        "universal-extended",
        "g_v* on f_u of σ_a′, and g on the classifier of the middle σ_a.",
        every,
    )
    better = judged(
        "For each σ_a′ g_v* on f_u beats g of the mid-range σ_a",
        "App. C",
        dominance(every, G_V_STAR),
        "g_v* on f_u minus g on f at σ_s = σ_a",
        f"{DOMINANCE}; {against_best(every, G_V_STAR)}",
    )
    far = arenas.get((NARROW, FAR))
    claims = [better, chosen_claim(every, G_V_STAR, "App. C"), far_claim(far)]
    return Result([figure], [table], claims)


def extended_arena(context: Context, scale: ExtendedScale, universal: float, eps: float) -> Arena:
    """g_v* on f_u against g on the middle fixed classifier at one γ."""
    sigma_a, need = middle_of(universal), Need.universal(universal)
    fixed, lams = Need.fixed(sigma_a), scale.lams_of(universal, eps)
    return arena(
        Attacks(context, scale, eps),
        f"{fixed.title} against {need.title}",
        (fixed, sigma_a),
        sorted({sigma_a, *(round(sigma_a * multiple, 4) for multiple in scale.multiples)}),
        need,
        lams,
        {G_V_STAR: Attacks.g_v_star},
        choose=G_V_STAR,
    )


def far_claim(at: Arena | None) -> Claim:
    """At σ_a′ = ¼ and γ = ½ both drop, ours is more robust."""
    gaps, why = {}, f"needs σ_a′ = {NARROW:g}"
    if at is not None:
        ours = best(at.methods[G_V_STAR])
        losses = [shown_gap(averaged([lost(point)])) for point in (ours, at.baseline)]
        gaps = {f"{ours.knob} against {at.baseline.knob}": robust_gap(ours, at.baseline)}
        why = f"the most robust λ, with hindsight; clean − robust: g_v* {losses[0]}, g {losses[1]}"
    return judged(
        f"At γ = {FAR:g} with σ_a′ = {NARROW:g} both drop, and g_v* on f_u is more robust",
        "App. C",
        gaps,
        "robust accuracy of g_v* on f_u minus that of g on f at σ_s = σ_a",
        why,
    )


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
