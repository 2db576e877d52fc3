"""The files of the package whose functions run between an image's pixels and its row."""

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import varsmooth
from tests.small_models import run
from varsmooth.evaluation.records import Run

PACKAGE = Path(varsmooth.__file__).parent


def files_of_an_image(words: str) -> set[str]:
    """The files whose functions run from reading the pixels of a block to writing its rows."""
    files: set[str] = set()
    walking = False

    def hook(frame: FrameType, event: str, _: Any) -> None:
        nonlocal walking
        code, path = frame.f_code, Path(frame.f_code.co_filename)
        if event == "call" and code.co_name == "batch" and frame.f_back is not None:
            walking = walking or frame.f_back.f_code.co_name in ("map", "blocks", "_results")
        if event == "return" and code is Run.append.__code__:
            walking = False
        if walking and event == "call" and path.is_relative_to(PACKAGE):
            files.add(str(path.relative_to(PACKAGE)))

    sys.setprofile(hook)
    try:
        assert run(words) == 0
    finally:
        sys.setprofile(None)
    return files


@pytest.mark.parametrize(("votes", "most"), [("--n 100", 28), ("--at 0 --n-max 200", 31)])
def test_an_image_passes_through_few_files(votes: str, most: int, tmp_path: Path) -> None:
    """With a selector that has a network of its own; votes that stop early add three files."""
    words = f"certify --model cifar10-0.25 {votes} --n-select 61 --n-median 21 --subset 0:1"
    files = files_of_an_image(f"{words} --out {tmp_path}")
    assert {"smoothing.py", "api.py", "evaluation/records.py"} <= files
    assert len(files) <= most, sorted(files)
