"""The training loop. What is trained is an argument: a `Task` knows its module and its loss."""

import json
import math
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from varsmooth.data import ImageDataset
from varsmooth.errors import VarsmoothError, require
from varsmooth.noise import keyed_generator
from varsmooth.training.augmentation import crop_and_flip
from varsmooth.training.configuration import TrainingConfig
from varsmooth.training.engine import Engine, average_gradients


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


def fit(task: Task, data: ImageDataset, config: TrainingConfig, engine: Engine) -> list[Any]:
    """Train task.module, one line of progress per epoch; returns the history of the epochs.

    Randomness is a function of (seed, epoch, step, process) and the learning rate of the step, so
    that the state after an epoch is only weights, optimiser and history: a run that was killed
    continues to the same weights, bit for bit, as one that was not.
    """
    require(
        data.labels is not None, f"{data.name} has no labels, so nothing can be learned from it"
    )
    assert data.labels is not None
    module = task.module
    trained = [p for p in module.parameters() if p.requires_grad]
    groups: list[dict[str, Any]] = [
        {"params": [p for p in trained if p.ndim > 1], "weight_decay": config.weight_decay},
        {"params": [p for p in trained if p.ndim <= 1], "weight_decay": 0.0},  # biases, scales
    ]
    optimizer = torch.optim.AdamW(groups, lr=config.learning_rate)
    state_file = Path(config.output) / "state.pt"
    history = _restore(state_file, module, optimizer, config, engine) if config.resume else []
    images_per_epoch = min(config.images_per_epoch or len(data), len(data))
    steps = images_per_epoch // config.batch_size
    require(
        steps >= 1,
        f"one epoch has {images_per_epoch} images, fewer than batch_size {config.batch_size}",
    )
    pixels = torch.from_numpy(np.require(data.images, requirements="W"))  # (N,H,W,C) uint8
    targets, ids = torch.from_numpy(data.labels), torch.from_numpy(data.ids)
    writer = _tensorboard(config) if engine.rank == 0 else None
    for epoch in range(len(history), config.epochs):
        began, report = time.perf_counter(), Report()
        order = torch.randperm(
            len(data), generator=keyed_generator("cpu", config.seed, "order", epoch)
        )
        for step in range(steps):
            batch = order[step * config.batch_size : (step + 1) * config.batch_size]
            mine = batch[engine.rank :: engine.processes]
            generator = keyed_generator("cpu", config.seed, "augment", epoch, step, engine.rank)
            images = crop_and_flip(pixels[mine], generator, config.crop, config.flip)
            images = images.to(engine.device).permute(0, 3, 1, 2).float().div_(255)
            for group in optimizer.param_groups:
                group["lr"] = config.learning_rate * one_cycle(
                    (epoch * steps + step) / (config.epochs * steps), config.warmup
                )
            module.train()
            loss, batch_report = task.loss(
                images, targets[mine].to(engine.device), ids[mine], (epoch, step, engine.rank)
            )
            if not math.isfinite(loss.item()):
                raise VarsmoothError(
                    f"the loss became {loss.item()} in epoch {epoch + 1}, step {step + 1}; "
                    "try a lower learning_rate"
                )
            optimizer.zero_grad()
            torch.autograd.backward(loss, inputs=trained)  # nothing else gets a gradient
            average_gradients(engine, module)
            optimizer.step()
            report.add({"loss": loss.item(), **batch_report})
        with torch.no_grad():  # running statistics differ between processes that saw other images
            if any(buffer.is_floating_point() for buffer in module.buffers()):
                engine.average(module.buffers())
        seconds = time.perf_counter() - began
        history.append({"epoch": epoch + 1, "seconds": round(seconds, 1), **report.summary()})
        if engine.rank == 0:
            _save(state_file, module, optimizer, history, config)
            _tell(history[-1], config.epochs)
            if writer is not None:
                for name, value in report.summary().items():
                    writer.add_scalar(name, value, epoch + 1)
    if writer is not None:
        writer.close()
    return history


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


def _save(
    path: Path,
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    history: list[Any],
    config: TrainingConfig,
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    torch.save(
        {
            "config": json.dumps(identity(config)),
            "module": module.state_dict(),
            "optimizer": optimizer.state_dict(),
            "history": json.dumps(history),
        },
        part,
    )
    os.replace(part, path)  # a run killed here leaves the old state or the new one, never half


def _restore(
    path: Path,
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    config: TrainingConfig,
    engine: Engine,
) -> list[Any]:
    """The history of the epochs that are done, with module and optimiser as they were then."""
    if not path.is_file():
        return []
    try:
        state = torch.load(path, map_location=engine.device, weights_only=True)
        then, now = json.loads(state["config"]), identity(config)
        history: list[Any] = json.loads(state["history"])
    except Exception as error:  # torch and zip raise many kinds
        raise VarsmoothError(
            f"{path} is no training state; delete it or use resume=false"
        ) from error
    different = [key for key in now if key in then and then[key] != now[key]]
    require(
        not different,
        f"{path} belongs to a run with another {', '.join(different)}; "
        "choose another output folder, or resume=false to start anew",
    )
    module.load_state_dict(state["module"])
    optimizer.load_state_dict(state["optimizer"])
    return history


def identity(config: TrainingConfig) -> dict[str, Any]:
    """The options that decide the weights; a run may move to another folder or data root."""
    moves = ("output", "data_root", "resume", "tensorboard", "held_out_images", "votes")
    values = {key: value for key, value in asdict(config).items() if key not in moves}
    plain: dict[str, Any] = json.loads(json.dumps(values))
    return plain


def _tensorboard(config: TrainingConfig) -> Any:
    if not config.tensorboard:
        return None
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise VarsmoothError(
            "TensorBoard logs need tensorboard; install it with: pip install 'varsmooth[logs]'"
        ) from error
    return SummaryWriter(config.output)
