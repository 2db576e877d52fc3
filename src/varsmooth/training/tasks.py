"""Training of a classifier f under Gaussian noise, and of a selector network h for a frozen f."""

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from varsmooth._util.processes import Engine, launch, writing_to
from varsmooth.calling import call_user_model
from varsmooth.data import ImageDataset, load_source
from varsmooth.data.dataset import skipped_text
from varsmooth.data.fitting import fitted
from varsmooth.errors import VarsmoothError, check, reason, wrap_errors
from varsmooth.evaluation.measure import (
    LAMBDAS,
    measure_classifier,
    measure_selector,
    measured_levels,
)
from varsmooth.losses import consistency_loss, pass_loss, radius_loss, variational_loss
from varsmooth.models.adapters import in_precision
from varsmooth.models.checkpoints import load_checkpoint, load_weights, save
from varsmooth.models.descriptions import Description, Part, describe
from varsmooth.models.names import maker_of
from varsmooth.models.networks import ReadsClassifier, ResNet9
from varsmooth.models.networks.classifiers import ConvolutionalClassifier
from varsmooth.noise import NoiseStream, keyed_generator
from varsmooth.probe import check_assumptions
from varsmooth.rounding import counted
from varsmooth.selectors import FixedSelector, LearnedSelector, MedianSelector, NoiseSelector
from varsmooth.smoothing import RETURNED_NAN, SmoothedClassifier, evaluation_mode
from varsmooth.training.configuration import AnyConfig, ClassifierConfig, SelectorConfig
from varsmooth.training.loop import Logger, fit
from varsmooth.training.state import already_trained, finished, resumable, seeded

SUFFIX = ".safetensors"  # of a file of plain weights, not a model


class ClassifierTask:
    """Cross-entropy of f(x + ε), ε ~ N(0, σ² I): σ = σ_a, or σ ~ U(0, σ_a') for each image.

    A conditional module gets σ as an input, any other sees the noisy image alone.
    With m > 1 copies each image is seen under m draws of noise in the same step. With `passing` the
    module has one more output than there are classes, which `consistency` sees too.
    """

    def __init__(self, module: nn.Module, config: ClassifierConfig) -> None:
        self.module, self.config = module, config
        self.conditional = bool(getattr(module, "conditional", False))
        self.forward: Callable[..., Any] = module
        if config.compile:
            self.fused, self.forward = torch.compile(module), self._compiled

    def loss(
        self, images: Tensor, labels: Tensor, ids: Tensor, key: tuple[int | str, ...]
    ) -> tuple[Tensor, dict[str, float]]:
        config, (batch, channels, height, width) = self.config, images.shape
        device, copies = images.device, batch * config.copies
        generator = keyed_generator(device, config.seed, "train", *key)
        sigma = torch.full((copies,), config.sigma, device=device)
        if config.universal:
            uniform = torch.rand(batch, generator=generator, device=device)
            sigma = sigma * uniform.repeat(config.copies) ** config.sigma_power
        shape = (copies, height, width, channels)  # drawn channels-last, the layout of the images
        epsilon = torch.randn(shape, generator=generator, device=device).permute(0, 3, 1, 2)
        repeated = images.repeat(config.copies, 1, 1, 1)
        noisy = torch.addcmul(repeated, sigma.view(-1, 1, 1, 1), epsilon)
        with torch.autocast(device.type, torch.bfloat16, config.precision == "bfloat16"):
            inputs = (noisy, sigma) if self.conditional else (noisy,)
            output = call_user_model("classifier in training", self.forward, *inputs)
        output = getattr(output, "logits", output)
        check(
            isinstance(output, Tensor),
            f"the network returns a {type(output).__name__} in training; let its forward return "
            "the logits alone, in training mode too",
        )
        logits: Tensor = output.float()  # (mB, classes)
        per_copy = logits.view(config.copies, batch, -1)
        target, classes = labels.repeat(config.copies), logits
        if config.passing > 0:
            classes = logits[:, :-1]
        loss = functional.cross_entropy(classes, target, label_smoothing=config.label_smoothing)
        if config.passing > 0:
            passing = pass_loss(per_copy, labels, sigma[:batch]).mean()
            loss = torch.lerp(loss, passing, config.passing)
        if config.consistency > 0:
            weight = config.consistency * (sigma[:batch] / config.sigma) ** config.consistency_power
            loss = loss + consistency_loss(per_copy, weight).mean()
        return loss, {"accuracy": (classes.argmax(dim=1) == target).float().mean().item()}

    def _compiled(self, *inputs: Tensor) -> Any:
        """The module's output by code that torch.compile makes at the first call."""
        from torch._dynamo.exc import TorchDynamoException  # slow to import

        with wrap_errors(
            TorchDynamoException,
            lambda error: (
                f"torch.compile fails here: {reason(error)}; install a C++ compiler, or "
                "leave out `compile`"
            ),
        ):
            return self.fused(*inputs)


class SelectorTask:
    """L = (1−λ) CE + λ KL of the soft smoothed classifier under the levels that h chooses.

    h gets σ_a as an input and sees noise of that level; the target is σ_t = 2 σ_a. f only gives
    gradients to its input: the loop changes `module` alone, which is h (Algorithm 1 of the paper).
    """

    def __init__(
        self, module: nn.Module, classifier: nn.Module, sigma_a: float, config: SelectorConfig
    ) -> None:
        self.module, self.config = module, config
        self.sigma_t = 2 * sigma_a
        self.learned = LearnedSelector(module, sigma_a, config.lam or 0.0)
        selector: NoiseSelector = self.learned
        if config.scheme == "gvstar":
            selector = MedianSelector(self.learned, sigma_a, config.selector_samples)
        self.smoothed = SmoothedClassifier(classifier, selector, samples=config.classifier_samples)

    def loss(
        self, images: Tensor, labels: Tensor, ids: Tensor, key: tuple[int | str, ...]
    ) -> tuple[Tensor, dict[str, float]]:
        config, learned = self.config, self.learned
        epoch, step, _ = key
        if config.lam is None:  # one λ for the whole batch, whatever share of it is here
            generator = keyed_generator("cpu", config.seed, "lambda", epoch, step)
            learned.lam = float(torch.rand((), generator=generator))
        noise = NoiseStream.make(len(images), config.seed, ids).scoped(f"train {epoch} {step}")
        with evaluation_mode(self.smoothed.classifier):
            sigma = self.smoothed.selector(images, noise)  # (B,)
            scores = self.smoothed.scores(images, sigma, noise)  # (B, classes)
        if config.objective == "radius":
            losses = radius_loss(scores, labels, sigma, learned.lam, scale=learned.sigma_a)
        else:
            d = images[0].numel()
            losses = variational_loss(
                scores, labels, sigma, self.sigma_t, learned.lam, d, config.reduction
            )
        return losses.mean(), {
            "accuracy": scores.argmax(dim=1).eq(labels).float().mean().item(),
            "sigma_mean": sigma.mean().item(),
            "sigma_std": sigma.std(correction=0).item(),
            "sigma_min": sigma.min().item(),
            "sigma_max": sigma.max().item(),
        }


def train_classifier(config: ClassifierConfig, *loggers: Logger, short: bool = False) -> Path:
    """Train f as configured; returns the folder of the finished model (`config.out`).

    `short` means that few steps are intended, which are then not warned of.
    """
    return _launched(_train_classifier, config, loggers, short)


def train_selector(config: SelectorConfig, *loggers: Logger, short: bool = False) -> Path:
    """Train h as configured; returns the folder of the finished pair of f and h."""
    return _launched(_train_selector, config, loggers, short)


def _launched(
    train: Callable[..., None], config: AnyConfig, loggers: tuple[Logger, ...], short: bool
) -> Path:
    with writing_to(config.out):
        launch(partial(train, config, loggers, short), config.device, config.devices)
    return config.out


def _train_classifier(
    config: ClassifierConfig, loggers: tuple[Logger, ...], short: bool, engine: Engine
) -> None:
    if already_trained(config, "classifier"):
        return
    data, held_out, options = _classifier_inputs(config)
    module = seeded(config.network, options, config.seed)
    if config.frozen is not None:
        _initialise(module.get_submodule("classifier"), config.frozen, config.trust)
    if config.initial is not None:
        _initialise(module, config.initial, config.trust)
    module = module.to(engine.device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    g = SmoothedClassifier(module, FixedSelector(config.sigma))
    check_assumptions(g, fitted(data, g).batch([0]).images.to(engine.device))
    levels = measured_levels(config.sigma, config.universal)
    images, before = held_out.few(config.held_out_images), None
    measure_before = config.initial is not None and not resumable(config)
    if engine.rank == 0:
        plan = f"{counted(len(images), 'image')} (held_out_images), {config.n} votes each (n) at"
        when = "before and after training" if measure_before else "after training"
        print(f"measured {when}: {plan} {len(levels)} noise levels", file=sys.stderr)
        if measure_before:
            before, _ = measure_classifier(module, images, levels, config.n, config.seed)
    with pass_output(module, config.passing > 0):
        task, short = ClassifierTask(module, config), short or config.initial is not None
        end = fit(task, data, config, engine, loggers, before, short)
    if engine.rank != 0:
        return
    again = "train it again with a lower `learning_rate` and `resume=False`"
    spoilt = f"the trained classifier returns NaN; {again}"
    with wrap_errors(VarsmoothError, lambda e: spoilt if str(e) == RETURNED_NAN else str(e)):
        metrics, _ = measure_classifier(module, images, levels, config.n, config.seed)
    if end.before is not None:
        kept = ("plain_accuracy", "smoothed_accuracy")
        metrics["before"] = {name: end.before[name] for name in kept}
    weights_alone = config.initial is None or config.initial.endswith(SUFFIX)
    description = Description(
        **config.entries(),
        class_names=data.class_names,
        sigma_a=config.sigma,
        image_shape=data.shape,
        universal=config.universal,
        classifier=finished(config, options, end.history, metrics),
        tuned=None if weights_alone else describe(str(config.initial)).tuned,
    )
    save(config.out, description, classifier=module)


def _classifier_inputs(
    config: ClassifierConfig,
) -> tuple[ImageDataset, ImageDataset, dict[str, Any]]:
    """The images to train on and those to measure on, and the options of the network."""
    data = load_source(config, config.train_split)
    held_out = load_source(config, config.held_out_split)
    if data.skipped:
        print(f"note: {skipped_text(data.skipped)}", file=sys.stderr)
    implied: dict[str, Any] = {"conditional": True} if config.universal else {}
    if config.frozen is not None:  # its outputs keep their meaning
        frozen, about, part = _load_classifier(config.frozen, config.trust)
        implied = {"classifier": part.network, "classifier_options": part.options}
        g = SmoothedClassifier(frozen, FixedSelector(config.sigma))
        data, held_out = (fitted(d, g, *about.trained_on) for d in (data, held_out))
    check(
        len(np.unique(data.known_labels)) > 1,
        f"{data.name} has one class; a classifier needs two or more (in a folder of images, a "
        "subfolder for each)",
    )
    return data, held_out, network_options(config, data, **implied)


@contextmanager
def pass_output(network: nn.Module, wanted: bool = True) -> Iterator[None]:
    """Inside, a classifier has one more score, "pass", after those of the classes.

    It begins at zero; afterwards the scores of the classes stay as they are.
    """
    if wanted:
        _set_outputs(network, 1)
    yield
    if wanted:
        _set_outputs(network, -1)


def _set_outputs(network: nn.Module, more: int) -> None:
    """Append outputs whose weights are zero to the last layer, or remove its last ones."""
    if not isinstance(network, ConvolutionalClassifier):
        raise VarsmoothError(
            f'{type(network).__name__} cannot be trained with "pass", which replaces the last '
            "layer of a network of ours; leave out `passing`"
        )
    old = network.linear
    network.linear = nn.Linear(
        old.in_features, old.out_features + more, device=old.weight.device, dtype=old.weight.dtype
    )
    with torch.no_grad():
        for new, values in zip(network.linear.parameters(), old.parameters(), strict=True):
            count = min(len(new), len(values))
            new.zero_()[:count] = values[:count]


def _train_selector(
    config: SelectorConfig, loggers: tuple[Logger, ...], short: bool, engine: Engine
) -> None:
    classifier, about, _ = _load_classifier(config.classifier, config.trust)
    classifier = classifier.to(engine.device)
    config = config.with_defaults(about.source)
    if already_trained(config, "selector"):
        return
    sigma_a = about.trained_sigma
    g = SmoothedClassifier(classifier, FixedSelector(sigma_a))
    data, held_out = (
        fitted(load_source(config, split), g, *about.trained_on)
        for split in (config.train_split, config.held_out_split)
    )
    options = network_options(config, data)
    module = seeded(config.network, options, config.seed).to(engine.device)
    if isinstance(module, ReadsClassifier):
        module.attach(classifier)
    task = SelectorTask(module, in_precision(classifier, config.precision), sigma_a, config)
    history = fit(task, data, config, engine, loggers, short=short).history
    if engine.rank != 0:
        return
    images = held_out.few(config.held_out_images)
    lams = LAMBDAS if config.lam is None else (config.lam,)
    metrics = measure_selector(classifier, module, sigma_a, images, lams, seed=config.seed)
    description = replace(
        about,
        selector=finished(config, options, history, metrics),
        selector_sigma=sigma_a,
        sigma_t=task.sigma_t,
        lam_range=(0.0, 1.0) if config.lam is None else (config.lam, config.lam),
        recommended={"lam": config.lam or 0.0, "sigma_m": sigma_a},
    )
    save(config.out, description, classifier=classifier, selector=module)


def _load_classifier(model: str, trust: list[str]) -> tuple[nn.Module, Description, Part]:
    """The classifier of a model, with the descriptions of the model and of its classifier."""
    checkpoint = load_checkpoint(model, trust)
    part = checkpoint.description.classifier
    if checkpoint.classifier is None or part is None:
        raise VarsmoothError(f"{model} holds no classifier")
    return checkpoint.classifier, checkpoint.description, part


def _initialise(module: nn.Module, source: str, trust: list[str]) -> None:
    """Start from the classifier of another model, or from a safetensors file of plain weights."""
    if source.endswith(SUFFIX):
        weights = load_weights(source)
    else:
        weights = _load_classifier(source, trust)[0].state_dict()
    if isinstance(module, ResNet9):
        weights = module.deepened(weights)
    misfit = f"the weights in {source} do not fit the network {type(module).__name__}"
    how = "start from one with the same options, and with as many classes as the images of `data`"
    with wrap_errors(RuntimeError, f"{misfit}; {how}"):
        module.load_state_dict(weights)


def network_options(config: AnyConfig, data: ImageDataset, **more: Any) -> dict[str, Any]:
    """What the data set implies where a registered network has such an option, then the user's."""
    if ":" in config.network:
        return dict(config.network_options)
    parameters = inspect.signature(maker_of(config.network)).parameters
    implied = {"classes": len(data.class_names), "channels": data.shape[0], **more}
    fitting = {name: value for name, value in implied.items() if name in parameters}
    return {**fitting, **config.network_options}
