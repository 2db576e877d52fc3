"""Hostile folders as runs: every reader ends soon, with a result or a one-line error."""

import contextlib
import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conftest import Tally
from tests.evaluation import Output
from tests.models.test_hostile import JSON
from tests.small_models import QUICK, run, write_pair
from varsmooth.errors import VarsmoothError
from varsmooth.evaluation.headers import header_file
from varsmooth.evaluation.records import Run, _line
from varsmooth.evaluation.report.exchange import import_tsv

Header = dict[str, Any]
ROWS = "rows-00000.jsonl"


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A good run of two images, and the folder of its model beside it."""
    folder = tmp_path_factory.mktemp("stored")
    write_pair(folder / "model")
    command = f"certify {QUICK} --subset 0:2 --model {folder / 'model'} --out {folder / 'run'}"
    assert run(command) == 0
    return folder / "run"


def copy(stored: Path, folder: Path, header: Header, rows: list[Any]) -> Path:
    folder.mkdir(exist_ok=True, parents=True)
    (folder / "run.json").write_bytes(header_file(header))
    (folder / ROWS).write_bytes(b"".join(map(_line, rows)))
    return folder


def parts(stored: Path) -> tuple[Header, list[Any]]:
    lines = (stored / ROWS).read_text().splitlines()
    rows = [{k: v for k, v in json.loads(line).items() if k != "check"} for line in lines]
    return json.loads((stored / "run.json").read_text()), rows


READERS: dict[str, Callable[[Path, Path], int]] = {
    "verify": lambda folder, out: run(f"verify {folder}"),
    "report": lambda folder, out: run(f"report {folder} --out {out}"),
    "export": lambda folder, out: run(f"report export {folder} --to tsv --out {out}"),
    "recompute": lambda folder, out: run(f"report recompute {folder} --alpha 0.1 --out {out}"),
    "attack": lambda folder, out: run(f"attack --steps 1 --n 20 --against {folder} --out {out}"),
}


def slots(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every entry of nested JSON, without the inside of long lists."""
    inner = value.items() if isinstance(value, dict) else enumerate(value[:2])
    for name, entry in inner:
        yield (*path, name)
        if isinstance(entry, dict | list):
            yield from slots(entry, (*path, name))


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """A copy with another entry at the end of that way; ... removes it."""
    value = json.loads(json.dumps(value))
    place = value
    for name in path[:-1]:
        place = place[name]
    if new is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = new
    return value


ODD: tuple[Any, ...] = (
    ..., None, True, -1, 10**400, 1e308, float("nan"), "", "\x1b[2J<script>", [], {}, [[]]
)  # fmt: skip


def cases(stored: Path) -> list[tuple[str, Header, list[Any]]]:
    """One odd entry each, at every place of the header and of the first row."""
    header, (first, second) = parts(stored)
    headers = [
        (f"header {path} {new!r:.30}", changed(header, path, new), [first, second])
        for path in slots(header)
        for new in ODD
    ]
    return headers + [
        (f"row {path} {new!r:.30}", header, [changed(first, path, new), second])
        for path in slots(first)
        for new in ODD
    ]


FREE = (
    "row ('seconds',)",
    "row ('selector_samples',)",  # what the model was shown; no statement rests on it
    "row ('evidence', 'selector', 'samples', 0)",  # below every bound; resampling sees it
    "row ('evidence', 'ledger', 'runner_up') Ellipsis",  # entries that have a default
    "row ('evidence', 'ledger', 'anytime') Ellipsis",
    "row ('evidence', 'votes', 0, 'passes') Ellipsis",
    "row ('evidence', 'selector', 'distance') Ellipsis",
    "row ('evidence', 'selector', 'distance') None",
    "row ('evidence', 'stages') Ellipsis",
    "row ('evidence', 'stages') None",
)
"""Entries of a row that may have any value: no result depends on them."""


def read(reader: str, folder: Path, out: Path, capsys: Output) -> int:
    """The exit code of one reader; anything but a result or a one-line error fails."""
    code = READERS[reader](folder, out)
    printed = capsys.readouterr()
    assert code in (0, 1, 2)
    text = (printed.out + printed.err).replace("\n", "").replace("\t", "")
    assert text.isprintable()
    if code:
        assert printed.err.splitlines()[-1].startswith("varsmooth: ")
    return code


@pytest.mark.slow
@pytest.mark.campaign
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("reader", READERS)
def test_odd_entries_at_every_place(
    reader: str, stored: Path, tmp_path: Path, capsys: Output, tally: Tally
) -> None:
    chosen = cases(stored)
    if reader in ("report", "attack"):  # which take seconds each
        chosen = random.Random(0).sample(chosen, 150)
    tally("hostile runs", len(chosen))
    for number, (name, header, rows) in enumerate(chosen):
        folder = copy(stored, tmp_path / "run", header, rows)
        try:
            code = read(reader, folder, tmp_path / f"out-{number}", capsys)
        except Exception as error:
            raise AssertionError(name) from error
        if reader == "verify" and name.startswith("row") and not name.startswith(FREE):
            assert code == 1, f"verify accepts {name}"


@pytest.mark.parametrize("reader", ["verify", "recompute", "attack"])
def test_a_row_without_its_evidence(
    reader: str, stored: Path, tmp_path: Path, capsys: Output
) -> None:
    header, (first, second) = parts(stored)
    bare = changed(first, ("evidence",), None) | {"prediction": 0, "radius": 0.1}
    copied = copy(stored, tmp_path / "run", header, [bare, second])
    assert read(reader, copied, tmp_path / "out", capsys) == 1


@pytest.mark.parametrize("reader", ["verify", "export"])
def test_selectors_inside_selectors(
    reader: str, stored: Path, tmp_path: Path, capsys: Output
) -> None:
    header, rows = parts(stored)
    for _ in range(300):
        header["selector"] = {"selector": "median", "inner": header["selector"]}
    copied = copy(stored, tmp_path / "run", header, rows)
    assert read(reader, copied, tmp_path / "out", capsys) == 1


@pytest.mark.parametrize("size", [..., "many", 0, None, [1], 2.5, 10**7])
def test_the_batch_size_of_an_untrusted_run(
    size: Any, stored: Path, tmp_path: Path, capsys: Output
) -> None:
    """A replay repeats the batches of the run, if they are numbers that memory can bear."""
    header, rows = parts(stored)
    odd = changed(header, ("config", "batch_size"), size)
    code = run(f"verify {copy(stored, tmp_path / 'run', odd, rows)} --replay 1")
    assert code == (0 if size is ... else 1)
    assert (size is ...) == ("varsmooth: " not in capsys.readouterr().err)


def test_a_cascade_with_a_level_twice(tmp_path: Path, capsys: Output) -> None:
    model, good = write_pair(tmp_path / "model"), tmp_path / "good"
    certify = "certify --cascade 0.5,0.25 --n 60 --alpha 0.1 --subset 0:2"
    assert run(f"{certify} --model {model} --out {good}") == 0
    header, rows = parts(good)
    evidence = rows[0]["evidence"]
    votes = evidence["votes"][0]
    evidence["stages"] = {"levels": [0.5, 0.25, 0.5], "thresholds": [0.5, 0.5, 0.5]}
    evidence["votes"] = [votes | {"sigma": sigma} for sigma in (0.25, 0.3, 0.5)]
    copied = copy(good, tmp_path / "run", header, rows)
    for reader in ("verify", "recompute"):
        assert read(reader, copied, tmp_path / reader, capsys) == 1


def enormous(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**40)  # sparse: takes no space on disk


NO_FILES: dict[str, Callable[[Path], None]] = {
    "pipe": os.mkfifo,
    "endless": lambda path: path.symlink_to("/dev/zero"),
    "folder": Path.mkdir,
    "enormous": enormous,
    "loop": lambda path: path.symlink_to(path.name),
}


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs Unix")
@pytest.mark.parametrize("name", ["run.json", ROWS])
@pytest.mark.parametrize("kind", NO_FILES)
@pytest.mark.parametrize("reader", READERS)
def test_what_is_not_a_file_is_refused(
    reader: str, kind: str, name: str, stored: Path, tmp_path: Path, capsys: Output
) -> None:
    copied = copy(stored, tmp_path / "run", *parts(stored))
    (copied / name).unlink()
    NO_FILES[kind](copied / name)
    assert read(reader, copied, tmp_path / "out", capsys) == 1


@pytest.mark.parametrize("kind", ["pipe", "endless", "folder", "enormous"])
def test_results_that_are_not_a_file_are_refused(kind: str, tmp_path: Path) -> None:
    NO_FILES[kind](tmp_path / "results.tsv")
    with pytest.raises(VarsmoothError):
        import_tsv(tmp_path / "results.tsv", sigma=0.25)


@pytest.mark.filterwarnings("ignore:Glyph")
def test_names_lead_nowhere(stored: Path, tmp_path: Path, capsys: Output) -> None:
    """Names of a run that are paths, markup or escape sequences."""
    header, rows = parts(stored)
    evil = "../../../x\x1b[2J<img src=x onerror=alert(1)>"
    header["name"] = header["dataset"]["name"] = evil
    header["dataset"]["class_names"] = [f"{evil}{i}" for i in range(10)]
    copied = copy(stored, tmp_path / "deep" / "deeper" / "run", header, rows)
    before = set(tmp_path.glob("*"))
    for reader in ("report", "export", "recompute"):
        assert read(reader, copied, tmp_path / "deep" / "deeper" / reader, capsys) == 0
    assert set(tmp_path.glob("*")) == before
    (page,) = tmp_path.rglob("*.html")
    assert "onerror=alert" in page.read_text()
    assert "<img src=x" not in page.read_text()


COLUMNS = "idx\tlabel\tpredict\tradius\tcorrect\ttime"
CELL = st.sampled_from(["0", "1", "-1", "-2", "nan", "1e400", "9" * 5000, "", "x", "0:00:01"])
EXTREMES = st.sampled_from([0, 1, 1e-300, 0.5, 0.999999, 1e9, 2**62, "paper", "cascade", "fixed"])
LINES = st.lists(st.lists(CELL, min_size=5, max_size=7), max_size=3)


@pytest.mark.slow
@pytest.mark.campaign
@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(lines=LINES, junk=st.binary(max_size=20))
def test_any_table_is_a_run_or_one_sentence(
    lines: list[list[str]], junk: bytes, tmp_path: Path, tally: Tally
) -> None:
    text = "\n".join([COLUMNS, *("\t".join(line) for line in lines)]).encode()
    (tmp_path / "table.tsv").write_bytes(text + junk)
    tally("hostile tables and rows", 1)
    with contextlib.suppress(VarsmoothError):  # anything else fails
        shutil.rmtree(import_tsv(tmp_path / "table.tsv", sigma=0.25).folder)


@pytest.mark.slow
@pytest.mark.campaign
@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_any_line_is_a_row_or_one_sentence(
    data: st.DataObject, stored: Path, tmp_path: Path, tally: Tally
) -> None:
    header, rows = parts(stored)
    row = rows[0]
    for path in data.draw(st.lists(st.sampled_from(list(slots(row))), min_size=1, max_size=4)):
        with contextlib.suppress(KeyError, TypeError, IndexError):  # an earlier one removed it
            row = changed(row, path, data.draw(JSON | EXTREMES))
    copied = copy(stored, tmp_path / "run", header, [row])
    with (copied / ROWS).open("ab") as file:
        file.write(data.draw(st.binary(max_size=20) | st.just(b"[" * 100_000 + b"\n")))
    tally("hostile tables and rows", 1)
    with contextlib.suppress(VarsmoothError):  # anything else fails
        run_ = Run.open(copied)
        for row in run_.rows():
            if row["evidence"] is not None:
                run_.certificate(row).rederive()
