"""One job at a time, with progress and cancellation."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from torch import nn

from varsmooth.errors import check

WAITING = 16
"""Requests that may be queued."""


class Cancelled(Exception):
    """The client cancelled the request."""


@dataclass
class Job:
    """Work that passes images through networks; each pass counts them and may be cancelled."""

    images: int = 0  # passed so far
    most: int = 0  # how many there will be at most
    cancelled: bool = False

    @property
    def share(self) -> float:
        """How much of the work is done, in [0, 1]."""
        return min(1.0, self.images / self.most) if self.most else 0.0

    @contextmanager
    def watching(self, most: int, *networks: nn.Module | None) -> Iterator[None]:
        """Count images, and stop if cancelled, at every call of these networks."""
        self.images, self.most = 0, most
        with ExitStack() as hooks:
            for network in filter(None, networks):
                hooks.enter_context(network.register_forward_pre_hook(self._count))
            yield

    def _count(self, network: nn.Module, inputs: Any) -> None:
        if self.cancelled:
            raise Cancelled("cancelled")
        self.images += len(inputs[0])


class Worker:
    """A thread that does one job after another; a cancelled job leaves the queue."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="page")
        self.jobs: dict[Future[Any], Job] = {}  # running or queued

    def submit(self, work: Callable[[Job], Any]) -> tuple[Job, "Future[Any]"]:
        """Queue work; the job reports its progress and can cancel it."""
        check(len(self.jobs) < WAITING, "the page is busy; try again in a moment")
        job = Job()
        future = self._thread.submit(work, job)
        self.jobs[future] = job
        future.add_done_callback(lambda done: self.jobs.pop(done, None))
        return job, future

    def close(self) -> None:
        """Cancel everything."""
        for job in list(self.jobs.values()):
            job.cancelled = True
        self._thread.shutdown(wait=False, cancel_futures=True)
