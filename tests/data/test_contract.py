"""The contract of a data set: one table, and every kind of source passes through all of it."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image

from tests.fake_cifar10 import make_batches, write_binary, write_python
from varsmooth.data import ImageDataset, load_dataset
from varsmooth.data.cifar10 import Records, load_cifar10
from varsmooth.errors import VarsmoothError

Load = Callable[[str], ImageDataset]
"""From a split to its images."""


class Kind(NamedTuple):
    """How a source is written into a folder, whether it has labels, and its splits.

    `whole`: without splits of its own; test is everything, val and train are parts of it.
    """

    write: Callable[[Path], Load]
    labelled: bool = True
    splits: tuple[str, ...] = ("test", "val", "train")
    whole: bool = True


def cifar10(write: Callable[..., Path], folder: Path) -> Load:
    write(folder, make_batches())
    return partial(load_cifar10, folder)


def photos(*places: str, resize: int | None = None) -> Callable[[Path], Load]:
    """Twelve pictures in turn in these sub-folders."""

    def write(folder: Path) -> Load:
        for i in range(12):
            path = folder / "zoo" / places[i % len(places)] / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            pixels = np.random.default_rng(i).integers(0, 256, (8 + 4 * bool(resize), 8, 3))
            Image.fromarray(pixels.astype(np.uint8)).save(path)
        return partial(load_dataset, folder / "zoo", resize=resize)

    return write


def one_photo(folder: Path) -> Load:
    Image.new("L", (8, 8)).save(folder / "one.png")
    return partial(load_dataset, folder / "one.png")


def arrays(suffix: str, shape: tuple[int, ...], labelled: bool = True) -> Callable[[Path], Load]:
    def write(folder: Path) -> Load:
        path = folder / f"zoo.{suffix}"
        images = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
        labels: dict[str, Any] = {"labels": np.arange(len(images)) % 3} if labelled else {}
        if suffix == "npz":
            np.savez(path, images=images, **labels)
        else:
            np.save(path, images)
            for values in labels.values():
                np.save(folder / "zoo_labels.npy", values)
        return partial(load_dataset, path)

    return write


KINDS = {
    "the sample": Kind(
        lambda _: partial(load_dataset, "cifar10-sample"), splits=("test", "val"), whole=False
    ),
    "cifar10, binary": Kind(partial(cifar10, write_binary), whole=False),
    "cifar10, python": Kind(partial(cifar10, write_python), whole=False),
    "class folders": Kind(photos("cat", "dog")),
    "class folders, resized": Kind(photos("cat", "dog", resize=8)),
    "folders of splits": Kind(photos("test/cat", "train/cat", "val/cat"), whole=False),
    "bare images": Kind(photos(""), labelled=False),
    "one image": Kind(one_photo, labelled=False, splits=("test",)),
    "npz": Kind(arrays("npz", (12, 8, 8, 3))),
    "npz, channels first": Kind(arrays("npz", (12, 3, 8, 8))),
    "npz, grey": Kind(arrays("npz", (12, 8, 8))),
    "npz, unlabelled": Kind(arrays("npz", (12, 8, 8, 3), labelled=False), labelled=False),
    "npy": Kind(arrays("npy", (12, 8, 8, 3))),
    "npy, unlabelled": Kind(arrays("npy", (12, 8, 8, 3), labelled=False), labelled=False),
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


@pytest.fixture
def load(kind: Kind, tmp_path: Path, batches: dict[str, Records]) -> Load:
    return kind.write(tmp_path)


def test_every_split_is_whole_and_typed(kind: Kind, load: Load) -> None:
    for split in kind.splits:
        data = load(split)
        n = len(data)
        assert data.split == split
        assert data.images.dtype == np.uint8
        assert data.ids.dtype == np.int64
        assert data.images.shape[1:3] in ((8, 8), (32, 32))
        assert data.images.shape[3] in (1, 3)
        assert len(np.unique(data.ids)) == n
        assert len(data.files) in (0, n)
        assert (data.labels is not None) == kind.labelled == bool(data.class_names)
        if data.labels is not None:
            assert data.labels.dtype == np.int64
            assert set(data.labels.tolist()) <= set(range(len(data.class_names)))


def test_a_batch_is_the_pixels_divided_by_255(kind: Kind, load: Load) -> None:
    data = load("test")
    images, labels, ids = data.batch(slice(None, None, -1))
    expected = torch.from_numpy(data.images[::-1].copy()).permute(0, 3, 1, 2) / 255
    assert torch.equal(images, expected)
    assert images.dtype == torch.float32
    assert images.is_contiguous()  # outside attack libraries call .view on it
    assert ids.tolist() == data.ids[::-1].tolist()
    assert (labels is not None) == kind.labelled


def test_it_is_the_same_whenever_it_is_loaded(kind: Kind, load: Load) -> None:
    for split in kind.splits:
        one, other = load(split), load(split)
        assert (one.name, one.class_names, one.files) == (
            other.name,
            other.class_names,
            other.files,
        )
        for name in ("images", "labels", "ids"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_training_and_held_out_images_are_apart(kind: Kind, load: Load) -> None:
    if "train" not in kind.splits:
        pytest.skip("there is nothing to train on")
    everything, train, val = load("test"), load("train"), load("val")
    pixels = [{image.tobytes() for image in part.images} for part in (train, val)]
    assert not pixels[0] & pixels[1]
    assert train.class_names == val.class_names == everything.class_names
    if kind.whole:  # an image is the same image, with the same noise, in every split
        assert sorted([*train.ids, *val.ids]) == everything.ids.tolist()
        for part in (train, val):
            np.testing.assert_array_equal(part.images, everything.images[part.ids])


def test_a_split_that_it_does_not_have_is_one_sentence(kind: Kind, load: Load) -> None:
    for split in {"test", "val", "train", "valid"} - {*kind.splits}:
        with pytest.raises(VarsmoothError, match=split) as refused:
            load(split)
        assert "\n" not in str(refused.value)
