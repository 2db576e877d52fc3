"""Photographs that stay in their files until a block of them is needed."""

import hashlib
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from varsmooth._util.untrusted import check_limit, check_regular
from varsmooth.data.source import Preprocessing
from varsmooth.errors import VarsmoothError, check, wrap_errors

Pixels = NDArray[np.uint8]
Indices = slice | Sequence[int] | NDArray[np.integer]
FORMATS = ("PNG", "JPEG", "BMP", "WEBP")
THREADS = 8
"""That read headers: a disk on the network answers several requests at a time."""
ORIENTATION = 0x0112  # the EXIF tag; from 5 on, height and width change places


class _Header(NamedTuple):
    """The header of an image file, read without decoding the image."""

    height: int
    width: int
    grey: bool
    size: int  # bytes of the file


class ImageFiles:
    """N image files as an array (N,H,W,C) of uint8 that is decoded where it is read.

    A slice or a list of places is again files; `images[3]` and `np.asarray(images)` decode. Every
    header is read at the start, so that a file that is not an image, or an image of another size,
    is named before any work begins; a file that is damaged further on is named when it is decoded.
    Images have one channel if all of them are grey, otherwise three.

    Args:
        paths: The files.
        preprocessing: How each image is scaled and cropped once it is decoded.
    """

    dtype, ndim = np.dtype(np.uint8), 4

    def __init__(self, paths: Sequence[Path], preprocessing: Preprocessing) -> None:
        headers = _read_headers(paths)
        first = headers[0]
        if preprocessing.resize is None:
            for path, header in zip(paths, headers, strict=True):
                check(
                    header[:2] == first[:2],
                    f"{path} is {header.width}×{header.height} pixels but {paths[0].name} is "
                    f"{first.width}×{first.height}; scale them all to one size, for example with "
                    "`resize=32`",
                )
        channels = 1 if all(header.grey for header in headers) else 3
        self.paths = np.array([str(path) for path in paths], dtype=object)
        self.sizes = np.array([header.size for header in headers], np.int64)
        self.preprocessing = preprocessing
        self._image_shape = (*preprocessing.shape_of(first.height, first.width), channels)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return len(self.paths), *self._image_shape

    def __len__(self) -> int:
        return len(self.paths)

    def __iter__(self) -> Iterator[Pixels]:
        return (self[place] for place in range(len(self)))

    @overload
    def __getitem__(self, places: int) -> Pixels: ...
    @overload
    def __getitem__(self, places: Indices) -> "ImageFiles": ...
    def __getitem__(self, places: int | Indices) -> "Pixels | ImageFiles":
        chosen: Any = self.paths[places]
        if isinstance(chosen, str):
            return self._decode(chosen)
        files = object.__new__(ImageFiles)
        files.__dict__ |= self.__dict__ | {"paths": chosen, "sizes": self.sizes[places]}
        return files

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        total = int(np.prod(self.shape))
        check_limit("BYTES", total, f"{len(self):,} images in memory have {total:,} bytes")
        images = np.empty(self.shape, np.uint8)
        for place, path in enumerate(self.paths):
            images[place] = self._decode(path)
        return images if dtype is None else images.astype(dtype)

    def _decode(self, path: str) -> Pixels:
        gone = f"{path} was there when the images were listed, but cannot be opened now"
        again = "put it back, then run the command again"
        refusal = wrap_errors(OSError, lambda error: f"{gone} ({error.strerror}); {again}")
        with refusal, Path(path).open("rb") as file:
            pixels = preprocess(_read(file, path, FORMATS), self.preprocessing)
        check(
            pixels.shape[:2] == self._image_shape[:2] and pixels.shape[2] <= self._image_shape[2],
            f"{path} has changed since it was listed; run the command again",
        )
        return np.broadcast_to(pixels, self._image_shape)


def pixel_digests(images: NDArray[np.uint8]) -> list[str]:
    """One digest for each of the images (B,H,W,C): what a row of a run records of its image."""
    return [hashlib.sha256(image.tobytes()).hexdigest()[:32] for image in images]


def _read_headers(paths: Sequence[Path]) -> list[_Header]:
    """The header of every file; those that cannot be read are named together."""
    parts = np.array_split(np.array(paths, dtype=object), THREADS)
    with ThreadPoolExecutor(THREADS) as pool, warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # our limit is lower
        headers = [header for part in pool.map(_read_part, parts) for header in part]
    broken = [header for header in headers if isinstance(header, str)]
    if broken:
        bad = [str(p) for p, h in zip(paths, headers, strict=True) if isinstance(h, str)][1:]
        more = f" (and {len(bad)} more: {', '.join(bad[:10])})" if bad else ""
        raise VarsmoothError(f"{broken[0]}{more}")
    return [header for header in headers if not isinstance(header, str)]


def _read_part(paths: Sequence[Path]) -> list[_Header | str]:
    """Headers, or error messages in place of those that cannot be read."""
    headers: list[_Header | str] = []
    for path in paths:
        check_regular(path)
        try:
            with path.open("rb") as file:
                image = _open(file, str(path), FORMATS)
                known = image.format != "PNG" or "exif" in image.info  # else pillow would decode it
                turned = known and image.getexif().get(ORIENTATION, 1) >= 5
                width, height = image.size[::-1] if turned else image.size
                size = file.seek(0, 2)
            headers.append(_Header(height, width, image.mode in ("1", "L"), size))
        except Exception as error:
            headers.append(str(_unreadable(error, str(path), FORMATS)))
    return headers


def read_image(
    file: IO[bytes],
    name: str,
    formats: tuple[str, ...] = FORMATS,
    max_pixels: int | None = None,
) -> Pixels:
    """(H,W,1) if grey, otherwise (H,W,3); upright as the camera meant it, transparency dropped.

    Only `formats` are tried, whatever the file is called; errors call it `name`.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # our limit is lower
        return _read(file, name, formats, max_pixels)


def _read(
    file: IO[bytes], name: str, formats: tuple[str, ...], max_pixels: int | None = None
) -> Pixels:
    """The same, also in a thread: the filters of warnings belong to all threads."""
    try:
        with _open(file, name, formats, max_pixels) as image:
            upright = ImageOps.exif_transpose(image)
            pixels = np.asarray(upright.convert("L" if image.mode in ("1", "L") else "RGB"))
            return pixels.reshape(*pixels.shape[:2], -1)
    except Exception as error:  # for a damaged file pillow has many: OSError, SyntaxError, …
        raise _unreadable(error, name, formats) from error


def _open(
    file: IO[bytes], name: str, formats: tuple[str, ...], max_pixels: int | None = None
) -> Image.Image:
    """An image whose header has been read and is within the limits."""
    check(
        bool(file.read(1)), f"{name} cannot be read as an image: it is empty; repair or remove it"
    )
    file.seek(0)
    image = Image.open(file, formats=formats)
    pixels = image.width * image.height
    check_limit("PIXELS", pixels, f"{name} has {pixels:,} pixels")
    check(
        max_pixels is None or pixels <= max_pixels,
        f"{name} has more than {(max_pixels or 0) // 10**6} million pixels; make it smaller",
    )
    raw = [str(tile[3]) for tile in image.tile]  # pillow would cut RGB;16B to 8 bits
    check(
        not image.mode.startswith(("I", "F")) and not any("16B" in r for r in raw),
        f"{name} has more than 8 bits per channel; save it with 8 bits",
    )
    return image


def _unreadable(error: Exception, name: str, formats: tuple[str, ...]) -> VarsmoothError:
    """What is wrong with an image file, in one sentence."""
    if isinstance(error, VarsmoothError):
        return error
    if isinstance(error, Image.DecompressionBombError):
        return VarsmoothError(f"{name} is too large: {error}")
    unknown = isinstance(error, UnidentifiedImageError)
    why = f"it is none of {', '.join(formats)}" if unknown else error
    return VarsmoothError(f"{name} cannot be read as an image: {why}; repair or remove it")


def preprocess(pixels: Pixels, preprocessing: Preprocessing) -> Pixels:
    """One image (H,W,C), scaled and cropped.

    `resize` alone: the central square, scaled to resize × resize pixels. With `center_crop`: the
    shorter side is scaled to `resize`, then the central center_crop × center_crop pixels are kept,
    as torchvision, timm and transformers do it.
    """
    resize, crop, interpolation = preprocessing
    if resize is None:
        return pixels
    height, width, channels = pixels.shape
    short = min(height, width)
    picture = Image.fromarray(pixels[..., 0] if channels == 1 else pixels)
    method = Image.Resampling[(interpolation or "lanczos").upper()]
    if crop is None:
        if height == width == resize:
            return pixels
        left, top = (width - short) // 2, (height - short) // 2
        box = (left, top, left + short, top + short)
        scaled = np.asarray(picture.resize((resize, resize), method, box=box))
    else:
        size = (resize * width // short, resize * height // short)
        left, top = (round((side - crop) / 2) for side in size)
        scaled = np.asarray(picture.resize(size, method))[top : top + crop, left : left + crop]
    return scaled.reshape(*scaled.shape[:2], channels)
