"""Runs from the command line as a user meets them: help, mistakes, exit codes, the shell."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image

import varsmooth
from tests.small_models import QUICK, proposed, table, write_pair
from tests.terminal import Terminal, write_photos
from varsmooth.cli.feedback import announce

MODELS = """
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


OWN = "certify --model own_models:smoothed"
TUNE = "varsmooth tune cifar10-0.25 --goal cascade"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's working directory: a module of models, two photographs, a model."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_models.py").write_text(MODELS)
    (tmp_path / "photos").mkdir()
    for name, grey in (("night", 20), ("day", 230)):
        Image.new("RGB", (9, 6), (grey,) * 3).save(tmp_path / "photos" / f"{name}.png")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("certify --model nowhere", "neither a folder with a config.json nor a released"),
        ("certify --model own_models:Bright", "fixed noise level with --sigma"),
        ("certify --model own_models:nobody", "cannot be imported"),
        ("certify --model nobody:make", "No module named 'nobody' in /"),
        (
            "certify --model own_models:needs --sigma 1",
            "needs the argument width; it must be a function",
        ),
        ("certify --model own_models:broken --sigma 1", "raised RuntimeError: no weights here"),
        ("certify --model own_models:number", "not int"),
        ("certify --model cifar10-denoised --lam 0.5", "--lam has no effect: this model has no"),
        ("certify --model cifar10-0.25 --selector cascade", f"{TUNE}, or name its stages, as in"),
        (f"{OWN} --sigma 0.1", "leave out --sigma"),
        (f"{OWN} --data nothing", "see varsmooth data list"),
        (f"{OWN} --data photos --subset 5000:", "--subset 5000: selects none of the 2 images of"),
        (f"{OWN} --data photos/day.png --n 5", "use --n ≥"),
        (f"{OWN} --data photos/day.png --at 9 --n-max 50", "votes can certify is 0.1"),
        (f"{OWN} --data photos/day.png --device cuda", "sees no CUDA device here; choose --device"),
        ("verify x", "x does not hold a run"),
        ("verify own_models.py", "own_models.py does not hold a run"),
        ("attack --against x", "x does not hold a run"),
    ],
)
def test_a_failure_is_one_sentence_and_exit_code_1(
    here: Path, words: str, sentence: str, cli: Terminal
) -> None:
    if "cuda" in words and torch.cuda.is_available():
        pytest.skip("this machine has such a device")
    printed = cli(words if words.startswith("verify") else f"{words} --out x", code=1)
    assert printed.out == ""
    *plan, failure = printed.err.splitlines()
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


def test_the_plan_names_the_device_that_is_used(here: Path, cli: Terminal) -> None:
    """At once what will be done; torch knows the device a moment later."""
    plan = cli(f"{OWN} --data photos --n 50 --out x").err.splitlines()[:2]
    assert plan == [
        "certify photos test with own_models:smoothed: σ by the model, method sound, n 50, "
        "alpha 0.001, out x",
        f"device: {'cuda' if torch.cuda.is_available() else 'cpu'}",
    ]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--sigma 0.1 --lam 1", "--lam cannot be combined with --sigma; leave one out"),
        ("--sigma 0.1 --selector learned", "--selector cannot be combined with --sigma"),
        ("--cascade 1:0.6 --n-median 11", "--n-median cannot be combined with --cascade"),
        ("--cascade 1:0.6 --sigma 0.1", "--cascade cannot be combined with --sigma"),
        ("--cascade 1:0.6 --lam 0.5", "--lam chooses among tuned stages; leave it or --cascade"),
        ("--cascade 1;0.5", "--cascade must be LEVEL:THRESHOLD"),
        ("--cascade 1:1.5", "--cascade must be LEVEL:THRESHOLD"),
        ("--cascade 1:,0.5", "--cascade must be LEVEL:THRESHOLD"),
        ("--cascade 0.5,1", "levels falling"),
        ("--cascade 1,0.5 --selector median", "--selector cannot be combined with --cascade"),
        ("--cascade 1:0.5:2,0.5", "gates in [0, 1)"),
        ("--subset 1-5", "--subset must be START:STOP"),
        ("--n-max 100", "--n-max belongs to --at or --until; give one of them, or --n"),
        ("--distance 0", "--distance belongs to --method paper; leave it out"),
        ("--simga 0.1", "there is no option --simga; did you mean --sigma?"),
    ],
)
def test_options_are_checked_before_anything_is_done(
    here: Path, words: str, sentence: str, cli: Terminal
) -> None:
    printed = cli(f"certify --model nowhere --out x {words}", code=2)
    assert printed.out == ""
    assert sentence in printed.err
    assert not Path("x").exists()


def test_one_photograph_with_a_released_model(here: Path, cli: Terminal) -> None:
    command = "certify --model cifar10-0.25 --sigma 0.25 --n 50 --alpha 0.01 --out runs/photo"
    misfit = "trained on images of 32×32 pixels, but day.png has 9×6; scale to 32×32 with --resize"
    cli.refuses(f"{command} --data photos/day.png", misfit)
    assert not Path("runs/photo").exists()
    out, err = cli(f"{command} --data photos/day.png --resize 32")
    assert "σ 0.25," in err.splitlines()[0]
    assert re.search(r"^day.png  \w+  σ 0.25  radius \d.\d{3}$", out, re.MULTILINE)
    cli(proposed(out)[0])  # an export: a report needs labels
    (row,) = table(Path("runs/photo"))
    assert (row["label"], row["sigma"]) == (None, 0.25)


def test_the_plan_shows_numbers_as_they_are_typed(capsys: pytest.CaptureFixture[str]) -> None:
    announce("certify", at=[0.0, 0.06], alpha=1e-4, n=100_000, until=None)
    assert capsys.readouterr().err == "certify: at 0, 0.06, alpha 0.0001, n 100,000\n"


def test_progress_and_result_round_alike(here: Path, cli: Terminal) -> None:
    """2 of 3 are right: 66.6 % in both, rounded down."""
    for path in ("dark/night", "dark/day", "bright/day"):
        (here / "named" / path).parent.mkdir(parents=True, exist_ok=True)
        (here / "named" / f"{path}.png").hardlink_to(here / "photos" / f"{Path(path).name}.png")
    out, err = cli(f"{OWN} --data named --n 50 --out x")
    assert "certify: 3/3 images" in err
    assert "r ≥ 0: 66.6 %, 150 samples per image" in err
    assert "certified accuracy 66.6 %" in out


def test_images_that_the_model_was_trained_on_are_noticed(here: Path, cli: Terminal) -> None:
    """An unsplit folder: test is all of it, val is held out of training."""
    write_photos(here / "pets", 10, (32, 32), {"cat": 0, "dog": 0}, spread=256)
    options = "--sigma 0.25 --epochs 1 --batch-size 8 --network-options.widths 4,4,4,4 --n 16"
    trained = cli(f"train classifier --data pets --out model {options}").out
    assert "accuracy (%) on 4 held-out images" in trained
    quick = "certify --model model --n 60 --alpha 0.05 --data"
    for data, warned in (("pets", 1), (f"{here}/pets --split val", 0), ("pets/cat/0.png", 0)):
        err = cli(f"{quick} {data} --out runs/{len(data)}").err
        assert ("warning: the model was trained on 16 of these 20 images" in err) == warned
        assert ("warning" in err) == warned


def test_a_corrected_mistake_is_no_other_run(here: Path, cli: Terminal) -> None:
    command = f"{OWN} --data photos/day.png --out x --n"
    cli(f"{command} 5", code=1)
    cli(f"{command} 50")
    assert [row["prediction"] for row in table(Path("x"))] == [1]
    Path("other").mkdir()
    Path("other/run.json").write_text("{}")  # nothing that this command wrote
    cli(f"{command} 50 --out other", code=1)
    assert Path("other/run.json").read_text() == "{}"


def test_photographs_and_a_model_of_ones_own(here: Path, cli: Terminal) -> None:
    predict = "predict photos/night.png photos/day.png --model own_models:Bright --sigma 0.1 --n 50"
    out, err = cli(predict)
    assert "predict photos/night.png test and 1 more with own_models:Bright: σ 0.1, n 50" in err
    night, day = out.splitlines()
    assert night == "photos/night.png  dark  σ 0.1  16 of 16 votes"
    assert day.startswith("photos/day.png  bright")
    Image.new("RGB", (9, 6), (128,) * 3).save("grey.png")
    grey = cli("predict grey.png --model own_models:Bright --sigma 9 --n 50").out
    assert "grey.png  abstains, most votes for " in grey
    certified = cli(f"{OWN} --data photos --out runs/own --name mine").out
    assert [row["label"] for row in table(Path("runs/own"))] == [None, None]
    assert "2 of 2 images in runs/own: unlabelled, 0.0 % abstained" in certified
    own = "--model own_models:smoothed"
    cli.refuses(f"predict --data photos {own} --out runs/own", "(certify there, predict now")
    cli(f"predict photos {own} --out runs/again --n 50")
    rows = "its rows with: varsmooth report export runs/again\n"
    cli.refuses("report runs/again", rows)
    twice = "photos/day.png and --data both name images; give one of"
    cli.refuses(f"predict photos/day.png --data photos {own}", twice, code=2)
    cli.refuses("verify runs/again", "only certificates can be verified")


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


def test_models_are_listed_and_described(tmp_path: Path, cli: Terminal) -> None:
    output = cli("models").out
    first, second = proposed(output)[:2]
    cli(first)
    assert second == "demo"
    reading = [line.split()[0] for line in output.splitlines() if "  confidence  " in line]
    assert reading == ["cifar10-0.25-confidence", "cifar10-universal-1.00-confidence"]
    shown = cli("models", write_pair(tmp_path / "pair")).out
    assert "measured on cifar10, not trained under noise here; default: σ_a = 0.25." in shown
    assert "clip [0.1, 0.5]" in shown
    assert "conv4" in shown
    cli("models nowhere", code=1)


def test_predictions_that_a_radius_does_not_cover_are_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Terminal
) -> None:
    """Inside a dual radius a query errs with probability ≤ α if it sets α_p of the radius aside."""
    monkeypatch.chdir(tmp_path)
    write_pair(tmp_path / "model")
    certified = cli(f"certify {QUICK} --subset 0:3 --model model --out certified").out
    assert "inside these radii predict with --alpha-select 0.01" in certified
    predict = "predict --n 60 --n-median 21 --alpha 0.05 --subset 0:3 --model model"
    caution = "may err more often than their α = 0.05"
    for share, noticed in (("", True), ("--alpha-select 0.01", False)):
        cli(f"{predict} {share} --out {noticed}")
        cli(f"report certified {noticed} --out report")
        assert (caution in Path("report/report.html").read_text()) is noticed
    cli(f"certify {QUICK} --subset 0:3 --model model --band false --out ideal")
    cli("report ideal False --out report")
    assert "the radii cover no query" in Path("report/report.html").read_text()
