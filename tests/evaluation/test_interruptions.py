"""A run that is ended in every way a run can end, and continued, is the uninterrupted run."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.small_models import QUICK, run, table, write_pair

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the machine cannot fork")


def interrupted(
    words: str, endings: Sequence[tuple[str, int]], timeout: float = 550
) -> tuple[list[int], str]:
    """Exit codes of a command that is ended as told and started again, and what it said."""
    command = [sys.executable, "-m", "tests.interrupting", json.dumps(endings), *words.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


def test_every_way_to_end(tmp_path: Path) -> None:
    model = write_pair(tmp_path / "model")
    words = f"certify {QUICK} --subset 0:36 --batch-size 16 --model {model} --out {tmp_path}"
    assert run(f"{words}/whole") == 0
    endings = [("kill", 1), ("disk", 9000), ("int", 3000), ("term", 1), ("kill", 12000)]
    codes, said = interrupted(f"{words}/parts", endings)
    assert codes == [-9, 1, 130, -15, -9, 0]
    assert "File too large" in said
    assert "interrupted; " in said
    assert table(tmp_path / "parts") == table(tmp_path / "whole")
    lines = (tmp_path / "parts" / "rows-00000.jsonl").read_bytes()
    assert lines.count(b"\n") == 36, "a row was written twice"
