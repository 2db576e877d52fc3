"""After a kill or a power loss the same command works again, and leaves nothing but its result."""

import itertools
import json
import random
import shutil
from pathlib import Path

import pytest

from tests.conftest import Tally
from tests.power_loss import Disk, PowerLoss, copy_back
from tests.small_models import QUICK, run, write_pair
from varsmooth._util.files import LOCK
from varsmooth.evaluation.records import Run

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs Linux")

FACTORY = """
from torch import nn
def small(): return nn.Sequential(nn.Flatten(), nn.Linear(3072, 10))
"""
FEW = "--data cifar10-sample --images 2 --n 20 --n-select 21"
COMMANDS = {
    "adopt": "adopt killed_model:small --data cifar10-sample --images 2 --n 20 --levels 0.5",
    "export": "models export ../model",
    "measure": f"measure ../model {FEW} --split test --levels 0.25",
    "tune": f"tune ../model {FEW} --lams 0 --unclipped 0",
    "recompute": "report recompute ../run --alpha 0.1",
    "import-tsv": "report import-tsv ../run.tsv --sigma 0.25",
}
ROWS = 3
USED = ("holds other files", "holds a model already", "already holds a run")


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("killed")
    (folder / "killed_model.py").write_text(FACTORY)
    write_pair(folder / "model")
    assert run(f"certify {QUICK} --subset 0:{ROWS} --model {folder}/model --out {folder}/run") == 0
    assert run(f"report export {folder}/run --to tsv --out {folder}/run.tsv") == 0
    return folder


def content(folder: Path) -> dict[str, bytes]:
    """The files of a result."""
    return {path.name: path.read_bytes() for path in folder.rglob("*")}


def interrupted(
    name: str, here: Path, moments: list[int], patch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> int:  # fmt: skip
    """A command that loses power at each of these file operations; how often it did."""
    disk, losses = here / "disk", 0
    patch.syspath_prepend(here)
    for moment in moments:
        shutil.rmtree(disk, ignore_errors=True)
        shutil.rmtree(here / "lost", ignore_errors=True)
        disk.mkdir()
        patch.chdir(disk)
        words, choice = f"{COMMANDS[name]} --out {disk}/out", random.Random(moment)
        with patch.context() as watched:
            state = Disk(disk, here / "lost", moment, choice)
            state.watch(watched)
            try:
                assert run(words) == 0
                whole = content(disk / "out")
                break
            except PowerLoss:
                losses += 1
        copy_back(here / "lost", disk)
        patch.chdir(disk)
        capsys.readouterr()
        code = run(words)
        output = capsys.readouterr().err
        done = code == 1 and any(words in output for words in USED)  # it had reached its end
        assert code == 0 or done, output
        left = content(disk / "out")
        assert not [file for file in left if file.endswith(".part")]
        assert (
            left.pop(LOCK, None) is None or done
        )  # of the killed writer; the next one takes it over
        if "report" in words:
            assert len(Run.open(disk / "out").rows()) == ROWS
        else:
            assert (disk / "out" / "config.json").exists()
        (here / f"{name}.json").write_text(json.dumps(sorted(left)))
    else:
        return losses
    assert sorted(whole) == json.loads((here / f"{name}.json").read_text())
    return losses


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_lost_power(
    name: str, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert interrupted(name, here, [3, 5, 7], monkeypatch, capsys) == 3


@pytest.mark.slow
@pytest.mark.campaign
@pytest.mark.parametrize("name", COMMANDS)
def test_every_file_operation_of_a_command(
    name: str,
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tally: Tally,
) -> None:
    every = list(itertools.islice(itertools.count(1), 60))
    tally("power losses of other commands", interrupted(name, here, every, monkeypatch, capsys))
