"""One table of votes for every certificate: the noise levels it has, and the runs that fill it.

The levels of a σ_a are a sweep of multiples, which the baselines use, made dense where its
selector chooses, so that a selected σ_s is hardly changed when it is snapped to the table.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from reproduce.context import Context
from reproduce.experiment import Need, Scale, size
from reproduce.replay import Clip, Replay, VoteTable
from varsmooth.bounds import Floats
from varsmooth.report.outcomes import Outcomes
from varsmooth.runs.options import CertifyOptions, ModelOptions
from varsmooth.runs.records import Run
from varsmooth.selectors import Grid

ALL_LAMS = (0.0, 0.1, 0.2, 0.3, 0.4)
"""The λ of the paper's Experiment B for a fixed σ_a; the table is dense where any of them leads."""

MULTIPLES = (0.5, 0.75, 1.0, 1.25, 1.5, 2.0)
FINE_MULTIPLES = tuple(round(0.1 * k, 1) for k in range(1, 21))


@dataclass(frozen=True, kw_only=True)
class CertifyScale(Scale):
    """Sizes of everything that is certified. Experiments with equal sizes share all their runs."""

    n: int = size("votes N", 1000)
    n0: int = size("selection draws n0", 100)
    n_select: int = size("selector draws N_h", 1001)
    alpha: float = size("α", 1e-3)
    alpha_select: float = size("α_h", 1e-5)
    multiples: tuple[float, ...] = size("swept σ_s / σ_a", FINE_MULTIPLES)
    ratio: float = size("ratio of neighbouring levels where h chooses, at most", 1.03)
    held_out: int = size("held-out images", 5000)
    held_out_draws: int = size("selector draws per held-out image", 1001)

    @property
    def settings(self) -> CertifyOptions:
        """What every certification run has in common."""
        return CertifyOptions(
            n=self.n,
            n0=self.n0,
            n_select=self.n_select,
            alpha=self.alpha,
            alpha_select=self.alpha_select,
            seed=self.seed,
        )


CPU: dict[str, Any] = {
    "images": 250,
    "multiples": MULTIPLES,
    "ratio": 1.08,
    "held_out": 200,
    "held_out_draws": 51,
}
"""What a CPU can do in a quarter of an hour for each σ_a."""


def sweep(scale: CertifyScale, sigma_a: float) -> tuple[float, ...]:
    """The levels of the baselines."""
    return Grid.make([sigma_a * multiple for multiple in scale.multiples], None).levels


def table_levels(context: Context, scale: CertifyScale, sigma_a: float) -> tuple[float, ...]:
    """The sweep, and between the 1st and 99th percentile of σ_s on held-out images more levels."""
    chosen = [held_out_medians(context, scale, sigma_a, lam) for lam in ALL_LAMS]
    low, high = np.quantile(np.concatenate(chosen), [0.01, 0.99])
    return denser(sweep(scale, sigma_a), float(low), float(high), scale.ratio)


def denser(levels: Sequence[float], low: float, high: float, ratio: float) -> tuple[float, ...]:
    """More levels between low and high, so that neighbours there differ by `ratio` at most.

    >>> denser((0.25, 0.5, 1.0), 0.25, 0.4, 1.5)
    (0.25, 0.3535533845424652, 0.5, 1.0)
    """
    found = [levels[0]]
    for below, above in itertools.pairwise(levels):
        parts = int(np.ceil(np.log(above / below) / np.log(ratio) - 1e-9))
        steps = np.geomspace(below, above, max(parts, 1) + 1)
        kept = [
            s
            for s, before, after in zip(steps[1:-1], steps, steps[2:], strict=False)
            if after > low and before < high
        ]
        found += [*map(float, kept), above]
    return Grid.make(found, None).levels


def selector_options(
    context: Context, need: Need, lam: float, levels: Sequence[float], draws: int = 1001
) -> ModelOptions:
    """g_v* on these levels, σ_m = σ_a, whatever its description recommends; draws=1 gives g_v.

    The bounds of the clip are wider than h's own range: they clip nothing.
    """
    about = context.about(need)
    told = about.sigma_of_selector
    return ModelOptions(
        context.model(need),
        lam=lam,
        sigma_a=told,
        sigma_m=told,
        clip=(told / 20, told * 20),
        levels=list(levels),
        n_median=draws,
    )


def medians_of(context: Context, scale: CertifyScale, model: ModelOptions) -> Floats:
    """The median of h for each held-out image (n,); votes are a formality, so they are few."""
    data = context.images(scale.data, "val", scale.held_out)
    few = CertifyOptions(n=10, n0=1, n_select=scale.held_out_draws, seed=scale.seed)
    found = context.certify("h on held-out images", model, data, few)
    medians: Floats = np.median(raw_samples(found), axis=1)
    return medians


def held_out_medians(context: Context, scale: CertifyScale, sigma_a: float, lam: float) -> Floats:
    """σ_s of the smoothed selector for each held-out image (n,), before any snapping."""
    need = Need.fixed(sigma_a, selector=True)
    return medians_of(context, scale, selector_options(context, need, lam, [sigma_a]))


def raw_samples(run: Run) -> Floats:
    """The samples of h behind each certificate of a run, ascending: (n, N_h)."""
    return np.array([row["evidence"]["selector"]["samples"] for row in run.rows()])


CLIP_PERCENTILES = (5, 95)
"""Our rule: clip h to these percentiles of σ_s over held-out images."""


def clip_of(
    context: Context, scale: CertifyScale, sigma_a: float, lam: float
) -> tuple[float, float]:
    """h_l and h_u from σ_s on held-out images."""

    def make() -> list[float]:
        medians = held_out_medians(context, scale, sigma_a, lam)
        low, high = (float(q) for q in np.percentile(medians, CLIP_PERCENTILES))
        return [low, max(high, low * (1 + 1e-6))]

    low, high = context.fact(f"clip, σ_a = {sigma_a:g}, λ = {lam:g}", make)
    return low, high


@dataclass(frozen=True)
class Certified:
    """Everything that is certified on the model of one σ_a: g at each level, g_v* at each λ.

    Only votes at each level and samples of h at each λ are drawn; the rest is replayed.
    """

    context: Context
    scale: CertifyScale
    sigma_a: float

    @cached_property
    def levels(self) -> tuple[float, ...]:
        """The levels of the vote table."""
        return tuple(
            self.context.fact(
                f"levels, σ_a = {self.sigma_a:g}",
                lambda: list(table_levels(self.context, self.scale, self.sigma_a)),
            )
        )

    def g(self, level: float) -> Outcomes:
        """Conventional smoothing."""
        name = f"g, σ_a = {self.sigma_a:g}, σ_s = {level:.3g}"
        return self.context.run(name, lambda: outcomes(self.fixed_run(level)))

    def paper(
        self, lam: float, distance: float, clip: Clip = None, *, every_level: bool = False
    ) -> Outcomes:
        """g_v* with attack on h: the paper's three levels at D, or every level between."""
        what = f"attack on h, D = {distance:g}" + ", every level" * every_level
        return self._replayed(
            lam, what, clip, lambda found: found.paper(distance, clip, every_level=every_level)
        )

    def conditional(self, lam: float) -> Outcomes:
        """g_v* without attack on h."""
        return self._replayed(lam, "no attack on h", None, lambda found: found.conditional())

    def sound(self, lam: float, clip: Clip = None, *, spent_as_paper: bool = False) -> Outcomes:
        """g_v* whatever the attacker does."""
        what = "sound" + ", spent as the paper's" * spent_as_paper
        return self._replayed(
            lam, what, clip, lambda found: found.sound(clip, spent_as_paper=spent_as_paper)
        )

    def _replayed(
        self, lam: float, what: str, clip: Clip, derive: Callable[[Replay], Outcomes]
    ) -> Outcomes:
        name = f"g_v*, σ_a = {self.sigma_a:g}, λ = {lam:g}, {what}" + ", clipped" * bool(clip)
        return self.context.run(name, lambda: derive(self.replay(lam)))

    def replay(self, lam: float) -> Replay:
        if lam not in self._replays:
            self._replays[lam] = Replay(self._table, self.selector_run(lam))
        return self._replays[lam]

    @cached_property
    def _replays(self) -> dict[float, Replay]:
        return {}

    @cached_property
    def _table(self) -> VoteTable:
        return VoteTable([self.fixed_run(level) for level in self.levels])

    def fixed_run(self, level: float) -> Run:
        """f certified at one level: the baseline g, and votes for every other method."""
        model = ModelOptions(self.context.model(Need.fixed(self.sigma_a)), sigma=level)
        return self._certify(f"g, σ_s = {level:.3g}", model)

    def selector_run(self, lam: float) -> Run:
        """The sound certificate of g_v* on all the levels; its rows hold N_h samples of h."""
        need = Need.fixed(self.sigma_a, selector=True)
        model = selector_options(self.context, need, lam, self.levels)
        return self._certify(f"g_v*, λ = {lam:g}, sound", model)

    def _certify(self, name: str, model: ModelOptions) -> Run:
        data = self.context.images(self.scale.data, "test", self.scale.images)
        return self.context.certify(name, model, data, self.scale.settings)


def outcomes(run: Run) -> Outcomes:
    return Outcomes.of(run.header, run.rows())
