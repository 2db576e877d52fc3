"""Commands that end early: what was reported as done is there, and the same command continues."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.conftest import Tally
from tests.evaluation.test_records import HEAD, row
from tests.power_loss import Disk, PowerLoss, copy_back
from tests.small_models import QUICK, run, table, write_pair
from varsmooth._util.files import LOCK, only_writer, replace_file
from varsmooth._util.fingerprints import fingerprint
from varsmooth.evaluation.records import Run
from varsmooth.evaluation.vote_cache import VoteKey, VoteStore
from varsmooth.models.checkpoints import load_checkpoint

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs Linux")

LOSSES, ROWS = 240, 12


def work(root: Path, reported: set[str]) -> None:
    """A run with its votes and a state that is replaced; prints what it takes to be on disk."""
    with only_writer(root / "runs" / "one"):
        record = Run.create(root / "runs" / "one", HEAD)
        reported.add("run")
        done, store = record.done(), VoteStore(root / "votes")
        for number in set(range(ROWS)) - done:
            key = VoteKey("image", number, 0, "votes", 3, 0.25, "gaussian")
            store.add({key: (number % 3, 3 - number % 3)})
            reported.add(f"votes {number}")
            record.append([row(number)])
            reported.add(f"row {number}")
            replace_file(root / "model" / "state.pt", str(number).encode() * 1000)
            reported.add(f"state {number}")


def check(root: Path, reported: set[str]) -> None:
    """Everything that was reported is there, whole."""
    if "run" not in reported:
        return
    rows = Run.open(root / "runs" / "one").rows()
    assert {f"row {r['id']}" for r in rows} >= {r for r in reported if r.startswith("row")}
    assert all(r == row(r["id"]) for r in rows)
    state = root / "model" / "state.pt"
    if any(name.startswith("state") for name in reported) or state.exists():
        text = state.read_text()
        assert text in {str(number) * 1000 for number in range(ROWS)}, "half a state"
    votes = {key.id: counts for key, counts in VoteStore(root / "votes").counts.items()}
    assert {f"votes {i}" for i in votes} >= {r for r in reported if r.startswith("votes")}
    assert all(counts == (i % 3, 3 - i % 3) for i, counts in votes.items())


def lose_power(folder: Path, seed: int) -> int:
    """One piece of work with power losses until it is done; returns how many there were."""
    choice, losses, root = random.Random(seed), 0, folder / "disk"
    reported: set[str] = set()
    root.mkdir(parents=True)
    while True:
        lost = folder / f"lost-{losses}"
        disk = Disk(root, lost, choice.randrange(1, 80), choice)
        with pytest.MonkeyPatch.context() as patch:
            disk.watch(patch)
            try:
                work(root, reported)
                break
            except PowerLoss:
                losses += 1
        copy_back(lost, root)
        check(root, reported)
    check(root, reported)
    assert len(Run.open(root / "runs" / "one").rows()) == ROWS
    assert not (root / "runs" / "one" / LOCK).exists()
    return losses


def test_a_few_power_losses(tmp_path: Path) -> None:
    assert sum(lose_power(tmp_path / str(seed), seed) for seed in range(3)) > 3


@pytest.mark.slow
@pytest.mark.campaign
def test_power_losses(tmp_path: Path, tally: Tally) -> None:
    seed = losses = 0
    while losses < LOSSES:
        losses += lose_power(tmp_path / str(seed), 1000 + seed)
        seed += 1
    tally("power losses", losses)


FORKING = pytest.mark.skipif(not hasattr(os, "fork"), reason="the machine cannot fork")
KILLS = 120


def interrupted(
    words: str, endings: Sequence[tuple[str, int]], timeout: float = 550
) -> tuple[list[int], str]:
    """Exit codes of a command that is ended at given points and restarted, and its error output."""
    command = [sys.executable, "-m", "tests.interrupting", json.dumps(endings), *words.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


@FORKING
def test_every_way_to_end(tmp_path: Path) -> None:
    model = write_pair(tmp_path / "model")
    words = f"certify {QUICK} --subset 0:36 --batch-size 16 --model {model} --out {tmp_path}"
    assert run(f"{words}/whole") == 0
    endings = [("kill", 1), ("disk", 9000), ("int", 3000), ("term", 1), ("kill", 12000)]
    codes, errors = interrupted(f"{words}/parts", endings)
    assert codes == [-9, 1, 130, -15, -9, 0]
    assert "File too large" in errors
    assert "interrupted; " in errors
    assert table(tmp_path / "parts") == table(tmp_path / "whole")
    lines = (tmp_path / "parts" / "rows-00000.jsonl").read_bytes()
    assert lines.count(b"\n") == 36, "a row was written twice"


def killed(words: str, kills: int, growth: int = 0) -> int:
    """SIGKILL at random moments, resumed by the same command until it is done; how many hit.

    Moments are times after the start and, with `growth`, numbers of bytes that the rows grew by.
    """
    choice = random.Random(kills)
    endings = [
        ("kill", choice.randrange(1, growth))
        if growth and i % 2
        else ("late", choice.randrange(900))
        for i in range(kills)
    ]
    codes, errors = interrupted(words, endings, timeout=3000)
    assert codes[-1] == 0, errors
    return codes.count(-9)


@pytest.mark.slow
@pytest.mark.campaign
@FORKING
def test_hard_kills(tmp_path: Path, tally: Tally) -> None:
    model, kills = write_pair(tmp_path / "model"), 0
    certify = f"certify {QUICK} --model {model} --vote-cache {tmp_path}/votes --subset 0:120"
    predict = f"predict --n 60 --sigma 0.25 --model {model} --subset 0:200"
    for verb, words, growth in (("certify", certify, 4000), ("predict", predict, 800)):
        parts, whole = tmp_path / f"{verb}-parts", tmp_path / f"{verb}-whole"
        words += " --batch-size 16"
        kills += killed(f"{words} --out {parts}", KILLS // 2, growth)
        if verb == "predict":  # resumed with the entropy that it took once
            words += f" --seed {Run.open(parts).header['config']['seed']}"
        assert run(f"{words} --out {whole}") == 0
        assert table(parts) == table(whole)
        (file,) = parts.glob("rows-*.jsonl")
        assert file.read_bytes().count(b"\n") == len(table(whole)), "a row was written twice"
    kills += _killed_trainings(tmp_path, KILLS // 4)
    tally("hard kills", kills)
    assert kills >= 100


def _killed_trainings(folder: Path, kills: int) -> int:
    def train(name: str) -> str:
        config = {
            "out": str(folder / name),
            "sigma": 0.25,
            "data": "cifar10-sample",
            "train_split": "test",
            "held_out_split": "test",
            "network_options": {"widths": [4, 4, 4, 4]},
            "epochs": 30,
            "images_per_epoch": 100,
            "batch_size": 50,
            "held_out_images": 10,
            "n": 16,
            "device": "cpu",
        }
        return f"train {json.dumps(config, separators=(',', ':'))} --out {folder / name}"

    kills = killed(train("trained-parts"), kills)
    assert killed(train("trained-whole"), 0) == 0
    one, other = (load_checkpoint(folder / f"trained-{n}").classifier for n in ("whole", "parts"))
    assert one is not None
    assert other is not None
    assert fingerprint(one) == fingerprint(other)
    return kills
