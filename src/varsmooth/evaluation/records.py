"""One run = one folder: its settings, and one line for every result.

`run.json` says what produced the rows. `rows-<writer>.jsonl` are append-only JSON Lines, one file
per process: floats keep every digit, a block is on the disk before the next one starts, and a line
torn by a crash is recognised by its missing end and cut. Each line and `run.json` end with their
checksums, which show damage; against forgery see `varsmooth.evaluation.verify`.

A table of all rows in one line: `pandas.concat(pandas.read_json(path, lines=True) for path in
sorted(pathlib.Path(folder).glob("rows-*.jsonl")))`.
"""

import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from varsmooth._util.files import LOCK, append_lines, check_unused, create_file, replace_file
from varsmooth._util.typed import OptionError, fit, parse
from varsmooth._util.untrusted import LIMITS, check_limit, check_regular, parse_json
from varsmooth.errors import VarsmoothError, check
from varsmooth.evaluation.headers import HEADER, different_options, header_file, read_header
from varsmooth.types import Class, Distance, Id, NonNegative, Positive

if TYPE_CHECKING:
    from varsmooth.certificates import Certificate

WRITER = "00000"
"""The writer of a run that one process computes."""

Row = dict[str, Any]
Key = int | tuple[int, float]


@dataclass(frozen=True, kw_only=True)
class _Answer:
    id: Id
    label: NonNegative | None
    prediction: Class
    sigma: Positive | None
    file: str = ""
    pixels: str = ""
    seconds: Distance | None = None
    samples: NonNegative | None = None
    selector_samples: NonNegative | None = None
    environment: dict[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class _Predicted(_Answer):
    counts: list[NonNegative]


@dataclass(frozen=True, kw_only=True)
class _Attacked(_Predicted):
    """A search inside certified balls has the last three."""

    eps: Distance
    norm: Distance
    clean_prediction: Class
    clean_counts: list[NonNegative]
    sigma_clean: Positive
    radius: Distance | None = None
    guarantee: str | None = None
    violated: bool | None = None


@cache
def _row_type(verb: str) -> type[_Answer]:
    """What a row of this verb must be."""
    if verb != "certify":
        return _Predicted if verb == "predict" else _Attacked
    from varsmooth.certificates import Certificate  # a header is read without torch

    @dataclass(frozen=True, kw_only=True)
    class _Certified(_Answer):
        """An imported run has no evidence, and may not know σ."""

        radius: Distance
        guarantee: str
        evidence: Certificate | None

    return _Certified


def read_certificate(values: dict[str, Any]) -> "Certificate":
    """The inverse of `Certificate.to_dict`, also after a trip through JSON; else an `OptionError`.

    From what this returns a radius can be derived.
    """
    try:
        return _read_evidence(values)
    except OptionError as error:
        how = "; give one certificate whole, as its to_dict() wrote it"
        raise OptionError(error.name, f"{error.problem}{how}") from error


def _read_evidence(values: Mapping[str, Any]) -> "Certificate":
    from varsmooth.certificates import Certificate

    certificate: Certificate = fit(Certificate, values)
    _check_complete(certificate)
    return certificate


def _check_complete(certificate: "Certificate") -> None:
    if not certificate.complete:
        raise OptionError(problem="is not the evidence that its method needs")


def key_of(row: Mapping[str, Any]) -> Key:
    """What a row is about: an image, or an image and the budget of the attack on it."""
    return (row["id"], row["eps"]) if "eps" in row else row["id"]


@dataclass(frozen=True)
class Run:
    """The folder of a run, open for reading, and for appending as process `writer`.

    `header` has the keys "format", "verb", "name", "started", "config", "environment",
    "fingerprints", "dataset" and "selector"; `varsmooth.evaluation.runner` writes it.
    """

    folder: Path
    header: dict[str, Any]
    writer: str = WRITER
    parts: tuple[Path, ...] = ()  # other folders that hold rows of the same run

    @classmethod
    def create(cls, folder: str | Path, header: Mapping[str, Any], writer: str = WRITER) -> "Run":
        """Start a run, or resume the one that is there if its settings are the same."""
        folder = Path(folder)
        content = header_file(header)
        wanted = json.loads(content)
        have_rows = any(folder.glob("rows-*.jsonl"))  # never before their header
        if not (folder / HEADER).exists():
            check(
                not have_rows,
                f"{folder} has rows but no {HEADER}; choose another folder, or restore that file",
            )
            check_unused(folder, HEADER, "rows-")
            if create_file(folder / HEADER, content):
                return cls(folder, wanted, writer)
        run = cls.open(folder, writer)
        different = different_options(run.header, wanted)
        if different:
            own = f"{LOCK}-{writer}"
            others = [path for path in folder.glob(f"{LOCK}-*") if not own.startswith(path.name)]
            check(
                not others and not run.done(),  # no rows yet: safe to overwrite
                f"{folder} holds a run with other settings ({'; '.join(different)}); "
                "choose another --out, or give the same settings to resume it",
            )
            replace_file(folder / HEADER, content)
            run = cls(folder, wanted, writer)
        return run

    @classmethod
    def open(cls, folder: str | Path, writer: str = WRITER) -> "Run":
        """The run in a folder."""
        return cls(Path(folder), read_header(Path(folder)), writer)

    @property
    def files(self) -> list[Path]:
        """The files of rows, one for each process that wrote some."""
        return [p for f in (self.folder, *self.parts) for p in sorted(f.glob("rows-*.jsonl"))]

    def rows(self, stored: Iterable[Row] | None = None) -> list[Row]:
        """Every complete row of every process, sorted by id (and budget), none twice.

        Two processes may have computed the same row if one was restarted elsewhere while it
        still ran; both rows are the same, so the first is kept. `stored` are those on the disk, if
        they were read already.
        """
        unique: dict[Key, Row] = {}
        for row in self.stored() if stored is None else stored:
            unique.setdefault(key_of(row), row)
        return sorted(unique.values(), key=lambda row: (row["id"], row.get("eps", 0.0)))

    def done(self) -> set[Key]:
        """The keys of the rows that are there."""
        return {key_of(row) for row in self.stored()}

    def stored(self, files: Iterable[Path] | None = None) -> Iterator[Row]:
        """Every complete row, duplicates included; of some files, or all.

        A row computed on another machine records its environment, in merged runs too.
        """
        made = {part: read_header(part)["environment"] for part in self.parts}
        elsewhere = {part: e for part, e in made.items() if e != self.header["environment"]}
        for path in self.files if files is None else files:
            check_regular(path)
            with path.open("rb") as file:
                lines = iter(partial(file.readline, LIMITS["TEXT"] + 1), b"")
                for number, line in enumerate(lines, start=1):
                    where = f"line {number} of {path}"
                    check_limit("TEXT", len(line), f"{where} has {len(line):,} bytes")
                    if line.endswith(b"\n"):  # what follows the last line end is a torn line
                        row = self._row(line, where)
                        if path.parent in elsewhere and not row.get("environment"):
                            row["environment"] = elsewhere[path.parent]
                        yield row

    def certified_rows(self, use: str, stored: Iterable[Row] | None = None) -> list[Row]:
        """`rows` of a run of `certify` with its evidence; the error says for what."""
        verb, rows = self.header["verb"], self.rows(stored)
        check(
            verb == "certify", f"{self.folder} is a run of {verb}; only certificates can be {use}"
        )
        check(
            all(row["evidence"] is not None for row in rows),
            f"{self.folder} was imported without evidence, so it cannot be {use}",
        )
        return rows

    def append(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add rows to this process's file; they are on the disk when this returns."""
        lines = b"".join(map(_line, rows))
        append_lines(self.folder / f"rows-{self.writer}.jsonl", lines)

    def certificate(self, row: Row) -> "Certificate":
        """The certificate of a `certify` row, whole again."""
        settings = self.header["selector"] | {"lattice": self.header["config"].get("lattice")}
        return _read_evidence({**row["evidence"], "settings": settings})

    def _row(self, line: bytes, where: str) -> Row:
        """The row of one complete line."""
        again = f"remove that line and rerun the {self.header['verb']} command of this run"
        text, mark, code = line.rpartition(_CHECK)
        text += b"}"
        check(
            bool(mark) and code == b'%08x"}\n' % zlib.crc32(text),
            f"{where} is damaged: its checksum is wrong; {again}",
        )
        try:
            row: Row = parse_json(text)
            answer: Any = parse(_row_type(self.header["verb"]), text)
            if row.get("evidence") is not None:
                _check_complete(answer.evidence)
        except OptionError as error:
            raise VarsmoothError(f"{where} is not a row of this run: {error}; {again}") from None
        except ValueError:
            raise VarsmoothError(f"{where} is damaged; {again}") from None
        return row


_CHECK = b',"check":"'


def _line(row: Mapping[str, Any]) -> bytes:
    """A row as one line of JSON whose last entry is the CRC-32 of the row without it."""
    text = json.dumps(row, separators=(",", ":")).encode()
    return text[:-1] + _CHECK + b'%08x"}\n' % zlib.crc32(text)


def open_joined(folders: Iterable[str | Path]) -> list[Run]:
    """The runs in these folders, in order; unfinished ones with the same settings are one run.

    Same settings are the same model, images, options and seed, so that rows of an image are equal
    wherever it was computed.
    """
    groups: list[list[Run]] = []
    for folder in folders:
        run = Run.open(folder)
        alike = (g for g in groups if not different_options(g[0].header, run.header))
        together = (g for g in alike if _is_part(g[0]) and _is_part(run))
        if (group := next(together, None)) is None:
            groups.append([run])
        else:
            group.append(run)
    return [_join(group) for group in groups]


def open_as_one(folders: Iterable[str | Path]) -> Run:
    """The one run that these folders hold together."""
    first, *others = open_joined(folders)
    for other in others:
        different = different_options(first.header, other.header)
        why = "; ".join(different) or "each is complete by itself"
        raise VarsmoothError(f"{first.folder} and {other.folder} are not parts of one run ({why})")
    return first


def _is_part(run: Run) -> bool:
    """Whether images of the run are missing in its folder."""
    size: int = run.header["dataset"]["size"]
    return len({row["id"] for row in run.stored()}) < size


def _join(runs: list[Run]) -> Run:
    first, *others = runs
    if not others:
        return first
    names = [run.header["name"] for run in runs]
    stems = {re.sub(r"[-_. ]*\d+$", "", name) for name in names}  # part-1, part-2, … are `part`
    header = first.header | {"name": stems.pop() or names[0] if len(stems) == 1 else names[0]}
    return replace(first, header=header, parts=tuple(run.folder for run in others))
