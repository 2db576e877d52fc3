"""Streams of votes that are looked at as they come: what they prove, and when to give up."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from varsmooth import bounds
from varsmooth.bounds import Floats
from varsmooth.cascade import Stages
from varsmooth.certificates import Certificates, Reason
from varsmooth.evidence import Ledger, LevelVotes, Method, SelectorEvidence
from varsmooth.noise import CHUNK
from varsmooth.sampling import Sampler

GIVE_UP = 0.03
"""The chance of a "yes" below which voting ends. It costs power, never the guarantee; what it
saves is in benchmarks/README.md, *What was changed*."""


@dataclass
class Stream:
    """The votes of one image at one level, and the statement that a radius makes about them.

    R ≥ r needs a success probability above p0(r), or an entry distance of the level of r or more.
    A success is a vote for the candidate: p0 = Φ(r/s + Φ⁻¹(τ)). At a stage of a cascade that must
    not return another class (excludes) it is a vote that does not go to the runner-up:
    p0 = Φ(r/s − Φ⁻¹(τ)).

    Attributes:
        votes: The votes so far.
        proven: The largest radius that a look has shown here.
        best: The votes at that look. All looks hold at once, so the best may be chosen afterwards.
        promise: The radius that n_max votes should prove.
    """

    level: float
    candidate: int
    distance: float = 0.0
    threshold: float = 0.5
    excludes: bool = False
    votes: LevelVotes | None = None
    best: LevelVotes | None = None
    proven: float = -math.inf
    promise: float = math.inf

    @property
    def n(self) -> int:
        return 0 if self.votes is None else self.votes.n

    @property
    def successes(self) -> int:
        assert self.votes is not None
        return self.votes.n - self.votes.runner_up if self.excludes else self.votes.top

    def prove(self, radius: float) -> None:
        """The votes so far show this radius."""
        if self.best is None or radius > self.proven:
            self.proven, self.best = radius, self.votes

    @property
    def radius(self) -> float:
        """What is known of this level: no x' nearer than this answers another class here."""
        return max(self.distance, self.proven)

    @property
    def shift(self) -> float:
        """Φ⁻¹(p0(0))."""
        z = float(bounds.normal_quantile(self.threshold))
        return -z if self.excludes else z

    def p0(self, radius: float) -> float:
        """The success probability above which the radius is at least this, here."""
        p0 = float(bounds.normal_cdf(radius / self.level + self.shift))
        return min(p0, math.nextafter(1.0, 0.0))  # r far beyond σ: no number of votes reaches it

    def matters(self, radius: float) -> bool:
        """Whether the level can be reached nearer than the radius."""
        return self.distance < radius or self.distance == 0


@dataclass(frozen=True)
class Voting:
    """Votes of a batch of images, in streams: one for each level of an image that may matter.

    The bounds of each stream fail with probability ≤ α_c, at all looks together.

    Attributes:
        n_max: The most votes of a stream.
        sigma: The level chosen for each image.
        drawn: The draws that this choice took, for each image.
    """

    kind: Method
    ledger: Ledger
    sampler: Sampler
    streams: Sequence[Sequence[Stream]]
    n_max: int
    sigma: Sequence[float]
    drawn: Sequence[int]
    selector: Sequence[SelectorEvidence] | None = None
    stages: Stages | None = None

    def certificates(self) -> Certificates:
        """What follows from the votes so far, of each stream at its best look."""
        streams = [[s for s in row if s.votes is not None] for row in self.streams]
        self.measure([stream for row in streams for stream in row])
        if self.stages is not None:  # in the order of the stages, the answering one last
            streams = [row[::-1] for row in streams]
        votes = [[s.best for s in row if s.best is not None] for row in streams]
        samples = [n + sum(s.n for s in row) for n, row in zip(self.drawn, streams, strict=True)]
        return self.sampler.certificates(
            self.kind, self.ledger, votes, self.sigma, samples, self.selector, self.stages
        )

    def draw(self, chosen: dict[int, Stream]) -> None:
        """Votes up to the next look, for one stream of each row; equal looks share batches."""
        looks: dict[int, list[int]] = {}
        for row, stream in chosen.items():
            looks.setdefault(stream.n, []).append(row)
        for start, rows in looks.items():
            at = {row: (chosen[row].level, chosen[row].candidate) for row in rows}
            found = self.sampler.votes(at, next_look(start, self.n_max), start)
            for row, more in found.items():
                stream = chosen[row]
                stream.votes = more if stream.votes is None else stream.votes.add(more)

    def verdicts(self, streams: Sequence[Stream], radii: Sequence[float]) -> list[Reason | None]:
        """What the votes of each stream say about its radius; None: go on voting.

        certified: E ≥ 1/a. futile: an upper confidence bound rules that out, or the votes left up
        to n_max, as predicted from those seen, would certify with a chance below GIVE_UP.
        """
        n, top = self._counts(streams)
        p0 = np.array([s.p0(r) for s, r in zip(streams, radii, strict=True)])
        goal = -math.log(self.ledger.alpha_class)
        certified = bounds.log_e_value(top, n, p0) >= goal
        needed = np.array([votes_needed(self.n_max, p, goal) for p in p0.tolist()])
        hopeless = chance_of(needed, self.n_max, top, n) < GIVE_UP
        unlikely = bounds.clopper_pearson_upper(top, n, self.ledger.alpha_class) < p0
        rows = zip(certified, unlikely | hopeless, n >= self.n_max, strict=True)
        return [
            "certified" if yes else "undecided" if end else "futile" if no else None
            for yes, no, end in rows
        ]

    def measure(self, streams: Sequence[Stream]) -> None:
        """What radius the votes of each stream prove so far."""
        n, top = self._counts(streams)
        for stream, radius in zip(streams, self._radii(streams, top, n), strict=True):
            stream.prove(radius)

    def predict(self, streams: Sequence[Stream]) -> None:
        """What radius n_max votes should prove, by the mean of the successes (`chance_of`)."""
        n, top = self._counts(streams)
        expected = top + (self.n_max - n) * (0.5 + top) / (n + 1)
        of = np.full_like(n, self.n_max)
        for stream, radius in zip(streams, self._radii(streams, expected, of), strict=True):
            stream.promise = radius

    def _radii(self, streams: Sequence[Stream], top: Floats, n: Floats) -> list[float]:
        """The radius r with p0(r) = the bound from `top` successes in n votes, per stream."""
        level = np.array([stream.level for stream in streams])
        shift = np.array([stream.shift for stream in streams])
        quantile = bounds.normal_quantile(bounds.anytime_lower(top, n, self.ledger.alpha_class))
        radii: list[float] = (level * (quantile - shift)).tolist()
        return radii

    @staticmethod
    def _counts(streams: Sequence[Stream]) -> tuple[Floats, Floats]:
        """(votes, successes) of each stream."""
        n = np.array([stream.n for stream in streams], dtype=np.float64)
        return n, np.array([stream.successes for stream in streams], dtype=np.float64)


@lru_cache(maxsize=10_000)
def votes_needed(n: int, p0: float, goal: float) -> int:
    """The fewest of n votes whose log E against p ≤ p0 reaches the goal; n + 1 if none does."""
    counts = range(math.ceil(n * p0), n + 1)  # below p0 n they are no evidence
    first = bisect_left(counts, goal, key=lambda top: float(bounds.log_e_value(top, n, p0)))
    return counts.start + first


def chance_of(needed: ArrayLike, n_max: int, top: ArrayLike, n: ArrayLike) -> Floats:
    """P(at least `needed` of n_max votes | `top` of the first n), as a Bayesian predicts it.

    p ~ Beta(½ + top, ½ + n − top), and the rest = n_max − n votes are binomial: those for the
    candidate have the mean rest · p̂, p̂ = (½ + top)/(n + 1), and the variance
    rest · p̂ (1 − p̂) (n + 1 + rest)/(n + 2). Normal approximation; exactly 0 where even all of
    them are too few.
    """
    needed, top, n = (np.asarray(value, dtype=np.float64) for value in (needed, top, n))
    rest, p = n_max - n, (0.5 + top) / (n + 1)
    spread = np.sqrt(rest * p * (1 - p) * (n + 1 + rest) / (n + 2))
    missing = needed - top
    with np.errstate(divide="ignore", invalid="ignore"):  # no votes left, no spread
        chance = bounds.normal_cdf((rest * p - missing + 0.5) / spread)
    return np.where(missing > rest, 0.0, chance)


def next_look(n: int, n_max: int) -> int:
    """When to look again after n votes: CHUNK later at first, later after an eighth more."""
    return min(n + max(1, n // (8 * CHUNK)) * CHUNK, n_max)
