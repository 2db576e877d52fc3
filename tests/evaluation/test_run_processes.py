"""Several processes write one table, whoever of them dies."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.evaluation import Output, Patch
from tests.small_models import QUICK, run, table, write_pair

pytest.importorskip("lightning_fabric")

MORTAL = '''
"""The model of the test, whose second process may be made to die after some work."""
import os, signal
import torch
from varsmooth import load


def make():
    g = load("model", n_median=21)
    plain, left = g.classifier.forward, [40]

    def forward(x):
        left[0] -= 1
        second = torch.distributed.is_initialized() and torch.distributed.get_rank() == 1
        if second and left[0] == 0 and os.path.exists("die"):
            os.kill(os.getpid(), signal.SIGKILL)
        return plain(x)

    g.classifier.forward = forward
    return g
'''


def command(folder: Path, words: str, *launcher: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", *launcher, "varsmooth", *words.split()],
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: Patch) -> Path:
    write_pair(tmp_path / "model")
    (tmp_path / "mortal.py").write_text(MORTAL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


OPTIONS = QUICK.replace("--n-median 21", "")  # the factory has chosen it
WORDS = f"certify {OPTIONS} --subset 0:24 --batch-size 16 --model mortal:make --out"


def test_processes_share_the_blocks_whose_votes_decide_when_to_stop(folder: Path) -> None:
    """140 images are five blocks of at most 32, three and two for the processes."""
    few = "--sigma 0.25 --n0 16 --n-max 48 --alpha 0.05 --at 0,0.1 --subset 0:140"
    words = f"certify {few} --model model --out"
    assert run(f"{words} alone") == 0
    two = command(folder, f"{words} two --devices 2")
    assert two.returncode == 0, two.stderr
    assert table(folder / "two") == table(folder / "alone")
    assert len({row["samples"] for row in table(folder / "two")}) > 1
    counts = [path.read_bytes().count(b"\n") for path in sorted((folder / "two").glob("rows-*"))]
    assert counts == [76, 64]


def test_a_process_dies_and_another_number_of_them_continues(folder: Path) -> None:
    assert run(f"{WORDS} alone") == 0
    (folder / "die").touch()
    died = command(folder, f"{WORDS} two --devices 2")
    assert died.returncode == 1, died.stderr
    (sentence,) = [line for line in died.stderr.splitlines() if line.startswith("varsmooth:")]
    assert "process 1 of 2 ended early" in sentence
    assert "SIGKILL" in sentence
    assert 0 < len(table(folder / "two")) < 24
    (folder / "die").unlink()
    assert run(f"{WORDS} two") == 0
    assert table(folder / "two") == table(folder / "alone")
    assert (folder / "two" / "rows-00001.jsonl").exists()


PATIENT = """
import sys, time
from pathlib import Path
from varsmooth._util.processes import launch


def wait(engine):
    Path(f"pid-{engine.rank}").write_text(str(__import__("os").getpid()))
    time.sleep(120)


if __name__ == "__main__":
    launch(wait, "cpu", 2)
"""


def test_children_of_a_killed_parent_end(folder: Path) -> None:
    (folder / "patient.py").write_text(PATIENT)
    parent = subprocess.Popen([sys.executable, "patient.py"], cwd=folder)
    files = [folder / "pid-0", folder / "pid-1"]
    while not all(file.exists() and file.read_text() for file in files):
        assert parent.poll() is None
        time.sleep(0.1)
    children = {int(file.read_text()) for file in files} - {parent.pid}
    assert children
    parent.kill()
    parent.wait()
    until = time.monotonic() + 30  # seconds, on a busy machine
    while alive := {pid for pid in children if _lives(pid)}:
        assert time.monotonic() < until, f"{alive} outlive their parent"
        time.sleep(0.1)


def _lives(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_a_missing_extra_is_named_in_the_words_of_the_command(
    folder: Path, capsys: Output, monkeypatch: Patch
) -> None:
    monkeypatch.setitem(sys.modules, "lightning_fabric", None)
    assert run(f"{WORDS} two --devices 2") == 1
    output = capsys.readouterr().err
    assert "pip install lightning-fabric" in output
    assert "training" not in output


@pytest.mark.slow
def test_two_processes_of_torchrun_write_the_table_of_one(folder: Path) -> None:
    assert run(f"{WORDS} alone") == 0
    elastic = ["torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "--"]
    done = command(folder, f"{WORDS} two", *elastic)
    assert done.returncode == 0, done.stderr
    assert table(folder / "two") == table(folder / "alone")
    sizes = [
        len((folder / "two" / f"rows-0000{r}.jsonl").read_bytes().splitlines()) for r in (0, 1)
    ]
    assert sizes == [12, 12]
    assert done.stdout.count("images in two") == 1


def test_a_mistake_is_told_before_any_process_starts(folder: Path, capsys: Output) -> None:
    assert run(f"{WORDS} two --devices 2 --subset 5000:") == 1
    output = capsys.readouterr().err.splitlines()
    assert [line for line in output if line.startswith("varsmooth:")] == output[2:]
    assert len(output) == 3  # what it is going to do, on which device, and what is wrong
