"""A backend with a small model, and a page that is served."""

import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tests.small_models import write_pair
from tests.terminal import cli as cli
from varsmooth.app.backend import Backend
from varsmooth.app.options import PageOptions
from varsmooth.app.server import listen, server_for


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pair(tmp_path_factory.mktemp("app") / "pair")


@pytest.fixture(scope="session")
def backend(pair: Path) -> Iterator[Backend]:
    backend = Backend(str(pair))
    yield backend
    backend.worker.close()


@pytest.fixture(scope="session")
def served(backend: Backend) -> Iterator[int]:
    """The port of a page that is served at ::1 and in this process."""
    listening = listen("::1", 0)
    server = server_for(backend, "::1")
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield listening.getsockname()[1]
    server.should_exit = True
    thread.join()
    listening.close()


def body(backend: Backend, **changes: Any) -> dict[str, Any]:
    """A request about the first sample, with few samples unless said otherwise."""
    options = asdict(PageOptions.recommended(backend.about(backend.first_model)))
    options |= {"n": 100, "n_select": 51, "steps": 2}
    named = {name: changes.pop(name) for name in list(changes) if name in options}
    asked = {"model": backend.first_model, "image": {"sample": 0}, "seed": 0}
    return asked | {"options": options | named} | changes
