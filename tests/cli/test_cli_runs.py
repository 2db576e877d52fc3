"""Runs from the command line as a user meets them: help, mistakes, exit codes, the shell."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tests.small_models import run, table, write_pair

OWN = """
import torch
from torch import nn
from varsmooth import FixedSelector, SmoothedClassifier


class Bright(nn.Module):
    class_names = ("dark", "bright")

    def forward(self, x):
        score = x.mean(dim=(1, 2, 3)) - 0.5
        return torch.stack([-score, score], dim=1)


def smoothed():
    return SmoothedClassifier(Bright(), FixedSelector(0.1))


def number():
    return 3
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's working directory: a module of models, two photographs, a model."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_models.py").write_text(OWN)
    (tmp_path / "photos").mkdir()
    for name, grey in (("night", 20), ("day", 230)):
        Image.fromarray(np.full((6, 9, 3), grey, np.uint8)).save(
            tmp_path / "photos" / f"{name}.png"
        )
    return tmp_path


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("certify --model nowhere --out x", "neither a folder with a config.json nor a released"),
        ("certify --model own_models:Bright --out x", "fixed noise level with --sigma"),
        ("certify --model own_models:Bright --sigma 0.1 --lam 1 --out x", "leave out --lam"),
        ("certify --model own_models:smoothed --sigma 0.1 --out x", "leave out --sigma"),
        ("certify --model own_models:nobody --out x", "cannot be imported"),
        ("certify --model nobody:make --out x", "No module named 'nobody'"),
        ("certify --model own_models:number --out x", "not int"),
        ("certify --model own_models:smoothed --data nothing --out x", "neither a file"),
        (
            "certify --model own_models:smoothed --data photos --subset 5000: --out x",
            "--subset 5000: selects none of the 2 images of photos test",
        ),
        ("certify --model own_models:smoothed --data photos/day.png --n 5 --out x", "use --n ≥"),
        ("verify x", "x does not hold a run"),
        ("attack --against x --out y", "x does not hold a run"),
        ("certify --model own_models:smoothed --data photos/day.png --device cuda --out x", "CUDA"),
    ],
)
def test_a_failure_is_one_sentence_and_exit_code_1(
    here: Path, words: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if "cuda" in words and torch.cuda.is_available():
        pytest.skip("this machine has such a device")
    assert run(words) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    plan, failure = captured.err.splitlines()
    assert plan.startswith(words.split()[0])  # said at once, before anything was loaded
    assert failure.startswith("varsmooth: ")
    assert sentence in failure


def test_a_corrected_mistake_is_no_other_run(here: Path) -> None:
    command = "certify --model own_models:smoothed --data photos/day.png --out x --n"
    assert run(f"{command} 5") == 1
    assert run(f"{command} 50") == 0
    assert [row["prediction"] for row in table(Path("x"))] == [1]


def test_photographs_and_a_model_of_ones_own(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        run("predict photos/night.png photos/day.png --model own_models:Bright --sigma 0.1 --n 50")
        == 0
    )
    night, day = capsys.readouterr().out.splitlines()
    assert night == "night.png  dark  σ 0.1  50 of 50 votes"
    assert day.startswith("day.png  bright")
    assert run("certify --data photos --model own_models:smoothed --out runs/own --name mine") == 0
    assert [row["label"] for row in table(Path("runs/own"))] == [None, None]
    assert "2 of 2 images in runs/own: unlabelled, 0.0 % abstained" in capsys.readouterr().out
    assert run("predict --data photos --model own_models:smoothed --out runs/own") == 1
    assert "(certify there, predict now" in capsys.readouterr().err
    assert run("predict photos --model own_models:smoothed --out runs/again --n 50") == 0
    assert run("verify runs/again") == 1
    assert "only certificates can be verified" in capsys.readouterr().err


def test_a_reader_who_has_seen_enough_is_no_error() -> None:
    """`varsmooth models | head -1`: the end of the pipe that is read is closed."""
    read, write = os.pipe()
    os.close(read)
    try:
        command = [sys.executable, "-m", "varsmooth", "models"]
        done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


def test_models_are_listed_and_described(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("models") == 0
    listed = capsys.readouterr().out.splitlines()
    reading = [line.split()[0] for line in listed if "  confidence  " in line]
    assert reading == ["cifar10-0.25-confidence", "cifar10-universal-1.00-confidence"]
    write_pair(tmp_path / "pair")
    assert run(f"models {tmp_path}/pair") == 0
    out = capsys.readouterr().out
    assert "Trained on cifar10 for noise of σ_a = 0.25" in out
    assert "clip [0.1, 0.5]" in out
    assert "conv4" in out
    assert run("models nowhere") == 1
