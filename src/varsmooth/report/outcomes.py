"""Runs as columns of numbers: alone, paired by image, or a whole sweep."""

import glob
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from varsmooth.bounds import Floats
from varsmooth.defaults import ABSTAIN, Guarantee
from varsmooth.errors import VarsmoothError, require
from varsmooth.report import statistics
from varsmooth.runs.records import Row, Run

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


def outcome(row: Row) -> str:
    """One word for a row: right, wrong, abstains, or broken (right until it was attacked)."""
    label, prediction = row["label"], row["prediction"]
    if row.get("clean_prediction", label) != label:
        return "wrong"
    if prediction == ABSTAIN:
        return "abstains"
    if prediction == label:
        return "right"
    return "broken" if "clean_prediction" in row else "wrong"


def class_name(number: int, names: Sequence[str]) -> str:
    if number == ABSTAIN:
        return "abstains"
    return names[number] if number < len(names) else str(number)


def _integers(key: str) -> "cached_property[Integers]":
    return cached_property(lambda run: np.array([row[key] for row in run.rows], dtype=np.int64))


def _floats(key: str) -> "cached_property[Floats]":
    def column(run: "Outcomes") -> Floats:
        values = (row.get(key) for row in run.rows)
        return np.array([np.nan if v is None else v for v in values], dtype=np.float64)

    return cached_property(column)


@dataclass(frozen=True, eq=False)
class Outcomes:
    """One run: its header, its n rows (one per image, or per image and ε of an attack), and the
    rows as columns (n,). A column is NaN where a run does not record the value.

    `guarantee` is that of a certify run. Under attack, `predictions` and `sigmas` are those of the
    attacked images.
    """

    name: str
    header: dict[str, Any]
    rows: Sequence[Row]
    guarantee: Guarantee | None
    alpha: float | None

    ids = _integers("id")
    labels = _integers("label")
    predictions = _integers("prediction")
    radii = _floats("radius")
    sigmas = _floats("sigma")
    clean_sigmas = _floats("sigma_clean")
    samples = _floats("samples")
    seconds = _floats("seconds")
    eps = _floats("eps")

    @classmethod
    def open(cls, folder: Path) -> "Outcomes":
        """Read a run folder."""
        run = Run.open(folder)
        return cls.of(run.header, run.rows())

    @classmethod
    def of(cls, header: dict[str, Any], rows: Sequence[Row]) -> "Outcomes":
        """From the header and the rows of a run; accuracy needs rows and labels."""
        name, verb = header["name"], header["verb"]
        require(len(rows) > 0, f"run {name} has no rows yet; let it finish an image first")
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
        guarantee = _guarantee(name, rows) if verb == "certify" else None
        return cls(name, header, rows, guarantee, _alpha(header, rows))

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def clean_predictions(self) -> Integers:
        """The predictions before any attack."""
        found = [row.get("clean_prediction", row["prediction"]) for row in self.rows]
        return np.array(found, dtype=np.int64)

    @property
    def verb(self) -> str:
        return str(self.header["verb"])

    @property
    def fixed_sigma(self) -> float | None:
        """The one noise level of every image, if the run has one."""
        about = self.header.get("selector") or {}
        return about.get("sigma") if about.get("selector") == "fixed" else None

    @property
    def images(self) -> int:
        """How many images have a row."""
        return len(np.unique(self.ids))

    @property
    def expected(self) -> int:
        """How many images the run was started on; fewer rows: it is not finished."""
        return int(self.header["dataset"]["size"])

    @property
    def correct(self) -> Flags:
        """Where the prediction is the label; an abstention is not.

        An attacker may leave an image alone, so under attack an image also has to be right
        without one.
        """
        flags: Flags = self.clean_correct & (self.predictions == self.labels)
        return flags

    @property
    def clean_correct(self) -> Flags:
        """The same before any attack."""
        flags: Flags = (self.clean_predictions == self.labels) & (self.labels != ABSTAIN)
        return flags

    @property
    def abstained(self) -> Flags:
        flags: Flags = self.predictions == ABSTAIN
        return flags

    @cached_property
    def reach(self) -> Floats:
        """The radius up to which each image is certified right, see `statistics.reach`."""
        return statistics.reach(self.predictions, self.labels, self.radii)

    @property
    def average_radius(self) -> float:
        return statistics.average_certified_radius(self.reach)

    def select(self, rows: Flags | Integers) -> "Outcomes":
        """Some of the rows, by a mask or by position."""
        positions = np.arange(len(self))[rows]
        return replace(self, rows=[self.rows[i] for i in positions])

    def keys(self) -> list[tuple[int, float | None]]:
        """What each row is about: an image, and the ε of an attack on it."""
        return [(row["id"], row.get("eps")) for row in self.rows]

    def budgets(self) -> list[float]:
        """The ε of an attack run, ascending."""
        return [float(eps) for eps in np.unique(self.eps)]

    def same_data(self, other: "Outcomes") -> bool:
        mine, theirs = self.header["dataset"], other.header["dataset"]
        return bool(mine["name"] == theirs["name"] and mine["split"] == theirs["split"])


def open_runs(folders: Sequence[Path]) -> list[Outcomes]:
    """Read runs and give them names that differ."""
    runs = [Outcomes.open(folder) for folder in folders]
    names = [run.name for run in runs]
    return [
        run if names.count(run.name) == 1 else replace(run, name=f"{run.name} ({folder})")
        for run, folder in zip(runs, folders, strict=True)
    ]


def shared_images(first: Outcomes, second: Outcomes) -> tuple[Outcomes, Outcomes] | None:
    """Both runs on the images they share, row by row; None if they share none.

    Images are the same if data set, split, id and label are; rows of attacks if ε is, too.
    """
    place = {key: row for row, key in enumerate(second.keys())}
    pairs = [(row, place[key]) for row, key in enumerate(first.keys()) if key in place]
    if not first.same_data(second) or not pairs:
        return None
    one, other = first.select(np.array(pairs)[:, 0]), second.select(np.array(pairs)[:, 1])
    return None if (one.labels != other.labels).any() else (one, other)


@dataclass(frozen=True)
class Envelope:
    """The pointwise maximum of the certified accuracy of several runs over the same images."""

    label: str
    runs: Sequence[Outcomes]

    def __post_init__(self) -> None:
        require(
            all(run.verb == "certify" for run in self.runs),
            f"envelope {self.label}: only certify runs have a certified accuracy",
        )
        first, *others = self.runs
        for run in others:
            pair = shared_images(first, run)
            require(
                pair is not None and len(pair[0]) == len(first) == len(run),
                f"envelope {self.label}: {run.name} and {first.name} are not runs over the same "
                "images; finish them, certify the same subset, or add --common true to keep the "
                "images that all runs share",
            )

    @property
    def guarantee(self) -> Guarantee:
        """The weakest of the runs."""
        words: tuple[Guarantee, ...] = get_args(Guarantee)  # from strongest to weakest
        return max((run.guarantee for run in self.runs if run.guarantee), key=words.index)

    def accuracy(self, radii: ArrayLike) -> Floats:
        return statistics.envelope([run.reach for run in self.runs], radii)


Sweep = tuple[str, Sequence[Outcomes]]


def parse_sweep(text: str) -> Sweep:
    """Label and runs of "label=run1,run2,..."; a run may be a pattern such as runs/fixed-*."""
    label, equals, listed = (part.strip() for part in text.partition("="))
    require(
        bool(label and equals and listed),
        f'an envelope is written "label=run1,run2,...", not {text!r}',
    )
    patterns = [pattern.strip() for pattern in listed.split(",")]
    found = (match for p in patterns for match in (sorted(glob.glob(p)) or [p]))
    return label, open_runs([Path(match) for match in found])


def on_common_images(
    runs: Sequence[Outcomes], sweeps: Sequence[Sweep]
) -> tuple[list[Outcomes], list[Sweep]]:
    """All certify runs on the images that every one of them has; other runs as they are."""
    everything = [*runs, *(run for _, swept in sweeps for run in swept)]
    certify = [run for run in everything if run.verb == "certify"]
    require(len(certify) > 0, "only certify runs can be kept to their common images")
    common = certify[0]
    for run in certify[1:]:
        if (pair := shared_images(common, run)) is None:
            raise VarsmoothError(f"{run.name} has no image in common with the other certify runs")
        common = pair[0]

    def kept(run: Outcomes) -> Outcomes:
        pair = shared_images(common, run) if run.verb == "certify" else None
        return run if pair is None else pair[1]

    return [kept(r) for r in runs], [(label, [kept(r) for r in swept]) for label, swept in sweeps]


def _guarantee(name: str, rows: Sequence[Row]) -> Guarantee:
    words = {row["guarantee"] for row in rows}
    require(len(words) == 1, f"run {name} mixes the guarantees {', '.join(sorted(words))}")
    (word,) = words
    require(word in get_args(Guarantee), f"run {name} has the unknown guarantee {word!r}")
    return word  # type: ignore[no-any-return]


def _alpha(header: dict[str, Any], rows: Sequence[Row]) -> float | None:
    """The α of every image: from the evidence, else from the configuration, else unknown."""
    found = {row["evidence"]["ledger"]["alpha"] for row in rows if row.get("evidence")}
    require(len(found) <= 1, f"run {header['name']} mixes several alpha: {sorted(found)}")
    value = found.pop() if found else header["config"].get("alpha")
    return None if value is None else float(value)
