"""certify_at: is the radius at least r? Decided with as few votes as the answer needs."""

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from varsmooth import bounds
from varsmooth.cascade import CascadeSelector, Plan, Stages
from varsmooth.certificates import ABSTAIN, GUARANTEES, Decision, Decisions, Reason
from varsmooth.certification import (
    cascade_plans,
    certificate_ledger,
    certificate_method,
    check_method,
    deployed_draws,
    levels_by_distance,
)
from varsmooth.defaults import ALPHA, ALPHA_SELECT, N0, N_SELECT
from varsmooth.errors import require
from varsmooth.evidence import LevelVotes, SelectorEvidence
from varsmooth.noise import CHUNK
from varsmooth.sampling import Ids, Sampler
from varsmooth.smoothing import SmoothedClassifier, check_smoothed, evaluation_mode

GIVE_UP = 1e-3
"""The chance of a "yes" below which voting ends. It costs power, never the guarantee."""


@dataclass(frozen=True)
class Statement:
    """What the votes at one level must show, for one image: a success probability above p0.

    excludes: a success is a vote that does not go to the runner-up (a stage of a cascade that
    must not answer another class); otherwise it is a vote for the candidate.
    """

    level: float
    candidate: int
    p0: float
    excludes: bool = False

    def successes(self, votes: LevelVotes) -> int:
        return votes.n - votes.runner_up if self.excludes else votes.top


def certify_at(
    g: SmoothedClassifier,
    x: Tensor,
    radius: float,
    *,
    alpha: float = ALPHA,
    n0: int = N0,
    n_max: int = 100_000,
    n_select: int = N_SELECT,
    alpha_select: float = ALPHA_SELECT,
    method: Literal["sound", "conditional"] = "sound",
    band: bool = True,
    seed: int | None = None,
    ids: Ids = None,
    batch_size: int | None = None,
) -> Decisions:
    """Decide for every image whether its radius is at least `radius`, with few votes.

    At level σ the hypothesis p ≤ Φ(r/σ) is tested by an e-process (`bounds.log_e_value`), which
    may be looked at after every vote: certify as soon as E ≥ 1/α. With a grid, every level with
    D̂_j < r must pass at α − alpha_select. With a cascade, stage k* must show
    p_k*(A) > Φ(r/s_k* + Φ⁻¹(τ_k*)), and every earlier one p_j(c) < Φ(Φ⁻¹(τ_j) − r/s_j) for all
    c ≠ A. The first statement that fails ends it, and no correction for their number is needed:
    P(certified although the true radius is < r) ≤ α.
    A "no" comes when an upper confidence bound rules a "yes" out, when the votes left up to
    n_max, as predicted from those seen, would certify with a chance below GIVE_UP, or after n_max
    votes on a statement.

    Args:
        g: The smoothed classifier.
        x: Images (B,C,H,W) in [0,1].
        radius: r ≥ 0; 0 asks whether anything can be certified.
        alpha: Maximum probability, per image, of a false "yes".
        n0: Selection draws.
        n_max: Most votes on a statement.
        n_select: Samples of h.
        alpha_select: The part of α for the bounds on h.
        method: "conditional" assumes that the attacker does not move σ.
        band: Cover the deployed `predict`, see `certify`.
        seed: None takes fresh entropy.
        ids: Names of the images' noise streams; 0, 1, … by default.
        batch_size: Noisy images per forward pass; never changes a result.

    Returns:
        One `Decision` per image.
    """
    check_smoothed(g, x)
    require(0 <= radius < math.inf, f"radius must be ≥ 0 and finite, not {radius}")
    require(min(n0, n_max, n_select) >= 1, "n0, n_max and n_select must be at least 1")
    check_method(method)
    kind = certificate_method(g.selector, method)
    dual = kind == "sound"
    ledger = certificate_ledger(kind, alpha, alpha_select, deployed_draws(g.selector, band))
    a = ledger.alpha_class
    require(
        bool(bounds.log_e_value(n_max, n_max, 0.5) >= -math.log(a)),
        f"at alpha={alpha:g} no vote of n_max={n_max} can certify any radius; raise n_max",
    )
    sampler = Sampler(g, x, g.noise(len(x), seed, ids), batch_size)
    everyone = sampler.everyone
    selector: Sequence[SelectorEvidence | None] = [None for _ in everyone]
    stages = g.selector.stages if isinstance(g.selector, CascadeSelector) else None
    drawn = [n0 for _ in everyone]
    if stages is not None:
        plans, drawn = cascade_plans(sampler, stages, a, n0, n_max)
        statements = [_of_cascade(plan, stages, radius) for plan in plans]
        candidates = [plan.candidate for plan in plans]
        sigma = [stages.levels[plan.stage] for plan in plans]
    else:
        sigma = sampler.nominal_levels(n0) if dual else sampler.chosen_levels()
        candidates = sampler.candidates(everyone, sigma, n0)
        levels = [[level] for level in sigma]
        if dual:
            selector = evidence = sampler.selector_evidence(n_select)
            levels = [
                [s for d, s in levels_by_distance(seen, ledger) if d < radius or d == 0]
                for seen in evidence
            ]
        statements = [
            [Statement(s, c, float(bounds.normal_cdf(radius / s))) for s in found]
            for c, found in zip(candidates, levels, strict=True)
        ]
    test = SequentialTest(sampler, a, n_max)
    with evaluation_mode(g):  # once for all the looks
        for visit in range(max(len(found) for found in statements)):
            rows = [i for i in everyone if visit < len(statements[i]) and test.passed(i)]
            test.run({i: statements[i][visit] for i in rows})
    return Decisions(
        tuple(
            Decision(
                certified=test.passed(i),
                prediction=candidates[i] if test.passed(i) else ABSTAIN,
                radius=radius,
                sigma=sigma[i],
                guarantee=GUARANTEES[kind],
                reason=test.reasons[i],
                samples=drawn[i] + sum(level.n for level in test.votes[i]),
                ledger=ledger,
                votes=tuple(test.votes[i]),
                selector=selector[i],
                stages=stages,
                id=sampler.noise.ids[i],
                seed=sampler.noise.seed,
            )
            for i in everyone
        )
    )


def _of_cascade(plan: Plan, stages: Stages, radius: float) -> list[Statement]:
    """What R ≥ r asks of the stages: the answering one first, as it fails most often."""
    statements = []
    for j in range(plan.stage, -1, -1):
        level, z = stages.levels[j], float(bounds.normal_quantile(stages.thresholds[j]))
        answers = j == plan.stage
        shift = z + radius / level if answers else radius / level - z
        p0 = float(bounds.normal_cdf(shift))  # 1 − Φ(z − r/s) = Φ(r/s − z)
        statements.append(Statement(level, plan.candidate, p0, excludes=not answers))
    return statements


class SequentialTest:
    """Votes against e-processes, one statement after another; a failed one ends its image.

    The hypothesis that the success probability is ≤ p0 is rejected as soon as E ≥ 1/a. An image
    stays in while none of its statements has failed.
    """

    def __init__(self, sampler: Sampler, a: float, n_max: int) -> None:
        self.sampler, self.goal, self.a, self.n_max = sampler, -math.log(a), a, n_max
        self.votes: list[list[LevelVotes]] = [[] for _ in sampler.everyone]
        self.reasons: list[Reason] = ["certified" for _ in sampler.everyone]

    def passed(self, row: int) -> bool:
        """No statement about this image has failed."""
        return self.reasons[row] == "certified"

    def run(self, statements: dict[int, Statement]) -> None:
        """Vote on one statement per row until each is decided."""
        running, votes = dict(statements), dict[int, LevelVotes]()
        for start, stop in _looks(self.n_max):
            if not running:
                return
            rows = list(running)
            new = self.sampler.votes(
                rows,
                [running[i].level for i in rows],
                [running[i].candidate for i in rows],
                stop,
                start,
            )
            for i, more in zip(rows, new, strict=True):
                votes[i] = votes[i].add(more) if i in votes else more
            verdicts = self._verdicts([running[i] for i in rows], [votes[i] for i in rows], stop)
            for i, verdict in zip(rows, verdicts, strict=True):
                if verdict is not None:
                    self.votes[i].append(votes[i])
                    self.reasons[i] = verdict
                    del running[i]

    def _verdicts(
        self, statements: Sequence[Statement], votes: Sequence[LevelVotes], n: int
    ) -> list[Reason | None]:
        """What n votes say about each statement; None: go on."""
        top = np.array([s.successes(v) for s, v in zip(statements, votes, strict=True)])
        p0 = np.array([s.p0 for s in statements])
        p0 = np.minimum(p0, np.nextafter(1.0, 0.0))  # r far beyond σ: no number of votes reaches it
        certified = bounds.log_e_value(top, n, p0) >= self.goal
        other: Reason | None = "undecided" if n >= self.n_max else None
        needed = np.array([votes_needed(self.n_max, p, self.goal) for p in p0.tolist()])
        hopeless = chance_of(needed, self.n_max, top, n) < GIVE_UP
        unlikely = bounds.clopper_pearson_upper(top, n, self.a) < p0
        futile = (unlikely | hopeless) & (n < self.n_max)
        return [
            "certified" if yes else "futile" if no else other
            for yes, no in zip(certified, futile, strict=True)
        ]


@cache
def votes_needed(n: int, p0: float, goal: float) -> int:
    """The fewest of n votes whose log E against p ≤ p0 reaches the goal; n + 1 if none does."""
    counts = range(math.ceil(n * p0), n + 1)  # below p0 n they are no evidence
    first = bisect_left(counts, goal, key=lambda top: float(bounds.log_e_value(top, n, p0)))
    return counts.start + first


def chance_of(
    needed: NDArray[np.int64], n_max: int, top: NDArray[np.int64], n: int
) -> NDArray[np.float64]:
    """P(at least `needed` of n_max votes | `top` of the first n), as a Bayesian predicts it.

    p ~ Beta(½ + top, ½ + n − top), and the rest = n_max − n votes are binomial: those for the
    candidate have the mean rest · p̂, p̂ = (½ + top)/(n + 1), and the variance
    rest · p̂ (1 − p̂) (n + 1 + rest)/(n + 2). Normal approximation; exactly 0 where even all of
    them are too few.
    """
    rest, p = n_max - n, (0.5 + top) / (n + 1)
    spread = np.sqrt(rest * p * (1 - p) * (n + 1 + rest) / (n + 2))
    missing = needed - top
    with np.errstate(divide="ignore", invalid="ignore"):  # no votes left, no spread
        chance = bounds.normal_cdf((rest * p - missing + 0.5) / spread)
    return np.where(missing > rest, 0.0, chance)


def _looks(n_max: int) -> Iterator[tuple[int, int]]:
    """Draws start..stop-1 of each look: CHUNK at first, later an eighth of what was seen."""
    start = 0
    while start < n_max:
        step = max(1, start // (8 * CHUNK)) * CHUNK
        yield start, min(start + step, n_max)
        start += step
