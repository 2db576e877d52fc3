"""Certificates for a data set."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from varsmooth.api import certify, certify_as_paper, certify_at, certify_until
from varsmooth.certificates import Certificate, Certificates
from varsmooth.data import Batch
from varsmooth.defaults import ABSTAIN, N_MAX, Options
from varsmooth.evaluation.options import CertifyOptions, DataOptions, ModelOptions, RunOptions
from varsmooth.evaluation.records import Row, Run
from varsmooth.evaluation.runner import BLOCK_SIZE, Evaluation, Setup, labels_or_none, run
from varsmooth.evaluation.vote_cache import CachedSmoothedClassifier
from varsmooth.methods import METHODS, method_for
from varsmooth.smoothing import Selector, SmoothedClassifier


def certify_dataset(
    model: ModelOptions, data: DataOptions, options: CertifyOptions, run_options: RunOptions
) -> Run:
    """Certify every image of a data set into the folder of a run; resumes an unfinished run."""
    cache = options.vote_cache
    options = replace(options, vote_cache=cache and cache.resolve())
    return run(Certifying(options), model, data, run_options)


@dataclass(frozen=True)
class Certifying(Evaluation):
    """One certificate for each image."""

    options: CertifyOptions
    verb = "certify"

    def config(self) -> dict[str, Any]:
        cache = self.options.vote_cache
        return asdict(self.options) | {"vote_cache": cache and str(cache)}

    def block(self, batch_size: int) -> int:
        return super().block(batch_size) if self.options.n_max is None else BLOCK_SIZE

    def wrap_model(self, g: SmoothedClassifier, prints: Mapping[str, str]) -> SmoothedClassifier:
        cache = self.options.vote_cache
        return g if cache is None else CachedSmoothedClassifier(g, cache, prints)

    def rows(self, setup: Setup, batch: Batch) -> list[Row]:
        certificates = self._certify(setup, batch)
        return [
            certificate_row(setup.g.selector, label, certificate, self.options.n0)
            for label, certificate in zip(labels_or_none(batch), certificates, strict=True)
        ]

    def _certify(self, setup: Setup, batch: Batch) -> Certificates:
        g, x, own = setup.g, batch.images, self.options
        names = ("n0", "n_select", "alpha_select", "band", "bound", "every_index")
        options = Options(
            method="conditional" if own.method == "conditional" else "sound",
            n_max=own.n_max or N_MAX,
            batch_size=setup.batch_size,
            undecided=setup.undecided if own.n_max else None,
            **{name: getattr(own, name) for name in names},
        )
        common: Any = {"alpha": own.alpha, "seed": own.seed, "ids": batch.ids}
        common["options"] = options
        if own.until is not None:  # the votes decide when to stop
            return certify_until(g, x, own.until, at=own.at or 0.0, **common)
        if own.at is not None:
            return certify_at(g, x, own.at, **common).certificates
        if own.distance is not None:  # method paper, see CertifyOptions
            method_for(g.selector, own.method)  # its error names the option
            return certify_as_paper(g, x, own.distance, n=own.n, **common)
        return certify(g, x, n=own.n, **common)

    def tally(self, rows: Iterable[Row]) -> Counter[str]:
        """How many images are certified right at each listed radius."""
        at = self.options.at
        radii = sorted(at) if isinstance(at, list) else [at or 0.0]
        counts = Counter({f"r ≥ {r:g}": 0 for r in radii})
        for row in rows:
            if row["prediction"] != ABSTAIN and row["label"] in (row["prediction"], None):
                counts.update(f"r ≥ {r:g}" for r in radii if row["radius"] >= r)
        return counts


def certificate_row(
    selector: Selector, label: int | None, certificate: Certificate, n0: int
) -> Row:
    """The row of a run that stores this certificate, without `seconds`."""
    evidence = certificate.to_dict()
    del evidence["settings"]  # these are in the run's header
    return {
        "id": certificate.id,
        "label": label,
        "prediction": certificate.prediction,
        "radius": certificate.radius,
        "guarantee": certificate.guarantee,
        "sigma": certificate.sigma,
        "samples": certificate.samples,
        "selector_samples": METHODS[certificate.method].selector_draws(
            selector, certificate.evidence, n0
        ),
        "evidence": evidence,
    }
