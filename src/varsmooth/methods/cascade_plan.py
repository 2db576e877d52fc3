"""Which class and which stage of a cascade to certify, and with how many votes at each stage.

Decided on selection draws alone, so that nothing here touches the guarantee (Theorem C,
`methods.cascade`): a poor plan costs radius or votes.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from varsmooth import bounds
from varsmooth.bounds import Floats, Integers
from varsmooth.cascade import Stages
from varsmooth.defaults import Bound
from varsmooth.evidence import LevelVotes
from varsmooth.noise import CHUNK

SAMPLE_COST = 0.05
"""The share of the radius that may be lost for n votes saved at an early stage."""

RADIUS_MARGIN = 1.2
"""Early stages aim this far beyond the expected radius: the deciding votes may turn out better."""


@dataclass(frozen=True)
class Plan:
    """What to certify, fixed on the selection draws: the class, the stage, votes per stage.

    Attributes:
        selection: The selection draws at the deciding stage.
        votes: Votes to count at the stages up to it.
    """

    selection: LevelVotes
    votes: tuple[int, ...]

    @property
    def candidate(self) -> int:
        """A, the class."""
        return self.selection.candidate

    @property
    def stage(self) -> int:
        """k*, 0-based: the deciding stage."""
        return len(self.votes) - 1


def make_plan(
    stages: Stages, selection: Integers, n0: int, n: int, a: float, bound: Bound = "best"
) -> Plan:
    """The class A and the stage k* from which the largest radius is to be expected.

    Stage k* gets n votes; an earlier one only as many as justify their cost (`_early_votes`).
    `selection` holds counts (S, classes) of n0 draws at each of the first S stages.
    """
    radius = cascade_radii(stages, expected_quantiles(selection, n0, n, a, bound))
    stage, candidate = (int(i) for i in np.unravel_index(radius.argmax(), radius.shape))
    goal = RADIUS_MARGIN * float(radius[stage, candidate])
    others = np.delete(selection, candidate, axis=1).max(axis=1, initial=0)
    early = [
        _early_votes(int(others[j]), n0, n, stages.levels[j], a, stages.thresholds[j], goal)
        for j in range(stage)
    ]
    counted = tuple(int(count) for count in selection[stage])
    passes = n0 - sum(counted)
    return Plan(LevelVotes(stages.levels[stage], candidate, counted, passes), (*early, n))


def can_improve(
    stages: Stages, selection: Integers, n0: int, n: int, a: float
) -> NDArray[np.bool_]:
    """Whether stages after the first S could give a larger radius than these: (...,)."""
    seen = selection.shape[-2]
    largest = max(
        float(bounds.class_radius(n, n, s, a, tau))
        for s, tau in zip(stages.levels[seen:], stages.thresholds[seen:], strict=True)
    )
    quantiles = expected_quantiles(selection, n0, n, a)
    best = cascade_radii(stages, quantiles).max(axis=(-2, -1))
    excluding = _distances(stages, quantiles)[1].min(axis=-2).max(axis=-1)
    improves: NDArray[np.bool_] = np.minimum(largest, excluding) > best
    return improves


class Quantiles(NamedTuple):
    """What votes say about every class A at every stage, each (..., S, classes), in units of σ.

    Attributes:
        lower: Φ⁻¹ of a lower bound on p_k(A).
        upper: Φ⁻¹ of an upper bound on the most likely other class.
        lead: ½ [Φ⁻¹(P) − Φ⁻¹(Q)], how far A leads: `lower` if w = 1.
    """

    lower: Floats
    upper: Floats
    lead: Floats


def cascade_radii(stages: Stages, quantiles: Quantiles) -> Floats:
    """R = min(H_k, min_{j<k} X_j) for every stage k and class A: (..., S, classes).

    The quantiles are those of the first S stages.
    """
    holding, excluding = _distances(stages, quantiles)
    floor = np.minimum.accumulate(excluding, axis=-2)  # min_{i ≤ j} X_i
    holding[..., 1:, :] = np.minimum(holding[..., 1:, :], floor[..., :-1, :])
    return holding


def _distances(stages: Stages, quantiles: Quantiles) -> tuple[Floats, Floats]:
    """H_k and X_k of every stage and class A."""
    lower, upper, lead = quantiles
    seen = lower.shape[-2]
    levels = np.asarray(stages.levels[:seen])[:, None]
    taus = bounds.normal_quantile(stages.thresholds[:seen])[:, None]
    holding: Floats = levels * (lower - taus)
    if stages.is_argmax(seen - 1):
        holding[..., -1, :] = stages.levels[seen - 1] * lead[..., -1, :]
    return holding, levels * (taus - upper)


def expected_quantiles(
    selection: Integers, n0: int, n: int, a: float, bound: Bound = "best"
) -> Quantiles:
    """The quantiles that n votes should give, from counts (..., classes) of n0 selection draws."""
    classes = selection.shape[-1]
    counts = n * (selection + 1 / classes) / (n0 + 1)
    return vote_quantiles(counts, n, a, margin_is_larger(selection, n0, n, a, bound))


def vote_quantiles(
    counts: Integers | Floats, n: int, a: float, margin: NDArray[np.bool_]
) -> Quantiles:
    """From counts (..., classes) of n votes; `margin` says where the runner-up has its bound."""
    other = _largest_other(counts)
    lower = bounds.normal_quantile(bounds.clopper_pearson_lower(counts, n, a))
    upper = bounds.normal_quantile(bounds.clopper_pearson_upper(other, n, a))
    return Quantiles(
        lower, upper, np.where(margin, bounds.margin_radius(counts, other, n, 1.0, a), lower)
    )


def margin_is_larger(
    selection: Integers, n0: int, n: int, a: float, bound: Bound = "best"
) -> NDArray[np.bool_]:
    """`bounds.margin_is_larger` for every class, from counts (..., classes) of n0 draws."""
    if bound == "cohen":
        return np.zeros(selection.shape, dtype=bool)
    return bounds.margin_is_larger(selection, _largest_other(selection), n0, n, a)


def _largest_other(counts: Integers | Floats) -> Integers | Floats:
    """For every class the largest count of another one, (..., classes)."""
    none = np.zeros_like(counts[..., :1])
    ordered = np.sort(np.concatenate([none, counts], axis=-1), axis=-1)
    largest, second = ordered[..., -1:], ordered[..., -2:-1]
    return np.where(counts == largest, second, largest)


def _early_votes(
    seen: int, n0: int, n: int, sigma: float, a: float, threshold: float, goal: float
) -> int:
    """The votes m ≤ n of an early stage with the largest E[min(X̂ / goal, 1)] − SAMPLE_COST · m / n.

    The expectation is over what n0 draws say about p(c) of a class `seen` in them.
    """
    shares = betaincinv(0.5 + seen, 0.5 + n0 - seen, (np.arange(12) + 0.5) / 12)
    tries = np.unique(CHUNK * np.round(np.geomspace(CHUNK, max(n, 2 * CHUNK), 40) / CHUNK))
    tries = np.append(tries[tries < n], n)[:, None]
    reached = bounds.exclusion_radius(tries * shares, tries, sigma, a, threshold)
    kept = np.clip(reached / goal, 0, 1).mean(axis=1) if goal > 0 else 0.0
    return int(tries[np.argmax(kept - SAMPLE_COST * tries[:, 0] / n), 0])
