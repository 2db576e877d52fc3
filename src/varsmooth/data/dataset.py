"""A data set: 8-bit images in memory, served in small batches as floats in [0,1]."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from varsmooth.errors import VarsmoothError, check, wrap_errors

if TYPE_CHECKING:
    from torch import Tensor

Indices = slice | Sequence[int] | NDArray[np.integer]
SPLITS = {"train", "val", "test"}
HELD_OUT = 5
"""One of this many images of each class is held out."""


class Batch(NamedTuple):
    """What a model takes: `images, labels, ids = batch`."""

    images: "Tensor"  # (B,C,H,W) float32 in [0,1], contiguous
    labels: "Tensor | None"  # (B,) int64, None when the data set has no labels
    ids: "Tensor"  # (B,) int64


@dataclass(frozen=True, eq=False, repr=False)
class ImageDataset:
    """N images of one size with labels, ids that survive sub-setting, and class names.

    `images` (N,H,W,C) stays uint8; only the images of one batch are ever floats, x = byte / 255.
    `labels` (N,) is None for unlabelled images. It is never −1, which is ABSTAIN: an unlabelled
    image must not count as correct because the classifier abstained.
    `ids` (N,) name the images, and with them their noise: no two images share an id.
    `files` holds the file each image came from, or nothing if they did not come one by one.
    `shuffled` data are in random order, so that any part of them has every class.

    Examples:
        >>> pixels = np.zeros((4, 8, 8, 3), np.uint8)
        >>> labels, ids = np.array([0, 1, 0, 1]), np.arange(4)
        >>> zoo = ImageDataset("zoo", "test", pixels, labels, ids, class_names=("cat", "dog"))
        >>> len(zoo[1::2]), zoo[1::2].ids.tolist()
        (2, [1, 3])
        >>> zoo.batch([3, 0]).images.shape
        torch.Size([2, 3, 8, 8])
    """

    name: str
    split: str
    images: NDArray[np.uint8]
    labels: NDArray[np.int64] | None
    ids: NDArray[np.int64]
    class_names: tuple[str, ...]
    files: tuple[str, ...] = ()
    shuffled: bool = False

    def __post_init__(self) -> None:
        n = len(self.images)
        check(n > 0, f"{self.name} holds no image; choose at least one")
        check(
            self.images.dtype == np.uint8 and self.images.ndim == 4,
            f"{self.name} must hold uint8 images of shape (N, height, width, channels), "
            f"not {self.images.dtype} {self.images.shape}",
        )
        check(
            self.ids.shape == (n,) and len(np.unique(self.ids)) == n,
            f"{self.name} needs one id for each image and none twice, "
            "because images with the same id would share their noise",
        )
        if self.labels is not None:
            check(
                self.labels.shape == (n,),
                f"{self.name} has {n} images but labels of shape {self.labels.shape}; give one "
                "label for each image",
            )
            low, high = int(self.labels.min()), int(self.labels.max())
            check(
                low >= 0 and high < len(self.class_names),
                f"the labels of {self.name} go from {low} to {high}; number its "
                f"{len(self.class_names)} classes from 0 to {len(self.class_names) - 1}",
            )

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of one image as a model sees it: (channels, height, width)."""
        height, width, channels = self.images.shape[1:]
        return channels, height, width

    @property
    def known_labels(self) -> NDArray[np.int64]:
        """The labels (N,), which must be known."""
        if self.labels is None:
            raise VarsmoothError(
                f"{self.name} has no labels; put its images into one folder per class, or an array "
                "`labels` into the .npz"
            )
        return self.labels

    def __repr__(self) -> str:
        channels, height, width = self.shape
        return (
            f"ImageDataset({self.name} {self.split}: {len(self):,} images of {width}×{height} "
            f"pixels, channels {channels}, classes {len(self.class_names)})"
        )

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, indices: Indices) -> "ImageDataset":
        """The chosen images as a data set; they keep their ids. Slices mean what Python says."""
        self._check(indices)
        return replace(
            self,
            images=self.images[indices],
            labels=None if self.labels is None else self.labels[indices],
            ids=self.ids[indices],
            files=tuple(np.array(self.files, dtype=object)[indices]) if self.files else (),
        )

    def few(self, count: int) -> "ImageDataset":
        """At most so many images: the first ones if shuffled, else evenly from all."""
        if count >= len(self) or self.shuffled:
            return self[:count]
        return self[np.arange(count) * len(self) // count]

    def batch(self, indices: Indices) -> Batch:
        """The chosen images (indices may repeat) as tensors: one copy, of this batch alone."""
        import torch  # listing and checking a data set need not wait for it

        self._check(indices)
        pixels = torch.from_numpy(np.array(self.images[indices]))  # (B,H,W,C)
        images = pixels.permute(0, 3, 1, 2).contiguous().to(torch.float32).div_(255)  # (B,C,H,W)
        labels = None if self.labels is None else torch.from_numpy(np.array(self.labels[indices]))
        return Batch(images, labels, torch.from_numpy(np.array(self.ids[indices])))

    def batches(self, size: int) -> Iterator[Batch]:
        """All images in order, `size` at a time; the last batch may be smaller."""
        for start in range(0, len(self), size):
            yield self.batch(slice(start, start + size))

    def _check(self, indices: Indices) -> None:
        """Several images are chosen, and all of them are there."""
        how = "with a slice or a list such as [0, 1]; .batches(100) goes through all"
        sentence = f"choose among the {len(self):,} images of {self.name} {how}"
        with wrap_errors(IndexError, sentence):
            check(self.ids[indices].ndim == 1, sentence)


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
    check(
        len(chosen) > 0,
        f"{data.name} has one image of each class, too few for a split {split!r}; add images",
    )
    return replace(data[chosen], split=split)
