"""The user's own photographs: one image, a folder of images, a folder of class folders."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from varsmooth._util.untrusted import check_limit
from varsmooth.data.arrays import load_arrays, with_classes
from varsmooth.data.dataset import SPLITS, ImageDataset, split_off
from varsmooth.data.files import ImageFiles
from varsmooth.data.source import AS_IS, Preprocessing
from varsmooth.errors import check, nearest

SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".webp"}


def load_folder(folder: Path, split: str, preprocessing: Preprocessing = AS_IS) -> ImageDataset:
    """Images of one size, or scaled to one, from a folder, in the order of their sorted names.

    - sub-folders: each is a class, numbered in the order of their sorted names;
    - no sub-folders: the images have no labels;
    - sub-folders, or `.npz` files, all called train, val (or validation) or test: the one called
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
    wanted = f"; choose split={other!r}" if chosen in SPLITS else nearest(chosen, sorted(parts))
    check(
        chosen in parts,
        f"{folder} has no {chosen!r} beside {', '.join(sorted(parts))}{wanted}",
    )
    part = parts[chosen]
    if part.is_dir():
        data = _read_folder(part, name, _class_names(list(parts.values())), preprocessing)
    else:
        data = with_classes(load_arrays(part, "test"), parts.values())
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
        skipped=tuple(path.relative_to(folder).as_posix() for path in skipped),
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
    names = ["val" if name == "validation" else name for name in names]
    named = dict(zip(names, parts, strict=True))
    check(
        len(named) == len(parts) or not named.keys() <= SPLITS,
        f"{path} has both val and validation; keep one of them",
    )
    return named if named.keys() <= SPLITS else {}


def folders_in(folder: Path) -> list[Path]:
    """The sub-folders that are not hidden, sorted."""
    return sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))


def _images_in(folder: Path) -> tuple[list[Path], list[Path]]:
    """What a folder holds, hidden files apart: images, and what is not read as one."""
    paths = sorted(p for p in folder.iterdir() if not p.name.startswith("."))
    images = [p for p in paths if p.suffix.lower() in SUFFIXES]
    return images, [p for p in paths if p.suffix.lower() not in SUFFIXES]
