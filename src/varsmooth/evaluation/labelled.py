"""Certificates with their labels as a table, and as the folder of a run.

`save_run` writes a run that `varsmooth verify`, `report` and the app read; `load_run` reads one.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args, overload

import numpy as np
from torch.utils.data import DataLoader, Dataset

from varsmooth.batching import labels_of
from varsmooth.certificates import Certificate, Certificates
from varsmooth.data import ImageDataset, load_source
from varsmooth.data.fitting import renumbered
from varsmooth.defaults import BATCH_SIZE
from varsmooth.errors import VarsmoothError, check, check_radius, wrap_errors
from varsmooth.evaluation.build import described
from varsmooth.evaluation.certify import certificate_row
from varsmooth.evaluation.headers import HEADER, as_stored
from varsmooth.evaluation.options import CertifyOptions, DataOptions, ModelOptions
from varsmooth.evaluation.records import Row, Run
from varsmooth.evaluation.report.outcomes import Outcomes
from varsmooth.evaluation.report.statistics import ErrorProbability, Share
from varsmooth.evaluation.runner import environment, identity, labels_or_none, now, source_config
from varsmooth.methods import METHODS
from varsmooth.models.descriptions import describe
from varsmooth.models.names import is_external
from varsmooth.models.options import SelectorKind
from varsmooth.models.selection import options_for
from varsmooth.smoothing import SmoothedClassifier

if TYPE_CHECKING:
    import pandas
    import polars
    from matplotlib.axes import Axes

Labels = Sequence[int | None]
SEVERAL_CALLS = "these certificates come from several calls; save each call's own"


class AccuracyAt(NamedTuple):
    """Certified accuracy at a radius, with its 95 % interval over images."""

    radius: float
    accuracy: float
    low: float
    high: float


@dataclass(frozen=True)
class LabelledCertificates:
    """The certificates of a batch or a run, with labels.

    Args:
        certificates: What `certify` returned.
        labels: One for each image, None where unknown.
        name: Shown in legends and reports.
    """

    certificates: Certificates
    labels: Labels
    name: str = "certificates"

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", _checked(self.labels, self.certificates))

    def rows(self) -> list[Row]:
        """One mapping for each image, without the evidence."""
        names = ("id", "prediction", "radius", "sigma", "guarantee", "samples")
        return [
            {
                **{name: getattr(one, name) for name in names},
                "label": label,
                "correct": None if label is None else one.prediction == label,
                "alpha": one.ledger.alpha,
            }
            for one, label in zip(self.certificates, self.labels, strict=True)
        ]

    @overload
    def certified_accuracy(self, radii: float) -> AccuracyAt: ...
    @overload
    def certified_accuracy(self, radii: Sequence[float]) -> list[AccuracyAt]: ...
    def certified_accuracy(self, radii: float | Sequence[float]) -> AccuracyAt | list[AccuracyAt]:
        """The share of images certified as their label at each radius, or at one, with interval."""
        several: Any = radii
        if isinstance(several, Iterable) and not isinstance(several, str):
            return [self.certified_accuracy(check_radius(r)) for r in several]
        radius = check_radius(several)
        share = Share.of(self._outcomes.reach >= radius)
        return AccuracyAt(radius, share.value, *share.interval())

    def error_probability(self, radius: float) -> ErrorProbability:
        """The probability of a wrong prediction under ‖δ‖₂ ≤ radius; `print` shows a sentence."""
        radius, outcomes = check_radius(radius), self._outcomes
        alpha, guarantee = outcomes.alpha, outcomes.guarantee
        if alpha is None or guarantee is None or guarantee == "heuristic":
            raise VarsmoothError("a heuristic radius does not bound the error probability")
        return ErrorProbability.of(outcomes.reach, radius, alpha, guarantee)

    def to_pandas(self) -> "pandas.DataFrame":
        """A table with one line for each image; pandas must be installed."""
        with wrap_errors(ImportError, "to_pandas needs pandas; install it: pip install pandas"):
            import pandas
        return pandas.DataFrame(self.rows())

    def to_polars(self) -> "polars.DataFrame":
        """A table with one line for each image; polars must be installed."""
        with wrap_errors(ImportError, "to_polars needs polars; install it: pip install polars"):
            import polars
        return polars.DataFrame(self.rows(), infer_schema_length=None)

    def plot(self, axes: "Axes | None" = None) -> "Axes":
        """Certified accuracy against radius on matplotlib axes, new ones by default."""
        with wrap_errors(ImportError, "plot needs matplotlib; install it: pip install matplotlib"):
            import matplotlib.pyplot
        from varsmooth.evaluation.report.figures import plot_certified_accuracy

        axes = matplotlib.pyplot.subplots()[1] if axes is None else axes
        plot_certified_accuracy(axes, [self._outcomes])
        axes.legend()
        return axes

    @cached_property
    def _outcomes(self) -> Outcomes:
        header = {"verb": "certify", "name": self.name, "config": {}, "selector": {}}
        rows = self.rows()
        evidence = [{"evidence": {"ledger": {"alpha": row["alpha"]}}} for row in rows]
        return Outcomes.of(header, [row | more for row, more in zip(rows, evidence, strict=True)])


def _checked(labels: Labels, certificates: Certificates) -> tuple[int | None, ...]:
    """The labels as Python's numbers, one for each certificate."""
    _check_kind(certificates)
    count = len(certificates)
    check(len(labels) == count, f"there are {count} certificates but {len(labels)} labels")
    refusal = "labels must be whole numbers from 0, or None where unknown, one for each image"
    with wrap_errors(TypeError, refusal):
        checked = tuple(None if label is None else index(label) for label in labels)
    check(all(label is None or label >= 0 for label in checked), refusal)  # −1 means abstained
    highest = max((label for label in checked if label is not None), default=-1)
    votes = (level for one in certificates for level in one.votes)
    classes = max((len(level.counts) for level in votes), default=highest + 1)
    check(
        highest < classes,
        f"the labels go up to {highest}, but the model has {classes} classes, numbered from 0 to "
        f"{classes - 1}; number them as the model does",
    )
    return checked


def _check_kind(certificates: Certificates) -> None:
    alike = isinstance(certificates, Sequence)
    check(
        alike and all(isinstance(one, Certificate) for one in certificates),
        f"a run holds certificates, not {type(certificates).__name__}; give what certify, "
        "certify_until or certify_as_paper returned, or the .certificates of what certify_at did",
    )


def load_run(folder: str | Path) -> LabelledCertificates:
    """The certificates of a run that `varsmooth certify` or `save_run` wrote."""
    run = Run.open(folder)
    rows = run.certified_rows("loaded")
    check(len(rows) > 0, f"{folder} has no rows yet; let it finish an image first")
    certificates = Certificates(tuple(run.certificate(row) for row in rows))
    return LabelledCertificates(certificates, [row["label"] for row in rows], run.header["name"])


def save_run(
    folder: str | Path,
    certificates: Certificates,
    g: SmoothedClassifier,
    images: ImageDataset | Dataset[Any] | DataLoader[Any] | None = None,
    *,
    labels: Labels | None = None,
    model: str | Path | None = None,
    data: DataOptions | None = None,
) -> LabelledCertificates:
    """Write the certificates of one call into a new folder, as `varsmooth certify` would.

    `varsmooth verify` then derives every radius again from its evidence. It compares and replays
    the model if `model` says where it is, and the images if they are a slice of what `load_dataset`
    returned, or `data` says where they are.

    Args:
        folder: A new folder.
        certificates: What `certify`, `certify_until` or `certify_as_paper` returned, or the
            `certificates` of what `certify_at` returned.
        g: The smoothed classifier that was certified.
        images: The images, in the same order; of a torch `Dataset` or `DataLoader` only the labels
            are stored.
        labels: Instead of `images`: one for each certificate.
        model: A released name or the folder of g's model.
        data: The options that name these very images on the command line.

    Returns:
        The same as `load_run(folder)`.
    """
    folder = Path(folder)
    check(not (folder / HEADER).exists(), f"{folder} already holds a run; choose another folder")
    _check_kind(certificates)
    check(len(certificates) > 0, "there are no certificates to save")
    check(
        data is None or isinstance(data, DataOptions),
        "data must be DataOptions, which say where the images are; the images themselves are "
        "save_run(folder, certificates, g, images)",
    )
    settings = as_stored({**g.selector.describe(), "lattice": g.lattice})
    check(
        all(as_stored(one.settings) == settings for one in certificates),  # may come from a log
        "these certificates are of another σ, selector or kind of noise than g's; pass the g that "
        "they were made with (if the model was tuned since, load it with that sigma or cascade)",
    )
    ids = [one.id for one in certificates]
    twice = [id for id, count in Counter(ids).items() if count > 1]
    check(
        not twice,
        f"several of these certificates have the id {next(iter(twice), None)}, but a run has one "
        "certificate for each image; keep one, or certify different images with different ids",
    )
    if isinstance(images, Dataset | DataLoader):
        labels, images = labels_of(images), None
    if images is not None:
        check(
            isinstance(images, ImageDataset),
            "images must be a data set; for tensors give labels=[...] instead",
        )
        check(
            images.ids.tolist() == ids,
            "the certificates are not those of these images in this order; certify with "
            "ids=batch.ids, and pass the same images here",
        )
        if model is not None and not is_external(str(model)):
            images = renumbered(images, tuple(describe(model).class_names))
        labels = labels_or_none(images)
    labels = _checked([None] * len(ids) if labels is None else labels, certificates)
    options = _options(g, certificates)
    where = data or _named(images) or DataOptions()
    header = {
        "verb": "certify",
        "name": folder.resolve().name,
        "saved_from_python": True,
        "config": source_config(_model_options(g, model), where) | options,
        "started": now(),
        "environment": environment(g.device),
        "dataset": _dataset(images, where, certificates),
        "class_names": [] if images is None else list(images.class_names),
        **identity(g, None if images is None else images.shape),
    }
    if images is not None:
        header["noise_scope"] = ""  # seeds given in Python are used as they are
    entries = _row_entries(images, len(ids))
    Run.create(folder, header).append(
        certificate_row(g.selector, label, one, int(options["n0"])) | entry
        for one, label, entry in zip(certificates, labels, entries, strict=True)
    )
    return load_run(folder)


def _dataset(
    images: ImageDataset | None, where: DataOptions, certificates: Certificates
) -> dict[str, Any]:
    if images is not None:
        return described(images, where)
    classes = len(certificates[0].votes[-1].counts) if certificates[0].votes else 0
    names = [str(number) for number in range(classes)]
    about = {"name": "images", "split": "test", "subset": None, "size": len(certificates)}
    return about | {"class_names": names}


def _row_entries(images: ImageDataset | None, count: int) -> list[dict[str, Any]]:
    """What the rows record about their images; image files are decoded for it."""
    if images is None or isinstance(images.pixels, np.ndarray):
        return [{} for _ in range(count)]
    return [entry for batch in images.batches(32) for entry in images.row_entries(batch)]


def _named(images: ImageDataset | None) -> DataOptions | None:
    """The command-line options of images that are a slice of what `load_dataset` returned."""
    if images is None or images.source is None:
        return None
    try:
        whole = load_source(images.source, images.split)
    except VarsmoothError:  # the files are gone
        return None
    places = np.flatnonzero(np.isin(whole.ids, images.ids))
    if not np.array_equal(whole.ids[places], images.ids):
        return None
    if len(places) == 0:
        return None
    step = int(places[1] - places[0]) if len(places) > 1 else 1
    chosen = range(int(places[0]), int(places[-1]) + 1, step)
    if not np.array_equal(places, chosen):
        return None
    everything = len(places) == len(whole)
    subset = None if everything else f"{chosen.start}:{chosen.stop}:{step}"
    options = DataOptions(**vars(images.source), split=images.split, subset=subset)
    there = renumbered(whole[places], images.class_names)
    same = described(there, options) == described(images, options)
    return options if same else None


def _options(g: SmoothedClassifier, certificates: Certificates) -> dict[str, Any]:
    """The options of the call that made these certificates, as far as the evidence shows."""
    first = certificates[0]
    method, ledger = METHODS[first.method], first.ledger
    alike = {(one.method, one.seed, replace(one.ledger, runner_up=False)) for one in certificates}
    check(len(alike) == 1, SEVERAL_CALLS)
    votes = max((level.n for one in certificates for level in one.votes), default=1)
    values: dict[str, Any] = {"n_max": votes, "at": 0.0} if ledger.anytime else {"n": votes}
    if ledger.alpha_select:
        values["alpha_select"] = ledger.alpha_select
    if first.selector is not None:
        values["n_select"] = len(first.selector.samples)
        values["distance"] = distance = first.selector.distance
        several = any(len(one.votes) > 3 for one in certificates)  # the paper's levels
        values["every_index"] = distance is not None and several
    options = CertifyOptions(
        alpha=ledger.alpha,
        bound="best" if any(one.ledger.runner_up for one in certificates) else "cohen",
        seed=first.seed,
        n0=_selection_draws(certificates),
        band=ledger.n_deploy == method.deployed_draws(g.selector.describe()),
        method=method.kinds[0],
        **values,
    )
    return asdict(options) | {"batch_size": BATCH_SIZE, "device": "auto", "devices": 1}


def _selection_draws(certificates: Certificates) -> int:
    """n0, from the number of draws that are not votes."""
    draws = [one.samples - sum(level.n for level in one.votes) for one in certificates]
    if certificates[0].ledger.anytime:  # also votes after the look that proved the most
        return max(1, min(draws))
    rounds = [METHODS[one.method].selection_rounds(one.evidence) for one in certificates]
    possible = (
        {total // k for k in each if k and total % k == 0}
        for each, total in zip(rounds, draws, strict=True)
    )
    shared = set.intersection(*possible)
    check(bool(shared), SEVERAL_CALLS)
    return max(shared)


def _model_options(g: SmoothedClassifier, model: str | Path | None) -> ModelOptions:
    """The options that build g again from its model."""
    about = g.selector.describe()
    values: dict[str, Any] = {}
    if (kind := about["selector"]) in get_args(SelectorKind):
        with suppress(KeyError, ValueError):  # a function of the user's own has no options
            values = {"selector": kind, **options_for(about)}
    return ModelOptions(model=None if model is None else str(model), lattice=g.lattice, **values)
