"""Seconds of several ways to do the same work, interleaved, so that the machine's moods cancel."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

Seconds = dict[str, list[float]]
Clock = Callable[[], float]


@dataclass(frozen=True)
class Ratio:
    """The median of the ratios within each round, and the lowest and highest of them."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, numerator: Sequence[float], denominator: Sequence[float]) -> "Ratio":
        """
        >>> Ratio.of([2.0, 3.0, 8.0], [1.0, 1.0, 2.0])
        Ratio(median=3.0, low=2.0, high=4.0)
        """
        ratios = np.array(numerator) / np.array(denominator)
        return cls(float(np.median(ratios)), float(ratios.min()), float(ratios.max()))


def interleave(
    ways: Mapping[str, Callable[[], object]],
    rounds: int,
    clock: Clock = time.process_time,
    warm: bool = True,
) -> Seconds:
    """Seconds of each way in each round; a round runs them all, in an order that turns.

    The default clock counts the processor time of this process: with one thread that is what a
    quiet machine's clock would show, and other processes disturb it little.
    """
    seconds: Seconds = {name: [] for name in ways}
    names = list(ways)
    if warm:
        for name in names:
            ways[name]()
    for turn in range(rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            began = clock()
            ways[name]()
            seconds[name].append(clock() - began)
    return seconds
