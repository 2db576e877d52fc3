"""One σ for all images: Cohen, Rosenfeld, Kolter 2019."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from varsmooth import bounds
from varsmooth.evidence import Evidence, Ledger
from varsmooth.methods.base import Draws, Method, Selection, one_level
from varsmooth.sampling import Sampler
from varsmooth.selectors import FixedSelector
from varsmooth.smoothing import Selector


class Fixed(Method):
    """ĉ from n0 votes, p̲ = CP⁻ of its count in n fresh votes at α: R̂ = σ Φ⁻¹(p̲).

    Theorem (Cohen et al. 2019): if P(f(x + σε) = c) = p > ½, every x' with ‖x' − x‖ < σ Φ⁻¹(p)
    gets class c. Hence P(R̂ exceeds the true radius) ≤ α.
    """

    name = "fixed"
    guarantee = "sound"
    kinds = ("sound", "conditional")
    subject = "a fixed noise level"

    def accepts(self, selector: Selector) -> bool:
        return isinstance(selector, FixedSelector)

    def select(self, sampler: Sampler, ledger: Ledger, draws: Draws, n: int) -> Selection:
        return one_level(sampler, sampler.chosen_levels(), draws, n)

    def radius(self, evidence: Evidence) -> float:
        return evidence.votes[0].radius(evidence.ledger)

    def complete(self, evidence: Evidence) -> bool:
        return len(evidence.votes) > 0

    def audit(
        self, about: Mapping[str, Any], config: Mapping[str, Any], sigma: float, evidence: Evidence
    ) -> dict[str, tuple[Any, Any]]:
        return {
            "levels": ([sigma], [level.sigma for level in evidence.votes]),
            "fixed level": (np.float32(about["sigma"]), np.float32(sigma)),
        }

    def largest_radius(self, selector: Selector, ledger: Ledger, n: int) -> float:
        assert isinstance(selector, FixedSelector)
        a = ledger.alpha_class
        return float(bounds.class_radius(n, n, selector.sigma, a, anytime=ledger.anytime))
