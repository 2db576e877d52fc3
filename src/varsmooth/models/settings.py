"""What a caller may set when a model becomes a smoothed classifier; importable without torch."""

from dataclasses import dataclass
from typing import Any

SELECTOR_SETTINGS = ("lam", "sigma_a", "sigma_m", "clip", "levels", "n_median")
"""The settings that only a selector can use."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Who chooses the noise level, and how; None leaves the model's recommendation.

    Args:
        sigma: one fixed noise level instead of a selector (conventional smoothing)
        lam: λ of the selector: near 0 for accuracy, near 1 for large levels
        sigma_a: σ_a, an input of the selector
        sigma_m: level of the noise in the selector's median smoothing
        clip: LOW,HIGH: bounds of the selector's level
        levels: number of levels between the bounds, or the levels themselves: 0.12,0.25,0.5;
            0: no grid
        n_median: draws of the selector for one deployed median, odd
        protect: false: the selector evaluated once, without median smoothing
        lattice: noise on the lattice of 8-bit images, exact in floating point
    """

    sigma: float | None = None
    lam: float | None = None
    sigma_a: float | None = None
    sigma_m: float | None = None
    clip: tuple[float, float] | None = None
    levels: int | list[float] | None = None
    n_median: int | None = None
    protect: bool = True
    lattice: bool = False

    def of_selector(self) -> dict[str, Any]:
        """The selector's settings that were given."""
        values = {name: getattr(self, name) for name in SELECTOR_SETTINGS}
        return {name: value for name, value in values.items() if value is not None}
