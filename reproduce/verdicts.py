"""How a claim is decided: from paired differences and their intervals over images."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from scipy.stats import norm

from reproduce.harness import Claim, Verdict
from varsmooth.evaluation.report.statistics import LEVEL, Interval, mean_interval
from varsmooth.evaluation.report.tables import Cell

MARGIN = 0.02
"""What "not worse" allows in accuracy, unless a claim says otherwise: 2 points."""

UNMOVED = 0.01
"""How far σ_s may move, relative to itself, where h counts as not affected."""

RULES = """\
A claim is about one or more cases, such as the values of σ_a. A case holds if the interval of each
of its differences lies above 0, for instance in clean and in robust accuracy, at one and the same
setting; where a claim asks for *some* λ, one λ that does it is enough. Differences are paired by
image, and positive values support the claim.

| verdict | when |
|---|---|
| **confirmed** | at least one case holds and none fails; if the claim says *each*, all hold |
| **refuted** | at least one case fails and none holds |
| **partly** | some cases hold, others fail |
| undecided | none of these |
| trivial | true by arithmetic, or nothing to test: a defence where the attack moves nothing |
| untested | not run |

Beside the verdict stands how many cases hold or fail, if there are several.
The intervals above decide: 95 % over images, widened (Bonferroni) for the settings among which the
method's own was chosen on the test images and, unless all cases must hold, for the cases of the
claim. A case fails if, at every λ that might have shown it, an interval lies below 0, widened for
all differences of the claim and for the settings among which the rival's was chosen. On the
experiment pages each difference has its own 95 % interval. A claim of *not worse* names its margin,
and one of *more than so much* its threshold, which take the place of 0; with a margin all cases
must hold. The number of images beside an undecided claim would decide it with a probability of
80 %, if the difference is what it seems to be; the test set has 10,000.

The intervals are about images only: each model was trained once, so a claim about training is about
these models. A row whose true difference is 0 is decided with a probability of at most 5 %;
nothing is corrected across rows.
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

    bound: of shares, 1. Two imaginary images at ±bound then widen the interval (Bonett–Price), so
    that methods which never differed on a few images do not count as equal on all.

    >>> MeanDifference((1, 0, -1, 1, 1)).value
    0.4
    >>> MeanDifference((0, 0, 0), bound=1).interval().high > 0.5
    True
    """

    values: Sequence[float]
    bound: float = 0.0

    @property
    def n(self) -> int:
        return len(self.values)

    @property
    def value(self) -> float:
        return float(np.mean(self.values))

    def interval(self, level: float = LEVEL) -> Interval:
        imagined = [self.bound, -self.bound] if self.bound else []
        return mean_interval([*self.values, *imagined], level)


Gaps = Mapping[str, Difference]
"""Differences by what they compare."""


@dataclass(frozen=True)
class AnyOf:
    """A case that one of several settings may show, such as one of several λ."""

    settings: Sequence[Gaps]


@dataclass(frozen=True)
class Trial:
    """The cases of a claim, each with the settings that may show it, and what decides them.

    line: the differences must lie above it.
    every: whether all cases must hold.
    ours, theirs: among how many settings the one that is compared was chosen on the test images, of
    the method that the claim is about and of its rival.
    """

    cases: Sequence[Sequence[Gaps]]
    line: float = 0.0
    every: bool = False
    ours: int = 1
    theirs: int = 1

    def above(self, case: Sequence[Gaps]) -> float:
        """The level of an interval that may show a difference to be above the line."""
        return _shared(len(case) * self.ours * (1 if self.every else len(self.cases)))

    def below(self, case: Sequence[Gaps]) -> float:
        """The level of an interval that may show a difference to be below it.

        All settings of a case must fail, but any difference of a setting makes it fail.
        """
        return _shared(len(self.cases) * max(map(len, case)) * self.theirs)

    def holds(self, case: Sequence[Gaps]) -> bool:
        level = self.above(case)
        return any(all(g.interval(level).low > self.line for g in s.values()) for s in case)

    def fails(self, case: Sequence[Gaps]) -> bool:
        level = self.below(case)
        return all(any(g.interval(level).high < self.line for g in s.values()) for s in case)

    @property
    def verdict(self) -> Verdict:
        held, failed = self._sides()
        if not self.cases:
            return "untested"
        if failed:
            return "partly" if held else "refuted"
        enough = len(held) == len(self.cases) if self.every else bool(held)
        return "confirmed" if enough else "undecided"

    def best(self, case: Sequence[Gaps]) -> Gaps:
        """The setting whose smallest difference is largest; with hindsight if there are several."""

        def gain(setting: Gaps) -> tuple[float, float]:
            values = [gap.value for gap in setting.values()]
            return min(values), sum(values)

        return max(case, key=gain)

    def decisive(self) -> tuple["Deciding", str]:
        """The difference to show, and with how many images it would decide, in words.

        It is the one that decided, or the one that would decide with the fewest images.
        """
        if self.verdict == "undecided":
            found = min(self._open(), key=lambda one: (one.images, abs(one.gap.value - self.line)))
            unseen = found.images > 1e9
            return found, "no difference seen" if unseen else (
                f"about {_round_up(found.images):,} images to {found.verb}"
            )
        held, failed = self._sides()
        if failed:
            worst = [min(self._of(c, self.below(c)), key=self._clearance) for c in failed]
            return min(worst, key=self._clearance), ""
        least = [min(self._of(c, self.above(c)), key=self._clearance) for c in held]
        return (min if self.every else max)(least, key=self._clearance), ""

    @property
    def counts(self) -> str:
        """How many of several cases hold and how many fail, in words: `2 of 9 hold`."""
        if len(self.cases) < 2:
            return ""
        sides = zip(("hold", "fail"), self._sides(), strict=True)
        return ", ".join(
            f"{len(found)} of {len(self.cases)} {verb}{'s' * (len(found) == 1)}"
            for verb, found in sides
            if found
        )

    def _sides(self) -> tuple[list[Sequence[Gaps]], list[Sequence[Gaps]]]:
        """The cases that hold, and those that fail."""
        held, failed = ([c for c in self.cases if test(c)] for test in (self.holds, self.fails))
        return held, failed

    def _of(self, case: Sequence[Gaps], level: float) -> list["Deciding"]:
        """The differences of a case at its best setting."""
        return [Deciding(title, gap, level) for title, gap in self.best(case).items()]

    def _clearance(self, one: "Deciding") -> float:
        """How far a difference lies above the line, in half-widths of its interval."""
        low, high = one.gap.interval(one.level)
        return (one.gap.value - self.line) / max((high - low) / 2, 1e-12)

    def _open(self) -> list["Deciding"]:
        """For each case what would refute it, and what would confirm the claim."""

        def needs(setting: Gaps, level: float, side: int) -> list[Deciding]:
            verb = "confirm" if side > 0 else "refute"
            return [
                Deciding(t, g, level, images_needed(g, self.line, level, side), verb)
                for t, g in setting.items()
            ]

        def fewest(found: Sequence[Deciding]) -> Deciding:
            return min(found, key=lambda one: one.images)

        def most(found: Sequence[Deciding]) -> Deciding:
            return max(found, key=lambda one: one.images)

        against = [
            most([fewest(needs(setting, self.below(case), -1)) for setting in case])
            for case in self.cases
        ]
        for_it = [
            fewest([most(needs(setting, self.above(case), 1)) for setting in case])
            for case in self.cases
            if not self.holds(case)
        ]
        return [*against, (most if self.every else fewest)(for_it)]


class Deciding(NamedTuple):
    """A difference that decides a claim, or with so many images would confirm or refute it."""

    title: str
    gap: Difference
    level: float
    images: float = 0.0
    verb: str = ""


def _shared(count: int) -> float:
    """The level of one of `count` intervals that hold together (Bonferroni)."""
    return 1 - (1 - LEVEL) / max(count, 1)


POWER = 0.8
"""The probability with which the number of images named would decide."""


def images_needed(gap: Difference, line: float, level: float, side: int) -> float:
    """How many images would show, with probability POWER, a difference to be above the line.

    side: 1, or −1 for below. A half-width shrinks as 1/√n; n (w/d)² (1 + z_P/z)² of them, w the
    half-width, d the distance from the line, z and z_P normal quantiles. 0 if it is shown already,
    ∞ if the difference seems to be on the other side.
    """
    low, high = gap.interval(level)
    if (low - line if side > 0 else line - high) > 0:
        return 0.0
    distance = side * (gap.value - line)
    if distance <= 1e-9:
        return math.inf
    more = 1 + float(norm.ppf(POWER) / norm.ppf((1 + level) / 2))
    return gap.n * ((high - low) / 2 / distance * more) ** 2


def weakest(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict on all of several statements together."""
    order = ("untested", "refuted", "partly", "undecided", "trivial", "confirmed")
    return min(verdicts, key=order.index, default="untested")


def judged(
    statement: str,
    source: str,
    gaps: Gaps | Sequence[Gaps | AnyOf],
    measured: str,
    why: str = "",
    margin: float | None = None,
    line: float = 0.0,
    digits: int | None = None,
    verdict: Verdict | None = None,
    ours: int = 1,
    theirs: int = 1,
    unit: str = "points",
    every: bool = False,
) -> Claim:
    """A claim that differences lie above a line, or with a margin, that none lies below −margin.

    gaps: a difference for each case; or the differences of each case, which must all hold.
    measured: what minus what, in words.
    line: what takes the place of 0, in the unit of the differences.
    digits: of differences that are not shares, which are shown in points, or in another unit that
    is a hundredth.
    verdict: if it follows from more than these differences.
    ours, theirs, every: see `Trial`.
    """
    cases = [{title: gap} for title, gap in gaps.items()] if isinstance(gaps, Mapping) else gaps
    settings = [case.settings if isinstance(case, AnyOf) else [case] for case in cases]
    known = [[s for s in case if s] for case in settings]
    every = every or margin is not None
    trial = Trial([case for case in known if case], line - (margin or 0.0), every, ours, theirs)
    shown = {title: gap for case in trial.cases for title, gap in trial.best(case).items()}
    limit = ""
    if allowed := margin or line:
        amount = f"{allowed:g}" if digits is not None else f"{100 * allowed:g} {unit}"
        limit = f"{'margin' if margin else 'threshold'} {amount}"
        why = "; ".join(filter(None, (why, f"{limit}, ours")))
    number, images = "–", 0
    if trial.cases:
        found, words = trial.decisive()
        value = shown_gap(found.gap, digits, found.gap.interval(found.level), trial.line)
        mark = f" {unit}" if digits is None and unit != "points" else ""
        number = "; ".join(filter(None, (f"{found.title}: {value}{mark}", limit, words)))
        images = _round_up(found.images) if 0 < found.images <= 1e9 else 0
        shown |= {found.title: found.gap}  # it may be of another setting than the best
    each = "; ".join(
        f"{title}: {shown_gap(gap, digits, line=trial.line)}" for title, gap in shown.items()
    )
    long = f"{measured}{f', {unit}' * (digits is None)}: {each or 'none'}"
    numbers = {title: gap.value for title, gap in shown.items()}
    decided = verdict or trial.verdict
    return Claim(
        statement,
        source,
        number,
        long,
        decided,
        why,
        numbers,
        measured,
        images if decided == "undecided" else 0,
        "" if verdict else trial.counts,
    )


def _round_up(count: float) -> int:
    """Two digits are enough of an estimate."""
    whole = math.ceil(count)
    step: int = 10 ** max(len(str(whole)) - 2, 0)
    return -(-whole // step) * step


def shown_gap(
    gap: Difference,
    digits: int | None = None,
    interval: Interval | None = None,
    line: float = 0.0,
) -> str:
    """`+1.2 [−0.4, +2.9]` points, or a plain difference with so many digits.

    interval: by default its own, 95 %; its ends are rounded outward, with more digits where an end
    that is not 0, or not the line, would look like it.
    """
    scale, digits = (100, 1) if digits is None else (1, digits)
    ends = gap.interval() if interval is None else interval
    near = scale * min(abs(end - line) for end in ends)
    if not ends[0] <= line <= ends[1] and near < 10**-digits:
        digits = math.ceil(-math.log10(near))
    value, low, high = (scale * number for number in (gap.value, *ends))
    if low == high:
        return f"{value:+.{digits}f}, the same on every image".replace("-", "−")
    return Cell.signed(value, Interval(low, high), digits).text
