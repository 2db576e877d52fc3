"""The guided path: a classifier of the user's own becomes a model that loads and certifies."""

from pathlib import Path

import numpy as np
import pytest

from tests.small_models import proposed
from tests.terminal import Terminal, write_photos
from varsmooth.data import load_source
from varsmooth.data.source import Source
from varsmooth.models.cards import card
from varsmooth.models.checkpoints import load_checkpoint
from varsmooth.models.descriptions import describe
from varsmooth.models.options import ModelOptions
from varsmooth.models.selection import resolve_selector
from varsmooth.training import ClassifierConfig, read_config
from varsmooth.training.adoption import _plan

NETS = """
import torch
from torch import nn

class Bright(nn.Module):
    def __init__(self):
        super().__init__()
        self.zero = nn.Parameter(torch.zeros(()))
    def forward(self, x):
        score = 20 * (x.mean(dim=(1, 2, 3)) - 0.5) + self.zero
        return torch.stack([score, -score], dim=1)

def seven():
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 7))

def make():
    return Bright()

class Dazzled(Bright):
    def forward(self, x):
        noisy = x.flatten(1).std(dim=1, keepdim=True) > 0.4
        return super().forward(x) + noisy * torch.tensor([100.0, 0.0])

class Normed(nn.Module):
    # statistics of images without noise: noise of 0.5 looks bright
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(3)
        self.norm.running_mean.fill_(0.5)
        self.norm.running_var.fill_(0.02)
        self.last = nn.Linear(3, 2)
        with torch.no_grad():
            self.last.weight.copy_(torch.tensor([[9.0] * 3, [-9.0] * 3]))
            self.last.bias.copy_(torch.tensor([-60.0, 60.0]))
    def forward(self, x):
        y = self.norm(x)
        return self.last((y + y ** 2).mean(dim=(2, 3)))

class Together(Bright):
    def forward(self, x):
        return super().forward(x - x.mean())

class Chance(Bright):
    def forward(self, x):
        return super().forward(x) + torch.rand(len(x), 2)

class Strict(Bright):
    def forward(self, x):
        assert x.min() >= 0 and x.max() <= 1, "not an image"
        return super().forward(x)

def needs(width):
    return nn.Linear(width, 2)

ready = Bright()

def ends():
    raise SystemExit(2)

def misfit():
    network = Bright()
    network.load_state_dict({"one": torch.zeros(())})
    return network

def number():
    return 3

def weightless():
    return nn.Flatten()

def bare():
    from transformers import ResNetConfig, ResNetForImageClassification
    sizes = {"embedding_size": 4, "hidden_sizes": [4, 4], "depths": [1, 1]}
    return ResNetForImageClassification(ResNetConfig(**sizes, layer_type="basic", num_labels=2))
"""


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "zoo_of_nets.py").write_text(NETS)
    (tmp_path / "broken_net.py").write_text("def make(:\n")
    (tmp_path / "project").mkdir()  # without __init__.py
    (tmp_path / "project" / "nets.py").write_text(NETS)
    pixels, labels = np.zeros((20, 8, 8, 3), np.uint8), np.repeat([1, 2], [18, 2])
    np.savez(tmp_path / "from_one.npz", images=pixels, labels=labels)
    return write_photos(tmp_path / "photos", 30, (8, 8))


def test_adopt_measures_saves_and_says_what_is_next(photos: Path, cli: Terminal) -> None:
    text, err = cli("adopt zoo_of_nets:make --data photos --out mine --n 50 --levels 0.1,0.5")
    assert "images at most 100 of photos val, val a fixed fifth of each class" in err
    certify = "certify --model mine --split val --subset 1::2 --trust zoo_of_nets:make --out"
    for part in (
        "6 images of photos val",
        "Accuracy of f without noise: 100 %.",
        f"varsmooth {certify}",
        "trained on all of photos, it has seen these images",
        "train it on load_dataset('photos', 'train')",
    ):
        assert part in text
    assert "outputs for" not in text
    about = describe("mine")
    assert about.image_shape == (3, 8, 8)
    assert about.class_names == ("bright", "dark")
    assert about.tuned is not None
    assert about.tuned.half  # the other half of val is left to certify
    assert about.classifier is not None
    assert about.classifier.metrics["val"]["smoothed_accuracy"]["0.1"] == 100
    assert "photos, not trained under noise here; default: σ_a" in card("mine", about)
    assert resolve_selector(about, ModelOptions()).reason == "the model's default"
    loaded = load_checkpoint("mine", trust=["zoo_of_nets:make"])
    assert type(loaded.classifier).__name__ == "Bright"


def test_a_classifier_that_knows_nothing_is_not_praised(photos: Path, cli: Terminal) -> None:
    adopt = "adopt zoo_of_nets:seven --data photos --n 20 --levels 0.1 --out mine"
    text = cli(adopt).out
    assert "not clearly better than chance" in text
    assert "7 outputs for 2 classes" in text
    train, again = proposed(text)
    assert again.strip() == "adopt zoo_of_nets:seven --data photos --split val --out mine-checked"
    assert train.startswith("train classifier --network zoo_of_nets:seven --initial mine --sigma")
    overrides = {"initial": "mine", "sigma": 0.1, "out": "x"}
    config = read_config(ClassifierConfig, overrides=overrides)
    assert config.data == str(Path("photos").resolve())  # those of the model to start from
    before = Path("mine/config.json").read_bytes()
    cli.refuses(adopt, "mine holds a model already, as adopt writes it; choose another --out")
    assert Path("mine/config.json").read_bytes() == before
    certify = "certify --model zoo_of_nets:seven --sigma 0.1 --n 20 --data photos --out runs/seven"
    assert "the model has 7 outputs, photos has 2 classes" in cli(certify).err


def test_a_level_of_guesses_is_not_recommended(photos: Path, cli: Terminal) -> None:
    adopt = "adopt zoo_of_nets:Dazzled --data photos --n 50 --levels 0.1,0.5 --out mine"
    output = cli(adopt).out.splitlines()
    radii = next(line for line in output if "average radius" in line).split()[-2:]
    assert float(radii[0]) < float(radii[1])  # one class for every image, and far away from others
    assert describe("mine").sigma_a == 0.1


def test_the_time_of_training_includes_measuring(photos: Path) -> None:
    source = Source(data="photos")
    plan = _plan(source, 0.5, 1.0)
    train, held_out = (len(load_source(source, split)) for split in ("train", "val"))
    assert plan is not None
    assert plan.minutes * 60 == pytest.approx(3 * train * plan.epochs + 2 * held_out * 100 * 5)


def test_every_command_that_follows_agrees_with_the_others(photos: Path, cli: Terminal) -> None:
    """Noise of 0.5 costs Dazzled half of its accuracy, so it is trained under noise first."""
    output = cli("adopt zoo_of_nets:Dazzled --data photos --n 50 --levels 0.5 --out mine").out
    every = "train it for every σ up to 0.5, as a cascade needs it: 200 epochs, about 1 min"
    assert every in output
    train, tune, certify, report = proposed(output)
    assert "--sigma 0.5 --universal true --epochs 200 --learning-rate 0.001" in train
    out, err = cli(f"{train} --n 20")
    assert "too few" not in err  # it starts from a trained network
    assert "train a classifier for every σ up to 0.5" in err
    assert "measured before and after training: " in err
    assert "  before  " in out
    assert describe("mine-noise").universal
    assert proposed(out)[:2] == [tune, certify]  # tune first; the other images are certified
    assert "--subset 1::2" in certify
    cli(f"{certify} --n 50")
    cli(report)
    assert "--trust zoo_of_nets:Dazzled" in cli("models export mine --out shared").out


@pytest.mark.parametrize(
    ("words", "code", "meant"),
    [
        ("certify photos/dark/0.png --model mine", 2, "--data photos/dark/0.png?"),
        ("certify --model zoo_of_nets.make", 1, "zoo_of_nets:make?"),
        ("certify mine", 2, "--model mine?"),
        ("adopt zoo_of_nets:make --data photos --sigma 0.5", 2, "--levels?"),
    ],
)
def test_what_was_meant(words: str, code: int, meant: str, photos: Path, cli: Terminal) -> None:
    cli.refuses(f"{words} --out x", f"did you mean {meant}", code=code)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("tune zoo_of_nets:make", "is code, not a model; run varsmooth adopt zoo_of_nets:make"),
        ("tune a_run", "a_run is a run, not a model; name the folder of the model"),
        ("tune a_model/config.json", "is a file of a model; name its folder, a_model"),
        ("train classifier --sigma 1 --initial net.pt --out x", "net.pt is a file, and a model is"),
    ],
)
def test_what_is_not_a_model(words: str, sentence: str, photos: Path, cli: Terminal) -> None:
    for path in ("a_run/run.json", "a_model/config.json"):
        Path(path).parent.mkdir()
        Path(path).write_text("{}")
    errors = cli(words, code=1).err
    assert sentence in errors
    assert "choose from" not in errors


def test_what_cannot_be_trained_on_is_adopted_whole(photos: Path, cli: Terminal) -> None:
    (photos / "dark").rename("dark")
    for path in sorted((photos / "bright").iterdir())[1:]:
        path.unlink()
    adopt = "adopt zoo_of_nets:bare --data photos --split test --n 20 --levels 0.1 --out mine"
    out, err = cli(adopt)
    assert "note: a bare transformers model receives unnormalised images" in err
    assert "a fixed fifth" not in err
    assert "train classifier" not in out
    assert "measuring 1 image, 20 votes" in err
    assert "note that it has 2 outputs for 1 class\n" in out
    assert "1 image of photos test, the classifier as it is" in out
    assert "of 1 image, too few to tell it from chance" in out
    assert describe("mine").class_names == ("bright",)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("zoo_of_nets:mkae --data photos", "has no attribute 'mkae'; did you mean make?"),
        ("broken_net:make --data photos", "broken_net:make cannot be imported: "),
        ("zoo_of_nets:weightless --data photos", "certify --model zoo_of_nets:weightless --sigma"),
        ("zoo_of_nets:weightless --data photos --resize 9", "--data photos --resize 9 --out runs"),
        ("project.nets --data photos", "a function of the module too, as in project.nets:make"),
        ("project.nets.make --data photos", "; did you mean project.nets:make?"),
        ("zoo_of_nets:make --data photos/dark/0.png", "0.png is one image; adopt measures on"),
        ("zoo_of_nets:make --data photos/dark", "photos/dark has no labels; adopt measures on"),
        ("zoo_of_nets.py:make --data photos", "name its module: zoo_of_nets:make"),
        ("zoo_of_nets:needs --data photos", "needs the argument width; it must be a function that"),
        ("zoo_of_nets:ready --data photos", "ready is a network itself; it must be a function"),
        ("zoo_of_nets:ends --data photos", "it ended the program, SystemExit(2); it must be a"),
        ("zoo_of_nets:misfit --data photos", 'for Bright: Missing key(s) in state_dict: "zero".'),
        ("./zoo_of_nets:make --data photos", "did you mean zoo_of_nets:make?"),
        ("./zoo_of_nets.py:make --data photos", "name its module: zoo_of_nets:make"),
        ("zoo_of_nets:number --data photos", "must return an nn.Module, not int"),
        ("zoo_of_nets --data photos", "package.module:name; name a function of the module too"),
        ("zoo_of_nets.make --data photos", "package.module:name; did you mean zoo_of_nets:make?"),
        ("zoo_of_nets:Together --data photos", "depends on the other images of its batch"),
        ("zoo_of_nets:Chance --data photos", "returns different outputs for the same images"),
        ("zoo_of_nets:Strict --data photos", "rejects pixels outside [0, 1] (not an image)"),
        ("zoo_of_nets:make --data photos --n 9", "certify nothing; at least 10 are needed"),
        ("zoo_of_nets:make --data cifar10-sample", "labels from 0 to 9, but the model knows 2"),
        ("zoo_of_nets:make --data from_one.npz", "go from 1 to 2, where the network has 2 outputs"),
    ],
)
def test_what_cannot_be_adopted(words: str, sentence: str, photos: Path, cli: Terminal) -> None:
    cli.refuses(f"adopt {words} --out mine", sentence)
    assert not Path("mine").exists()


def test_batch_norm_is_named_and_lost_accuracy_is_warned_of(photos: Path, cli: Terminal) -> None:
    text = cli("adopt zoo_of_nets:Normed --data photos --n 20 --levels 0.1,0.5 --out mine").out
    assert "noise of σ = 0.5 costs 50 points of accuracy" in text
    assert "BatchNorm in 1 layer (norm) has the statistics of images without noise" in text
    assert "20 votes certify at most" in text  # the zeros of the table are not the classifier's
    options = "--n 20 --universal false --sigma 100 --epochs 30 --learning-rate 0.5"
    spoilt = cli(f"{proposed(text)[0]} {options}").out
    assert "warning: accuracy without noise fell by" in spoilt
    assert "--initial mine-noise --epochs 60 --out mine-noise-longer to train longer" in spoilt
    assert "--universal true --sigma-power 2 --out mine-noise-new for more of the sm" in spoilt
