"""How a claim is decided: from paired differences and their intervals over images."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from reproduce.experiment import Verdict
from varsmooth.report.statistics import LEVEL, Interval, mean_interval


@dataclass(frozen=True)
class MeanDifference:
    """The mean of one number per image, such as a difference of differences between runs.

    >>> MeanDifference((1, 0, -1, 1, 1)).value
    0.4
    """

    values: Sequence[float]

    @property
    def value(self) -> float:
        return float(np.mean(self.values))

    def interval(self, level: float = LEVEL) -> Interval:
        return mean_interval(self.values, level)


class Difference(Protocol):
    """A difference between methods, with its interval."""

    @property
    def value(self) -> float: ...

    def interval(self, level: float = LEVEL) -> Interval: ...


def verdict_of(differences: Sequence[Difference]) -> Verdict:
    """Whether "this is better than that" held, from one paired difference for each setting.

    held: somewhere the interval lies above 0, nowhere below; not: somewhere below 0, nowhere
    above, or every difference is ≤ 0; partly: anything between. The more settings, the wider
    the intervals that decide (Bonferroni), so that looking often does not make a claim hold.
    """
    if not differences:
        return "untested"
    level = 1 - (1 - LEVEL) / len(differences)
    above = any(gap.interval(level).low > 0 for gap in differences)
    below = any(gap.interval(level).high < 0 for gap in differences)
    if above and not below:
        return "held"
    if not above and (below or all(gap.value <= 0 for gap in differences)):
        return "not"
    return "partly"


def shown_difference(gap: Difference) -> str:
    """`+1.2 [−0.4, +2.9]` percentage points."""
    low, high = gap.interval()
    return f"{_signed(100 * gap.value)} [{_signed(100 * low)}, {_signed(100 * high)}]"


def shown_radius_gap(gap: Difference) -> str:
    """`+0.038 [+0.021, +0.055]`, a difference of average radii."""
    low, high = gap.interval()
    return f"{_signed(gap.value, 3)} [{_signed(low, 3)}, {_signed(high, 3)}]"


def _signed(value: float, digits: int = 1) -> str:
    return f"{value:+.{digits}f}".replace("-", "−")


def told(gaps: Mapping[str, Difference]) -> str:
    """Differences in points, each with its title."""
    return "; ".join(f"{title}: {shown_difference(gap)}" for title, gap in gaps.items())


def values(gaps: Mapping[str, Difference]) -> dict[str, float]:
    """The differences as plain numbers."""
    return {title: gap.value for title, gap in gaps.items()}


def lowered(gaps: Mapping[str, Difference]) -> list[str]:
    """Which of several differences lie below 0, at a level that many comparisons cannot cheat."""
    level = 1 - (1 - LEVEL) / max(len(gaps), 1)
    return [name for name, gap in gaps.items() if gap.interval(level).high < 0]


def weakest(verdicts: Sequence[Verdict]) -> Verdict:
    """The least favourable of several; untested if one is."""
    order: tuple[Verdict, ...] = ("untested", "not", "partly", "held")
    return min(verdicts, key=order.index, default="untested")
