"""What a prediction or a certificate is: a frozen value with the evidence it follows from.

A radius is always computed from stored evidence, by `Certificate.derive`; certifying and
recomputing for another α are the same arithmetic.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Protocol, TypeVar, overload

import numpy as np
import torch
from torch import Tensor

from varsmooth import bounds
from varsmooth.cascade import Stages
from varsmooth.errors import require
from varsmooth.evidence import Ledger, LevelVotes, SelectorEvidence
from varsmooth.rounding import rounded

if TYPE_CHECKING:
    from typing_extensions import Self

ABSTAIN = -1
"""The prediction of a smoothed classifier that is not sure enough to answer."""

Method = Literal["fixed", "sound", "cascade", "paper", "conditional"]
Guarantee = Literal["sound", "conditional", "heuristic"]
GUARANTEES: dict[Method, Guarantee] = {
    "fixed": "sound",
    "sound": "sound",
    "cascade": "sound",
    "conditional": "conditional",
    "paper": "heuristic",
}


@dataclass(frozen=True)
class Certificate:
    """One image's certificate: every x' with ‖x' − x‖₂ < radius gets class `prediction`.

    guarantee: `sound`: P(radius is too large) ≤ α, whatever the attacker does to x;
    `conditional`: the same if the attacker leaves the selector's choice of σ alone;
    `heuristic`: the paper's three-level value, which looks at a few levels only and can be false.
    prediction is ABSTAIN (−1) and radius 0 where nothing can be certified. radius is float64.
    sigma: the level the selector chose on the selection draws; of a cascade, the level of the
    stage that answers; stages: the cascade, of which `votes` has the stages 1, …, k*.
    samples: noisy images that f was shown.
    """

    prediction: int
    radius: float
    sigma: float
    guarantee: Guarantee
    method: Method
    ledger: Ledger = field(repr=False)
    votes: tuple[LevelVotes, ...] = field(repr=False)
    selector: SelectorEvidence | None = field(repr=False)  # may hold 1001 samples
    id: int
    seed: int
    settings: dict[str, Any] = field(repr=False)
    fingerprints: dict[str, str] = field(repr=False)
    stages: Stages | None = field(default=None, repr=False)
    samples: int = 0

    @classmethod
    def derive(
        cls,
        method: Method,
        ledger: Ledger,
        votes: Sequence[LevelVotes],
        selector: SelectorEvidence | None = None,
        stages: Stages | None = None,
        **facts: Any,
    ) -> "Certificate":
        """The certificate that follows from the evidence."""
        if stages is not None:
            prediction, radius = _cascade(ledger, votes, stages)
        elif selector is not None:
            rule = _worst_level if method == "paper" else _exhaustive
            prediction, radius = rule(ledger, votes, selector)
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
            stages=stages,
            **facts,
        )

    def covers(self, answer: "Prediction") -> bool:
        """Whether a query like this one, inside the radius, errs with probability ≤ its own α.

        A dual radius assumes a deployed median of N_p draws that leaves its band with probability
        ≤ α_p. So the query must set aside at least α_p (`alpha_select` of `predict`) and take at
        least N_p draws; with band=False the radius speaks of the ideal median and covers none.
        """
        if answer.ledger is None or self.method != "sound":
            return answer.ledger is not None
        enough = 0 < self.ledger.n_deploy <= answer.ledger.n_deploy
        return enough and self.ledger.alpha_deploy <= answer.ledger.alpha_deploy

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
        facts = {"sigma", "id", "seed", "settings", "fingerprints", "stages", "samples"}
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
            LevelVotes(**{**v, "counts": tuple(v["counts"])}) for v in values["votes"]
        )
        if selector := values["selector"]:
            values["selector"] = SelectorEvidence(**_tuples(selector))
        if stages := values.get("stages"):
            values["stages"] = Stages(**_tuples(stages))
        return cls(**values)


def _tuples(values: dict[str, Any]) -> dict[str, Any]:
    """Lists, as JSON has them, as the tuples they were."""
    return {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}


def _exhaustive(
    ledger: Ledger, votes: Sequence[LevelVotes], selector: SelectorEvidence
) -> tuple[int, float]:
    """Theorem A: R̂ = min_j max(D̂_j, R̂_j) over every level of the grid, for one class ĉ."""
    assert selector.levels is not None
    seen = {level.sigma: level.radius(ledger) for level in votes}
    radii = [seen.get(sigma, -np.inf) for sigma in selector.levels]
    return votes[0].candidate, float(np.maximum(selector.entry_distances(ledger), radii).min())


def stage_radii(ledger: Ledger, votes: Sequence[LevelVotes], stages: Stages) -> list[float]:
    """X̂_1, …, X̂_{k−1} and Ĥ_k: how far x' must be for a stage to answer another class, or not A."""
    a, anytime = ledger.alpha_class, ledger.anytime
    *early, last = votes
    *others, tau = stages.thresholds[: stages.levels.index(last.sigma) + 1]
    if len(early) < len(others):
        return [-np.inf]  # a stage without votes may answer anything
    radii = [
        float(bounds.exclusion_radius(v.runner_up, v.n, v.sigma, a, threshold, anytime))
        for v, threshold in zip(early, others, strict=True)
    ]
    return [*radii, float(bounds.class_radius(last.top, last.n, last.sigma, a, tau, anytime))]


def _cascade(ledger: Ledger, votes: Sequence[LevelVotes], stages: Stages) -> tuple[int, float]:
    """Theorem C: R̂ = min(Ĥ_k, min_{j<k} X̂_j) for one class A; the last of the votes is stage k.

    At x' nearer than R no stage j < k answers a class other than A, and stage k, if it is
    reached, answers A. P(R̂ > R) ≤ α_c without a correction for stages or classes: given (A, k),
    R is a minimum of fixed numbers, and only the bound of the smallest can make R̂ too large.
    """
    return votes[-1].candidate, min(stage_radii(ledger, votes, stages))


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


SHOWN = 12
"""Images of a batch that `print` and a notebook show."""


@dataclass(frozen=True, repr=False)
class Results(Sequence[Result], Generic[Result]):
    """The results of a batch: `results[i]` is one image's; the columns are tensors (B,)."""

    items: tuple[Result, ...]

    _columns: ClassVar[tuple[str, ...]] = ("id", "prediction", "sigma")

    def __repr__(self) -> str:
        """A short table; the evidence is in the items."""
        lines = self._lines()
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        table = ["  ".join(map(str.rjust, line, widths)) for line in lines]
        return "\n".join(table + self._more())

    def _repr_html_(self) -> str:
        head, *rows = self._lines()
        cells = ["".join(f"<td>{cell}</td>" for cell in row) for row in rows]
        body = "".join(f"<tr>{row}</tr>" for row in cells) + "".join(
            f"<tr><td colspan={len(head)}>{line}</td></tr>" for line in self._more()
        )
        names = "".join(f"<th>{name}</th>" for name in head)
        return f"<table><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>"

    def _lines(self) -> list[tuple[str, ...]]:
        """Names of the columns, and a line for each image; decimals are rounded down."""
        cells = [[getattr(item, name) for name in self._columns] for item in self.items[:SHOWN]]
        shown = [
            tuple(rounded(c, 4) if isinstance(c, float) else str(c) for c in row) for row in cells
        ]
        return [self._columns, *shown]

    def _more(self) -> list[str]:
        return [f"… {len(self)} images in all"] if len(self) > SHOWN else []

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

    _columns = ("id", "prediction", "sigma", "radius", "guarantee")

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


Reason = Literal["certified", "futile", "undecided"]


@dataclass(frozen=True)
class Decision:
    """One image's answer to "which of these radii can be certified?".

    certificate: all that the votes prove, at least `radius`. radii: those asked, ascending.
    reached: how many of them are certified, from the smallest on.
    reason: why not more. `certified`: all are. `futile`: the votes speak against the next one, or
    those still to come had no real chance to certify it; `undecided`: n_max votes did not
    suffice. Neither claims that the true radius is smaller.
    """

    certificate: Certificate
    radii: tuple[float, ...]
    reached: int
    reason: Reason

    @property
    def certified(self) -> bool:
        """Whether any of the radii is, with the meaning of `guarantee` at level α."""
        return self.reached > 0

    @property
    def radius(self) -> float:
        """The largest of the radii that is certified; the smallest where none is."""
        return self.radii[max(self.reached - 1, 0)]

    @property
    def prediction(self) -> int:
        """The class, or ABSTAIN where none of the radii is certified."""
        return self.certificate.prediction if self.certified else ABSTAIN

    @property
    def sigma(self) -> float:
        return self.certificate.sigma

    @property
    def guarantee(self) -> Guarantee:
        return self.certificate.guarantee

    @property
    def samples(self) -> int:
        """Noisy images that f was shown."""
        return self.certificate.samples

    @property
    def votes(self) -> tuple[LevelVotes, ...]:
        return self.certificate.votes

    @property
    def id(self) -> int:
        return self.certificate.id


class Decisions(Results[Decision]):
    """What `certify_at` returns for a batch."""

    _columns = ("id", "prediction", "sigma", "radius", "reason")

    @property
    def certified(self) -> list[bool]:
        return [item.certified for item in self.items]

    @property
    def samples(self) -> list[int]:
        """Noisy images that f was shown, per image."""
        return [item.samples for item in self.items]

    @property
    def certificates(self) -> Certificates:
        """All that the votes prove, per image."""
        return Certificates(tuple(item.certificate for item in self.items))
