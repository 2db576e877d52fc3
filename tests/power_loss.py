"""A disk that forgets: what a power loss may leave of a folder, given what was synchronised.

`Disk` watches fsync, rename, link and unlink. The content of a file is certain as of its last
fsync, the names in a folder as of the folder's last fsync. At the chosen moment the power fails: a
state that the disk may then have is written elsewhere, where every folder has its certain names or
the present ones, and every file its certain content followed by any part of what was written since.
"""

import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest


class PowerLoss(BaseException):
    """Raised in the middle of the work; nothing may handle it."""


class Disk:
    """The certain state of everything below root, at first all that is there.

    Args:
        root: the disk
        out: where to write what the power loss leaves of it
        moment: the power fails at this call of fsync, rename, link or unlink
        choice: decides what survives of that which is not certain
    """

    def __init__(self, root: Path, out: Path, moment: int, choice: random.Random) -> None:
        self.root, self.out, self.moment, self.choice = root, out, moment, choice
        self.content = {p.stat().st_ino: p.read_bytes() for p in root.rglob("*") if p.is_file()}
        folders = [root, *(path for path in root.rglob("*") if path.is_dir())]
        self.names = {path.stat().st_ino: _names(path) for path in folders}
        self.calls = 0
        self.lost = False

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, watched in (
            ("fsync", self._fsync),
            ("replace", self._replace),
            ("link", self._replace),
            ("unlink", self._unlink),
        ):
            monkeypatch.setattr(os, name, self._failing(getattr(os, name), watched))

    def _failing(self, plain: Any, watched: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            if not self.lost:
                self.calls += 1
                if self.calls == self.moment:
                    self.lost = True
                    self._lose(self.root, self.out)
                    raise PowerLoss
                watched(*arguments)
            return plain(*arguments, **options)

        return call

    def _fsync(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        path = Path(f"/proc/self/fd/{descriptor}")
        if path.is_dir():
            self.names[status.st_ino] = _names(path.resolve())
        else:
            self.content[status.st_ino] = path.read_bytes()

    def _replace(self, source: Path, target: Path) -> None:
        pass  # a name changes; it is certain after the folder's next fsync

    def _unlink(self, path: Path) -> None:
        if os.path.exists(path) and os.stat(path).st_nlink == 1:
            self.content.pop(os.stat(path).st_ino, None)  # the number may be given away again

    def _lose(self, folder: Path, out: Path) -> None:
        out.mkdir()
        present = _names(folder)
        certain = self.names.get(folder.stat().st_ino, {})
        names = self.choice.choice([certain, present])
        paths = {path.stat().st_ino: path for path in self.root.rglob("*")}
        for name, number in names.items():
            path = paths.get(number)
            if path is not None and path.is_dir():
                self._lose(path, out / name)
            elif path is not None or number in self.content:
                now = self.content[number] if path is None else path.read_bytes()
                (out / name).write_bytes(self._content(number, now))

    def _content(self, number: int, now: bytes) -> bytes:
        certain = self.content.get(number, b"")
        if not now.startswith(certain):  # it was shortened since, or written anew
            return self.choice.choice([certain, now])
        return now[: self.choice.randint(len(certain), len(now))]


def _names(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_ino for path in folder.iterdir()}


def copy_back(lost: Path, root: Path) -> None:
    """Go on from what the power loss left."""
    shutil.rmtree(root)
    shutil.copytree(lost, root)
