"""The command line of `reproduce`, and its results read independently of it."""

import csv
import gzip
import io
import json
from pathlib import Path
from typing import Any

from reproduce.__main__ import EXPERIMENTS, build_parser, main, sizes_of
from reproduce.scales import S, resized


def run(words: str, *more: object) -> int:
    """The exit code of `python -m reproduce WORDS`, less the sizes that it has no use for."""
    return main([*in_use(words), *map(str, more)])


def in_use(words: str) -> list[str]:
    """Words without the options that their experiment does not have: tests share tiny sizes."""
    name, *rest = words.split()
    unused = EXPERIMENTS[name].scales["cpu"].unused if name in EXPERIMENTS else ()
    for field in unused:
        option = f"--{field.replace('_', '-')}"
        if option in rest:
            at = rest.index(option)
            del rest[at : at + 2]
    return [name, *rest]


def sized(scale: S, name: str, words: str) -> S:
    """A scale as the options of an experiment change it."""
    return resized(scale, sizes_of(build_parser().parse_args(in_use(f"{name} {words}"))))


def lines_of(folder: Path) -> list[dict[str, str]]:
    """The lines of compact records, as text."""
    path = folder / "records.csv.gz"
    text = gzip.decompress(path.read_bytes()).decode() if path.is_file() else ""
    return list(csv.DictReader(io.StringIO(text)))


def results(folder: Path) -> tuple[dict[str, Any], list[dict[str, str]]]:
    """Configuration and records of a result."""
    return json.loads((folder / "config.json").read_text()), lines_of(folder)
