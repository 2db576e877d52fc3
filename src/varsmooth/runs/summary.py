"""One line on what a run found; tables and figures are the report's."""

import math
from collections.abc import Sequence

from varsmooth.certificates import ABSTAIN
from varsmooth.runs.records import Row, Run


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


def predicted(run: Run) -> str:
    """Accuracy, where the images are labelled."""
    rows = run.rows()
    return f"{_counted(run, rows)}, {_accuracy(rows, 'prediction')}, {_abstained(rows)}"


def attacked(run: Run) -> list[str]:
    """Accuracy before and after, one line for each budget.

    An image that was wrong before counts as wrong after: the attacker may do nothing.
    """
    rows = run.rows()
    budgets = sorted({row["eps"] for row in rows})
    lines = [_counted(run, rows)]
    for eps in budgets:
        here = [row for row in rows if row["eps"] == eps]
        worst = [
            row if row["clean_prediction"] == row["label"] else row | {"prediction": None}
            for row in here
        ]
        clean, after = _accuracy(here, "clean_prediction"), _accuracy(worst, "prediction")
        changed = sum(row["prediction"] != row["clean_prediction"] for row in here)
        lines.append(
            f"eps {eps:g}: clean {clean}, attacked {after}, {_percent(changed, len(here))} changed"
        )
    return lines


def searched(run: Run) -> str:
    """How many certified balls were searched, and what was found in them."""
    rows = run.rows()
    kinds = sorted({row["guarantee"] for row in rows})
    counts = []
    for kind in kinds:
        here = [row for row in rows if row["guarantee"] == kind]
        counts.append(f"{sum(row['violated'] for row in here)} of {len(here)} {kind} ones false")
    return f"certificates searched in {run.folder}: {', '.join(counts)}"


def _accuracy(rows: Sequence[Row], column: str) -> str:
    labelled = [row for row in rows if row["label"] is not None]
    right = sum(row[column] == row["label"] for row in labelled)
    return f"{_percent(right, len(labelled))} right" if labelled else "unlabelled"


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
