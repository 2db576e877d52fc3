"""After images changed, no reader shows or attacks wrong ones beside certificates."""

from dataclasses import replace
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
from varsmooth.models.descriptions import describe, rewrite


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


def test_an_auditor_says_where_the_images_and_the_model_are(
    certified: Path, tmp_path: Path, capsys: Output
) -> None:
    received = tmp_path / "received"
    received.mkdir()
    for name, place in {"photos": "images", "model": "net", "run": "run"}.items():
        Path(name).rename(received / place)
    verify = "verify received/run --model received/net"
    assert run(verify) == 3
    out = " ".join(capsys.readouterr().out.split())
    assert "see varsmooth data list; give their place with --data)" in out
    for more in ("", "--replay all", "--resample 2"):
        assert run(f"{verify} --data received/images {more}") == 0
        assert "model and images are those of the run" in capsys.readouterr().out
    assert run(f"{verify} --data nowhere") == 1
    assert "nowhere is neither a file, a folder" in capsys.readouterr().err
    assert run(f"{verify} --data cifar10-sample") == 1
    assert "--data holds other images or labels" in capsys.readouterr().err
    edit_header(received / "run", noise_scope="another test")
    assert run(f"{verify} --data received/images") == 1
    assert "(noise_scope)" in capsys.readouterr().err
    edit_header(received / "run", noise_scope="photos test")
    write(received / "images" / CLASS_NAMES[0] / "0.png", 9)
    assert run(f"{verify} --data received/images") == 1
    assert "0.png has changed since" in capsys.readouterr().err


def test_what_the_model_saw_is_counted_where_the_images_are_now(
    certified: Path, capsys: Output
) -> None:
    """Its description names the folder that they were trained from."""
    about, old = describe(Path("model")), Path("photos").resolve()
    assert about.classifier is not None
    trained = replace(about.classifier, training={"train_split": "test"})
    rewrite(Path("model"), replace(about, dataset=str(old), classifier=trained))
    assert run(f"certify {QUICK} --data photos --model model --out seen") == 0
    assert Run.open("seen").header["seen_in_training"] == 4
    Path("photos").rename("images")
    assert run("verify seen --data images") == 0
    edit_header(Path("seen"), seen_in_training=0)
    capsys.readouterr()
    assert run("verify seen --data images") == 3
    assert "NOT CHECKED: whether the model was trained on 0 of these" in capsys.readouterr().out
