"""Gathering evidence: the draws behind a certificate, each for one purpose and never reused."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from varsmooth import bounds
from varsmooth.certificates import Ledger, LevelVotes, SelectorEvidence
from varsmooth.identity import fingerprint
from varsmooth.noise import NoiseStream
from varsmooth.selectors import MedianSelector
from varsmooth.smoothing import SmoothedClassifier, evaluation_mode


@dataclass(frozen=True)
class Gathering:
    """What can be observed of g at a batch of images (B,C,H,W), under one noise stream.

    Rows are positions in the batch; levels are plain floats, one per row.
    """

    g: SmoothedClassifier
    x: Tensor
    noise: NoiseStream
    batch_size: int | None

    @property
    def everyone(self) -> Sequence[int]:
        return range(len(self.x))

    @property
    def selector(self) -> MedianSelector:
        assert isinstance(self.g.selector, MedianSelector)
        return self.g.selector

    @property
    def levels(self) -> tuple[float, ...]:
        assert self.selector.grid is not None
        return self.selector.grid.levels

    def chosen_levels(self) -> list[float]:
        """σ as a deployed prediction chooses it."""
        with evaluation_mode(self.g), torch.no_grad():
            return _floats(self.g.selector(self.x, self.noise, self.batch_size))

    def nominal_levels(self, n0: int) -> list[float]:
        """The level around which to certify, from n0 selection draws of the selector."""
        raw = self._raw_levels(n0, "level-selection")
        return _floats(self.selector.settle(raw.median(dim=1).values))

    def selector_evidence(
        self, n: int, distance: float | None = None
    ) -> tuple[SelectorEvidence, ...]:
        """n fresh samples of h(x+ε) per image, ascending."""
        samples = self._raw_levels(n, "selector-bounds").sort(dim=1).values
        selector = self.selector
        levels = None if selector.grid is None else selector.grid.levels
        sigma_m = float(torch.tensor(selector.sigma_m, dtype=self.x.dtype))  # as it is applied
        return tuple(
            SelectorEvidence(tuple(row), sigma_m, selector.clip, levels, distance)
            for row in samples.tolist()
        )

    def _raw_levels(self, n: int, purpose: str) -> Tensor:
        selector, x = self.selector, self.x
        with evaluation_mode(self.g), torch.no_grad():
            return selector.samples(x, selector.sigma_m, n, self.noise, purpose, self.batch_size)

    def levels_between(
        self, evidence: SelectorEvidence, ledger: Ledger, every_index: bool
    ) -> list[float]:
        """The levels the paper looks at for one image: lower bound, median and upper bound of h.

        every_index: all sampled levels from the lower to the upper bound. Empty if a bound does
        not exist and no clip or grid stands in for it.
        """
        samples, n = evidence.samples, len(evidence.samples)
        assert evidence.distance is not None
        q_l, q_u = bounds.order_statistics(
            n, evidence.distance, evidence.sigma_m, ledger.alpha_select / 2
        )
        lower = samples[q_l - 1] if q_l >= 1 else 0.0
        upper = samples[q_u - 1] if q_u <= n else float("inf")
        between = samples[max(q_l, 1) - 1 : q_u] if every_index else (samples[(n - 1) // 2],)
        levels = sorted({self._settle(level) for level in (lower, *between, upper)})
        return levels if levels[0] > 0 and levels[-1] < float("inf") else []

    def median_level(self, evidence: SelectorEvidence) -> float:
        """The median of the samples, clipped and snapped as deployed."""
        return self._settle(evidence.samples[(len(evidence.samples) - 1) // 2])

    def _settle(self, raw: float) -> float:
        return float(self.selector.settle(torch.tensor([raw], dtype=self.x.dtype)))

    def candidates(self, rows: Sequence[int], levels: Sequence[float], n0: int) -> list[int]:
        """The class most of n0 selection draws name, at one level per row."""
        counts = self.counts(rows, levels, n0, "class-selection")
        return [int(c) for c in counts.argmax(dim=1)]

    def votes(
        self, rows: Sequence[int], levels: Sequence[float], candidates: Sequence[int], n: int
    ) -> list[LevelVotes]:
        """n votes of f, at one level per row. Levels share their noise, rows never do."""
        counts = self.counts(rows, levels, n, "votes").tolist()
        return [
            LevelVotes(level, candidate, tuple(row))
            for level, candidate, row in zip(levels, candidates, counts, strict=True)
        ]

    def counts(
        self,
        rows: Sequence[int],
        levels: Sequence[float],
        n: int,
        purpose: str,
        start: int = 0,
    ) -> Tensor:
        """Votes of draws start..n-1 for `purpose`, at one level per row: (rows, classes)."""
        x = self.x[list(rows)]
        return self.g.votes(
            x,
            n,
            sigma=torch.tensor(levels, dtype=x.dtype, device=x.device),
            noise=self.noise.rows(rows),
            purpose=purpose,
            start=start,
            batch_size=self.batch_size,
        )

    def facts(self, sigma: Sequence[float]) -> list[dict[str, Any]]:
        """What a certificate records of its origin, per image."""
        g = self.g
        prints = {"classifier": fingerprint(g.classifier), "selector": fingerprint(g.selector)}
        settings = {**g.selector.describe(), "lattice": g.lattice}
        return [
            {
                "sigma": level,
                "id": self.noise.ids[i],
                "seed": self.noise.seed,
                "settings": settings,
                "fingerprints": prints,
            }
            for i, level in enumerate(sigma)
        ]


def _floats(levels: Tensor) -> list[float]:
    return [float(level) for level in levels.tolist()]
