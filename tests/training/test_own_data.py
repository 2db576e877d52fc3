"""Training and tuning with the user's own images: the model's data set is the default."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tests.small_models import run
from varsmooth.cli.tune import after_selector
from varsmooth.defaults import MODEL
from varsmooth.errors import VarsmoothError
from varsmooth.evaluation.options import HeldOut
from varsmooth.evaluation.tune.selector import Setting, Tuning
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


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Three classes of 16×16 photographs, in the folders train and val."""
    rng = np.random.default_rng(0)
    for split, n in (("train", 4), ("val", 2)):
        for name in ("cat", "dog", "owl"):
            folder = tmp_path / "photos" / split / name
            folder.mkdir(parents=True)
            for i in range(n):
                pixels = rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{i}.png")
    return tmp_path / "photos"


@pytest.fixture
def classifier(tmp_path: Path, photos: Path) -> Path:
    torch.manual_seed(0)
    about = Description(
        str(photos),
        ("cat", "dog", "owl"),
        0.25,
        image_shape=(3, 16, 16),
        classifier=Part("conv4", SMALL),
    )
    save(tmp_path / "f", about, classifier=build("conv4", SMALL))
    return tmp_path / "f"


@pytest.fixture
def pair(tmp_path: Path, classifier: Path) -> Path:
    about = describe(classifier)
    options = {"width": 8, "heads": 1}
    torch.manual_seed(0)
    save(
        tmp_path / "pair",
        Description(**{**vars(about), "selector": Part("attention", options)}),
        classifier=build("conv4", SMALL),
        selector=build("attention", options),
    )
    return tmp_path / "pair"


def train_selector(classifier: Path, out: Path, *more: str) -> int:
    words = f"train selector --classifier {classifier} --out {out} --epochs 1 --batch-size 4"
    small = "--held-out-images 3 --network-options.width 8 --network-options.heads 1"
    return run(f"{words} {small}", *more)


def test_a_selector_is_trained_on_the_data_of_its_classifier(
    classifier: Path, photos: Path, tmp_path: Path
) -> None:
    assert train_selector(classifier, tmp_path / "h") == 0
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
    change: dict[str, object],
    sentence: str,
    pair: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    about = Description(**{**vars(describe(pair)), **change})
    torch.manual_seed(0)
    save(pair, about, build("conv4", SMALL), build("attention", {"width": 8, "heads": 1}))
    before = (pair / "config.json").read_text()
    for words in (f"tune {pair} {TUNE}", f"measure {pair} --images 6 --n 16 --n-select 3"):
        assert run(words) == 1
        assert sentence in capsys.readouterr().err
    assert train_selector(pair, tmp_path / "h") == 1
    assert sentence in capsys.readouterr().err
    assert (pair / "config.json").read_text() == before


def test_more_labels_than_outputs_are_refused(
    pair: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images = np.zeros((80, 16, 16, 3), np.uint8)
    np.savez(tmp_path / "ten.npz", images=images, labels=np.arange(80) // 10)
    words = f"tune {pair} {TUNE} --images 16 --data"
    assert run(words, tmp_path / "ten.npz") == 1
    assert "labels from 0 to 7, but the model knows 3 classes" in capsys.readouterr().err


NETS = """
from torch import nn

def grey():
    return nn.Sequential(nn.Flatten(), nn.Linear(256, 3))

def two():
    return nn.Sequential(nn.Flatten(), nn.Linear(768, 2))

class Pair(nn.Module):
    def forward(self, x):
        return x, x
"""


@pytest.mark.parametrize(
    ("network", "sentence"),
    [
        ("grey", "the classifier fails on torch.float32 images of 16×16 pixels with 3 channels"),
        ("two", "labels from 0 to 2, but the model knows 2 classes"),
        ("Pair", "must return one tensor of scores (1, classes)"),
    ],
)
def test_a_network_that_does_not_fit_is_refused_before_training(
    network: str,
    sentence: str,
    photos: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(photos.parent)
    Path("misfits.py").write_text(NETS)
    words = f"train classifier --network misfits:{network} --sigma 0.25 --data photos --out f"
    assert run(words) == 1
    assert sentence in capsys.readouterr().err
    assert not Path("f").exists()


def test_tune_uses_the_data_of_the_model(pair: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(f"tune {pair} {TUNE}") == 0
    assert "on 3 images of photos val" in capsys.readouterr().out


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("verb", "options"),
    [
        ("tune", "--data cifar10-sample --images 4 --n 20 --n-select 21 --lams 0,0.1 --levels 2"),
        ("measure", "--data cifar10-sample --images 4 --n 16 --n-select 3"),
    ],
)
def test_released_models_are_never_changed(
    verb: str,
    options: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    name = "cifar10-0.25"
    before = contents(find(name))
    suffix = {"tune": "tuned --unclipped 0", "measure": "measured"}[verb].split()
    assert run(f"{verb} {name} {options}", *suffix[1:]) == 0
    assert f"{name}-{suffix[0]}" in capsys.readouterr().out
    assert run(f"{verb} {name} {options} --out mine", *suffix[1:]) == 0
    assert contents(find(name)) == before
    for copy in (f"{name}-{suffix[0]}", "mine"):
        assert (tmp_path / copy / "model.safetensors").read_bytes() == before["model.safetensors"]
        assert (tmp_path / copy / "config.json").read_bytes() != before["config.json"]
    assert run(f"{verb} {name} {options} --out {find('cifar10-0.50')}", *suffix[1:]) == 1
    assert "belongs to the package" in capsys.readouterr().err


def test_a_description_of_a_released_model_cannot_be_written() -> None:
    with pytest.raises(VarsmoothError, match="never changed"):
        recommend(released_names()[0], {"lam": 0.5})


@pytest.mark.parametrize(("fixed", "single"), [(0.4, True), (0.3, True), (0.2, False)])
def test_tune_says_plainly_when_one_level_is_better(fixed: float, single: bool) -> None:
    best = Setting(lam=0.2, sigma_m=0.25, levels=(0.1, 0.2), score=0.3)
    text = after_selector(Tuning(best, 0.125, fixed), MODEL, Path(MODEL), HeldOut(trust=["a:B"]))
    assert ("one σ for all images is at least as good" in text) == single
    assert (f"certify --model {MODEL} --trust a:B --sigma 0.125" in text) == single
    assert (f"certify --model {MODEL} --trust a:B --selector median --out" in text) != single
