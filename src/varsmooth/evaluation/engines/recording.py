"""Rows from an engine to the record: one writer, with progress, nothing twice."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache

from varsmooth._util.progress import Progress
from varsmooth.data import ImageDataset
from varsmooth.data.dataset import skipped_text
from varsmooth.data.fitting import outputs_on
from varsmooth.evaluation.engines.shards import blocks
from varsmooth.evaluation.headers import SEEN
from varsmooth.evaluation.records import Row, key_of
from varsmooth.evaluation.runner import NO_PROBE, Job, Setup, other_environment
from varsmooth.rounding import counted, percent

BlockRows = tuple[slice, list[Row]]
"""A block of positions, and the rows of its images."""

Compute = Callable[[Sequence[slice], Progress], Iterator[BlockRows]]
"""An engine: blocks to do → their rows, in any order."""


def record(
    job: Job, setup: Setup, images: ImageDataset, compute: Compute, part: tuple[int, int] = (0, 1)
) -> None:
    """Append the rows of every block that has none yet; part (r, R) of the shard's blocks."""
    evaluation, run, (rank, processes) = job.evaluation, setup.record, part
    ids, stored = images.ids.tolist(), run.rows()
    done, tally, counted = {key_of(row) for row in stored}, evaluation.tally(stored), len(stored)
    samples = sum(row.get("samples", 0) for row in stored)
    del stored
    size = run.header.get("block") or evaluation.block(run.header["config"]["batch_size"])
    whole = blocks(len(ids), size)
    of_shard = job.shard.of(whole)
    mine = of_shard[rank::processes]
    todo = [b for b in mine if any(key not in done for i in ids[b] for key in evaluation.keys(i))]
    total, left = sum(len(ids[b]) for b in mine), sum(len(ids[b]) for b in todo)
    shown = rank == 0
    if shown:
        _notes(setup, images)
    if shown and todo:
        _resuming_notes(setup, bool(done), here=job.options.engine == "local")
    if shown and whole and not of_shard:
        few = f"all {len(ids)} are in {len(whole)} blocks of at most {size}"
        print(f"note: shard {job.options.shard} has no images: {few}", file=sys.stderr)
    if shown and done and total > left:
        print(f"resuming: {total - left:,} of {total:,} images are there", file=sys.stderr)
    with (
        Progress(total, _label(job, processes), total - left, shown) as progress,
        _report_what_is_saved(progress, shown),
    ):
        for block, rows in compute(todo, progress):
            new = [row for row in rows if key_of(row) not in done]
            run.append(new)
            tally.update(evaluation.tally(new))
            counted += len(new)
            details = [f"{name}: {percent(k, counted)} %" for name, k in tally.items()]
            samples += sum(row.get("samples", 0) for row in new)
            if samples:
                details.append(f"{samples / counted:,.0f} samples per image")
            progress.add(len(ids[block]), *details)


def _label(job: Job, processes: int) -> str:
    words = [job.evaluation.verb, job.options.name or ""]
    words += [f"shard {job.options.shard}"] * (job.options.shard is not None)
    words += [f"(process 1 of {processes})"] * (processes > 1)
    return " ".join(word for word in words if word)


def _notes(setup: Setup, images: ImageDataset) -> None:
    """Warnings and notes about these images and this model."""
    for name, what in SEEN.items():
        if seen := setup.record.header.get(name):
            print(
                f"warning: {what.format(seen)} of these {counted(len(images), 'image')}",
                file=sys.stderr,
            )
    names, outputs = images.class_names, outputs_on(images, setup.g)
    if names and outputs != len(names):
        classes = counted(len(names), "class")
        note = f"the model has {counted(outputs, 'output')}, {images.name} has {classes}"
        print(f"note: {note}; a vote for any other output counts as wrong", file=sys.stderr)
    _note_once(images.name, images.split, tuple(images.skipped))


@cache  # the runs of a study have the same images
def _note_once(name: str, split: str, skipped: tuple[str, ...]) -> None:
    if skipped:
        print(f"note: {skipped_text(skipped)}", file=sys.stderr)


def _resuming_notes(setup: Setup, resumed: bool, here: bool) -> None:
    """Notes on how new rows differ from stored ones; `here`: this process computes them."""
    header = setup.record.header
    for text in other_environment(header, setup.g.device) if here else ():
        print(f"note: {text}; the new rows record it, and their votes may differ", file=sys.stderr)
    if resumed and "probe" not in header:
        print(f"note: NOT CHECKED: {NO_PROBE}", file=sys.stderr)


@contextmanager
def _report_what_is_saved(progress: Progress, shown: bool) -> Iterator[None]:
    """On Ctrl-C say how many images are saved; the images of unfinished blocks are not."""
    try:
        yield
    except KeyboardInterrupt:
        if shown:
            saved = f"saved: {progress.count:,} of {counted(progress.total, 'image')}"
            print(f"\n{saved}; images in progress will be recomputed", file=sys.stderr)
        raise
