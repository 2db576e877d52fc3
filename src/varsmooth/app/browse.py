"""The records of a run folder: a curve, a table to filter, the evidence of each image."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from varsmooth.app import drawings, views
from varsmooth.app.work import SelectorDraws, reachable
from varsmooth.certificates import Certificate
from varsmooth.data import ImageDataset
from varsmooth.errors import VarsmoothError, require
from varsmooth.report import figures, statements
from varsmooth.report.gallery import images_of
from varsmooth.report.outcomes import Outcomes, outcome
from varsmooth.rounding import rounded
from varsmooth.runs.records import HEADER, Row, Run

EVERYTHING = "all"
LINES = 100
"""Lines of the table that are shown at a time."""
MAX_BYTES = 2**30
"""Of the rows of a run: a larger one would not fit into memory beside everything else."""


def open_run(folder: str | Path) -> "OpenRun":
    """The run in a folder, read once for everybody who looks at it, and again when it grew."""
    try:
        folder = Path(folder).expanduser().resolve()
    except (RuntimeError, ValueError) as error:  # nobody's home, links in a circle, a zero byte
        raise VarsmoothError(f"{str(folder)!r} is not the path of a folder: {error}") from None
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
    def names(self) -> Sequence[str]:
        return tuple(self.run.header["dataset"]["class_names"])

    @cached_property
    def images(self) -> ImageDataset:
        return images_of(self.run.header)

    def overview_html(self) -> dict[str, str]:
        """What the run is, the report's figure for its kind, and the outcomes to filter by."""
        plots: dict[str, tuple[Callable[..., None], str]] = {
            "certify": (
                figures.plot_certified_accuracy,
                "Certified accuracy against radius, with pointwise 95 % intervals.",
            ),
            "attack": (figures.plot_robust_accuracy, "Accuracy under attack against its budget."),
            "predict": (figures.plot_accuracy_by_sigma, "Accuracy of images with similar σ."),
        }
        plot, caption = plots[self.outcomes.verb]
        url = drawings.svg(plot, [self.outcomes], height=2.9)
        return {
            "summary": views.run.summary(self.outcomes, statements.what_holds([self.outcomes])),
            "runcurve": views.run.curve(url, caption),
            "kinds": views.run.kinds(self.kinds()),
        }

    def kinds(self) -> list[str]:
        """Outcomes to filter by."""
        return [EVERYTHING, *sorted(set(map(outcome, self.rows)))]

    def table_html(self, kind: str = EVERYTHING, start: int = 0) -> str:
        """A part of the rows with this outcome: LINES of them, from `start` on."""
        rows = enumerate(self.rows)
        chosen = [(i, row) for i, row in rows if kind in (EVERYTHING, outcome(row))]
        start = max(0, min(start, (len(chosen) - 1) // LINES * LINES))
        shown = chosen[start : start + LINES]
        verb = self.outcomes.verb
        return str(views.run.table(shown, verb, self.names, start, len(chosen), LINES))

    def evidence_html(self, number: int) -> str:
        """The image of a row, and everything that its result follows from."""
        require(0 <= number < len(self.rows), f"the run has no row {number}")
        row, names = self.rows[number], self.names
        image = self._image(row["id"])
        if row.get("evidence"):
            proof = self.run.certificate(row)
            charts = [
                (
                    views.votes_url(level.counts, names, proof.prediction),
                    f"Votes at σ = {level.sigma:.4f}, one of {len(proof.votes)} levels.",
                )
                for level in proof.votes[:1]
            ]
            spread = views.draws_html(draws_of(proof)) if proof.selector else ""
            built = views.construction_url(proof)
            return str(views.run.certificate(row, names, image, proof, built, charts, spread))
        captions = {"counts": views.VOTES}
        if "clean_counts" in row:
            captions = {"clean_counts": "Votes before the attack.", "counts": "Votes under attack."}
        charts = [
            (views.votes_url(row[name], names, row[name.replace("counts", "prediction")]), caption)
            for name, caption in captions.items()
            if name in row
        ]
        return str(views.run.evidence(row, names, image, charts))

    def _image(self, id: int) -> dict[str, Any]:
        """The pixels of an image, if it is still where the run found it, or why not."""
        try:
            places = (self.images.ids == id).nonzero()[0]
            require(len(places) == 1, f"{self.images.name} has no image {id}")
            return {"pixels": self.images[places].batch([0]).images[0]}
        except (VarsmoothError, OSError, TypeError) as error:
            return {"error": str(error)}


def draws_of(certificate: Certificate) -> SelectorDraws:
    """What a certificate keeps of its selector, as it is drawn; the budget is its radius."""
    evidence = certificate.selector
    assert evidence is not None
    budget = certificate.radius if evidence.distance is None else evidence.distance
    return SelectorDraws(
        evidence.samples,
        certificate.sigma,
        reachable(evidence.samples, budget, evidence.sigma_m),
        evidence.clip,
        evidence.levels or (),
        float(rounded(budget)),  # never upward
    )
