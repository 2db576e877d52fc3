"""The training loop, for any `Task`: a module and its loss."""

import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from tqdm import tqdm

from varsmooth._util.processes import Engine
from varsmooth.data import ImageDataset
from varsmooth.errors import check, wrap_errors
from varsmooth.evaluation.measure import Metrics
from varsmooth.noise import keyed_generator
from varsmooth.rounding import counted
from varsmooth.training.configuration import TrainingConfig
from varsmooth.training.optimizers import optimizers
from varsmooth.training.state import STATE, Position, restore_state, resumable, save_state


class Task(Protocol):
    """Something to train: a module and the loss of one batch."""

    module: nn.Module  # what the optimiser changes

    def loss(
        self, images: Tensor, labels: Tensor, ids: Tensor, key: tuple[int | str, ...]
    ) -> tuple[Tensor, dict[str, float]]:
        """The loss of images (B,C,H,W), labels (B,), and what to report about the batch.

        All randomness comes from (seed, *key), where the key names epoch, step and process.
        """


SAVE_EVERY = 120.0
"""Seconds between two states saved within an epoch; its end is saved in any case."""

FEW_STEPS = 500
"""Fewer steps in all are worth a warning: a small data set in large batches."""

Entry = dict[str, float]
"""What one epoch reported: its number, its seconds, and means over its batches."""

Logger = Callable[[Entry], None]
"""Called at the end of every epoch, in the first process: `wandb.log` can be one."""

PROGRESS = {"epoch", "seconds"}
"""The entries that describe the run and not the network."""


def fit(
    task: Task,
    data: ImageDataset,
    config: TrainingConfig,
    engine: Engine,
    loggers: tuple[Logger, ...] = (),
    before: Metrics | None = None,
    short: bool = False,
) -> Position:
    """Train task.module; a bar within each epoch, one line after it. Returns where training ended.

    `before`, what was measured before the first step, stays with the state of the run. `short`
    means that few steps are intended.

    Randomness is a function of (seed, epoch, step, process) and the learning rate of the step, so
    that the state of a run is only weights, optimiser and position: a run that was killed
    continues to the same weights, bit for bit, as one that was not. (Several processes with
    BatchNorm are the exception: until the end of an epoch each has statistics of its own.)
    """
    config = suited(config, len(data))
    batches = Batches(data, config, engine)
    run = _Run(task, config, engine)
    position = run.restore(batches.steps) if resumable(config) else Position(before=before)
    if engine.rank == 0 and before is not None:  # it took long: an interruption must not lose it
        save_state(run.path, run.parts, position, config)
    if engine.rank == 0:
        shown = batches.steps * config.batch_size
        plan = f"{counted(shown, 'image')} an epoch in batches of {config.batch_size}"
        _say(f"{plan}; the time left follows the first epoch")
        if (steps := config.epochs * batches.steps) < FEW_STEPS and not short:
            few = f"training steps in all: {steps}, which may be too few"
            _say(f"{few}; try more epochs (--epochs) or a smaller --batch-size")
        loggers = (partial(_say_epoch, config.epochs), *loggers)
        loggers += (tensorboard(config.out),) if config.tensorboard else ()
    for epoch in range(config.first_epoch + len(position.history), config.epochs):
        report = run.train_epoch(batches, position)
        entry = {"epoch": epoch + 1, "seconds": round(position.seconds, 1), **report}
        position = Position([*position.history, entry], before=position.before)
        if engine.rank == 0:
            save_state(run.path, run.parts, position, config)
            for log in loggers:
                log(entry)
    if run.average is not None:
        task.module.load_state_dict(run.average.module.state_dict())
    return position


def suited(config: TrainingConfig, images: int) -> TrainingConfig:
    """The configuration, with a batch size that leaves out few images of a short epoch."""
    most = min(images, config.images or images, config.images_per_epoch or images)
    check(most >= config.devices, f"{most} images are too few for {config.devices} processes")
    steps = -(-most // config.batch_size)
    size = most // steps // config.devices * config.devices
    if steps >= 10 or size == config.batch_size:
        return config
    return replace(config, batch_size=size)


class _Run:
    """What changes while a task is trained: its weights, their average and the optimisers."""

    def __init__(self, task: Task, config: TrainingConfig, engine: Engine) -> None:
        self.task, self.config, self.engine = task, config, engine
        self.path = config.out / STATE
        self.optimizers = optimizers(task.module, config)
        self.parts: dict[str, Any] = {"module": task.module}
        self.parts |= {type(part).__name__: part for part in self.optimizers}
        self.average = None
        if config.ema > 0:
            follow = get_ema_multi_avg_fn(config.ema)  # type: ignore[no-untyped-call]
            self.average = AveragedModel(task.module, multi_avg_fn=follow, use_buffers=True)
            self.parts["average"] = self.average

    def restore(self, steps: int) -> Position:
        """The saved position, which is announced; `steps` make an epoch."""
        position = restore_state(self.path, self.parts, self.config, self.engine.device)
        done = self.config.first_epoch + len(position.history)
        if self.engine.rank == 0 and (done or position.step):
            where = f"epoch {done}" + (f" and step {position.step}/{steps}" * (position.step > 0))
            _say(f"resuming after {where} from {self.path}")
        return position

    def train_epoch(self, batches: "Batches", position: Position) -> dict[str, float]:
        """What is left of one pass over the training images; returns what to report about it.

        The state is saved every SAVE_EVERY seconds; `position` is kept up to date.
        """
        config, module = self.config, self.task.module
        epoch = config.first_epoch + len(position.history)
        began, saved = time.perf_counter() - position.seconds, position.seconds
        module.train()
        recent: dict[str, str] = {}
        bar = tqdm(
            desc=f"epoch {epoch + 1}/{config.epochs}",
            initial=position.step * config.batch_size,
            total=batches.steps * config.batch_size,
            unit="img",
            leave=False,
            disable=None if self.engine.rank == 0 else True,
        )
        for batch in batches.of_epoch(epoch, position.step):
            factor = learning_rate_factor(epoch + position.step / batches.steps, config)
            report = self._step(batch, (epoch, position.step, self.engine.rank), factor)
            for name, value in report.items():
                position.reported.setdefault(name, []).append(value)
                recent[name] = f"{np.mean(position.reported[name][-50:]):.3g}"
            bar.set_postfix({k: recent[k] for k in ("loss", "accuracy") if k in recent}, False)
            bar.update(config.batch_size)
            position.step += 1
            position.seconds = time.perf_counter() - began
            if self.engine.rank == 0 and position.seconds - saved >= SAVE_EVERY:
                saved = position.seconds
                save_state(self.path, self.parts, position, config)
        bar.close()
        with torch.no_grad():  # running statistics differ between processes that saw other images
            for part in filter(None, (module, self.average)):
                self.engine.average(b for b in part.buffers() if b.is_floating_point())
        fold = {"sigma_min": np.min, "sigma_max": np.max}
        return {
            name: round(float(fold.get(name, np.mean)(values)), 5)
            for name, values in position.reported.items()
        }

    def _step(
        self, batch: tuple[Tensor, Tensor, Tensor], key: tuple[int, int, int], factor: float
    ) -> dict[str, float]:
        """One step at this share of the learning rates; returns what to report about its batch."""
        module = self.task.module
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = optimizer.defaults["lr"] * factor
        loss, report = self.task.loss(*batch, key)
        first = key[:2] == (self.config.first_epoch, 0)
        check(
            not (first and math.isnan(loss.item())),
            "the network returns NaN before any step of training; check its weights, its "
            "normalisation and its forward",
        )
        check(
            math.isfinite(loss.item()),
            f"the loss became {loss.item()} in epoch {key[0] + 1}, step {key[1] + 1}; "
            "try a lower `learning_rate`",
        )
        check(
            loss.requires_grad,
            "the output of the network has no gradient in training; let its forward compute "
            "without torch.no_grad(), inference_mode() and detach()",
        )
        module.zero_grad()
        trained = [p for p in module.parameters() if p.requires_grad]
        torch.autograd.backward(loss, inputs=trained)  # nothing else gets a gradient
        self.engine.average(p.grad for p in trained if p.grad is not None)
        for optimizer in self.optimizers:
            optimizer.step()
        if self.average is not None:
            self.average.update_parameters(module)
        return {"loss": loss.item(), **report}


class Batches:
    """The training images of this process, shuffled and augmented anew in every epoch."""

    def __init__(self, data: ImageDataset, config: TrainingConfig, engine: Engine) -> None:
        if config.images is not None:
            data = evenly_spaced(data, config.images)
        self.steps = min(config.images_per_epoch or len(data), len(data)) // config.batch_size
        self.config, self.engine = config, engine
        self.pixels = torch.from_numpy(np.require(data.images, requirements="W"))  # (N,H,W,C)
        self.labels, self.ids = torch.from_numpy(data.known_labels), torch.from_numpy(data.ids)

    def of_epoch(self, epoch: int, first: int = 0) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Images (B,C,H,W) in [0,1], labels (B,), ids (B,) of this process, from step `first`."""
        config, engine = self.config, self.engine
        shuffle = keyed_generator("cpu", config.seed, "order", epoch)
        order = torch.randperm(len(self.pixels), generator=shuffle)
        for step in range(first, self.steps):
            batch = order[step * config.batch_size : (step + 1) * config.batch_size]
            mine = batch[engine.rank :: engine.processes]
            generator = keyed_generator("cpu", config.seed, "augment", epoch, step, engine.rank)
            images = crop_and_flip(self.pixels[mine], generator, config.crop, config.flip)
            images = images.to(engine.device).permute(0, 3, 1, 2).float().div_(255)
            yield images, self.labels[mine].to(engine.device), self.ids[mine]


def crop_and_flip(images: Tensor, generator: torch.Generator, crop: int, flip: bool) -> Tensor:
    """Shift each image by up to `crop` pixels (zeros come in) and mirror half of them.

    images (B,H,W,C) of any dtype, on the generator's device → the same shape. Every output row
    and column is an index into the padded image, so that one gather serves the whole batch.
    """
    batch, height, width, _ = images.shape
    device = images.device
    padded = functional.pad(images, (0, 0, crop, crop, crop, crop))
    shift = torch.randint(0, 2 * crop + 1, (2, batch, 1), generator=generator, device=device)
    rows = shift[0] + torch.arange(height, device=device)  # (B, H)
    columns = shift[1] + torch.arange(width, device=device)  # (B, W)
    if flip:
        mirrored = torch.rand(batch, 1, generator=generator, device=device) < 0.5
        columns = torch.where(mirrored, columns.flip(1), columns)
    index = torch.arange(batch, device=device)[:, None, None]
    return padded[index, rows[:, :, None], columns[:, None, :]]


def evenly_spaced(data: ImageDataset, count: int) -> ImageDataset:
    """`count` images of a data set, the same ones at every call."""
    check(count <= len(data), f"{data.name} has {len(data)} images, so images cannot be {count}")
    step = len(data) // count
    return data[: step * count : step]


def learning_rate_factor(epoch: float, config: TrainingConfig) -> float:
    """The learning rate's share of its highest value: a linear rise, `hold`, half a cosine to 0.

    A run that begins at `first_epoch` has a fresh optimiser, so its first epoch rises, too.

    Examples:
        >>> config = TrainingConfig(out=Path("run"), epochs=10, warmup=0.2, hold=0.4)
        >>> [round(learning_rate_factor(epoch, config), 2) for epoch in (1, 2, 6, 8)]
        [0.5, 1.0, 1.0, 0.5]
    """
    share, flat = epoch / config.epochs, config.warmup + config.hold
    if share < config.warmup:
        factor = share / config.warmup
    else:
        factor = 0.5 * (1 + math.cos(math.pi * max(share - flat, 0) / (1 - flat)))
    if config.first_epoch > 0:
        factor *= min(epoch - config.first_epoch, 1)
    return max(factor, 1e-3)  # a first step of length zero would be a wasted one


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _say_epoch(epochs: int, entry: Entry) -> None:
    """Print the numbers of an epoch and the time left."""
    left = (epochs - entry["epoch"]) * entry["seconds"] / 60
    numbers = " ".join(f"{k} {v:.4g}" for k, v in entry.items() if k not in PROGRESS)
    done = f"epoch {entry['epoch']}/{epochs}"
    _say(f"{done}  {numbers}  {entry['seconds']:.0f} s, {left:.1f} min left")


def tensorboard(folder: Path) -> Logger:
    """TensorBoard logs in the folder."""
    missing = "TensorBoard logs need tensorboard; install it with: pip install tensorboard"
    with wrap_errors(ImportError, missing):
        from torch.utils.tensorboard import SummaryWriter
    writer: Any = SummaryWriter(str(folder))

    def log(entry: Entry) -> None:
        for name in entry.keys() - PROGRESS:
            writer.add_scalar(name, entry[name], entry["epoch"])
        writer.flush()

    return log
