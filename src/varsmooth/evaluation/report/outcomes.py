"""Runs as columns of numbers: alone, paired by image, or the best of a sweep."""

import glob
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from varsmooth.bounds import Floats, average_certified_radius, class_radius
from varsmooth.defaults import ABSTAIN, Guarantee
from varsmooth.errors import VarsmoothError, check
from varsmooth.evaluation.engines.shards import unfinished_text
from varsmooth.evaluation.records import Row, Run, key_of, open_joined
from varsmooth.evaluation.report import statistics

Flags = NDArray[np.bool_]
Kind = TypeVar("Kind", bound=np.generic)


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


def _column(kind: type[Kind], *keys: str) -> "cached_property[NDArray[Kind]]":
    """The first of these entries that a row has; NaN where the run does not record it."""

    def column(run: "Outcomes") -> NDArray[Kind]:
        values = (next((row[k] for k in keys if k in row), None) for row in run.rows)
        return np.array([np.nan if v is None else v for v in values], dtype=kind)

    return cached_property(column)


@dataclass(frozen=True, eq=False)
class Outcomes:
    """One run: its header, its n rows (one per image, or per image and ε of an attack), and the
    rows as columns (n,). Under attack, predictions and levels are those of the attacked images.
    """

    header: dict[str, Any]
    rows: Sequence[Row]
    left_out: int = 0  # finished images that other runs do not share
    unfinished: str = ""  # which shards have images left

    ids = _column(np.int64, "id")
    labels = _column(np.int64, "label")
    predictions = _column(np.int64, "prediction")
    clean_predictions = _column(np.int64, "clean_prediction", "prediction")
    radii = _column(np.float64, "radius")
    sigmas = _column(np.float64, "sigma")
    clean_sigmas = _column(np.float64, "sigma_clean")
    samples = _column(np.float64, "samples")
    seconds = _column(np.float64, "seconds")
    eps = _column(np.float64, "eps")

    @classmethod
    def open(cls, folder: Path) -> "Outcomes":
        return cls.of_run(Run.open(folder))

    @classmethod
    def of_run(cls, run: Run) -> "Outcomes":
        outcomes = cls.of(run.header, run.rows(), run.folder)
        finished = outcomes.images == outcomes.expected
        return outcomes if finished else replace(outcomes, unfinished=unfinished_text(run))

    @classmethod
    def of(
        cls, header: dict[str, Any], rows: Sequence[Row], folder: Path = Path("RUN")
    ) -> "Outcomes":
        """From the header and the rows of a run; accuracy needs rows and labels."""
        name = header["name"]
        check(len(rows) > 0, f"run {name} has no rows yet; let it finish an image first")
        check(
            "violated" not in rows[0],
            f"run {name} searched for false certificates; its result is the line that "
            "varsmooth attack --against printed, so it needs no report",
        )
        check(
            all(row["label"] is not None for row in rows),
            f"run {name} has images without labels, so accuracy is not defined; "
            f"look at its rows with: varsmooth report export {folder}",
        )
        return cls(header, rows)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def name(self) -> str:
        return str(self.header["name"])

    @property
    def verb(self) -> str:
        return str(self.header["verb"])

    @cached_property
    def guarantee(self) -> Guarantee | None:
        """That of every radius of a certify run."""
        if self.verb != "certify":
            return None
        word, *others = words = sorted({str(row["guarantee"]) for row in self.rows})
        check(not others, f"run {self.name} mixes the guarantees {', '.join(words)}")
        known = word in get_args(Guarantee)
        check(known, f"run {self.name} has the unknown guarantee {word!r}")
        return word  # type: ignore[return-value]

    @cached_property
    def alpha(self) -> float | None:
        """The α of every image: from the evidence, else from the configuration, else unknown."""
        alphas = {row["evidence"]["ledger"]["alpha"] for row in self.rows if row.get("evidence")}
        check(len(alphas) <= 1, f"run {self.name} mixes several alpha: {sorted(alphas)}")
        alpha: float | None = alphas.pop() if alphas else self.header["config"].get("alpha")
        return alpha

    @property
    def fixed_sigma(self) -> float | None:
        """The one noise level of every image, if the run has one."""
        about = self.header.get("selector", {})
        return about.get("sigma") if about.get("selector") == "fixed" else None

    @cached_property
    def largest_radius(self) -> float | None:
        """What unanimous votes at the largest level in use would certify; None if unknown."""
        config, sigma = self.header.get("config", {}), float(self.sigmas.max())
        n_max = config.get("n_max")
        n = n_max or config.get("n")
        if n is None or self.alpha is None or np.isnan(sigma):
            return None
        return float(class_radius(n, n, sigma, self.alpha, anytime=n_max is not None))

    @property
    def decided_radii(self) -> tuple[float, ...]:
        """The radii that a run with `at` decided, ascending; its votes stopped there."""
        at = self.header.get("config", {}).get("at")
        return () if at is None else tuple(float(r) for r in np.unique(at))

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

        An attacker may leave an image unchanged, so under attack an image must also be right
        without one.
        """
        return self.clean_correct & np.equal(self.predictions, self.labels)

    @property
    def clean_correct(self) -> Flags:
        """The same before any attack."""
        return np.equal(self.clean_predictions, self.labels)

    @property
    def abstained(self) -> Flags:
        return np.equal(self.predictions, ABSTAIN)

    @cached_property
    def reach(self) -> Floats:
        """The radius up to which each image is certified right, see `statistics.reach`."""
        return statistics.reach(self.predictions, self.labels, self.radii)

    @property
    def average_radius(self) -> float:
        return average_certified_radius(self.reach)

    def select(self, rows: Flags | NDArray[np.int64]) -> "Outcomes":
        """Some of the rows, by a mask or by position."""
        return replace(self, rows=[self.rows[i] for i in np.arange(len(self))[rows]])

    def budgets(self) -> list[float]:
        """The ε of an attack run, ascending."""
        return [float(eps) for eps in np.unique(self.eps)]

    def same_data(self, other: "Outcomes") -> bool:
        mine, theirs = self.header["dataset"], other.header["dataset"]
        return bool(mine["name"] == theirs["name"] and mine["split"] == theirs["split"])


def open_runs(folders: Sequence[Path]) -> list[Outcomes]:
    """Read runs; runs of one verb get names that differ."""
    opened = open_joined(folders)
    names = [(run.header["verb"], run.header["name"]) for run in opened]
    for run, name in zip(opened, names, strict=True):
        if names.count(name) > 1:
            run.header["name"] = f"{name[1]} ({run.folder})"
    return [Outcomes.of_run(run) for run in opened]


def shared_images(first: Outcomes, second: Outcomes) -> tuple[Outcomes, Outcomes] | None:
    """Both runs on the images they share, row by row; None if they share none.

    Images are the same if data set, split, id and label are; rows of attacks if ε is, too.
    """
    place = {key_of(row): i for i, row in enumerate(second.rows)}
    pairs = [(i, place[key_of(row)]) for i, row in enumerate(first.rows) if key_of(row) in place]
    if not first.same_data(second) or not pairs:
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
        check(
            bool(label and equals and listed),
            f'an envelope is written "label=run1,run2,...", not {text!r}',
        )
        patterns = [pattern.strip() for pattern in listed.split(",")]
        folders = (match for p in patterns for match in (sorted(glob.glob(p)) or [p]))
        return cls(label, open_runs([Path(match) for match in folders]))

    def check(self) -> None:
        """Only curves over the same images have a meaningful maximum."""
        check(
            all(run.verb == "certify" for run in self.runs),
            f"envelope {self.label}: only certify runs have a certified accuracy",
        )
        first, *others = self.runs
        for run in others:
            pair = shared_images(first, run)
            check(
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

    @cached_property
    def reach(self) -> Floats:
        """Like that of a run, but not image by image, see `statistics.envelope`."""
        return statistics.envelope([run.reach for run in self.runs])


def on_common_images(
    runs: Sequence[Outcomes], envelopes: Sequence[Envelope]
) -> tuple[list[Outcomes], list[Envelope]]:
    """All certify runs on the images that every one of them has; other runs as they are."""
    every = [*runs, *(run for best in envelopes for run in best.runs)]
    certify = [run for run in every if run.verb == "certify"]
    check(len(certify) > 0, "only certify runs can be kept to their common images")
    common = certify[0]
    for run in certify[1:]:
        if (pair := shared_images(common, run)) is None:
            raise VarsmoothError(f"{run.name} has no image in common with the other certify runs")
        common = pair[0]

    def kept(run: Outcomes) -> Outcomes:
        pair = shared_images(common, run) if run.verb == "certify" else None
        return run if pair is None else replace(pair[1], left_out=run.images - pair[1].images)

    return [*map(kept, runs)], [replace(best, runs=[*map(kept, best.runs)]) for best in envelopes]
