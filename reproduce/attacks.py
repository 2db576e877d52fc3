"""What the attack experiments share: sizes, and the runs of g, g_v and g_v* under attack."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from reproduce.comparisons import LAMS
from reproduce.figures import Gaps, Line
from reproduce.harness import Context, number
from reproduce.replay import Clip
from reproduce.scales import Need, VotingScale, size
from reproduce.statistics import paired
from varsmooth.evaluation.options import AttackOptions, DataOptions, ModelOptions, PredictOptions
from varsmooth.evaluation.report.figures import colours
from varsmooth.evaluation.report.outcomes import Outcomes
from varsmooth.evaluation.report.statistics import PairedDifference, Share
from varsmooth.evaluation.report.tables import Cell, Table, Value

Kind = Literal["weak", "strong"]

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


CPU: dict[str, Any] = {"images": 200, "steps": 20, "samples": 4, "n": 200, "n_median": 51}
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
    """One smoothed classifier under one attack. value: its λ, or its σ_s if it is g."""

    method: str
    value: float
    eps: float
    outcomes: Outcomes

    @property
    def setting(self) -> str:
        return f"{'σ_s' if self.method == G else 'λ'} = {self.value:g}"


@dataclass(frozen=True)
class Attacks:
    """Runs of one kind of attack at one budget."""

    context: Context
    scale: AttackScale
    eps: float
    kind: Kind = "strong"

    def g(self, need: Need, sigma: float) -> Point:
        """Conventional smoothing."""
        model, alone = self.context.model, replace(need, selector=False)
        return self._point(G, need, sigma, lambda: ModelOptions(model(alone), sigma=sigma))

    def g_v(self, need: Need, lam: float) -> Point:
        """h evaluated once, on x + ε."""
        return self._point(G_V, need, lam, lambda: self.context.g_v_options(need, lam))

    def g_v_star(self, need: Need, lam: float, clip: Clip = None) -> Point:
        """h protected by its median; no grid of levels, and no clip but this one."""
        method = G_V_STAR if clip is None else CLIPPED
        return self._point(method, need, lam, lambda: self._star(need, lam, clip))

    def unattacked(self, need: Need, lam: float) -> Outcomes:
        """g_v* as it predicts without an attack."""

        def options() -> tuple[ModelOptions, DataOptions, PredictOptions]:
            settings = PredictOptions(n=self.scale.n, alpha=None, seed=self.scale.seed)
            return self._star(need, lam, None), self._images(), settings

        name = f"{G_V_STAR}, {need.title}, λ = {lam:g}, no attack"
        return self.context.voted("predict", name, options)

    def _star(self, need: Need, lam: float, clip: Clip) -> ModelOptions:
        level = self.context.about(need).sigma_of_selector
        return ModelOptions(
            self.context.model(need),
            lam=lam,
            sigma_a=level,
            sigma_m=level,
            clip=clip or (level / 100, level * 100),  # wider than h's range: clips nothing
            levels=0,
            n_median=self.scale.n_median,
        )

    def _point(
        self, method: str, need: Need, value: float, model: Callable[[], ModelOptions]
    ) -> Point:
        setting = f"{'σ_s' if method == G else 'λ'} = {value:g}"
        attack = f"γ = {self.eps:g}, {self.kind} attack"
        name = f"{method}, {need.title}, {setting}, {attack}"

        def options() -> tuple[ModelOptions, DataOptions, AttackOptions]:
            return model(), self._images(), self._settings(method)

        return Point(method, value, self.eps, self.context.voted("attack", name, options))

    def _images(self) -> DataOptions:
        return self.context.images(self.scale.data, "test", self.scale.images)

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


Run = Callable[[Attacks, Need, float], Point]
"""A method: the attacks, the model and λ (or σ_s) → a point."""


@dataclass(frozen=True)
class Arena:
    """The points of several methods under one attack, and g at σ_s = σ_a."""

    title: str
    baseline: Point
    methods: Mapping[str, Sequence[Point]]


def arena(
    attacks: Attacks,
    title: str,
    baseline: tuple[Need, float],
    levels: Sequence[float],
    need: Need,
    lams: Sequence[float],
    methods: Mapping[str, Run],
) -> Arena:
    """g on one classifier at every σ_s, and methods on a pair at every λ."""
    fixed, sigma_a = baseline
    points = {G: [attacks.g(fixed, level) for level in levels]}
    points |= {m: [run(attacks, need, lam) for lam in lams] for m, run in methods.items()}
    (at,) = (point for point in points[G] if point.value == sigma_a)
    return Arena(title, at, points)


def fixed_arena(
    attacks: Attacks, scale: FixedScale, sigma_a: float, methods: Mapping[str, Run]
) -> Arena:
    """g and the methods on the model of one σ_a."""
    need, levels, lams = Need.pair(sigma_a), scale.levels_of(sigma_a), scale.lams_of(sigma_a)
    return arena(attacks, need.title, (need, sigma_a), levels, need, lams, methods)


BLUE, ORANGE, GREEN = colours(3)
COLOURS = {G: "#555555", G_V: ORANGE, G_V_STAR: BLUE, CLIPPED: GREEN}
LABELS = {G: "g, σ_s swept"} | {m: f"{m}, λ swept" for m in (G_V, G_V_STAR, CLIPPED)}
MARKERS = {G: "s", G_V: "^", G_V_STAR: "o", CLIPPED: "D"}


def lines_of(arenas: Sequence[Arena], methods: Sequence[str]) -> list[Line]:
    """A line for each model and method; g at σ_s = σ_a is named by the model."""
    return [
        Line(
            LABELS[method],
            [point.outcomes for point in at.methods[method]],
            at.title,
            COLOURS[method],
            list(at.methods[G]).index(at.baseline) if method == G else None,
            hollow=method == G,
            marker=MARKERS[method],
        )
        for at in arenas
        for method in methods
    ]


def gaps_of(arenas: Sequence[Arena], method: str, rival: str = G) -> list[Gaps]:
    """Robust accuracy of a method minus that of a rival at the same λ, or of g at σ_s = σ_a."""
    series = []
    for at, colour in zip(arenas, colours(len(arenas)), strict=True):
        mine = at.methods[method]
        rivals = [at.baseline] * len(mine) if rival == G else at.methods[rival]
        gaps = [
            paired(one.outcomes, other.outcomes) for one, other in zip(mine, rivals, strict=True)
        ]
        series.append(Gaps(at.title, [one.value for one in mine], gaps, colour))
    return series


def points_table(name: str, caption: str, arenas: Sequence[Arena]) -> Table:
    """Every point: levels before and under attack, accuracies, gaps to g at σ_s = σ_a."""

    def row(at: Arena, point: Point) -> dict[str, Value]:
        one, other = point.outcomes, at.baseline.outcomes
        gaps: list[Value] = [Cell("–"), Cell("–")]
        if one is not other:
            gaps = [
                PairedDifference.of(one.clean_correct, other.clean_correct),
                PairedDifference.of(one.correct, other.correct),
            ]
        return {
            "model": at.title,
            "γ": number(point.eps),
            "method": point.method,
            "setting": point.setting,
            "mean σ_s": number(float(one.clean_sigmas.mean()), ".4f"),
            "sd of σ_s": number(float(one.clean_sigmas.std()), ".4f"),
            "mean σ_s attacked": number(float(one.sigmas.mean()), ".4f"),
            "clean": Share.of(one.clean_correct),
            "robust": Share.of(one.correct),
            "clean − g": gaps[0],
            "robust − g": gaps[1],
        }

    return Table.of(
        name,
        f"{caption} Accuracies in %, with 95 % intervals over images; gaps to g at σ_s = σ_a in "
        "percentage points, paired by image.",
        [row(at, point) for at in arenas for points in at.methods.values() for point in points],
    )
