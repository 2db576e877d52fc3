"""An uploaded file as an image, or an error message."""

import base64
import binascii
import io
import multiprocessing
from multiprocessing.connection import Connection

import numpy as np

from varsmooth.data import ImageDataset
from varsmooth.data.files import Pixels, preprocess, read_image
from varsmooth.data.source import Preprocessing
from varsmooth.errors import VarsmoothError, check, wrap_errors

FORMATS = ("PNG", "JPEG")
MAX_BYTES = 8 * 2**20
MAX_PIXELS = 20_000_000
DECODING = 10.0
"""Seconds that a picture may take to decode: 262 KB of progressive JPEG can take half a minute."""

Shape = tuple[int, int, int]


def open_upload(content: bytes, name: str, shape: Shape) -> tuple[ImageDataset, str]:
    """The uploaded picture as a data set of one image of shape (C, side, side), and a note on it.

    Only PNG and JPEG are decoded, whatever the file is called, in a process that is ended if it
    takes too long; nothing touches the disk.
    """
    too_large = f"{name} has more than {MAX_BYTES // 2**20} MB; choose a smaller picture"
    check(len(content) <= MAX_BYTES, too_large)
    scaled, height, width = _decoded_apart(content, name, shape)
    size, side = f"{name}, {width} × {height} pixels", shape[1]
    picture = _one_image(scaled, name)
    if (height, width) == (side, side):
        return picture, f"{size}, unchanged."
    cut = "" if height == width else "cropped to its central square and "
    return (
        picture,
        f"{size}: {cut}scaled to {side} × {side}, the size this model was trained on. "
        "Radii refer to the scaled image.",
    )


def open_picture(content: bytes, shape: Shape) -> ImageDataset:
    """A picture that the page sent back, which is a PNG of the model's size: quick to decode."""
    scaled, *_ = decode(content, "the picture", shape, FORMATS[:1], shape[1] * shape[2])
    return _one_image(scaled, "the picture")


def decode(
    content: bytes,
    name: str,
    shape: Shape,
    formats: tuple[str, ...] = FORMATS,
    max_pixels: int = MAX_PIXELS,
) -> tuple[Pixels, int, int]:
    """The picture scaled to (side, side, C), and the height and width that it had."""
    channels, side, _ = shape
    pixels = read_image(io.BytesIO(content), name, formats, max_pixels)
    height, width = pixels.shape[:2]
    pixels = np.broadcast_to(pixels, (height, width, 3))
    if channels == 1:
        weights = np.array([0.299, 0.587, 0.114])
        pixels = (pixels @ weights).round().astype(np.uint8)[..., None]
    return preprocess(np.ascontiguousarray(pixels), Preprocessing(side)), height, width


def _decoded_apart(content: bytes, name: str, shape: Shape) -> tuple[Pixels, int, int]:
    """What `decode` returns, from a process of its own."""
    context = multiprocessing.get_context("spawn")  # a fork would copy the locks of our threads
    ours, theirs = context.Pipe()
    process = context.Process(target=_decode_for, args=(theirs,), daemon=True)
    process.start()
    try:
        theirs.close()
        with wrap_errors((EOFError, OSError), f"{name} cannot be decoded; save it anew as PNG"):
            ours.send((content, name, shape))
            slow = f"{name} takes more than {DECODING:g} seconds to decode; save it anew as PNG"
            check(ours.poll(DECODING), slow)
            result: tuple[Pixels, int, int] | VarsmoothError = ours.recv()
    finally:
        process.kill()
        process.join()
        ours.close()
    if isinstance(result, VarsmoothError):
        raise result
    return result


def _decode_for(parent: "Connection[object, tuple[bytes, str, Shape]]") -> None:
    """Decode one picture for the process at the other end."""
    try:
        parent.send(decode(*parent.recv()))
    except VarsmoothError as error:
        parent.send(VarsmoothError(str(error)))  # without its causes, which may not be sendable


def _one_image(pixels: Pixels, name: str) -> ImageDataset:
    ids = np.zeros(1, np.int64)
    return ImageDataset("upload", "test", pixels[None], None, ids, (), (name,))


def decoded(text: str) -> bytes:
    """The bytes of a picture sent as base64."""
    with wrap_errors(binascii.Error, "the picture is not base64; upload it again"):
        return base64.b64decode(text, validate=True)
