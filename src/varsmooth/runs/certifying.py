"""Certificates for a data set."""

from dataclasses import asdict, dataclass
from typing import Any

from varsmooth.certificates import Certificate
from varsmooth.certification import certify
from varsmooth.data import Batch
from varsmooth.runs.options import CertifyOptions, DataOptions, ModelOptions, RunOptions
from varsmooth.runs.records import Row, Run
from varsmooth.runs.runner import Setup, Task, labels_of, run
from varsmooth.runs.vote_cache import RememberingClassifier
from varsmooth.selectors import FixedSelector, MedianSelector, NoiseSelector
from varsmooth.smoothing import SmoothedClassifier


def certify_dataset(
    model: ModelOptions, data: DataOptions, settings: CertifyOptions, options: RunOptions
) -> Run:
    """Certify every image of a data set into the folder of a run; continues what is there."""
    return run(Certifying(settings), model, data, options)


@dataclass(frozen=True)
class Certifying(Task):
    """The task: one certificate for each image."""

    settings: CertifyOptions
    verb = "certify"

    def config(self) -> dict[str, Any]:
        votes = self.settings.votes
        return asdict(self.settings) | {"votes": None if votes is None else str(votes.resolve())}

    def block(self, batch_size: int) -> int:
        return images_per_block(self.settings.n, batch_size)

    def equip(self, g: SmoothedClassifier) -> SmoothedClassifier:
        votes = self.settings.votes
        return g if votes is None else RememberingClassifier(g, votes)

    def rows(self, setup: Setup, batch: Batch) -> list[Row]:
        wishes = {name: value for name, value in asdict(self.settings).items() if name != "votes"}
        found = certify(setup.g, batch.images, ids=batch.ids, batch_size=setup.batch_size, **wishes)
        return [
            self._row(setup.g.selector, label, certificate)
            for label, certificate in zip(labels_of(batch), found, strict=True)
        ]

    def _row(self, selector: NoiseSelector, label: int | None, certificate: Certificate) -> Row:
        evidence = certificate.to_dict()
        for constant in ("settings", "fingerprints"):  # these are in the run's header
            del evidence[constant]
        return {
            "id": certificate.id,
            "label": label,
            "prediction": certificate.prediction,
            "radius": certificate.radius,
            "guarantee": certificate.guarantee,
            "sigma": certificate.sigma,
            "samples": self._samples(certificate),
            "selector_samples": self._selector_samples(selector, certificate),
            "evidence": evidence,
        }

    def _samples(self, certificate: Certificate) -> int:
        """Noisy images behind the certificate that f was shown, in this run or for its votes.

        The paper's method chooses a class at every level, the others once.
        """
        choices = len(certificate.votes) if certificate.method == "paper" else 1
        return choices * self.settings.n0 + sum(level.n for level in certificate.votes)

    def _selector_samples(self, selector: NoiseSelector, certificate: Certificate) -> int:
        """Images that h was shown."""
        if certificate.selector is not None:
            chosen = self.settings.n0 if certificate.method == "sound" else 0
            return chosen + len(certificate.selector.samples)
        if isinstance(selector, MedianSelector):
            return selector.n
        return 0 if isinstance(selector, FixedSelector) else 1


def images_per_block(n: int, batch_size: int) -> int:
    """Images that together fill about eight forward passes: a last, smaller one costs little."""
    return max(1, -(-8 * batch_size // max(n, 1)))
