"""The same images certified by one process and by two, one thread each."""

import multiprocessing
import time
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from typing import Any

import torch

from benchmarks.fixed import SIGMA, images, make
from benchmarks.timing import Ratio, interleave
from varsmooth import FixedSelector, SmoothedClassifier, certify


@dataclass(frozen=True)
class Size:
    images: int
    n: int
    rounds: int


FULL = Size(images=8, n=1000, rounds=7)
QUICK = Size(images=2, n=20, rounds=1)


def run(size: Size) -> dict[str, Any]:
    """Wall-clock seconds of both, with processes that are up and warm."""
    context = multiprocessing.get_context("spawn")
    ends, workers = [], []
    for _ in range(2):
        here, there = context.Pipe()
        worker = context.Process(target=_serve, args=(there, size), daemon=True)
        worker.start()
        ends.append(here)
        workers.append(worker)
    half = size.images // 2
    shares = (slice(0, half), slice(half, size.images))

    def two() -> None:
        for end, share in zip(ends, shares, strict=True):
            end.send(share)
        for end in ends:
            end.recv()

    def one() -> None:
        for share in shares:
            ends[0].send(share)
            ends[0].recv()

    seconds = interleave({"one": one, "two": two}, size.rounds, clock=time.perf_counter)
    for end, worker in zip(ends, workers, strict=True):
        end.send(None)
        worker.join()
    return {**asdict(size), "ratio": asdict(Ratio.of(seconds["one"], seconds["two"]))}


def _serve(end: Connection, size: Size) -> None:
    torch.set_num_threads(1)
    x, g = images(size.images), SmoothedClassifier(make("conv4"), FixedSelector(SIGMA))
    while (share := end.recv()) is not None:
        certify(g, x[share], n=size.n, seed=1, ids=list(range(size.images))[share])
        end.send("done")
