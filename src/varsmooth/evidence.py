"""The evidence of one image and its arithmetic: votes of f, samples of h, the α ledger."""

from bisect import bisect_left
from dataclasses import dataclass, replace

import numpy as np

from varsmooth import bounds
from varsmooth.cascade import Stages
from varsmooth.selectors import Grid
from varsmooth.types import Distance, NonNegative, Output, Positive, Probability, Share


@dataclass(frozen=True)
class Ledger:
    """The error budget of one image: how α is allocated to its bounds.

    Attributes:
        alpha: The total that the caller allowed.
        alpha_class: α_c, for the votes of f, at each level.
        alpha_select: α_h, for the selector's bounds, half on each side.
        alpha_deploy: α_p of the deployed `predict` that the certificate covers: its median leaves
            the band with probability ≤ α_p. Each query spends it, not the certificate.
        n_deploy: N_p, the draws of that median.
        runner_up: Whether α_c is split between the bounds of the winner and of the runner-up
            (`bounds.margin_radius`), as the selection draws chose; of a cascade at its last stage.
        anytime: Whether the bounds hold after every vote at once, so that the votes may decide when
            to stop.
    """

    alpha: Probability
    alpha_class: Probability
    alpha_select: Share = 0.0
    alpha_deploy: Share = 0.0
    n_deploy: NonNegative = 0
    runner_up: bool = False
    anytime: bool = False


@dataclass(frozen=True)
class LevelVotes:
    """Votes of f at one noise level: the counts per class, and the candidate.

    The candidate class was selected on independent draws. `passes` are votes that the gate of a
    cascade turned into "pass"; they count for no class.
    """

    sigma: Positive
    candidate: NonNegative
    counts: tuple[NonNegative, ...]
    passes: NonNegative = 0

    @property
    def n(self) -> int:
        return sum(self.counts) + self.passes

    @property
    def top(self) -> int:
        """Votes for the candidate."""
        return self.counts[self.candidate]

    @property
    def runner_up(self) -> int:
        """The largest count of any other class."""
        others = self.counts[: self.candidate] + self.counts[self.candidate + 1 :]
        return max(others, default=0)

    @property
    def with_leader(self) -> "LevelVotes":
        """The same votes; the candidate is the class that leads, the first of equals."""
        return replace(self, candidate=self.counts.index(max(self.counts)))

    def add(self, more: "LevelVotes") -> "LevelVotes":
        """The same level after more votes."""
        counts = tuple(a + b for a, b in zip(self.counts, more.counts, strict=True))
        return replace(more, counts=counts, passes=self.passes + more.passes)

    def radius(self, ledger: Ledger) -> float:
        """R̂ = σ Φ⁻¹(CP⁻(n_ĉ, n, α_c)), or σ/2 [Φ⁻¹(P) − Φ⁻¹(Q)] with a bound for the runner-up.

        Closer than R̂, ĉ stays the most likely class; ≤ 0 if that cannot be shown.
        """
        top, n, sigma, a = self.top, self.n, self.sigma, ledger.alpha_class
        if ledger.runner_up:
            return float(bounds.margin_radius(top, self.runner_up, n, sigma, a, ledger.anytime))
        return float(bounds.class_radius(top, n, sigma, a, anytime=ledger.anytime))


@dataclass(frozen=True)
class SelectorEvidence:
    """The samples of a median-smoothed selector, its clip range and its grid.

    Attributes:
        samples: h(x+ε_k), ascending, before clip and grid.
        distance: D of the paper's method.
    """

    samples: tuple[Output, ...]
    sigma_m: Positive
    clip: tuple[Positive, Positive] | None = None
    levels: tuple[Positive, ...] | None = None
    distance: Distance | None = None

    def snap_to_grid(self, raw: float) -> float:
        """A raw level, clipped and snapped as deployed; levels are float32 numbers."""
        if self.levels is not None:
            return self.levels[bisect_left(Grid(self.levels).thresholds, raw)]
        if self.clip is None:
            return raw
        low, high = (float(np.float32(end)) for end in self.clip)
        return min(max(raw, low), high)

    @property
    def median(self) -> float:
        return self.samples[(len(self.samples) - 1) // 2]

    @property
    def median_level(self) -> float:
        """The median of the samples, clipped and snapped as deployed."""
        return self.snap_to_grid(self.median)

    def median_range(self, distance: float, alpha_select: float) -> tuple[float, float]:
        """Bounds on the raw median for every ‖δ‖ ≤ distance.

        0 and infinity where the samples are too few.
        """
        n, ordered = len(self.samples), (0.0, *self.samples, float("inf"))
        low, high = bounds.order_statistics(n, distance, self.sigma_m, alpha_select / 2)
        return ordered[low], ordered[high]

    def levels_between(self, ledger: Ledger, every_index: bool) -> list[float]:
        """The levels that the paper looks at: lower bound, median and upper bound of h at D.

        With every_index, all sampled levels from the lower to the upper bound. Empty if a bound
        does not exist and no clip or grid replaces it.
        """
        assert self.distance is not None
        low, high = self.median_range(self.distance, ledger.alpha_select)
        between = [s for s in self.samples if low <= s <= high] if every_index else [self.median]
        levels = sorted({self.snap_to_grid(level) for level in (low, *between, high)})
        return levels if levels[0] > 0 and levels[-1] < float("inf") else []

    def entry_distances(self, ledger: Ledger) -> bounds.Floats:
        """D̂_j of every grid level (L,), minus the band of the deployed median (Theorem B)."""
        assert self.levels is not None
        thresholds = Grid(self.levels).thresholds
        below = np.searchsorted(np.asarray(self.samples), thresholds, side="right")
        band = bounds.median_band(ledger.n_deploy, ledger.alpha_deploy) if ledger.n_deploy else 0.0
        return bounds.entry_distances(
            below, len(self.samples), self.sigma_m, ledger.alpha_select / 2, band
        )

    def levels_by_distance(self, ledger: Ledger) -> list[tuple[float, float]]:
        """(D̂_j, s_j) of every grid level, by increasing D̂_j."""
        assert self.levels is not None
        return sorted(zip(self.entry_distances(ledger).tolist(), self.levels, strict=True))


@dataclass(frozen=True)
class Evidence:
    """Everything that the radius of one image follows from.

    Attributes:
        ledger: How α was spent.
        votes: Votes of f, at each level that was visited; of a cascade at the stages 1, …, k.
        selector: The evidence on a median-smoothed selector.
        stages: The cascade.
    """

    ledger: Ledger
    votes: tuple[LevelVotes, ...]
    selector: SelectorEvidence | None = None
    stages: Stages | None = None
