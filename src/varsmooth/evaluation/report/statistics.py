"""Statistics of a table of certificates: pure functions of numpy columns.

Everything about certified accuracy follows from one column, the *reach* of each image: its
certified radius where the certified class is right, −∞ where it is wrong or abstains.
Intervals are about which images were drawn; the α of a certificate is about the noise
(`false_certificates`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import binom, binomtest, norm, t

from varsmooth.bounds import Floats, clopper_pearson_lower, clopper_pearson_upper
from varsmooth.defaults import ABSTAIN
from varsmooth.rounding import percent, rounded

LEVEL = 0.95  # the confidence of every interval in a report


class Interval(NamedTuple):
    """A two-sided confidence interval."""

    low: float
    high: float


def reach(predictions: ArrayLike, labels: ArrayLike, radii: ArrayLike) -> Floats:
    """The radius of each image up to which it counts as right, (n,): −∞ where it never does.

    Examples:
        >>> reach([3, -1, 5], [3, 3, 3], [0.5, 0.0, 0.9])
        array([ 0.5, -inf, -inf])
    """
    predictions, labels = np.asarray(predictions), np.asarray(labels)
    right = (predictions == labels) & (predictions != ABSTAIN)
    return np.where(right, np.asarray(radii, dtype=np.float64), -np.inf)


def certified_counts(reach: ArrayLike, radii: ArrayLike) -> NDArray[np.int64]:
    """#{i : reach_i ≥ r} for every r of `radii` (m,): right for every ‖δ‖₂ < r."""
    ascending = np.sort(np.asarray(reach, dtype=np.float64))
    return len(ascending) - np.searchsorted(ascending, radii, side="left")


def certified_accuracy(reach: ArrayLike, radii: ArrayLike) -> Floats:
    """The share of images that are certified right at each radius, (m,).

    Examples:
        >>> certified_accuracy([0.5, -np.inf, 0.2, 0.5], [0.0, 0.2, 0.5, 0.6])
        array([0.75, 0.75, 0.5 , 0.  ])
    """
    return certified_counts(reach, radii) / np.size(reach)


def envelope(columns: Sequence[ArrayLike]) -> Floats:
    """A reach column (n,) that has at each radius the certified accuracy of the best of several.

    The best is chosen with hindsight: the k-th largest reach is the largest k-th one.

    Examples:
        >>> envelope([[0.1, 0.9], [0.5, 0.4]])
        array([0.4, 0.9])
    """
    best: Floats = np.sort(np.asarray(columns, dtype=np.float64), axis=1).max(axis=0)
    return best


def regret(reach: ArrayLike, best: ArrayLike, radii: ArrayLike) -> float:
    """The largest gap of a run below an envelope: max_r best(r) − accuracy(r).

    Negative if it is above the envelope everywhere.
    """
    return float(np.max(certified_accuracy(best, radii) - certified_accuracy(reach, radii)))


@dataclass(frozen=True)
class Share:
    """k of n images, with its exact (Clopper–Pearson) interval.

    Examples:
        >>> Share(8, 10).value, Share(0, 10).interval().low
        (0.8, 0.0)
    """

    k: int
    n: int

    @classmethod
    def of(cls, column: ArrayLike) -> "Share":
        """How many entries of a boolean column are true."""
        column = np.asarray(column)
        return cls(int(column.sum()), column.size)

    @property
    def value(self) -> float:
        return self.k / self.n

    def interval(self, level: float = LEVEL) -> Interval:
        low, high = share_intervals([self.k], self.n, level)
        return Interval(float(low[0]), float(high[0]))


def share_intervals(k: ArrayLike, n: int, level: float = LEVEL) -> tuple[Floats, Floats]:
    """Clopper–Pearson: each covers the true share with probability ≥ level, pointwise."""
    a = (1 - level) / 2
    return clopper_pearson_lower(k, n, a), clopper_pearson_upper(k, n, a)


def mean_interval(values: ArrayLike, level: float = LEVEL) -> Interval:
    """Student's interval for a mean: v̄ ± t_{n−1} s/√n; unbounded for fewer than two values."""
    values = np.asarray(values, dtype=np.float64)
    if values.size < 2:
        return Interval(-math.inf, math.inf)
    half = float(t.ppf((1 + level) / 2, values.size - 1) * values.std(ddof=1)) / values.size**0.5
    return Interval(float(values.mean()) - half, float(values.mean()) + half)


@dataclass(frozen=True)
class PairedDifference:
    """Accuracy of one run minus that of another on the same n images.

    `only_first` and `only_second` count the images on which one is right and the other is not.
    """

    only_first: int
    only_second: int
    n: int

    @classmethod
    def of(cls, first: ArrayLike, second: ArrayLike) -> "PairedDifference":
        """From two boolean columns over the same images."""
        first, second = np.asarray(first), np.asarray(second)
        return cls(int((first & ~second).sum()), int((second & ~first).sum()), first.size)

    @property
    def value(self) -> float:
        return (self.only_first - self.only_second) / self.n

    def interval(self, level: float = LEVEL) -> Interval:
        """Bonett–Price: Wald's interval after adding one image to each kind of disagreement.

        With a = (only_first+1)/(n+2) and b = (only_second+1)/(n+2):
        a − b ± z √((a + b − (a−b)²)/(n+2)).
        """
        a, b = (self.only_first + 1) / (self.n + 2), (self.only_second + 1) / (self.n + 2)
        half = float(norm.ppf((1 + level) / 2)) * math.sqrt((a + b - (a - b) ** 2) / (self.n + 2))
        return Interval(max(-1.0, a - b - half), min(1.0, a - b + half))

    @property
    def p_value(self) -> float:
        """Exact McNemar test: are the disagreements a fair coin? 1 if there is none."""
        disagreements = self.only_first + self.only_second
        return float(binomtest(self.only_first, disagreements).pvalue) if disagreements else 1.0


class FalseCertificates(NamedTuple):
    """What α per image means for a table of n images."""

    expected: float  # ≤ α n, whatever the dependence between images
    at_most: int  # with probability ≥ LEVEL; the noise of different images is independent
    all_true: float  # ≤ P(every radius of the table is true)


def false_certificates(alpha: float, n: int, level: float = LEVEL) -> FalseCertificates:
    """How many of n radii may be too large if each one is with probability ≤ α.

    Their number is dominated by Binomial(n, α), as images never share noise. If at most k are
    false, then certified accuracy is at least the shown one − k/n at every radius at once.

    Examples:
        >>> false_certificates(1e-3, 500).at_most
        2
    """
    return FalseCertificates(alpha * n, int(binom.ppf(level, n, alpha)), (1 - alpha) ** n)


@dataclass(frozen=True)
class ErrorProbability:
    """The probability that a deployed model errs on images perturbed by ‖δ‖₂ ≤ r.

    `value` is the share of the images that are not certified right beyond r: only these can be
    misclassified, whatever the attack. Let C be the event that a random image is
    certified right. P(true radius > r) ≥ P(C) − α, for a radius is too large with probability ≤ α,
    and a query inside it errs with probability ≤ α. With the two-sided Clopper–Pearson interval
    [L, U] of P(C), P(wrong) ≤ 1 − L + 2α = `interval.high`; `interval.low` = 1 − U.
    """

    radius: float
    certified: Share
    alpha: float
    guarantee: str

    @classmethod
    def of(
        cls, reach: ArrayLike, radius: float, alpha: float, guarantee: str
    ) -> "ErrorProbability":
        """From the reach (n,) of images whose certificates and queries have this α."""
        beyond = np.asarray(reach, dtype=np.float64) > max(radius, 0.0)
        return cls(radius, Share.of(beyond), alpha, guarantee)

    @property
    def value(self) -> float:
        return 1 - self.certified.value

    def interval(self, level: float = LEVEL) -> Interval:
        low, high = self.certified.interval(level)
        return Interval(1 - high, min(1.0, 1 - low + 2 * self.alpha))

    def __str__(self) -> str:
        k, n = self.certified.n - self.certified.k, self.certified.n
        low, high = self.interval()
        between = f"{_percent(low, ROUND_FLOOR)}, {_percent(high, ROUND_CEILING)}"
        attack = "no attack" if self.radius == 0 else f"any change of ‖δ‖₂ ≤ {self.radius:g}"
        provided = ", if it does not move σ," if self.guarantee == "conditional" else ""
        return (
            f"Under {attack}{provided} a wrong answer has probability at most "
            f"{percent(k, n, up=True)} % [{between}]: {k} of {n} images are not certified as their "
            f"true class beyond this radius; the 95 % interval includes sampling of the images and "
            f"α = {self.alpha:g} for each certificate and each query."
        )


def _percent(share: float, direction: str) -> str:
    return rounded(100 * share, 1, direction)


def sigma_groups(sigmas: Floats, most: int = 10) -> list[NDArray[np.int64]]:
    """Images grouped by their noise level, ascending: positions of each group's images.

    Up to `most` different levels are a group each; otherwise `most` groups of equal size.
    """
    levels = np.unique(sigmas)
    if len(levels) <= most:
        return [np.flatnonzero(sigmas == level) for level in levels]
    return np.array_split(np.argsort(sigmas, kind="stable"), most)
