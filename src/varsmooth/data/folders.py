"""The user's own photographs: one image, a folder of images, a folder of class folders."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from varsmooth._util.untrusted import check_limit, check_regular
from varsmooth.data.arrays import load_arrays
from varsmooth.data.dataset import SPLITS, ImageDataset, split_off
from varsmooth.errors import VarsmoothError, check

Pixels = NDArray[np.uint8]
SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".webp"}


def load_folder(folder: Path, split: str, resize: int | None = None) -> ImageDataset:
    """Images of one size, or resized to one, from a folder, in the order of their sorted names.

    - sub-folders: each is a class, numbered in the order of their sorted names;
    - no sub-folders: the images have no labels;
    - sub-folders, or `.npz` files, all called train, val or test: the one called `split` is it.

    What has no `val` gets one from its training images, see `split_off`.
    """
    name, parts = folder.resolve().name, splits_in(folder)
    if not parts:
        return split_off(_read_folder(folder, name, resize), split)
    divided = split in ("train", "val") and "val" not in parts
    chosen = "train" if divided else split
    other = "val" if chosen == "test" else max(parts)
    check(
        chosen in parts,
        f"{folder} has no {chosen!r} beside {', '.join(sorted(parts))}; choose split={other!r}",
    )
    part = parts[chosen]
    data = _read_folder(part, name, resize) if part.is_dir() else load_arrays(part, "test")
    data = replace(data, name=name)
    return split_off(data, split) if divided else replace(data, split=split)


def _read_folder(folder: Path, name: str, resize: int | None) -> ImageDataset:
    folders, bare = folders_in(folder), _images_in(folder)
    check(
        not (bare and folders),
        f"{folder} has images beside its sub-folders; put every image into a class sub-folder",
    )
    paths = [path for sub in folders for path in _images_in(sub)] if folders else bare
    check(
        bool(paths),
        f"{folder} holds no image ({', '.join(sorted(SUFFIXES))}), "
        "neither by itself nor in its sub-folders",
    )
    check_limit("CLASSES", len(folders), f"{folder} has {len(folders):,} class folders")
    for sub in folders:
        check(sub.name.isprintable(), f"rename {sub.name!r}: a class needs a printable name")
    classes = [sub.name for sub in folders]
    labels = np.array([classes.index(p.parent.name) for p in paths], np.int64) if classes else None
    files = tuple(path.relative_to(folder).as_posix() for path in paths)
    ids = np.arange(len(paths), dtype=np.int64)
    return ImageDataset(name, "test", _read_all(paths, resize), labels, ids, tuple(classes), files)


def load_image(path: Path, split: str) -> ImageDataset:
    """A single image, without a label."""
    check(split == "test", f"{path} is one image and has no split {split!r}; leave the split out")
    ids = np.zeros(1, np.int64)
    return ImageDataset(path.name, split, _read_all([path]), None, ids, (), (path.name,))


def splits_in(path: Path) -> dict[str, Path]:
    """The parts of a folder by name if they are all called train, val or test, else nothing."""
    parts = (folders_in(path) or sorted(path.glob("[!.]*.npz"))) if path.is_dir() else []
    found = {part.name.removesuffix(".npz"): part for part in parts}
    return found if found.keys() <= SPLITS else {}


def folders_in(folder: Path) -> list[Path]:
    """The sub-folders that are not hidden, sorted."""
    return sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))


def _images_in(folder: Path) -> list[Path]:
    return sorted(
        p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES and not p.name.startswith(".")
    )


def _read_all(paths: list[Path], resize: int | None = None) -> Pixels:
    """(N,H,W,3), or (N,H,W,1) if every image is grey."""
    images, broken = [], {}
    for path in paths:
        check_regular(path)
        try:
            with path.open("rb") as file:
                image = read_image(file, str(path))
        except VarsmoothError as error:
            broken[str(path)] = str(error)
            continue
        images.append(image if resize is None else scaled(image, resize))
        if len(images) == 1:
            total = 3 * len(paths) * images[0].shape[0] * images[0].shape[1]
            check_limit("BYTES", total, f"{path.parent} has {total:,} bytes of pixels")
        (h, w, _), (h0, w0, _) = images[-1].shape, images[0].shape
        check(
            (h, w) == (h0, w0),
            f"{path} is {w}×{h} pixels but {paths[0].name} is {w0}×{h0}; "
            "scale them all to one size, for example with resize=32",
        )
    if broken:
        first, *others = broken
        more = f" (and {len(others)} more: {', '.join(others[:10])})" if others else ""
        raise VarsmoothError(f"{broken[first]}{more}")
    channels = max(image.shape[2] for image in images)
    return np.stack([np.broadcast_to(i, (*i.shape[:2], channels)) for i in images])


def read_image(
    file: IO[bytes],
    name: str,
    formats: tuple[str, ...] = ("PNG", "JPEG", "BMP", "WEBP"),
    max_pixels: int | None = None,
) -> Pixels:
    """(H,W,1) if grey, otherwise (H,W,3); upright as the camera meant it, transparency dropped.

    Only `formats` are tried, whatever the file is called; errors call it `name`.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # our limit is lower
            with Image.open(file, formats=formats) as image:
                pixels = image.width * image.height
                check_limit("PIXELS", pixels, f"{name} has {pixels:,} pixels")
                check(
                    max_pixels is None or pixels <= max_pixels,
                    f"{name} has more than {(max_pixels or 0) // 10**6} million pixels; "
                    "make it smaller",
                )
                raw = [str(tile[3]) for tile in image.tile]  # pillow would cut RGB;16B to 8 bits
                check(
                    not image.mode.startswith(("I", "F")) and not any("16B" in r for r in raw),
                    f"{name} has more than 8 bits per channel; save it with 8 bits",
                )
                upright = ImageOps.exif_transpose(image)
                found = np.asarray(upright.convert("L" if image.mode in ("1", "L") else "RGB"))
                return found.reshape(*found.shape[:2], -1)
    except VarsmoothError:
        raise
    except Image.DecompressionBombError as error:
        raise VarsmoothError(f"{name} is too large: {error}") from error
    except Exception as error:  # for a damaged file pillow has many: OSError, SyntaxError, …
        unknown = isinstance(error, UnidentifiedImageError)
        why = f"it is none of {', '.join(formats)}" if unknown else error
        sentence = f"{name} cannot be read as an image: {why}; repair or remove it"
        raise VarsmoothError(sentence) from error


def resized(images: ImageDataset, side: int) -> ImageDataset:
    """The central square of every image, scaled to side × side pixels."""
    if images.images.shape[1:3] == (side, side):
        return images
    return replace(images, images=np.stack([scaled(image, side) for image in images.images]))


def scaled(pixels: Pixels, side: int) -> Pixels:
    """The central square of one image (H,W,C), scaled to side × side pixels."""
    height, width, channels = pixels.shape
    square = min(height, width)
    left, top = (width - square) // 2, (height - square) // 2
    picture = Image.fromarray(pixels[..., 0] if channels == 1 else pixels)
    box = (left, top, left + square, top + square)
    found = np.asarray(picture.resize((side, side), Image.Resampling.LANCZOS, box=box))
    return found.reshape(side, side, channels)
