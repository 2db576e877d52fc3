"""Predictions and certificates: frozen values with their evidence.

A radius is always computed from stored evidence, by `Certificate.derive`; certifying and
recomputing for another α are the same arithmetic.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from decimal import Decimal
from typing import Any, Literal

import torch
from torch import Tensor

from varsmooth.cascade import Stages
from varsmooth.defaults import ABSTAIN, Guarantee
from varsmooth.evidence import Evidence, Ledger, LevelVotes, SelectorEvidence
from varsmooth.methods import METHODS
from varsmooth.methods.base import Method, Selection
from varsmooth.results import Results
from varsmooth.rounding import rounded
from varsmooth.sampling import Sampler
from varsmooth.types import Class, Distance, Id, NonNegative, Positive


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
        samples: Noisy images shown to f.
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
        rule = METHODS[method]
        radius = rule.radius(evidence)
        certified = rule.certified(radius)
        return cls(
            prediction=evidence.votes[-1].candidate if certified else ABSTAIN,
            radius=radius if certified else 0.0,
            guarantee=rule.guarantee,
            method=method,
            ledger=evidence.ledger,
            votes=evidence.votes,
            selector=evidence.selector,
            stages=evidence.stages,
            **facts,
        )

    @property
    def evidence(self) -> Evidence:
        """What the radius is derived from."""
        return Evidence(self.ledger, self.votes, self.selector, self.stages)

    def derive_again(self, ledger: Ledger | None = None) -> "Certificate":
        """What follows from the same evidence, with α divided otherwise."""
        facts = {
            name: getattr(self, name) for name in ("sigma", "id", "seed", "settings", "samples")
        }
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
        return query is not None and METHODS[self.method].covers(self.ledger, query)

    def recompute(self, alpha: float, alpha_select: float | None = None) -> "Certificate":
        """The same evidence at another α, without sampling.

        A level that was never visited counts as R_j = −∞, so the answer stays true.
        """
        return self.derive_again(METHODS[self.method].recomputed(self.ledger, alpha, alpha_select))

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; floats keep every digit."""
        return asdict(self)

    @property
    def complete(self) -> bool:
        """Whether every part that the method reads is there, and the parts fit together."""
        counted = all(v.candidate < len(v.counts) and v.n > 0 for v in self.votes)
        return counted and self.method in METHODS and METHODS[self.method].complete(self.evidence)


def derive(
    method: Method,
    sampler: Sampler,
    selection: Selection,
    votes: Sequence[Sequence[LevelVotes]],
    samples: Sequence[int],
) -> list[Certificate]:
    """The certificates of a batch from the votes and the number of draws of each image."""
    g, noise = sampler.g, sampler.noise
    settings = {**g.selector.describe(), "lattice": g.lattice}
    seen: Sequence[SelectorEvidence | None] = selection.selector or [None] * len(votes)
    return [
        Certificate.derive(
            method.name,
            Evidence(selection.ledgers[i], tuple(votes[i]), seen[i], selection.stages),
            sigma=selection.sigma[i],
            id=noise.ids[i],
            seed=noise.seed,
            settings=settings,
            samples=samples[i],
        )
        for i in sampler.rows
    ]


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

    Attributes:
        certificate: All that the votes prove, at least `radius`.
        radii: The requested radii, ascending.
        reached: How many of them are certified, from the smallest on.
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
        """Noisy images passed through f."""
        return self.certificate.samples


class Decisions(Results[Decision]):
    """What `certify_at` returns for a batch."""

    _columns = ("id", "prediction", "sigma", "radius", "reason")
    _shown = Results._shown | {"radius": lambda radius: rounded(Decimal(str(radius)), 4)}

    @property
    def radius(self) -> Tensor:
        """The largest certified one of the radii, float64 (B,); 0 where none is."""
        return torch.tensor([item.radius for item in self.items], dtype=torch.float64)

    @property
    def certified(self) -> list[bool]:
        return [item.certified for item in self.items]

    @property
    def samples(self) -> list[int]:
        """Noisy images passed through f, per image."""
        return [item.samples for item in self.items]

    @property
    def certificates(self) -> Certificates:
        """The certificate of each image."""
        return Certificates(tuple(item.certificate for item in self.items))
