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
from varsmooth.certificates import (
    ABSTAIN,
    GUARANTEES,
    Guarantee,
    Ledger,
    LevelVotes,
    Results,
    SelectorEvidence,
)
from varsmooth.certification import certificate_kind, open_ledger
from varsmooth.errors import require
from varsmooth.noise import CHUNK
from varsmooth.sampling import Gathering
from varsmooth.smoothing import SmoothedClassifier, evaluation_mode

Reason = Literal["certified", "futile", "undecided"]

GIVE_UP = 1e-3
"""The chance of a "yes" below which voting ends. It costs power, never the guarantee."""


@dataclass(frozen=True)
class Decision:
    """One image's answer to "is the certified radius at least `radius`?".

    certified: yes, with the meaning of `guarantee` at level α. prediction: the class, or ABSTAIN.
    reason: `futile` if the votes speak against it, or those still to come had no real chance to
    certify; `undecided` if n_max votes did not suffice; neither claims that the true radius is
    smaller. samples: noisy images that f was shown.
    """

    certified: bool
    prediction: int
    radius: float
    sigma: float
    guarantee: Guarantee
    reason: Reason
    samples: int
    ledger: Ledger
    votes: tuple[LevelVotes, ...]
    selector: SelectorEvidence | None
    id: int
    seed: int


class Decisions(Results[Decision]):
    """What `certify_at` returns for a batch."""

    @property
    def certified(self) -> list[bool]:
        return [item.certified for item in self.items]

    @property
    def samples(self) -> list[int]:
        """Noisy images that f was shown, per image."""
        return [item.samples for item in self.items]


def certify_at(
    g: SmoothedClassifier,
    x: Tensor,
    radius: float,
    alpha: float = 1e-3,
    *,
    n0: int = 100,
    n_max: int = 100_000,
    n_select: int = 1001,
    alpha_select: float = 1e-5,
    method: Literal["sound", "conditional"] = "sound",
    band: bool = True,
    seed: int | None = None,
    ids: Sequence[int] | Tensor | None = None,
    batch_size: int | None = None,
) -> Decisions:
    """Decide for every image of x (B,C,H,W) whether its radius is at least `radius`.

    At level σ the hypothesis p ≤ Φ(r/σ) is tested by an e-process (`bounds.log_e_value`), which
    may be looked at after every vote: certify as soon as E ≥ 1/α. With a grid, every level with
    D̂_j < r must pass at α − alpha_select, and the first that fails ends it; no correction for
    the number of levels is needed. P(certified although the true radius is < r) ≤ α.
    A "no" comes when an upper confidence bound falls below Φ(r/σ), when the votes left up to n_max,
    as predicted from those seen, would certify with a chance below GIVE_UP, or after n_max votes a
    level.
    """
    g.check(x)
    require(0 < radius < math.inf, f"radius must be positive and finite, not {radius}")
    require(min(n0, n_max, n_select) >= 1, "n0, n_max and n_select must be at least 1")
    require(
        method in ("sound", "conditional"),
        f"certify_at knows the methods 'sound' and 'conditional', not {method!r}",
    )
    kind = certificate_kind(g, method, distance=None, every_index=False)
    ledger = open_ledger(g, kind, alpha, alpha_select, band)
    require(
        bool(bounds.log_e_value(n_max, n_max, 0.5) >= -math.log(ledger.alpha_class)),
        f"at alpha={alpha:g} no vote of n_max={n_max} can certify any radius; raise n_max",
    )
    gather = Gathering(g, x, g.noise(len(x), seed, ids), batch_size)
    dual = kind == "sound"
    sigma = gather.nominal_levels(n0) if dual else gather.chosen_levels()
    candidates = gather.candidates(gather.everyone, sigma, n0)
    selector: Sequence[SelectorEvidence | None] = [None for _ in sigma]
    plans = [[level] for level in sigma]
    if dual:
        selector = gather.selector_evidence(n_select)
        plans = [_reachable(gather, evidence, ledger, radius) for evidence in selector if evidence]

    race = _Race(gather, ledger, radius, candidates, n_max)
    with evaluation_mode(g):  # once for all the looks
        for visit in range(max(len(plan) for plan in plans)):
            rows = [i for i in gather.everyone if visit < len(plans[i]) and race.leads(i)]
            race.run(rows, [plans[i][visit] for i in rows])
    return Decisions(
        tuple(
            Decision(
                certified=race.leads(i),
                prediction=candidates[i] if race.leads(i) else ABSTAIN,
                radius=radius,
                sigma=sigma[i],
                guarantee=GUARANTEES[kind],
                reason=race.reasons[i],
                samples=n0 + sum(level.n for level in race.votes[i]),
                ledger=ledger,
                votes=tuple(race.votes[i]),
                selector=selector[i],
                id=gather.noise.ids[i],
                seed=gather.noise.seed,
            )
            for i in gather.everyone
        )
    )


def _reachable(
    gather: Gathering, evidence: SelectorEvidence, ledger: Ledger, radius: float
) -> list[float]:
    """Grid levels that an x' within `radius` may have, the most likely ones first."""
    distances = evidence.entry_distances(ledger)
    order = np.argsort(distances, kind="stable")
    return [gather.levels[j] for j in order if distances[j] < radius]


class _Race:
    """Votes of f against the e-process, level by level; an image leads while no level failed."""

    def __init__(
        self,
        gather: Gathering,
        ledger: Ledger,
        radius: float,
        candidates: Sequence[int],
        n_max: int,
    ) -> None:
        self.gather, self.ledger, self.radius = gather, ledger, radius
        self.candidates, self.n_max = candidates, n_max
        self.votes: list[list[LevelVotes]] = [[] for _ in candidates]
        self.reasons: list[Reason] = ["certified" for _ in candidates]

    def leads(self, row: int) -> bool:
        return self.reasons[row] == "certified"

    def run(self, rows: Sequence[int], levels: Sequence[float]) -> None:
        """Vote at one level per row until each is decided."""
        running = {
            i: LevelVotes(s, self.candidates[i], ()) for i, s in zip(rows, levels, strict=True)
        }
        for start, stop in _looks(self.n_max):
            if not running:
                return
            here = list(running)
            counts = self.gather.counts(
                here, [running[i].sigma for i in here], stop, "votes", start
            ).tolist()
            seen = [running[i].add(new) for i, new in zip(here, counts, strict=True)]
            for i, level, verdict in zip(here, seen, self._verdicts(seen, stop), strict=True):
                running[i] = level
                if verdict is not None:
                    self.votes[i].append(running.pop(i))
                    self.reasons[i] = verdict

    def _verdicts(self, levels: Sequence[LevelVotes], n: int) -> list[Reason | None]:
        """What n votes say about each level; None: go on."""
        top = np.array([level.counts[level.candidate] for level in levels])
        p0 = bounds.normal_cdf(self.radius / np.array([level.sigma for level in levels]))
        p0 = np.minimum(p0, np.nextafter(1.0, 0.0))  # r far beyond σ: no number of votes reaches it
        goal = -math.log(self.ledger.alpha_class)
        certified = bounds.log_e_value(top, n, p0) >= goal
        other: Reason | None = "undecided" if n >= self.n_max else None
        needed = np.array([votes_needed(self.n_max, p, goal) for p in p0.tolist()])
        hopeless = chance_of(needed, self.n_max, top, n) < GIVE_UP
        unlikely = bounds.clopper_pearson_upper(top, n, self.ledger.alpha_class) < p0
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
