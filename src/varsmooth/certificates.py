"""What a prediction or a certificate is: a frozen value with the evidence it follows from.

A radius is always computed from stored evidence, by `Certificate.derive`; certifying and
recomputing for another α are the same arithmetic.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar, overload

import numpy as np
import torch
from torch import Tensor

from varsmooth import bounds
from varsmooth.errors import require
from varsmooth.selectors import Grid

if TYPE_CHECKING:
    from typing_extensions import Self

ABSTAIN = -1
"""The prediction of a smoothed classifier that is not sure enough to answer."""

Method = Literal["fixed", "sound", "paper", "conditional"]
Guarantee = Literal["sound", "conditional", "heuristic"]
GUARANTEES: dict[Method, Guarantee] = {
    "fixed": "sound",
    "sound": "sound",
    "conditional": "conditional",
    "paper": "heuristic",
}


@dataclass(frozen=True)
class Ledger:
    """How α was spent on one image.

    alpha: the total the caller allowed. alpha_class (α_c): for the votes of f, at each level.
    alpha_select (α_h): for the selector's bounds, half on each side.
    alpha_deploy (α_p), n_deploy (N_p): the deployed `predict` that a dual certificate covers; its
    median of N_p draws leaves its band with probability ≤ α_p. Spent by each query, not here.
    runner_up: whether α_c is split between the winner's bound and the runner-up's.
    """

    alpha: float
    alpha_class: float
    alpha_select: float = 0.0
    alpha_deploy: float = 0.0
    n_deploy: int = 0
    runner_up: bool = False


@dataclass(frozen=True)
class LevelVotes:
    """Votes of f at one noise level: counts per class, and the class that other draws chose."""

    sigma: float
    candidate: int
    counts: tuple[int, ...]

    @property
    def n(self) -> int:
        return sum(self.counts)

    def add(self, counts: Sequence[int]) -> "LevelVotes":
        """The same level after more votes."""
        total = [a + b for a, b in zip(self.counts, counts, strict=True)] if self.counts else counts
        return replace(self, counts=tuple(total))

    def radius(self, ledger: Ledger) -> float:
        """R̂ = σ Φ⁻¹(CP⁻(n_ĉ, n, α_c)) or its runner-up form; negative if ĉ has no majority."""
        top = self.counts[self.candidate]
        if not ledger.runner_up:
            return float(bounds.class_radius(top, self.n, self.sigma, ledger.alpha_class))
        others = self.counts[: self.candidate] + self.counts[self.candidate + 1 :]
        return float(
            bounds.class_radius_with_runner_up(
                top, max(others, default=0), self.n, self.sigma, ledger.alpha_class
            )
        )


@dataclass(frozen=True)
class SelectorEvidence:
    """What was seen of a median-smoothed selector: its raw samples and the rules applied to them.

    samples: h(x+ε_k), ascending, before clip and grid. distance: the D of the paper's method.
    """

    samples: tuple[float, ...]
    sigma_m: float
    clip: tuple[float, float] | None = None
    levels: tuple[float, ...] | None = None
    distance: float | None = None

    def entry_distances(self, ledger: Ledger) -> bounds.Floats:
        """D̂_j of every grid level (L,), less the band of the deployed median (Theorem B)."""
        assert self.levels is not None
        thresholds = Grid(self.levels).thresholds
        below = np.searchsorted(np.asarray(self.samples), thresholds, side="right")
        band = bounds.median_band(ledger.n_deploy, ledger.alpha_deploy) if ledger.n_deploy else 0.0
        return bounds.entry_distances(
            below, len(self.samples), self.sigma_m, ledger.alpha_select / 2, band
        )


@dataclass(frozen=True)
class Certificate:
    """One image's certificate: every x' with ‖x' − x‖₂ < radius gets class `prediction`.

    guarantee: `sound`: P(radius is too large) ≤ α, whatever the attacker does to x;
    `conditional`: the same if the attacker leaves the selector's choice of σ alone;
    `heuristic`: the paper's three-level value, which looks at a few levels only and can be false.
    prediction is ABSTAIN (−1) and radius 0 where nothing can be certified. radius is float64.
    sigma: the level the selector chose on the selection draws.
    """

    prediction: int
    radius: float
    sigma: float
    guarantee: Guarantee
    method: Method
    ledger: Ledger
    votes: tuple[LevelVotes, ...]
    selector: SelectorEvidence | None
    id: int
    seed: int
    settings: dict[str, Any]
    fingerprints: dict[str, str]

    @classmethod
    def derive(
        cls,
        method: Method,
        ledger: Ledger,
        votes: Sequence[LevelVotes],
        selector: SelectorEvidence | None = None,
        **facts: Any,
    ) -> "Certificate":
        """The certificate that follows from the evidence."""
        if method == "paper":
            assert selector is not None
            prediction, radius = _worst_level(ledger, votes, selector)
        elif method == "sound":
            assert selector is not None
            prediction, radius = _exhaustive(ledger, votes, selector)
        else:
            prediction, radius = votes[0].candidate, votes[0].radius(ledger)
        failed = prediction == ABSTAIN or radius < 0 or (radius == 0 and method != "paper")
        return cls(
            prediction=ABSTAIN if failed else prediction,
            radius=0.0 if failed else radius,
            guarantee=GUARANTEES[method],
            method=method,
            ledger=ledger,
            votes=tuple(votes),
            selector=selector,
            **facts,
        )

    def recompute(self, alpha: float, alpha_select: float | None = None) -> "Certificate":
        """The same evidence at another α, without sampling.

        A level that was never visited counts as R_j = −∞, so the answer stays true.
        """
        ledger = self.ledger
        require(
            alpha_select is None or self.method == "sound",
            "alpha_select can be changed afterwards only for method='sound'; certify again",
        )
        select = ledger.alpha_select if alpha_select is None else alpha_select
        require(0 <= select < 1, f"alpha_select must lie between 0 and 1, not {select}")
        spent = select if self.method == "sound" else 0.0
        require(
            spent < alpha < 1, f"alpha must lie between alpha_select={spent:g} and 1, not {alpha}"
        )
        ledger = replace(ledger, alpha=alpha, alpha_class=alpha - spent, alpha_select=select)
        facts = {"sigma", "id", "seed", "settings", "fingerprints"}
        return Certificate.derive(
            self.method, ledger, self.votes, self.selector, **{k: getattr(self, k) for k in facts}
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; floats keep every digit."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Certificate":
        """The inverse of `to_dict`, also after a trip through JSON."""
        values = dict(values)
        values["ledger"] = Ledger(**values["ledger"])
        values["votes"] = tuple(
            LevelVotes(v["sigma"], v["candidate"], tuple(v["counts"])) for v in values["votes"]
        )
        if selector := values["selector"]:
            tuples = {k: v and tuple(v) for k, v in selector.items() if k in _SEQUENCES}
            values["selector"] = SelectorEvidence(**{**selector, **tuples})
        return cls(**values)


_SEQUENCES = ("samples", "clip", "levels")


def _exhaustive(
    ledger: Ledger, votes: Sequence[LevelVotes], selector: SelectorEvidence
) -> tuple[int, float]:
    """Theorem A: R̂ = min_j max(D̂_j, R̂_j) over every level of the grid, for one class ĉ."""
    assert selector.levels is not None
    seen = {level.sigma: level.radius(ledger) for level in votes}
    radii = [seen.get(sigma, -np.inf) for sigma in selector.levels]
    return votes[0].candidate, float(np.maximum(selector.entry_distances(ledger), radii).min())


def _worst_level(
    ledger: Ledger, votes: Sequence[LevelVotes], selector: SelectorEvidence
) -> tuple[int, float]:
    """The paper's rule: the worst radius over the levels looked at, capped at D.

    Nothing is certified if a level has another class or no majority, or if there were no votes
    because the bound on the selector is infinite.
    """
    radii = [level.radius(ledger) for level in votes]
    classes = {level.candidate for level in votes}
    if len(classes) != 1 or min(radii) <= 0:
        return ABSTAIN, 0.0
    assert selector.distance is not None
    return classes.pop(), min(*radii, selector.distance)


@dataclass(frozen=True)
class Prediction:
    """One image's answer: the class most votes name, or ABSTAIN (−1) if α does not allow it."""

    prediction: int
    sigma: float
    counts: tuple[int, ...]
    ledger: Ledger | None
    id: int
    seed: int


class Answer(Protocol):
    """What every result of one image has."""

    @property
    def prediction(self) -> int: ...
    @property
    def sigma(self) -> float: ...


Result = TypeVar("Result", bound=Answer)


@dataclass(frozen=True)
class Results(Sequence[Result], Generic[Result]):
    """The results of a batch: `results[i]` is one image's; the columns are tensors (B,)."""

    items: tuple[Result, ...]

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Result]:
        return iter(self.items)

    @overload
    def __getitem__(self, index: int) -> Result: ...
    @overload
    def __getitem__(self, index: slice) -> "Self": ...
    def __getitem__(self, index: int | slice) -> "Result | Self":
        return type(self)(self.items[index]) if isinstance(index, slice) else self.items[index]

    @property
    def prediction(self) -> Tensor:
        """Classes, int64 (B,); −1 where abstaining."""
        return torch.tensor([item.prediction for item in self.items])

    @property
    def sigma(self) -> Tensor:
        """Noise levels, float64 (B,)."""
        return torch.tensor([item.sigma for item in self.items], dtype=torch.float64)


class Predictions(Results[Prediction]):
    """What `predict` returns for a batch."""

    @property
    def counts(self) -> Tensor:
        """Votes, int64 (B, classes)."""
        return torch.tensor([item.counts for item in self.items])


class Certificates(Results[Certificate]):
    """What `certify` returns for a batch."""

    @property
    def radius(self) -> Tensor:
        """Radii, float64 (B,); 0 where abstaining."""
        return torch.tensor([item.radius for item in self.items], dtype=torch.float64)

    @property
    def guarantee(self) -> Guarantee:
        """What the radii mean; one call gives one guarantee."""
        return self.items[0].guarantee

    def recompute(self, alpha: float, alpha_select: float | None = None) -> "Certificates":
        """`Certificate.recompute` for every image."""
        return Certificates(tuple(item.recompute(alpha, alpha_select) for item in self.items))
