"""A newcomer's path: photographs of many sizes and a network of one's own, by the printed words."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.small_models import proposed
from tests.terminal import Terminal, write_photos
from varsmooth.app import views
from varsmooth.cli import main
from varsmooth.data import load_dataset
from varsmooth.evaluation.records import Run
from varsmooth.models.descriptions import describe

NETS = """
import torch
from torch import nn
from varsmooth.data.source import Preprocessing
from varsmooth.models.adapters import NormalisedClassifier

def tiny():
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 2))

def seeded():
    torch.manual_seed(0)
    return tiny()

def scaled():
    how = Preprocessing(16, 8, "bilinear")
    return NormalisedClassifier(seeded(), [0.5] * 3, [0.2] * 3, preprocessing=how)

class Constant(nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.tensor([1.0, 0.0]))

    def forward(self, x):
        return self.bias.expand(len(x), 2)
"""
NETWORK = "train classifier --network own_nets:tiny --sigma 0.1 --epochs 1 --n 10"
TRAIN = f"{NETWORK} --data photos --resize 8 --out runs/mine"
QUICK = "--n 60 --n0 20"
MINE = f"certify --model runs/mine --trust own_nets:tiny {QUICK}"
SEEDED = f"certify --model own_nets:seeded --sigma 0.1 --data photos {QUICK}"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with twenty photographs of different sizes, not split."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_nets.py").write_text(NETS)
    write_photos(tmp_path / "photos", 10)
    return tmp_path


def test_every_verb_can_be_typed_as_the_one_before_says(
    here: Path, cli: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli.refuses("data info photos", "--resize 32")
    cli("data info photos --resize 8")
    out, err = cli(TRAIN)
    assert "val a fixed fifth of each class, because photos has no val" in err
    assert "16 images an epoch in batches of 16;" in err
    assert "crop 4, flip" in err
    certify, report, selector = proposed(out)
    assert "--trust own_nets:tiny" in selector
    out, err = cli(f"{certify} {QUICK}")
    assert "not split" not in err  # reported once, by train
    assert Run.open("runs/mine-certified").header["dataset"]["size"] == 4
    cli(f"{proposed(out)[1]} --replay 1")
    assert "resuming: 4 of 4 images are there" in cli(f"{certify} {QUICK}").err
    assert report == "report runs/mine-certified"
    cli(report)
    cascade = "tune runs/mine --goal cascade --trust own_nets:tiny"
    cascade = proposed(cli(f"{cascade} --n 60").out)[-1]
    assert "--split val --subset 1::2 " in cascade  # the half that tuning has not seen
    monkeypatch.chdir(here / "runs")  # the model knows where its images are
    cli(cascade.replace("runs/", ""), *QUICK.split())
    assert cascade.endswith(("runs/mine-cascade", "runs/mine-fixed"))  # one stage is one σ
    assert Run.open(cascade.rpartition("/")[2]).header["seen_in_tuning"] == 0
    description = describe("mine")
    assert (description.dataset, description.resize) == (str(here / "photos"), 8)
    (here / "photos").rename(here / "moved")
    moved = "which is not here; name its images with --data"
    cli.refuses(f"{certify.replace('runs/', '')}2 {QUICK}", moved)


def test_a_run_knows_its_image_files(here: Path, cli: Terminal) -> None:
    """Names and pixels stand in the rows: a changed file is noticed though none is read twice."""
    (here / "photos" / "dark" / "notes.txt").write_text("not an image")
    bright, dark = (here / "photos" / name / "0.png" for name in ("bright", "dark"))
    for value, path in ((150, bright), (60, dark)):  # files of equal length
        Image.fromarray(np.full((8, 8, 3), value, np.uint8)).save(path, compress_level=0)
    own = f"{SEEDED} --resize 16 --center-crop 8 --subset ::5 --out runs/own"
    known = "PNG, JPEG, BMP and WebP in class folders only"
    assert f"not read ({known}): 1 file or folder: dark/notes.txt" in cli(own).err
    record = Run.open("runs/own")
    assert record.header["config"]["center_crop"] == 8
    rows = record.rows()
    files = ["bright/0.png", "bright/5.png", "dark/0.png", "dark/5.png"]
    assert [row["file"] for row in rows] == files
    assert len({row["pixels"] for row in rows}) == 4
    cli("report export runs/own")
    assert "bright/5.png" in Path("runs/own.csv").read_text()
    cli("report runs/own")
    page = Path("report/own/report.html").read_text()
    assert 'alt="bright/5.png: bright"' in page
    assert "<p>dark/0.png</p>" in page
    assert "bright/5.png" in views.open_run("runs/own").table_html()
    verify = "verify runs/own --model own_nets:seeded"
    cli(f"{verify} --replay all")
    assert bright.stat().st_size == dark.stat().st_size
    saved = bright.read_bytes()
    bright.write_bytes(dark.read_bytes())
    cli.refuses(verify, "image 0: bright/0.png has changed since")
    bright.write_bytes(saved + b"0")
    cli.refuses(own, "--data holds other images or labels")


def test_two_runs_of_the_same_last_name(here: Path, cli: Terminal) -> None:
    """Each has a report of its own, and what to type next is quoted for the shell."""
    for folder in ("runs/a b/mine", "runs/c/mine"):
        first = proposed(cli(f"{SEEDED} --resize 8 --subset ::10 --out", folder).out)[0]
        assert main(shlex.split(first)) == 0
    assert sorted(path.name for path in Path("report").iterdir()) == ["a b-mine", "c-mine"]


def test_photographs_are_scaled_as_the_training_images_were(here: Path, cli: Terminal) -> None:
    cli(TRAIN)
    own = "--model runs/mine --trust own_nets:tiny"
    predicted = cli(f"predict photos/dark/0.png {own} --n 60").out
    assert re.match(r"0.png  .*σ 0.1  \d+ of \d+ votes", predicted)
    assert "resize 8, σ 0.1" in cli(f"{MINE} --data photos/dark/0.png --out runs/one").err
    verified = cli("verify runs/one --trust own_nets:tiny").out
    assert proposed(verified) == ["report export runs/one"]  # it has no label


def test_the_plan_says_what_chooses_the_level_and_why(cli: Terminal, tmp_path: Path) -> None:
    path = tmp_path / "x.png"
    Image.new("RGB", (32, 32)).save(path)
    words = f"predict {path} --model cifar10-universal-1.00 --n 20 --alpha null"
    for more, text in (
        ("", "0.707:0.5:0.4,0.5,0.354 (tuned for λ = 1, the model's default),"),
        ("--lam 0.1", "0.177:0.5:0.5,0.125 (tuned for λ = 0.1, the model's default),"),
        ("--n-median 3", "σ by selector at λ = 0.4, σ_a = 0.5, median at σ_m = 1,"),
        ("--selector median --n-median 3 --lam 0.2", "σ by selector at λ = 0.2,"),
        ("--selector fixed", "σ 0.5 (the middle of the levels that it was trained for),"),
        ("--sigma 1", "σ 1, n 20\n"),
        ("--cascade 0.5:0.6,0.1", "σ by cascade 0.5:0.6,0.1, n 20\n"),
    ):
        assert text in cli(f"{words} {more}").err


def test_training_images_are_never_certified_without_a_word(here: Path, cli: Terminal) -> None:
    cli(f"{TRAIN} --batch-size 8")
    assert "trained on 16 of these 20 images" in cli(f"{MINE} --out runs/all").err
    assert Run.open("runs/all").header["seen_in_training"] == 16
    assert "trained on" not in cli(f"{MINE} --subset ::2 --split val --out runs/val").err
    assert "The runs share no images" in cli("report runs/all runs/val").out
    cli(f"{MINE} --subset ::2 --out runs/even")
    both = "report runs/all runs/even --out both"
    assert "The runs are not on the same images" in cli(both).out
    assert "Of the 2 runs" in cli(f"{both} --common true").out
    page = Path("report/all-and-val/report.html")  # a page on `all` alone stays
    assert "trained on 16 of its 20 images" in page.read_text()


def test_settings_are_not_certified_on_the_images_that_chose_them_without_a_word(
    here: Path, cli: Terminal
) -> None:
    cli(f"{TRAIN} --batch-size 8")
    tuned = cli("tune runs/mine --goal cascade --n 60 --trust own_nets:tiny").out
    assert "certified on 2 images of photos" in tuned
    err = cli(f"{MINE} --split val --out runs/val").err
    assert "warning: the model's options were chosen on 2 of these 4" in err
    for i, more in enumerate(("--subset 1::2", "--sigma 0.2", "--cascade 0.2,0.1")):
        err = cli(f"{MINE} --split val {more} --out runs/unseen-{i}").err
        assert "warning" not in err
        assert "resuming" not in err
    cli("report runs/val")
    page = Path("report/val/report.html").read_text()
    assert "options were chosen on 2 of its 4 images" in page


def test_some_images_of_a_folder_are_of_all_its_classes(here: Path, cli: Terminal) -> None:
    """A constant classifier is right on half of them, not on all of the first class."""
    cli("adopt own_nets:Constant --data photos --resize 8 --n 20 --out f")
    cli("measure f --split test --images 4 --n 20 --trust own_nets:Constant")
    assert describe("f").classifier.metrics["test"]["plain_accuracy"] == 50  # type: ignore[union-attr]
    assert load_dataset("cifar10-sample").few(3).ids.tolist() == [0, 1, 2]


def test_a_search_proposes_what_can_be_reported(here: Path, cli: Terminal) -> None:
    cli(f"{TRAIN} --batch-size 8 --epochs 30")
    cli(f"{MINE} --split val --alpha 0.05 --out runs/val")
    search = "attack --against runs/val --steps 2 --n 20 --trust own_nets:tiny --out runs/search"
    (report,) = proposed(cli(search).out)
    cli(report)


def test_a_finished_model_is_left_as_it_is(here: Path, cli: Terminal) -> None:
    train = f"{TRAIN} --batch-size 8"
    assert "training steps in all: 2, which may be too few" in cli(train).err
    tune = "tune runs/mine --goal cascade --n 60 --trust own_nets:tiny"
    assert "votes: " in cli(tune).err  # a log shows how far it is
    tuned = Path("runs/mine/config.json").read_bytes()
    cli(train)
    cli.refuses(f"{train} --epochs 2", "(--epochs 1 there, 2 now); ")
    Path("runs/mine/state.pt").unlink()  # as a model that was adopted or copied
    other = "runs/mine holds a model that this command did not train"
    cli.refuses(f"{train} --epochs 2", other)
    assert Path("runs/mine/config.json").read_bytes() == tuned
    new = cli(f"{train.replace('runs/mine', 'runs/new')} --flip false").out
    assert any("--flip false" in words for words in proposed(new))


QUICKER = "--model cifar10-0.25 --sigma 0.25 --subset :2 --n 20 --alpha 0.1"
MEASURE = "measure cifar10-0.25 --data cifar10-sample --split test --images 2 --n 9"


@pytest.mark.parametrize(
    "words",
    [
        f"certify {QUICKER}",
        "models export cifar10-0.25",
        "adopt own_nets:tiny --data photos --resize 8",
        MEASURE,
    ],
)
def test_results_do_not_go_into_a_folder_of_other_things(
    words: str, here: Path, cli: Terminal
) -> None:
    others = "photos holds other files (bright, dark); choose a new folder"
    cli.refuses(f"{words} --out photos", others)
    assert sorted(path.name for path in Path("photos").glob("*")) == ["bright", "dark"]


def test_what_cannot_be_written_is_refused(here: Path, cli: Terminal) -> None:
    others = "photos/dark holds other files (0.png"
    cli.refuses(TRAIN.replace("runs/mine", "photos/dark"), others)
    assert not list(Path("photos/dark").glob("[!0-9]*"))
    nowhere = "choose another folder, then rerun the command"
    cli.refuses("certify --model cifar10-0.25 --out /proc/nowhere --n 20", nowhere)


def test_odd_images_are_one_sentence(here: Path, cli: Terminal) -> None:
    Image.new("L", (32, 32)).save("grey.png")
    grey = "trained on colour images, but those of grey.png are grey"
    cli.refuses("predict grey.png --model cifar10-0.25", grey)
    (here / "photos" / "dark").rename(here / "one")
    cli.refuses(TRAIN, "photos has one class; a classifier")
    for name in ("a b.png", "c.png"):
        (here / "photos" / "bright" / name).write_bytes(b"no image")
    more = "; repair or remove it (and 1 more: photos/bright/c.png)"
    cli.refuses("data info photos --resize 8", "a b.png cannot be read as an image", more)


def test_a_model_that_brings_its_scaling_is_adopted_with_it(here: Path, cli: Terminal) -> None:
    out = cli("adopt own_nets:scaled --data photos --images 4 --n 20 --out adopted").out
    about = describe("adopted")
    assert (about.resize, about.center_crop, about.interpolation) == (16, 8, "bilinear")
    assert ", resize=16, center_crop=8, interpolation='bilinear')" in out
    certify = "certify --model adopted --trust own_nets:scaled --out runs/adopted-certified"
    cli(f"{certify} --split val {QUICK}")
    config = Run.open("runs/adopted-certified").header["config"]
    assert (config["resize"], config["center_crop"]) == (16, 8)
