"""The embedded sample: real, balanced, lossless."""

import hashlib
import json
from importlib.resources import files

import numpy as np
import pytest

from varsmooth.data import data_root, load_dataset
from varsmooth.data.cifar10 import CLASS_NAMES, find_cifar10

# SHA-256 of labels, ids (int64, little-endian) and pixels as they are in the official files.
DIGESTS = {
    "test": "772a859254c8a336bbaf7a32003f13a4a5ad6c8451e1fb94f0df3dffb70712ae",
    "val": "f05d9b78ca554eadc1287c35f5ce9fc530dcb75742d133acfa72b7413f56a587",
}


@pytest.mark.parametrize(("split", "per_class"), [("test", 100), ("val", 20)])
def test_the_sample_is_balanced_and_lossless(split: str, per_class: int) -> None:
    data = load_dataset("cifar10-sample", split)
    assert data.labels is not None
    assert data.images.shape == (10 * per_class, 32, 32, 3)
    assert np.bincount(data.labels).tolist() == [per_class] * 10
    assert data.class_names == CLASS_NAMES
    assert (np.diff(data.ids) > 0).all()
    content = data.labels.astype("<i8").tobytes() + data.ids.astype("<i8").tobytes()
    assert hashlib.sha256(content + data.images.tobytes()).hexdigest() == DIGESTS[split]


@pytest.mark.parametrize("split", ["test", "val"])
def test_the_sample_is_cut_from_cifar10(split: str) -> None:
    if find_cifar10(data_root()) is None:
        pytest.skip("CIFAR-10 is not in the data directory")
    sample, full = load_dataset("cifar10-sample", split), load_dataset("cifar10", split)
    same = full[np.searchsorted(full.ids, sample.ids)]
    assert same.ids.tolist() == sample.ids.tolist()
    np.testing.assert_array_equal(same.labels, sample.labels)
    np.testing.assert_array_equal(same.images, sample.images)


def test_the_sample_is_small_and_states_its_origin() -> None:
    folder = files("varsmooth.data") / "sample"
    assert sum(len(file.read_bytes()) for file in folder.iterdir()) < 3_000_000
    for split in ("test", "val"):
        about = json.loads((folder / f"{split}.json").read_text())
        assert "Krizhevsky" in about["citation"]
        assert "2009" in about["citation"]
        assert "cs.toronto.edu" in about["origin"]
