"""What a certification will cost, before it starts.

seconds per image = measured on a pilot; or, with one fixed level and a fixed number of votes,
(n0 + n) / (forward passes per second), measured on two batches.
"""

import sys
import time
from dataclasses import dataclass, replace

import numpy as np
import torch

from varsmooth._util.processes import choose_device
from varsmooth.bounds import Floats
from varsmooth.data import ImageDataset
from varsmooth.evaluation.certify import Certifying
from varsmooth.evaluation.headers import HEADER
from varsmooth.evaluation.records import Run
from varsmooth.evaluation.runner import Job, Setup, rows_of
from varsmooth.rounding import counted
from varsmooth.smoothing import SmoothedClassifier

PILOT = 20
"""Images whose cost is measured where it depends on the image."""

PILOT_VOTES = 1000
"""Votes of a pilot at each level, if their number is fixed and larger."""


@dataclass(frozen=True)
class Estimate:
    """The cost of a run on the images that have no row yet.

    Attributes:
        images: Their number.
        speed: Forward passes of f per second, with their noise, in one process.
        samples: Noisy copies classified by f, per image of the pilot; one number needs no pilot.
        selector_samples: Noisy copies passed to the selector, likewise.
        seconds: Of one process, likewise.
        memory: Most bytes that this process had in use, on its device; None: unknown here.
    """

    images: int
    speed: float
    samples: Floats
    selector_samples: Floats
    seconds: Floats
    memory: int | None

    def hours(self, workers: int = 1) -> float:
        """Of the whole run, on so many workers like this process."""
        return self.images * float(self.seconds.mean()) / 3600 / workers

    def text(self, workers: int) -> list[str]:
        """What a terminal shows."""
        samples, draws = self.samples.mean(), self.selector_samples.mean()
        per_image = f"{samples:,.0f} samples of f"
        if draws:
            per_image += f" and {draws:,.0f} of the selector"
        spread, pilot, mean = "", len(self.seconds), self.seconds.mean()
        if pilot > 1:  # which saw only some images
            error = self.seconds.std(ddof=1) / pilot**0.5 / mean
            ratios = f"{max(1 - 2 * error, 0):.1f} to {1 + 2 * error:.1f}"
            spread = f" (from {counted(pilot, 'image')}; ±2 standard errors: {ratios} times this)"
        lines = [
            f"{counted(self.images, 'image')} to certify, {per_image} per image: "
            f"{self.images * samples:,.0f} forward passes of f, {self.speed:,.0f} per second",
            f"one process like this: {duration(self.hours())}{spread}",
            f"{workers} of them, each with a device of its own: {duration(self.hours(workers))}",
        ]
        if self.memory is not None:
            lines.append(f"memory of a process: {self.memory / 1e6:,.0f} MB")
        return lines


def duration(hours: float) -> str:
    """A duration in the unit that suits it: 40 s, 12 min, 3.4 h.

    Examples:
        >>> duration(0.01), duration(0.2), duration(3.44)
        ('36 s', '12 min', '3.4 h')
    """
    if hours < 1 / 30:
        return f"{hours * 3600:.0f} s"
    return f"{hours * 60:.0f} min" if hours < 2 else f"{hours:,.1f} h"


def estimate(job: Job) -> Estimate:
    """Measure what certifying one image costs here; writes nothing."""
    device = choose_device(job.options.device)
    built, _, images = job.load(device)
    assert isinstance(job.evaluation, Certifying)
    options, g = job.evaluation.options, built.g
    speed = _speed(g, images, job.options.batch_size)
    samples, selector_samples = np.array([float(options.n0 + options.n)]), np.zeros(1)
    seconds = samples / speed
    if options.n_max is not None or g.selector.describe()["selector"] != "fixed":
        votes = options.n if options.n_max is None else 0
        few = replace(options, n=PILOT_VOTES) if votes > PILOT_VOTES else options
        samples, selector_samples, seconds = _pilot(job, Certifying(few), g, images)
        if votes > PILOT_VOTES:  # the levels that an image needs hardly depend on n
            more = (samples - options.n0) * (votes / PILOT_VOTES - 1)
            samples, seconds = samples + more, seconds + more / speed
    left = _images_left(job, images)
    return Estimate(left, speed, samples, selector_samples, seconds, _memory(device))


def _speed(g: SmoothedClassifier, images: ImageDataset, batch_size: int) -> float:
    """Forward passes of f per second: two batches, after one that warms up."""
    x, _, ids = images.batch([0])
    x, noise, sigma = x.to(g.device), g.noise(1, 0, ids).scoped("estimate"), torch.full((1,), 0.25)
    started = 0.0
    for batch in range(3):
        if batch == 1:
            started = time.perf_counter()
        g.votes(x, batch_size, sigma=sigma, noise=noise, batch_size=batch_size).cpu()
    return 2 * batch_size / (time.perf_counter() - started)


def _pilot(
    job: Job, evaluation: Certifying, g: SmoothedClassifier, images: ImageDataset
) -> tuple[Floats, Floats, Floats]:
    """Samples of f and of the selector, and seconds, of each image of the pilot.

    The seconds of a block are divided among its images by their samples.
    """
    setup = Setup(g, Run(job.options.out, {}), job.options.batch_size)
    started = time.perf_counter()
    rows = rows_of(evaluation, setup, images.few(PILOT).batch(slice(None)))
    seconds = time.perf_counter() - started
    samples = np.array([row["samples"] for row in rows], dtype=float)
    draws = np.array([row["selector_samples"] for row in rows], dtype=float)
    return samples, draws, seconds * (samples + draws) / (samples + draws).sum()


def _images_left(job: Job, images: ImageDataset) -> int:
    """Images that the run does not have, of all its shards."""
    left = set(images.ids.tolist())
    if (job.options.out / HEADER).exists():
        left -= {row["id"] for row in Run.open(job.options.out).stored()}
    return len(left)


def _memory(device: torch.device) -> int | None:
    """The most bytes in use so far: on the device, or of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if sys.platform == "win32":
        return None
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
