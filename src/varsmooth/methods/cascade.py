"""A cascade of noise levels, chosen by the votes of f: Theorem C."""

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from varsmooth import bounds
from varsmooth.cascade import CascadeSelector, Stages
from varsmooth.certificates import Certificate, Prediction
from varsmooth.defaults import ABSTAIN, ALPHA_SELECT, Options
from varsmooth.evidence import Evidence, Ledger, LevelVotes
from varsmooth.methods.base import (
    ABSTAIN_EARLY_Z,
    Expected,
    Method,
    Selection,
    as_prediction,
    check_votes_suffice,
    lead_is_decided,
    leads,
    log_goal,
    with_share,
)
from varsmooth.methods.cascade_plan import Plan, can_improve, make_plan
from varsmooth.sampling import Sampler, VoteStream, looks_until
from varsmooth.smoothing import Selector


class Cascade(Method):
    """**Theorem C.** R = max_k min(H_k, min_{j<k} X_j): every x' with ‖x' − x‖ < R gets class A.

    The first stage j at which a class has p_j(c; x) ≥ τ_j returns it; the last one, if its τ is ½,
    returns its most likely class: a cascade of one stage is a fixed σ. Signed distances, exact
    because Φ⁻¹(p_j(c; ·)) is 1/s_j-Lipschitz:
    H_k = s_k [Φ⁻¹(p_k(A)) − Φ⁻¹(τ_k)]: closer than H_k, stage k returns A if it is reached; at an
    argmax stage s_k/2 [Φ⁻¹(p_k(A)) − Φ⁻¹(p_k(B))], B the runner-up;
    X_j = min_{c≠A} s_j [Φ⁻¹(τ_j) − Φ⁻¹(p_j(c))]: closer than X_j, stage j returns A or passes on.
    Proof: let k attain the maximum. At x' no stage j < k returns a class other than A, and stage
    k, if it is reached, returns A.

    **Estimate.** Selection draws at each stage fix A, k and the form of Ĥ_k (`methods.fixed`);
    fresh votes give Ĥ_k by CP⁻ and X̂_j by CP⁺, each at α: R̂ = min(Ĥ_k, min_{j<k} X̂_j).
    P(R̂ > R) ≤ α with no correction for stages or classes: given (A, k), R is a minimum of fixed
    numbers, and only the bound of the smallest can make R̂ too large.
    """

    name = "cascade"
    guarantee = "sound"
    kinds = ("sound",)
    certifies = CascadeSelector
    subject = "a cascade"
    chosen_by = "the stage that decides"

    def select(self, sampler: Sampler, ledger: Ledger, options: Options, n: int) -> list[Selection]:
        stages = _stages(sampler.g.selector)
        selections = []
        for plan, draws in _plans(sampler, stages, ledger.alpha_class, options, n):
            own = ledger
            if stages.is_argmax(plan.stage):
                own = with_share(ledger, plan.selection, options, n)
            streams = [
                VoteStream(
                    stages.levels[j],
                    plan.candidate,
                    threshold=stages.thresholds[j],
                    excludes=j != plan.stage,  # an earlier stage must not answer another class
                    margin=own.runner_up and j == plan.stage,
                    planned=votes,
                )
                for j, votes in enumerate(plan.votes)
            ]
            sigma = stages.levels[plan.stage]
            selections.append(Selection(sigma, own, streams, draws, stages=stages))
        return selections

    def radius(self, evidence: Evidence) -> float:
        return min(stage_radii(evidence))

    def complete(self, evidence: Evidence) -> bool:
        votes, stages = evidence.votes, evidence.stages
        if not votes or stages is None or len(stages.levels) != len(stages.thresholds):
            return False
        last = votes[-1].sigma
        return last in stages.levels and stages.levels.index(last) >= len(votes) - 1

    def audit(self, header: Mapping[str, Any], one: Certificate) -> Expected:
        about = header["selector"]
        stages = Stages(tuple(about["levels"]), tuple(about["thresholds"]))
        visited = [level.sigma for level in one.votes]
        last = len(visited)
        if one.ledger.anytime and one.sigma in stages.levels:  # the last stage votes first
            last = stages.levels.index(one.sigma) + 1
        return {
            "stages": (stages, one.stages),
            "levels": (list(stages.levels[last - len(visited) : last]), visited),
            "level of the last stage": (visited[-1:], [one.sigma]),
            "candidates": (1, len({level.candidate for level in one.votes})),
        }

    def selection_rounds(self, evidence: Evidence) -> range:
        """Every stage up to the deciding one, at most all of them."""
        assert evidence.stages is not None
        return range(len(evidence.votes), len(evidence.stages) + 1)

    def votes_fit(self, evidence: Evidence, n: int) -> bool:
        """n votes at the deciding stage, no more at earlier ones."""
        counted = [level.n for level in evidence.votes]
        return max(counted) == counted[-1] == n

    def largest_radius(self, selector: Selector, ledger: Ledger, n: int) -> float:
        stages = _stages(selector)
        best = bounds.class_radius(
            n, n, stages.levels, ledger.alpha_class, stages.thresholds, anytime=ledger.anytime
        )
        return float(best.max())

    def query_ledger(
        self, about: Mapping[str, Any], alpha: float, alpha_select: float = ALPHA_SELECT
    ) -> Ledger:
        """a = α/(L + 1) for each error that a query can make (`predict`)."""
        return replace(self.ledger(alpha), alpha_class=alpha / (len(about["levels"]) + 1))

    def predict(self, sampler: Sampler, n: int, ledger: Ledger | None) -> list[Prediction]:
        """Stage by stage, each with up to n votes and a = α/(L + 1): answer, pass on, or abstain.

        The class that leads is the answer if the lower confidence sequence of its votes reaches
        τ_j, or at an argmax stage if it leads significantly (`Method.predict`). Otherwise the next
        stage votes: freely if the upper confidence sequence of no class reaches τ_j, for one class
        alone if that of one class does. If several do, the cascade abstains. A stage that is
        decided, or is unlikely to be, stops voting.
        Inside R, let stage k return A: no other class reaches its threshold before, or leads at k.
        Another class is returned at a stage j ≤ k only if one of the C − 1 lower bounds errs, each
        at a/(C − 1), and k, unless it is the last, leaves A out only if the upper bound of A errs:
        k + 1 errors, each ≤ a. If k leaves A open alone, later stages return A or nothing.
        """
        stages = _stages(sampler.g.selector)
        a = None if ledger is None else ledger.alpha_class
        answers: dict[int, Prediction] = {}
        waiting = list(sampler.rows)
        open_classes: dict[int, set[int]] = {i: set() for i in waiting}
        samples = dict.fromkeys(waiting, 0)
        for j, level in enumerate(stages.levels):
            decided = partial(_is_decided, stages=stages, j=j, n=n, a=a)
            voted = sampler.vote_until(dict.fromkeys(waiting, level), looks_until(n), decided)
            for i, votes in voted.items():
                if a is not None:
                    check_votes_suffice(votes, n, max(stages.thresholds), a)
                answered, possible = _stage_answer(stages, j, votes, a)
                open_classes[i] |= possible
                samples[i] += votes.n
                one = len(open_classes[i]) < 2
                answers[i] = as_prediction(sampler, i, ledger, votes, answered and one, samples[i])
                if answered or not one:
                    waiting.remove(i)
        return [answers[i] for i in sampler.rows]

    def suspect(self, answer: Prediction, candidate: int) -> bool:
        return answer.prediction not in (candidate, ABSTAIN)

    def contradicts(self, sampler: Sampler, candidate: int, n: int, a: float) -> bool:
        """Whether the deployed rule returns another class at an error a."""
        ledger = self.query_ledger(sampler.g.selector.describe(), a)
        (answer,) = self.predict(sampler, n, ledger)
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
        return [-np.inf]  # a stage without votes may return any class
    radii = [
        float(bounds.exclusion_radius(v.runner_up, v.n, v.sigma, a, threshold, anytime))
        for v, threshold in zip(early, others, strict=True)
    ]
    if stages.is_argmax(stage):
        return [*radii, last.radius(evidence.ledger)]
    return [*radii, float(bounds.class_radius(last.top, last.n, last.sigma, a, tau, anytime))]


def _is_decided(votes: LevelVotes, stages: Stages, j: int, n: int, a: float | None) -> bool:
    """Whether stage j is decided, or further votes are unlikely to settle it.

    It is decided if a class reaches its threshold or none can. Further votes are unlikely to settle
    it if the leading class misses the threshold even under an optimistic prediction, and if the
    classes that a pessimistic one leaves possible are several, or all that are possible now.
    Without an α all n votes are taken.
    """
    if a is None:
        return False
    if stages.is_argmax(j):
        return lead_is_decided(votes, n, a)
    tau = stages.thresholds[j]
    possible = _possible(votes.counts, votes.n, tau, a)
    if _reaches(votes, tau, a) or not possible:
        return True
    optimistic = bounds.predicted_count(votes.top, votes.n, n, ABSTAIN_EARLY_Z)
    if bounds.log_e_value(optimistic, n, tau) >= log_goal(votes, a):
        return False
    stays = _possible(bounds.predicted_count(votes.counts, votes.n, n, -ABSTAIN_EARLY_Z), n, tau, a)
    return len(stays) > 1 or stays == possible


def _reaches(votes: LevelVotes, tau: float, a: float) -> bool:
    return bool(bounds.log_e_value(votes.top, votes.n, tau) >= log_goal(votes, a))


def _possible(counts: ArrayLike, n: int, tau: float, a: float) -> set[int]:
    """The classes whose upper confidence sequence reaches the threshold."""
    below = bounds.log_e_value(n - np.asarray(counts), n, 1 - tau) >= -math.log(a)
    return set(np.flatnonzero(~below).tolist())


def _stage_answer(
    stages: Stages, j: int, votes: LevelVotes, a: float | None
) -> tuple[bool, set[int]]:
    """Whether stage j returns the class that leads, and the classes that it leaves open."""
    tau, argmax = stages.thresholds[j], stages.is_argmax(j)
    if a is None:
        answers = argmax or votes.top >= tau * votes.n
    else:
        answers = leads(votes, a) if argmax else _reaches(votes, tau, a)
    if answers:
        return True, {votes.candidate}
    if argmax or a is None:
        return False, set()
    return False, _possible(votes.counts, votes.n, tau, a)


def _plans(
    sampler: Sampler, stages: Stages, a: float, options: Options, n: int
) -> list[tuple[Plan, int]]:
    """For each image a plan, from n0 draws at every stage that may matter, and these draws."""
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
    return [
        (make_plan(stages, np.array(counts), n0, n, a, options.bound), n0 * len(counts))
        for counts in selection
    ]
