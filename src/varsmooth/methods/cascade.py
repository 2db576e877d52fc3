"""A cascade of noise levels, chosen by the votes of f: Theorem C."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv

from varsmooth import bounds
from varsmooth.bounds import Floats
from varsmooth.cascade import CascadeSelector, Stages
from varsmooth.defaults import ABSTAIN
from varsmooth.evidence import Evidence, Ledger, LevelVotes
from varsmooth.methods.base import (
    Answer,
    Bound,
    Method,
    Options,
    Selection,
    check_votes_suffice,
    lead_is_decided,
    leads,
    log_goal,
    with_share,
)
from varsmooth.noise import CHUNK
from varsmooth.sampling import LUCKY, Sampler, Stream
from varsmooth.smoothing import Selector

Integers = NDArray[np.int64]

SAMPLE_COST = 0.05
"""The share of the radius that may be lost for n votes saved at an early stage."""

RADIUS_MARGIN = 1.2
"""Early stages aim this far beyond the expected radius: the deciding votes may turn out better."""


class Cascade(Method):
    """**Theorem C.** R = max_k min(H_k, min_{j<k} X_j): every x' with ‖x' − x‖ < R gets class A.

    The first stage j at which a class has p_j(c; x) ≥ τ_j answers it; the last one, if its τ is ½,
    answers its most likely class: a cascade of one stage is a fixed σ. Signed distances, exact
    because Φ⁻¹(p_j(c; ·)) is 1/s_j-Lipschitz:
    H_k = s_k [Φ⁻¹(p_k(A)) − Φ⁻¹(τ_k)]: closer than H_k, stage k answers A if it is reached; at an
    argmax stage s_k/2 [Φ⁻¹(p_k(A)) − Φ⁻¹(p_k(B))], B the runner-up;
    X_j = min_{c≠A} s_j [Φ⁻¹(τ_j) − Φ⁻¹(p_j(c))]: closer than X_j, stage j answers A or passes on.
    Proof: let k attain the maximum. At x' no stage j < k answers a class other than A, and stage
    k, if it is reached, answers A.

    **Estimate.** Selection draws at each stage fix A, k and the form of Ĥ_k (`methods.fixed`);
    fresh votes give Ĥ_k by CP⁻ and X̂_j by CP⁺, each at α: R̂ = min(Ĥ_k, min_{j<k} X̂_j).
    P(R̂ > R) ≤ α with no correction for stages or classes: given (A, k), R is a minimum of fixed
    numbers, and only the bound of the smallest can make R̂ too large.
    """

    name = "cascade"
    guarantee = "sound"
    kinds = ("sound",)
    subject = "a cascade"

    def accepts(self, selector: Selector) -> bool:
        return isinstance(selector, CascadeSelector)

    def select(self, sampler: Sampler, ledger: Ledger, options: Options, n: int) -> Selection:
        stages = _stages(sampler.g.selector)
        plans, taken = _plans(sampler, stages, ledger.alpha_class, options, n)
        sigma = [stages.levels[plan.stage] for plan in plans]
        ledgers = [_with_share(ledger, plan, stages, options, n) for plan in plans]
        streams = [
            _streams(plan, stages, own.runner_up) for plan, own in zip(plans, ledgers, strict=True)
        ]
        return Selection(sigma, ledgers, streams, taken, stages=stages)

    def radius(self, evidence: Evidence) -> float:
        return min(stage_radii(evidence))

    def complete(self, evidence: Evidence) -> bool:
        votes, stages = evidence.votes, evidence.stages
        if not votes or stages is None or len(stages.levels) != len(stages.thresholds):
            return False
        last = votes[-1].sigma
        return last in stages.levels and stages.levels.index(last) >= len(votes) - 1

    def audit(
        self, about: Mapping[str, Any], config: Mapping[str, Any], sigma: float, evidence: Evidence
    ) -> dict[str, tuple[Any, Any]]:
        stages = Stages(tuple(about["levels"]), tuple(about["thresholds"]))
        visited = [level.sigma for level in evidence.votes]
        last = len(visited)
        if evidence.ledger.anytime and sigma in stages.levels:  # the last stage votes first
            last = stages.levels.index(sigma) + 1
        return {
            "stages": (stages, evidence.stages),
            "levels": (list(stages.levels[last - len(visited) : last]), visited),
            "level of the last stage": (visited[-1:], [sigma]),
            "candidates": (1, len({level.candidate for level in evidence.votes})),
        }

    def selection_rounds(self, evidence: Evidence) -> range:
        """Every stage up to the answering one, at most all of them."""
        assert evidence.stages is not None
        return range(len(evidence.votes), len(evidence.stages) + 1)

    def votes_fit(self, evidence: Evidence, n: int) -> bool:
        """n votes at the stage that answers, no more at earlier ones."""
        counted = [level.n for level in evidence.votes]
        return max(counted) == counted[-1] == n

    def largest_radius(self, selector: Selector, ledger: Ledger, n: int) -> float:
        stages = _stages(selector)
        best = bounds.class_radius(
            n, n, stages.levels, ledger.alpha_class, stages.thresholds, anytime=ledger.anytime
        )
        return float(best.max())

    def predict(self, sampler: Sampler, n: int, ledger: Ledger | None) -> list[Answer]:
        """Stage by stage, each with up to n votes and a = α/(L + 1): answer, pass on, or abstain.

        The class that leads is the answer if the lower confidence sequence of its votes reaches
        τ_j, or at an argmax stage if it leads significantly (`Method.predict`). Otherwise the next
        stage votes: freely if the upper confidence sequence of no class reaches τ_j, for one class
        alone if that of one class does. If several do, the cascade abstains. A stage that is
        decided, or is unlikely to be, stops voting.
        Inside R, let stage k answer A: no other class reaches its threshold before, or leads at k.
        Another class is answered at a stage j ≤ k only if one of the C − 1 lower bounds errs, each
        at a/(C − 1), and k, unless it is the last, leaves A out only if the upper bound of A errs:
        k + 1 errors, each ≤ a. If k leaves A open alone, later stages answer A or nothing.
        """
        stages = _stages(sampler.g.selector)
        a = None if ledger is None else ledger.alpha_class / (len(stages) + 1)
        answers: dict[int, Answer] = {}
        waiting = list(sampler.rows)
        open_classes: dict[int, set[int]] = {i: set() for i in waiting}
        samples = dict.fromkeys(waiting, 0)
        for j, level in enumerate(stages.levels):
            for i, votes in _stage_votes(sampler, stages, j, waiting, n, a).items():
                if a is not None:
                    check_votes_suffice(votes, n, max(stages.thresholds), a)
                prediction, possible = _stage_answer(stages, j, votes, a)
                open_classes[i] |= possible
                samples[i] += votes.n
                one = len(open_classes[i]) < 2
                answer = prediction if one else ABSTAIN
                answers[i] = Answer(answer, level, votes.counts, samples[i])
                if prediction != ABSTAIN or not one:
                    waiting.remove(i)
        return [answers[i] for i in sampler.rows]

    def suspect(self, answer: Answer | Any, candidate: int) -> bool:
        return answer.prediction not in (candidate, ABSTAIN)

    def contradicts(self, sampler: Sampler, candidate: int, n: int, a: float) -> bool:
        """Whether the deployed rule answers another class at an error a."""
        (answer,) = self.predict(sampler, n, self.ledger(a))
        return self.suspect(answer, candidate)


def _stages(selector: Selector) -> Stages:
    assert isinstance(selector, CascadeSelector)
    return selector.stages


def stage_radii(evidence: Evidence) -> list[float]:
    """X̂_1, …, X̂_{k−1} and Ĥ_k, for the class A of the votes; the last of them is stage k."""
    assert evidence.stages is not None
    stages, a, anytime = evidence.stages, evidence.ledger.alpha_class, evidence.ledger.anytime
    *early, last = evidence.votes
    stage = stages.levels.index(last.sigma)
    *others, tau = stages.thresholds[: stage + 1]
    if len(early) < len(others):
        return [-np.inf]  # a stage without votes may answer anything
    radii = [
        float(bounds.exclusion_radius(v.runner_up, v.n, v.sigma, a, threshold, anytime))
        for v, threshold in zip(early, others, strict=True)
    ]
    if stages.is_argmax(stage):
        return [*radii, last.radius(evidence.ledger)]
    return [*radii, float(bounds.class_radius(last.top, last.n, last.sigma, a, tau, anytime))]


def _stage_votes(
    sampler: Sampler, stages: Stages, j: int, rows: Sequence[int], n: int, a: float | None
) -> dict[int, LevelVotes]:
    """The deployed votes of some rows at stage j: all n without a guarantee, else until decided."""

    def decided(votes: LevelVotes) -> bool:
        if a is None:
            return False
        if stages.is_argmax(j):
            return lead_is_decided(votes, n, a)
        return _threshold_is_decided(votes, n, stages.thresholds[j], a)

    return sampler.vote_until(dict.fromkeys(rows, stages.levels[j]), n, decided)


def _threshold_is_decided(votes: LevelVotes, n: int, tau: float, a: float) -> bool:
    """Whether a class reaches the threshold, none does, or more votes would hardly tell.

    They would not if the class that leads does not reach it though lucky, and if those that do
    not fall below it though unlucky are several, or are all that is left open by now.
    """
    possible = _possible(votes.counts, votes.n, tau, a)
    if _reaches(votes, tau, a) or not possible:
        return True
    lucky = bounds.predicted_count(votes.top, votes.n, n, LUCKY)
    if bounds.log_e_value(lucky, n, tau) >= log_goal(votes, a):
        return False
    stays = _possible(bounds.predicted_count(votes.counts, votes.n, n, -LUCKY), n, tau, a)
    return len(stays) > 1 or stays == possible


def _reaches(votes: LevelVotes, tau: float, a: float) -> bool:
    return bool(bounds.log_e_value(votes.top, votes.n, tau) >= log_goal(votes, a))


def _possible(counts: ArrayLike, n: int, tau: float, a: float) -> set[int]:
    """The classes whose upper confidence sequence reaches the threshold."""
    below = bounds.log_e_value(n - np.asarray(counts), n, 1 - tau) >= -math.log(a)
    return set(np.flatnonzero(~below).tolist())


def _stage_answer(
    stages: Stages, j: int, votes: LevelVotes, a: float | None
) -> tuple[int, set[int]]:
    """The class that stage j answers or ABSTAIN, and the classes that it leaves open."""
    tau, answer = stages.thresholds[j], (votes.candidate, {votes.candidate})
    if a is None:
        enough = stages.is_argmax(j) or votes.top >= tau * votes.n
        return answer if enough else (ABSTAIN, set())
    if stages.is_argmax(j):
        return answer if leads(votes, a) else (ABSTAIN, set())
    return (
        answer if _reaches(votes, tau, a) else (ABSTAIN, _possible(votes.counts, votes.n, tau, a))
    )


def _with_share(ledger: Ledger, plan: "Plan", stages: Stages, options: Options, n: int) -> Ledger:
    """A bound for the runner-up where it pays: at the last stage, which answers argmax."""
    if not stages.is_argmax(plan.stage):
        return ledger
    return with_share(ledger, plan.selection, options, n)


def _plans(
    sampler: Sampler, stages: Stages, a: float, options: Options, n: int
) -> tuple[list["Plan"], list[int]]:
    """One plan per image from n0 draws at every stage that may matter, and the draws it took."""
    n0 = options.n0
    selection: list[list[list[int]]] = [[] for _ in sampler.rows]
    rows = list(sampler.rows)
    for stage, level in enumerate(stages.levels):
        votes = sampler.votes(dict.fromkeys(rows, (level, 0)), n0, purpose="class-selection")
        for i, counted in votes.items():
            selection[i].append(list(counted.counts))
        if stage + 1 < len(stages) and rows:
            improvable = can_improve(stages, np.array([selection[i] for i in rows]), n0, n, a)
            rows = [i for i, more in zip(rows, improvable, strict=True) if more]
        if not rows:
            break
    plans = [make_plan(stages, np.array(counts), n0, n, a, options.bound) for counts in selection]
    return plans, [n0 * len(counts) for counts in selection]


def _streams(plan: "Plan", stages: Stages, margin: bool) -> list[Stream]:
    """The stages up to the answering one; the earlier ones must exclude other classes."""
    return [
        Stream(
            stages.levels[j],
            plan.candidate,
            threshold=stages.thresholds[j],
            excludes=j != plan.stage,
            margin=margin and j == plan.stage,
            planned=votes,
        )
        for j, votes in enumerate(plan.votes)
    ]


@dataclass(frozen=True)
class Plan:
    """What to certify, fixed on the selection draws: the class, the stage, votes per stage.

    Attributes:
        selection: The selection draws at the stage that answers.
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
        """k*, 0-based: the stage that answers."""
        return len(self.votes) - 1


def make_plan(
    stages: Stages, selection: Integers, n0: int, n: int, a: float, bound: Bound = "best"
) -> Plan:
    """The class A and the stage k* from which the largest radius is to be expected.

    Stage k* gets n votes; an earlier one as many as are worth their price (`_early_votes`).
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
    excluding = _excluding(stages, quantiles.upper).min(axis=-2).max(axis=-1)
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
    lower, upper, lead = quantiles
    levels, taus = _columns(stages, lower.shape[-2])
    radius: Floats = levels * (lower - taus)  # H_k
    last = lower.shape[-2] - 1
    if stages.is_argmax(last):
        radius[..., last, :] = stages.levels[last] * lead[..., last, :]
    floor = np.minimum.accumulate(_excluding(stages, upper), axis=-2)  # min_{i ≤ j} X_i
    radius[..., 1:, :] = np.minimum(radius[..., 1:, :], floor[..., :-1, :])
    return radius


def _excluding(stages: Stages, upper: Floats) -> Floats:
    """X_j of every stage and class A."""
    levels, taus = _columns(stages, upper.shape[-2])
    return levels * (taus - upper)


def _columns(stages: Stages, seen: int) -> tuple[Floats, Floats]:
    """s_j and Φ⁻¹(τ_j) of the first stages, as columns."""
    levels = np.asarray(stages.levels[:seen])[:, None]
    return levels, bounds.normal_quantile(stages.thresholds[:seen])[:, None]


def expected_quantiles(
    selection: Integers, n0: int, n: int, a: float, bound: Bound = "best"
) -> Quantiles:
    """The quantiles that n votes should give, from counts (..., classes) of n0 selection draws."""
    classes = selection.shape[-1]
    counts = n * (selection + 1 / classes) / (n0 + 1)
    return vote_quantiles(counts, n, a, runner_up_pays(selection, n0, n, a, bound))


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


def runner_up_pays(
    selection: Integers, n0: int, n: int, a: float, bound: Bound = "best"
) -> NDArray[np.bool_]:
    """`bounds.runner_up_pays` for every class, from counts (..., classes) of n0 draws."""
    if bound == "cohen":
        return np.zeros(selection.shape, dtype=bool)
    return bounds.runner_up_pays(selection, _largest_other(selection), n0, n, a)


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
