"""The user's own images: photographs, folders of them, and arrays.

Photographs are one image, a folder of images, or a folder of class folders; arrays are `.npz` with
`images` and `labels`, or `.npy` with a sibling of labels.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from varsmooth._util.untrusted import check_limit
from varsmooth.data.dataset import SPLITS, ImageDataset, split_off
from varsmooth.data.files import ImageFiles
from varsmooth.data.source import AS_IS, Preprocessing
from varsmooth.errors import VarsmoothError, check, nearest, wrap_errors

SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".webp"}
VAL = ("val", "valid", "validation")
"""What a split of held-out images may be called."""


def load_folder(folder: Path, split: str, preprocessing: Preprocessing = AS_IS) -> ImageDataset:
    """Images of one size, or scaled to one, from a folder, in the order of their sorted names.

    - sub-folders: each is a class, numbered in the order of their sorted names;
    - no sub-folders: the images have no labels;
    - sub-folders, or `.npz` files, all called train, val (or one of VAL) or test: the one called
      `split` is it. Classes are numbered over all of them, so that a class has the same number
      in every split, also where one of them has no images of it.

    What has no `val` gets one from its training images, see `split_off`.
    """
    name, parts = folder.resolve().name, splits_in(folder)
    if not parts:
        return split_off(_read_folder(folder, name, _class_names([folder]), preprocessing), split)
    divided = split in ("train", "val") and "val" not in parts
    chosen = "train" if divided else split
    other = "val" if chosen == "test" else max(parts)
    wanted = f"; choose `split={other!r}`" if chosen in SPLITS else nearest(chosen, sorted(parts))
    check(
        chosen in parts,
        f"{folder} has no {chosen!r} beside {', '.join(sorted(parts))}{wanted}",
    )
    part = parts[chosen]
    if part.is_dir():
        data = _read_folder(part, name, _class_names(list(parts.values())), preprocessing)
    else:
        data = _with_classes_of(load_arrays(part, "test"), parts.values())
    data = replace(data, name=name)
    return split_off(data, split) if divided else replace(data, split=split)


def _class_names(folders: Sequence[Path]) -> tuple[str, ...]:
    """The names of all class folders of these folders, sorted."""
    subs = [sub for folder in folders if folder.is_dir() for sub in folders_in(folder)]
    for sub in subs:
        check(sub.name.isprintable(), f"rename {sub.name!r}: a class needs a printable name")
    names = sorted({sub.name for sub in subs})
    check_limit("CLASSES", len(names), f"{folders[0]} has {len(names):,} class folders")
    return tuple(names)


def _read_folder(
    folder: Path, name: str, classes: tuple[str, ...], preprocessing: Preprocessing
) -> ImageDataset:
    folders, (bare, skipped) = folders_in(folder), _images_in(folder)
    check(
        not (bare and folders),
        f"{folder} has images beside its sub-folders; put every image into a class sub-folder",
    )
    paths, labels, numbers = bare, None, {name: i for i, name in enumerate(classes)}
    if folders:
        skipped = [path for path in skipped if path not in folders]
        labels = []
        for sub in folders:
            images, others = _images_in(sub)
            paths, skipped = paths + images, skipped + others
            labels += [numbers[sub.name]] * len(images)
    check(
        bool(paths),
        f"{folder} holds no image ({', '.join(sorted(SUFFIXES))}), "
        "neither by itself nor in its sub-folders",
    )
    return ImageDataset(
        name=name,
        split="test",
        pixels=ImageFiles(paths, preprocessing),
        labels=None if labels is None else np.array(labels, np.int64),
        ids=np.arange(len(paths), dtype=np.int64),
        class_names=classes if folders else (),
        files=tuple(path.relative_to(folder).as_posix() for path in paths),
        skipped=tuple(path.relative_to(folder).as_posix() + _inside(path) for path in skipped),
    )


def load_image(path: Path, split: str, preprocessing: Preprocessing = AS_IS) -> ImageDataset:
    """A single image, without a label."""
    check(split == "test", f"{path} is one image and has no split {split!r}; leave the split out")
    ids, images = np.zeros(1, np.int64), ImageFiles([path], preprocessing)
    return ImageDataset(path.name, split, images, None, ids, (), (path.name,))


def splits_in(path: Path) -> dict[str, Path]:
    """The parts of a folder by name if they are all called train, val or test, else nothing."""
    parts = (folders_in(path) or sorted(path.glob("[!.]*.npz"))) if path.is_dir() else []
    names = [part.name.removesuffix(".npz") for part in parts]
    names = ["val" if name in VAL else name for name in names]
    named = dict(zip(names, parts, strict=True))
    splits, others = named.keys() & SPLITS, sorted(named.keys() - SPLITS)
    check(
        len(named) == len(parts) or bool(others),
        f"{path} has several of {', '.join(VAL)}; keep one of them",
    )
    check(
        len(splits) < 2 or not others,
        f"{path} has {', '.join(others[:5])} beside the splits {', '.join(sorted(splits))}; move "
        "it elsewhere, or name it train, val or test",
    )
    return {} if others else named


def folders_in(folder: Path) -> list[Path]:
    """The sub-folders that are not hidden, sorted."""
    return sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))


def _images_in(folder: Path) -> tuple[list[Path], list[Path]]:
    """What a folder holds, hidden files apart: images, and what is not read as one."""
    paths = sorted(p for p in folder.iterdir() if not p.name.startswith("."))
    images = [p for p in paths if p.suffix.lower() in SUFFIXES]
    return images, [p for p in paths if p.suffix.lower() not in SUFFIXES]


def _inside(path: Path) -> str:
    """How many images a folder holds that is not read."""
    if not path.is_dir():
        return ""
    count = sum(p.suffix.lower() in SUFFIXES for p in path.rglob("*"))
    return f" ({count:,} image{'s' * (count != 1)})"


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
    classes = 0 if labels is None else _count_classes(path, labels)
    everything = ImageDataset(
        name=path.stem,
        split="test",
        pixels=_channels_last(path, images),
        labels=None if labels is None else labels.astype(np.int64),
        ids=np.arange(len(images), dtype=np.int64),
        class_names=tuple(map(str, range(classes))),
    )
    return split_off(everything, split)


def _with_classes_of(data: ImageDataset, archives: Iterable[Path]) -> ImageDataset:
    """The same images with as many classes as the labels of all these archives have together."""
    if data.labels is None:
        return data
    classes = max(_classes_in(path) for path in archives)
    return replace(data, class_names=tuple(map(str, range(classes))))


def _classes_in(path: Path) -> int:
    """The number of classes of an archive, 0 if it has no labels."""
    with (
        wrap_errors(Exception, lambda error: f"{path} cannot be read as plain arrays: {error}"),
        np.load(path, allow_pickle=False) as archive,
    ):
        labels = archive["labels"] if "labels" in archive.files else None
    return 0 if labels is None else _count_classes(path, labels)


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


def _count_classes(path: Path, labels: NDArray[Any]) -> int:
    """The number of classes, one more than the largest label."""
    check(
        labels.ndim == 1 and labels.dtype.kind in "iu" and labels.size > 0,
        f"the labels of {path} should be integers of shape (N,), not {labels.dtype} {labels.shape}"
        + _as_numbers(labels),
    )
    classes = int(labels.max()) + 1
    check_limit("CLASSES", classes, f"the labels of {path} go up to {classes - 1:,}")
    return classes


def _as_numbers(labels: NDArray[Any]) -> str:
    """The end of an error sentence: how to save these labels as class numbers."""
    if labels.ndim == 2:
        return f"; save {'labels.argmax(1)' if labels.shape[1] > 1 else 'labels[:, 0]'}"
    if labels.dtype.kind in "US":
        return "; save class numbers, numpy.unique(labels, return_inverse=True)[1]"
    return "; save labels.astype('int64')" if labels.dtype.kind in "bf" else ""
