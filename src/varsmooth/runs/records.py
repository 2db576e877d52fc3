"""One run = one folder: what was asked, and one line for every result.

`run.json` says what produced the rows. `rows-<rank>.jsonl` are append-only JSON Lines, one file
per process, and the store of truth: floats keep every digit, a batch is on the disk before the
next one starts, and a line that a crash tore is recognised by its missing end and cut.

A table of all rows in one line: `pandas.concat(pandas.read_json(path, lines=True) for path in
sorted(pathlib.Path(folder).glob("rows-*.jsonl")))`.
"""

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from varsmooth.certificates import Certificate
from varsmooth.errors import VarsmoothError, require

FORMAT = 1
HEADER = "run.json"

EXECUTION = ("model", "data", "root", "batch_size", "device", "devices", "votes", "name", "out")
"""Parts of a configuration that change where and how fast, never what: a run may be continued
with others. Model and data are told apart by their fingerprints instead of by their paths."""

Row = dict[str, Any]
Key = int | tuple[int, float]


def key_of(row: Mapping[str, Any]) -> Key:
    """What a row is about: an image, or an image and the budget of the attack on it."""
    return (row["id"], row["eps"]) if "eps" in row else row["id"]


@dataclass(frozen=True)
class Run:
    """The folder of a run, open for reading, and for appending as process `rank`.

    header: {"format", "verb", "name", "config", "environment", "fingerprints", "dataset",
    "selector"}; see `varsmooth.runs.runner`, which writes it.
    """

    folder: Path
    header: dict[str, Any]
    rank: int = 0

    @classmethod
    def create(cls, folder: str | Path, header: Mapping[str, Any], rank: int = 0) -> "Run":
        """Start a run, or continue the one that is there if it was asked the same thing."""
        folder = Path(folder)
        wanted = json.loads(json.dumps({"format": FORMAT, **header}))
        if (folder / HEADER).exists():
            run = cls.open(folder, rank)
            different = differences(_settings(run.header), _settings(wanted))
            if not different:
                return run
            require(
                not run.done(),  # before its first row a run is only an intention
                f"{folder} holds a run with other settings ({'; '.join(different)}); "
                "choose another --out, or the same settings to continue it",
            )
        else:
            require(
                not any(folder.glob("rows-*.jsonl")),
                f"{folder} has rows but no {HEADER}; choose another folder, or restore that file",
            )
        folder.mkdir(parents=True, exist_ok=True)
        _write_whole(folder / HEADER, json.dumps(wanted, indent=1) + "\n")
        return cls(folder, wanted, rank)

    @classmethod
    def open(cls, folder: str | Path, rank: int = 0) -> "Run":
        """The run in a folder."""
        path = Path(folder) / HEADER
        try:
            header = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise VarsmoothError(
                f"{folder} is no run: it has no {HEADER}; name a folder that --out wrote"
            ) from None
        except ValueError as error:
            raise VarsmoothError(f"{path} is not readable as JSON: {error}") from error
        require(
            isinstance(header, dict) and header.get("format") == FORMAT,
            f"{path} is of another format than {FORMAT}, the one this varsmooth reads",
        )
        return cls(Path(folder), header, rank)

    def rows(self) -> list[Row]:
        """Every complete row of every process, sorted by id (and budget), none twice.

        Two processes may have computed the same row if one was restarted elsewhere while it
        lived; both say the same, so the first is kept.
        """
        found: dict[Key, Row] = {}
        for path in self._files():
            for row in _complete_rows(path):
                found.setdefault(key_of(row), row)
        return sorted(found.values(), key=lambda row: (row["id"], row.get("eps", 0.0)))

    def done(self) -> set[Key]:
        """The keys of the rows that are there."""
        return {key_of(row) for path in self._files() for row in _complete_rows(path)}

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("rows-*.jsonl"))

    def append(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add rows to this process's file; they are on the disk when this returns."""
        lines = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
        with (self.folder / f"rows-{self.rank:05d}.jsonl").open("a+b") as file:
            _lock(file)
            _cut_torn_line(file)
            file.write(lines.encode())
            file.flush()
            os.fsync(file.fileno())

    def certificate(self, row: Row) -> Certificate:
        """The certificate of a `certify` row, whole again."""
        settings = {**self.header["selector"], "lattice": self.header["config"]["lattice"]}
        constant = {"settings": settings, "fingerprints": self.header["fingerprints"]}
        return Certificate.from_dict({**row["evidence"], **constant})


def _complete_rows(path: Path) -> Iterator[Row]:
    """The rows of one file; what follows the last line end is a torn line and no row."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if line.endswith(b"\n"):
                yield _parsed(line, number, path)


def _parsed(line: bytes, number: int, path: Path) -> Row:
    try:
        row: Row = json.loads(line)
    except ValueError:
        raise VarsmoothError(
            f"line {number} of {path} is damaged; remove that line and run the same command "
            "again to compute it anew"
        ) from None
    return row


def _cut_torn_line(file: IO[bytes]) -> None:
    """Shorten the file to its last line end, if a crash or a full disk left half a line."""
    end = file.seek(0, os.SEEK_END)
    position = end
    while position > 0:
        step = min(position, 1 << 16)
        position = file.seek(position - step)
        line_end = file.read(step).rfind(b"\n")
        if line_end >= 0:
            position += line_end + 1
            break
    if position < end:
        file.truncate(position)
    file.seek(0, os.SEEK_END)


def _lock(file: IO[bytes]) -> None:
    """Wait until no other process appends to the file; ends with the file or the process."""
    if sys.platform != "win32":
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX)


def _write_whole(path: Path, text: str) -> None:
    """Write a file in one step: whoever looks sees all of it or none."""
    part = path.with_suffix(f".{os.getpid()}.part")
    with part.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)


def _settings(header: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a header that two halves of one run must share."""
    shared = ("verb", "config", "fingerprints", "dataset", "selector")
    settings = {name: header.get(name) for name in shared}
    config = settings["config"] or {}
    return {**settings, "config": {k: v for k, v in config.items() if k not in EXECUTION}}


def differences(there: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Where two sets of settings differ, in words.

    >>> differences({"n": 100, "clip": [0.1, 1.0]}, {"n": 200, "clip": (0.1, 1.0)})
    ['n: 100 there, 200 now']
    """
    return list(_differences(there, json.loads(json.dumps(now)), ""))


def _differences(there: Any, now: Any, name: str) -> Iterator[str]:
    if isinstance(there, Mapping) and isinstance(now, Mapping):
        for key in sorted(there.keys() | now.keys()):
            inner = f"{name}.{key}" if name else key
            yield from _differences(there.get(key), now.get(key), inner)
    elif there != now:
        yield f"{name}: {_short(there)} there, {_short(now)} now"


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "…"
