"""A certificate method of one's own, as an exercise: the worse of two noise levels.

One file, and one row in `METHODS` (`tests/test_sixth_method.py` adds it).
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from tests.oracles import Linear
from varsmooth import Certificate, Options, SmoothedClassifier
from varsmooth.certificates import Prediction
from varsmooth.evidence import Evidence, Ledger
from varsmooth.methods.base import Expected, Method, Selection, as_prediction
from varsmooth.sampling import Sampler, VoteStream
from varsmooth.selectors import NoiseSelector


class TwoLevels(NoiseSelector):
    """A smaller and a larger level; an image gets a class that wins at both."""

    def __init__(self, small: float, large: float) -> None:
        super().__init__()
        self.small, self.large = small, large

    def respond(self, x: Tensor) -> Tensor:
        return x.new_full((len(x),), self.small)

    def describe(self) -> dict[str, Any]:
        return {"selector": "two-levels", "levels": [self.small, self.large]}


class WorseOfTwo(Method):
    """g(x) = c if p_s(c; x) > ½ at both levels s, else abstain.

    **Theorem.** R = min(s_1 Φ⁻¹(p_1(c)), s_2 Φ⁻¹(p_2(c))): every x' closer than R gets class c, for
    Cohen's theorem holds at each level.

    **Estimate.** c from n0 draws at the smaller level; n votes at each level, each bound at α.
    P(R̂ > R) ≤ α without a correction: only the bound of the true minimum can make R̂ too large.
    """

    name = "worse of two"
    guarantee = "sound"
    kinds = ("sound",)
    certifies = TwoLevels
    subject = "a pair of levels"

    def select(self, sampler: Sampler, ledger: Ledger, options: Options, n: int) -> list[Selection]:
        selector = sampler.g.selector
        assert isinstance(selector, TwoLevels)
        levels = (selector.small, selector.large)
        selections = []
        for votes in sampler.candidates(sampler.rows, levels[:1] * len(sampler.rows), options.n0):
            streams = [VoteStream(level, votes.candidate, planned=n) for level in levels]
            selections.append(Selection(levels[0], ledger, streams, options.n0))
        return selections

    def radius(self, evidence: Evidence) -> float:
        return min(level.radius(evidence.ledger) for level in evidence.votes)

    def complete(self, evidence: Evidence) -> bool:
        return len(evidence.votes) == 2

    def audit(self, header: Mapping[str, Any], one: Certificate) -> Expected:
        return {
            "levels": (header["selector"]["levels"], [level.sigma for level in one.votes]),
            "candidates": (1, len({level.candidate for level in one.votes})),
        }

    def predict(self, sampler: Sampler, n: int, ledger: Ledger | None) -> list[Prediction]:
        """The class of both levels, each tested at α/2."""
        selector = sampler.g.selector
        assert isinstance(selector, TwoLevels)
        at_both = []
        for level in (selector.small, selector.large):
            at = dict.fromkeys(sampler.rows, (level, 0))
            at_both.append(sampler.votes(at, n, purpose="predict"))
        answers = []
        for row in sampler.rows:
            small, large = (votes[row].with_leader for votes in at_both)
            half = Ledger(0.5, 0.5 if ledger is None else ledger.alpha_class / 2)
            sure = min(small.radius(half), large.radius(half)) > 0
            agreed = sure and small.candidate == large.candidate
            answers.append(as_prediction(sampler, row, ledger, small, agreed, 2 * n))
        return answers


class Channel(nn.Module):
    """Class 0 of ten where the first pixel exceeds ½, else class 1."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.pad(Linear()(x), (0, 8), value=-9.0)


def make() -> SmoothedClassifier:
    """The factory of a user: `--model sixth_method:make`."""
    return SmoothedClassifier(Channel(), TwoLevels(0.1, 0.2))
