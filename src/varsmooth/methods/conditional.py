"""Cohen's certificate at the level that a selector chose, if the attacker does not move it."""

import math
from collections.abc import Mapping
from typing import Any

from varsmooth.evidence import Evidence, Ledger
from varsmooth.methods.fixed import Fixed
from varsmooth.selectors import MedianSelector, NoiseSelector
from varsmooth.smoothing import Selector


class Conditional(Fixed):
    """The radius of a fixed σ (`methods.fixed`), with σ = h(x) (the paper's scenario ii).

    True for every x' at which the selector chooses the same σ. An attacker who perturbs the image
    also moves an unprotected selector, so this is the only certificate that one has.
    """

    name = "conditional"
    guarantee = "conditional"
    kinds = ("conditional",)
    subject = "a selector"

    def accepts(self, selector: Selector) -> bool:
        return isinstance(selector, NoiseSelector)

    def audit(
        self, about: Mapping[str, Any], config: Mapping[str, Any], sigma: float, evidence: Evidence
    ) -> dict[str, tuple[Any, Any]]:
        return {"levels": ([sigma], [level.sigma for level in evidence.votes])}

    def selector_draws(self, selector: Selector, evidence: Evidence, n0: int) -> int:
        return selector.n if isinstance(selector, MedianSelector) else 1

    def largest_radius(self, selector: Selector, ledger: Ledger, n: int) -> float:
        return math.inf  # an image may get any level
