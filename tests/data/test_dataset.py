"""The data set itself: sub-setting, ids, batches."""

from typing import Any

import numpy as np
import pytest
import torch

from varsmooth.data import ImageDataset, load_dataset
from varsmooth.errors import VarsmoothError


def make(n: int = 10, **changes: Any) -> ImageDataset:
    rng = np.random.default_rng(1)
    fields: dict[str, Any] = {
        "name": "toy",
        "split": "test",
        "pixels": rng.integers(0, 256, (n, 4, 5, 3), dtype=np.uint8),
        "labels": np.arange(n) % 3,
        "ids": np.arange(100, 100 + n),
        "class_names": ("a", "b", "c"),
        "files": tuple(f"{i}.png" for i in range(n)),
    }
    return ImageDataset(**(fields | changes))


@pytest.mark.parametrize(
    "indices",
    [slice(0, 10, 5), slice(-3, None), slice(None, None, -2), [7, 2], np.array([9, 0])],
)
def test_a_subset_keeps_everything_together(indices: Any) -> None:
    full = make()
    part = full[indices]
    places = np.arange(10)[indices]
    assert full.labels is not None
    assert part.labels is not None
    assert part.ids.tolist() == (100 + places).tolist()
    assert part.labels.tolist() == full.labels[places].tolist()
    assert part.files == tuple(f"{i}.png" for i in places)
    np.testing.assert_array_equal(part.images, full.images[places])
    assert part.batch(slice(None)).ids.tolist() == part.ids.tolist()
    assert full[2:8][1::2].ids.tolist() == [103, 105, 107]


def test_it_shows_itself_in_a_line() -> None:
    assert repr(make(10)).startswith("ImageDataset(toy test: 10 images of ")
    assert len(str(make(10)).splitlines()) == 1


def test_few_images_are_the_first_or_spread_evenly() -> None:
    assert make().few(4).ids.tolist() == [100, 102, 105, 107]
    assert make(shuffled=True).few(4).ids.tolist() == [100, 101, 102, 103]
    assert len(make().few(20)) == len(make(shuffled=True).few(20)) == 10
    assert load_dataset("cifar10-sample").shuffled


def test_a_batch_is_its_own_memory() -> None:
    data = make()
    before = data.images.copy()
    images, labels, ids = data.batch([3, 3, 1])
    assert labels is not None
    assert labels.dtype == ids.dtype == torch.int64
    assert labels.tolist() == [0, 0, 1]
    for tensor in (images, labels, ids):
        tensor.fill_(0)
    np.testing.assert_array_equal(data.images, before)
    assert data.batch([3]).ids.tolist() == [103]


def test_every_byte_is_divided_by_255() -> None:
    ramp = np.arange(256, dtype=np.uint8).reshape(1, 16, 16, 1)
    data = make(1, pixels=ramp, labels=None, ids=np.zeros(1, np.int64), files=())
    values = data.batch([0]).images.flatten()
    assert torch.equal(values, torch.arange(256, dtype=torch.float32) / 255)


def test_batches_go_through_all_images_once_in_order() -> None:
    sizes = [len(batch.ids) for batch in make().batches(4)]
    ids = [i for batch in make().batches(4) for i in batch.ids.tolist()]
    assert sizes == [4, 4, 2]
    assert ids == list(range(100, 110))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"pixels": np.zeros((10, 4, 5, 3), np.float32)}, "uint8"),
        ({"pixels": np.zeros((10, 4, 5), np.uint8)}, "uint8 images of shape"),
        ({"labels": np.zeros(9, np.int64)}, "10 images but labels"),
        ({"labels": np.full(10, 3)}, "classes from 0 to 2"),
        ({"labels": np.full(10, -1)}, "from -1"),
        (
            {"labels": np.arange(10) % 5 - 1},
            "go from -1 to 3, 5 different ones; number",
        ),
        ({"ids": np.zeros(10, np.int64)}, "share their noise"),
        ({"ids": np.arange(9)}, "one id for each image"),
    ],
)
def test_parts_that_do_not_fit_are_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(VarsmoothError, match=sentence):
        make(**changes)


def test_an_empty_or_doubled_choice_is_refused() -> None:
    with pytest.raises(VarsmoothError, match="no image"):
        make()[5:5]
    with pytest.raises(VarsmoothError, match="share their noise"):
        make()[[1, 1]]
    with pytest.raises(VarsmoothError, match="slice"):
        make()[np.array(3)]
