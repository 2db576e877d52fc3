"""Rows do not depend on the engine, on shards, on the number of workers or on restarts."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.small_models import run, table, write_pair
from varsmooth.evaluation.records import Run

FIXED = "--sigma 0.25 --n 48 --n0 16 --alpha 0.05 --subset 0:12 --batch-size 16"
STOPPING = "--sigma 0.25 --n0 16 --n-max 48 --alpha 0.05 --at 0,0.1 --subset 0:70"
OPTIONS = {"fixed": FIXED, "stopping": STOPPING}

ENGINES = {
    "one process": [""],
    "shards": ["--shard 3/3", "--shard 1/3", "--shard 2/3"],
    "shards, then one process": ["--shard 2/4", "--shard 1/2", ""],
    "two processes": ["--devices 2"],
    "ray": ["--engine ray"],
    "a shard, then ray": ["--shard 2/2", "--engine ray"],
}
NEEDS = {"--devices": "lightning_fabric", "--engine ray": "ray"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("contract")
    write_pair(folder / "model")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, options in OPTIONS.items():
            assert run(f"certify --model model {options} --out {name}") == 0
    return folder


def cases() -> list[object]:
    """Engines that start processes of their own are slow."""
    every: list[object] = []
    for options in OPTIONS:
        for engine, commands in ENGINES.items():
            needs = {package for word, package in NEEDS.items() if word in " ".join(commands)}
            missing = [package for package in needs if find_spec(package) is None]
            marks = [pytest.mark.skipif(bool(missing), reason=f"needs {missing}")]
            marks += [pytest.mark.slow] * bool(needs)
            every.append(pytest.param(options, commands, marks=marks, id=f"{options}: {engine}"))
    return every


def command(words: str, folder: Path) -> None:
    """In a process of its own where the engine starts others."""
    if not any(word in words for word in NEEDS):
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            assert run(words) == 0
        return
    done = subprocess.run(
        [sys.executable, "-m", "varsmooth", *words.split()],
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1", "RAY_worker_niceness": "0"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("options", "commands"), cases())
def test_rows_depend_on_nothing_but_the_options(
    folder: Path, tmp_path: Path, options: str, commands: list[str]
) -> None:
    """A file that lost its last rows stands for a worker that died; the last command resumes."""
    words, out = f"certify --model model {OPTIONS[options]} --out {tmp_path}/run", tmp_path / "run"
    for engine in commands:
        command(f"{words} {engine}", folder)
    assert table(out) == table(folder / options)
    lines = sum(file.read_bytes().count(b"\n") for file in Run.open(out).files)
    assert lines == len(table(out)), "a row was written twice"
    if commands == [""]:
        return
    torn = Run.open(out).files[-1]
    torn.write_bytes(torn.read_bytes()[: torn.stat().st_size // 2])
    assert len(table(out)) < len(table(folder / options))
    for engine in commands:
        command(f"{words} {engine}", folder)
    assert table(out) == table(folder / options)
