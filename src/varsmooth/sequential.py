"""Sequential certification: votes are drawn until a statement about the radius is decided."""

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from varsmooth import bounds
from varsmooth.bounds import Floats
from varsmooth.certificates import Certificate, Reason
from varsmooth.defaults import Options
from varsmooth.errors import check
from varsmooth.evidence import Ledger
from varsmooth.methods.base import Method, Selection
from varsmooth.rounding import rounded
from varsmooth.sampling import Sampler, VoteStream, next_look

FUTILITY = 0.03
"""The chance of a "yes" below which voting ends. It costs power, never the guarantee; what it
saves is in benchmarks/README.md."""

FUTILITY_Z = float(bounds.normal_quantile(1 - FUTILITY / 2))
"""Standard deviations above their prediction that votes exceed with probability FUTILITY / 2."""


@dataclass(frozen=True)
class Voting:
    """Votes of a batch of images, in streams: one for each level of an image that may matter.

    The bounds of each stream fail with probability ≤ α_c, at all looks together.

    Attributes:
        method: The certificate method.
        selections: What the selection draws fixed.
        n_max: The most votes of a stream.
    """

    method: Method
    ledger: Ledger
    sampler: Sampler
    selections: Sequence[Selection]
    n_max: int

    @classmethod
    def prepare(
        cls, method: Method, ledger: Ledger, sampler: Sampler, options: Options, smallest: float
    ) -> "Voting":
        """Selection draws, if n_max votes can reach the smallest of the radii."""
        n_max, alpha = options.n_max, f"at `alpha={ledger.alpha:g}`"
        check(
            bool(bounds.log_e_value(n_max, n_max, 0.5) >= -math.log(ledger.alpha_class)),
            f"{alpha} even `n_max={n_max}` unanimous votes certify nothing; raise it",
        )
        largest = method.largest_radius(sampler.g.selector, ledger, n_max)
        check(
            smallest <= largest,
            f"{alpha} the largest radius that `n_max={n_max}` votes can certify is "
            f"{rounded(largest)}, not {smallest:g}; raise `n_max`, or ask for a smaller radius",
        )
        return cls(method, ledger, sampler, method.select(sampler, ledger, options, n_max), n_max)

    @property
    def streams(self) -> list[Sequence[VoteStream]]:
        """In the order of voting: of a cascade the answering stage first, it fails most often."""
        return [one.streams[:: -1 if one.stages else 1] for one in self.selections]

    def certificates(self) -> list[Certificate]:
        """What follows from the votes so far, of each stream at its best look."""
        streams = [stream for one in self.selections for stream in one.streams]
        self.update_proven([stream for stream in streams if stream.votes is not None])
        return self.method.derive(self.sampler, self.selections)

    def draw(self, chosen: dict[int, VoteStream]) -> None:
        """Votes up to the next look, for one stream of each row; equal looks share batches."""
        looks: dict[int, list[int]] = {}
        for row, stream in chosen.items():
            looks.setdefault(stream.n, []).append(row)
        for start, rows in looks.items():
            at = {row: (chosen[row].level, chosen[row].candidate) for row in rows}
            for row, more in self.sampler.votes(at, next_look(start, self.n_max), start).items():
                stream = chosen[row]
                stream.votes = more if stream.votes is None else stream.votes.add(more)

    def verdicts(
        self, streams: Sequence[VoteStream], radii: Sequence[float]
    ) -> list[Reason | None]:
        """What the votes of each stream say about its radius; None: go on voting.

        certified: the bounds, which hold at all looks together, prove it. futile: an upper
        confidence bound rules that out, or the votes left up to n_max, as predicted from those
        seen, would prove it with a chance below FUTILITY.
        """
        verdicts: dict[int, Reason | None] = {}
        for margin, verdict in ((False, self._class_verdicts), (True, self._margin_verdicts)):
            which = [i for i, stream in enumerate(streams) if stream.margin == margin]
            answers = verdict([streams[i] for i in which], [radii[i] for i in which])
            verdicts |= dict(zip(which, answers, strict=True))
        return [verdicts[i] for i in range(len(streams))]

    def _class_verdicts(
        self, streams: Sequence[VoteStream], radii: Sequence[float]
    ) -> list[Reason | None]:
        """By one e-process against p ≤ p0(r): certified if E ≥ 1/a."""
        n, top, _ = self._counts(streams)
        p0 = np.array([s.p0(r) for s, r in zip(streams, radii, strict=True)])
        goal = -math.log(self.ledger.alpha_class)
        certified = bounds.log_e_value(top, n, p0) >= goal
        needed = np.array([votes_needed(self.n_max, p, goal) for p in p0.tolist()])
        futile = success_chance(needed, self.n_max, top, n) < FUTILITY
        unlikely = bounds.clopper_pearson_upper(top, n, self.ledger.alpha_class) < p0
        return self._reasons(certified, unlikely | futile, n)

    def _margin_verdicts(
        self, streams: Sequence[VoteStream], radii: Sequence[float]
    ) -> list[Reason | None]:
        """By confidence sequences of the winner and of the runner-up, each at a/2.

        The chance is below FUTILITY if even votes that are luckier for both than all but half of
        FUTILITY (`success_chance`) would not do.
        """
        n, top, other = self._counts(streams)
        certified = self._radii(streams, n, top, other) >= radii
        best_top = bounds.predicted_count(top, n, self.n_max, FUTILITY_Z)
        best_other = bounds.predicted_count(other, n, self.n_max, -FUTILITY_Z)
        futile = self._radii(streams, np.full_like(n, self.n_max), best_top, best_other) < radii
        return self._reasons(certified, futile, n)

    def _reasons(
        self, certified: NDArray[np.bool_], futile: NDArray[np.bool_], n: Floats
    ) -> list[Reason | None]:
        rows = zip(certified, futile, n >= self.n_max, strict=True)
        return [
            "certified" if yes else "undecided" if end else "futile" if no else None
            for yes, no, end in rows
        ]

    def update_proven(self, streams: Sequence[VoteStream]) -> None:
        """What radius the votes of each stream prove so far."""
        radii = self._radii(streams, *self._counts(streams))
        for stream, radius in zip(streams, radii.tolist(), strict=True):
            stream.prove(radius)

    def update_attainable(self, streams: Sequence[VoteStream]) -> None:
        """What radius n_max votes should prove, by the mean of the successes (`success_chance`)."""
        n, *counts = self._counts(streams)
        expected = [bounds.predicted_count(k, n, self.n_max) for k in counts]
        radii = self._radii(streams, np.full_like(n, self.n_max), *expected)
        for stream, radius in zip(streams, radii.tolist(), strict=True):
            stream.attainable = radius

    def _radii(
        self, streams: Sequence[VoteStream], n: Floats, top: Floats, other: Floats
    ) -> Floats:
        """What `top` successes and `other` votes for the runner-up in n votes prove, per stream."""
        level, a = np.array([stream.level for stream in streams]), self.ledger.alpha_class
        shift = np.array([stream.shift for stream in streams])
        margin = np.array([stream.margin for stream in streams], dtype=bool)
        radii: Floats = level * (bounds.normal_quantile(bounds.anytime_lower(top, n, a)) - shift)
        if margin.any():
            proven = (top[margin], other[margin], n[margin], level[margin])
            radii[margin] = bounds.margin_radius(*proven, a, anytime=True)
        return radii

    @staticmethod
    def _counts(streams: Sequence[VoteStream]) -> tuple[Floats, Floats, Floats]:
        """Of each stream that has votes: all of them, the successes, those for the runner-up."""
        counts = [(s.n, s.successes, s.votes.runner_up) for s in streams if s.votes is not None]
        n, top, other = np.array(counts, dtype=np.float64).reshape(-1, 3).T
        return n, top, other


@lru_cache(maxsize=10_000)
def votes_needed(n: int, p0: float, goal: float) -> int:
    """The fewest of n votes whose log E against p ≤ p0 reaches the goal; n + 1 if none does."""
    counts = range(math.ceil(n * p0), n + 1)  # below p0 n they are no evidence
    first = bisect_left(counts, goal, key=lambda top: float(bounds.log_e_value(top, n, p0)))
    return counts.start + first


def success_chance(needed: ArrayLike, n_max: int, top: ArrayLike, n: ArrayLike) -> Floats:
    """P(at least `needed` of n_max votes | `top` of the first n), by `bounds.predicted_rest`.

    Normal approximation; exactly 0 where even all of the votes left are too few.
    """
    needed, top, n = (np.asarray(value, dtype=np.float64) for value in (needed, top, n))
    mean, spread = bounds.predicted_rest(top, n, n_max)
    missing = needed - top
    with np.errstate(divide="ignore", invalid="ignore"):  # no votes left, no spread
        chance = bounds.normal_cdf((mean - missing + 0.5) / spread)
    return np.where(missing > n_max - n, 0.0, chance)


def reach_radii(
    voting: Voting, radii: Sequence[float], undecided: Callable[[int], None] | None
) -> tuple[list[int], list[Reason]]:
    """Vote until it is known how many of the radii each image reaches, and why not the next."""
    streams = voting.streams
    reached = [0 for _ in streams]
    reasons: list[Reason] = ["certified" for _ in streams]

    def next_stream(row: int) -> VoteStream | None:
        """The first stream that the smallest radius still waits for; None: all are reached."""
        for radius in radii[reached[row] :]:
            for stream in streams[row]:
                if stream.matters(radius) and stream.proven < radius:
                    return stream
            reached[row] += 1
        return None

    todo = list(range(len(reached)))
    while todo:
        drawing: dict[int, VoteStream] = {}
        while todo:  # the votes for one radius may suffice for the next
            chosen = {row: s for row in todo if (s := next_stream(row)) is not None}
            drawing |= {row: s for row, s in chosen.items() if s.votes is None}
            voted = {row: s for row, s in chosen.items() if s.votes is not None}
            verdicts = voting.verdicts(list(voted.values()), [radii[reached[row]] for row in voted])
            todo = []
            for (row, stream), verdict in zip(voted.items(), verdicts, strict=True):
                if verdict == "certified":
                    stream.prove(radii[reached[row]])
                    todo.append(row)
                elif verdict is None:
                    drawing[row] = stream
                else:
                    reasons[row] = verdict
        if undecided is not None:
            undecided(len(drawing))
        voting.draw(drawing)
        todo = list(drawing)
    return reached, reasons


def vote_until_close(
    voting: Voting,
    tolerance: float,
    radii: Sequence[float],
    undecided: Callable[[int], None] | None,
) -> None:
    """Vote at the level that limits an image's radius until more votes would not raise it much."""
    streams = voting.streams
    drawing = {row: first for row, (first, *_) in enumerate(streams)}
    while drawing:
        voting.draw(drawing)
        voting.update_proven(list(drawing.values()))
        voting.update_attainable(list(drawing.values()))
        drawing = {
            row: stream
            for row in drawing
            if (stream := _limiting(streams[row], tolerance)) is not None
            and stream.n < voting.n_max
        }
        next_radius = {
            row: next((r for r in radii if r >= stream.radius), None)
            for row, stream in drawing.items()
            if stream.votes is not None
        }
        pending = {row: radius for row, radius in next_radius.items() if radius is not None}
        verdicts = voting.verdicts([drawing[row] for row in pending], list(pending.values()))
        for row, verdict in zip(pending, verdicts, strict=True):
            if verdict == "futile":
                del drawing[row]
        if undecided is not None:
            undecided(len(drawing))


def _limiting(streams: Sequence[VoteStream], tolerance: float) -> VoteStream | None:
    """The stream that limits the radius; None if that is within tolerance of the attainable."""
    weakest = min(streams, key=lambda stream: stream.radius)
    attainable = min(max(stream.distance, stream.attainable) for stream in streams)
    return None if 0 < (1 - tolerance) * attainable <= weakest.radius else weakest
