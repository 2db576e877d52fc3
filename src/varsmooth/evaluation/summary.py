"""One line on what a run found; tables and figures are the report's."""

import math
from collections.abc import Sequence

from varsmooth.certificates import ABSTAIN
from varsmooth.records import Row, Run


def certified(run: Run) -> str:
    """Certified accuracy at radius 0 and the mean radius, rounded down."""
    rows = run.rows()
    text = _counted(run, rows)
    if labelled := [row for row in rows if row["label"] is not None]:
        right = [row for row in labelled if row["prediction"] == row["label"]]
        mean = sum(row["radius"] for row in right) / len(labelled)
        text += f", {_percent(len(right), len(labelled))} certified as their true class"
        text += f", mean radius {_down(mean)} (0 where wrong)"
    return text + f", {_abstained(rows)}"


def _counted(run: Run, rows: Sequence[Row]) -> str:
    images, size = len({row["id"] for row in rows}), run.header["dataset"]["size"]
    return f"{images} of {size} images in {run.folder}"


def _abstained(rows: Sequence[Row]) -> str:
    return f"{_percent(sum(row['prediction'] == ABSTAIN for row in rows), len(rows))} abstained"


def _percent(part: int, whole: int) -> str:
    return f"{_down(100 * part / max(whole, 1), 1)} %"


def _down(value: float, digits: int = 3) -> str:
    """Never upward."""
    return f"{math.floor(value * 10**digits) / 10**digits:.{digits}f}"
