"""Ray nodes and drivers die in the middle of a run; nothing is lost, nothing doubled."""

import os
import random
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Tally
from tests.evaluation import Patch
from tests.small_models import run, table
from varsmooth.cli import main
from varsmooth.evaluation.records import Run

pytest.importorskip("ray")
pytestmark = pytest.mark.slow

TRIALS = int(os.environ.get("VARSMOOTH_RAY_TRIALS", "20"))

LAZY = '''
"""A classifier that takes its time without computing."""
import time
import torch
from torch import nn


class Lazy(nn.Module):
    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.weight = nn.Parameter(torch.randn(3072, 10, generator=generator))

    def forward(self, x):
        time.sleep(0.05)
        return x.flatten(1) @ self.weight
'''
WORDS = "certify --model lazy:Lazy --sigma 0.25 --n 32 --n0 16 --alpha 0.05 --subset 0:48 "
WORDS += "--batch-size 16"  # blocks of 4 images, 12 tasks


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: Patch) -> Path:
    (tmp_path / "lazy.py").write_text(LAZY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return tmp_path


class Nodes:
    """A cluster of three nodes in a process of its own."""

    def __init__(self, folder: Path) -> None:
        root = Path(__file__).parents[3]
        path = os.pathsep.join([str(folder), str(root), os.environ.get("PYTHONPATH", "")])
        with (folder / "nodes.log").open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.ray_nodes"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=os.environ | {"PYTHONPATH": path, "RAY_worker_niceness": "0"},
            )
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()

    def tell(self, word: str) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"


@pytest.fixture
def nodes(folder: Path) -> Iterator[Nodes]:
    nodes = Nodes(folder)
    yield nodes
    nodes.process.communicate()


def driver(words: str) -> int:
    """Start a command in a process forked after the imports; its number."""
    child = os.fork()
    if child == 0:
        warnings.simplefilter("default")
        os._exit(main(words.split()))
    return child


def lines(out: Path) -> int:
    return sum(file.read_bytes().count(b"\n") for file in out.glob("rows-*.jsonl"))


def wait_for(out: Path, rows: int, child: int) -> None:
    while lines(out) < rows:
        time.sleep(0.01)
        assert os.waitpid(child, os.WNOHANG) == (0, 0), "the driver ended early"


def test_nodes_and_drivers_die(folder: Path, nodes: Nodes, tally: Tally) -> None:
    assert run(f"{WORDS} --out whole") == 0
    expected = table(folder / "whole")
    command = f"{WORDS} --engine ray --ray-address {nodes.address} --out"
    for trial in range(TRIALS):
        choice, out = random.Random(trial), folder / f"run-{trial}"
        first = driver(f"{command} {out}")
        wait_for(out, choice.randrange(1, 20), first)
        nodes.tell("remove")
        wait_for(out, lines(out) + choice.randrange(1, 12), first)
        os.kill(first, signal.SIGKILL)
        os.waitpid(first, 0)
        assert 0 < lines(out) < 48, "the driver was killed in the middle"
        if choice.random() < 0.5:
            nodes.tell("add")
            again = driver(f"{command} {out}")
        else:
            again = driver(f"{command} {out}")
            nodes.tell("add")
        assert os.waitstatus_to_exitcode(os.waitpid(again, 0)[1]) == 0
        assert table(out) == expected
        assert lines(out) == 48, "a row was written twice"
        print(f"trial {trial}: {len(expected)} rows, none lost, none doubled")
        tally("Ray nodes removed and drivers killed", 2)


def test_interrupted_through_the_client(folder: Path, nodes: Nodes) -> None:
    """Over ray://, as from a laptop: Ctrl-C, and on again."""
    assert run(f"{WORDS} --out whole") == 0
    command = f"{WORDS} --engine ray --ray-address ray://127.0.0.1:25001 --out client"
    first = driver(command)
    wait_for(Path("client"), 4, first)
    os.kill(first, signal.SIGINT)
    assert os.waitstatus_to_exitcode(os.waitpid(first, 0)[1]) == 130
    assert 0 < lines(Path("client")) < 48
    again = driver(command)
    assert os.waitstatus_to_exitcode(os.waitpid(again, 0)[1]) == 0
    assert table(Path("client")) == table(Path("whole"))
    assert lines(Path("client")) == len(Run.open("client").rows())
