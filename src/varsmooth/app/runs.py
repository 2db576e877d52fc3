"""The records of a run folder: a curve, a table to filter, the evidence of each image."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from varsmooth.app import pictures
from varsmooth.app.fragments import (
    VOTES,
    card,
    class_name,
    construction_html,
    figure,
    levels_html,
    pixels,
    sentence,
    votes_html,
)
from varsmooth.app.looking import Levels, reachable
from varsmooth.certificates import ABSTAIN, Certificate
from varsmooth.data import ImageDataset, load_dataset
from varsmooth.errors import VarsmoothError, require
from varsmooth.report import figures, statements
from varsmooth.report.outcomes import Outcomes
from varsmooth.rounding import rounded
from varsmooth.runs.images import resized
from varsmooth.runs.options import options_in
from varsmooth.runs.records import Row, Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

EVERYTHING = "all"
MAX_BYTES = 2**30
"""Of the rows of a run: more would not fit into a browser's patience."""


@dataclass(frozen=True)
class OpenRun:
    """A run that was read: its header, its rows, and the rows as columns where they have labels."""

    run: Run
    rows: list[Row]
    outcomes: Outcomes

    @classmethod
    def open(cls, folder: str | Path) -> "OpenRun":
        folder = Path(folder).expanduser()
        size = sum(path.stat().st_size for path in folder.glob("rows-*.jsonl"))
        require(
            size <= MAX_BYTES,
            f"the rows of {folder} have {size >> 20} MB, too many for a page; "
            "make a report of it with: varsmooth report",
        )
        run = Run.open(folder)
        rows = run.rows()
        return cls(run, rows, Outcomes.of(run.header, rows))

    @property
    def verb(self) -> str:
        return self.outcomes.verb

    @property
    def names(self) -> Sequence[str]:
        return tuple(self.run.header["dataset"]["class_names"])

    def summary_html(self) -> str:
        """What the run is, how far it got, and what its numbers mean."""
        outcomes, dataset = self.outcomes, self.run.header["dataset"]
        said = f"{self.verb}: {outcomes.images} of {outcomes.expected} images of {dataset['name']}"
        return sentence(said, "lead") + "".join(
            sentence(meaning) for meaning in statements.what_holds([outcomes])
        )

    def curve_html(self) -> str:
        """The report's own figure for this kind of run."""
        plots: dict[str, tuple[Callable[[Axes, list[Outcomes]], None], str]] = {
            "certify": (
                figures.plot_certified_accuracy,
                "Share of images certified right for every perturbation shorter than r, with "
                "pointwise 95 % intervals.",
            ),
            "attack": (figures.plot_robust_accuracy, "Accuracy under attack against its budget."),
            "predict": (figures.plot_accuracy_by_sigma, "Accuracy of images with about one σ."),
        }
        plot, caption = plots[self.verb]
        drawn = pictures.svg(lambda axes: plot(axes, [self.outcomes]), height=2.9)
        return figure(drawn, caption, "the curve of the run")

    @property
    def columns(self) -> list[str]:
        more = {"certify": ["radius"], "attack": ["ε"], "predict": []}[self.verb]
        return ["image", *more, "σ", "label", "answer", "outcome"]

    def kinds(self) -> list[str]:
        """Outcomes to filter by."""
        found = {outcome_of(row) for row in self.rows}
        return [EVERYTHING, *sorted(found)]

    def table(self, kind: str = EVERYTHING) -> list[list[str]]:
        """One line for each row of the run with this outcome."""
        return [self._line(row) for row in self.rows if kind in (EVERYTHING, outcome_of(row))]

    def _line(self, row: Row) -> list[str]:
        more = []
        if self.verb == "certify":
            more = [rounded(row["radius"])]
        elif self.verb == "attack":
            more = [f"{row['eps']:g}"]
        level = "" if row.get("sigma") is None else f"{row['sigma']:.4f}"
        named = [class_name(row["label"], self.names), class_name(row["prediction"], self.names)]
        return [str(row["id"]), *more, level, *named, outcome_of(row)]

    def find(self, line: Sequence[str]) -> Row:
        """The row behind a line of the table."""
        for row in self.rows:
            if str(row["id"]) == str(line[0]) and (
                self.verb != "attack" or f"{row['eps']:g}" == str(line[1])
            ):
                return row
        raise VarsmoothError(f"the run has no image {line[0]}")

    def evidence_html(self, row: Row) -> str:
        """The image, and everything that its result follows from."""
        budget = f", ε = {row['eps']:g}" if self.verb == "attack" else ""
        parts = [f"<h3>image {row['id']}{budget}</h3>"]
        if self.verb != "certify":
            parts.append(self._image_html(row))
        if self.verb == "certify":
            parts.append(self._certificate_html(row))
        elif self.verb == "attack":
            before, after = row["clean_counts"], row["counts"]
            parts.append(votes_html(before, self.names, row["clean_prediction"], "Before."))
            parts.append(votes_html(after, self.names, row["prediction"], "Attacked."))
        else:
            parts.append(votes_html(row["counts"], self.names, row["prediction"], VOTES))
        return f"<div class='vs-evidence'>{''.join(parts)}</div>"

    def _image_html(self, row: Row) -> str:
        try:
            image = image_of(self.run.folder, row["id"])
        except VarsmoothError as error:
            return sentence(f"The image cannot be shown: {error}")
        return pixels(image.batch([0]).images[0], class_name(row["label"], self.names), "the image")

    def _certificate_html(self, row: Row) -> str:
        image = self._image_html(row)
        if not row.get("evidence"):
            return image + sentence("This run holds no evidence: it was imported.")
        certificate = self.run.certificate(row)
        shown = card("the certificate", certificate, self.names)
        ledger, parts = certificate.ledger, [f"<div class='vs-beside'>{image}{shown}</div>"]
        parts.append(construction_html(certificate))
        if certificate.votes:
            level = certificate.votes[0]
            caption = f"Votes at σ = {level.sigma:.4f}, one of {len(certificate.votes)} levels."
            parts.append(votes_html(level.counts, self.names, certificate.prediction, caption))
        if certificate.selector is not None:
            parts.append(levels_html(levels_of(certificate)))
        parts.append(
            sentence(
                f"α = {ledger.alpha:g}, of which {ledger.alpha_class:g} for the votes and "
                f"{ledger.alpha_select:g} for the selector; seed {certificate.seed}."
            )
        )
        return "".join(parts)


def outcome_of(row: Row) -> str:
    """One word or two about a row; an abstention is not right."""
    if row["prediction"] == row["label"] != ABSTAIN:
        attacked_anyway = row.get("clean_prediction", row["label"]) != row["label"]
        return "wrong before the attack" if attacked_anyway else "right"
    if row.get("clean_prediction", row["label"]) != row["label"]:
        return "wrong before the attack"
    if row["prediction"] == ABSTAIN:
        return "abstains"
    return "broken" if "clean_prediction" in row else "wrong"


def levels_of(certificate: Certificate) -> Levels:
    """What a certificate keeps of its selector, as it is drawn; the budget is its radius."""
    evidence = certificate.selector
    assert evidence is not None
    budget = certificate.radius if evidence.distance is None else evidence.distance
    return Levels(
        evidence.samples,
        evidence.samples[(len(evidence.samples) - 1) // 2],
        certificate.sigma,
        reachable(evidence.samples, budget, evidence.sigma_m),
        evidence.clip,
        evidence.levels or (),
        float(rounded(budget)),  # never upward
    )


@lru_cache(maxsize=2)
def dataset_of(folder: Path) -> ImageDataset:
    """The images of a run, if they are still where it found them."""
    _, data = options_in(Run.open(folder).header["config"])
    images = load_dataset(data.data, data.split, data.root)
    return images if data.resize is None else resized(images, data.resize)


def image_of(folder: Path, id: int) -> ImageDataset:
    """One image of a run by its id."""
    try:
        images = dataset_of(folder)
    except (KeyError, TypeError):
        raise VarsmoothError("the run does not say where its images are") from None
    places = (images.ids == id).nonzero()[0]
    require(len(places) == 1, f"{images.name} has no image {id}")
    return images[places]
