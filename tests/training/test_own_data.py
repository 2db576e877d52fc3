"""Training and tuning with the user's own images: the model's data set is the default."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.terminal import Terminal, write_photos
from varsmooth.cli.tune import after_selector
from varsmooth.defaults import MODEL
from varsmooth.errors import VarsmoothError
from varsmooth.evaluation.options import HeldOut, TuneOptions
from varsmooth.evaluation.tune.selector import Candidate, Tuning
from varsmooth.models.checkpoints import save
from varsmooth.models.descriptions import (
    Description,
    Part,
    describe,
    find,
    recommend,
    released_names,
)
from varsmooth.models.networks import build

SMALL = {"widths": [4, 4, 4, 4], "classes": 3}
TUNE = "--images 6 --n 20 --n-select 21 --goal clean --lams 0,0.3 --levels 3"


CLASSES = dict.fromkeys(("cat", "dog", "owl"), 0)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Three classes of 16×16 photographs, in the folders train and val."""
    for split, n in (("train", 4), ("val", 2)):
        write_photos(tmp_path / "photos" / split, n, (16, 16), CLASSES, spread=256)
    return tmp_path / "photos"


@pytest.fixture
def pair(tmp_path: Path, photos: Path) -> Path:
    about = Description(
        str(photos),
        tuple(CLASSES),
        0.25,
        image_shape=(3, 16, 16),
        classifier=Part("conv4", SMALL),
        selector=Part("attention", {"width": 8, "heads": 1}),
    )
    return write(tmp_path / "pair", about)


def write(folder: Path, about: Description) -> Path:
    """A model with these descriptions of its networks."""
    torch.manual_seed(0)
    parts = about.classifier, about.selector
    classifier, selector = (
        None if part is None else build(part.network, part.options) for part in parts
    )
    save(folder, about, classifier, selector)
    return folder


TRAIN = """train selector --epochs 1 --batch-size 4 --held-out-images 3
    --network-options.width 8 --network-options.heads 1"""


def test_a_selector_is_trained_on_the_data_of_its_classifier(
    pair: Path, photos: Path, tmp_path: Path, cli: Terminal
) -> None:
    classifier = write(tmp_path / "f", replace(describe(pair), selector=None))
    cli(f"{TRAIN} --classifier {classifier} --out {tmp_path / 'h'}")
    about = describe(tmp_path / "h")
    assert about.selector is not None
    assert about.selector.training["data"] == str(photos)
    assert about.selector.metrics["val"]["images"] == 3


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"class_names": ("cat", "dog", "fox")}, "the classes owl, which the model does not know"),
        ({"image_shape": (3, 32, 32)}, "trained on images of 32×32 pixels, but photos has 16×16"),
    ],
)
def test_data_that_do_not_fit_are_refused(
    change: dict[str, Any], sentence: str, pair: Path, tmp_path: Path, cli: Terminal
) -> None:
    write(pair, replace(describe(pair), **change))
    before = (pair / "config.json").read_text()
    train = f"{TRAIN} --classifier {pair} --out {tmp_path / 'h'}"
    for words in (f"tune {pair} {TUNE}", f"measure {pair} --images 6 --n 16 --n-select 3", train):
        cli.refuses(words, sentence)
    assert (pair / "config.json").read_text() == before


def test_more_labels_than_outputs_are_refused(pair: Path, tmp_path: Path, cli: Terminal) -> None:
    images = np.zeros((80, 16, 16, 3), np.uint8)
    np.savez(tmp_path / "ten.npz", images=images, labels=np.arange(80) // 10)
    many = "labels from 0 to 7, but the model knows 3 classes"
    cli.refuses(f"tune {pair} {TUNE} --images 16 --data {tmp_path / 'ten.npz'}", many)


NETS = """
import torch
from torch import nn

def grey():
    return nn.Sequential(nn.Flatten(), nn.Linear(256, 3))

def two():
    return nn.Sequential(nn.Flatten(), nn.Linear(768, 2))

class Pair(nn.Module):
    def forward(self, x):
        return x, x

class Three(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(768, 3)
    def forward(self, x):
        return self.linear(x.flatten(1))

class Together(Three):
    def forward(self, x):
        return super().forward(x - x.mean())

class Chance(Three):
    def forward(self, x):
        return super().forward(x) + torch.rand(len(x), 3)

class Strict(Three):
    def forward(self, x):
        assert x.min() >= 0 and x.max() <= 1, "not an image"
        return super().forward(x)

class Frozen(Three):
    def forward(self, x):
        with torch.no_grad():
            return super().forward(x)

class Empty(Three):
    def forward(self, x):
        return super().forward(x) * float("nan")

class Aside(Three):
    def forward(self, x):
        y = super().forward(x)
        return (y, y) if self.training else y

class Half(Three):
    def __init__(self):
        super().__init__()
        self.half()

class Awake(Three):
    def train(self, mode=True):
        return super().train(True)
    def forward(self, x):
        return nn.functional.dropout(super().forward(x), 0.5, self.training)

class Normed(Three):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
    def forward(self, x):
        return self.norm(super().forward(x))
"""


@pytest.mark.parametrize(
    ("network", "sentence"),
    [
        ("grey", "the classifier fails on torch.float32 images of 16×16 pixels with 3 channels"),
        ("two", "labels from 0 to 2, but the model knows 2 classes"),
        ("Pair", "must return one tensor of scores (1, classes)"),
        ("Pair", "not tuple; let its forward return the logits alone"),
        ("Together", "depends on the other images of its batch"),
        ("Chance", "returns different outputs for the same images"),
        ("Awake", "Awake stays in training mode: call .eval() on it, or let train(mode)"),
        ("Strict", "rejects pixels outside [0, 1] (not an image)"),
        ("Half", "call .float() on the network"),
    ],
)
def test_a_network_that_does_not_fit_is_refused_before_training(
    network: str, sentence: str, photos: Path, monkeypatch: pytest.MonkeyPatch, cli: Terminal
) -> None:
    monkeypatch.chdir(photos.parent)
    Path("misfits.py").write_text(NETS)
    train = f"train classifier --network misfits:{network} --sigma 0.25 --data photos --out f"
    cli.refuses(train, sentence)
    assert not Path("f").exists()


@pytest.mark.parametrize(
    ("network", "options", "sentence"),
    [
        ("Normed", "--batch-size 1", "on two or more images at a time: give a larger --batch-size"),
        ("Frozen", "", "no gradient in training; let its forward compute without torch.no_grad()"),
        ("Empty", "", "the network returns NaN before any step of training"),
        ("Aside", "", "returns a tuple in training; let its forward return the logits alone"),
        ("Three", "--learning-rate 1e9 --epochs 9", "a lower --learning-rate"),
        ("Three", "--network-options.classes 4", "has no option 'classes'; it takes none"),
    ],
)
def test_training_that_cannot_work_is_one_sentence(
    network: str,
    options: str,
    sentence: str,
    photos: Path,
    monkeypatch: pytest.MonkeyPatch,
    cli: Terminal,
) -> None:
    monkeypatch.chdir(photos.parent)
    Path("misfits.py").write_text(NETS)
    train = f"train classifier --network misfits:{network} --sigma 0.25 --data photos --out f"
    cli.refuses(f"{train} --trust misfits:{network} {options}", sentence)


def test_tune_uses_the_data_of_the_model(pair: Path, cli: Terminal) -> None:
    assert "on 3 images of photos val" in cli(f"tune {pair} {TUNE}").out


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


FEW = "--data cifar10-sample --images 4"


@pytest.mark.parametrize(
    ("words", "suffix"),
    [
        (f"tune MODEL {FEW} --n 20 --n-select 21 --lams 0,0.1 --levels 2 --unclipped 0", "tuned"),
        (f"measure MODEL {FEW} --n 16 --n-select 3", "measured"),
    ],
)
def test_released_models_are_never_changed(
    words: str, suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Terminal
) -> None:
    monkeypatch.chdir(tmp_path)
    name = "cifar10-0.25"
    words, before = words.replace("MODEL", name), contents(find(name))
    assert f"{name}-{suffix}" in cli(words).out
    cli(f"{words} --out mine")
    assert contents(find(name)) == before
    for copy in (f"{name}-{suffix}", "mine"):
        copied = contents(tmp_path / copy)
        assert copied["model.safetensors"] == before["model.safetensors"]
        assert copied["config.json"] != before["config.json"]
    cli.refuses(f"{words} --out {find('cifar10-0.50')}", "belongs to the package")


def test_a_description_of_a_released_model_cannot_be_written() -> None:
    with pytest.raises(VarsmoothError, match="never changed"):
        recommend(released_names()[0], {"lam": 0.5})


@pytest.mark.parametrize(("fixed", "single"), [(0.4, True), (0.3, True), (0.2, False)])
def test_tune_says_plainly_when_one_level_is_better(fixed: float, single: bool) -> None:
    best = Candidate(lam=0.2, sigma_m=0.25, levels=(0.1, 0.2), score=0.3)
    text = after_selector(
        Tuning(best, 0.125, fixed), MODEL, Path(MODEL), HeldOut(trust=["a:B"]), TuneOptions()
    )
    assert ("one σ for all images is at least as good" in text) == single
    assert (f"certify --model {MODEL} --trust a:B --sigma 0.125" in text) == single
    assert (f"certify --model {MODEL} --trust a:B --selector median --out" in text) != single
