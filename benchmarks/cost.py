"""Seconds against work: N, images and levels; a fitted line and how far the points lie off it."""

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.fixed import images, make
from benchmarks.peers import N0
from benchmarks.timing import interleave
from varsmooth import MedianSelector, Options, SmoothedClassifier, certify


@dataclass(frozen=True)
class Size:
    votes: tuple[int, ...]
    images: tuple[int, ...]
    levels: tuple[int, ...]
    rounds: int


FULL = Size(votes=(500, 1000, 2000), images=(1, 2), levels=(1, 3), rounds=2)
QUICK = Size(votes=(20, 40), images=(1, 2), levels=(1, 2), rounds=1)


def run(size: Size) -> dict[str, Any]:
    """seconds = a · images + b · samples, samples = images · (n0 + levels · N)."""
    classifier = make("conv4")
    work: dict[str, tuple[int, int]] = {}
    ways = {}
    for n, count, levels in itertools.product(size.votes, size.images, size.levels):
        g = everywhere(classifier, levels)
        x = images(count)
        name = f"N={n} images={count} levels={levels}"
        visited = sum(
            len(one.votes) for one in certify(g, x, n=n, seed=1, options=Options(n_select=1))
        )
        work[name] = (count, count * N0 + n * visited)
        ways[name] = lambda g=g, x=x, n=n: certify(g, x, n=n, seed=1, options=Options(n_select=1))
    seconds = {
        name: min(times) for name, times in interleave(ways, size.rounds, warm=False).items()
    }
    points = np.array([work[name] for name in ways], dtype=float)  # (points, 2)
    measured = np.array([seconds[name] for name in ways])
    # Relative residuals: a point of ten seconds must not outweigh one of a tenth.
    (a, b), *_ = np.linalg.lstsq(points / measured[:, None], np.ones(len(measured)))
    residuals = measured / (points @ np.array([a, b])) - 1
    return {
        "seconds_per_image": float(a),
        "seconds_per_sample": float(b),
        "largest_residual": float(np.abs(residuals).max()),
        "points": [
            {
                "case": name,
                "samples": int(work[name][1]),
                "seconds": seconds[name],
                "residual": float(residual),
            }
            for name, residual in zip(ways, residuals, strict=True)
        ],
    }


def everywhere(classifier: torch.nn.Module, levels: int) -> SmoothedClassifier:
    """A classifier whose selector rules no level out, so that each of them must be visited."""
    grid = [0.1 + 0.02 * j for j in range(levels)]
    return SmoothedClassifier(classifier, MedianSelector(_constant, 0.25, n=1, levels=grid))


def _constant(x: Tensor) -> Tensor:
    return torch.full((len(x),), 0.1)
