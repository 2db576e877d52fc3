"""Paired differences over images, pooled over settings, and when two methods count as equal.

A setting is a pair of runs, such as g_v and g at one σ_a and λ. Settings share images, and an image
that is hard at one σ_a is hard at the next, so images are the clusters: pooling settings narrows an
interval only as far as the settings differ from image to image.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Literal

import numpy as np
from scipy.stats import t

from varsmooth.bounds import Floats
from varsmooth.errors import check
from varsmooth.evaluation.report.outcomes import Outcomes
from varsmooth.evaluation.report.statistics import Interval

LEVEL, EQUIVALENCE_LEVEL = 0.95, 0.90
MARGIN = 0.01
"""Methods whose difference in accuracy is certainly smaller than this count as equal: 1 point."""

Decision = Literal["holds", "does not hold", "no difference", "open"]


@dataclass(frozen=True)
class Differences:
    """One number for each image: of one run minus that of another, at one setting."""

    ids: Sequence[int]
    values: Floats  # (n,)

    def minus(self, other: "Differences") -> "Differences":
        """On the images that both have."""
        theirs = dict(zip(other.ids, other.values.tolist(), strict=True))
        each = {i: d - theirs[i] for i, d in zip(self.ids, self.values, strict=True) if i in theirs}
        return Differences(list(each), np.array(list(each.values())))

    def __truediv__(self, unit: float) -> "Differences":
        """In a unit, such as σ_a."""
        return Differences(self.ids, self.values / unit)


@dataclass(frozen=True)
class Estimate:
    """A mean over settings and images, with its standard error over images."""

    value: float
    error: float
    images: int

    def interval(self, level: float = LEVEL) -> Interval:
        half = float(t.ppf((1 + level) / 2, self.images - 1)) * self.error
        return Interval(self.value - half, self.value + half)

    def within(self, margin: float) -> bool:
        """Two one-sided tests at 5 %: the 90 % interval lies within ±margin."""
        low, high = self.interval(EQUIVALENCE_LEVEL)
        return -margin < low and high < margin

    def decide(self, margin: float = MARGIN) -> Decision:
        """A difference that is certainly smaller than the margin is none, significant or not."""
        low, high = self.interval()
        if self.within(margin):
            return "no difference"
        return "holds" if low > 0 else "does not hold" if high < 0 else "open"

    def text(self, scale: float = 100.0, digits: int = 2) -> str:
        """`+0.20 [+0.09, +0.31]`; by default in percentage points."""
        if self.error == 0:  # an interval without width would look certain
            value = f"{scale * self.value:+.{digits}f}".replace("-", "−")
            return f"{value}, the same on every image"
        numbers = [f"{scale * x:+.{digits}f}" for x in (self.value, *self.interval())]
        return "{} [{}, {}]".format(*numbers).replace("-", "−")


def paired(
    one: Outcomes, other: Outcomes, column: str | Callable[[Outcomes], Any] = "correct"
) -> Differences:
    """A column of one run minus that of another, on the images that both have.

    column: `correct`, `clean_correct` or another column of `Outcomes`, or what makes one.
    """
    of: Callable[[Outcomes], Any] = attrgetter(column) if isinstance(column, str) else column
    place = {image: i for i, image in enumerate(other.ids.tolist())}
    shared = [(i, place[image]) for i, image in enumerate(one.ids.tolist()) if image in place]
    first, second = np.array(shared).T
    return Differences(one.ids[first].tolist(), of(one)[first].astype(float) - of(other)[second])


def certified_at(one: Outcomes, other: Outcomes, radius: float) -> Differences:
    """Certified accuracy at a radius, image by image."""
    return paired(one, other, lambda run: run.reach >= radius)


def radius_gap(one: Outcomes, other: Outcomes) -> Differences:
    """Certified radius; wrong images count as 0."""
    return paired(one, other, lambda run: np.maximum(run.reach, 0))


def pooled(settings: Mapping[str, Differences] | Sequence[Differences]) -> Estimate:
    """The mean over settings of the mean over images; the error is that of images as clusters.

    With d_si the difference of image i at setting s, d̄_s its mean over n_s images and
    u_i = Σ_s (d_si − d̄_s) / (S n_s), the variance is n/(n−1) Σ_i u_i². For settings with the same
    images this is Student's interval of the image means.

    >>> same = [Differences([0, 1, 2], np.array([1.0, 0.0, 0.5]))] * 3
    >>> pooled(same) == pooled(same[:1])
    True
    """
    every = list(settings.values() if isinstance(settings, Mapping) else settings)
    check(bool(every), "there is nothing to pool: the records have no such pair of runs")
    value, influence = 0.0, dict[int, float]()
    for each in every:
        mean = float(each.values.mean())
        value += mean / len(every)
        for image, d in zip(each.ids, each.values.tolist(), strict=True):
            part = (d - mean) / (len(every) * len(each.values))
            influence[image] = influence.get(image, 0.0) + part
    n = len(influence)
    variance = n / (n - 1) * float(np.square(list(influence.values())).sum())
    return Estimate(value, variance**0.5, n)
