"""Crash-safe files: atomic writes, synced to disk, one writer at a time."""

import errno
import itertools
import json
import os
import secrets
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import IO

from varsmooth.errors import check, wrap_errors

LOCK = ".lock"
PARTS = f"*.{16 * '[0-9a-f]'}.part"
"""Names of files that are being written; after a kill, the next `only_writer` removes them."""
NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS)
"""errno values of file systems without hard links."""


def replace_file(path: Path, content: bytes) -> None:
    """Write a file in one step: after a crash or a power loss it is the old one or the new one."""
    _write(path, content, os.replace)


def create_file(path: Path, content: bytes) -> bool:
    """Write a file in one step unless it exists; of several processes one writes, and gets True."""
    return _write(path, content, os.link)  # atomic also on a shared disk


def _write(path: Path, content: bytes, place: Callable[[Path, Path], None]) -> bool:
    """Write beside the path, sync, and give the file its name; False if another has it."""
    part = path.with_name(f"{path.name}.{secrets.token_hex(8)}.part")
    with writing_file(path):
        make_folder(path.parent)
        try:
            with part.open("wb") as file:
                file.write(content)
                _sync(file)
            place(part, path)
        except FileExistsError:
            return False
        except OSError as error:
            if place is os.replace or error.errno not in NO_LINKS:
                raise
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)
        sync_folder(path.parent)
    return True


def append_lines(path: Path, lines: bytes) -> None:
    """Add whole lines to a file; they are on the disk when this returns.

    Half a line that a crash or a full disk left at the end is cut first.
    """
    with writing_file(path):
        new = not path.exists()
        with path.open("a+b") as file:
            _locked(file, wait=True)
            if file.seek(0, os.SEEK_END) > 0:
                with mmap(file.fileno(), 0, access=ACCESS_READ) as content:
                    end = content.rfind(b"\n") + 1
                file.truncate(end)
                file.seek(end)
            file.write(lines)
            _sync(file)
        if new:
            sync_folder(path.parent)


def check_unused(folder: Path, *own: str) -> None:
    """A folder for results holds no files but hidden ones, and those whose name has an `own`.

    What a writer that was killed left of a file does not count.
    """
    check(not folder.is_file(), f"{folder} is a file; name a folder")
    names = {path.name for path in folder.glob("[!.]*")} - {p.name for p in folder.glob(PARTS)}
    others = [name for name in sorted(names) if not any(word in name for word in own)]
    check(
        not others,
        f"{folder} holds other files ({', '.join(others[:3])}); choose a new folder",
    )


def make_folder(folder: Path) -> None:
    """Make a folder and those above it; they are on the disk when this returns."""
    if not folder.is_dir():
        make_folder(folder.parent)
        with wrap_errors(FileExistsError, f"{folder} is a file; name a folder"):
            folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def shown(path: str | Path) -> str:
    """A path as one would type it: relative if it lies below the working directory."""
    return str(path).removeprefix(os.getcwd() + os.sep)


def sync_folder(folder: Path) -> None:
    """Sync the entries of a folder to disk, so that a new file survives a power loss."""
    if sys.platform != "win32":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def only_writer(folder: Path, name: str = LOCK) -> Iterator[None]:
    """Lock a folder against other writers; a second one gets an error that names the first.

    The lock is the operating system's, on the file `name`, and ends with its process: a lock
    left by a dead process of this machine is taken over. The file names its holder,
    because on a shared disk the lock of another machine may be invisible. Writers of different
    parts of a folder hold different names, and none of them together with the whole folder.
    """
    path = folder / name
    made = [one for one in (folder, *folder.parents) if not one.exists()]
    with writing_file(path):
        file, free = _lock_file(path)
    with file:
        _check_free(path, file, free)
        try:
            for other in sorted(folder.glob(f"{LOCK}-*")) if name == LOCK else [folder / LOCK]:
                with (
                    suppress(FileNotFoundError),
                    open(other, "r+b", opener=_nofollow) as theirs,
                ):
                    _check_free(other, theirs, _locked(theirs))
            for part in folder.glob(PARTS) if name == LOCK else []:
                part.unlink(missing_ok=True)
            with writing_file(path):
                file.truncate(0)
                file.write(json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode())
            yield
        finally:
            path.unlink(missing_ok=True)
            with suppress(OSError):  # something was written, or the folder is gone
                for one in made:
                    one.rmdir()


def _check_free(path: Path, file: IO[bytes], free: bool) -> None:
    """Check that no other process holds this lock; `free` is the operating system's answer."""
    here = socket.gethostname()
    there: dict[str, object] = {"pid": "?", "host": here}
    file.seek(0)
    with suppress(TypeError, ValueError):  # the file does not name its writer
        there.update(json.loads(file.read()))
    elsewhere = path.name == LOCK and there["host"] != here  # parts have a name for each host
    check(
        free and not elsewhere,
        f"{path.parent} is being written by process {there['pid']} on {there['host']}; wait "
        "until it has finished, or choose another folder "
        f"(if that process no longer runs, delete {path})",
    )


def _nofollow(path: str, flags: int) -> int:
    """Open a file, never through a link that someone put in its place."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)


def _lock_file(path: Path) -> tuple[IO[bytes], bool]:
    """The open lock file, and whether this process now holds it."""
    for left in itertools.count(20, -1):
        try:
            make_folder(path.parent)
            # Unbuffered: on a full disk, closing would try to write the buffer once more.
            file = open(path, "a+b", buffering=0, opener=_nofollow)  # noqa: SIM115
        except FileNotFoundError:  # a writer that was refused removed the empty folder just now
            if left == 0:  # or the folder cannot be created
                raise
            continue
        if not _locked(file):
            return file, False
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file, True
        file.close()  # its last holder deleted it just now
    raise AssertionError("the loop has no end")


def _locked(file: IO[bytes], wait: bool = False) -> bool:
    """Take the operating system's lock on a file, which ends with the file or the process."""
    from filelock import lock_descriptor  # 40 ms that the command line's help does not need

    return lock_descriptor(file.fileno(), blocking=wait)


def _sync(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def writing_file(path: Path) -> AbstractContextManager[None]:
    """Turn an OSError inside into a message that names the file."""
    how = "free some space or choose another folder, then rerun the command"
    return wrap_errors(OSError, lambda e: f"{path} cannot be written ({e.strerror or e}); {how}")
