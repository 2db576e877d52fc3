"""A backend with a small model, and a page that is served."""

import io
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tests.small_models import write_pair
from tests.terminal import cli as cli
from varsmooth.app.backend import Backend
from varsmooth.app.options import PageOptions
from varsmooth.app.server import listen, server_for
from varsmooth.data.cifar10 import CLASS_NAMES
from varsmooth.models.checkpoints import save
from varsmooth.models.descriptions import Description, Part
from varsmooth.models.networks import build


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pair(tmp_path_factory.mktemp("app") / "pair")


@pytest.fixture(scope="session")
def backend(pair: Path) -> Iterator[Backend]:
    backend = Backend(str(pair))
    yield backend
    backend.worker.close()


@pytest.fixture
def open_backend() -> Iterator[Callable[..., Backend]]:
    """Makes backends, whose workers end with the test."""
    opened: list[Backend] = []

    def make(model: str | Path | None = None, **options: Any) -> Backend:
        opened.append(Backend(None if model is None else str(model), **options))
        return opened[-1]

    yield make
    for backend in opened:
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


def picture(size: tuple[int, int] = (48, 40), form: str = "PNG") -> bytes:
    pixels = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, form)
    return out.getvalue()


def write_image(path: Path, size: tuple[int, int] = (48, 40), form: str = "PNG") -> Path:
    path.write_bytes(picture(size, form))
    return path


def write_classifier(
    folder: Path, dataset: str = "cifar10", names: tuple[str, ...] = CLASS_NAMES
) -> Path:
    """A classifier without a selector."""
    part = Part("conv4", {"widths": [4, 4, 4, 4], "classes": len(names)})
    torch.manual_seed(0)
    network = build(part.network, part.options)
    save(folder, Description(dataset, names, 0.25, classifier=part), network)
    return folder


def body(backend: Backend, **changes: Any) -> dict[str, Any]:
    """A request about the first sample, with few samples by default."""
    options = asdict(PageOptions.recommended(backend.about(backend.first_model)))
    options |= {"n": 100, "n_select": 51, "steps": 2}
    named = {name: changes.pop(name) for name in list(changes) if name in options}
    request = {"model": backend.first_model, "image": {"sample": 0}, "seed": 0}
    return request | {"options": options | named} | changes
