"""What a caller may set when a model becomes a smoothed classifier; importable without torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import Annotated, Any, Literal

from varsmooth._util.typed import OptionError, Typed
from varsmooth.errors import check
from varsmooth.types import Odd, Positive, Probability, Rule, Share

SELECTOR_SETTINGS = ("lam", "sigma_a", "sigma_m", "clip", "levels", "n_median")
"""The settings that only a selector can use."""

Precision = Literal["float32", "bfloat16"]

UP_TO_1000 = Rule("a whole number from 0 to 1000", lambda value: 0 <= value <= 1000)


def read_stages(text: str) -> tuple[list[float], list[float]]:
    """Levels and thresholds of a cascade; ValueError if the text is none.

    Examples:
        >>> read_stages("1.0:0.6,0.5,0.25")
        ([1.0, 0.5, 0.25], [0.6, 0.5, 0.5])
    """
    pairs = [stage.partition(":") for stage in text.strip("[]").split(",")]
    levels = [float(level) for level, _, _ in pairs]
    return levels, [float(tau) if colon else 0.5 for _, colon, tau in pairs]


def _is_cascade(text: str) -> bool:
    if text == "tuned":
        return True
    levels, thresholds = read_stages(text)
    falling = all(high > low for high, low in pairwise([inf, *levels, 0]))
    return falling and all(0.5 <= tau < 1 for tau in thresholds)


CASCADE = Rule(
    "tuned, or LEVEL:THRESHOLD,… as in 1.0:0.6,0.5,0.25 (levels falling, thresholds in [0.5, 1))",
    _is_cascade,
)


@dataclass(frozen=True, kw_only=True)
class Settings(Typed):
    """What chooses the noise level, and how; None leaves the model's recommendation.

    Args:
        sigma: one fixed noise level instead of a selector (conventional smoothing)
        cascade: falling levels, LEVEL:THRESHOLD,…, in which f's own votes choose the level, as in
            1.0:0.6,0.5,0.25 (threshold 0.5 where none is given); or tuned, the stages that
            `varsmooth tune` found for --lam
        gate: with a cascade, count a vote only where f's softmax reaches this
        lam: λ: near 0 for accuracy, near 1 for large radii (of tuned stages 1 by default)
        sigma_a: σ_a, an input of the selector
        sigma_m: level of the noise in the selector's median smoothing
        clip: LOW,HIGH: bounds of the selector's level
        levels: number of levels between the bounds, or the levels themselves: 0.12,0.25,0.5;
            0: no grid
        n_median: draws of the selector for one deployed median, odd
        protect: false: the selector evaluated once, without median smoothing
        lattice: noise on the lattice of 8-bit images, exact in floating point
        precision: that of f's activations; bfloat16 takes about half the time where the
            processor has it (AVX-512 BF16, AMX, GPUs); deploy what was certified
    """

    sigma: Positive | None = None
    cascade: Annotated[str, CASCADE] | None = None
    gate: Probability | None = None
    lam: Share | None = None
    sigma_a: Positive | None = None
    sigma_m: Positive | None = None
    clip: tuple[Positive, Positive] | None = None
    levels: Annotated[int, UP_TO_1000] | list[Positive] | None = None
    n_median: Odd | None = None
    protect: bool = True
    lattice: bool = False
    precision: Precision = "float32"

    def __post_init__(self) -> None:
        super().__post_init__()
        steering = [*self.of_selector(), *([] if self.protect else ["protect"])]
        if self.cascade is None and self.gate is not None:
            raise OptionError("gate", "belongs to a cascade; give `cascade` too, or leave it out")
        if self.cascade is not None:
            steering = [name for name in steering if name != "lam"]
            if self.sigma is not None:
                raise OptionError("sigma", "cannot be given with `cascade`; leave one of them out")
            if self.lam is not None and self.cascade != "tuned":
                raise OptionError("lam", "chooses among tuned stages; give `cascade` tuned with it")
        if steering and (self.sigma is not None or self.cascade is not None):
            other = "sigma" if self.cascade is None else "cascade"
            problem = f"steers a selector, but `{other}` takes its place; leave one of them out"
            raise OptionError(steering[0], problem)

    def of_selector(self) -> dict[str, Any]:
        """The selector's settings that were given."""
        values = {name: getattr(self, name) for name in SELECTOR_SETTINGS}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True)
class TunedStages(Typed):
    """A cascade that `varsmooth tune` found: the stages to use from this λ on.

    Attributes:
        gate: The confidence from which a vote counts; None counts every vote.
    """

    lam: Share
    levels: tuple[Positive, ...]
    thresholds: tuple[Probability, ...]
    gate: Share | None = None

    def __str__(self) -> str:
        """As --cascade takes them: `0.707:0.6,0.25 gate 0.4`."""
        stages = [
            f"{s:.3g}" + (f":{tau:g}" if tau > 0.5 else "")
            for s, tau in zip(self.levels, self.thresholds, strict=True)
        ]
        return ",".join(stages) + (f" gate {self.gate:g}" if self.gate else "")


def stages_for(family: Sequence[TunedStages], lam: float) -> TunedStages:
    """The member of a tuned family for λ: the last whose own λ is not larger."""
    check(0 <= lam <= 1, f"lam must lie in [0, 1], not {lam}")
    found = [member for member in family if member.lam <= lam]
    check(bool(found), f"no tuned stages are for lam={lam}; run varsmooth tune again")
    return found[-1]
