"""The user's own arrays: `.npz` with `images` and `labels`, or `.npy` with a sibling of labels."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from varsmooth._util.untrusted import check_limit
from varsmooth.data.dataset import ImageDataset, split_off
from varsmooth.errors import VarsmoothError, check, wrap_errors


def load_arrays(path: Path, split: str) -> ImageDataset:
    """Images uint8 (N,H,W,C) or (N,C,H,W) with 1 or 3 channels, or (N,H,W); labels (N,).

    `photos.npz` holds the arrays `images` and, unless unlabelled, `labels`; `photos.npy` holds the
    images and `photos_labels.npy` beside it, if it is there, the labels. A `.npy` of images is
    mapped from disk, not read. Floats are refused, because x = byte / 255 is how a data set
    becomes [0,1], and guessing the scale of floats goes wrong silently.
    """
    try:
        if path.suffix.lower() == ".npz":
            images, labels = _read_npz(path)
        else:
            images, beside = open_memmap(path, mode="r"), path.with_name(f"{path.stem}_labels.npy")
            labels = np.array(open_memmap(beside, mode="r")) if beside.is_file() else None
    except VarsmoothError:
        raise
    except Exception as error:  # a damaged archive may raise anything
        raise VarsmoothError(f"{path} cannot be read as plain arrays: {error}") from error
    classes = 0 if labels is None else _check_labels(path, labels)
    everything = ImageDataset(
        name=path.stem,
        split="test",
        pixels=_channels_last(path, images),
        labels=None if labels is None else labels.astype(np.int64),
        ids=np.arange(len(images), dtype=np.int64),
        class_names=tuple(str(i) for i in range(classes)),
    )
    return split_off(everything, split)


def with_classes(data: ImageDataset, parts: Iterable[Path]) -> ImageDataset:
    """The same images with as many classes as the labels of all these archives have together."""
    if data.labels is None:
        return data
    highest = [labels.max() for path in parts if (labels := _labels_of(path)) is not None]
    count = 1 + max(map(int, highest))
    return replace(data, class_names=tuple(str(i) for i in range(count)))


def _labels_of(path: Path) -> NDArray[Any] | None:
    """The labels alone of an archive that holds any."""
    with (
        wrap_errors(Exception, lambda error: f"{path} cannot be read as plain arrays: {error}"),
        np.load(path, allow_pickle=False) as archive,
    ):
        labels = archive["labels"] if "labels" in archive.files else None
    if labels is not None:
        _check_labels(path, labels)
    return labels


def _read_npz(path: Path) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """The arrays of a zip archive, each checked against the size that the archive states."""
    check(
        is_zipfile(path),
        f"{path} cannot be read as plain arrays: it is not an archive; write the two arrays "
        "images and labels with numpy.savez, not one array",
    )
    with np.load(path, allow_pickle=False) as archive:
        names = set(archive.files)
        check(
            "images" in names and names <= {"images", "labels"},
            f"{path} should hold the arrays images and labels, not {', '.join(archive.files)}",
        )
        for info in archive.zip.infolist():
            size = f"{info.filename} in {path} has {info.file_size:,} bytes"
            check_limit("BYTES", info.file_size, size)
        labels = np.asarray(archive["labels"]) if "labels" in names else None
        return np.asarray(archive["images"]), labels


def _channels_last(path: Path, images: NDArray[Any]) -> NDArray[np.uint8]:
    if images.dtype != np.uint8:
        scaled = "images" if images.size > 0 and images.max() > 1 else "(images * 255)"
        raise VarsmoothError(
            f"the images of {path} are {images.dtype}; data sets are uint8 from 0 to 255, "
            f"save {scaled}.round().astype('uint8')"
        )
    if images.ndim == 3 and images.shape[2] not in (1, 3):  # grey; else one image without its N
        images = images[..., None]
    check(
        images.ndim == 4 and (images.shape[3] in (1, 3) or images.shape[1] in (1, 3)),
        f"the images of {path} have the shape {images.shape}; it should be "
        "(N, height, width, channels) or (N, channels, height, width) with 1 or 3 channels, "
        "or (N, height, width)",
    )
    return images if images.shape[3] in (1, 3) else images.transpose(0, 2, 3, 1)


def _check_labels(path: Path, labels: NDArray[Any]) -> int:
    """The number of classes, one more than the largest label."""
    check(
        labels.ndim == 1 and labels.dtype.kind in "iu" and labels.size > 0,
        f"the labels of {path} should be integers of shape (N,), not {labels.dtype} {labels.shape}",
    )
    classes = int(labels.max()) + 1
    check_limit("CLASSES", classes, f"the labels of {path} go up to {classes - 1:,}")
    return classes
