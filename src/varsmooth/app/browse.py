"""The records of a run folder: a curve, a table to filter, the evidence of each image."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from varsmooth.app import drawings
from varsmooth.app.fragments import (
    VOTES,
    card,
    class_name,
    construction_html,
    draws_html,
    figure,
    pixels,
    sentence,
    votes_html,
)
from varsmooth.app.one_image import SelectorDraws, reachable
from varsmooth.certificates import ABSTAIN, Certificate
from varsmooth.data import ImageDataset, load_dataset
from varsmooth.errors import VarsmoothError, require
from varsmooth.report import figures, statements
from varsmooth.report.markup import Html, element, join
from varsmooth.report.outcomes import Outcomes
from varsmooth.rounding import rounded
from varsmooth.runs.images import resized
from varsmooth.runs.options import options_in
from varsmooth.runs.records import HEADER, Row, Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

EVERYTHING = "all"
LINES = 100
"""Lines of the table that are shown at a time."""
MAX_BYTES = 2**30
"""Of the rows of a run: a larger one would not fit into memory beside everything else."""


def open_run(folder: str | Path) -> "OpenRun":
    """The run in a folder, read once for everybody who looks at it, and again when it grew."""
    folder = Path(folder).expanduser().resolve()
    files = [folder / HEADER, *sorted(folder.glob("rows-*.jsonl"))]
    for path in files:
        require(not path.exists() or path.is_file(), f"{path} is not a regular file")
    sizes = tuple(path.stat().st_size for path in files if path.exists())
    require(
        sum(sizes) <= MAX_BYTES,
        f"the records of {folder} take {sum(sizes) >> 20} MB, too much for the page; "
        "make a report instead: varsmooth report",
    )
    return _open(folder, sizes)


@lru_cache(maxsize=2)
def _open(folder: Path, sizes: tuple[int, ...]) -> "OpenRun":
    run = Run.open(folder)
    rows = run.rows()
    return OpenRun(run, rows, Outcomes.of(run.header, rows))


@dataclass(frozen=True)
class OpenRun:
    """A run in memory: its header, its rows, and the rows as columns."""

    run: Run
    rows: list[Row]
    outcomes: Outcomes

    @property
    def verb(self) -> str:
        return self.outcomes.verb

    @property
    def names(self) -> Sequence[str]:
        return tuple(self.run.header["dataset"]["class_names"])

    def summary_html(self) -> Html:
        """What the run is, how far it got, and what its numbers mean."""
        outcomes, dataset = self.outcomes, self.run.header["dataset"]
        said = f"{self.verb}: {outcomes.images} of {outcomes.expected} images of {dataset['name']}"
        return join(
            sentence(said, "lead"),
            *(sentence(meaning) for meaning in statements.what_holds([outcomes])),
        )

    def curve_html(self) -> Html:
        """The report's own figure for this kind of run."""
        plots: dict[str, tuple[Callable[[Axes, list[Outcomes]], None], str]] = {
            "certify": (
                figures.plot_certified_accuracy,
                "Certified accuracy against radius, with pointwise 95 % intervals.",
            ),
            "attack": (figures.plot_robust_accuracy, "Accuracy under attack against its budget."),
            "predict": (figures.plot_accuracy_by_sigma, "Accuracy of images with similar σ."),
        }
        plot, caption = plots[self.verb]
        drawn = drawings.svg(lambda axes: plot(axes, [self.outcomes]), height=2.9)
        return figure(drawn, caption, "the curve of the run")

    def kinds(self) -> list[str]:
        """Outcomes to filter by."""
        return [EVERYTHING, *sorted({outcome_of(row) for row in self.rows})]

    def table_html(self, kind: str = EVERYTHING, start: int = 0) -> Html:
        """A part of the rows with this outcome: LINES of them, from `start` on."""
        chosen = [
            (number, row)
            for number, row in enumerate(self.rows)
            if kind in (EVERYTHING, outcome_of(row))
        ]
        more = {"certify": ["radius"], "attack": ["ε"], "predict": []}[self.verb]
        head = ["image", *more, "σ", "label", "prediction", "outcome"]
        start = max(0, min(start, (len(chosen) - 1) // LINES * LINES))
        shown = chosen[start : start + LINES]
        lines = [
            element(
                "tr",
                *(element("td", cell) for cell in self._cells(row)),
                data_row=number,
                tabindex=0,
            )
            for number, row in shown
        ]
        turn = None
        if len(chosen) > LINES:
            turn = element(
                "p",
                element("button", "‹", data_start=start - LINES, disabled=start == 0),
                f" {start + 1}–{start + len(shown)} of {len(chosen)} ",
                element(
                    "button", "›", data_start=start + LINES, disabled=start + LINES >= len(chosen)
                ),
                class_="turn",
            )
        heads = element("thead", element("tr", *(element("th", name) for name in head)))
        return join(element("table", heads, element("tbody", *lines), class_="rows"), turn)

    def _cells(self, row: Row) -> list[str]:
        more = []
        if self.verb == "certify":
            more = [rounded(row["radius"])]
        elif self.verb == "attack":
            more = [f"{row['eps']:g}"]
        level = "" if row.get("sigma") is None else f"{row['sigma']:.4f}"
        named = [class_name(row["label"], self.names), class_name(row["prediction"], self.names)]
        return [str(row["id"]), *more, level, *named, outcome_of(row)]

    def evidence_html(self, number: int) -> Html:
        """The image of a row, and everything that its result follows from."""
        require(0 <= number < len(self.rows), f"the run has no row {number}")
        row = self.rows[number]
        budget = f", ε = {row['eps']:g}" if self.verb == "attack" else ""
        title = element("h3", f"image {row['id']}{budget}")
        if self.verb == "certify":
            return join(title, self._certificate_html(row))
        votes = {"counts": (row["prediction"], VOTES)}
        if self.verb == "attack":
            before = (row["clean_prediction"], "Votes before the attack.")
            votes = {"clean_counts": before, "counts": (row["prediction"], "Votes under attack.")}
        charts = [
            votes_html(row[name], self.names, winner, caption)
            for name, (winner, caption) in votes.items()
        ]
        return join(title, self._image_html(row), *charts)

    def _image_html(self, row: Row) -> Html:
        try:
            image = image_of(self.run.folder, row["id"])
        except (VarsmoothError, OSError) as error:
            return sentence(f"The image cannot be shown: {error}")
        return pixels(image.batch([0]).images[0], class_name(row["label"], self.names), "the image")

    def _certificate_html(self, row: Row) -> Html:
        image = self._image_html(row)
        if not row.get("evidence"):
            return join(image, sentence("This run was imported and holds no evidence."))
        certificate = self.run.certificate(row)
        ledger = certificate.ledger
        parts = [
            element(
                "div", image, card("the certificate", certificate, self.names), class_="beside"
            ),
            construction_html(certificate),
        ]
        if certificate.votes:
            level = certificate.votes[0]
            caption = f"Votes at σ = {level.sigma:.4f}, one of {len(certificate.votes)} levels."
            parts.append(votes_html(level.counts, self.names, certificate.prediction, caption))
        if certificate.selector is not None:
            parts.append(draws_html(draws_of(certificate)))
        spent = (
            f"α = {ledger.alpha:g}: {ledger.alpha_class:g} for the votes and "
            f"{ledger.alpha_select:g} for the selector; seed {certificate.seed}."
        )
        return join(*parts, sentence(spent))


def outcome_of(row: Row) -> str:
    """One word or two about a row; an abstention is not right."""
    if row.get("clean_prediction", row["label"]) != row["label"]:
        return "wrong before the attack"
    if row["prediction"] == ABSTAIN:
        return "abstains"
    if row["prediction"] == row["label"]:
        return "right"
    return "broken" if "clean_prediction" in row else "wrong"


def draws_of(certificate: Certificate) -> SelectorDraws:
    """What a certificate keeps of its selector, as it is drawn; the budget is its radius."""
    evidence = certificate.selector
    assert evidence is not None
    budget = certificate.radius if evidence.distance is None else evidence.distance
    return SelectorDraws(
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
