"""One piece of work at a time, which can be watched and cancelled."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from varsmooth.errors import VarsmoothError


class Cancelled(VarsmoothError):
    """Somebody pressed cancel."""


class Job:
    """Work that passes images through networks; before each pass it looks up.

    There it counts the images, tells how many there were, and stops if it was cancelled.
    """

    def __init__(self, tell: Callable[[int], None] | None = None) -> None:
        self.images = 0
        self._tell = tell
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        self._cancelled.set()

    @contextmanager
    def watching(self, *networks: nn.Module | None) -> Iterator[None]:
        """Look up whenever one of these networks is called."""
        hooks = [
            network.register_forward_pre_hook(self._look_up)
            for network in networks
            if network is not None
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _look_up(self, network: nn.Module, inputs: Any) -> None:
        if self._cancelled.is_set():
            raise Cancelled("cancelled")
        self.images += len(inputs[0])
        if self._tell is not None:
            self._tell(self.images)


class Bench:
    """Where the work is done: there is room for one job, others wait.

    owner: who may cancel a job, such as one open page.
    """

    def __init__(self) -> None:
        self._room = threading.Lock()
        self._jobs: dict[str, Job] = {}

    @contextmanager
    def job(self, owner: str, tell: Callable[[int], None] | None = None) -> Iterator[Job]:
        with self._room:
            self._jobs[owner] = Job(tell)
            try:
                yield self._jobs[owner]
            finally:
                del self._jobs[owner]

    def cancel(self, owner: str) -> bool:
        """Stop the owner's job if it is the one at work; whether it was."""
        job = self._jobs.get(owner)
        if job is not None:
            job.cancel()
        return job is not None
