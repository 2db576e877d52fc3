"""How a claim is decided: from paired differences and their intervals over images."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from reproduce.harness import Claim, Verdict
from varsmooth.report.statistics import LEVEL, Interval, mean_interval

MARGIN = 0.02
"""What "not worse" allows in accuracy, unless a claim says otherwise: 2 points."""

RULES = """\
A claim is a set of differences between methods, paired by image, each taken so that above 0 speaks
for the claim. The intervals above decide it: 95 % over images, for all differences of the claim
together, and for all settings if one was chosen as the best on the test images (Bonferroni). On the
experiment pages each difference has its own 95 % interval.

| verdict | when |
|---|---|
| **confirmed** | at least one interval lies on the claimed side of 0, none on the other |
| **refuted** | at least one interval lies on the other side of 0, none on the claimed side |
| **partly** | both |
| undecided | no interval excludes 0; the number of images that would decide at this difference |
| trivial | true by arithmetic, or nothing could differ |
| untested | not run |

A claim of *not worse* names its margin: confirmed if every interval lies above −margin, refuted if
one lies below it, partly if one lies below it and another above. A claim with several parts gets
the verdict of its weakest part, whose number is shown. Each part must hold, so its interval is for
the differences of that part together; what refutes it is judged by those of the whole claim.
"""


class Difference(Protocol):
    """A difference between methods over n images, with its interval."""

    @property
    def n(self) -> int: ...

    @property
    def value(self) -> float: ...

    def interval(self, level: float = LEVEL) -> Interval: ...


@dataclass(frozen=True)
class MeanDifference:
    """The mean of one number per image, such as a difference of differences between runs.

    >>> MeanDifference((1, 0, -1, 1, 1)).value
    0.4
    """

    values: Sequence[float]

    @property
    def n(self) -> int:
        return len(self.values)

    @property
    def value(self) -> float:
        return float(np.mean(self.values))

    def interval(self, level: float = LEVEL) -> Interval:
        return mean_interval(self.values, level)


Gaps = Mapping[str, Difference]
"""Differences by what they compare."""


@dataclass(frozen=True)
class Together:
    """How many statements the intervals of one part must hold for at once.

    for_it: the differences of the part, times the settings among which the method of the claim was
    chosen on the test images; against_it: those of the whole claim, times the settings of what it
    is compared with. Parts must all hold, but one of them can refute the claim.
    """

    for_it: int
    against_it: int

    def interval(self, gap: Difference, up: bool) -> Interval:
        """The interval that may show a difference to be above the line (up), or below it."""
        count = self.for_it if up else self.against_it
        return gap.interval(1 - (1 - LEVEL) / max(count, 1))

    def deciding(self, gap: Difference, line: float) -> Interval:
        """The interval that may decide on the side where the difference lies."""
        return self.interval(gap, gap.value >= line)


def verdict_of(
    gaps: Iterable[Difference], margin: float | None = None, together: Together | None = None
) -> Verdict:
    """Whether differences lie above 0, or with a margin, whether all lie above −margin."""
    found = list(gaps)
    if not found:
        return "untested"
    line, at = -(margin or 0.0), together or Together(len(found), len(found))
    above = [at.interval(gap, True).low > line for gap in found]
    below = any(at.interval(gap, False).high < line for gap in found)
    if below:
        return "partly" if any(above) else "refuted"
    return "confirmed" if (all(above) if margin is not None else any(above)) else "undecided"


def weakest(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict on all of several parts together."""
    order = ("untested", "refuted", "partly", "undecided", "trivial", "confirmed")
    return min(verdicts, key=order.index, default="untested")


def images_needed(
    gaps: Iterable[Difference], margin: float | None = None, together: Together | None = None
) -> int | None:
    """How many images would decide, if the clearest open difference is what it seems to be.

    An interval shrinks as 1/√n, so n · (half-width / distance from the line)² images; with a
    margin, the difference that needs most of them counts. None if it seems to be on the line.
    """
    found, line, needed = list(gaps), -(margin or 0.0), list[float]()
    at = together or Together(len(found), len(found))
    for gap in found:
        low, high = at.deciding(gap, line)
        if low <= line <= high and low < high:  # no width: the two never differed
            distance = max(abs(gap.value - line), 1e-9)
            needed.append(gap.n * ((high - low) / 2 / distance) ** 2)
    count = (max if margin is not None else min)(needed, default=math.inf)
    return None if count > 1e9 else math.ceil(count)


def judged(
    statement: str,
    source: str,
    gaps: Gaps | Sequence[Gaps],
    measured: str,
    why: str = "",
    margin: float | None = None,
    digits: int | None = None,
    verdict: Verdict | None = None,
    ours: int = 1,
    theirs: int = 1,
    unit: str = "points",
) -> Claim:
    """A claim that differences lie above 0, or with a margin, that none lies below −margin.

    gaps: several of them are parts of the claim, which must all hold.
    measured: what minus what, in words.
    digits: of differences that are not shares, which are shown in points, or in another unit that
    is a hundredth.
    verdict: if it follows from more than these differences.
    ours, theirs: among how many settings the one that is compared was chosen on the test images, of
    the method that the claim is about and of its rival.
    """
    parts = [gaps] if isinstance(gaps, Mapping) else list(gaps)
    every = {title: gap for part in parts for title, gap in part.items()}
    together = [Together(len(part) * ours, len(every) * theirs) for part in parts]
    verdicts = [
        verdict_of(part.values(), margin, at) for part, at in zip(parts, together, strict=True)
    ]
    verdict = verdict or weakest(verdicts)
    shown = "; ".join(f"{title}: {shown_gap(gap, digits)}" for title, gap in every.items())
    if margin:
        allowed = f"{margin:g}" if digits is not None else f"{100 * margin:g} {unit}"
        why = "; ".join(filter(None, (why, f"not worse: by at most {allowed}")))
    number = "–"
    if every:
        places = [i for i, found in enumerate(verdicts) if found == verdict] or range(len(parts))
        i = max(places, key=lambda i: _still_needed(parts[i], margin, together[i]))
        title, gap = _clearest(parts[i], margin, verdict, together[i])
        number = f"{title}: {shown_gap(gap, digits, together[i].deciding(gap, -(margin or 0.0)))}"
        if verdict == "undecided":
            count = images_needed(parts[i].values(), margin, together[i])
            more = "no difference seen" if count is None else f"about {_round_up(count)} images"
            number += f"; {more}"
    numbers = {title: gap.value for title, gap in every.items()}
    long = f"{measured}{f', {unit}' * (digits is None)}: {shown or 'none'}"
    return Claim(statement, source, number, long, verdict, why, numbers, measured)


def _still_needed(part: Gaps, margin: float | None, together: Together) -> float:
    """The images that would decide a part, to find the part that needs most; 0 if it is decided."""
    if verdict_of(part.values(), margin, together) != "undecided":
        return 0
    return images_needed(part.values(), margin, together) or math.inf


def _clearest(
    gaps: Gaps, margin: float | None, verdict: Verdict, together: Together
) -> tuple[str, Difference]:
    """The difference that decides: the worst one with a margin, else the one furthest from 0.

    Of an undecided claim it is an open one.
    """
    line = -(margin or 0.0)
    ends = {title: together.deciding(gap, line) for title, gap in gaps.items()}
    open_ones = {t: g for t, g in gaps.items() if ends[t].low <= line <= ends[t].high}
    among = open_ones if verdict == "undecided" and open_ones else gaps
    if margin is not None:
        title = min(among, key=lambda t: ends[t].low)
    else:
        half = {t: max((ends[t].high - ends[t].low) / 2, 1e-12) for t in among}
        sides = {"confirmed": 1, "refuted": -1}

        def clear(title: str) -> float:
            value = gaps[title].value
            return (sides[verdict] * value if verdict in sides else abs(value)) / half[title]

        title = max(among, key=clear)
    return title, gaps[title]


def _round_up(count: int) -> str:
    """Two digits are enough of an estimate."""
    step = 10 ** max(len(str(count)) - 2, 0)
    return f"{-(-count // step) * step:,}"


def shown_gap(gap: Difference, digits: int | None = None, interval: Interval | None = None) -> str:
    """`+1.2 [−0.4, +2.9]` points, or a plain difference with so many digits.

    interval: by default its own, 95 %. More digits where an end that is not 0 would look like it.
    """
    scale, digits = (100, 1) if digits is None else (1, digits)
    ends = gap.interval() if interval is None else interval
    value, low, high = (scale * number for number in (gap.value, *ends))
    if low == high:
        return f"{_signed(value, digits)}, the same on every image"
    near = min(abs(low), abs(high))
    if low * high > 0 and round(near, digits) == 0:
        digits = math.ceil(-math.log10(near))
    return f"{_signed(value, digits)} [{_signed(low, digits)}, {_signed(high, digits)}]"


def _signed(number: float, digits: int) -> str:
    return f"{number:+.{digits}f}".replace("-", "−")
