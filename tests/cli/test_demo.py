"""The quickstart runs on any model that has a grid, and says what is missing otherwise."""

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from varsmooth.cli import main
from varsmooth.data.cifar10 import CLASS_NAMES
from varsmooth.models.checkpoints import load_checkpoint, save
from varsmooth.models.descriptions import Description, Part, recommend
from varsmooth.models.networks import build


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    options = {"widths": [4, 4, 4, 4]}, {"width": 8, "heads": 1}
    about = Description(
        "cifar10-sample",
        CLASS_NAMES,
        0.25,
        classifier=Part("conv4", options[0]),
        selector=Part("attention", options[1]),
        selector_sigma=0.25,
        sigma_t=0.5,
    )
    networks = build("conv4", options[0]), build("attention", options[1])
    save(tmp_path / "pair", about, *networks)
    return tmp_path / "pair"


def test_demo_shows_every_verb(pair: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recommend(pair, {"lam": 0.0, "sigma_m": 0.25, "levels": [0.2, 0.3]})
    out = pair.parent / "demo"
    assert main(["demo", "--model", str(pair), "--out", str(out), "--images", "3"]) == 0
    shown = capsys.readouterr().out
    for word in ("predict", "sound", "heuristic", "fixed σ = 0.25", "attacked", "report.html"):
        assert word in shown
    page = (out / "report" / "report.html").read_text()
    assert page.count('<details class="card') == 3
    for word in ("Certified accuracy", "Compared with the best single σ", "Attacks", "Predictions"):
        assert f"<h2>{word}</h2>" in page
    assert len(list((out / "votes").glob("*/*.jsonl"))) >= 1


def test_demo_of_the_released_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--out", str(tmp_path / "demo"), "--images", "2"]) == 0
    shown, announced = capsys.readouterr()
    assert "2 images with cifar10-small" in announced
    for stage in ("predict", "certify cascade, λ = 1", "certify cascade, λ = 0.4", "attack"):
        assert f"\n{stage}: 2/2 images" in announced
    assert "the best single σ (fixed σ = " in shown
    for sigma in ("0.5", "0.125"):
        assert re.search(rf"fixed σ = {sigma} +sound +2 .* 1100\n", shown)
    assert "cascade, λ = 1" in shown
    assert "--model cifar10-small --lam 0.2" in shown


def test_demo_of_a_classifier_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = load_checkpoint("cifar10-0.25")
    about = replace(model.description, selector=None, selector_sigma=None, recommended={})
    save(tmp_path / "alone", about, model.classifier)
    out = str(tmp_path / "demo")
    assert main(["demo", "--model", str(tmp_path / "alone"), "--out", out, "--images", "2"]) == 0
    shown = capsys.readouterr().out
    assert "fixed σ = 0.25" in shown
    assert "heuristic" not in shown


def test_demo_says_first_what_is_left_out_without_matplotlib(
    pair: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    out = ["--out", str(pair.parent / "demo"), "--images", "2"]
    assert main(["demo", "--model", str(pair), *out]) == 1  # the pair has no grid: refused later
    assert "has no figures" in "".join(capsys.readouterr())


def test_demo_needs_a_grid(pair: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--model", str(pair), "--out", str(pair.parent / "demo")]) == 1
    assert "varsmooth tune" in capsys.readouterr().err
