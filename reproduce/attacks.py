"""What the attack experiments share: sizes, the runs of g, g_v and g_v*, and how they compare."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from reproduce.context import Context
from reproduce.experiment import Need, Scale, size
from reproduce.plots import Line
from reproduce.verdicts import MeanDifference
from varsmooth.report.figures import colours
from varsmooth.report.outcomes import Outcomes
from varsmooth.report.statistics import PairedDifference, Share
from varsmooth.report.tables import Cell, Table
from varsmooth.runs.options import AttackOptions, ModelOptions

Clip = tuple[float, float] | None
Kind = Literal["weak", "strong"]

LAMS = (0.0, 0.1, 0.2, 0.3, 0.4)
"""The λ of Experiment B for a fixed σ_a."""

G, G_V, G_V_STAR, CLIPPED = "g", "g_v", "g_v*", "g_v*, clipped"


@dataclass(frozen=True, kw_only=True)
class AttackScale(Scale):
    """Sizes of every attack. Experiments with equal sizes share their runs."""

    steps: int = size("PGD steps", 500)
    samples: int = size("EOT draws per step", 16)
    n_median_attack: int = size("draws of h's median in the attack", 11)
    restarts: int = size("starts of the attack", 1)
    n: int = size("votes N", 1000)
    n_median: int = size("draws of h's median N_h", 1001)


CPU: dict[str, Any] = {
    "images": 200,
    "steps": 20,
    "samples": 4,
    "n": 200,
    "n_median": 51,
}
"""What a CPU core can do in about two minutes for each point. Steps and draws: from
`attack-convergence`."""


@dataclass(frozen=True, kw_only=True)
class FixedScale(AttackScale):
    """Sizes of the experiments on classifiers of one σ_a each."""

    lams: tuple[float, ...] = size("λ", LAMS)
    every_lam: tuple[float, ...] = size("σ_a with every λ", (0.12, 0.25, 0.5, 1.0))
    few_lams: tuple[float, ...] = size("λ at the other σ_a", LAMS)
    multiples: tuple[float, ...] = size("swept σ_s / σ_a of g", (0.5, 0.75, 1.0, 1.25, 1.5, 2.0))

    def lams_of(self, sigma_a: float) -> tuple[float, ...]:
        return self.lams if sigma_a in self.every_lam else self.few_lams

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

    @cached_property
    def lost(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """1 for each image that is right without the attack and wrong under it."""
        found: np.ndarray[tuple[int], np.dtype[np.int64]]
        found = (self.outcomes.clean_correct & ~self.outcomes.correct).astype(np.int64)
        return found


@dataclass(frozen=True)
class Attacks:
    """Runs of one kind of attack at one budget."""

    context: Context
    scale: AttackScale
    eps: float
    kind: Kind = "strong"
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
        return self._point(
            G_V,
            need,
            f"λ = {lam:g}",
            lambda: ModelOptions(
                self.context.model(need), lam=lam, sigma_a=self._told(need), protect=False
            ),
        )

    def g_v_star(self, need: Need, lam: float, clip: Clip = None) -> Point:
        """h protected by its median; no grid of levels, and no clip but this one."""

        def model() -> ModelOptions:
            told = self._told(need)
            return ModelOptions(
                self.context.model(need),
                lam=lam,
                sigma_a=told,
                sigma_m=told,
                clip=clip or (told / 100, told * 100),  # wider than h's range: clips nothing
                levels=0,
                n_median=self.scale.n_median,
            )

        return self._point(G_V_STAR if clip is None else CLIPPED, need, f"λ = {lam:g}", model)

    def _told(self, need: Need) -> float:
        """The σ_a that h is told, which is also σ_m."""
        about = self.context.about(need)
        return about.sigma_of_selector

    def _point(
        self, method: str, need: Need, knob: str, model: Callable[[], ModelOptions]
    ) -> Point:
        name = f"{method}, {need.title}, {knob}, γ = {self.eps:g}, {self.kind} attack{self.suffix}"
        found = self.context.run(name, lambda: self._run(name, method, model()))
        return Point(method, need.level, knob, self.eps, found)

    def _run(self, name: str, method: str, model: ModelOptions) -> Outcomes:
        data = self.context.images(self.scale.data, "test", self.scale.images)
        settings = AttackOptions(
            eps=self.eps,
            kind=self.kind,
            steps=self.scale.steps,
            samples=self.scale.samples if self.kind == "strong" else 1,
            restarts=self.scale.restarts,
            n_median_attack=(
                self.scale.n_median_attack
                if self.kind == "strong" and method in (G_V_STAR, CLIPPED)
                else 1  # no median to take
            ),
            n=self.scale.n,
            seed=self.scale.seed,
        )
        found = self.context.attack(name, model, data, settings)
        return Outcomes.of(found.header, found.rows())


@dataclass(frozen=True)
class Arena:
    """The points of several methods under one attack; g at σ_s = σ_a is what they must beat."""

    title: str
    baseline: Point
    methods: Mapping[str, Sequence[Point]]

    @property
    def eps(self) -> float:
        return self.baseline.eps

    @property
    def points(self) -> list[Point]:
        return [point for points in self.methods.values() for point in points]


def fixed_arena(
    attacks: Attacks,
    scale: FixedScale,
    sigma_a: float,
    methods: Mapping[str, Callable[[Need, float], Point]],
) -> Arena:
    """g at every σ_s on the classifier of one σ_a, and the methods at each of its λ."""
    need = Need.fixed(sigma_a, selector=True)
    swept = {level: attacks.g(need, level) for level in scale.levels_of(sigma_a)}
    found = {
        method: [run(need, lam) for lam in scale.lams_of(sigma_a)]
        for method, run in methods.items()
    }
    return Arena(need.title, swept[sigma_a], {G: [*swept.values()], **found})


COLOURS = dict(zip((G_V_STAR, G_V, CLIPPED, G), [*colours(3), "#555555"], strict=True))
LEGEND = {
    G: "g, σ_s swept",
    G_V: "g_v, λ swept",
    G_V_STAR: "g_v*, λ swept",
    CLIPPED: "g_v* clipped, λ swept",
}


def robust_gap(one: Point, other: Point) -> PairedDifference:
    """Accuracy under attack of one less that of the other, image by image."""
    _check_images(one, other)
    return PairedDifference.of(one.outcomes.correct, other.outcomes.correct)


def clean_gap(one: Point, other: Point) -> PairedDifference:
    """The same without attack."""
    _check_images(one, other)
    return PairedDifference.of(one.outcomes.clean_correct, other.outcomes.clean_correct)


def loss_gap(losing: Sequence[Point], keeping: Sequence[Point]) -> MeanDifference:
    """How much more accuracy the first lose to the attack than the second, over all settings."""
    return averaged((a.lost - b.lost for a, b in _pairs(losing, keeping)))


def averaged(columns: Iterable[Any]) -> MeanDifference:
    """The mean over settings of one number for each image, with its interval over images."""
    return MeanDifference(np.mean(list(columns), axis=0).tolist())


def _pairs(first: Sequence[Point], second: Sequence[Point]) -> list[tuple[Point, Point]]:
    pairs = list(zip(first, second, strict=True))
    for one, other in pairs:
        _check_images(one, other)
    return pairs


def _check_images(one: Point, other: Point) -> None:
    assert np.array_equal(one.outcomes.ids, other.outcomes.ids)


def best(points: Sequence[Point]) -> Point:
    """The most robust, among equals the one with the best clean accuracy; with hindsight."""
    return max(points, key=lambda point: (point.robust.k, point.clean.k))


def dominating(points: Sequence[Point], baseline: Point) -> Point:
    """The one whose smaller gain over the baseline, clean or robust, is largest; with hindsight."""
    return max(
        points,
        key=lambda point: (
            min(point.robust.k - baseline.robust.k, point.clean.k - baseline.clean.k),
            point.robust.k + point.clean.k,
        ),
    )


def spread(points: Sequence[Point]) -> str:
    """How much the selected σ_s differ between images, in words."""
    shares = [p.outcomes.clean_sigmas.std() / p.outcomes.clean_sigmas.mean() for p in points]
    return f"selected σ_s differ between images by {100 * max(shares):.0f} % (sd/mean) at most"


def moved(points: Sequence[Point]) -> str:
    """How far the attack moved the σ_s of an image that it had reason to attack, in words."""
    shares = []
    for outcomes in (point.outcomes for point in points):
        shift = np.abs(outcomes.sigmas / outcomes.clean_sigmas - 1)[outcomes.clean_correct]
        shares.append(float(shift.mean()) if len(shift) else 0.0)
    return f"the attack moved σ_s by {100 * max(shares):.1f} % (mean over images) at most"


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
