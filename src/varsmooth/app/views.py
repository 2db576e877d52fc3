"""Results and the records of a run as HTML. The text is in the templates."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, cast

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray
from torch import Tensor

from varsmooth.app import drawings
from varsmooth.bounds import Floats, average_certified_radius
from varsmooth.certificates import Certificates
from varsmooth.data import ImageDataset
from varsmooth.defaults import ABSTAIN, ALPHA_SELECT
from varsmooth.errors import VarsmoothError, check, wrap_errors
from varsmooth.evaluation.build import is_image_of, stored_images
from varsmooth.evaluation.headers import HEADER
from varsmooth.evaluation.records import Row, Run
from varsmooth.evaluation.report import figures, pages, summary_text
from varsmooth.evaluation.report.outcomes import Outcomes, outcome
from varsmooth.evaluation.report.statistics import reach
from varsmooth.methods import METHODS
from varsmooth.methods.cascade import stage_radii

EVERYTHING = "all"
LINES = 100  # of the table, shown at a time
MAX_BYTES = 2**30  # of records: more would not fit into memory beside everything else


def kind(prediction: int, label: int | None) -> str:
    """A CSS class: right, wrong or abstains; without a label a prediction counts as right."""
    return outcome({"prediction": prediction, "label": prediction if label is None else label})


def picture(image: Tensor) -> str:
    """Pixels (C,H,W) in [0,1], exactly."""
    pixels = (255 * image.clamp(0, 1)).round().byte().permute(1, 2, 0)
    return pages.picture(pixels.cpu().numpy())


def subscripts(text: str) -> Markup:
    """g_v and σ_a as the paper sets them."""
    return Markup(re.sub(r"(\w)_(\w)", r"\1<sub>\2</sub>", str(Markup.escape(text))))


templates = pages.templates(
    "varsmooth.app",
    ABSTAIN=ABSTAIN,
    ALPHA_SELECT=ALPHA_SELECT,
    infinity=float("inf"),
    meanings=summary_text.MEANINGS,
    methods=METHODS,
    stage_radii=stage_radii,
    drawings=drawings,
    figures=figures,
    svg=drawings.svg,
)
templates.filters |= {"kind": kind, "picture": picture, "subscripts": subscripts}
templates.filters |= {"average_radius": average_certified_radius}
one, run, parts, several = (  # macros: functions from values to HTML
    cast(Any, templates.get_template(f"{name}.html").module)
    for name in ("one", "run", "parts", "several")
)


def true_radii(certificates: Certificates, labels: NDArray[np.int64] | None) -> Floats:
    """The radius of each image; 0 for a wrong class."""
    predictions = certificates.prediction.numpy()
    known = predictions if labels is None else labels
    return np.maximum(reach(predictions, known, certificates.radius.numpy()), 0)


def open_run(folder: str | Path) -> "OpenRun":
    """The run in a folder, cached until its files grow."""
    named, invalid = str(folder), (RuntimeError, ValueError)  # unknown user, loop, null byte
    with wrap_errors(invalid, lambda error: f"{named!r} is not the path of a folder: {error}"):
        folder = Path(folder).expanduser().resolve()
    files = [folder / HEADER, *sorted(folder.glob("rows-*.jsonl"))]
    for path in files:
        check(not path.exists() or path.is_file(), f"{path} is not a regular file")
    sizes = tuple(path.stat().st_size for path in files if path.exists())
    check(
        sum(sizes) <= MAX_BYTES,
        f"the records of {folder} take {sum(sizes) >> 20} MB, too much for the page; "
        "make a report instead: varsmooth report",
    )
    return _open(folder, sizes)


@lru_cache(maxsize=2)
def _open(folder: Path, sizes: tuple[int, ...]) -> "OpenRun":
    run = Run.open(folder)
    return OpenRun(run, Outcomes.of(run.header, run.rows(), run.folder))


@dataclass(frozen=True)
class OpenRun:
    """A run in memory: its folder, and its rows."""

    run: Run
    outcomes: Outcomes

    @property
    def names(self) -> Sequence[str]:
        return tuple(self.run.header["dataset"]["class_names"])

    @cached_property
    def images(self) -> ImageDataset:
        return stored_images(self.run.header)

    def overview_html(self) -> dict[str, str]:
        """What the run is, the report's figure for its kind, and the outcomes to filter by."""
        outcomes = self.outcomes
        return {
            "summary": run.summary(outcomes, summary_text.what_holds([outcomes])),
            "runcurve": run.curve(outcomes),
            "kinds": run.kinds(self.kinds()),
        }

    def kinds(self) -> list[str]:
        """Outcomes to filter by."""
        return [EVERYTHING, *sorted(set(map(outcome, self.outcomes.rows)))]

    def table_html(self, kind: str = EVERYTHING, start: int = 0) -> str:
        """A part of the rows with this outcome: LINES of them, from `start` on."""
        rows = enumerate(self.outcomes.rows)
        chosen = [(i, row) for i, row in rows if kind in (EVERYTHING, outcome(row))]
        start = max(0, min(start, (len(chosen) - 1) // LINES * LINES))
        shown, verb = chosen[start : start + LINES], self.outcomes.verb
        return str(run.table(shown, verb, self.names, start, len(chosen), LINES))

    def evidence_html(self, number: int) -> str:
        """The image of a row and the evidence behind its result."""
        check(0 <= number < len(self.outcomes), f"the run has no row {number}")
        row = self.outcomes.rows[number]
        proof = self.run.certificate(row) if row.get("evidence") else None
        return str(run.evidence(row, self.names, self._image(row), proof))

    def _image(self, row: Row) -> dict[str, Any]:
        """The pixels of an image, if the run's data set is still there, or why not."""
        try:
            places = (self.images.ids == row["id"]).nonzero()[0]
            check(len(places) == 1, f"{self.images.name} has no image {row['id']}")
            same = is_image_of(row, self.images, int(places[0]))
            check(same, f"image {row['id']} is not the one that the run saw")
            return {"pixels": self.images[places].batch([0]).images[0]}
        except (VarsmoothError, OSError, TypeError) as error:
            return {"error": str(error)}
