"""Messages that say what to type: one case for each that users found wanting."""

import os
from pathlib import Path

import pytest
import torch
from PIL import Image

from tests.small_models import run
from varsmooth import FixedSelector, SmoothedClassifier, VarsmoothError, certify, certify_as_paper
from varsmooth.errors import check_images

NETWORK = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 2))
G = SmoothedClassifier(NETWORK, FixedSelector(0.25))
X = torch.rand(1, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def test_pixels_just_above_1_are_shown_with_their_digits() -> None:
    with pytest.raises(VarsmoothError, match=r"from 0\.5 to 1\.0000\d+; clamp them with"):
        check_images(torch.tensor([0.5, 1 + 1e-6]).view(1, 1, 1, 2))
    with pytest.raises(VarsmoothError, match="from 0 to 255; scale the images"):
        check_images(torch.tensor([0.0, 255.0]).view(1, 1, 1, 2))


def test_a_number_in_quotes_is_shown_in_quotes() -> None:
    with pytest.raises(VarsmoothError, match=r"between 0 and 1, not '0\.05'"):
        certify(G, X, alpha="0.05")  # type: ignore[arg-type]


def test_a_fixed_level_has_no_certificate_of_the_paper() -> None:
    with pytest.raises(VarsmoothError, match="no paper one; call certify, or leave out --method"):
        certify_as_paper(G, X, distance=0.1)


def test_a_mistyped_split_is_corrected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for split in ("train", "val", "test"):
        (tmp_path / "mine" / split / "a").mkdir(parents=True)
        Image.new("RGB", (32, 32)).save(tmp_path / "mine" / split / "a" / "0.png")
    words = (
        "certify --model cifar10-0.25 --sigma 0.25 --data mine --split tset --n 60 --n0 20 --out x"
    )
    assert run(words) == 1
    assert "has no 'tset' beside test, train, val; did you mean test?" in capsys.readouterr().err


def test_a_level_far_from_training_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = "certify --model cifar10-0.25 --data cifar10-sample --subset 0:1 --n 60 --n0 20"
    note = "note: the classifier was trained at σ = 0.25; at 2 it may know little"
    assert run(f"{words} --sigma 2 --out far") == 0
    assert note in capsys.readouterr().err
    assert run(f"{words} --sigma 0.5 --out near") == 0
    assert "note: the classifier" not in capsys.readouterr().err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = "certify --model cifar10-0.25 --sigma 0.25 --subset 0:2 --n 60 --n0 20 --out runs/few"
    assert run(words) == 0
    assert run("report runs/few --out page") == 0
    (tmp_path / "page" / "report.html").unlink()
    os.symlink("/dev/full", tmp_path / "page" / "report.html")
    capsys.readouterr()
    assert run("report runs/few --out page") == 1
    assert "page/report.html cannot be written (No space left on device)" in capsys.readouterr().err
