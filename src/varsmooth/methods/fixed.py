"""Cohen, Rosenfeld, Kolter 2019: one σ for all images."""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from varsmooth import bounds
from varsmooth.certificates import Certificate
from varsmooth.defaults import Guarantee, Options
from varsmooth.evidence import Evidence, Ledger
from varsmooth.methods.base import Expected, Kind, Method, Selection, with_share
from varsmooth.sampling import Sampler, VoteStream
from varsmooth.selectors import FixedSelector
from varsmooth.smoothing import Selector


class Fixed(Method):
    """g(x) = argmax_c p_c(x), p_c(x) = P(f(x + σε) = c).

    **Theorem** (Cohen et al. 2019). With p_A ≥ p_B ≥ the other p_c at x, every x' closer than
    R = σ/2 [Φ⁻¹(p_A) − Φ⁻¹(p_B)] gets class A.

    **Estimate.** n0 selection draws fix A and the share w ∈ {1, ½} of α for its bound; n fresh
    votes give P = CP⁻(n_A, n, wα) ≤ p_A. With w = 1, Q = 1 − P, which is Cohen's R̂ = σ Φ⁻¹(P).
    With w = ½, Q = CP⁺(max_{c≠A} n_c, n, α/2), which gives a larger R̂ where the votes are spread,
    and certifies winners below ½. R̂ = σ/2 [Φ⁻¹(P) − Φ⁻¹(Q)]; P(R̂ > R) ≤ α
    (`bounds.margin_radius`), for w does not depend on the votes that are counted.
    """

    name = "fixed"
    guarantee: ClassVar[Guarantee] = "sound"
    kinds: ClassVar[tuple[Kind, ...]] = ("sound", "conditional")
    certifies: ClassVar[type[Selector]] = FixedSelector
    subject = "a fixed noise level"
    chosen_by = "the same for every image"
    caption = (
        "The certified radius is R_k = σ Φ⁻¹(p), where p is a lower bound on the share of votes "
        "for the class."
    )

    def select(self, sampler: Sampler, ledger: Ledger, options: Options, n: int) -> list[Selection]:
        selections, levels = [], sampler.chosen_levels()
        for votes in sampler.candidates(sampler.rows, levels, options.n0):
            own = with_share(ledger, votes, options, n)
            stream = VoteStream(votes.sigma, votes.candidate, margin=own.runner_up, planned=n)
            selections.append(Selection(votes.sigma, own, [stream], options.n0))
        return selections

    def radius(self, evidence: Evidence) -> float:
        return evidence.votes[0].radius(evidence.ledger)

    def audit(self, header: Mapping[str, Any], one: Certificate) -> Expected:
        return {
            "levels": ([one.sigma], [level.sigma for level in one.votes]),
            "fixed level": (np.float32(header["selector"]["sigma"]), np.float32(one.sigma)),
        }

    def largest_radius(self, selector: Selector, ledger: Ledger, n: int) -> float:
        assert isinstance(selector, FixedSelector)
        a = ledger.alpha_class
        return float(bounds.class_radius(n, n, selector.sigma, a, anytime=ledger.anytime))
