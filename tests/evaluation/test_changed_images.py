"""After images changed, no reader shows or attacks wrong ones beside certificates."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.evaluation import Output, Patch
from tests.small_models import QUICK, edit_header, run, write_pair
from varsmooth.app.views import open_run
from varsmooth.data.cifar10 import CLASS_NAMES
from varsmooth.evaluation.records import Run
from varsmooth.evaluation.report.gallery import gallery
from varsmooth.evaluation.report.outcomes import Outcomes


def write(path: Path, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)


@pytest.fixture
def certified(tmp_path: Path, monkeypatch: Patch) -> Path:
    """A run on a folder of four photographs."""
    monkeypatch.chdir(tmp_path)
    write_pair(tmp_path / "model")
    for number in range(4):
        write(tmp_path / "photos" / CLASS_NAMES[number % 2] / f"{number}.png", number)
    assert run(f"certify {QUICK} --data photos --model model --out run") == 0
    return tmp_path / "run"


def pictures(folder: Path) -> int:
    outcomes = Outcomes.open(folder)
    opened = open_run(folder)
    shown = len(gallery(outcomes, [outcomes]).thumbnails)
    on_page = sum("pixels" in opened._image(row) for row in opened.outcomes.rows)
    assert shown == on_page
    return shown


ATTACK = "attack --steps 1 --n 60 --n-median-attack 3 --against run --out"


def test_a_file_that_was_added(certified: Path, capsys: Output) -> None:
    assert pictures(certified) == 4
    assert run(f"{ATTACK} before") == 0
    write(Path("photos") / CLASS_NAMES[0] / "00.png", 9)
    edit_header(certified, name="renamed")  # so that the page opens it anew
    assert pictures(certified) == 0
    assert run(f"{ATTACK} after") == 1
    assert "other images or labels than those of the run" in capsys.readouterr().err


def test_a_file_with_other_pixels(certified: Path, capsys: Output) -> None:
    row = next(row for row in Run.open(certified).rows() if row["radius"] > 0)
    write(Path("photos") / row["file"], 9)  # of the same name and size
    assert pictures(certified) == 3
    assert run(f"{ATTACK} after") == 1
    assert f"image {row['id']} is not the one that" in capsys.readouterr().err


def test_a_run_gets_no_pictures_of_a_folder_that_its_writer_did_not_have(certified: Path) -> None:
    """It knows names and sizes of private photographs, not their pixels."""

    def without(row: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in row.items() if name != "pixels"}

    rows = [without(row) for row in Run.open(certified).rows()]
    (file,) = Run.open(certified).files
    file.unlink()
    Run.open(certified).append(rows)
    assert pictures(certified) == 0
    assert run(f"verify {certified}") == 3
