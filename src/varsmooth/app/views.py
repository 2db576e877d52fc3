"""What a person reads: the page, and each answer as a piece of HTML. Templates hold the words."""

from typing import Any, cast

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray
from torch import Tensor

from varsmooth.app import drawings
from varsmooth.bounds import Floats
from varsmooth.certificates import Certificates
from varsmooth.defaults import ABSTAIN, ALPHA_SELECT
from varsmooth.evidence import stage_radii
from varsmooth.report import figures, pages
from varsmooth.report.outcomes import outcome
from varsmooth.report.statements import MEANINGS
from varsmooth.report.statistics import average_certified_radius, reach


def kind(prediction: int, label: int | None) -> str:
    """A CSS class: right, wrong or abstains; without a label a prediction counts as right."""
    return outcome({"prediction": prediction, "label": prediction if label is None else label})


def picture(image: Tensor) -> str:
    """Pixels (C,H,W) in [0,1], exactly."""
    pixels = (255 * image.clamp(0, 1)).round().byte().permute(1, 2, 0)
    return pages.picture(pixels.cpu().numpy())


def paper_name(text: str) -> Markup:
    """g_v as the paper sets it."""
    return Markup("g<sub>v</sub>").join(map(Markup.escape, text.split("g_v")))


templates = pages.templates(
    "varsmooth.app",
    ABSTAIN=ABSTAIN,
    ALPHA_SELECT=ALPHA_SELECT,
    infinity=float("inf"),
    meanings=MEANINGS,
    stage_radii=stage_radii,
    drawings=drawings,
    figures=figures,
    svg=drawings.svg,
)
templates.filters |= {"kind": kind, "picture": picture, "paper_name": paper_name}
templates.filters |= {"average_radius": average_certified_radius}
one, run, parts, several = (  # macros: functions from values to HTML
    cast(Any, templates.get_template(f"{name}.html").module)
    for name in ("one", "run", "parts", "several")
)


def true_radii(found: Certificates, labels: NDArray[np.int64] | None) -> Floats:
    """The radius of each image; 0 for a wrong class."""
    predictions = found.prediction.numpy()
    known = predictions if labels is None else labels
    return np.maximum(reach(predictions, known, found.radius.numpy()), 0)
