"""The quickstart runs on any model with a grid; otherwise an error names what is missing."""

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.small_models import write_pair
from tests.terminal import Terminal
from varsmooth.models.checkpoints import load_checkpoint, save
from varsmooth.models.descriptions import recommend


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model in the working directory, without a grid."""
    monkeypatch.chdir(tmp_path)
    recommend(write_pair(tmp_path / "pair"), {})
    return tmp_path / "pair"


def test_demo_shows_every_verb(pair: Path, cli: Terminal) -> None:
    recommend(pair, {"lam": 0.0, "sigma_m": 0.25, "levels": [0.2, 0.3]})
    shown = cli("demo --model pair --out demo --images 3").out
    for word in ("predict", "sound", "heuristic", "fixed σ = 0.25", "attacked", "report.html"):
        assert word in shown
    page = Path("demo/report/report.html").read_text()
    assert page.count('<details class="card') == 3
    for word in ("Certified accuracy", "Compared with σ = 0.25", "Attacks", "Predictions"):
        assert f"<h2>{word}</h2>" in page
    assert len(list(Path("demo/votes").glob("*/*.jsonl"))) >= 1


def test_demo_of_the_released_model(tmp_path: Path, cli: Terminal) -> None:
    shown, announced = cli("demo --images 2 --out", tmp_path / "demo")
    assert "2 images with cifar10-small" in announced
    for stage in ("predict", "certify cascade, λ = 1", "certify cascade, λ = 0.4", "attack"):
        assert f"\n{stage}: 2/2 images" in announced
    assert "the best single σ (fixed σ = " in shown
    assert re.search(
        r"\ncascade, λ = .*: \d of 2 right, .* with fixed σ = .* average radius\n", shown
    )
    for sigma in ("0.707", "0.125"):
        assert re.search(rf"fixed σ = {sigma} +sound +2 .* 1100\n", shown)
    assert "cascade, λ = 1" in shown
    assert "--model cifar10-small --lam 0.2" in shown


def test_demo_of_a_classifier_alone(pair: Path, cli: Terminal) -> None:
    model = load_checkpoint(pair)
    save("alone", replace(model.description, selector=None, selector_sigma=None), model.classifier)
    shown = cli("demo --model alone --out demo --images 2").out
    assert "fixed σ = 0.25" in shown
    assert "heuristic" not in shown


def test_demo_suggests_released_models_alone(pair: Path, cli: Terminal) -> None:
    errors = cli("demo --model pear", code=1).err
    assert "nor the folder of one; choose from cifar10-0.12, " in errors
    assert "pair" not in errors


def test_demo_needs_a_grid(pair: Path, cli: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # which is reported first
    cli.refuses("demo --model pair --out demo", "has no figures", "varsmooth tune")
