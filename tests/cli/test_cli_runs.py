"""Runs from the command line as a user meets them: help, mistakes, exit codes, the shell."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import varsmooth
from tests.small_models import QUICK, proposed, run, table, write_pair

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


def needs(width):
    return nn.Linear(width, 2)


def broken():
    raise RuntimeError("no weights here\\nand more")
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
        ("certify --model own_models:smoothed --sigma 0.1 --out x", "leave out --sigma"),
        ("certify --model own_models:nobody --out x", "cannot be imported"),
        ("certify --model nobody:make --out x", "No module named 'nobody' in /"),
        (
            "certify --model own_models:needs --sigma 1 --out x",
            "cannot be built: it raised TypeError: needs()",
        ),
        (
            "certify --model own_models:broken --sigma 1 --out x",
            "raised RuntimeError: no weights here",
        ),
        ("certify --model own_models:number --out x", "not int"),
        ("certify --model own_models:smoothed --data nothing --out x", "see varsmooth data list"),
        (
            "certify --model cifar10-denoised --lam 0.5 --out x",
            "--lam has no effect: this model has no selector; leave it out",
        ),
        (
            "certify --model own_models:smoothed --data photos --subset 5000: --out x",
            "--subset 5000: selects none of the 2 images of photos test",
        ),
        ("certify --model own_models:smoothed --data photos/day.png --n 5 --out x", "use --n ≥"),
        (
            "certify --model own_models:smoothed --data photos/day.png --at 9 --n-max 50 --out x",
            "votes can certify is 0.1",
        ),
        ("verify x", "x does not hold a run"),
        ("verify own_models.py", "own_models.py does not hold a run"),
        ("attack --against x --out y", "x does not hold a run"),
        (
            "certify --model own_models:smoothed --data photos/day.png --device cuda --out x",
            "torch sees no CUDA device here; choose --device cpu",
        ),
        (
            "certify --model cifar10-0.25 --selector cascade --out x",
            "varsmooth tune cifar10-0.25 --goal cascade, or name its stages, as in --cascade 0.5",
        ),
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
    *plan, failure = captured.err.splitlines()
    assert all(line.startswith((words.split()[0], "device: ")) for line in plan)
    assert failure.startswith("varsmooth: ")
    assert sentence in failure
    assert not Path("x").exists()


MISTAKES = """\
report nosuch
report export nosuch
report recompute nosuch --alpha 0.01
report import-tsv nosuch --sigma 1
verify nosuch
certify --model nosuch --out x
certify --model nosuch:make --sigma 1 --out x
certify --model cifar10-0.25 --data nosuch --out x
certify --model cifar10-0.25 --data cifar10 --root nosuch --out x
predict nosuch.png --model cifar10-0.25
attack --against nosuch --out x
attack --model nosuch --eps 1 --out x
train classifier --network nosuch --sigma 0.25 --out x
train classifier --data nosuch --sigma 0.25 --out x
train classifier --initial nosuch --data cifar10-sample --sigma 0.25 --out x
train classifier --initial nosuch.safetensors --data cifar10-sample --sigma 0.25 --out x
train classifier --network nosuch:Net --data cifar10-sample --sigma 0.25 --out x
train selector --classifier nosuch --out x
train selector --classifier cifar10-0.25 --network conv4 --out x
tune nosuch
measure nosuch
adopt nosuch:make --data cifar10-sample --out x
adopt own_models:Bright --data nosuch --out x
data info nosuch
demo --model nosuch
app --model nosuch
app --run nosuch
models nosuch"""


def test_a_wrong_name_is_said_before_torch_is_imported(here: Path) -> None:
    code = (
        f"import sys; sys.path[:0] = {[str(Path(varsmooth.__file__).parents[1])]}\n"
        "from varsmooth.cli import main\n"
        f"for words in {MISTAKES!r}.splitlines():\n"
        "    assert main(words.split()) in (1, 2), words\n"
        "    assert 'torch' not in sys.modules, words"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == len(MISTAKES.splitlines())
    assert all("nosuch" in line or "no network 'conv4'" in line for line in lines)


def test_the_plan_names_the_device_that_is_used(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """At once what will be done; torch knows the device a moment later."""
    assert run("certify --model own_models:smoothed --data photos --n 50 --out x") == 0
    device = "cuda" if torch.cuda.is_available() else "cpu"
    plan = capsys.readouterr().err.splitlines()[:2]
    assert plan == [
        "certify photos test with own_models:smoothed: σ by the model, method sound, n 50, "
        "alpha 0.001, out x",
        f"device: {device}",
    ]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--sigma 0.1 --lam 1", "--lam does not go with --sigma; leave one of them out"),
        ("--sigma 0.1 --selector learned", "--selector does not go with --sigma"),
        ("--cascade 1:0.6 --n-median 11", "--n-median does not go with --cascade"),
        ("--cascade 1:0.6 --sigma 0.1", "--cascade does not go with --sigma"),
        (
            "--cascade 1:0.6 --lam 0.5",
            "--lam chooses among tuned stages; leave it or --cascade out",
        ),
        ("--cascade 1;0.5", "--cascade must be LEVEL:THRESHOLD"),
        ("--cascade 1:1.5", "--cascade must be LEVEL:THRESHOLD"),
        ("--cascade 1:,0.5", "--cascade must be LEVEL:THRESHOLD"),
        ("--cascade 0.5,1", "levels falling"),
        ("--cascade 1,0.5 --selector median", "--selector does not go with --cascade"),
        ("--cascade 1:0.5:2,0.5", "gates in [0, 1)"),
        ("--subset 1-5", "--subset must be START:STOP"),
        ("--n-max 100", "--n-max belongs to --at or --until; give one of them, or --n"),
        ("--simga 0.1", "there is no option --simga; did you mean --sigma?"),
    ],
)
def test_options_are_checked_before_anything_is_done(
    here: Path, words: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(f"certify --model nowhere --out x {words}") == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert sentence in captured.err
    assert not Path("x").exists()


def test_one_photograph_with_a_released_model(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = "certify --model cifar10-0.25 --sigma 0.25 --n 50 --alpha 0.01 --out runs/photo"
    assert run(f"{command} --data photos/day.png") == 1
    misfit = (
        "trained on images of 32×32 pixels, but day.png has 9×6; scale to 32×32 with --resize 32"
    )
    assert misfit in capsys.readouterr().err
    assert not Path("runs/photo").exists()
    assert run(f"{command} --data photos/day.png --resize 32") == 0
    captured = capsys.readouterr()
    assert "σ 0.25," in captured.err.splitlines()[0]
    assert re.search(r"^day.png  \w+  σ 0.25  radius \d.\d{3}$", captured.out, re.MULTILINE)
    assert run(proposed(captured.out)[0]) == 0  # an export: a report needs labels
    (row,) = table(Path("runs/photo"))
    assert (row["label"], row["sigma"]) == (None, 0.25)


def test_progress_and_result_round_alike(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """2 of 3 are right: 66.6 % in both, rounded down."""
    for path in ("dark/night", "dark/day", "bright/day"):
        (here / "named" / path).parent.mkdir(parents=True, exist_ok=True)
        (here / "named" / f"{path}.png").hardlink_to(here / "photos" / f"{Path(path).name}.png")
    assert run("certify --model own_models:smoothed --data named --n 50 --out x") == 0
    captured = capsys.readouterr()
    assert "certify: 3/3 images" in captured.err
    assert "r ≥ 0: 66.6 %, 150 samples per image" in captured.err
    assert "certified accuracy 66.6 %" in captured.out


def test_images_that_the_model_was_trained_on_are_noticed(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An unsplit folder: test is all of it, val is held out of training."""
    rng = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (here / "pets" / name).mkdir(parents=True)
        for i in range(10):
            pixels = rng.integers(0, 256, (32, 32, 3), np.uint8)
            Image.fromarray(pixels).save(here / "pets" / name / f"{i}.png")
    options = "--sigma 0.25 --epochs 1 --batch-size 8 --network-options.widths 4,4,4,4 --n 16"
    assert run(f"train classifier --data pets --out model {options}") == 0
    captured = capsys.readouterr()
    assert "accuracy (%) on 4 held-out images" in captured.out
    quick = "--model model --n 60 --alpha 0.05 --data"
    warning = "warning: the model was trained on 16 of these 20 images"
    assert run(f"certify {quick} pets --out runs/all") == 0
    assert warning in capsys.readouterr().err
    assert run(f"certify {quick} {here}/pets --split val --out runs/val") == 0
    assert "warning" not in capsys.readouterr().err
    assert run(f"certify {quick} pets/cat/0.png --out runs/other") == 0
    assert "warning" not in capsys.readouterr().err


def test_a_corrected_mistake_is_no_other_run(here: Path) -> None:
    command = "certify --model own_models:smoothed --data photos/day.png --out x --n"
    assert run(f"{command} 5") == 1
    assert run(f"{command} 50") == 0
    assert [row["prediction"] for row in table(Path("x"))] == [1]
    Path("other").mkdir()
    Path("other/run.json").write_text("{}")  # nothing that this command wrote
    assert run(f"{command} 50 --out other") == 1
    assert Path("other/run.json").read_text() == "{}"


def test_photographs_and_a_model_of_ones_own(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        run("predict photos/night.png photos/day.png --model own_models:Bright --sigma 0.1 --n 50")
        == 0
    )
    captured = capsys.readouterr()
    assert (
        "predict photos/night.png test and 1 more with own_models:Bright: σ 0.1, n 50"
        in captured.err
    )
    night, day = captured.out.splitlines()
    assert night == "photos/night.png  dark  σ 0.1  16 of 16 votes"
    assert day.startswith("photos/day.png  bright")
    grey = np.full((6, 9, 3), 128, np.uint8)
    Image.fromarray(grey).save("grey.png")
    assert run("predict grey.png --model own_models:Bright --sigma 9 --n 50") == 0
    assert "grey.png  abstains, most votes for " in capsys.readouterr().out
    assert run("certify --data photos --model own_models:smoothed --out runs/own --name mine") == 0
    assert [row["label"] for row in table(Path("runs/own"))] == [None, None]
    assert "2 of 2 images in runs/own: unlabelled, 0.0 % abstained" in capsys.readouterr().out
    assert run("predict --data photos --model own_models:smoothed --out runs/own") == 1
    assert "(certify there, predict now" in capsys.readouterr().err
    assert run("predict photos --model own_models:smoothed --out runs/again --n 50") == 0
    capsys.readouterr()
    assert run("report runs/again") == 1
    assert "its rows with: varsmooth report export runs/again\n" in capsys.readouterr().err
    assert run("predict photos/day.png --data photos --model own_models:smoothed") == 2
    assert "are photos/day.png or those of --data; give one of" in capsys.readouterr().err
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
    output = capsys.readouterr().out
    listed, following = output.splitlines(), proposed(output)
    assert run(following[0]) == 0
    assert following[1] == "demo"
    capsys.readouterr()
    reading = [line.split()[0] for line in listed if "  confidence  " in line]
    assert reading == ["cifar10-0.25-confidence", "cifar10-universal-1.00-confidence"]
    write_pair(tmp_path / "pair")
    assert run(f"models {tmp_path}/pair") == 0
    out = capsys.readouterr().out
    assert "measured on cifar10, not trained under noise here; default: σ_a = 0.25." in out
    assert "clip [0.1, 0.5]" in out
    assert "conv4" in out
    assert run("models nowhere") == 1


def test_predictions_that_a_radius_does_not_cover_are_noticed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Inside a dual radius a query errs with probability ≤ α if it sets α_p of the radius aside."""
    model = write_pair(tmp_path / "model")
    certify = f"certify {QUICK} --subset 0:3 --model {model}"
    assert run(f"{certify} --out {tmp_path / 'certified'}") == 0
    assert "inside these radii predict with --alpha-select 0.01" in capsys.readouterr().out
    predict = f"predict --n 60 --n-median 21 --alpha 0.05 --subset 0:3 --model {model}"
    assert run(f"{predict} --out {tmp_path / 'default'}") == 0
    assert run(f"{predict} --alpha-select 0.01 --out {tmp_path / 'matching'}") == 0
    caution = "may err more often than their α = 0.05"
    for name, noticed in (("default", True), ("matching", False)):
        report = f"report {tmp_path / 'certified'} {tmp_path / name}"
        assert run(f"{report} --out {tmp_path / 'report'}") == 0
        assert (caution in (tmp_path / "report" / "report.html").read_text()) is noticed
