"""Training of a selector network h for a frozen classifier f: Algorithm 1 of the paper."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from varsmooth.data import ImageDataset, load_source
from varsmooth.data.fitting import fitted
from varsmooth.errors import VarsmoothError
from varsmooth.models.adapters import in_precision
from varsmooth.models.checkpoints import load_checkpoint, save
from varsmooth.models.networks import ReadsClassifier
from varsmooth.noise import NoiseStream, keyed_generator
from varsmooth.objectives import radius_loss, variational_loss
from varsmooth.processes import Engine, launch, writing_to
from varsmooth.selectors import FixedSelector, LearnedSelector, MedianSelector, NoiseSelector
from varsmooth.smoothing import SmoothedClassifier, evaluation_mode
from varsmooth.training.cards import LAMBDAS, measure_selector
from varsmooth.training.configuration import SelectorConfig
from varsmooth.training.loop import Logger, fit
from varsmooth.training.state import already_trained, finished, seeded


class SelectorTask:
    """L = (1−λ) CE + λ KL of the soft smoothed classifier under the levels that h chooses.

    h gets σ_a as an input and sees noise of that level; the target is σ_t = 2 σ_a. f only gives
    gradients to its input: the loop changes `module` alone, which is h.
    """

    def __init__(
        self, module: nn.Module, classifier: nn.Module, sigma_a: float, config: SelectorConfig
    ) -> None:
        self.module = module
        self.config = config
        self.sigma_t = 2 * sigma_a
        self.learned = LearnedSelector(module, sigma_a, config.lam or 0.0)
        selector: NoiseSelector = self.learned
        if config.scheme == "gvstar":
            selector = MedianSelector(self.learned, sigma_a, config.selector_samples)
        self.smoothed = SmoothedClassifier(classifier, selector, samples=config.classifier_samples)

    def loss(
        self, images: Tensor, labels: Tensor, ids: Tensor, key: tuple[int | str, ...]
    ) -> tuple[Tensor, dict[str, float]]:
        config = self.config
        epoch, step, _ = key
        if config.lam is None:  # one λ for the whole batch, whatever share of it is here
            generator = keyed_generator("cpu", config.seed, "lambda", epoch, step)
            self.learned.lam = float(torch.rand((), generator=generator))
        noise = NoiseStream.make(len(images), config.seed, ids).scoped(f"train {epoch} {step}")
        with evaluation_mode(self.smoothed.classifier):
            sigma = self.smoothed.selector(images, noise)  # (B,)
            scores = self.smoothed.scores(images, sigma, noise)  # (B, classes)
        loss = self._objective(scores, labels, sigma, d=images[0].numel()).mean()
        return loss, {
            "accuracy": scores.argmax(dim=1).eq(labels).float().mean().item(),
            "sigma_mean": sigma.mean().item(),
            "sigma_std": sigma.std(correction=0).item(),
            "sigma_min": sigma.min().item(),
            "sigma_max": sigma.max().item(),
        }

    def _objective(self, scores: Tensor, labels: Tensor, sigma: Tensor, d: int) -> Tensor:
        lam = self.learned.lam
        if self.config.objective == "radius":
            return radius_loss(scores, labels, sigma, lam, scale=self.learned.sigma_a)
        reduction = self.config.reduction
        return variational_loss(scores, labels, sigma, self.sigma_t, lam, d, reduction)


def train_selector(config: SelectorConfig, *loggers: Logger) -> Path:
    """Train h as configured; returns the folder of the finished pair of f and h."""
    with writing_to(config.out):
        launch(partial(_train, config, loggers), config.device, config.devices)
    return config.out


def _train(config: SelectorConfig, loggers: tuple[Logger, ...], engine: Engine) -> None:
    model = load_checkpoint(config.classifier, trusted=config.trust)
    if model.classifier is None:
        raise VarsmoothError(f"{config.classifier} holds no classifier")
    about, classifier = model.description, model.classifier.to(engine.device)
    config = config.filled(about.source)
    if already_trained(config, "selector"):
        return
    sigma_a = about.trained_sigma
    g = SmoothedClassifier(classifier, FixedSelector(sigma_a))
    data, held_out = (
        fitted(load_source(config, split), g, *about.trained_on)
        for split in (config.train_split, config.held_out_split)
    )
    options = _network_options(config, data)
    module = seeded(config.network, options, config.seed).to(engine.device)
    if isinstance(module, ReadsClassifier):
        module.attach(classifier)
    task = SelectorTask(module, in_precision(classifier, config.precision), sigma_a, config)
    history = fit(task, data, config, engine, loggers)
    if engine.rank != 0:
        return
    metrics = measure_selector(
        classifier,
        module,
        sigma_a,
        held_out.few(config.held_out_images),
        LAMBDAS if config.lam is None else (config.lam,),
        seed=config.seed,
    )
    description = replace(
        about,
        selector=finished(config, options, history, metrics),
        selector_sigma=sigma_a,
        sigma_t=task.sigma_t,
        lam_range=(0.0, 1.0) if config.lam is None else (config.lam, config.lam),
        recommended={"lam": config.lam or 0.0, "sigma_m": sigma_a},
    )
    save(config.out, description, classifier=classifier, selector=module)


def _network_options(config: SelectorConfig, data: ImageDataset) -> dict[str, Any]:
    """What the data set says about a registered network, then the user's word."""
    fitting = {
        "attention": {"channels": data.images.shape[3]},
        "confidence": {"classes": len(data.class_names)},
    }
    return {**fitting.get(config.network, {}), **config.network_options}
