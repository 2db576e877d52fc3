"""An uploaded file as an image, or an error message."""

import base64
import binascii
import io

import numpy as np

from varsmooth.data import ImageDataset
from varsmooth.data.files import preprocess, read_image
from varsmooth.data.source import Preprocessing
from varsmooth.errors import check, wrap_errors

FORMATS = ("PNG", "JPEG")
MAX_BYTES = 8 * 2**20
MAX_PIXELS = 20_000_000


def open_upload(content: bytes, name: str, shape: tuple[int, int, int]) -> tuple[ImageDataset, str]:
    """The uploaded picture as a data set of one image of shape (C, side, side), and a note on it.

    Only PNG and JPEG are decoded, whatever the file is called; nothing touches the disk.
    """
    channels, side, _ = shape
    too_large = f"{name} has more than {MAX_BYTES // 2**20} MB; choose a smaller picture"
    check(len(content) <= MAX_BYTES, too_large)
    pixels = read_image(io.BytesIO(content), name, FORMATS, MAX_PIXELS)
    height, width = pixels.shape[:2]
    pixels = np.broadcast_to(pixels, (height, width, 3))
    if channels == 1:
        weights = np.array([0.299, 0.587, 0.114])
        pixels = (pixels @ weights).round().astype(np.uint8)[..., None]
    scaled = preprocess(np.ascontiguousarray(pixels), Preprocessing(side))
    ids = np.zeros(1, np.int64)
    picture = ImageDataset("upload", "test", scaled[None], None, ids, (), (name,))
    size = f"{name}, {width} × {height} pixels"
    if (height, width) == (side, side):
        return picture, f"{size}, unchanged."
    cut = "" if height == width else "cropped to its central square and "
    return (
        picture,
        f"{size}: {cut}scaled to {side} × {side}, the size this model was trained on. "
        "Radii refer to the scaled image.",
    )


def decoded(text: str) -> bytes:
    """The bytes of a picture sent as base64."""
    with wrap_errors(binascii.Error, "the picture is not base64; upload it again"):
        return base64.b64decode(text, validate=True)
