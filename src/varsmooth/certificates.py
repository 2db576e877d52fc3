"""Predictions, certificates and decisions: frozen values with their evidence, and batches of them.

A radius is always computed from stored evidence, by `Certificate.derive`; certifying and
recomputing for another α are the same arithmetic.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar, overload

import torch
from torch import Tensor

from varsmooth.cascade import Stages
from varsmooth.defaults import ABSTAIN, Guarantee
from varsmooth.evidence import Evidence, Ledger, LevelVotes, SelectorEvidence
from varsmooth.rounding import rounded
from varsmooth.types import Class, Distance, Id, NonNegative, Positive

if TYPE_CHECKING:
    from typing_extensions import Self

    from varsmooth.methods import Method


@dataclass(frozen=True)
class Certificate:
    """One image's certificate: every x' with ‖x' − x‖₂ < radius gets class `prediction`.

    Attributes:
        prediction: The class, or ABSTAIN (−1) where nothing can be certified.
        radius: The certified ℓ2 radius, float64; 0 if the prediction is ABSTAIN.
        guarantee: `sound`: P(radius is too large) ≤ α, for every perturbation of x;
            `conditional`: the same if the attacker does not move the selector's choice of σ;
            `heuristic`: the paper's three-level value, which looks at a few levels only and can be
            false.
        sigma: The level that the selector chose on the selection draws; of a cascade, the level of
            the stage that decides.
        stages: The cascade, of which `votes` has the stages 1, …, k*.
        samples: Noisy copies classified by f.
    """

    prediction: Class
    radius: Distance
    sigma: Positive
    guarantee: Guarantee
    method: str
    ledger: Ledger = field(repr=False)
    votes: tuple[LevelVotes, ...] = field(repr=False)
    selector: SelectorEvidence | None = field(repr=False)  # may hold 1001 samples
    id: Id
    seed: int
    settings: dict[str, Any] = field(default_factory=dict, repr=False)
    stages: Stages | None = field(default=None, repr=False)
    samples: NonNegative = 0

    @classmethod
    def derive(cls, method: str, evidence: Evidence, **facts: Any) -> "Certificate":
        """The certificate that follows from the evidence by the method of this name."""
        rule = _methods()[method]
        radius = rule.radius(evidence)
        certified = rule.certified(radius)
        return cls(
            prediction=evidence.votes[-1].candidate if certified else ABSTAIN,
            radius=radius if certified else 0.0,
            guarantee=rule.guarantee,
            method=method,
            **vars(evidence),
            **facts,
        )

    @property
    def evidence(self) -> Evidence:
        """What the radius is derived from."""
        return Evidence(self.ledger, self.votes, self.selector, self.stages)

    @property
    def votes_at_sigma(self) -> LevelVotes:
        """The votes at the certificate's σ; of a cascade, of the stage that decides."""
        return next((level for level in self.votes if level.sigma == self.sigma), self.votes[-1])

    def rederive(self, ledger: Ledger | None = None) -> "Certificate":
        """Derive the certificate again from the same evidence, optionally under another ledger."""
        names = ("sigma", "id", "seed", "settings", "samples")
        facts = {name: getattr(self, name) for name in names}
        evidence = replace(self.evidence, ledger=ledger or self.ledger)
        return Certificate.derive(self.method, evidence, **facts)

    def covers(self, answer: "Prediction") -> bool:
        """Whether a query like this one, inside the radius, errs with probability ≤ its own α.

        With a median-protected selector the radius assumes a deployed median of N_p draws that
        leaves its band with probability ≤ α_p. So the query must set aside at least α_p
        (`alpha_select` of `predict`) and take at least N_p draws; with band=False the radius holds
        for the ideal median only.
        """
        query = answer.ledger
        return query is not None and _methods()[self.method].covers(self.ledger, query)

    def recompute(self, alpha: float, alpha_select: float | None = None) -> "Certificate":
        """The same evidence at another α, without sampling.

        A level that was never visited counts as R_j = −∞, so the answer stays true.
        """
        rule = _methods()[self.method]
        return self.rederive(rule.recomputed(self.ledger, alpha, alpha_select))

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; floats keep every digit."""
        return asdict(self)

    @property
    def complete(self) -> bool:
        """Whether every part that the method reads is there, and the parts fit together."""
        counted = all(v.candidate < len(v.counts) and v.n > 0 for v in self.votes)
        rule = _methods().get(self.method)
        return counted and rule is not None and rule.complete(self.evidence)


def _methods() -> "dict[str, Method]":
    from varsmooth.methods import METHODS  # which imports this module

    return METHODS


@dataclass(frozen=True)
class Prediction:
    """One image's prediction: the majority class, or ABSTAIN (−1) where it is not significant."""

    prediction: int
    sigma: float
    counts: tuple[int, ...]
    ledger: Ledger | None
    id: int
    seed: int
    samples: int


Reason = Literal["certified", "futile", "undecided"]


@dataclass(frozen=True)
class Decision:
    """One image's answer to "which of these radii can be certified?".

    Attributes:
        certificate: All that the votes prove, at least `radius`.
        radii: The requested radii, ascending.
        reached: Number of radii certified; always the smallest ones.
        reason: Why not more. `certified`: all are. `futile`: the samples contradict the next one,
            or the votes left had no real chance to certify it. `undecided`: n_max votes did not
            suffice. None of these claims that the true radius is smaller.
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
        """The largest of the radii that is certified; 0 where none is."""
        return self.radii[self.reached - 1] if self.certified else 0.0

    @property
    def prediction(self) -> int:
        """The class, or ABSTAIN where none of the radii is certified."""
        return self.certificate.prediction if self.certified else ABSTAIN

    @property
    def sigma(self) -> float:
        return self.certificate.sigma

    @property
    def id(self) -> int:
        return self.certificate.id

    @property
    def samples(self) -> int:
        """Noisy copies classified by f."""
        return self.certificate.samples


Result = TypeVar("Result", bound=Any)

SHOWN = 12
"""Images of a batch that `print` and a notebook show."""


@dataclass(frozen=True, repr=False)
class Results(Sequence[Result], Generic[Result]):
    """The results of a batch: `results[i]` is one image's; numeric columns are tensors (B,).

    `Decisions.certified` and `.samples` are lists instead, of one value per image.
    """

    items: tuple[Result, ...]

    _columns: ClassVar[tuple[str, ...]] = ("id", "prediction", "sigma")
    _shown: ClassVar[dict[str, Callable[[float], str]]] = {
        "sigma": "{:.4f}".format,
        "radius": lambda radius: rounded(radius, 4),
    }

    def __repr__(self) -> str:
        """A short table; the evidence is in the items."""
        lines = self._lines()
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        table = ["  ".join(map(str.rjust, line, widths)) for line in lines]
        return "\n".join(table + self._more())

    def _repr_html_(self) -> str:
        head, *rows = self._lines()
        names = "".join(f"<th>{name}</th>" for name in head)
        cells = ["".join(f"<td>{cell}</td>" for cell in row) for row in rows]
        cells += [f"<td colspan={len(head)}>{line}</td>" for line in self._more()]
        body = "".join(f"<tr>{row}</tr>" for row in cells)
        return f"<table><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>"

    def _lines(self) -> list[tuple[str, ...]]:
        """Names of the columns, and a line for each image."""
        shown = [
            tuple(self._shown.get(name, str)(getattr(item, name)) for name in self._columns)
            for item in self.items[:SHOWN]
        ]
        return [self._columns, *shown]

    def _more(self) -> list[str]:
        return [f"… {len(self)} images in all"] if len(self) > SHOWN else []

    def __len__(self) -> int:
        return len(self.items)

    @overload
    def __getitem__(self, index: int) -> Result: ...
    @overload
    def __getitem__(self, index: slice) -> "Self": ...
    def __getitem__(self, index: int | slice) -> "Result | Self":
        return type(self)(self.items[index]) if isinstance(index, slice) else self.items[index]

    def _column(self, name: str, dtype: torch.dtype | None = None) -> Tensor:
        return torch.tensor([getattr(item, name) for item in self.items], dtype=dtype)

    @property
    def prediction(self) -> Tensor:
        """Classes, int64 (B,); −1 where abstaining."""
        return self._column("prediction")

    @property
    def sigma(self) -> Tensor:
        """Noise levels, float64 (B,)."""
        return self._column("sigma", torch.float64)


class Predictions(Results[Prediction]):
    """What `predict` returns for a batch."""

    @property
    def counts(self) -> Tensor:
        """Votes, int64 (B, classes)."""
        return self._column("counts")


class Certificates(Results[Certificate]):
    """What `certify` returns for a batch."""

    _columns = ("id", "prediction", "sigma", "radius", "guarantee")

    @property
    def radius(self) -> Tensor:
        """Radii, float64 (B,); 0 where abstaining."""
        return self._column("radius", torch.float64)

    @property
    def guarantee(self) -> Guarantee:
        """What the radii mean; one call gives one guarantee."""
        return self.items[0].guarantee

    def recompute(self, alpha: float, alpha_select: float | None = None) -> "Certificates":
        """`Certificate.recompute` for every image."""
        return Certificates(tuple(item.recompute(alpha, alpha_select) for item in self.items))


class Decisions(Results[Decision]):
    """What `certify_at` returns for a batch."""

    _columns = ("id", "prediction", "sigma", "radius", "reason")
    _shown = Results._shown | {"radius": lambda radius: rounded(Decimal(str(radius)), 4)}

    @property
    def radius(self) -> Tensor:
        """The largest certified one of the radii, float64 (B,); 0 where none is."""
        return self._column("radius", torch.float64)

    @property
    def certified(self) -> list[bool]:
        """Whether any of the radii is certified, a list of one value per image."""
        return [item.certified for item in self.items]

    @property
    def samples(self) -> list[int]:
        """Noisy copies classified by f, a list of one number per image."""
        return [item.samples for item in self.items]

    @property
    def certificates(self) -> Certificates:
        """The certificate of each image."""
        return Certificates(tuple(item.certificate for item in self.items))
