"""CIFAR-10: layouts, splits, checks, and pickles that must not run."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.fake_cifar10 import N, python2_pickle, write_binary, write_python
from varsmooth.data import data_root, load_dataset
from varsmooth.data.cifar10 import (
    BATCHES,
    IMAGES_PER_FILE,
    Records,
    load_cifar10,
    load_plain_pickle,
    verify_cifar10,
)
from varsmooth.errors import VarsmoothError


@pytest.mark.parametrize("write", [write_binary, write_python])
def test_both_layouts_give_the_same_splits(
    write: Any, batches: dict[str, Records], tmp_path: Path
) -> None:
    write(tmp_path, batches)
    train, val, test = (load_cifar10(tmp_path, s) for s in ("train", "val", "test"))
    assert train.ids.tolist() == list(range(5 * N - N // 2))
    assert val.ids.tolist() == list(range(5 * N - N // 2, 5 * N))
    assert test.ids.tolist() == list(range(N))
    all_train = np.concatenate([batches[name] for name in BATCHES[:5]])
    for data, records in (
        (train, all_train[: -N // 2]),
        (val, all_train[-N // 2 :]),
        (test, batches["test_batch"]),
    ):
        assert data.labels is not None
        assert data.labels.tolist() == records[:, 0].tolist()
        for colour in range(3):  # the layout stores all red, then all green, then all blue
            plane = records[:, 1 + 1024 * colour : 1 + 1024 * (colour + 1)]
            np.testing.assert_array_equal(data.images[..., colour].reshape(-1, 1024), plane)


def test_the_held_out_images_of_the_real_data_set_are_the_last_5000() -> None:
    assert IMAGES_PER_FILE // 2 == 5000


@pytest.mark.parametrize(
    ("name", "byte", "change", "sentence"),
    [
        ("test_batch", 0, lambda label: (label + 1) % 10, "checksum of test_batch"),
        ("data_batch_3", 5, lambda pixel: (pixel + 100) % 256, "checksum of data_batch_3"),
        ("test_batch", 5, lambda pixel: (pixel + 1) % 256, "checksum of test_batch"),
        ("test_batch", 0, lambda _: 10, f"does not hold {N} CIFAR-10 images"),
    ],
)
def test_verification_notices_each_kind_of_damage(
    name: str,
    byte: int,
    change: Callable[[int], int],
    sentence: str,
    batches: dict[str, Records],
    tmp_path: Path,
) -> None:
    verify_cifar10(write_python(tmp_path, batches))
    folder = write_binary(tmp_path, batches)
    verify_cifar10(folder)
    batches[name][0, byte] = change(int(batches[name][0, byte]))
    with pytest.raises(VarsmoothError, match=sentence):
        verify_cifar10(write_binary(tmp_path / "damaged", batches))


def test_an_incomplete_copy_says_what_to_do(batches: dict[str, Records], tmp_path: Path) -> None:
    folder = write_binary(tmp_path, batches)
    with pytest.raises(VarsmoothError, match="choose train, val or test"):
        load_cifar10(tmp_path, "validation")
    (folder / "data_batch_2.bin").write_bytes(b"short")
    with pytest.raises(VarsmoothError, match=r"data_batch_2.*varsmooth data fetch cifar10"):
        load_cifar10(tmp_path, "train")
    (folder / "test_batch.bin").unlink()
    with pytest.raises(VarsmoothError, match=r"test_batch\.bin is missing.*varsmooth data fetch"):
        load_cifar10(tmp_path, "test")


def test_a_missing_data_set_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(VarsmoothError, match="varsmooth data fetch cifar10"):
        load_dataset("cifar10", root=tmp_path)


def test_the_data_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VARSMOOTH_DATA", str(tmp_path))
    assert data_root() == tmp_path
    assert data_root(tmp_path / "other") == tmp_path / "other"
    monkeypatch.delenv("VARSMOOTH_DATA")
    assert "varsmooth" in str(data_root())


class Attack:
    """Pickled, it asks the reader to run a command."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_malicious_pickle_is_refused_and_does_nothing(protocol: int, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    for attack in (Attack(os.mkdir, str(mark)), Attack(eval, f"__import__('os').mkdir({mark!r})")):
        path = tmp_path / "batch"
        path.write_bytes(pickle.dumps({"data": attack, "labels": [0]}, protocol=protocol))
        with pytest.raises(VarsmoothError, match=r"not a pickle of plain arrays.*asks for"):
            load_plain_pickle(path)
        assert not mark.exists()


@pytest.mark.parametrize(
    "content",
    [
        Attack(np.load, "x"),
        Attack(getattr, "x", "upper"),
        Attack(bytearray, 10),
        np.array([{"an": "object"}], dtype=object),
        np.ma.masked_array([1, 2]),
        np.array(["text"]),
        Path("x"),
        b"\x80\x02not a pickle",
    ],
    ids=lambda content: type(content).__name__,
)
def test_anything_else_is_refused(content: Any, tmp_path: Path) -> None:
    path = tmp_path / "batch"
    path.write_bytes(content if isinstance(content, bytes) else pickle.dumps(content))
    with pytest.raises(VarsmoothError, match="not a pickle of plain arrays"):
        load_plain_pickle(path)


def test_plain_values_pass(tmp_path: Path) -> None:
    content = {"text": "a", "list": [1, 2.5, None, True], "bytes": b"x", "dict": {"k": (1, "é")}}
    path = tmp_path / "batch"
    for protocol in (2, 4):
        plain = content if protocol > 2 else content | {"bytes": "x"}
        path.write_bytes(pickle.dumps(plain, protocol=protocol))
        assert load_plain_pickle(path) == plain
    array = np.arange(6, dtype=np.uint8).reshape(2, 3)
    path.write_bytes(pickle.dumps({"data": array, "more": array.astype(np.float32)}, protocol=4))
    loaded = load_plain_pickle(path)
    np.testing.assert_array_equal(loaded["data"], array)
    assert loaded["more"].dtype == np.float32


def test_a_pickle_that_is_no_batch_is_refused(batches: dict[str, Records], tmp_path: Path) -> None:
    folder = write_python(tmp_path, batches)
    float_pixels = np.zeros((N, 3072), np.float32)
    contents: list[Any] = [[], {"data": 3}, {"data": float_pixels, "labels": [0] * N}]
    for content in contents:
        (folder / "test_batch").write_bytes(pickle.dumps(content, protocol=4))
        with pytest.raises(VarsmoothError, match="does not hold"):
            load_cifar10(tmp_path, "test")
    (folder / "test_batch").write_bytes(python2_pickle(batches["test_batch"])[:-100])
    with pytest.raises(VarsmoothError, match="not a pickle"):
        load_cifar10(tmp_path, "test")
