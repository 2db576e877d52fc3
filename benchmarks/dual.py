"""The dual `sound` certificate against the fixed one with the same N, on the released pairs."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.fixed import images
from benchmarks.timing import Ratio, interleave
from varsmooth import FixedSelector, MedianSelector, Options, SmoothedClassifier, certify, load
from varsmooth.models.descriptions import describe, released_names
from varsmooth.noise import NoiseStream


@dataclass(frozen=True)
class Size:
    images: int
    n: int
    rounds: int


FULL = Size(images=10, n=1001, rounds=2)
QUICK = Size(images=2, n=51, rounds=1)


def pairs() -> list[str]:
    """Released models that have a selector, with the grid that they recommend."""
    return [
        name
        for name in released_names()
        if describe(name).selector is not None and describe(name).recommended.get("levels")
    ]


def run(size: Size, names: Sequence[str] | None = None) -> list[dict[str, Any]]:
    return [_compare(name, size) for name in (pairs() if names is None else names)]


def _compare(name: str, size: Size) -> dict[str, Any]:
    g, x = load(name, selector="median"), images(size.images)
    selector = g.selector
    assert isinstance(selector, MedianSelector)
    fixed = SmoothedClassifier(g.classifier, FixedSelector(selector.sigma_m))
    noise = g.noise(size.images, seed=1)
    seconds = interleave(
        {
            "fixed": lambda: certify(fixed, x, n=size.n, seed=1),
            "dual": lambda: certify(g, x, n=size.n, seed=1, options=Options(n_select=size.n)),
            "selector": lambda: _sample(selector, x, 100 + size.n, noise),
        },
        size.rounds,
    )
    levels = [
        len(one.votes) for one in certify(g, x, n=size.n, seed=1, options=Options(n_select=size.n))
    ]
    return {
        "model": name,
        **asdict(size),
        "levels_of_grid": len(selector.grid.levels) if selector.grid else 0,
        "levels_mean": float(np.mean(levels)),
        "levels": levels,
        "ratio": asdict(Ratio.of(seconds["dual"], seconds["fixed"])),
        "share_of_selector": asdict(Ratio.of(seconds["selector"], seconds["dual"])),
        "fixed_seconds_per_image": min(seconds["fixed"]) / size.images,
    }


@torch.no_grad()
def _sample(selector: MedianSelector, x: Tensor, n: int, noise: NoiseStream) -> Tensor:
    """What a dual certificate asks of h: n0 draws for the level, n for the bounds."""
    return selector.samples(x, selector.sigma_m, n, noise)
