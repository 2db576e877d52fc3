"""What a caller may set when a model becomes a smoothed classifier; importable without torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from varsmooth.errors import VarsmoothError, require
from varsmooth.typed import Odd, Positive, Probability, Rule, Share, Typed

SELECTOR_SETTINGS = ("lam", "sigma_a", "sigma_m", "clip", "levels", "n_median")
"""The settings that only a selector can use."""

UP_TO_1000 = Rule("a whole number from 0 to 1000", lambda value: 0 <= value <= 1000)


@dataclass(frozen=True, kw_only=True)
class Settings(Typed):
    """Who chooses the noise level, and how; None leaves the model's recommendation.

    Args:
        sigma: one fixed noise level instead of a selector (conventional smoothing)
        cascade: stages LEVEL:THRESHOLD,… in which f's own votes choose the level, as in
            1.0:0.6,0.5,0.25 (threshold 0.5 where none is given); or tuned, the stages that
            `varsmooth tune` found for --lam
        gate: with a cascade, count a vote only where f's softmax reaches this
        lam: λ: near 0 for accuracy, near 1 for large radii
        sigma_a: σ_a, an input of the selector
        sigma_m: level of the noise in the selector's median smoothing
        clip: LOW,HIGH: bounds of the selector's level
        levels: number of levels between the bounds, or the levels themselves: 0.12,0.25,0.5;
            0: no grid
        n_median: draws of the selector for one deployed median, odd
        protect: false: the selector evaluated once, without median smoothing
        lattice: noise on the lattice of 8-bit images, exact in floating point
    """

    sigma: Positive | None = None
    cascade: str | None = None
    gate: Probability | None = None
    lam: Share | None = None
    sigma_a: Positive | None = None
    sigma_m: Positive | None = None
    clip: tuple[Positive, Positive] | None = None
    levels: Annotated[int, UP_TO_1000] | list[Positive] | None = None
    n_median: Odd | None = None
    protect: bool = True
    lattice: bool = False

    def of_selector(self) -> dict[str, Any]:
        """The selector's settings that were given."""
        values = {name: getattr(self, name) for name in SELECTOR_SETTINGS}
        return {name: value for name, value in values.items() if value is not None}


def read_stages(text: str) -> tuple[list[float], list[float]]:
    """Levels and thresholds of a cascade.

    >>> read_stages("1.0:0.6,0.5,0.25")
    ([1.0, 0.5, 0.25], [0.6, 0.5, 0.5])
    """
    levels, thresholds = [], []
    for stage in text.strip("[]").split(","):
        level, _, threshold = stage.partition(":")
        try:
            levels.append(float(level))
            thresholds.append(float(threshold or 0.5))
        except ValueError:
            raise VarsmoothError(
                f"a cascade is written LEVEL:THRESHOLD,… as in 1.0:0.6,0.5,0.25, not {text!r}"
            ) from None
    return levels, thresholds


@dataclass(frozen=True)
class TunedStages(Typed):
    """A cascade that `varsmooth tune` found: the stages to use from this λ on.

    gate: the confidence from which a vote counts; None: every vote does.
    """

    lam: float
    levels: tuple[float, ...]
    thresholds: tuple[float, ...]
    gate: float | None = None


def stages_for(family: Sequence[TunedStages], lam: float) -> TunedStages:
    """The member of a tuned family for λ: the last whose own λ is not larger."""
    require(0 <= lam <= 1, f"lam must lie in [0, 1], not {lam}")
    return [member for member in family if member.lam <= lam][-1]
