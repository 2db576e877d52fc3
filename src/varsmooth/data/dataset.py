"""A data set: 8-bit images in memory or in files, served in small batches as floats in [0,1]."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from varsmooth.data.files import ImageFiles, Indices, pixel_digests
from varsmooth.data.source import Source
from varsmooth.errors import VarsmoothError, check, check_counts, wrap_errors
from varsmooth.rounding import counted

if TYPE_CHECKING:
    from torch import Tensor

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

    `pixels` (N,H,W,C) are uint8, an array or files that are decoded batch by batch; only the
    images of one batch are ever floats, x = byte / 255.
    `labels` (N,) is None for unlabelled images. It is never −1, which is ABSTAIN: an unlabelled
    image must not count as correct because the classifier abstained.
    `ids` (N,) name the images, and with them their noise: no two images share an id.
    `files` holds the file each image came from, or nothing if they did not come one by one,
    `skipped` what lay beside them and is not read as an image.
    `shuffled` data are in random order, so that any part of them has every class.
    `source` says where `load_dataset` found them, for the runs that `save_run` writes.

    Examples:
        >>> pixels = np.zeros((4, 8, 8, 3), np.uint8)
        >>> labels, ids = np.array([0, 1, 0, 1]), np.arange(4)
        >>> zoo = ImageDataset("zoo", "test", pixels, labels, ids, class_names=("cat", "dog"))
        >>> len(zoo[1::2]), zoo[1::2].ids.tolist()
        (2, [1, 3])
        >>> zoo.batch([3, 0]).images.shape
        torch.Size([2, 3, 8, 8])

    It is a data set as torch has them: `zoo[2]` is (image (C,H,W), label), or the image alone if
    it has no label, and `DataLoader(zoo, batch_size=32)` goes through all.

        >>> image, label = zoo[3]
        >>> image.shape, label
        (torch.Size([3, 8, 8]), 1)
    """

    name: str
    split: str
    pixels: NDArray[np.uint8] | ImageFiles
    labels: NDArray[np.int64] | None
    ids: NDArray[np.int64]
    class_names: tuple[str, ...]
    files: tuple[str, ...] = ()
    shuffled: bool = False
    skipped: tuple[str, ...] = ()
    source: Source | None = None

    def __post_init__(self) -> None:
        n = len(self.pixels)
        check(n > 0, f"{self.name} holds no image; choose at least one")
        check(
            self.pixels.dtype == np.uint8 and self.pixels.ndim == 4,
            f"{self.name} must hold uint8 images of shape (N, height, width, channels), "
            f"not {self.pixels.dtype} {self.pixels.shape}",
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
                low >= 0,
                f"the labels of {self.name} go from {low} to {high}, "
                f"{len(np.unique(self.labels))} different ones; number the classes from 0 on",
            )
            check(
                high < len(self.class_names),
                f"the labels of {self.name} go from {low} to {high}; number its "
                f"{len(self.class_names)} classes from 0 to {len(self.class_names) - 1}",
            )

    @property
    def images(self) -> NDArray[np.uint8]:
        """All pixels (N,H,W,C) as one array in memory; those of files are decoded anew."""
        return np.asarray(self.pixels)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of one image as a model sees it: (channels, height, width)."""
        height, width, channels = self.pixels.shape[1:]
        return channels, height, width

    @property
    def noise_scope(self) -> str:
        """Keeps the noise of different data sets and splits apart, whose images may share ids.

        The test set of CIFAR-10 has none, so that its votes are those of every version.
        """
        scope = f"{self.name.removesuffix('-sample')} {self.split}"  # a sample keeps its ids
        return "" if scope == "cifar10 test" else scope

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
            f"ImageDataset({self.name} {self.split}: {counted(len(self), 'image')} of "
            f"{width}×{height} pixels, channels {channels}, classes {len(self.class_names)})"
        )

    def __len__(self) -> int:
        return len(self.pixels)

    @overload
    def __getitem__(self, indices: int) -> "Tensor | tuple[Tensor, int]": ...
    @overload
    def __getitem__(self, indices: Indices) -> "ImageDataset": ...
    def __getitem__(self, indices: int | Indices) -> "ImageDataset | Tensor | tuple[Tensor, int]":
        """The chosen images as a data set; they keep their ids. Slices mean what Python says.

        For one number, the image (C,H,W) and its label, as torch's DataLoader expects it.
        """
        if isinstance(indices, int | np.integer):
            if not -len(self) <= indices < len(self):  # which ends a loop over all images
                raise IndexError(
                    f"{self.name} has {counted(len(self), 'image')}, not one at {indices}"
                )
            image, labels, _ = self.batch([int(indices)])
            return image[0] if labels is None else (image[0], int(labels[0]))
        self._check(indices)
        return replace(
            self,
            pixels=self.pixels[indices],
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
        pixels = torch.from_numpy(np.array(self.pixels[indices]))  # (B,H,W,C)
        images = pixels.permute(0, 3, 1, 2).contiguous().to(torch.float32).div_(255)  # (B,C,H,W)
        labels = None if self.labels is None else torch.from_numpy(np.array(self.labels[indices]))
        return Batch(images, labels, torch.from_numpy(np.array(self.ids[indices])))

    def batches(self, size: int) -> Iterator[Batch]:
        """All images in order, `size` at a time; the last batch may be smaller."""
        check_counts(size=size)
        return self.blocks(slice(start, start + size) for start in range(0, len(self), size))

    def blocks(self, places: Iterable[Indices]) -> Iterator[Batch]:
        """`batch` of each; of image files, the next one is decoded while one is in use."""
        if isinstance(self.pixels, np.ndarray):
            yield from map(self.batch, places)
            return
        with ThreadPoolExecutor(1, "decode") as pool:
            waiting = None
            for indices in places:
                ahead = pool.submit(self.batch, indices)
                if waiting is not None:
                    yield waiting.result()
                waiting = ahead
            if waiting is not None:
                yield waiting.result()

    def row_entries(self, batch: Batch) -> list[dict[str, Any]]:
        """What the rows of a run record about the images of a batch, besides their ids.

        Of image files their names and a digest of the pixels as they were decoded, because a run
        does not read all of them at its start. Nothing of arrays, which it does read.
        """
        if isinstance(self.pixels, np.ndarray):
            return [{} for _ in batch.ids]
        pixels = batch.images.mul(255).round().byte().permute(0, 2, 3, 1).contiguous()
        ids = batch.ids.tolist()
        places = np.flatnonzero(np.isin(self.ids, ids)).tolist()
        files = {int(self.ids[place]): self.files[place] for place in places}
        rows = zip(ids, pixel_digests(pixels.numpy()), strict=True)
        return [{"file": files[id], "pixels": digest} for id, digest in rows]

    def _check(self, indices: Indices) -> None:
        """Check that the indices are a list or a slice of existing images."""
        how = "with a slice or a list such as [0, 1]; .batches(100) goes through all"
        sentence = f"choose among the {counted(len(self), 'image')} of {self.name} {how}"
        with wrap_errors(IndexError, sentence):
            check(self.ids[indices].ndim == 1, sentence)


def skipped_text(skipped: Sequence[str]) -> str:
    """A note on files that are not read as images."""
    shown = ", ".join(skipped[:5]) + (f" and {len(skipped) - 5} more" if len(skipped) > 5 else "")
    what = "file or folder" if len(skipped) == 1 else "files or folders"
    known = "PNG, JPEG, BMP and WebP in class folders only"
    return f"not read ({known}): {len(skipped):,} {what}: {shown}"


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
