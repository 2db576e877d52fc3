"""Votes in bfloat16 against votes in float32: speed, and how many votes differ."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from benchmarks.fixed import images
from benchmarks.timing import Ratio, interleave
from varsmooth import load

MODELS = ("cifar10-0.25", "cifar10-universal-1.00", "cifar10-strong")


@dataclass(frozen=True)
class Size:
    images: int
    n: int
    rounds: int


FULL = Size(images=4, n=512, rounds=5)
QUICK = Size(images=2, n=32, rounds=1)


def run(size: Size, names: Sequence[str] = MODELS) -> list[dict[str, Any]]:
    return [_compare(name, size) for name in names]


def _compare(name: str, size: Size) -> dict[str, Any]:
    x = images(size.images)
    exact, rounded = (load(name, sigma=0.25, precision=p) for p in ("float32", "bfloat16"))
    noise = exact.noise(size.images, seed=1)
    seconds = interleave(
        {
            "float32": lambda: exact.votes(x, size.n, noise=noise),
            "bfloat16": lambda: rounded.votes(x, size.n, noise=noise),
        },
        size.rounds,
    )
    differ, sigma = [], torch.full((size.images,), 0.25)
    with torch.no_grad():
        for rows, epsilon in noise.batches(x, "differ", size.n):
            z = noise.perturb(x[rows], sigma[rows], epsilon)
            one, other = (g.logits(z, sigma[rows]).argmax(dim=1) for g in (exact, rounded))
            differ.append((one != other).double())
    return {
        "model": name,
        **asdict(size),
        "ratio": asdict(Ratio.of(seconds["float32"], seconds["bfloat16"])),
        "differ": float(torch.cat(differ).mean()),
    }
