"""What tests of commands share: a terminal to type them in, and photographs to try them on."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pytest
from PIL import Image

from tests.small_models import run

BRIGHT_AND_DARK = MappingProxyType({"bright": 150, "dark": 60})


class Printed(NamedTuple):
    """What a command wrote to standard output and standard error."""

    out: str
    err: str


class Terminal:
    """Runs commands and returns what they print."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, words: str, *more: object, code: int = 0) -> Printed:
        """Run one command, which ends with this exit code."""
        self.capsys.readouterr()
        ended = run(words, *more)
        printed = Printed(*self.capsys.readouterr())
        assert ended == code, printed.err
        return printed

    def refuses(self, words: str, *sentences: str, code: int = 1) -> None:
        """The command fails, and standard error says why."""
        errors = self(words, code=code).err
        for sentence in sentences:
            assert sentence in errors


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(capsys)


def write_photos(
    folder: Path,
    count: int,
    shape: tuple[int, int] | None = None,
    classes: Mapping[str, int] = BRIGHT_AND_DARK,
    spread: int = 40,
) -> Path:
    """`count` photographs for each class, whose pixels begin at its value; None: of many sizes."""
    rng = np.random.default_rng(0)
    for name, base in classes.items():
        (folder / name).mkdir(parents=True)
        for i in range(count):
            size = tuple(rng.integers(9, 30, 2)) if shape is None else shape
            pixels = rng.integers(base, base + spread, (*size, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{i}.png")
    return folder
