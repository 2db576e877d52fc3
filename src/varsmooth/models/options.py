"""What a caller may set when a model becomes a smoothed classifier; importable without torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from math import inf
from typing import Annotated, Any, Literal, NamedTuple

from varsmooth._util.typed import OptionError, Typed
from varsmooth.errors import check
from varsmooth.types import Distance, Odd, Positive, Probability, Rule, Share, UpTo1000

Precision = Literal["float32", "bfloat16"]

SelectorKind = Literal["cascade", "median", "learned", "fixed"]

KINDS: dict[str, tuple[SelectorKind, ...]] = {
    "sigma": ("fixed",),
    "cascade": ("cascade",),
    "lam": ("cascade", "median", "learned"),
    "sigma_a": ("median", "learned"),
    "sigma_m": ("median",),
    "clip": ("median",),
    "levels": ("median",),
    "n_median": ("median",),
}
"""The kinds of selector that each option belongs to."""


class Stage(NamedTuple):
    """One stage of a cascade, written LEVEL:THRESHOLD:GATE."""

    level: float
    threshold: float = 0.5
    gate: float = 0.0

    def __str__(self) -> str:
        parts = [f"{self.level:.3g}", f"{self.threshold:g}", f"{self.gate:g}"]
        return ":".join(parts[: 3 if self.gate else 2 if self.threshold > 0.5 else 1])


def read_stages(text: str) -> list[Stage]:
    """The stages of a cascade; ValueError or TypeError if the text is none.

    Examples:
        >>> read_stages("1.0:0.6:0.4,0.25")
        [Stage(level=1.0, threshold=0.6, gate=0.4), Stage(level=0.25, threshold=0.5, gate=0.0)]
    """
    return [Stage(*map(float, stage.split(":"))) for stage in text.strip("[]").split(",")]


def _is_cascade(text: str) -> bool:
    try:
        stages = read_stages(text)
    except (TypeError, ValueError):
        return False
    falling = all(high > low for high, low in pairwise([inf, *(s.level for s in stages), 0]))
    return falling and all(0.5 <= s.threshold < 1 and 0 <= s.gate < 1 for s in stages)


CASCADE = Rule(
    "LEVEL:THRESHOLD:GATE,… as in 1.0:0.6:0.4,0.5:0.5:0.4,0.25 (levels falling, thresholds in "
    "[0.5, 1), gates in [0, 1))",
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
        cascade: stages of your own, LEVEL:THRESHOLD:GATE,…, as in 1.0:0.6:0.4,0.5,0.25: a stage
            returns a class that reaches this share of its votes (0.5 if left out), counting those
            where f's softmax reaches the gate (0 if left out)
        lam: λ: near 0 for accuracy, near 1 for large radii (default for a tuned cascade: 1)
        sigma_a: σ_a, an input of the selector network
        sigma_m: level of the noise in the selector's median smoothing
        clip: LOW,HIGH: bounds of the selector's level
        levels: number of levels between the bounds, or the levels themselves: 0.12,0.25,0.5;
            0: no grid
        n_median: draws of the selector for one deployed median, odd
        lattice: noise on the lattice of 8-bit images, exact in floating point
        precision: precision of f's activations; bfloat16 takes about half the time where the
            processor has it (AVX-512 BF16, AMX, GPUs); deploy the precision you certified
    """

    model: str | None = None
    trust: list[str] | None = None
    selector: SelectorKind | None = None
    sigma: Positive | None = None
    cascade: Annotated[str, CASCADE] | None = None
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
                raise OptionError(other, f"cannot be combined with `{one}`; leave one out")
        if self.lam is not None and self.cascade is not None:
            raise OptionError("lam", "chooses among tuned stages; leave it or `cascade` out")

    def of_selector(self) -> dict[str, Any]:
        """The options that steer a selector, of those that are set."""
        values = {name: getattr(self, name) for name in KINDS}
        return {name: value for name, value in values.items() if value is not None}


def stages_text(
    levels: Sequence[float], thresholds: Sequence[float], gates: Sequence[float] | None = None
) -> str:
    """A cascade as --cascade takes it: `0.707:0.6:0.4,0.25`."""
    gates = gates or [0.0] * len(levels)
    return ",".join(map(str, map(Stage, levels, thresholds, gates)))


@dataclass(frozen=True)
class TunedStages:
    """A cascade that `varsmooth tune` chose, to use from this λ on; () gates count every vote.

    expected: certified accuracy at 0 and average radius to expect on new images, if known.
    """

    lam: Share
    levels: tuple[Positive, ...]
    thresholds: tuple[Probability, ...]
    gates: tuple[Share, ...] = ()
    expected: tuple[Share, Distance] | None = None

    def __str__(self) -> str:
        return stages_text(self.levels, self.thresholds, self.gates)


def stages_for(family: Sequence[TunedStages], lam: float) -> TunedStages:
    """The member of a tuned family for λ: the last whose own λ is not larger."""
    check(0 <= lam <= 1, f"lam must lie in [0, 1], not {lam}")
    members = [member for member in family if member.lam <= lam]
    check(bool(members), f"no tuned stages cover `lam={lam}`; run varsmooth tune again")
    return members[-1]
