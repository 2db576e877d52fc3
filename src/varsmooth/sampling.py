"""The draws behind a certificate, each for one purpose and never reused."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from varsmooth import bounds
from varsmooth.evidence import LevelVotes
from varsmooth.noise import CHUNK, NoiseStream
from varsmooth.smoothing import SmoothedClassifier, evaluation_mode

EARLY_STOP_ERROR = 1e-6
"""Probability that a plain majority that stopped early is not that of all n votes."""


@dataclass
class VoteStream:
    """The votes of one image at one level, and what a radius r claims about them.

    R ≥ r needs a success probability above p0(r), or an entry distance of the level of r or more.
    A success is a vote for the candidate: p0 = Φ(r/s + Φ⁻¹(τ)). At a stage of a cascade that must
    not return another class (excludes) it is a vote that does not go to the runner-up:
    p0 = Φ(r/s − Φ⁻¹(τ)). With `margin`, R ≥ r is a statement about the votes for the candidate and
    those for the runner-up (`bounds.margin_radius`).

    Attributes:
        level: s, the noise level.
        candidate: The class of the statement, chosen on other draws.
        distance: No x' closer than this has the level.
        planned: Votes to count, where their number is fixed beforehand.
        votes: The votes so far.
        proven: The largest radius that a look has shown here.
        best: The votes at that look. All looks hold at once, so the best may be chosen afterwards.
        attainable: The radius that the largest number of votes should prove.
    """

    level: float
    candidate: int
    distance: float = 0.0
    threshold: float = 0.5
    excludes: bool = False
    margin: bool = False
    planned: int = 0
    votes: LevelVotes | None = None
    best: LevelVotes | None = None
    proven: float = -math.inf
    attainable: float = math.inf

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
        """The radius of this level: no x' closer than this gets another class here."""
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
        """Whether the level can be reached closer than the radius."""
        return self.distance < radius or self.distance == 0


@dataclass(frozen=True)
class Sampler:
    """Draws from g at a batch of images (B,C,H,W), under one noise stream.

    Rows are positions in the batch; levels are plain floats, one per row.
    """

    g: SmoothedClassifier
    x: Tensor
    noise: NoiseStream
    batch_size: int | None

    @property
    def rows(self) -> Sequence[int]:
        """All rows of the batch."""
        return range(len(self.x))

    def chosen_levels(self) -> list[float]:
        """σ as a deployed prediction chooses it."""
        with evaluation_mode(self.g), torch.no_grad():
            levels: list[float] = self.g.selector(self.x, self.noise, self.batch_size).tolist()
        return levels

    def candidates(self, rows: Sequence[int], levels: Sequence[float], n0: int) -> list[LevelVotes]:
        """n0 selection draws at one level per row; the candidate is the class most of them name."""
        at = {row: (level, 0) for row, level in zip(rows, levels, strict=True)}
        votes = self.votes(at, n0, purpose="class-selection").values()
        return [one.with_leader for one in votes]

    def votes(
        self, at: Mapping[int, tuple[float, int]], n: int, start: int = 0, purpose: str = "votes"
    ) -> dict[int, LevelVotes]:
        """Draws start..n-1 of some rows, each at its own (level, candidate).

        Levels share their noise, rows never do.
        """
        counts = self.counts(list(at), [level for level, _ in at.values()], n, purpose, start)
        classes = counts.shape[1] - (self.g.gate is not None)
        return {
            row: LevelVotes(level, candidate, tuple(votes[:classes]), sum(votes[classes:]))
            for (row, (level, candidate)), votes in zip(at.items(), counts.tolist(), strict=True)
        }

    def counts(
        self, rows: Sequence[int], levels: Sequence[float], n: int, purpose: str, start: int = 0
    ) -> Tensor:
        """Votes of draws start..n-1 for `purpose`, at one level per row: (rows, classes).

        The gate of a cascade adds a last column, the votes that it turned into "pass".
        """
        x = self.x[list(rows)]
        sigma = torch.tensor(levels, dtype=x.dtype, device=x.device)
        noise = self.noise.rows(rows)
        return self.g.count_votes(x, n, sigma, noise, purpose, start, self.batch_size)

    def vote_until(
        self,
        levels: Mapping[int, float],
        looks: Sequence[int],
        decided: Callable[[LevelVotes], bool],
    ) -> dict[int, LevelVotes]:
        """Deployed votes of some rows, of each row until a look finds them decided.

        The candidate of a row is the class that leads.
        """
        votes: dict[int, LevelVotes] = {}
        waiting, done = {row: (level, 0) for row, level in levels.items()}, 0
        for end in looks:
            if not waiting:
                break
            for row, more in self.votes(waiting, end, done, "predict").items():
                votes[row] = (votes[row].add(more) if row in votes else more).with_leader
            waiting = {row: at for row, at in waiting.items() if not decided(votes[row])}
            done = end
        return votes

    def majority(self, levels: Mapping[int, float], n: int) -> dict[int, LevelVotes]:
        """The first of n deployed votes of some rows, until the majority of all n is known.

        It is known if the rest cannot change it, or is very unlikely to: suppose that the majority
        of all n is for c. Their order is random, so that among the votes for c and another class
        those for the other one lead by chance, P ≤ P(Bin(a + b, ½) ≥ a). EARLY_STOP_ERROR is shared
        among the other classes and the looks.
        """
        looks = _majority_looks(n)

        def known(votes: LevelVotes) -> bool:
            p_value = bounds.lead_p_value(votes.top, votes.runner_up)
            unlikely = p_value <= EARLY_STOP_ERROR / (len(looks) * (len(votes.counts) - 1))
            return bool(unlikely or votes.top - votes.runner_up > n - votes.n)

        return self.vote_until(levels, looks, known)


def next_look(n: int, n_max: int) -> int:
    """When to look again after n votes: CHUNK later at first, later after an eighth more."""
    return min(n + max(1, n // (8 * CHUNK)) * CHUNK, n_max)


def looks_until(n: int) -> list[int]:
    """After how many of n votes to look whether they are decided."""
    looks = [next_look(0, n)]
    while looks[-1] < n:
        looks.append(next_look(looks[-1], n))
    return looks


def _majority_looks(n: int) -> list[int]:
    """After how many votes a majority of n is looked at: 32, 48, 64, 96, 128, 192, … and n.

    >>> _majority_looks(200)
    [32, 48, 64, 96, 128, 192, 200]
    """
    ends = sorted(32 * 2**k + 16 * 2**k * half for k in range(n.bit_length()) for half in (0, 1))
    return [*(end for end in ends if end < n), n]
