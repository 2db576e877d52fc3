"""Training of a classifier f under Gaussian noise: one level, or all levels at once."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from varsmooth.data import ImageDataset, load_source
from varsmooth.errors import VarsmoothError, require
from varsmooth.models.checkpoints import load_checkpoint, load_weights, save
from varsmooth.models.descriptions import Description, describe, find
from varsmooth.noise import keyed_generator
from varsmooth.objectives import consistency_loss
from varsmooth.processes import Engine, launch, writing_to
from varsmooth.training.cards import measure_classifier, measured_levels
from varsmooth.training.configuration import ClassifierConfig
from varsmooth.training.loop import Logger, fit
from varsmooth.training.state import already_trained, finished, seeded


class ClassifierTask:
    """Cross-entropy of f(x + ε), ε ~ N(0, σ² I): σ = σ_a, or σ ~ U(0, σ_a') for each image.

    With m > 1 copies each image is seen under m draws of noise in the same step.
    """

    def __init__(self, module: nn.Module, config: ClassifierConfig) -> None:
        self.module = module
        self.config = config

    def loss(
        self, images: Tensor, labels: Tensor, ids: Tensor, key: tuple[int | str, ...]
    ) -> tuple[Tensor, dict[str, float]]:
        config, (batch, channels, height, width) = self.config, images.shape
        generator = keyed_generator(images.device, config.seed, "train", *key)
        copies = batch * config.copies
        draw = partial(torch.rand, generator=generator, device=images.device)
        uniform = draw(batch).repeat(config.copies) if config.universal else 1
        share = uniform**config.sigma_power * torch.ones(copies, device=images.device)
        sigma = config.sigma * share  # (mB,)
        epsilon = torch.randn(
            copies, height, width, channels, generator=generator, device=images.device
        ).permute(0, 3, 1, 2)  # drawn channels-last, the layout of the images
        noisy = torch.addcmul(
            images.repeat(config.copies, 1, 1, 1), sigma.view(-1, 1, 1, 1), epsilon
        )
        with torch.autocast(images.device.type, torch.bfloat16, config.precision == "bfloat16"):
            output = self.module(noisy, sigma) if config.universal else self.module(noisy)
        logits: Tensor = getattr(output, "logits", output).float()  # (mB, classes)
        target = labels.repeat(config.copies)
        loss = functional.cross_entropy(logits, target, label_smoothing=config.label_smoothing)
        if config.consistency > 0:
            per_copy = logits.view(config.copies, batch, -1)
            loss = loss + consistency_loss(per_copy, config.consistency).mean()
        return loss, {"accuracy": (logits.argmax(dim=1) == target).float().mean().item()}


def train_classifier(config: ClassifierConfig, *loggers: Logger) -> Path:
    """Train f as configured; returns the folder of the finished model (`config.out`)."""
    require(
        not config.universal or config.network_options.get("conditional", True) is True,
        "a universal classifier takes σ as an input; leave out conditional",
    )
    with writing_to(config.out):
        launch(partial(_train, config, loggers), config.device, config.devices)
    return config.out


def _train(config: ClassifierConfig, loggers: tuple[Logger, ...], engine: Engine) -> None:
    if already_trained(config, "classifier"):
        return
    data, held_out = (
        load_source(config, split) for split in (config.train_split, config.held_out_split)
    )
    require(
        len(data.class_names) > 1,
        f"{data.name} has one class; a classifier needs two or more (in a folder of images, a "
        "subfolder for each)",
    )
    options = _network_options(config, data)
    module = seeded(config.network, options, config.seed)
    if config.frozen is not None:
        initialise(module.get_submodule("classifier"), config.frozen, config.trust)
    if config.initial is not None:
        initialise(module, config.initial, config.trust)
    module = module.to(engine.device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    history = fit(ClassifierTask(module, config), data, config, engine, loggers)
    if engine.rank != 0:
        return
    levels = measured_levels(config.sigma, config.universal)
    images = held_out.few(config.held_out_images)
    metrics, _ = measure_classifier(module, images, levels, config.n, config.seed)
    description = Description(
        **config.entries(),
        class_names=data.class_names,
        sigma_a=config.sigma,
        image_shape=data.shape,
        universal=config.universal,
        classifier=finished(config, options, history, metrics),
    )
    save(config.out, description, classifier=module)


def initialise(module: nn.Module, source: str, trust: Sequence[str] = ()) -> None:
    """Start from the classifier of another model, or from a safetensors file of plain weights."""
    if source.endswith(".safetensors"):
        weights = load_weights(source)
    else:
        classifier = load_checkpoint(source, trust).classifier
        if classifier is None:
            raise VarsmoothError(f"{source} holds no classifier to start from")
        weights = classifier.state_dict()
    try:
        module.load_state_dict(weights)
    except RuntimeError as error:
        raise VarsmoothError(
            f"the weights in {source} do not fit the network {type(module).__name__}: {error}"
        ) from error


def _network_options(config: ClassifierConfig, data: ImageDataset) -> dict[str, Any]:
    """What the data set and the kind of training say about the network, then the user's word."""
    if ":" in config.network:
        return dict(config.network_options)
    if config.frozen is not None:
        behind = describe(find(config.frozen)).classifier
        require(behind is not None, f"{config.frozen} holds no classifier")
        assert behind is not None
        named = {"classifier": behind.network, "classifier_options": behind.options}
        return {**named, "channels": data.images.shape[3], **config.network_options}
    fitting = {"classes": len(data.class_names), "channels": data.images.shape[3]}
    if config.universal:
        fitting["conditional"] = True
    return {**fitting, **config.network_options}
