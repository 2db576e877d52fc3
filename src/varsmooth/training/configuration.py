"""The options of a training run, and how a configuration is read.

A configuration is a dataclass, read from a preset (a YAML file, by name or path) and overrides.
An unknown key or a wrong value is an error that names it.
"""

import itertools
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from varsmooth._util.typed import OptionError
from varsmooth.data.source import Source
from varsmooth.errors import VarsmoothError, check, nearest, wrap_errors
from varsmooth.models.descriptions import describe
from varsmooth.models.names import CLASSIFIERS, SELECTORS, check_network, is_external
from varsmooth.models.options import Precision
from varsmooth.types import (
    Count,
    Device,
    Few,
    NonNegative,
    Odd,
    Positive,
    Share,
    Weight,
)

Config = TypeVar("Config", bound="TrainingConfig")

PRESETS = Path(__file__).parent / "presets"


@dataclass(frozen=True, kw_only=True)
class TrainingConfig(Source):
    """Options for the training of any network.

    Args:
        out: folder of the run: state, log and, at the end, the model
        data: a name from `varsmooth data list`, or the path of your own images
        train_split: split to train on
        held_out_split: split that the finished model is measured on
        held_out_images: how many of its images are used for that
        crop: largest shift of a training image, in pixels
        flip: mirror half of the training images
        images: how many training images are used, evenly spaced over the split; by default all
        epochs: passes over the training set
        images_per_epoch: images in one pass; by default all
        batch_size: images per step, over all processes together
        learning_rate: the peak learning rate: linear warm-up, constant for `hold`, then cosine
            decay
        warmup: share of the steps during which the learning rate rises
        hold: share of the steps at the peak learning rate, after the warm-up
        first_epoch: epochs of the schedule that the weights in `initial` have completed, to
            continue a long run whose state was lost
        weight_decay: weight decay of every weight matrix and kernel
        muon: learning rate of convolution kernels, the angle by which Muon turns them in a step;
            0 trains them with AdamW like all other weights
        ema: decay of the moving average of the weights, per step; the finished model is this
            average, or the last weights if 0
        precision: precision of f's activations in training; bfloat16 is faster where the processor
            has it (AVX-512 BF16, AMX). The finished model computes in float32
        seed: seed of everything random
        resume: continue from the state in the folder, if there is one
        device: where to compute
        devices: processes to train with; the batch is split among them
        tensorboard: write TensorBoard logs into the folder
        trust: import paths of your own networks that a model to start from, or f, may load:
            package.module:Class,...
    """

    out: Path
    data: str | None = "cifar10"
    train_split: str = "train"
    held_out_split: str = "val"
    held_out_images: Count = 1000
    crop: NonNegative = 4
    flip: bool = True
    images: Count | None = None
    epochs: Count = 30
    images_per_epoch: Count | None = None
    batch_size: Count = 128
    learning_rate: Positive = 4e-3
    warmup: Share = 0.2
    hold: Share = 0.0
    first_epoch: NonNegative = 0
    weight_decay: Weight = 5e-4
    muon: Share = 0.0
    ema: Share = 0.0
    precision: Precision = "float32"
    seed: NonNegative = 0
    resume: bool = True
    device: Device = "auto"
    devices: Few = 1
    tensorboard: bool = False
    trust: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.warmup + self.hold >= 1:
            problem = "plus hold must be below 1, so that the learning rate can fall"
            raise OptionError("warmup", problem)
        if self.first_epoch >= self.epochs:
            raise OptionError("first_epoch", f"must be below epochs, {self.epochs}")
        if self.ema == 1:
            raise OptionError("ema", "must be below 1, so that the average can move")
        if self.batch_size % self.devices != 0:
            problem = f"must be a multiple of the {self.devices} processes, not {self.batch_size}"
            raise OptionError("batch_size", problem)


@dataclass(frozen=True, kw_only=True)
class ClassifierConfig(TrainingConfig):
    """Training of a classifier f under Gaussian noise.

    Args:
        data: a name from `varsmooth data list`, or the path of your own images; with `initial`, by
            default those of that model
        sigma: σ_a, the noise level; with `universal` σ_a', the upper end of its range
        universal: σ ~ U(0, sigma) for each image; a network of the package takes it as an input,
            your own if it sets conditional = True
        sigma_power: with `universal`, σ = sigma · U^power: a power below 1 favours large levels,
            one above 1 small levels
        network: a registered name, or the import path `package.module:Class` of your own
        network_options: keyword arguments of the network
        frozen: with network `denoised`, the model whose frozen classifier follows the denoiser: a
            released name, or a model folder with a registered network
        initial: weights to start from: a model folder, a released name or a .safetensors file
        label_smoothing: share of the target that is spread evenly over the classes
        consistency: weight η of the consistency loss over noise copies; 0 turns it off
        consistency_power: with `universal`, the weight at level σ is η · (σ / sigma)^power: 0: the
            same weight at every level; 1: less weight, and more accuracy, at small levels
        copies: noise copies of each image in a step
        passing: share of the cross-entropy whose target may be "pass" where f does not recognise an
            image under this noise: an extra output, which the finished model lacks; 0 turns it off
        compile: let torch.compile fuse the network's layers in training; needs a C++ compiler and
            a minute at the start
        n: votes per image when the finished model is measured
    """

    sigma: Positive
    universal: bool = False
    sigma_power: Positive = 1.0
    network: str = "conv4"
    network_options: dict[str, Any] = field(default_factory=dict)
    frozen: str | None = None
    initial: str | None = None
    label_smoothing: Share = 0.0
    consistency: Weight = 0.0
    consistency_power: Weight = 0.0
    copies: Count = 1
    passing: Share = 0.0
    compile: bool = False
    n: Count = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.consistency > 0 and self.copies < 2:
            raise OptionError("copies", "must be at least 2 for the consistency loss, not 1")
        if self.passing > 0 and not self.universal:
            raise OptionError("passing", "needs `universal` true: it depends on each image's level")
        check_network(self.network, CLASSIFIERS)
        if (self.network == "denoised") != (self.frozen is not None):
            raise OptionError("frozen", "and `network` denoised belong together; give both")
        if self.frozen is not None and not self.universal:
            raise OptionError("frozen", "needs `universal` true: a denoiser takes σ as an input")


@dataclass(frozen=True, kw_only=True)
class SelectorConfig(TrainingConfig):
    """Training of a selector h for a frozen classifier f (Algorithm 1).

    Args:
        data: name or path of the images (default: those that f was trained on)
        classifier: model folder (or released name) of f
        scheme: how h is evaluated: once at σ_a (gv), or as a median of samples (gvstar)
        lam: one fixed λ; by default λ ~ U(0, 1) for each batch
        selector_samples: samples of h in the median of gvstar; odd
        classifier_samples: draws of the soft smoothed classifier
        objective: variational is the paper's; radius rewards a large certified radius instead
        reduction: mean of the KL over dimensions, or sum as in the paper's formula
        network: a registered name, or the import path `package.module:Class` of your own
        network_options: keyword arguments of the network
    """

    data: str | None = None
    classifier: str
    scheme: Literal["gv", "gvstar"] = "gvstar"
    lam: Share | None = None
    selector_samples: Odd = 11
    classifier_samples: Count = 10
    objective: Literal["variational", "radius"] = "variational"
    reduction: Literal["mean", "sum"] = "mean"
    network: str = "attention"
    network_options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_network(self.network, SELECTORS)


@dataclass(frozen=True, kw_only=True)
class StudyOptions(Source):
    """The size of a study; the defaults are short.

    Args:
        data: a name from `varsmooth data list`, or the path of your own images, labelled
        out: folder for models, runs and report
        sigma: σ_a, the noise level of f; single levels σ/2, σ and 2σ are compared with h
        lams: values of λ
        epochs: passes over the training set for f
        selector_epochs: passes for h
        selector_images: images in one pass of h
        images: how many unseen images are certified and attacked
        n: votes per image and level
        steps: gradient steps of the attack, whose budget is σ
        flip: mirror half of the training images
    """

    out: Path
    sigma: Positive
    lams: list[Share] = field(default_factory=lambda: [0.0, 0.3, 0.7])
    epochs: Count = 15
    selector_epochs: Count = 4
    selector_images: Count = 2000
    images: Count = 100
    n: Count = 200
    steps: Count = 10
    flip: bool = True
    seed: NonNegative = 0
    device: Device = "auto"


AnyConfig = ClassifierConfig | SelectorConfig


def preset_names() -> list[str]:
    """The presets of the package, as `scale/model`."""
    return sorted(f"{path.parent.name}/{path.stem}" for path in PRESETS.glob("*/*.yaml"))


def about_preset(name: str) -> str:
    """What a preset of the package trains: the comment at the head of its file."""
    lines = (PRESETS / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
    comment = itertools.takewhile(lambda line: line.startswith("#"), lines)
    return " ".join(line.lstrip("# ") for line in comment)


def read_config(
    kind: type[Config], preset: str | None = None, overrides: Mapping[str, Any] | None = None
) -> Config:
    """The configuration of `kind` from a preset (name or path of a YAML file) and overrides.

    Overrides of a group of options, such as network_options, are merged with the preset's.
    """
    values = {} if preset is None else read_preset(preset)
    for key, value in (overrides or {}).items():
        values[key] = {**values.get(key, {}), **value} if isinstance(value, dict) else value
    known = [option.name for option in fields(kind)]
    for key in values:
        check(key in known, f"there is no option {key!r}{nearest(str(key), known)}")
    for name in ("out", "sigma", "classifier"):
        if name in known and name not in values:
            raise OptionError(name, "must be given")
    config = kind(**values)
    initial = getattr(config, "initial", None)
    own = None if "data" in values or initial is None else _images_of(initial)
    return config if own is None else replace(config, data=None).with_defaults(own)


def _images_of(model: str) -> Source | None:
    """The images of the model to start from, if it names some that can be trained on."""
    if is_external(model) or model.endswith(".safetensors"):
        return None
    with suppress(VarsmoothError):  # there is no such model: the command says so
        source = describe(model).source
        return None if source.data == "cifar10-sample" else source
    return None


def read_preset(name: str) -> dict[str, Any]:
    """The values of a preset of the package, or of a YAML file."""
    import yaml  # type: ignore[import-untyped]  # help need not wait for it

    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        check(path.is_file(), f"there is no configuration file {name}")
    else:
        known = preset_names()
        check(name in known, f"there is no preset {name!r}{nearest(name, known)}")
        path = PRESETS / f"{name}.yaml"
    with wrap_errors(yaml.YAMLError, lambda error: f"{name} is not readable as YAML: {error}"):
        values = yaml.safe_load(path.read_text())
    check(isinstance(values, dict), f"{name} must hold `key: value` lines")
    return dict(values)
