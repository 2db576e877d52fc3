"""Presets, overrides, and errors that name the key and the nearest valid one."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.terminal import Terminal
from varsmooth.errors import VarsmoothError
from varsmooth.training import ClassifierConfig, SelectorConfig, preset_names, read_config

FIXED = ("0.12", "0.25", "0.50", "1.00")
UNIVERSAL = ("universal-0.25", "universal-0.50", "universal-1.00")


CONFIDENCE = ("cpu/h-0.25-confidence", "cpu/h-universal-1.00-confidence")
"""Selectors that are not the paper's."""

STRONG = tuple(
    f"cpu/strong{part}" for part in ("", "-consistency", "-long", "-long-consistency", "-radius")
)
"""The parts of the classifier that is trained as well as two cores can."""

WIDE = ("cpu/h-0.25-wide", "cpu/hv-0.25-wide")
"""Selectors whose σ spreads over the clip ranges of the paper's Table 2."""

OTHERS = ("cpu/h-strong", "cpu/h-0.25-long", *WIDE, "cpu/f-clean", "cpu/denoiser", "cpu/small")


def test_there_is_a_preset_for_every_model_of_the_paper() -> None:
    expected = {
        f"{scale}/{network}-{model}"
        for scale in ("cpu", "paper")
        for network in ("f", "h")
        for model in (*FIXED, *UNIVERSAL)
    }
    unprotected = {f"{scale}/hv-{model}" for scale in ("cpu", "paper") for model in FIXED}
    assert set(preset_names()) == expected | unprotected | {*CONFIDENCE, *STRONG, *OTHERS}


@pytest.mark.parametrize("name", preset_names())
def test_presets_are_valid_and_fit_their_name(name: str) -> None:
    scale, model = name.split("/")
    if name in OTHERS:
        kind = SelectorConfig if model.startswith("h") else ClassifierConfig
        config = read_config(kind, name)
        assert (config.precision == "bfloat16") == (name not in WIDE)
    elif name in STRONG:
        strong = read_config(ClassifierConfig, name)
        assert (strong.universal, strong.sigma, strong.network) == (True, 1.0, "resnet9")
    elif model.startswith("f-"):
        config = read_config(ClassifierConfig, name)
        assert config.universal == ("universal" in model)
        assert config.sigma == float(model.split("-")[-1])
        assert scale != "paper" or config.epochs == 400
    else:
        selector = read_config(SelectorConfig, name)
        if name in CONFIDENCE:
            assert f"h-{selector.classifier.removeprefix('cifar10-')}-confidence" == model
            assert (selector.network, selector.objective) == ("confidence", "radius")
        elif model.startswith("hv-"):  # as long as the h of g_v*, for the same f
            f = "cifar10-" if scale == "cpu" else "runs/paper/f-"
            assert selector.classifier == model.replace("hv-", f, 1)
            protected = read_config(SelectorConfig, name.replace("hv-", "h-", 1))
            assert replace(selector, scheme="gvstar", out=Path(), classifier="") == replace(
                protected, out=Path(), classifier=""
            )
        else:
            assert Path(selector.classifier).name == model.replace("h-", "f-", 1)
            assert (selector.network, selector.objective) == ("attention", "variational")
        scheme = "gv" if model.startswith("hv-") else "gvstar"
        assert (selector.scheme, selector.lam, selector.reduction) == (scheme, None, "mean")
        assert scale != "paper" or (selector.epochs, selector.images_per_epoch) == (200, None)
        assert scale != "cpu" or selector.images_per_epoch == 10_000


def test_overrides_win_over_the_preset(tmp_path: Path) -> None:
    overrides = {"epochs": 3, "flip": False, "network_options": {"norm": "batch"}}
    config = read_config(ClassifierConfig, "cpu/f-0.25", overrides)
    assert (config.epochs, config.flip, config.sigma) == (3, False, 0.25)
    assert config.network_options["norm"] == "batch"
    (tmp_path / "mine.yaml").write_text("out: here\nsigma: 0.3\n")
    assert read_config(ClassifierConfig, str(tmp_path / "mine.yaml")).sigma == 0.3


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"epoch": 3}, "no option 'epoch'; did you mean epochs"),
        ({"sigma": -1}, "sigma must be a number > 0, at most 10⁹, not -1"),
        ({"epochs": 0}, "epochs must be a whole number from 1 to 10⁸, not 0"),
        ({"copies": 1, "consistency": 2.0}, "copies must be at least 2"),
        ({"batch_size": 9, "devices": 2}, "batch_size must be a multiple of the 2 processes"),
        ({"device": "TPU 3"}, "device must be auto, cpu, cuda, mps or another device of torch"),
        ({"network_options": 3}, "network_options must be a group of options"),
        ({"warmup": 1.0}, "warmup plus hold must be below 1"),
        ({"warmup": 0.5, "hold": 0.5}, "warmup plus hold must be below 1"),
        ({"first_epoch": 30}, "first_epoch must be below epochs"),
    ],
)
def test_what_does_not_fit_is_named(overrides: dict[str, object], message: str) -> None:
    with pytest.raises(VarsmoothError, match=message):
        read_config(ClassifierConfig, "cpu/f-0.25", overrides)


@pytest.mark.parametrize(
    ("preset", "content", "sentence"),
    [
        ("cpu/f-0.2", None, r"did you mean cpu/f-0\.25"),
        ("nowhere.yaml", None, "no configuration file"),
        ("none.yaml", "out: here\n", "sigma must be given"),
        ("list.yaml", "- 1\n", "key: value"),
        ("bad.yaml", "a: [1\n", "not readable as YAML"),
    ],
)
def test_missing_and_unreadable_configurations(
    preset: str, content: str | None, sentence: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / preset).write_text(content)
        preset = str(tmp_path / preset)
    with pytest.raises(VarsmoothError, match=sentence):
        read_config(ClassifierConfig, preset)


def test_command_line(tmp_path: Path, cli: Terminal) -> None:
    listed = dict(line.split(maxsplit=1) for line in cli("train presets").out.splitlines())
    assert list(listed) == preset_names()
    assert listed["cpu/f-0.25"] == "Classifier f, σ_a = 0.25; about half an hour on 2 CPU cores."
    assert all(what.endswith(".") for what in listed.values())
    small = "--data cifar10-sample --train-split test --epochs 1 --images-per-epoch 50"
    small += " --batch-size 50 --held-out-images 5 --n 16 --network-options.norm batch --flip false"
    out, err = cli(f"train classifier cpu/f-0.25 --out {tmp_path} {small}")
    assert err.startswith("train a classifier at σ = 0.25: data cifar10-sample test, epochs 1")
    assert f"next: varsmooth certify --model {tmp_path}" in out
    assert f"train selector --classifier {tmp_path} --flip false" in out
