"""Models on disk: the round trip, and one clear sentence for every file that is not right."""

import json
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


def test_description_is_read_without_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    assert describe(folder).sigma_a == 0.25


def test_released_models_load() -> None:
    for name in released_names():
        assert load_checkpoint(name).description.sigma_a > 0


def test_unknown_name() -> None:
    with pytest.raises(VarsmoothError, match="neither a folder"):
        load_checkpoint("no-such-model")


def test_truncated_weights(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(VarsmoothError, match="truncated"):
        load_checkpoint(folder)


def test_pickle_in_place_of_weights_is_never_run(folder: Path) -> None:
    torch.save({"classifier": OwnNetwork(2).state_dict()}, folder / "model.safetensors")
    with pytest.raises(VarsmoothError, match="not a safetensors file"):
        load_checkpoint(folder)


def test_missing_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(VarsmoothError, match="there is no file"):
        load_checkpoint(folder)


def edit(folder: Path, **changes: object) -> None:
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**values, **changes}))


def test_weights_of_another_network(folder: Path, tmp_path: Path) -> None:
    edit(folder, classifier={"network": "conv4", "options": {}, "fingerprint": ""})
    with pytest.raises(VarsmoothError, match=r"do not fit the classifier .*; copy both files"):
        load_checkpoint(folder)


def test_weights_of_another_training(folder: Path, tmp_path: Path) -> None:
    save(tmp_path / "other", describes(), classifier=Conv4(widths=(8, 8, 8, 8), norm="batch"))
    (folder / "model.safetensors").write_bytes((tmp_path / "other/model.safetensors").read_bytes())
    with pytest.raises(VarsmoothError, match="fingerprints differ"):
        load_checkpoint(folder)


def test_foreign_descriptions(folder: Path) -> None:
    (folder / "config.json").write_text("{")
    with pytest.raises(VarsmoothError, match="not readable as JSON"):
        load_checkpoint(folder)
    (folder / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(
        VarsmoothError, match="not describe a model of varsmooth; varsmooth adopt makes"
    ):
        load_checkpoint(folder)


def test_newer_format_and_surplus_entries(folder: Path) -> None:
    edit(folder, format=99)
    with pytest.raises(VarsmoothError, match="update varsmooth"):
        load_checkpoint(folder)
    edit(folder, format=1, surprise=1)
    with pytest.raises(VarsmoothError, match="surprise is unknown"):
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
