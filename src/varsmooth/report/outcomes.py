"""Runs as columns of numbers, checked once when they are read; alone, paired, or a whole sweep."""

import glob
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from varsmooth.bounds import Floats
from varsmooth.certificates import ABSTAIN, Guarantee
from varsmooth.errors import VarsmoothError, require
from varsmooth.report import statistics
from varsmooth.runs.records import Run

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Outcomes:
    """One run: n rows as columns (n,), one row per image, or per image and ε of an attack.

    guarantee: what the radii of a certify run mean. sigmas is NaN where no level is recorded.
    eps, clean_predictions and clean_sigmas belong to attack runs, whose `predictions` and `sigmas`
    are those under attack.
    expected: how many images the run was asked for; fewer rows mean that it is not finished.
    """

    name: str
    header: dict[str, Any]
    guarantee: Guarantee | None
    alpha: float | None
    ids: Integers
    labels: Integers
    predictions: Integers
    radii: Floats
    sigmas: Floats
    samples: Floats
    seconds: Floats
    eps: Floats
    clean_predictions: Integers
    clean_sigmas: Floats
    expected: int

    @classmethod
    def open(cls, folder: Path) -> "Outcomes":
        """Read a run folder; a run without rows or labels has no accuracy to report."""
        run = Run.open(folder)
        return cls.of(run.header, run.rows())

    @classmethod
    def of(cls, header: dict[str, Any], rows: Sequence[dict[str, Any]]) -> "Outcomes":
        """From the header and the rows of a run."""
        name, verb = header["name"], header["verb"]
        require(len(rows) > 0, f"run {name} has no row yet; let it finish an image first")
        require(
            verb in ("certify", "predict", "attack") and "violated" not in rows[0],
            f"run {name} searched for false certificates; its result is the line that "
            "varsmooth attack --against printed, and a report has nothing to add",
        )
        require(
            all(row["label"] is not None for row in rows),
            f"run {name} has images without labels, so accuracy is not defined; "
            "look at its rows with: varsmooth report export",
        )
        empty = np.full(len(rows), np.nan)
        return cls(
            name=name,
            header=header,
            guarantee=_guarantee(name, rows) if verb == "certify" else None,
            alpha=_alpha(header, rows),
            ids=_integers(rows, "id"),
            labels=_integers(rows, "label"),
            predictions=_integers(rows, "prediction"),
            radii=_floats(rows, "radius") if verb == "certify" else empty,
            sigmas=_floats(rows, "sigma"),
            samples=_floats(rows, "samples"),
            seconds=_floats(rows, "seconds"),
            eps=_floats(rows, "eps") if verb == "attack" else empty,
            clean_predictions=_integers(
                rows, "clean_prediction" if verb == "attack" else "prediction"
            ),
            clean_sigmas=_floats(rows, "sigma_clean"),
            expected=header["dataset"]["size"],
        )

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def verb(self) -> str:
        return str(self.header["verb"])

    @property
    def images(self) -> int:
        """How many images have a row."""
        return len(np.unique(self.ids))

    @property
    def correct(self) -> Flags:
        """Where the answer is the label; an abstention is not."""
        return _right(self.predictions, self.labels) & self.clean_correct

    @property
    def clean_correct(self) -> Flags:
        """The same before any attack. An attacker may leave an image alone, so under attack only
        images that are right without one count as right."""
        return _right(self.clean_predictions, self.labels)

    @property
    def abstained(self) -> Flags:
        flags: Flags = self.predictions == ABSTAIN
        return flags

    @cached_property
    def reach(self) -> Floats:
        """The radius up to which each image is certified right, see `statistics.reach`."""
        return statistics.reach(self.predictions, self.labels, self.radii)

    def select(self, rows: Flags | Integers) -> "Outcomes":
        """Some of the rows, by a mask or by position."""
        columns = {key: value[rows] for key, value in vars(self).items() if key in _COLUMNS}
        return replace(self, **columns)

    def keys(self) -> list[tuple[int, float | None]]:
        """What each row is about: an image, and the ε of an attack on it."""
        eps = self.eps.tolist() if self.verb == "attack" else [None] * len(self)
        return list(zip(self.ids.tolist(), eps, strict=True))

    def budgets(self) -> list[float]:
        """The ε of an attack run, ascending."""
        return [float(eps) for eps in np.unique(self.eps)]


_COLUMNS = frozenset(
    ("ids", "labels", "predictions", "radii", "sigmas", "samples", "seconds", "eps")
) | {"clean_predictions", "clean_sigmas"}


def open_runs(folders: Sequence[Path]) -> list[Outcomes]:
    """Read runs of one kind, and give them names that differ."""
    runs = [Outcomes.open(folder) for folder in folders]
    verbs = sorted({run.verb for run in runs})
    require(
        len(verbs) <= 1, f"runs of {' and '.join(verbs)} do not fit in one report; make one each"
    )
    names = [run.name for run in runs]
    return [
        run if names.count(run.name) == 1 else replace(run, name=f"{run.name} ({folder})")
        for run, folder in zip(runs, folders, strict=True)
    ]


def shared_images(first: Outcomes, second: Outcomes) -> tuple[Outcomes, Outcomes] | None:
    """Both runs on the images they share, row by row; None if they share none.

    Images are the same if data set, split, id and label are; rows of attacks if ε is, too.
    """
    same = all(first.header["dataset"][k] == second.header["dataset"][k] for k in ("name", "split"))
    place = {key: row for row, key in enumerate(second.keys())}
    pairs = [(row, place[key]) for row, key in enumerate(first.keys()) if key in place]
    if not same or not pairs:
        return None
    one, other = first.select(np.array(pairs)[:, 0]), second.select(np.array(pairs)[:, 1])
    return None if (one.labels != other.labels).any() else (one, other)


@dataclass(frozen=True)
class Envelope:
    """The pointwise maximum of the certified accuracy of several runs over the same images."""

    label: str
    runs: Sequence[Outcomes]

    @classmethod
    def parse(cls, text: str) -> "Envelope":
        """From "label=run1,run2,..."; a run may be a pattern such as runs/fixed-*."""
        label, equals, listed = (part.strip() for part in text.partition("="))
        folders = [
            Path(match)
            for pattern in listed.split(",")
            for match in (sorted(glob.glob(pattern.strip())) or [pattern.strip()])
        ]
        require(
            bool(label and equals and listed),
            f'an envelope is written "label=run1,run2,...", not {text!r}',
        )
        return cls(label, open_runs(folders))

    def __post_init__(self) -> None:
        first, *others = self.runs
        for run in others:
            pair = shared_images(first, run)
            require(
                pair is not None and len(pair[0]) == len(first) == len(run),
                f"envelope {self.label}: {run.name} and {first.name} are not runs over the "
                "same images; finish them, or certify the same subset",
            )
        require(
            all(run.verb == "certify" for run in self.runs),
            f"envelope {self.label}: only certify runs have a certified accuracy",
        )

    @property
    def guarantee(self) -> Guarantee:
        """The weakest of the runs."""
        words: tuple[Guarantee, ...] = get_args(Guarantee)  # from strongest to weakest
        return max((run.guarantee for run in self.runs if run.guarantee), key=words.index)

    def accuracy(self, radii: ArrayLike) -> Floats:
        return statistics.envelope([run.reach for run in self.runs], radii)


def _right(predictions: Integers, labels: Integers) -> Flags:
    right: Flags = (predictions == labels) & (predictions != ABSTAIN)
    return right


def _integers(rows: Sequence[dict[str, Any]], key: str) -> Integers:
    return np.array([row[key] for row in rows], dtype=np.int64)


def _floats(rows: Sequence[dict[str, Any]], key: str) -> Floats:
    """NaN where a run does not know the value."""
    return np.array(
        [np.nan if row.get(key) is None else row[key] for row in rows], dtype=np.float64
    )


def _guarantee(name: str, rows: Sequence[dict[str, Any]]) -> Guarantee:
    words = {row["guarantee"] for row in rows}
    require(len(words) == 1, f"run {name} mixes the guarantees {', '.join(sorted(words))}")
    for word in get_args(Guarantee):
        if word in words:
            return word  # type: ignore[no-any-return]
    raise VarsmoothError(f"run {name} has a guarantee that nobody knows: {words.pop()}")


def _alpha(header: dict[str, Any], rows: Sequence[dict[str, Any]]) -> float | None:
    """The α of every image: from the evidence, else from the configuration, else unknown."""
    found = {row["evidence"]["ledger"]["alpha"] for row in rows if row.get("evidence")}
    require(len(found) <= 1, f"run {header['name']} mixes several alpha: {sorted(found)}")
    value = found.pop() if found else header["config"].get("alpha")
    return None if value is None else float(value)
