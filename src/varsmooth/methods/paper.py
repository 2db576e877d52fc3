"""The paper's certificates: of an unattacked selector, and of a median-smoothed one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from varsmooth.certificates import Certificate
from varsmooth.defaults import ALPHA_SELECT, Options
from varsmooth.errors import check_probability
from varsmooth.evidence import Evidence, Ledger
from varsmooth.methods.base import Expected, Method, Selection
from varsmooth.methods.fixed import Fixed
from varsmooth.methods.median import audit_selector, selector_evidence
from varsmooth.sampling import Sampler, VoteStream
from varsmooth.selectors import MedianSelector, NoiseSelector
from varsmooth.smoothing import Selector


class Conditional(Fixed):
    """The radius of a fixed σ, with σ = h(x) (the paper's scenario ii).

    True for every x' at which the selector chooses the same σ. An attacker who perturbs the image
    also moves an unprotected selector, so this is the only certificate that one has.
    """

    name = "conditional"
    guarantee = "conditional"
    kinds = ("conditional",)
    certifies = NoiseSelector
    subject = "a selector"
    chosen_by = "the selector"

    def audit(self, header: Mapping[str, Any], one: Certificate) -> Expected:
        return {"levels": ([one.sigma], [level.sigma for level in one.votes])}

    def selector_draws(self, selector: Selector, evidence: Evidence, n0: int) -> int:
        return selector.n if isinstance(selector, MedianSelector) else 1

    def largest_radius(self, selector: Selector, ledger: Ledger, n: int) -> float:
        return np.inf  # an image may get any level


@dataclass(frozen=True)
class PaperOptions(Options):
    """The options of a certificate at `distance` D, the attack budget."""

    distance: float = 0.0


class Paper(Method):
    """R = min(D, R at the lower bound, the median and the upper bound of h), scenario i.

    For ‖δ‖ ≤ D the median of h stays between two order statistics of its samples. The paper
    certifies f at these and at the median, each level with its own top class and votes, and takes
    the worst radius, capped at D: 0 if a class differs, a level abstains or a bound is infinite.
    Levels between the three are never looked at, where the class may be another one
    (docs/concepts/certificate.md has a counterexample), so it is heuristic.
    """

    name = "paper"
    guarantee = "heuristic"
    kinds = ("paper",)
    certifies = MedianSelector
    subject = "a protected selector"
    caption = "The radius is the smallest R_k of the levels that are looked at, at most D."

    def covers(self, certified: Ledger, query: Ledger) -> bool:
        """A heuristic radius covers no query."""
        return False

    def ledger(self, alpha: float, alpha_select: float = ALPHA_SELECT, n_deploy: int = 0) -> Ledger:
        """α at each level looked at and α_h besides: no total."""
        check_probability("alpha", alpha)
        check_probability("alpha_select", alpha_select)
        return Ledger(alpha, alpha, alpha_select)

    def select(self, sampler: Sampler, ledger: Ledger, options: Options, n: int) -> list[Selection]:
        assert isinstance(options, PaperOptions)
        samples = selector_evidence(sampler, options.n_select, options.distance)
        plans = [evidence.levels_between(ledger, options.every_index) for evidence in samples]
        streams: list[list[VoteStream]] = [[] for _ in plans]
        for visit in range(max(len(plan) for plan in plans)):
            rows = [i for i in sampler.rows if visit < len(plans[i])]
            levels = [plans[i][visit] for i in rows]
            for i, votes in zip(rows, sampler.candidates(rows, levels, options.n0), strict=True):
                streams[i].append(VoteStream(votes.sigma, votes.candidate, planned=n))
        return [
            Selection(evidence.median_level, ledger, row, options.n0 * len(row), evidence)
            for evidence, row in zip(samples, streams, strict=True)
        ]

    def radius(self, evidence: Evidence) -> float:
        assert evidence.selector is not None
        assert evidence.selector.distance is not None
        radii = [level.radius(evidence.ledger) for level in evidence.votes]
        if len({level.candidate for level in evidence.votes}) != 1 or min(radii) <= 0:
            return -np.inf
        return min(*radii, evidence.selector.distance)

    def certified(self, radius: float) -> bool:
        """With D = 0 the radius is 0 and the class holds at x itself."""
        return radius >= 0

    def complete(self, evidence: Evidence) -> bool:
        """A selector without bounds gets no votes."""
        selector = evidence.selector
        return bool(selector and selector.samples and selector.distance is not None)

    def audit(self, header: Mapping[str, Any], one: Certificate) -> Expected:
        """It must have looked at the levels that its samples name."""
        assert one.selector is not None
        wanted = one.selector.levels_between(one.ledger, header["config"]["every_index"])
        return audit_selector(header, one.selector) | {
            "levels": (wanted, [level.sigma for level in one.votes]),
            "median level": (one.selector.median_level, one.sigma),
        }

    def selection_rounds(self, evidence: Evidence) -> range:
        return range(len(evidence.votes), len(evidence.votes) + 1)

    def selector_draws(self, selector: Selector, evidence: Evidence, n0: int) -> int:
        assert evidence.selector is not None
        return len(evidence.selector.samples)
