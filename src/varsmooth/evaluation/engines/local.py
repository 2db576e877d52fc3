"""This process computes, or several that Lightning Fabric or torchrun connects.

Process r of R computes blocks r, r+R, … of the shard and writes its own file.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import torch

from varsmooth._util.processes import Engine, launch
from varsmooth._util.progress import Progress
from varsmooth.data import ImageDataset
from varsmooth.evaluation.engines.recording import BlockRows, record
from varsmooth.evaluation.runner import Job, Setup, timed_rows


def compute(job: Job) -> None:
    """Compute the blocks of a run that have no rows yet."""
    options = job.options
    if options.devices > 1:  # report an error once, before any process starts
        job.prepare(torch.device("cpu"))
    launch(partial(_compute_rank, job), options.device, options.devices)


def _compute_rank(job: Job, engine: Engine) -> None:
    setup, images = job.prepare(engine.device, engine.rank)
    part = (engine.rank, engine.processes)
    record(job, setup, images, partial(_results, job, setup, images), part)


def _results(
    job: Job, setup: Setup, images: ImageDataset, todo: Sequence[slice], progress: Progress
) -> Iterator[BlockRows]:
    for block, batch in zip(todo, images.blocks(todo), strict=True):
        waiting = partial(progress.wait, len(batch.ids))
        here = replace(setup, undecided=waiting)
        yield block, timed_rows(job.evaluation, here, batch, images.row_entries(batch))
