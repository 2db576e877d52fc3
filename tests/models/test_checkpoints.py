"""Models on disk: the round trip, and one clear sentence for every file that is not right."""

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

from varsmooth._util.fingerprints import fingerprint
from varsmooth.errors import VarsmoothError
from varsmooth.models.checkpoints import Checkpoint, load_checkpoint, save
from varsmooth.models.descriptions import Description, Part, describe, released_names
from varsmooth.models.networks import ConfidenceSelector, Conv4

OPTIONS = {"widths": [8, 8, 8, 8], "norm": "batch"}


class OwnNetwork(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(3 * size * size, 10)


def describes(**changes: object) -> Description:
    values: dict[str, object] = {
        "dataset": "cifar10",
        "class_names": ("cat", "dog"),
        "sigma_a": 0.25,
        "classifier": Part("conv4", dict(OPTIONS), seed=3, metrics={"accuracy": 75.0}),
    }
    return Description(**{**values, **changes})  # type: ignore[arg-type]


@pytest.fixture
def classifier() -> Conv4:
    torch.manual_seed(0)
    return Conv4(widths=(8, 8, 8, 8), norm="batch")


@pytest.fixture
def folder(tmp_path: Path, classifier: Conv4) -> Path:
    save(tmp_path / "model", describes(), classifier=classifier)
    return tmp_path / "model"


def pair(tmp_path: Path, classifier: Conv4) -> Checkpoint:
    torch.manual_seed(1)
    selector = ConfidenceSelector(classes=10)
    selector.attach(classifier)
    description = describes(
        selector=Part("confidence", {"classes": 10}),
        selector_sigma=0.25,
        sigma_t=0.5,
        lam_range=(0.0, 1.0),
        recommended={"sigma_m": 0.25, "clip": [0.16, 0.24]},
    )
    save(tmp_path / "pair", description, classifier=classifier, selector=selector)
    return load_checkpoint(tmp_path / "pair")


def test_classifier_round_trip(folder: Path, classifier: Conv4) -> None:
    loaded = load_checkpoint(str(folder))
    assert loaded.selector is None
    assert loaded.classifier is not None
    assert not loaded.classifier.training
    assert fingerprint(loaded.classifier) == fingerprint(classifier)
    part = loaded.description.classifier
    assert part is not None
    assert (part.fingerprint, part.seed) == (fingerprint(classifier), 3)
    assert part.metrics == {"accuracy": 75.0}
    assert loaded.description.class_names == ("cat", "dog")


def test_pair_round_trip_gives_the_same_levels(tmp_path: Path, classifier: Conv4) -> None:
    loaded = pair(tmp_path, classifier.eval())
    assert loaded.selector is not None
    torch.manual_seed(1)
    selector = ConfidenceSelector(classes=10)  # the one that was saved
    selector.attach(classifier)
    inputs = torch.rand(2, 3, 32, 32), torch.full((2,), 0.25), torch.zeros(2)
    torch.testing.assert_close(loaded.selector(*inputs), selector(*inputs))
    assert loaded.description.lam_range == (0.0, 1.0)
    assert loaded.description.recommended["clip"] == [0.16, 0.24]


def test_a_pair_holds_the_classifier_once(tmp_path: Path, folder: Path, classifier: Conv4) -> None:
    pair(tmp_path, classifier)
    sizes = [(p / "model.safetensors").stat().st_size for p in (folder, tmp_path / "pair")]
    assert sizes[1] - sizes[0] < 50_000


def test_half_precision_is_smaller_and_named_by_what_is_loaded(
    tmp_path: Path, folder: Path, classifier: Conv4
) -> None:
    description = save(tmp_path / "half", describes(), classifier=classifier, precision="float16")
    loaded = load_checkpoint(tmp_path / "half")
    assert loaded.classifier is not None
    assert description.classifier is not None
    assert description.classifier.fingerprint == fingerprint(loaded.classifier)
    assert fingerprint(loaded.classifier) != fingerprint(classifier)
    assert next(loaded.classifier.parameters()).dtype == torch.float32
    weights = "model.safetensors"
    assert (tmp_path / "half" / weights).stat().st_size < (folder / weights).stat().st_size


def test_released_models_load() -> None:
    for name in released_names():
        assert load_checkpoint(name).description.sigma_a > 0


def edit(folder: Path, **changes: object) -> None:
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**values, **changes}))


def remove_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    assert describe(folder).sigma_a == 0.25  # which is read without them


def truncate_weights(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])


def pickle_weights(folder: Path) -> None:
    torch.save({"classifier": OwnNetwork(2).state_dict()}, folder / "model.safetensors")


def train_again(folder: Path) -> None:
    other = Conv4(widths=(8, 8, 8, 8), norm="batch")
    save(folder.parent / "other", describes(), classifier=other)
    (folder.parent / "other/model.safetensors").replace(folder / "model.safetensors")


def describe_otherwise(text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / "config.json").write_text(text)


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (remove_weights, "there is no file"),
        (truncate_weights, "truncated"),
        (pickle_weights, "not a safetensors file"),
        (train_again, "fingerprints differ"),
        (
            partial(edit, classifier={"network": "conv4", "options": {}, "fingerprint": ""}),
            r"do not fit the classifier .*; copy both files",
        ),
        (describe_otherwise("{"), "not readable as JSON"),
        (
            describe_otherwise('{"model_type": "bert"}'),
            "not describe a model of varsmooth; varsmooth adopt makes",
        ),
        (partial(edit, format=99), "update varsmooth"),
        (partial(edit, surprise=1), "surprise is unknown"),
        (shutil.rmtree, "neither a folder"),
    ],
)
def test_what_is_not_right_is_one_sentence(
    damage: Callable[[Path], object], sentence: str, folder: Path
) -> None:
    damage(folder)
    with pytest.raises(VarsmoothError, match=sentence):
        load_checkpoint(folder)


def test_a_misspelled_folder_is_told_from_those_beside_it(tmp_path: Path) -> None:
    (tmp_path / "my_model").mkdir()
    (tmp_path / "my_model" / "config.json").touch()
    with pytest.raises(VarsmoothError, match=r"did you mean .*/my_model\?"):
        load_checkpoint(tmp_path / "my_modle")


def test_own_network_is_imported_only_when_trusted(tmp_path: Path) -> None:
    path = f"{__name__}:OwnNetwork"
    save(tmp_path, describes(classifier=Part(path, {"size": 4})), classifier=OwnNetwork(4))
    with pytest.raises(VarsmoothError, match="if you trust"):
        load_checkpoint(tmp_path)
    assert type(load_checkpoint(tmp_path, trust=[path]).classifier).__name__ == "OwnNetwork"
    for wrong in (True, f"{path}2"):  # a string is not searched for the path
        with pytest.raises(VarsmoothError, match="trust must be a list of import paths"):
            load_checkpoint(tmp_path, trust=wrong)  # type: ignore[arg-type]


def test_nothing_to_save(tmp_path: Path) -> None:
    with pytest.raises(VarsmoothError, match="needs a classifier, a selector or both"):
        save(tmp_path, describes(classifier=None))
