"""HTML from templates, and pictures inside it. Jinja escapes all text, here and nowhere else."""

import base64
import io
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from numpy.typing import NDArray
from PIL import Image

from varsmooth.evaluation.report.outcomes import class_name, outcome
from varsmooth.rounding import rounded


def templates(package: str, **names: Any) -> Environment:
    """The templates of a package, with the global names they share."""
    environment = Environment(
        loader=PackageLoader(package),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"rounded": rounded, "class_name": class_name, "outcome": outcome}
    environment.globals |= names
    return environment


def picture(pixels: NDArray[np.uint8], side: int | None = None) -> str:
    """Pixels (H,W,C) as an address that holds them; larger images are scaled to `side` pixels."""
    image = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
    kind = "png" if side is None or max(image.size) <= side else "jpeg"
    if side is not None:
        image.thumbnail((side, side))
    out = io.BytesIO()
    image.save(out, kind)
    return data_url(out.getvalue(), kind)


def data_url(content: bytes, kind: str = "svg+xml") -> str:
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
