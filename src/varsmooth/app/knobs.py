"""The knobs of the page: what can be turned, and how far."""

from dataclasses import dataclass
from typing import NamedTuple

from varsmooth.errors import require


class Range(NamedTuple):
    """Where a knob can stand: low, low + step, …, high."""

    low: float
    high: float
    step: float

    def check(self, name: str, value: float) -> None:
        require(
            self.low <= value <= self.high,
            f"{name} must lie between {self.low:g} and {self.high:g}, not {value:g}",
        )


LAM = Range(0, 1, 0.01)
SIGMA = Range(0.02, 2, 0.01)
VOTES = Range(100, 5000, 100)
DRAWS = Range(51, 2001, 50)  # odd, so that the median is one of them
BUDGET = Range(0, 2, 0.05)
STEPS = Range(1, 50, 1)


@dataclass(frozen=True)
class Knobs:
    """What a person has set.

    sigma: the one level of g; lam, sigma_a, sigma_m, clip: of the selector; n: votes of f;
    n_select: draws of h behind its median and bounds; budget: the attacker's, also the D of the
    paper's certificate.
    """

    sigma: float
    lam: float
    sigma_a: float
    sigma_m: float
    clip: tuple[float, float]
    n: int = 200
    n_select: int = 301
    budget: float = 0.25

    def check(self) -> "Knobs":
        """Refuse what would take too long or makes no sense; the page is not the only caller."""
        SIGMA.check("σ", self.sigma)
        LAM.check("λ", self.lam)
        SIGMA.check("σ_a", self.sigma_a)
        SIGMA.check("σ_m", self.sigma_m)
        VOTES.check("N", self.n)
        DRAWS.check("N_h", self.n_select)
        BUDGET.check("the budget", self.budget)
        low, high = self.clip
        require(
            low < high, f"clipping needs a lower end below the upper end, not {low:g}, {high:g}"
        )
        return self
