"""A newcomer's path: photographs of many sizes and a network of one's own, by the printed words."""

import hashlib
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.small_models import proposed, run
from varsmooth.app import views
from varsmooth.cli import main
from varsmooth.data import load_dataset
from varsmooth.evaluation.headers import header_file
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
"""
TRAIN = "train classifier --network own_nets:tiny --sigma 0.1 --epochs 1 --n 10 --out runs/mine"
QUICK = " --n 60 --n0 20"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with twenty photographs of different sizes, not split."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_nets.py").write_text(NETS)
    rng = np.random.default_rng(0)
    for name, base in (("bright", 150), ("dark", 60)):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(10):
            shape = (*rng.integers(9, 30, 2), 3)
            pixels = rng.integers(base, base + 40, shape, dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{i}.png")
    return tmp_path


def test_every_verb_can_be_typed_as_the_one_before_says(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("data info photos") == 1
    assert "--resize 32" in capsys.readouterr().err
    assert run("data info photos --resize 8") == 0
    assert run(f"{TRAIN} --data photos --resize 8") == 0
    captured = capsys.readouterr()
    assert "val a fixed fifth of each class, because photos has no val" in captured.err
    assert "16 images an epoch in batches of 16;" in captured.err
    assert "crop 4, flip" in captured.err
    certify, cascade, selector = proposed(captured.out)
    assert "--trust own_nets:tiny" in selector
    assert run(certify + QUICK) == 0
    verify = proposed(capsys.readouterr().out)[1]
    assert run(f"{verify} --replay 1") == 0
    assert Run.open("runs/mine-certified").header["dataset"]["size"] == 4
    assert "not split" not in capsys.readouterr().err  # reported once, by train
    assert run(f"{certify}{QUICK}") == 0
    assert "resuming: 4 of 4 images are there" in capsys.readouterr().err
    assert run(f"{cascade} --n 60") == 0
    cascade = proposed(capsys.readouterr().out)[-1]
    assert "--split val --subset 1::2 " in cascade  # the half that tuning has not seen
    monkeypatch.chdir(here / "runs")  # the model knows where its images are
    assert run(cascade.replace("runs/", "") + QUICK) == 0
    assert cascade.endswith(("runs/mine-cascade", "runs/mine-fixed"))  # one stage is one σ
    assert Run.open(cascade.rpartition("/")[2]).header["seen_in_tuning"] == 0
    description = describe("mine")
    assert (description.dataset, description.resize) == (str(here / "photos"), 8)
    (here / "photos").rename(here / "moved")
    capsys.readouterr()
    assert run(f"{certify.replace('runs/', '')}2{QUICK}") == 1
    assert "which is not here; name its images with --data" in capsys.readouterr().err


def test_a_run_knows_its_image_files(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Names and pixels stand in the rows: a changed file is noticed though none is read twice."""
    (here / "photos" / "dark" / "notes.txt").write_text("not an image")
    bright, dark = (here / "photos" / name / "0.png" for name in ("bright", "dark"))
    for value, path in ((150, bright), (60, dark)):  # files of equal length
        Image.fromarray(np.full((8, 8, 3), value, np.uint8)).save(path, compress_level=0)
    own = "certify --model own_nets:seeded --sigma 0.1 --data photos --resize 16 --center-crop 8"
    assert run(f"{own}{QUICK} --subset ::5 --out runs/own") == 0
    assert "not read, beside the images: 1 file or folder: dark/notes.txt" in (
        capsys.readouterr().err
    )
    record = Run.open("runs/own")
    assert record.header["config"]["center_crop"] == 8
    rows = record.rows()
    assert [row["file"] for row in rows] == [
        *("bright/0.png", "bright/5.png", "dark/0.png", "dark/5.png")
    ]
    assert len({row["pixels"] for row in rows}) == 4
    assert run("report export runs/own") == 0
    assert "bright/5.png" in Path("runs/own.csv").read_text()
    assert run("report runs/own") == 0
    page = Path("report/own/report.html").read_text()
    assert 'alt="bright/5.png: bright"' in page
    assert "<p>dark/0.png</p>" in page
    assert "bright/5.png" in views.open_run("runs/own").table_html()
    verify = "verify runs/own --model own_nets:seeded"
    assert run(f"{verify} --replay all") == 0
    assert bright.stat().st_size == dark.stat().st_size
    saved = bright.read_bytes()
    bright.write_bytes(dark.read_bytes())
    capsys.readouterr()
    assert run(verify) == 1
    assert "image 0: bright/0.png is another image now" in capsys.readouterr().err
    bright.write_bytes(saved + b"0")
    assert run(f"{own}{QUICK} --subset ::5 --out runs/own") == 1
    assert "--data holds other images or labels" in capsys.readouterr().err


def test_two_runs_of_the_same_last_name(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each has a report of its own, and what to type next is quoted for the shell."""
    own = "certify --model own_nets:seeded --sigma 0.1 --data photos --resize 8 --subset ::10"
    for folder in ("runs/a b/mine", "runs/c/mine"):
        words = [*f"{own}{QUICK}".split(), "--out", folder]
        capsys.readouterr()
        assert main(words) == 0
        first = proposed(capsys.readouterr().out)[0]
        assert main(shlex.split(first)) == 0
    assert sorted(path.name for path in Path("report").iterdir()) == ["a b-mine", "c-mine"]


def test_a_run_of_an_older_varsmooth_on_image_files_is_verified_by_its_pixels(here: Path) -> None:
    own = "certify --model own_nets:seeded --sigma 0.1 --data photos --resize 8 --subset ::5"
    assert run(f"{own}{QUICK} --out runs/own") == 0
    header = json.loads(Path("runs/own/run.json").read_text())
    images = load_dataset("photos", resize=8)[::5]
    digest = hashlib.sha256(images.images.tobytes())
    digest.update(images.known_labels.tobytes() + images.ids.tobytes())
    header["dataset"]["digest"] = digest.hexdigest()
    Path("runs/own/run.json").write_bytes(header_file(header))
    assert run("verify runs/own --model own_nets:seeded") == 0
    assert run(f"{own}{QUICK} --out runs/own") == 0
    header["dataset"]["digest"] = digest.hexdigest()[::-1]
    Path("runs/own/run.json").write_bytes(header_file(header))
    assert run("verify runs/own --model own_nets:seeded") == 1


def test_photographs_are_scaled_as_the_training_images_were(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(f"{TRAIN} --data photos --resize 8") == 0
    own = "--model runs/mine --trust own_nets:tiny"
    capsys.readouterr()
    assert run(f"predict photos/dark/0.png {own} --n 60") == 0
    assert re.match(r"0.png  .*σ 0.1  \d+ of \d+ votes", capsys.readouterr().out)
    assert run(f"certify --data photos/dark/0.png {own} --out runs/one{QUICK}") == 0
    assert "resize 8, σ 0.1" in capsys.readouterr().err
    assert run("verify runs/one --trust own_nets:tiny") == 0
    assert proposed(capsys.readouterr().out) == ["report export runs/one"]  # it has no label


def test_the_plan_says_what_chooses_the_level_and_why(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "x.png"
    Image.new("RGB", (32, 32)).save(path)
    words = f"predict {path} --model cifar10-universal-1.00 --n 20 --alpha null"
    for more, text in (
        ("", "σ by cascade 0.707,0.5,0.25,0.125 (tuned for λ = 1, the model's default),"),
        ("--lam 0.1", "σ by cascade 0.25,0.125 (tuned for λ = 0.1, the model's default),"),
        ("--n-median 3", "σ by selector at λ = 0.4, σ_a = 0.5, median at σ_m = 1,"),
        ("--selector median --n-median 3 --lam 0.2", "σ by selector at λ = 0.2,"),
        ("--selector fixed", "σ 0.5 (the middle of the levels that it was trained for),"),
        ("--sigma 1", "σ 1, n 20\n"),
        ("--cascade 0.5:0.6,0.1", "σ by cascade 0.5:0.6,0.1, n 20\n"),
    ):
        assert run(f"{words} {more}") == 0
        assert text in capsys.readouterr().err


def test_training_images_are_never_certified_without_a_word(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(f"{TRAIN} --data photos --resize 8 --batch-size 8") == 0
    words = f"certify --model runs/mine --trust own_nets:tiny{QUICK}"
    assert run(f"{words} --out runs/all") == 0
    assert "trained on 16 of these 20 images" in capsys.readouterr().err
    assert Run.open("runs/all").header["seen_in_training"] == 16
    assert run(f"{words} --subset ::2 --split val --out runs/val") == 0
    assert "trained on" not in capsys.readouterr().err
    assert run("report runs/all runs/val") == 0
    assert "The runs share no images" in capsys.readouterr().out
    assert run(f"{words} --subset ::2 --out runs/even") == 0
    assert run("report runs/all runs/even --out both") == 0
    assert "The runs are not on the same images" in capsys.readouterr().out
    assert run("report runs/all runs/even --out both --common true") == 0
    assert "Of the 2 runs" in capsys.readouterr().out
    page = Path("report/all-and-val/report.html")  # a page on `all` alone stays
    assert "trained on 16 of its 20 images" in page.read_text()


def test_settings_are_not_certified_on_the_images_that_chose_them_without_a_word(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(f"{TRAIN} --data photos --resize 8 --batch-size 8") == 0
    assert run("tune runs/mine --goal cascade --n 60 --trust own_nets:tiny") == 0
    assert "certified on 2 images of photos" in capsys.readouterr().out
    words = f"certify --model runs/mine --trust own_nets:tiny --split val{QUICK}"
    assert run(f"{words} --out runs/val") == 0
    assert "warning: the model's options were chosen on 2 of these 4" in capsys.readouterr().err
    for i, more in enumerate(("--subset 1::2", "--sigma 0.2", "--cascade 0.2,0.1")):
        assert run(f"{words} {more} --out runs/unseen-{i}") == 0
        said = capsys.readouterr().err
        assert "warning" not in said
        assert "resuming" not in said
    assert run("report runs/val") == 0
    said = Path("report/val/report.html").read_text()
    assert "options were chosen on 2 of its 4 images" in said


def test_some_images_of_a_folder_are_of_all_its_classes(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A constant classifier is right on half of them, not on all of the first class."""
    (here / "constant.py").write_text(
        "import torch\n\nclass Constant(torch.nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n"
        "        self.bias = torch.nn.Parameter(torch.tensor([1.0, 0.0]))\n\n"
        "    def forward(self, x):\n        return self.bias.expand(len(x), 2)\n"
    )
    trust = "--trust constant:Constant"
    assert run("adopt constant:Constant --data photos --resize 8 --n 20 --out f") == 0
    assert run(f"measure f --split test --images 4 --n 20 {trust}") == 0
    assert describe("f").classifier.metrics["test"]["plain_accuracy"] == 50  # type: ignore[union-attr]
    assert load_dataset("cifar10-sample").few(3).ids.tolist() == [0, 1, 2]


def test_a_search_proposes_what_can_be_reported(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(f"{TRAIN} --data photos --resize 8 --batch-size 8 --epochs 30") == 0
    words = f"certify --model runs/mine --trust own_nets:tiny --split val{QUICK} --alpha 0.05"
    assert run(f"{words} --out runs/val") == 0
    capsys.readouterr()
    search = "attack --against runs/val --steps 2 --n 20 --trust own_nets:tiny --out runs/search"
    assert run(search) == 0
    (report,) = proposed(capsys.readouterr().out)
    assert run(report) == 0


def test_a_finished_model_is_left_as_it_is(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train = f"{TRAIN} --data photos --resize 8 --batch-size 8"
    assert run(train) == 0
    assert "training steps in all: 2, which may be too few" in capsys.readouterr().err
    assert run("tune runs/mine --goal cascade --n 60 --trust own_nets:tiny") == 0
    assert "votes: " in capsys.readouterr().err  # a log shows how far it is
    tuned = Path("runs/mine/config.json").read_bytes()
    assert run(train) == 0
    assert run(f"{train} --epochs 2") == 1
    assert "(--epochs 1 there, 2 now); " in capsys.readouterr().err
    Path("runs/mine/state.pt").unlink()  # as a model that was adopted or copied
    assert run(f"{train} --epochs 2") == 1
    assert "runs/mine holds a model that this command did not train" in capsys.readouterr().err
    assert Path("runs/mine/config.json").read_bytes() == tuned
    assert run(f"{train.replace('runs/mine', 'runs/new')} --flip false") == 0
    assert any("--flip false" in words for words in proposed(capsys.readouterr().out))


def test_results_do_not_go_into_a_folder_of_other_things(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "--model cifar10-0.25 --sigma 0.25 --subset :2 --n 20 --alpha 0.1 --out photos"
    assert run(f"certify {words}") == 1
    assert "photos holds other files (bright, dark); choose a new folder" in capsys.readouterr().err
    assert sorted(path.name for path in Path("photos").glob("*")) == ["bright", "dark"]
    assert run("models export cifar10-0.25 --out photos") == 1
    assert "photos holds other files (bright, dark)" in capsys.readouterr().err
    for words in (
        "adopt own_nets:tiny --data photos --resize 8 --out photos",
        "measure cifar10-0.25 --data cifar10-sample --split test --images 2 --n 9 --out photos",
    ):
        assert run(words) == 1
        assert "photos holds other files (bright, dark)" in capsys.readouterr().err
    assert run(f"{TRAIN} --data photos --resize 8 --out photos/dark") == 1
    assert "photos/dark holds other files (0.png" in capsys.readouterr().err
    assert not list(Path("photos/dark").glob("[!0-9]*"))
    assert run("certify --model cifar10-0.25 --out /proc/nowhere --n 20") == 1
    assert "choose another folder, then rerun the command" in capsys.readouterr().err


def test_odd_images_are_one_sentence(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Image.new("L", (32, 32)).save("grey.png")
    assert run("predict grey.png --model cifar10-0.25") == 1
    output = capsys.readouterr().err
    assert "trained on colour images, but those of grey.png are grey" in output
    (here / "photos" / "dark").rename(here / "one")
    assert run(f"{TRAIN} --data photos --resize 8") == 1
    assert "photos has one class; a classifier" in capsys.readouterr().err
    for name in ("a b.png", "c.png"):
        (here / "photos" / "bright" / name).write_bytes(b"no image")
    assert run("data info photos --resize 8") == 1
    output = capsys.readouterr().err
    assert "a b.png cannot be read as an image" in output
    assert "; repair or remove it (and 1 more: photos/bright/c.png)" in output


def test_a_model_that_brings_its_scaling_is_adopted_with_it(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("adopt own_nets:scaled --data photos --images 4 --n 20 --out adopted") == 0
    about = describe("adopted")
    assert (about.resize, about.center_crop, about.interpolation) == (16, 8, "bilinear")
    output = capsys.readouterr().out
    assert ", resize=16, center_crop=8, interpolation='bilinear')" in output
    certify = "certify --model adopted --trust own_nets:scaled --out runs/adopted-certified"
    assert run(f"{certify} --split val{QUICK}") == 0
    config = Run.open("runs/adopted-certified").header["config"]
    assert (config["resize"], config["center_crop"]) == (16, 8)
