"""Blocks of images through an evaluation: one process or many, interrupted and continued.

A run's images are cut into blocks by position, and a block is always computed whole. So what a
network sees together, and with it every digit of a result, does not depend on interruptions or
on the number of processes: process r of R does the blocks r, r+R, …
"""

import os
import platform
import sys
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar

import torch

from varsmooth import __version__
from varsmooth._util.fingerprints import fingerprints, matches
from varsmooth._util.processes import Engine, launch, writing_to
from varsmooth._util.progress import Progress
from varsmooth.data import Batch, ImageDataset
from varsmooth.data.fitting import outputs_on
from varsmooth.errors import VarsmoothError
from varsmooth.evaluation.build import build, described, load_images, seen_before
from varsmooth.evaluation.options import DataOptions, ModelOptions, RunOptions
from varsmooth.evaluation.records import HEADER, SEEN, Key, Row, Run, key_of, other_settings
from varsmooth.models.descriptions import CONFIG
from varsmooth.rounding import percent
from varsmooth.smoothing import SmoothedClassifier


@dataclass(frozen=True)
class Setup:
    """What one process of a run works with."""

    g: SmoothedClassifier
    images: ImageDataset
    record: Run
    batch_size: int
    undecided: Callable[[int], None] | None = None


@dataclass(frozen=True)
class Evaluation(ABC):
    """What is done with each block of images: a plain value, which can be sent to processes."""

    settings: Any
    verb: ClassVar[str]

    def config(self) -> dict[str, Any]:
        """Every setting as plain values, for the run's header."""
        return asdict(self.settings)

    def block(self, batch_size: int) -> int:
        """How many images make a block: enough to fill forward passes of batch_size."""
        return images_per_block(self.settings.n, batch_size)

    @abstractmethod
    def rows(self, setup: Setup, batch: Batch) -> list[Row]:
        """The rows of one block, without the column `seconds`."""

    def tally(self, rows: Iterable[Row]) -> Counter[str]:
        """What to show of the rows so far beside their number: how many are of each kind."""
        return Counter()

    def keys(self, image: int) -> Iterable[Key]:
        """The keys of the rows that the image with this id gets."""
        return (image,)

    def wrap_model(self, g: SmoothedClassifier) -> SmoothedClassifier:
        """The smoothed classifier to work with."""
        return g


def images_per_block(n: int, batch_size: int) -> int:
    """Images that together fill about eight forward passes: a last, smaller one costs little."""
    return max(1, -(-8 * batch_size // n))


BLOCK_SIZE = 32
"""Images of a block whose votes decide when to stop: as some finish, the others still fill the
forward passes, and an interruption loses little. Not a function of the batch size, so that a replay
finds the same blocks."""


def run(evaluation: Evaluation, model: ModelOptions, data: DataOptions, options: RunOptions) -> Run:
    """Do the evaluation on every image that has no row yet, and return the record.

    With several processes each appends to its own file. Any of them may die: the same call
    continues, with any number of processes, to the same table.
    """
    prepared = partial(prepare, evaluation, model, data, options)
    label = f"{evaluation.verb} {options.name or ''}".rstrip()
    new = not (options.out / HEADER).exists() and "RANK" not in os.environ  # of torchrun
    with writing_to(options.out):
        try:
            if options.devices > 1:  # what is wrong is said once, before any process starts
                prepared(torch.device("cpu"))
            launch(partial(_run_rank, evaluation, prepared, label), options.device, options.devices)
        except VarsmoothError:
            if new and [path.name for path in options.out.glob("[!.]*")] == [HEADER]:
                (options.out / HEADER).unlink()  # a refused command leaves nothing
            raise
    return Run.open(options.out)


def prepare(
    evaluation: Evaluation,
    model: ModelOptions,
    data: DataOptions,
    options: RunOptions,
    device: torch.device,
    rank: int = 0,
) -> Setup:
    """Build the smoothed classifier, load the images, open the record."""
    built = build(model, device)
    data = data.filled(built.own)
    images = load_images(data, built)
    g = built.g
    header = {
        "verb": evaluation.verb,
        "name": options.name or options.out.resolve().name,
        "config": _config(model, data, options) | evaluation.config(),
        "started": datetime.now(timezone.utc).isoformat(" ", "seconds"),
        "environment": environment(device),
        "dataset": described(images, data),
        "class_names": list(built.class_names),
        **seen_before(images, data, built.about, model),
        **identity(g),
    }
    return Setup(
        evaluation.wrap_model(g), images, Run.create(options.out, header, rank), options.batch_size
    )


def _run_rank(
    evaluation: Evaluation, prepared: Callable[..., Setup], label: str, engine: Engine
) -> None:
    """This process's blocks."""
    setup = prepared(engine.device, engine.rank)
    ids, stored = setup.images.ids.tolist(), setup.record.rows()
    done, tally, counted = {key_of(row) for row in stored}, evaluation.tally(stored), len(stored)
    drawn = sum(row.get("samples", 0) for row in stored)
    del stored
    size = evaluation.block(setup.batch_size)
    blocks = [slice(start, start + size) for start in range(0, len(ids), size)]
    mine = blocks[engine.rank :: engine.processes]
    todo = [b for b in mine if any(key not in done for i in ids[b] for key in evaluation.keys(i))]
    total, left = sum(len(ids[b]) for b in mine), sum(len(ids[b]) for b in todo)
    label += f" (process 1 of {engine.processes})" * (engine.processes > 1)
    shown = engine.rank == 0
    for name, what in SEEN.items():
        if shown and (seen := setup.record.header.get(name)):
            print(f"warning: {what.format(seen)} of these {len(ids)} images", file=sys.stderr)
    names, outputs = setup.images.class_names, outputs_on(setup.images, setup.g)
    if shown and names and outputs != len(names):
        note = f"the model has {outputs} outputs, {setup.images.name} has {len(names)} classes"
        print(f"note: {note}; a vote for any other output counts as wrong", file=sys.stderr)
    if shown and done:
        print(f"resuming: {total - left:,} of {total:,} images are there", file=sys.stderr)
    with (
        Progress(total, label, total - left, shown) as progress,
        saying_what_is_saved(progress, shown),
    ):
        for block in todo:
            batch = setup.images.batch(block)
            setup = replace(setup, undecided=partial(progress.wait, len(batch.ids)))
            started = time.perf_counter()
            rows = evaluation.rows(setup, batch._replace(images=batch.images.to(engine.device)))
            seconds = (time.perf_counter() - started) / len(rows)
            new = [row | {"seconds": seconds} for row in rows if key_of(row) not in done]
            setup.record.append(new)
            tally.update(evaluation.tally(new))
            counted += len(new)
            found = [f"{name}: {percent(k, counted)} %" for name, k in tally.items()]
            drawn += sum(row.get("samples", 0) for row in new)
            if drawn:
                found.append(f"{drawn / counted:,.0f} samples per image")
            progress.add(len(ids[block]), *found)


@contextmanager
def saying_what_is_saved(progress: Progress, shown: bool) -> Iterator[None]:
    """A block is recorded when all of its images are done, so an interruption loses some."""
    try:
        yield
    except KeyboardInterrupt:
        if shown:
            saved = f"saved: {progress.count:,} of {progress.total:,} images"
            print(f"\n{saved}; those in work will be done again", file=sys.stderr)
        raise


def labels_of(batch: Batch | ImageDataset) -> list[int | None]:
    """One label per image, None where it is unknown."""
    return [None] * len(batch.ids) if batch.labels is None else batch.labels.tolist()


def other_model(header: Mapping[str, Any], g: SmoothedClassifier) -> list[str]:
    """Where g is not what a run's header says; fingerprints of older versions are recognised."""
    now, there = identity(g), header["fingerprints"]
    for name, module in (("classifier", g.classifier), ("selector", g.selector)):
        if matches(there.get(name), module):
            now["fingerprints"][name] = there[name]
    return other_settings(header, {**header, **now})


def identity(g: SmoothedClassifier) -> dict[str, Any]:
    """What distinguishes one smoothed classifier from another."""
    return {"fingerprints": fingerprints(g), "selector": g.selector.describe()}


def environment(device: torch.device) -> dict[str, Any]:
    """What computed the rows."""
    return {
        "varsmooth": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "versions": {name: metadata.version(name) for name in ("numpy", "scipy", "safetensors")},
    }


def _config(model: ModelOptions, data: DataOptions, options: RunOptions) -> dict[str, Any]:
    """Options as plain values; paths are absolute, so that they hold from anywhere."""
    values = asdict(model) | asdict(data.absolute())
    if model.model is not None and (Path(model.model).expanduser() / CONFIG).is_file():
        values["model"] = str(Path(model.model).expanduser().resolve())
    values["root"] = data.root and str(values["root"])
    where = ("batch_size", "device", "devices")
    return values | {name: getattr(options, name) for name in where}
