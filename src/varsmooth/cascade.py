"""A cascade of noise levels: the votes of f themselves choose σ, largest level first.

At x, the first stage j at which some class has p_j(c; x) = P(f(x + s_j ε) = c) ≥ τ_j returns c.
The last stage returns its most likely class, or, if its τ is above ½, abstains below τ. A level
is harmful only together with a wrong class, so that no level has to be safe for every class
(Theorem C, `varsmooth.methods.cascade`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from varsmooth.errors import VarsmoothError, check, check_level
from varsmooth.noise import NoiseStream
from varsmooth.selectors import Scores
from varsmooth.types import Positive, Probability

Gate = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(z (M,C,H,W), logits (M,classes), σ (M,)) → score (M,): a vote counts where its score is ≥ 0."""

SOFTNESS = 0.05
"""Width of the soft decisions in `CascadeSelector.mix`, in units of probability."""


@dataclass(frozen=True)
class Stages:
    """The stages of a cascade: levels s_1, …, s_L and thresholds τ_1, …, τ_L ≥ ½.

    τ_L = ½ means argmax: the last stage returns its most likely class, majority or not.
    """

    levels: tuple[Positive, ...]
    thresholds: tuple[Probability, ...]

    def __len__(self) -> int:
        return len(self.levels)

    def is_argmax(self, stage: int) -> bool:
        """Whether the stage (0-based) returns its most likely class."""
        return stage == len(self) - 1 and self.thresholds[stage] == 0.5


class CascadeSelector(nn.Module):
    """σ is the level of the first stage at which a class of f reaches its threshold.

    Unlike a `NoiseSelector` it reads nothing but votes of f, so σ is known only after voting.

    Args:
        levels: s_1 > … > s_L: large noise for the images that tolerate it.
        thresholds: τ_j in [½, 1), one for each level; ½ throughout by default. Larger ones make an
            early stage more careful, which gains accuracy at small radii.
        gates: θ_j in [0, 1), one for each level: at stage j a vote counts where the largest softmax
            probability of f is at least θ_j, and is a "pass" elsewhere; 0 counts every vote. Or a
            function of your own, see `Gate`. P(f = c and stay) takes the place of p_j(c).
    """

    def __init__(
        self,
        levels: Sequence[float],
        thresholds: Sequence[float] | None = None,
        gates: Sequence[float] | Gate | None = None,
    ) -> None:
        super().__init__()
        _check_listed("levels", levels)
        rounded = tuple(map(check_level, levels))
        check(len(rounded) > 0, "a cascade needs at least one level")
        check(
            all(high > low for high, low in pairwise(rounded)),
            f"levels must decrease, the largest noise first, not {list(levels)}",
        )
        taus = _one_each("thresholds", thresholds, 0.5, len(rounded))
        gate: Gate | None = None
        if callable(gates) and not isinstance(gates, type):
            gate = gates
        elif any(thetas := _one_each("gates", gates, 0.0, len(rounded))):
            gate = SoftmaxGate(dict(zip(rounded, thetas, strict=True)))
        self.stages = Stages(rounded, taus)
        self.gate = gate

    def forward(self, *arguments: Any) -> Tensor:
        raise VarsmoothError(
            "the σ of a cascade is known only after voting; pass the cascade to "
            "SmoothedClassifier, and pass sigma to vote at one level"
        )

    def soft_scores(self, x: Tensor, noise: NoiseStream, scores: Scores) -> Tensor:
        """The log of the soft mixture of the stages (B, classes), see `mix`."""
        stages = [scores(x.new_full((len(x),), level)).exp() for level in self.stages.levels]
        return self.mix(stages).clamp_min(1e-30).log()

    @property
    def possible_levels(self) -> tuple[float, ...]:
        """The levels of the stages, ascending."""
        return self.stages.levels[::-1]

    def with_draws(self, n: int) -> "CascadeSelector":
        """Itself: a cascade takes no median."""
        return self

    def describe(self) -> dict[str, Any]:
        """Every setting as plain JSON values."""
        return {
            "selector": "cascade",
            "levels": list(self.stages.levels),
            "thresholds": list(self.stages.thresholds),
            "gates": describe_gate(self.gate),
        }

    def extra_repr(self) -> str:
        parts = (f"{name}={value}" for name, value in self.describe().items() if name != "selector")
        return ", ".join(parts)

    def mix(self, probabilities: Sequence[Tensor]) -> Tensor:
        """The soft answer (B, classes) from each stage's soft votes P_j (B, classes).

        Stage j answers with weight w_j = sigmoid((max_c P_j(c) − τ_j) / SOFTNESS) of what earlier
        stages passed on; what no stage answered goes to the last: a mixture Σ_j v_j P_j with
        weights that sum to 1. Differentiable, and close to the rule where votes are clear.
        """
        passed = torch.ones_like(probabilities[0][:, :1])
        mixed = torch.zeros_like(probabilities[0])
        last = len(probabilities) - 1
        for j, (p, tau) in enumerate(zip(probabilities, self.stages.thresholds, strict=True)):
            top = p.amax(dim=1, keepdim=True)
            weight = torch.sigmoid((top - tau) / SOFTNESS) if j < last else 1.0
            mixed = mixed + passed * weight * p
            passed = passed * (1 - weight)
        return mixed


class SoftmaxGate(nn.Module):
    """A vote counts where the largest softmax probability of f is at least that of its level."""

    def __init__(self, confidence: Mapping[float, float]) -> None:
        super().__init__()
        self.confidence = dict(confidence)

    def forward(self, z: Tensor, logits: Tensor, sigma: Tensor) -> Tensor:
        sure = logits.softmax(dim=1).amax(dim=1)  # (M,)
        needed = torch.zeros_like(sure)
        for level, confidence in self.confidence.items():
            needed = torch.where(sigma == level, confidence, needed)
        return sure - needed


def describe_gate(gate: Gate | None) -> Any:
    """A gate as JSON values: θ of each stage, or the name of a function; None without a gate."""
    if gate is None:
        return None
    if isinstance(gate, SoftmaxGate):
        return list(gate.confidence.values())
    return {"function": getattr(gate, "__qualname__", type(gate).__qualname__)}


def _one_each(name: str, values: Any, least: float, stages: int) -> tuple[float, ...]:
    """One number in [least, 1) for each stage, the least by default."""
    values = [least] * stages if values is None else values
    _check_listed(name, values)
    numbers = tuple(float(value) for value in values)
    check(
        len(numbers) == stages,
        f"give as many {name} as levels: {stages}, not {len(numbers)}",
    )
    inside = all(least <= number < 1 for number in numbers)
    check(inside, f"{name} must lie in [{least:g}, 1), not {list(numbers)}")
    return numbers


def _check_listed(name: str, values: Any) -> None:
    check(
        isinstance(values, Iterable) and not isinstance(values, str),
        f"{name} must be a list of numbers, one for each stage, not {values!r}",
    )
