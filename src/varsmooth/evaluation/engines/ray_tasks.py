"""A Ray cluster computes: each block of images is a task.

The driver reads the images and sends each block to whichever worker is free; a worker loads the
model once. If a worker or its node dies, Ray runs the task again elsewhere. The driver alone writes
rows, so none is written twice. If the driver dies, the same command resumes.
"""

import logging
import os
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import torch

from varsmooth._util.processes import choose_device
from varsmooth._util.progress import Progress
from varsmooth.data import Batch, ImageDataset
from varsmooth.errors import VarsmoothError, check, reason, wrap_errors
from varsmooth.evaluation.build import build
from varsmooth.evaluation.engines.recording import BlockRows, record
from varsmooth.evaluation.records import Row, Run
from varsmooth.evaluation.runner import (
    Job,
    Setup,
    absolute_model,
    environment,
    other_model,
    timed_rows,
)

RETRIES = 10
"""How often a block is tried again after its worker or node died."""

AHEAD = 2
"""Blocks that wait at each core of the cluster, so that no worker waits for the driver."""


Work = tuple[Job, dict[str, Any]]
"""What every task of a run shares: the job, and the header of its run."""


def compute(job: Job) -> None:
    """Compute the blocks of a run that have no rows yet."""
    saves = getattr(job.evaluation.options, "save_images", False)
    check(not saves, "Ray workers cannot save images into the run; leave out --save-images")
    job = replace(job, model=absolute_model(job.model))
    with _cluster(job) as ray:
        gpus = _gpus(ray, job)
        if gpus == 0 and job.options.device == "auto":
            job = replace(job, options=replace(job.options, device="cpu"))
        task = partial(ray.remote, num_cpus=job.options.worker_cpus, num_gpus=gpus)
        where = _get(ray, task(max_retries=RETRIES)(_environment).remote(job.options.device))
        setup, images = job.prepare(torch.device("cpu"), where=where)
        work = ray.put((job, setup.record.header))
        block_task = task(max_retries=RETRIES)(_block_rows)
        record(job, setup, images, partial(_results, ray, block_task, work, images))


def _results(
    ray: Any, task: Any, work: Any, images: ImageDataset, todo: Sequence[slice], progress: Progress
) -> Iterator[BlockRows]:
    """Blocks as their tasks finish; only a few ahead of the workers are in memory."""
    left = zip(todo, images.blocks(todo), strict=True)
    running: dict[Any, slice] = {}
    try:
        while True:
            most = AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
            while len(running) < most and (following := next(left, None)) is not None:
                block, batch = following
                running[task.remote(work, batch, images.row_entries(batch))] = block
            if not running:
                return
            done, _ = ray.wait(list(running), timeout=10)
            for reference in done:
                yield running[reference], _get(ray, reference)
                del running[reference]
    finally:
        for reference in running:
            ray.cancel(reference, force=True)


def _get(ray: Any, reference: Any) -> Any:
    """The result of a task; what went wrong in it is raised as if it had happened here."""
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
    except ray.exceptions.RayError as error:
        raise VarsmoothError(
            f"a block was tried {RETRIES + 1} times and its worker always died "
            f"({reason(error)}); rerun the same command to resume"
        ) from error


_setups: dict[str, Setup] = {}  # of this worker; one model at a time


def _block_rows(work: Work, batch: Batch, entries: Sequence[Mapping[str, Any]]) -> list[Row]:
    """In a worker: the rows of one block."""
    return timed_rows(work[0].evaluation, _worker_setup(*work), batch, entries)


def _worker_setup(job: Job, header: dict[str, Any]) -> Setup:
    """The model, loaded by the first task of this worker; it must be that of the run."""
    key = f"{job.options.out} {header['started']} {header['fingerprints']}"
    if key not in _setups:
        _setups.clear()
        built = build(job.model, choose_device(job.options.device))
        different = other_model(header, built.g, built.fingerprint)
        host = socket.gethostname()
        check(not different, f"{job.model.model} on {host} differs: {'; '.join(different)}")
        record = Run(job.options.out, header)
        g = job.evaluation.wrap_model(built.g, header["fingerprints"])
        _setups[key] = Setup(g, record, job.options.batch_size)
    return _setups[key]


def _environment(device: str) -> dict[str, Any]:
    """In a worker: what computes the rows."""
    return environment(choose_device(device))


def _gpus(ray: Any, job: Job) -> float:
    """GPUs of one worker."""
    there = ray.cluster_resources().get("GPU", 0)
    wanted = job.options.worker_gpus
    if wanted is None:
        wanted = 0 if job.options.device == "cpu" else min(1, there)
    check(
        wanted == 0 or there > 0 or job.options.ray_address is not None,
        "this machine has no GPU for Ray; leave out --worker-gpus, or name a cluster",
    )
    if wanted > there:  # a cluster may grow
        print(f"note: workers need {wanted:g} GPU, the cluster has {there:g}", file=sys.stderr)
    return float(wanted)


def _connect(address: str) -> None:
    """Fail at once where nothing answers; Ray itself tries for minutes and prints each attempt."""
    place = urlsplit(address if "://" in address else f"//{address}")
    if place.port is not None:
        socket.create_connection((place.hostname, place.port), timeout=10).close()


@contextmanager
def _cluster(job: Job) -> Iterator[Any]:
    """Ray, connected to the cluster of the job, or to one started on this machine."""
    how = "install it with: pip install 'varsmooth[ray]'"
    with wrap_errors(ImportError, f"--engine ray needs Ray; {how}"):
        for name in ("RAY_USAGE_STATS_ENABLED", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"):
            os.environ.setdefault(name, "0")  # no telemetry, no warning
        import ray
    mine = not ray.is_initialized()
    if mine:
        address = job.options.ray_address or os.environ.get("RAY_ADDRESS", "local")
        local: dict[str, Any] = {"include_dashboard": False} if address == "local" else {}
        where = f"at {address} " * (address != "local")
        how = "check --ray-address, or rerun the same command on a machine that is less busy"
        doing = f"connecting to Ray at {address}" if where else "starting Ray on this machine"
        print(f"{doing}: this can take a minute", file=sys.stderr)
        with wrap_errors(
            Exception,  # a node that starts too slowly raises a bare one
            lambda error: f"Ray {where}cannot be reached or started ({reason(error)}); {how}",
        ):
            _connect(address)
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **local)
    try:
        yield ray
    finally:
        if mine:
            ray.shutdown()
