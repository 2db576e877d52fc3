"""A cascade of noise levels: the votes of f themselves choose σ, largest level first.

At x, the first stage j at which some class has p_j(c; x) = P(f(x + s_j ε) = c) ≥ τ_j answers c;
if none does, the cascade abstains. A level is harmful only together with a wrong class, so that
no level has to be safe for every class (Theorem C, `varsmooth.certificates`).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import betaincinv
from torch import Tensor, nn

from varsmooth import bounds
from varsmooth.bounds import Floats
from varsmooth.errors import VarsmoothError, check_sigma, require
from varsmooth.noise import CHUNK
from varsmooth.types import Positive, Probability

Integers = NDArray[np.int64]
Gate = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(z (M,C,H,W), logits (M,classes), σ (M,)) → score (M,): a vote counts where its score is ≥ 0."""

SOFTNESS = 0.05
"""Width of the soft decisions in `CascadeSelector.mix`, in units of probability."""

PRICE = 0.05
"""The share of the radius that may be lost for n votes saved at an early stage."""

HEADROOM = 1.2
"""Early stages aim this far beyond the expected radius: the deciding votes may turn out better."""


@dataclass(frozen=True)
class Stages:
    """The stages of a cascade: levels s_1, …, s_L and thresholds τ_1, …, τ_L ≥ ½."""

    levels: tuple[Positive, ...]
    thresholds: tuple[Probability, ...]

    def __len__(self) -> int:
        return len(self.levels)


class CascadeSelector(nn.Module):
    """σ is the level of the first stage at which a class of f reaches its threshold.

    Unlike a `NoiseSelector` it reads nothing but votes of f, so σ is known only after voting.

    Args:
        levels: s_1 > … > s_L: large noise for the images that can bear it.
        thresholds: τ_j in [½, 1), one for each level. ½ throughout by default: then the true
            radius of every image is at least that of σ = s_1. Larger ones make an early stage
            more careful, which gains accuracy at small radii.
        gate: Turns votes into "pass" votes, see `Gate`; P(f = c and stay) takes the place of
            p_j(c) everywhere. `SoftmaxGate` is one.
    """

    def __init__(
        self,
        levels: Sequence[float],
        thresholds: Sequence[float] | None = None,
        gate: Gate | None = None,
    ) -> None:
        super().__init__()
        for name, given in (("levels", levels), ("thresholds", thresholds)):
            require(
                given is None or (isinstance(given, Iterable) and not isinstance(given, str)),
                f"{name} must be a list of numbers, one for each stage, not {given!r}",
            )
        require(
            gate is None or (callable(gate) and not isinstance(gate, type)),
            f"the gate must be a function (z, logits, sigma) → scores, not {gate!r}; "
            "SoftmaxGate(0.3) counts the votes with a softmax of at least 0.3",
        )
        rounded = tuple(float(np.float32(check_sigma("a level", s))) for s in levels)
        taus = tuple(float(t) for t in ([0.5] * len(rounded) if thresholds is None else thresholds))
        require(len(rounded) > 0, "a cascade needs at least one level")
        require(
            all(high > low for high, low in pairwise(rounded)),
            f"levels must fall, the largest noise first, not {list(levels)}",
        )
        require(
            len(taus) == len(rounded),
            f"a cascade of {len(rounded)} levels needs as many thresholds, not {len(taus)}",
        )
        require(
            all(0.5 <= tau < 1 for tau in taus),
            f"thresholds must lie in [0.5, 1), not {list(taus)}",
        )
        by_level = gate.confidence if isinstance(gate, SoftmaxGate) else None
        if isinstance(by_level, dict):
            unknown = [s for s in by_level if s not in rounded]
            require(not unknown, f"the gate names the levels {unknown}, which are not stages")
        self.stages = Stages(rounded, taus)
        self.gate = gate

    def forward(self, *given: Any) -> Tensor:
        raise VarsmoothError(
            "a cascade knows σ only after voting; give it to SmoothedClassifier as it is"
        )

    def describe(self) -> dict[str, Any]:
        """Every setting as plain JSON values."""
        return {
            "selector": "cascade",
            "levels": list(self.stages.levels),
            "thresholds": list(self.stages.thresholds),
            "gate": describe_gate(self.gate),
        }

    def extra_repr(self) -> str:
        return f"levels={list(self.stages.levels)}, thresholds={list(self.stages.thresholds)}"

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
    """A vote counts where the largest softmax probability of f is at least `confidence`.

    Args:
        confidence: One number for all levels, or a mapping from level to number.
    """

    def __init__(self, confidence: float | dict[float, float]) -> None:
        super().__init__()
        every = confidence.values() if isinstance(confidence, dict) else [confidence]
        require(all(0 <= c < 1 for c in every), f"confidence must lie in [0, 1), not {confidence}")
        if isinstance(confidence, dict):
            confidence = {float(np.float32(s)): c for s, c in confidence.items()}
        self.confidence = confidence

    def forward(self, z: Tensor, logits: Tensor, sigma: Tensor) -> Tensor:
        sure = logits.softmax(dim=1).amax(dim=1)  # (M,)
        if not isinstance(self.confidence, dict):
            return sure - self.confidence
        needed = torch.zeros_like(sure)
        for level, confidence in self.confidence.items():
            needed = torch.where(sigma == level, confidence, needed)
        return sure - needed

    def describe(self) -> dict[str, Any]:
        """Its settings as plain JSON values."""
        if isinstance(self.confidence, dict):
            return {"gate": "softmax", "confidence": [list(c) for c in self.confidence.items()]}
        return {"gate": "softmax", "confidence": self.confidence}


def describe_gate(gate: Gate | None) -> Any:
    """A gate's settings as JSON values; a plain callable has only its name."""
    if gate is None:
        return None
    if isinstance(gate, SoftmaxGate):
        return gate.describe()
    return {"gate": "function", "name": getattr(gate, "__qualname__", type(gate).__qualname__)}


@dataclass(frozen=True)
class Plan:
    """What to certify, fixed on the selection draws: the class, the stage, votes per stage."""

    candidate: int
    votes: tuple[int, ...]

    @property
    def stage(self) -> int:
        """k*, 0-based: the stage that answers."""
        return len(self.votes) - 1


def make_plan(stages: Stages, selection: Integers, n0: int, n: int, a: float) -> Plan:
    """The class A and the stage k* from which the largest radius is to be expected.

    Stage k* gets n votes; an earlier one as many as are worth their price (`_early_votes`).
    `selection` holds counts (S, classes) of n0 draws at each of the first S stages.
    """
    radius = cascade_radii(stages, *expected_quantiles(selection, n0, n, a))
    stage, candidate = (int(i) for i in np.unravel_index(radius.argmax(), radius.shape))
    goal = HEADROOM * float(radius[stage, candidate])
    others = np.delete(selection, candidate, axis=1).max(axis=1, initial=0)
    early = [
        _early_votes(int(others[j]), n0, n, stages.levels[j], a, stages.thresholds[j], goal)
        for j in range(stage)
    ]
    return Plan(candidate, (*early, n))


def can_improve(
    stages: Stages, selection: Integers, n0: int, n: int, a: float
) -> NDArray[np.bool_]:
    """Whether stages after the first S could give a larger radius than these: (...,)."""
    seen = selection.shape[-2]
    largest = max(
        float(bounds.class_radius(n, n, s, a, tau))
        for s, tau in zip(stages.levels[seen:], stages.thresholds[seen:], strict=True)
    )
    lower, upper = expected_quantiles(selection, n0, n, a)
    best = cascade_radii(stages, lower, upper).max(axis=(-2, -1))
    excluding = _excluding(stages, upper).min(axis=-2).max(axis=-1)
    improves: NDArray[np.bool_] = np.minimum(largest, excluding) > best
    return improves


def cascade_radii(stages: Stages, lower: Floats, upper: Floats) -> Floats:
    """R = min(H_k, min_{j<k} X_j) for every stage k and class A: (..., S, classes).

    `lower` is Φ⁻¹ of a lower bound on p_k(A), `upper` of an upper bound on the most likely other
    class at stage k; each (..., S, classes), for the first S stages.
    """
    levels, taus = _columns(stages, lower.shape[-2])
    radius: Floats = levels * (lower - taus)  # H_k
    floor = np.minimum.accumulate(_excluding(stages, upper), axis=-2)  # min_{i ≤ j} X_i
    radius[..., 1:, :] = np.minimum(radius[..., 1:, :], floor[..., :-1, :])
    return radius


def _excluding(stages: Stages, upper: Floats) -> Floats:
    """X_j of every stage and class A."""
    levels, taus = _columns(stages, upper.shape[-2])
    return levels * (taus - upper)


def _columns(stages: Stages, seen: int) -> tuple[Floats, Floats]:
    """s_j and Φ⁻¹(τ_j) of the first stages, as columns."""
    levels = np.asarray(stages.levels[:seen])[:, None]
    return levels, bounds.normal_quantile(stages.thresholds[:seen])[:, None]


def expected_quantiles(selection: Integers, n0: int, n: int, a: float) -> tuple[Floats, Floats]:
    """The quantiles that n votes should give, from counts (..., classes) of n0 selection draws."""
    classes = selection.shape[-1]
    return vote_quantiles(n * (selection + 1 / classes) / (n0 + 1), n, a)


def vote_quantiles(counts: Integers | Floats, n: int, a: float) -> tuple[Floats, Floats]:
    """Φ⁻¹(CP⁻) of each class and Φ⁻¹(CP⁺) of the largest other one, from counts (..., classes)."""
    none = np.zeros_like(counts[..., :1])
    ordered = np.sort(np.concatenate([none, counts], axis=-1), axis=-1)
    largest, second = ordered[..., -1:], ordered[..., -2:-1]
    other = np.where(counts == largest, second, largest)
    return (
        bounds.normal_quantile(bounds.clopper_pearson_lower(counts, n, a)),
        bounds.normal_quantile(bounds.clopper_pearson_upper(other, n, a)),
    )


def _early_votes(
    seen: int, n0: int, n: int, sigma: float, a: float, threshold: float, goal: float
) -> int:
    """The votes m ≤ n of an early stage with the largest E[min(X̂ / goal, 1)] − PRICE · m / n.

    The expectation is over what n0 draws say about p(c) of a class `seen` in them.
    """
    shares = betaincinv(0.5 + seen, 0.5 + n0 - seen, (np.arange(12) + 0.5) / 12)
    tries = np.unique(CHUNK * np.round(np.geomspace(CHUNK, max(n, 2 * CHUNK), 40) / CHUNK))
    tries = np.append(tries[tries < n], n)[:, None]
    reached = bounds.exclusion_radius(tries * shares, tries, sigma, a, threshold)
    kept = np.clip(reached / goal, 0, 1).mean(axis=1) if goal > 0 else 0.0
    return int(tries[np.argmax(kept - PRICE * tries[:, 0] / n), 0])
