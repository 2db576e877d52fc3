"""Untrusted runs on the page: shown, or one sentence."""

import contextlib
import random
from pathlib import Path

import pytest

from tests.conftest import Tally
from tests.evaluation.test_hostile import NO_FILES, cases, copy, parts
from tests.small_models import QUICK, run, write_pair
from varsmooth.app.views import open_run
from varsmooth.errors import VarsmoothError

FEW = "--n 60 --alpha 0.1 --subset 0:2"
RUNS = {
    "dual": f"certify {QUICK} --subset 0:2",
    "paper": f"certify {QUICK} --subset 0:2 --method paper --distance 0.1",
    "cascade": f"certify {FEW} --cascade 0.5,0.25",
    "late": f"certify {FEW} --cascade 0.5:0.999:0,0.25",
    "predict": f"predict {FEW} --n-median 21",
    "attack": f"attack {FEW} --n-median 21 --eps 0.1 --steps 1",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    model = write_pair(folder / "model")
    for name, command in RUNS.items():
        assert run(f"{command} --model {model} --out {folder / name}") == 0
    return folder


def show(path: Path) -> None:
    """Everything that the page shows of a run."""
    opened = open_run(path)
    opened.overview_html()
    opened.table_html()
    opened.evidence_html(0)


def test_the_votes_shown_are_those_at_the_final_level(folder: Path) -> None:
    opened = open_run(folder / "late")
    for place, row in enumerate(opened.outcomes.rows):
        assert row["sigma"] == 0.25, "the first stage is to abstain"
        assert "Votes at σ = 0.2500, one of 2 levels." in opened.evidence_html(place)


def odd(stored: Path, out: Path, count: int) -> int:
    chosen = random.Random(0).sample(cases(stored), count)
    for number, (name, header, rows) in enumerate(chosen):
        print(name)  # pytest shows the last one if it fails
        with contextlib.suppress(VarsmoothError):
            show(copy(stored, out / str(number), header, rows))
    return count


@pytest.mark.filterwarnings("ignore")
def test_some_odd_entries(folder: Path, tmp_path: Path) -> None:
    show(folder / "dual")
    assert odd(folder / "dual", tmp_path, 10)


@pytest.mark.slow
@pytest.mark.campaign
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", RUNS)
def test_odd_entries_of_every_kind_of_run(
    kind: str, folder: Path, tmp_path: Path, tally: Tally
) -> None:
    tally("hostile runs on the page", 60)
    odd(folder / kind, tmp_path, 60)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("sample", [float("inf"), 1e308])
def test_a_selector_that_says_infinity_is_drawn(
    sample: float, folder: Path, tmp_path: Path
) -> None:
    header, rows = parts(folder / "dual")
    rows[0]["evidence"]["selector"]["samples"][-1] = sample
    show(copy(folder / "dual", tmp_path / "run", header, rows))


@pytest.mark.parametrize("name", ["a\0b", "~nobody-has-this-name/run", "x" * 5000, "/dev/null"])
def test_what_is_not_a_path_gets_a_sentence(name: str) -> None:
    with pytest.raises((VarsmoothError, OSError)):
        open_run(name)


@pytest.mark.parametrize("kind", [*map(NO_FILES.get, ("pipe", "loop", "enormous")), Path.touch])
@pytest.mark.parametrize("name", ["run.json", "rows-00000.jsonl"])
def test_the_page_does_not_start_with_an_odd_run(
    kind: object, name: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copied = copy(folder / "dual", tmp_path / "run", *parts(folder / "dual"))
    (copied / name).unlink()
    kind(copied / name)  # type: ignore[operator]
    assert run(f"app --model {folder / 'model'} --port 0 --run {copied}") == 1
    *_, error = capsys.readouterr().err.splitlines()
    assert error.startswith("varsmooth: ")
