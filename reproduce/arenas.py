"""What the attack experiments share: sizes, the runs of g, g_v and g_v*, and how they compare."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from reproduce.harness import Claim, Context, Figure, Need, VotingScale, outcomes, size
from reproduce.plots import Line, plot_tradeoff
from reproduce.replay import spread_of
from reproduce.verdicts import UNMOVED, AnyOf, MeanDifference, judged, shown_gap
from varsmooth.bounds import Floats
from varsmooth.evaluation.options import AttackOptions, DataOptions, ModelOptions, PredictOptions
from varsmooth.evaluation.report.figures import colours
from varsmooth.evaluation.report.outcomes import Outcomes
from varsmooth.evaluation.report.statistics import PairedDifference, Share
from varsmooth.evaluation.report.tables import Cell, Table

Clip = tuple[float, float] | None
Kind = Literal["weak", "strong"]

LAMS = (0.0, 0.1, 0.2, 0.3, 0.4)
"""The λ of Experiment B for a fixed σ_a."""

G, G_V, G_V_STAR, CLIPPED = "g", "g_v", "g_v*", "g_v*, clipped"


@dataclass(frozen=True, kw_only=True)
class AttackScale(VotingScale):
    """Sizes of every attack. Experiments with equal sizes share their runs."""

    steps: int = size("PGD steps", 500, stated=False)
    samples: int = size("EOT draws per step", 16, stated=False)
    n_median_attack: int = size("draws of h's median in the attack", 11, stated=False, odd=True)
    selector_samples: int = size("draws of h per step on g_v", 4, stated=False)
    restarts: int = size("starts of the attack", 1, stated=False)
    n: int = size("votes N", 1000)
    n_median: int = size("draws of h's median N_h", 1001, stated=False, odd=True)
    choice: int = size("held-out images that choose λ and σ_s", 500, stated=False, zero=True)


CPU: dict[str, Any] = {
    "images": 200,
    "steps": 20,
    "samples": 4,
    "n": 200,
    "n_median": 51,
    "choice": 100,
}
"""What a CPU core can do in about three minutes for each point."""


@dataclass(frozen=True, kw_only=True)
class FixedScale(AttackScale):
    """Sizes of the experiments on classifiers of one σ_a each."""

    lams: tuple[float, ...] = size("λ", LAMS)
    every_lam: tuple[float, ...] = size("σ_a with every λ", (0.12, 0.25, 0.5, 1.0))
    few_lams: tuple[float, ...] = size("λ at the other σ_a", LAMS, follows="lams")
    multiples: tuple[float, ...] = size(
        "swept σ_s / σ_a of g", (0.5, 0.75, 1.0, 1.25, 1.5, 2.0), stated=False
    )
    closer: int = size("times as many test images at a σ_a with every λ", 1, stated=False)

    @property
    def idle(self) -> tuple[str, ...]:
        if {*self.sigmas} <= {*self.every_lam}:
            return ("every_lam", "few_lams")
        return () if {*self.sigmas} & {*self.every_lam} else ("every_lam", "lams", "closer")

    def lams_of(self, sigma_a: float) -> tuple[float, ...]:
        return self.lams if sigma_a in self.every_lam else self.few_lams

    def at(self, sigma_a: float) -> "FixedScale":
        """With the images of one σ_a."""
        more = self.closer if sigma_a in self.every_lam else 1
        return replace(self, images=more * self.images)

    def levels_of(self, sigma_a: float) -> tuple[float, ...]:
        """The σ_s of g; σ_a itself is always among them."""
        return tuple(sorted({sigma_a, *(round(sigma_a * m, 4) for m in self.multiples)}))


FIXED_CPU: dict[str, Any] = CPU | {
    "every_lam": (0.25,),
    "few_lams": (0.0, 0.2, 0.4),
    "multiples": (0.75, 1.0, 1.25),
}


@dataclass(frozen=True)
class Point:
    """One smoothed classifier under one attack: a point of the clean-against-robust plane.

    knob: what was set, in words: `λ = 0.2` or `σ_s = 0.25`.
    """

    method: str
    level: str
    knob: str
    eps: float
    outcomes: Outcomes

    @property
    def robust(self) -> Share:
        return Share.of(self.outcomes.correct)

    @property
    def clean(self) -> Share:
        return Share.of(self.outcomes.clean_correct)


@dataclass(frozen=True)
class Attacks:
    """Runs of one kind of attack at one budget. suffix: what else tells their names apart."""

    context: Context
    scale: AttackScale
    eps: float
    kind: Kind = "strong"
    split: str = "test"
    suffix: str = ""

    def g(self, need: Need, sigma: float) -> Point:
        """Conventional smoothing."""
        alone = replace(need, selector=False)
        return self._point(
            G,
            need,
            f"σ_s = {sigma:g}",
            lambda: ModelOptions(self.context.model(alone), sigma=sigma),
        )

    def g_v(self, need: Need, lam: float) -> Point:
        """h evaluated once, on x + ε."""
        return self._point(G_V, need, f"λ = {lam:g}", lambda: self.context.g_v_options(need, lam))

    def g_v_star(self, need: Need, lam: float, clip: Clip = None) -> Point:
        """h protected by its median; no grid of levels, and no clip but this one."""
        method = G_V_STAR if clip is None else CLIPPED
        return self._point(method, need, f"λ = {lam:g}", lambda: self._star(need, lam, clip))

    def unattacked(self, need: Need, lam: float) -> Outcomes:
        """g_v* as it predicts without an attack."""
        name = f"{G_V_STAR}, {need.title}, λ = {lam:g}, no attack"

        def asked() -> tuple[ModelOptions, DataOptions, PredictOptions]:
            settings = PredictOptions(n=self.scale.n, alpha=None, seed=self.scale.seed)
            return self._star(need, lam, None), self._images(), settings

        return self.context.majority(name, asked)

    def _star(self, need: Need, lam: float, clip: Clip) -> ModelOptions:
        told = self.context.about(need).sigma_of_selector
        return ModelOptions(
            self.context.model(need),
            lam=lam,
            sigma_a=told,
            sigma_m=told,
            clip=clip or (told / 100, told * 100),  # wider than h's range: clips nothing
            levels=0,
            n_median=self.scale.n_median,
        )

    def _point(
        self, method: str, need: Need, knob: str, model: Callable[[], ModelOptions]
    ) -> Point:
        name = f"{method}, {need.title}, {knob}, γ = {self.eps:g}, {self.kind} attack{self.suffix}"

        def make() -> Outcomes:
            settings = self._settings(method)
            return outcomes(self.context.attack(name, model(), self._images(), settings))

        def key() -> str:
            return self.context.key("attack", model(), self._images(), self._settings(method))

        return Point(method, need.level, knob, self.eps, self.context.run(name, make, key))

    def _images(self) -> DataOptions:
        count = self.scale.images if self.split == "test" else self.scale.choice
        return self.context.images(self.scale.data, self.split, count)

    def _settings(self, method: str) -> AttackOptions:
        strong, median = self.kind == "strong", method in (G_V_STAR, CLIPPED)
        return AttackOptions(
            eps=self.eps,
            kind=self.kind,
            steps=self.scale.steps,
            samples=self.scale.samples if strong else 1,
            restarts=self.scale.restarts,
            n_median_attack=self.scale.n_median_attack if strong and median else 1,
            selector_samples=self.scale.selector_samples if strong and method == G_V else 1,
            n=self.scale.n,
            seed=self.scale.seed,
        )

    def chosen(self, run: Callable[["Attacks", float], Point], values: Sequence[float]) -> float:
        """The λ or σ_s that is most robust on held-out images."""
        held_out = replace(self, split="val", suffix=f"{self.suffix}, val")
        found = {value: run(held_out, value) for value in values}
        return max(values, key=lambda v: (found[v].robust.k, found[v].clean.k))


@dataclass(frozen=True)
class Arena:
    """The points of several methods under one attack; g at σ_s = σ_a is what they must beat.

    chosen: of some methods the point that held-out images chose, if they were asked.
    """

    title: str
    baseline: Point
    methods: Mapping[str, Sequence[Point]]
    chosen: Mapping[str, Point] = field(default_factory=dict)

    @property
    def eps(self) -> float:
        return self.baseline.eps

    @property
    def points(self) -> list[Point]:
        return [point for points in self.methods.values() for point in points]


Run = Callable[[Attacks, Need, float], Point]
"""A method: the attacks, the model and λ (or σ_s) → a point."""


def arena(
    attacks: Attacks,
    title: str,
    baseline: tuple[Need, float],
    levels: Sequence[float],
    need: Need,
    lams: Sequence[float],
    methods: Mapping[str, Run],
    choose: str = "",
) -> Arena:
    """g on one classifier at every σ_s, and methods on a pair at every λ.

    choose: the method whose λ, and the σ_s of g, are also chosen on held-out images.
    """
    fixed, sigma_a = baseline
    knobs: dict[str, tuple[Run, Need, Sequence[float]]] = {G: (Attacks.g, fixed, levels)}
    knobs |= {method: (run, need, lams) for method, run in methods.items()}
    found = {
        method: {value: run(attacks, model, value) for value in values}
        for method, (run, model, values) in knobs.items()
    }
    chosen = {}
    for method in (G, choose) if choose and attacks.scale.choice else ():
        run, model, values = knobs[method]
        chosen[method] = found[method][attacks.chosen(partial(_at, run, model), values)]
    points = {method: list(each.values()) for method, each in found.items()}
    return Arena(title, found[G][sigma_a], points, chosen)


def _at(run: Run, need: Need, attacks: Attacks, value: float) -> Point:
    return run(attacks, need, value)


def fixed_arena(
    attacks: Attacks,
    scale: FixedScale,
    sigma_a: float,
    methods: Mapping[str, Run],
    choose: str = "",
) -> Arena:
    """g and the methods on the model of one σ_a."""
    need = Need.fixed(sigma_a, selector=True)
    levels, lams = scale.levels_of(sigma_a), scale.lams_of(sigma_a)
    return arena(attacks, need.title, (need, sigma_a), levels, need, lams, methods, choose)


COLOURS = dict(zip((G_V_STAR, G_V, CLIPPED, G), [*colours(3), "#555555"], strict=True))
LEGEND = {
    G: "g, σ_s swept",
    G_V: "g_v, λ swept",
    G_V_STAR: "g_v*, λ swept",
    CLIPPED: "g_v* clipped, λ swept",
}


def robust_gap(one: Point, other: Point) -> PairedDifference:
    """Accuracy under attack of one minus that of the other, image by image."""
    assert np.array_equal(one.outcomes.ids, other.outcomes.ids)
    return PairedDifference.of(one.outcomes.correct, other.outcomes.correct)


def clean_gap(one: Point, other: Point) -> PairedDifference:
    """The same without attack."""
    assert np.array_equal(one.outcomes.ids, other.outcomes.ids)
    return PairedDifference.of(one.outcomes.clean_correct, other.outcomes.clean_correct)


def averaged(columns: Iterable[Any], bound: float = 1.0) -> MeanDifference:
    """The mean over settings of one number for each image, with its interval over images.

    bound: see `MeanDifference`; 0 for columns that are not shares.
    """
    return MeanDifference(np.mean(list(columns), axis=0).tolist(), bound)


def over_lams(
    first: Sequence[Point], second: Sequence[Point], column: Callable[[Point], Any]
) -> MeanDifference:
    """Shares of some points minus those of others, image by image, mean over the settings."""
    return averaged(
        1 * column(one) - column(other) for one, other in zip(first, second, strict=True)
    )


def robust(point: Point) -> Any:
    return point.outcomes.correct


def clean(point: Point) -> Any:
    return point.outcomes.clean_correct


def best(points: Sequence[Point]) -> Point:
    """The most robust, among equals the one with the best clean accuracy; with hindsight."""
    return max(points, key=lambda point: (point.robust.k, point.clean.k))


def spread(points: Sequence[Point]) -> str:
    """How much the selected σ_s differ between images, in words."""
    return spread_of([point.outcomes.clean_sigmas for point in points])


def shifts(points: Sequence[Point]) -> Floats:
    """How far attacks moved σ_s relative to what it was: one row for each point (m, n).

    Columns are the images that were attacked at every point: those that were right without it.
    """
    attacked = np.all([clean(point) for point in points], axis=0)
    moved = [point.outcomes.sigmas / point.outcomes.clean_sigmas - 1 for point in points]
    found: Floats = np.abs(moved)[:, attacked]
    return found


def hardly_moved(points: Sequence[Point]) -> bool:
    """Whether σ_s moved so little at every point that there is nothing to defend."""
    return all(found.mean() <= UNMOVED for p in points if (found := shifts([p])).size)


def moved(points: Sequence[Point]) -> str:
    """How far the attack moved the σ_s of an image that it attacked, in words."""
    shares = [found.mean() for point in points if (found := shifts([point])).size]
    return (
        f"the attack moved σ_s by {100 * max(shares, default=0.0):.1f} % (mean over attacked "
        "images) at most"
    )


def lines_of(arenas: Sequence[Arena], methods: Sequence[str]) -> list[Line]:
    """A line for each model and method; the first of a method stands in the legend.

    g is hollow and grey, with its σ_s = σ_a named by the model.
    """
    lines, seen = [], set[str]()
    for arena in arenas:
        for method in methods:
            points = arena.methods[method]
            names = [arena.title if p is arena.baseline else "" for p in points]
            lines.append(
                Line(
                    f"_{method}" if method in seen else LEGEND[method],
                    [point.outcomes for point in points],
                    names,
                    COLOURS[method],
                    filled=method != G,
                    dashed=method == G,
                    marker="s" if method == G else "o",
                )
            )
            seen.add(method)
    return lines


def points_table(name: str, caption: str, arenas: Sequence[Arena]) -> Table:
    """Every point: levels before and under attack, accuracies, gaps to g at σ_s = σ_a."""
    rows = []
    for arena in arenas:
        for point in arena.points:
            before, after = point.outcomes.clean_sigmas, point.outcomes.sigmas
            gaps = [
                Cell("–")
                if point is arena.baseline
                else Cell.difference(gap(point, arena.baseline))
                for gap in (clean_gap, robust_gap)
            ]
            rows.append(
                [
                    Cell.of(arena.title),
                    Cell(f"{arena.eps:g}", arena.eps),
                    Cell.of(point.method),
                    Cell.of(point.knob),
                    Cell(f"{before.mean():.4f}", float(before.mean())),
                    Cell(f"{before.std():.4f}", float(before.std())),
                    Cell(f"{after.mean():.4f}", float(after.mean())),
                    Cell.share(point.clean),
                    Cell.share(point.robust),
                    *gaps,
                ]
            )
    return Table(
        name,
        f"{caption} Accuracies in %, with 95 % intervals over images; gaps to g at σ_s = σ_a in "
        "percentage points, paired by image.",
        [
            "model",
            "γ",
            "method",
            "setting",
            "mean σ_s",
            "sd of σ_s",
            "mean σ_s attacked",
            "clean",
            "robust",
            "clean − g",
            "robust − g",
        ],
        rows,
    )


def plane(name: str, caption: str, plots: Mapping[str, Sequence[Line]], **look: Any) -> Figure:
    """Clean against robust accuracy: one plot for each title."""
    drawn = [partial(plot_tradeoff, lines=lines, title=title) for title, lines in plots.items()]
    intervals = (
        "Pale bars: 95 % intervals over images; all points share images, so their differences "
        "are more certain."
    )
    return Figure(name, f"{caption} {intervals}", drawn, **{"height": 4.6, **look})


def chosen_claim(
    arenas: Sequence[Arena], method: str, source: str, ours: str = "", theirs: str = ""
) -> Claim:
    """A method against g, both at the setting that held-out images chose.

    ours, theirs: what they smooth, in words, if it is not the same f.
    """

    def against(each: Arena, rival: Point) -> dict[str, PairedDifference]:
        mine = each.chosen[method]
        title = f"{each.title}, γ = {each.eps:g}, {mine.knob} against {rival.knob}"
        return {title: robust_gap(mine, rival)}

    return judged(
        f"With λ and σ_s chosen on held-out images, {method}{ours} is more robust than g{theirs}",
        f"ours, on {source}",
        [
            against(each, each.chosen[G]) | against(each, each.baseline)
            for each in arenas
            if each.chosen
        ],
        f"robust accuracy of {method}{ours} minus that of g{theirs}",
        "against the σ_s that held-out images chose and, where it is another, against σ_s = σ_a: "
        "both must hold; the most robust λ on held-out images",
    )


def dominance(each: Arena, methods: Sequence[str], rival: Point) -> AnyOf:
    """Clean and robust gains of methods over one rival, at one λ for all of them."""
    return AnyOf(
        [
            {
                f"{point.method}, {each.title}, γ = {each.eps:g}, {point.knob}, {what}": gap(
                    point, rival
                )
                for point in points
                for what, gap in (("clean", clean_gap), ("robust", robust_gap))
            }
            for points in zip(*(each.methods[method] for method in methods), strict=True)
        ]
    )


def most_points(arenas: Sequence[Arena], method: str) -> int:
    """Among how many settings of a method the best was chosen, at most."""
    return max((len(each.methods[method]) for each in arenas), default=1)


def against_best(arenas: Sequence[Arena], method: str) -> str:
    """The most robust λ against the most robust σ_s, in words."""
    gaps = [robust_gap(best(each.methods[method]), best(each.methods[G])) for each in arenas]
    shown = [
        f"{each.title}, γ = {each.eps:g} {shown_gap(gap)}"
        for each, gap in zip(arenas, gaps, strict=True)
    ]
    return "robust accuracy against the most robust σ_s, with hindsight: " + ", ".join(shown)
