"""A stranger's file becomes an image, or a sentence."""

import io
from pathlib import Path

import numpy as np

from varsmooth.data import ImageDataset
from varsmooth.data.folders import read_image
from varsmooth.errors import require
from varsmooth.runs.images import resized

FORMATS = ("PNG", "JPEG")
MAX_BYTES = 8 * 2**20
MAX_PIXELS = 20_000_000


def open_upload(path: str | Path, side: int, channels: int = 3) -> tuple[ImageDataset, str]:
    """The uploaded picture as a data set of one image of side × side pixels, and what was done.

    Only PNG and JPEG are decoded, whatever the file is called; nothing in it is run.
    """
    path = Path(path)
    limit = f"{path.name} has more than {MAX_BYTES // 2**20} MB; choose a smaller picture"
    require(path.stat().st_size <= MAX_BYTES, limit)
    pixels = read_image(io.BytesIO(path.read_bytes()), path.name, FORMATS, MAX_PIXELS)
    height, width = pixels.shape[:2]
    if pixels.ndim == 2:
        pixels = np.repeat(pixels[..., None], 3, axis=2)
    if channels == 1:
        weights = np.array([0.299, 0.587, 0.114])
        pixels = (pixels @ weights).round().astype(np.uint8)[..., None]
    ids = np.zeros(1, np.int64)
    picture = ImageDataset("upload", "test", pixels[None], None, ids, (), (path.name,))
    said = f"{path.name}, {width} × {height} pixels"
    if (height, width) == (side, side):
        return picture, f"{said}, as it is."
    cut = "" if height == width else "cut to its central square and "
    return (
        resized(picture, side),
        f"{said}: {cut}scaled to {side} × {side}, the size this model was trained for. "
        "Radii are those of the scaled image.",
    )
