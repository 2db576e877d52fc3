"""What the attack experiments share: their sizes, and the runs of g, g_v and g_v*."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from reproduce.context import Context
from reproduce.experiment import Need, Scale, size
from varsmooth.report.outcomes import Outcomes
from varsmooth.report.statistics import Share
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

    def g(self, need: Need, sigma: float) -> Point:
        """Conventional smoothing."""
        model = ModelOptions(self.context.model(replace(need, selector=False)), sigma=sigma)
        return self._point(G, need, f"σ_s = {sigma:g}", model)

    def g_v(self, need: Need, lam: float) -> Point:
        """h evaluated once, on x + ε."""
        model = ModelOptions(
            self.context.model(need), lam=lam, sigma_a=self._told(need), protect=False
        )
        return self._point(G_V, need, f"λ = {lam:g}", model)

    def g_v_star(self, need: Need, lam: float, clip: Clip = None) -> Point:
        """h protected by its median; no grid of levels, and no clip but this one."""
        told = self._told(need)
        model = ModelOptions(
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

    def _point(self, method: str, need: Need, knob: str, model: ModelOptions) -> Point:
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
        name = f"{method}, {shown(need)}, {knob}, γ = {self.eps:g}, {self.kind} attack"
        found = self.context.attack(name, model, data, settings)
        outcomes = replace(Outcomes.open(found.folder), name=name)
        return Point(method, need.level, knob, self.eps, outcomes)


def shown(need: Need) -> str:
    """`σ_a = 0.25`, or `σ_a' = 1` of a classifier for all levels up to that one."""
    kind, _, level = need.level.rpartition("-")
    return f"{'σ_a′' if kind else 'σ_a'} = {float(level):g}"


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
    return Arena(shown(need), swept[sigma_a], {G: [*swept.values()], **found})


def fixed_needs(scale: FixedScale) -> list[Need]:
    return [Need.fixed(sigma, selector=True) for sigma in scale.sigmas]
