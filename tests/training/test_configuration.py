"""Presets, overrides, and errors that name the key and the nearest valid one."""

from pathlib import Path

import pytest

from varsmooth.cli import main
from varsmooth.errors import VarsmoothError
from varsmooth.training import (
    ClassifierConfig,
    SelectorConfig,
    overrides_from_arguments,
    preset_names,
    read_config,
)

FIXED = ("0.12", "0.25", "0.50", "1.00")
UNIVERSAL = ("universal-0.25", "universal-0.50", "universal-1.00")


CONFIDENCE = ("cpu/h-0.25-confidence", "cpu/h-universal-1.00-confidence")
"""Selectors that are not the paper's."""


def test_there_is_a_preset_for_every_model_of_the_paper() -> None:
    expected = {
        f"{scale}/{network}-{model}"
        for scale in ("cpu", "paper")
        for network in ("f", "h")
        for model in (*FIXED, *UNIVERSAL)
    }
    assert set(preset_names()) == expected | set(CONFIDENCE)


@pytest.mark.parametrize("name", preset_names())
def test_presets_are_valid_and_fit_their_name(name: str) -> None:
    scale, model = name.split("/")
    if model.startswith("f-"):
        config = read_config(ClassifierConfig, name)
        assert config.universal == ("universal" in model)
        assert config.sigma == float(model.split("-")[-1])
        assert scale != "paper" or config.epochs == 400
    else:
        selector = read_config(SelectorConfig, name)
        if name in CONFIDENCE:
            assert f"h-{selector.classifier.removeprefix('cifar10-')}-confidence" == model
            assert (selector.network, selector.objective) == ("confidence", "radius")
        else:
            assert Path(selector.classifier).name == model.replace("h-", "f-", 1)
            assert (selector.network, selector.objective) == ("attention", "variational")
        assert (selector.scheme, selector.lam, selector.reduction) == ("gvstar", None, "mean")
        assert scale != "paper" or (selector.epochs, selector.images_per_epoch) == (200, None)
        assert scale != "cpu" or selector.images_per_epoch == 10_000


def test_overrides_win_over_the_preset_and_reach_nested_options() -> None:
    words = ["--epochs", "3", "--flip=false", "--network_options.norm", "batch"]
    config = read_config(ClassifierConfig, "cpu/f-0.25", overrides_from_arguments(words))
    assert (config.epochs, config.flip, config.sigma) == (3, False, 0.25)
    assert config.network_options["norm"] == "batch"


def test_presets_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("output: here\nsigma: 0.3\n")
    assert read_config(ClassifierConfig, str(tmp_path / "mine.yaml")).sigma == 0.3


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"epoch": 3}, "unknown option 'epoch'; did you mean 'epochs'"),
        ({"epochs": "many"}, "epochs"),
        ({"epochs": 2.5}, "epochs"),
        ({"sigma": "high"}, "sigma"),
        ({"sigma": -1}, "sigma must be positive"),
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"copies": 1, "consistency": 2.0}, "at least 2 copies"),
        ({"batch_size": 9, "devices": 2}, "multiple of devices"),
        ({"accelerator": "tpu"}, "accelerator"),
        ({"epochs.more": 1}, "no group of options"),
    ],
)
def test_what_does_not_fit_is_named(overrides: dict[str, object], message: str) -> None:
    with pytest.raises(VarsmoothError, match=message):
        read_config(ClassifierConfig, "cpu/f-0.25", overrides)


def test_missing_and_unreadable_configurations(tmp_path: Path) -> None:
    with pytest.raises(VarsmoothError, match="'sigma' is missing"):
        read_config(ClassifierConfig, None, {"output": "here"})
    with pytest.raises(VarsmoothError, match=r"did you mean 'cpu/f-0\.25'"):
        read_config(ClassifierConfig, "cpu/f-0.2")
    with pytest.raises(VarsmoothError, match="no configuration file"):
        read_config(ClassifierConfig, "nowhere.yaml")
    (tmp_path / "list.yaml").write_text("- 1\n")
    with pytest.raises(VarsmoothError, match="key: value"):
        read_config(ClassifierConfig, str(tmp_path / "list.yaml"))
    (tmp_path / "bad.yaml").write_text("a: [1\n")
    with pytest.raises(VarsmoothError, match="not readable as YAML"):
        read_config(ClassifierConfig, str(tmp_path / "bad.yaml"))
    with pytest.raises(VarsmoothError, match="must be odd"):
        read_config(SelectorConfig, "cpu/h-0.25", {"selector_samples": 10})


@pytest.mark.parametrize("words", [["epochs", "3"], ["--epochs"], ["--epochs", "[1"]])
def test_command_line_words_that_cannot_be_read(words: list[str]) -> None:
    with pytest.raises(VarsmoothError):
        overrides_from_arguments(words)


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--help"]) == 0
    assert "cpu/f-0.25" in capsys.readouterr().out
    assert main(["train", "clasifier"]) == 2
    assert "did you mean 'classifier'" in capsys.readouterr().err
    small = "--dataset cifar10-sample --train-split test --epochs 1 --images-per-epoch 50"
    small += " --batch_size 50 --held_out_images 5 --votes 16 --network_options.norm batch"
    words = ["train", "classifier", "cpu/f-0.25", "--output", str(tmp_path), *small.split()]
    assert main(words) == 0
    assert str(tmp_path) in capsys.readouterr().out
