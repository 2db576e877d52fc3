"""The draws behind a certificate, each for one purpose and never reused."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from varsmooth._util.fingerprints import fingerprints
from varsmooth.cascade import Stages
from varsmooth.certificates import Certificate, Certificates
from varsmooth.evidence import Ledger, LevelVotes, Method, SelectorEvidence
from varsmooth.noise import NoiseStream
from varsmooth.selectors import MedianSelector, NoiseSelector
from varsmooth.smoothing import SmoothedClassifier, check_smoothed, evaluation_mode

T = TypeVar("T")

Ids = Sequence[int] | Tensor | None
"""Names of the images' noise streams; 0, 1, … by default."""


@dataclass(frozen=True)
class Sampler:
    """Draws from g at a batch of images (B,C,H,W), under one noise stream.

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

    def chosen_levels(self) -> list[float]:
        """σ as a deployed prediction chooses it."""
        assert isinstance(self.g.selector, NoiseSelector)
        with evaluation_mode(self.g), torch.no_grad():
            levels: list[float] = self.g.selector(self.x, self.noise, self.batch_size).tolist()
        return levels

    def nominal_levels(self, n0: int) -> list[float]:
        """The level around which to certify, from n0 selection draws of the selector."""
        raw = self._raw_levels(n0, "level-selection")
        levels: list[float] = self.selector.settle(raw.median(dim=1).values).tolist()
        return levels

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

    def candidates(self, rows: Sequence[int], levels: Sequence[float], n0: int) -> list[int]:
        """The class most of n0 selection draws name, at one level per row."""
        counts = self.counts(rows, levels, n0, "class-selection")
        classes: list[int] = counts.argmax(dim=1).tolist()
        return classes

    def votes(
        self, at: Mapping[int, tuple[float, int]], n: int, start: int = 0, purpose: str = "votes"
    ) -> dict[int, LevelVotes]:
        """Draws start..n-1 of some rows, each at its own level and for its own candidate.

        Levels share their noise, rows never do.
        """
        counts = self.counts(list(at), [level for level, _ in at.values()], n, purpose, start)
        classes = counts.shape[1] - (self.g.gate is not None)
        return {
            row: LevelVotes(*asked, tuple(found[:classes]), sum(found[classes:]))
            for (row, asked), found in zip(at.items(), counts.tolist(), strict=True)
        }

    def counts(
        self, rows: Sequence[int], levels: Sequence[float], n: int, purpose: str, start: int = 0
    ) -> Tensor:
        """Votes of draws start..n-1 for `purpose`, at one level per row: (rows, classes).

        The gate of a cascade adds a last column, the votes that it turned into "pass".
        """
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

    def certificates(
        self,
        method: Method,
        ledger: Ledger,
        votes: Sequence[Sequence[LevelVotes]],
        sigma: Sequence[float],
        samples: Sequence[int],
        selector: Sequence[SelectorEvidence] | None = None,
        stages: Stages | None = None,
    ) -> Certificates:
        """The certificates that follow from each image's evidence, with their origin."""
        origin: dict[str, Any] = {
            "seed": self.noise.seed,
            "settings": {**self.g.selector.describe(), "lattice": self.g.lattice},
            "fingerprints": fingerprints(self.g),
        }
        found = [
            Certificate.derive(
                method,
                ledger,
                votes[i],
                selector[i] if selector else None,
                stages,
                sigma=sigma[i],
                id=self.noise.ids[i],
                samples=samples[i],
                **origin,
            )
            for i in self.everyone
        ]
        return Certificates(tuple(found))


def image_by_image(function: Callable[..., Sequence[T]], given: dict[str, Any]) -> tuple[T, ...]:
    """The results of `function`, called with `given`, for one image after the other, with a bar.

    Noise depends on seed and id alone, so the results are those of one call.
    """
    from tqdm import tqdm

    g, x = given["g"], given["x"]
    check_smoothed(g, x)
    noise = g.noise(len(x), given["seed"], given["ids"])
    given = {**given, "seed": noise.seed, "progress": False}
    found: list[T] = []
    for i in tqdm(range(len(x)), desc=function.__name__, unit="image"):
        found += function(**given | {"x": x[i : i + 1], "ids": [noise.ids[i]]})
    return tuple(found)
