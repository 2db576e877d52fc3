"""Train and held-out images of a data set that has no splits of its own."""

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np

from varsmooth.data.dataset import ImageDataset
from varsmooth.errors import VarsmoothError, require

SPLITS = {"train", "val", "test"}
HELD_OUT = 5
"""One of this many images of each class is held out."""


def has_splits(path: Path) -> bool:
    """Whether a folder has sub-folders that are all called train, val or test."""
    names = {sub.name for sub in folders_in(path)} if path.is_dir() else set()
    return bool(names) and names <= SPLITS


def folders_in(folder: Path) -> list[Path]:
    """The sub-folders that are not hidden, sorted."""
    return sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))


def split_off(data: ImageDataset, split: str) -> ImageDataset:
    """`val`: a fifth of each class, `train`: the rest, `test`: everything.

    The rule is fixed: within a class, images are ordered by the SHA-256 of their file name (of
    their number, if they have none), and the first fifth, at least one, is held out. It depends on
    nothing else, so that training and evaluation agree; images keep their ids.

    Examples:
        >>> from varsmooth.data import load_dataset
        >>> sample = load_dataset("cifar10-sample")
        >>> train, val = split_off(sample, "train"), split_off(sample, "val")
        >>> len(train), len(val), len({*train.ids, *val.ids})
        (800, 200, 1000)
    """
    if split == "test":
        return data
    if split not in SPLITS:
        raise VarsmoothError(f"{data.name} has no split {split!r}; choose train, val or test")
    names = data.files or tuple(map(str, data.ids))
    order = np.argsort([hashlib.sha256(name.encode()).hexdigest() for name in names], kind="stable")
    labels = np.zeros(len(data), np.int64) if data.labels is None else data.labels
    held_out = np.zeros(len(data), bool)
    for label in np.unique(labels):
        mine = order[labels[order] == label]
        held_out[mine[: -(-len(mine) // HELD_OUT)]] = True
    chosen = np.flatnonzero(held_out == (split == "val"))
    require(
        len(chosen) > 0, f"{data.name} has one image of each class, too few for a split {split!r}"
    )
    return replace(data[chosen], split=split)
