"""A small model and its runs, which several tests read and none changes."""

from pathlib import Path

import pytest

from tests.evaluation import Patch
from tests.small_models import QUICK, run, write_pair

NINE = "--subset 3:1000:115"
"""Nine images of the embedded sample."""


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pair(tmp_path_factory.mktemp("models") / "pair")


@pytest.fixture(scope="session")
def certified(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nine images, certified soundly."""
    folder = tmp_path_factory.mktemp("runs") / "sound"
    assert run(f"certify {QUICK} {NINE} --model", model, "--out", folder) == 0
    return folder


@pytest.fixture
def in_tmp(tmp_path: Path, monkeypatch: Patch) -> Path:
    """A working directory with modules of the user's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path
