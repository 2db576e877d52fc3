"""Blocks of images through an evaluation: one process or many, interrupted and continued.

A run's images are cut into blocks by position, and a block is always computed whole. So the
composition of the batches, and with it every digit of a result, does not depend on interruptions or
on the number of processes: process r of R does the blocks r, r+R, …
"""

import os
import platform
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from varsmooth import __version__
from varsmooth._util.fingerprints import fingerprints
from varsmooth._util.processes import writing_to
from varsmooth.data import Batch, ImageDataset
from varsmooth.errors import VarsmoothError
from varsmooth.evaluation.build import BuiltModel, build, described, load_images, seen_before
from varsmooth.evaluation.engines.shards import Shard
from varsmooth.evaluation.headers import HEADER, different_options, stored_probe
from varsmooth.evaluation.options import DataOptions, ModelOptions, RunOptions
from varsmooth.evaluation.records import Key, Row, Run
from varsmooth.models.descriptions import CONFIG
from varsmooth.noise import scoped_seed
from varsmooth.probe import probe
from varsmooth.smoothing import SmoothedClassifier

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True)
class Setup:
    """What one process of a run works with, besides the images."""

    g: SmoothedClassifier
    record: Run
    batch_size: int
    undecided: Callable[[int], None] | None = None


@dataclass(frozen=True)
class Evaluation(ABC):
    """What is done with each block of images: a plain value, which can be sent to processes."""

    options: Any
    verb: ClassVar[str]

    def config(self) -> dict[str, Any]:
        """Every setting as plain values, for the run's header."""
        return asdict(self.options)

    def block(self, batch_size: int) -> int:
        """How many images make a block: enough to fill forward passes of batch_size."""
        return images_per_block(self.options.n, batch_size)

    @abstractmethod
    def rows(self, setup: Setup, batch: Batch) -> list[Row]:
        """The rows of one block, without the column `seconds`."""

    def tally(self, rows: Iterable[Row]) -> Counter[str]:
        """What to show of the rows so far beside their number: how many are of each kind."""
        return Counter()

    def keys(self, image: int) -> Iterable[Key]:
        """The keys of the rows that the image with this id gets."""
        return (image,)

    def in_scope(self, header: Mapping[str, Any]) -> "Self":
        """The same with the noise of the run's own images, see `ImageDataset.noise_scope`."""
        seed = scoped_seed(self.options.seed, header.get("noise_scope", ""))
        return replace(self, options=replace(self.options, seed=seed))

    def check_images(self, images: ImageDataset, data: DataOptions) -> None:
        """Refuse images that do not belong to this evaluation; by default none."""
        return None

    def wrap_model(self, g: SmoothedClassifier, prints: Mapping[str, str]) -> SmoothedClassifier:
        """The smoothed classifier to work with; `prints` are the fingerprints of g."""
        return g


def images_per_block(n: int, batch_size: int) -> int:
    """Images that together fill about eight forward passes: a last, smaller one costs little."""
    return max(1, -(-8 * batch_size // n))


BLOCK_SIZE = 32
"""Images of a block whose votes decide when to stop: as some finish, the others still fill the
forward passes, and an interruption loses little. Not a function of the batch size, so that a replay
finds the same blocks."""


@dataclass(frozen=True)
class Job:
    """A whole run as a plain value, which can be sent to processes and machines."""

    evaluation: Evaluation
    model: ModelOptions
    data: DataOptions
    options: RunOptions

    @property
    def shard(self) -> Shard:
        return Shard.parse(self.options.shard)

    def load(self, device: torch.device) -> tuple[BuiltModel, DataOptions, ImageDataset]:
        """The model, the options of the images with nothing left open, and the images."""
        built = build(self.model, device)
        data = self.data.with_defaults(built.own)
        return built, data, load_images(data, built)

    def prepare(
        self, device: torch.device, rank: int = 0, where: Mapping[str, Any] | None = None
    ) -> tuple[Setup, ImageDataset]:
        """Build the smoothed classifier, load the images, open the record.

        `where` is the environment of the workers, if they compute elsewhere.
        """
        evaluation, options = self.evaluation, self.options
        built, data, images = self.load(device)
        evaluation.check_images(images, data)
        shared = ("batch_size", "device", "devices")  # by all shards
        where_computed = {name: getattr(options, name) for name in shared}
        header = {
            "verb": evaluation.verb,
            "name": options.name or options.out.resolve().name,
            "config": source_config(self.model, data) | where_computed | evaluation.config(),
            "block": evaluation.block(options.batch_size),
            "started": now(),
            "environment": where or environment(device),
            "dataset": described(images, data),
            "class_names": list(built.class_names),
            **seen_before(images, data, built.about, self.model),
            "noise_scope": images.noise_scope,
            **identity(built.g, images.shape, built.fingerprint),
        }
        record = Run.create(options.out, header, self.shard.writer(rank))
        g = evaluation.wrap_model(built.g, header["fingerprints"])
        return Setup(g, record, options.batch_size), images


def run(evaluation: Evaluation, model: ModelOptions, data: DataOptions, options: RunOptions) -> Run:
    """Do the evaluation on every image that has no row yet, and return the record.

    Each process appends to its own file, block by block. After Ctrl-C, a crash or a power loss the
    same call continues, with any number of processes or shards, to the same table; only blocks
    in progress are recomputed.
    """
    from varsmooth.evaluation.engines import local, ray_tasks  # which need what is defined here

    engine = ray_tasks if options.engine == "ray" else local
    job = Job(evaluation, model, data, options)
    whole = options.shard is None and "RANK" not in os.environ  # of torchrun
    new = whole and not (options.out / HEADER).exists()
    with writing_to(options.out, job.shard.lock):
        try:
            engine.compute(job)
        except VarsmoothError:
            if new and [path.name for path in options.out.glob("[!.]*")] == [HEADER]:
                (options.out / HEADER).unlink()  # a refused command leaves nothing
            raise
    return Run.open(options.out)


def rows_of(evaluation: Evaluation, setup: Setup, batch: Batch) -> list[Row]:
    """The rows of one block, computed where the model is."""
    return evaluation.rows(setup, batch._replace(images=batch.images.to(setup.g.device)))


def timed_rows(
    evaluation: Evaluation, setup: Setup, batch: Batch, entries: Iterable[Mapping[str, Any]]
) -> list[Row]:
    """The rows of one block, each with the entries of its image, and with the block's seconds.

    `entries` are `ImageDataset.row_entries` of the batch. Where another version or device than the
    run's computes the rows, they record it.
    """
    images = dict(zip(batch.ids.tolist(), entries, strict=True))
    header, device, started = setup.record.header, setup.g.device, time.perf_counter()
    rows = rows_of(evaluation.in_scope(header), setup, batch)
    more: Row = {"seconds": (time.perf_counter() - started) / max(len(rows), 1)}
    if other_environment(header, device):
        more["environment"] = environment(device)
    return [row | images[row["id"]] | more for row in rows]


def labels_or_none(batch: Batch | ImageDataset) -> list[int | None]:
    """One label per image, None where it is unknown."""
    return [None] * len(batch.ids) if batch.labels is None else batch.labels.tolist()


def other_model(
    header: Mapping[str, Any], g: SmoothedClassifier, classifier: str = ""
) -> list[str]:
    """Where g is not what a run's header says; `classifier` as for `fingerprints`."""
    stored = stored_probe(header)
    now = identity(g, None if stored is None else stored.shape, classifier)
    return different_options(header, {**header, **now})


def identity(
    g: SmoothedClassifier, shape: tuple[int, int, int] | None, classifier: str = ""
) -> dict[str, Any]:
    """What distinguishes one smoothed classifier from another; without a shape, no probe."""
    described = {"fingerprints": fingerprints(g, classifier), "selector": g.selector.describe()}
    if shape is None:
        return described
    return described | {"probe": asdict(probe(g, torch.zeros(1, *shape, device=g.device)))}


NO_PROBE = (
    "whether the model's code and settings, which are outside its weights, are those of the run "
    "(it was saved from Python without images, so it holds no outputs of the model to compare "
    "with; give save_run the images)"
)


def other_environment(header: Mapping[str, Any], device: torch.device) -> list[str]:
    """Differences from what started a run: another version, machine or device."""
    there, here = header.get("environment", {}), environment(device)
    return [
        f"the run was started with {name} {there.get(name)}, this is {here[name]}"
        for name in ("varsmooth", "torch", "platform", "device")
        if there.get(name) != here[name]
    ]


@cache
def environment(device: torch.device) -> dict[str, Any]:
    """Versions, platform and device: what computes the rows."""
    return {
        "varsmooth": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "versions": {name: metadata.version(name) for name in ("numpy", "scipy", "safetensors")},
    }


def absolute_model(model: ModelOptions) -> ModelOptions:
    """The same model, named by its absolute path."""
    folder = Path(model.model or "").expanduser()
    named = model.model is not None and (folder / CONFIG).is_file()
    return replace(model, model=str(folder.resolve())) if named else model


def source_config(model: ModelOptions, data: DataOptions) -> dict[str, Any]:
    """Model and images as a header names them; paths are absolute, so that they hold anywhere."""
    values = asdict(absolute_model(model)) | asdict(data.absolute())
    return values | {"root": values["root"] and str(values["root"])}


def now() -> str:
    return datetime.now(timezone.utc).isoformat(" ", "seconds")
