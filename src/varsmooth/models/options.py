"""What a caller may set when a model becomes a smoothed classifier; importable without torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from math import inf
from typing import Annotated, Any, Literal

from varsmooth._util.typed import OptionError, Typed
from varsmooth.errors import check
from varsmooth.types import Odd, Positive, Probability, Rule, Share, UpTo1000

Precision = Literal["float32", "bfloat16"]

SelectorKind = Literal["cascade", "median", "learned", "fixed"]

KINDS: dict[str, tuple[SelectorKind, ...]] = {
    "sigma": ("fixed",),
    "cascade": ("cascade",),
    "gate": ("cascade",),
    "lam": ("cascade", "median", "learned"),
    "sigma_a": ("median", "learned"),
    "sigma_m": ("median",),
    "clip": ("median",),
    "levels": ("median",),
    "n_median": ("median",),
}
"""The kinds of selector that each option belongs to."""


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
    levels, thresholds = read_stages(text)
    falling = all(high > low for high, low in pairwise([inf, *levels, 0]))
    return falling and all(0.5 <= tau < 1 for tau in thresholds)


CASCADE = Rule(
    "LEVEL:THRESHOLD,… as in 1.0:0.6,0.5,0.25 (levels falling, thresholds in [0.5, 1))",
    holds=_is_cascade,
)


@dataclass(frozen=True)
class ModelOptions(Typed):
    """The smoothed classifier: a model, and what chooses its noise level.

    None leaves the model's own default (`varsmooth.models.selection.resolve_selector`).

    Args:
        model: a released name (varsmooth models), a checkpoint folder, or module:factory of your
            own, returning an nn.Module or a SmoothedClassifier
        selector: what chooses σ: cascade: f's own votes in falling levels, as `varsmooth tune`
            stored them; median: the model's selector network, protected by median smoothing;
            learned: that network, evaluated once; fixed: one σ (default: the first of cascade,
            median and fixed that the model has)
        sigma: one fixed noise level (conventional smoothing)
        cascade: stages of your own, LEVEL:THRESHOLD,…, as in 1.0:0.6,0.5,0.25 (threshold 0.5 where
            none is given)
        gate: with a cascade, count a vote only where f's softmax reaches this
        lam: λ: near 0 for accuracy, near 1 for large radii (of a tuned cascade 1 by default)
        sigma_a: σ_a, an input of the selector network
        sigma_m: level of the noise in the selector's median smoothing
        clip: LOW,HIGH: bounds of the selector's level
        levels: number of levels between the bounds, or the levels themselves: 0.12,0.25,0.5;
            0: no grid
        n_median: draws of the selector for one deployed median, odd
        lattice: noise on the lattice of 8-bit images, exact in floating point
        precision: that of f's activations; bfloat16 takes about half the time where the
            processor has it (AVX-512 BF16, AMX, GPUs); deploy what was certified
    """

    model: str | None = None
    trust: list[str] | None = None
    selector: SelectorKind | None = None
    sigma: Positive | None = None
    cascade: Annotated[str, CASCADE] | None = None
    gate: Probability | None = None
    lam: Share | None = None
    sigma_a: Positive | None = None
    sigma_m: Positive | None = None
    clip: tuple[Positive, Positive] | None = None
    levels: UpTo1000 | list[Positive] | None = None
    n_median: Odd | None = None
    lattice: bool = False
    precision: Precision = "float32"

    def __post_init__(self) -> None:
        super().__post_init__()
        kinds = {name: KINDS[name] for name in self.of_selector()}
        if self.selector is not None:
            kinds["selector"] = (self.selector,)
        for one, other in combinations(kinds, 2):
            if not set(kinds[one]) & set(kinds[other]):
                raise OptionError(other, f"does not go with `{one}`; leave one of them out")
        if self.lam is not None and self.cascade is not None:
            raise OptionError("lam", "chooses among tuned stages; leave it or `cascade` out")

    def of_selector(self) -> dict[str, Any]:
        """The options that steer a selector, of those that are set."""
        values = {name: getattr(self, name) for name in KINDS}
        return {name: value for name, value in values.items() if value is not None}


def stages_text(levels: Sequence[float], thresholds: Sequence[float], gate: float | None) -> str:
    """A cascade as --cascade takes it: `0.707:0.6,0.25 gate 0.4`."""
    stages = [
        f"{s:.3g}" + (f":{tau:g}" if tau > 0.5 else "")
        for s, tau in zip(levels, thresholds, strict=True)
    ]
    return ",".join(stages) + (f" gate {gate:g}" if gate else "")


@dataclass(frozen=True)
class TunedStages:
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
        return stages_text(self.levels, self.thresholds, self.gate)


def stages_for(family: Sequence[TunedStages], lam: float) -> TunedStages:
    """The member of a tuned family for λ: the last whose own λ is not larger."""
    check(0 <= lam <= 1, f"lam must lie in [0, 1], not {lam}")
    members = [member for member in family if member.lam <= lam]
    check(bool(members), f"no tuned stages are for lam={lam}; run varsmooth tune again")
    return members[-1]
