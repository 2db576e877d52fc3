"""Files that are whole, and folders with one writer."""

import json
import os
import shutil
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from varsmooth._util.files import LOCK, append_lines, only_writer, replace_file
from varsmooth.errors import VarsmoothError

WAITING = """
import sys, pathlib
from varsmooth._util.files import only_writer
with only_writer(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def holder(folder: Path) -> "subprocess.Popen[str]":
    """Another process that holds the folder until its input ends."""
    child = subprocess.Popen(
        [sys.executable, "-c", WAITING, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"
    return child


def test_the_second_writer_is_told_who_the_first_is(tmp_path: Path) -> None:
    child = holder(tmp_path)
    who = f"is being written by process {child.pid} on {socket.gethostname()}"
    with pytest.raises(VarsmoothError, match=who), only_writer(tmp_path):
        pass
    child.communicate("")
    with only_writer(tmp_path):
        assert json.loads((tmp_path / LOCK).read_text())["pid"] == os.getpid()
    assert list(tmp_path.iterdir()) == []


def test_a_lock_whose_holder_was_killed_is_taken_over(tmp_path: Path) -> None:
    child = holder(tmp_path)
    child.kill()
    child.communicate()
    assert (tmp_path / LOCK).exists()
    with only_writer(tmp_path):
        pass


def test_the_lock_of_another_machine_is_respected(tmp_path: Path) -> None:
    (tmp_path / LOCK).write_text('{"pid": 12, "host": "elsewhere"}')
    with (
        pytest.raises(VarsmoothError, match=r"process 12 on elsewhere.*delete"),
        only_writer(tmp_path),
    ):
        pass
    (tmp_path / LOCK).unlink()
    with only_writer(tmp_path):
        pass


def test_an_interrupted_replacement_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.pt"
    replace_file(path, b"old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(VarsmoothError, match=r"state\.pt cannot be written \(No space left"):
        replace_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_lines_follow_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    append_lines(path, b"one\n")
    with path.open("ab") as file:
        file.write(b"half a li")
    append_lines(path, b"two\n")
    assert path.read_bytes() == b"one\ntwo\n"


def test_a_folder_that_vanishes_hides_no_error(tmp_path: Path) -> None:
    def work() -> None:
        with only_writer(tmp_path / "run"):
            shutil.rmtree(tmp_path / "run")
            raise VarsmoothError("the reason")

    with pytest.raises(VarsmoothError, match="the reason"):
        work()


def test_a_refused_command_leaves_no_folder_above_its_own(tmp_path: Path) -> None:
    with suppress(VarsmoothError), only_writer(tmp_path / "runs" / "new" / "run"):
        raise VarsmoothError("refused")
    assert list(tmp_path.iterdir()) == []


def test_a_lock_is_never_written_through_a_link(tmp_path: Path) -> None:
    """A folder from elsewhere may hold a link to a file of the user's under the lock's name."""
    (tmp_path / "mine").write_text("precious")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / LOCK).symlink_to(tmp_path / "mine")
    with pytest.raises((VarsmoothError, OSError)), only_writer(tmp_path / "run"):
        pass
    assert (tmp_path / "mine").read_text() == "precious"
