"""The training loop. What is trained is an argument: a `Task` knows its module and its loss."""

import math
import sys
import time
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from varsmooth.data import ImageDataset
from varsmooth.errors import VarsmoothError, require
from varsmooth.noise import keyed_generator
from varsmooth.processes import Engine
from varsmooth.training.augmentation import crop_and_flip
from varsmooth.training.configuration import TrainingConfig
from varsmooth.training.state import restore_state, save_state


class Task(Protocol):
    """Something to train: a module and the loss of one batch."""

    @property
    def module(self) -> nn.Module:
        """What the optimiser changes."""

    def loss(
        self, images: Tensor, labels: Tensor, ids: Tensor, key: tuple[int | str, ...]
    ) -> tuple[Tensor, dict[str, float]]:
        """The loss of images (B,C,H,W), labels (B,), and what to report about the batch.

        All randomness comes from (seed, *key), where the key names epoch, step and process.
        """


def fit(
    task: Task, data: ImageDataset, config: TrainingConfig, engine: Engine
) -> list[dict[str, float]]:
    """Train task.module, one line of progress per epoch; returns the history of the epochs.

    Randomness is a function of (seed, epoch, step, process) and the learning rate of the step, so
    that the state after an epoch is only weights, optimiser and history: a run that was killed
    continues to the same weights, bit for bit, as one that was not.
    """
    batches = Batches(data, config, engine)
    optimizer = _optimizer(task.module, config)
    path = config.out / "state.pt"
    history: list[dict[str, float]] = []
    if config.resume:
        history = restore_state(path, task.module, optimizer, config, engine.device)
    writer = _tensorboard(config) if engine.rank == 0 else None
    for epoch in range(len(history), config.epochs):
        began = time.perf_counter()
        report = _train_epoch(task, batches, optimizer, config, engine, epoch)
        seconds = round(time.perf_counter() - began, 1)
        history.append({"epoch": epoch + 1, "seconds": seconds, **report})
        if engine.rank == 0:
            save_state(path, task.module, optimizer, history, config)
            _tell(history[-1], config.epochs)
            if writer is not None:
                for name, value in report.items():
                    writer.add_scalar(name, value, epoch + 1)
    if writer is not None:
        writer.close()
    return history


def _train_epoch(
    task: Task,
    batches: "Batches",
    optimizer: torch.optim.Optimizer,
    config: TrainingConfig,
    engine: Engine,
    epoch: int,
) -> dict[str, float]:
    """One pass over the training images; returns what to report about it."""
    module, report = task.module, Report()
    trained = [p for p in module.parameters() if p.requires_grad]
    module.train()
    for step, (images, labels, ids) in enumerate(batches.of_epoch(epoch)):
        progress = (epoch + step / batches.steps) / config.epochs
        for group in optimizer.param_groups:
            group["lr"] = config.learning_rate * one_cycle(progress, config.warmup)
        loss, batch_report = task.loss(images, labels, ids, (epoch, step, engine.rank))
        require(
            math.isfinite(loss.item()),
            f"the loss became {loss.item()} in epoch {epoch + 1}, step {step + 1}; "
            "try a lower learning_rate",
        )
        optimizer.zero_grad()
        torch.autograd.backward(loss, inputs=trained)  # nothing else gets a gradient
        engine.average(p.grad for p in trained if p.grad is not None)
        optimizer.step()
        report.add({"loss": loss.item(), **batch_report})
    with torch.no_grad():  # running statistics differ between processes that saw other images
        engine.average(buffer for buffer in module.buffers() if buffer.is_floating_point())
    return report.summary()


class Batches:
    """The training images of this process, shuffled and augmented anew in every epoch."""

    def __init__(self, data: ImageDataset, config: TrainingConfig, engine: Engine) -> None:
        require(
            data.labels is not None, f"{data.name} has no labels, so nothing can be learned from it"
        )
        assert data.labels is not None
        images_per_epoch = min(config.images_per_epoch or len(data), len(data))
        self.steps = images_per_epoch // config.batch_size
        require(
            self.steps >= 1,
            f"one epoch has {images_per_epoch} images, fewer than batch_size {config.batch_size}",
        )
        self.config, self.engine = config, engine
        self.pixels = torch.from_numpy(np.require(data.images, requirements="W"))  # (N,H,W,C)
        self.labels, self.ids = torch.from_numpy(data.labels), torch.from_numpy(data.ids)

    def of_epoch(self, epoch: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Images (B,C,H,W) in [0,1], labels (B,) and ids (B,) of this process's share."""
        config, engine = self.config, self.engine
        shuffle = keyed_generator("cpu", config.seed, "order", epoch)
        order = torch.randperm(len(self.pixels), generator=shuffle)
        for step in range(self.steps):
            batch = order[step * config.batch_size : (step + 1) * config.batch_size]
            mine = batch[engine.rank :: engine.processes]
            generator = keyed_generator("cpu", config.seed, "augment", epoch, step, engine.rank)
            images = crop_and_flip(self.pixels[mine], generator, config.crop, config.flip)
            images = images.to(engine.device).permute(0, 3, 1, 2).float().div_(255)
            yield images, self.labels[mine].to(engine.device), self.ids[mine]


def _optimizer(module: nn.Module, config: TrainingConfig) -> torch.optim.Optimizer:
    """AdamW; only kernels and matrices decay, not biases and scales."""
    trained = [p for p in module.parameters() if p.requires_grad]
    groups: list[dict[str, Any]] = [
        {"params": [p for p in trained if p.ndim > 1], "weight_decay": config.weight_decay},
        {"params": [p for p in trained if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=config.learning_rate)


def one_cycle(progress: float, warmup: float) -> float:
    """The learning rate's share of its highest value: a linear rise, then half a cosine to 0.

    >>> [round(one_cycle(t, 0.2), 2) for t in (0.1, 0.2, 0.6)]
    [0.5, 1.0, 0.5]
    """
    if progress < warmup:
        return max(progress / warmup, 1e-3)  # a first step of length zero would be a wasted one
    return 0.5 * (1 + math.cos(math.pi * (progress - warmup) / (1 - warmup)))


class Report:
    """What the batches of an epoch reported: means, and for σ also spread and extremes."""

    def __init__(self) -> None:
        self.values: dict[str, list[float]] = {}

    def add(self, batch: dict[str, float]) -> None:
        for name, value in batch.items():
            self.values.setdefault(name, []).append(value)

    def summary(self) -> dict[str, float]:
        fold = {"sigma_min": np.min, "sigma_max": np.max}
        return {
            name: round(float(fold.get(name, np.mean)(values)), 5)
            for name, values in self.values.items()
        }


def _tell(entry: dict[str, float], epochs: int) -> None:
    """One line per epoch: what happened, and when the run will be over."""
    left = (epochs - entry["epoch"]) * entry["seconds"]
    numbers = " ".join(
        f"{name} {value:.4g}" for name, value in entry.items() if name not in ("epoch", "seconds")
    )
    done = f"epoch {entry['epoch']}/{epochs}"
    print(
        f"{done}  {numbers}  {entry['seconds']:.0f} s, {left / 60:.1f} min left",
        file=sys.stderr,
        flush=True,
    )


def _tensorboard(config: TrainingConfig) -> Any:
    if not config.tensorboard:
        return None
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise VarsmoothError(
            "TensorBoard logs need tensorboard; install it with: pip install 'varsmooth[logs]'"
        ) from error
    return SummaryWriter(str(config.out))
