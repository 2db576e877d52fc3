"""What can be configured about a training run, and how a configuration is read.

A configuration is a dataclass. It is read from a preset (a YAML file, by name or path) and
overrides (dotted keys); a key or a value that does not fit is an error that says which.
"""

import difflib
from argparse import ArgumentError
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from importlib import resources
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml  # type: ignore[import-untyped]
from jsonargparse import ArgumentParser, Namespace

from varsmooth.errors import VarsmoothError, require
from varsmooth.objectives import Reduction

Config = TypeVar("Config", bound="TrainingConfig")


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """What the training of any network needs to know.

    Args:
        output: folder of the run: state, log and, at the end, the model
        dataset: name or path of the data set
        data_root: where data sets live; by default the usual place
        train_split: split to train on
        held_out_split: split that the finished model is measured on
        held_out_images: how many of its images are used for that
        crop: largest shift of a training image, in pixels
        flip: mirror half of the training images
        epochs: passes over the training set
        images_per_epoch: images in one pass; by default all
        batch_size: images per step, over all processes together
        learning_rate: the highest one; it rises linearly, then falls as a cosine
        warmup: share of the steps during which the learning rate rises
        weight_decay: of every weight matrix and kernel
        seed: decides everything random
        resume: continue from the state in `output`, if there is one
        accelerator: what to compute on
        devices: processes to train with; the batch is split among them
        tensorboard: write TensorBoard logs into `output`
    """

    output: str
    dataset: str = "cifar10"
    data_root: str | None = None
    train_split: str = "train"
    held_out_split: str = "val"
    held_out_images: int = 1000
    crop: int = 4
    flip: bool = True
    epochs: int = 30
    images_per_epoch: int | None = None
    batch_size: int = 128
    learning_rate: float = 4e-3
    warmup: float = 0.2
    weight_decay: float = 5e-4
    seed: int = 0
    resume: bool = True
    accelerator: Literal["auto", "cpu", "cuda"] = "auto"
    devices: int = 1
    tensorboard: bool = False

    def __post_init__(self) -> None:
        for name in ("held_out_images", "epochs", "batch_size", "devices", "images_per_epoch"):
            value = getattr(self, name)
            require(value is None or value >= 1, f"{name} must be at least 1, not {value}")
        require(self.crop >= 0, f"crop must not be negative, not {self.crop}")
        require(self.learning_rate > 0, f"learning_rate must be positive, not {self.learning_rate}")
        require(0 <= self.warmup < 1, f"warmup must lie in [0, 1), not {self.warmup}")
        require(
            self.batch_size % self.devices == 0,
            f"batch_size {self.batch_size} must be a multiple of devices {self.devices}",
        )


@dataclass(frozen=True, kw_only=True)
class ClassifierConfig(TrainingConfig):
    """Training of a classifier f under Gaussian noise.

    Args:
        sigma: σ_a, the noise level; with `universal` σ_a', the upper end of its range
        universal: σ ~ U(0, sigma) for each image, told to the classifier
        network: a registered name, or the import path `package.module:Class` of your own
        network_options: keyword arguments of the network
        initial: model folder (or released name) whose weights to start from
        consistency: weight η of the consistency loss over noise copies; 0 turns it off
        copies: noise copies of each image in a step
        votes: votes per image when the finished model is measured
    """

    sigma: float
    universal: bool = False
    network: str = "conv4"
    network_options: dict[str, Any] = field(default_factory=dict)
    initial: str | None = None
    consistency: float = 0.0
    copies: int = 1
    votes: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.sigma > 0, f"sigma must be positive, not {self.sigma}")
        require(self.copies >= 1, f"copies must be at least 1, not {self.copies}")
        require(
            self.consistency == 0 or self.copies >= 2,
            f"consistency needs at least 2 copies of each image, not {self.copies}; set copies=2",
        )


@dataclass(frozen=True, kw_only=True)
class SelectorConfig(TrainingConfig):
    """Training of a selector h for a frozen classifier f (Algorithm 1).

    Args:
        dataset: name or path of the data set; by default the one f was trained on
        classifier: model folder (or released name) of f
        scheme: how h is evaluated: once at σ_a (gv), or as a median of samples (gvstar)
        lam: one fixed λ; by default λ ~ U(0, 1) for each batch
        selector_samples: samples of h in the median of gvstar; odd
        classifier_samples: draws of the soft smoothed classifier
        objective: variational is the paper's; radius rewards a large certified radius instead
        reduction: of the KL over dimensions: mean, or sum as the formula is written
        network: a registered name, or the import path `package.module:Class` of your own
        network_options: keyword arguments of the network
        trusted: import paths of your own that building f may need
    """

    dataset: str = ""
    classifier: str
    scheme: Literal["gv", "gvstar"] = "gvstar"
    lam: float | None = None
    selector_samples: int = 11
    classifier_samples: int = 10
    objective: Literal["variational", "radius"] = "variational"
    reduction: Reduction = "mean"
    network: str = "attention"
    network_options: dict[str, Any] = field(default_factory=dict)
    trusted: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.lam is None or 0 <= self.lam <= 1, f"lam must lie in [0, 1], not {self.lam}")
        require(
            self.selector_samples % 2 == 1,
            f"selector_samples must be odd, not {self.selector_samples}: "
            "the median of an even number of samples is no sample",
        )


def preset_names() -> list[str]:
    """The presets of the package, as `scale/model`."""
    folder = resources.files("varsmooth.training") / "presets"
    return sorted(
        f"{scale.name}/{file.name.removesuffix('.yaml')}"
        for scale in folder.iterdir()
        if scale.is_dir()
        for file in scale.iterdir()
        if file.name.endswith(".yaml")
    )


def read_config(
    kind: type[Config], preset: str | None = None, overrides: Mapping[str, Any] | None = None
) -> Config:
    """The configuration of `kind` from a preset (name or path of a YAML file) and overrides.

    Overrides are dotted keys: {"epochs": 3, "network_options.norm": "batch"}. Strings that are
    meant as numbers are read as YAML does, so that they may come from a command line.
    """
    values: dict[str, Any] = {} if preset is None else _read_preset(preset)
    for key, value in (overrides or {}).items():
        *parents, last = key.split(".")
        place = values
        for parent in parents:
            place = place.setdefault(parent, {})
            require(isinstance(place, dict), f"{parent} in {key} is no group of options")
        place[last] = value
    _check_keys(kind, values)
    parser = ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(kind, fail_untyped=True)
    try:
        parsed = parser.parse_object(values)
    except ArgumentError as error:
        raise VarsmoothError(_first_lines(str(error))) from error
    arguments = {key: _plain(value) for key, value in vars(parsed).items()}
    return kind(**arguments)


def overrides_from_arguments(arguments: Sequence[str]) -> dict[str, Any]:
    """`["--epochs", "3", "--flip=false"]` → {"epochs": 3, "flip": False}."""
    overrides: dict[str, Any] = {}
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        require(word.startswith("--") and len(word) > 2, f"expected --option value, not {word!r}")
        key, equals, text = word[2:].partition("=")
        if not equals:
            require(bool(rest), f"--{key} needs a value")
            text = rest.pop(0)
        try:
            overrides[key.replace("-", "_")] = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise VarsmoothError(f"the value of --{key} cannot be read: {text!r}") from error
    return overrides


def _read_preset(name: str) -> dict[str, Any]:
    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        require(path.is_file(), f"there is no configuration file {name}")
        text = path.read_text()
    else:
        known = preset_names()
        require(name in known, f"there is no preset {name!r}{nearest(name, known)}")
        text = (resources.files("varsmooth.training") / "presets" / f"{name}.yaml").read_text()
    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise VarsmoothError(f"{name} is not readable as YAML: {error}") from error
    require(isinstance(values, dict), f"{name} must hold `key: value` lines")
    return dict(values)


def _check_keys(kind: type, values: Mapping[str, Any]) -> None:
    known = [option.name for option in fields(kind)]
    for key in values:
        require(key in known, f"unknown option {key!r}{nearest(str(key), known)}")
    for option in fields(kind):
        missing = option.name not in values and option.name in ("output", "sigma", "classifier")
        require(not missing, f"the option {option.name!r} is missing; give --{option.name} VALUE")


def nearest(word: str, known: Sequence[str]) -> str:
    """The end of an error sentence: the known word nearest to this one."""
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.4)
    return f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(known)}"


def _first_lines(message: str) -> str:
    return " ".join(line.strip() for line in message.splitlines() if line.strip())


def _plain(value: Any) -> Any:
    return vars(value) if isinstance(value, Namespace) else value
