"""`varsmooth report` as a user meets it: what is printed, what is written, what is refused."""

import re
from pathlib import Path

import pytest

from tests.small_models import proposed, run

HEAD = "idx\tlabel\tpredict\tradius\tcorrect\ttime\n"
ROWS = "0\t1\t1\t1.5\t1\t0:00:01\n1\t1\t-1\t0.0\t0\t0:00:01\n2\t1\t0\t0.3\t0\t0:00:01\n"


@pytest.fixture(autouse=True)
def imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of three images: right, abstaining, wrong."""
    monkeypatch.chdir(tmp_path)
    Path("cohen.tsv").write_text(HEAD + ROWS)
    assert run("report import-tsv cohen.tsv --sigma 1 --out cohen") == 0
    return tmp_path / "cohen"


def test_a_report_ends_with_its_conclusion_and_what_to_type_next(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("report import-tsv cohen.tsv --sigma 1 --out again") == 0
    assert run(proposed(capsys.readouterr().out)[-1]) == 0
    captured = capsys.readouterr()
    assert captured.err.startswith("report on again: out report/again\n")
    assert captured.out.startswith(
        "again: 33.3 % of 3 images certified as their true class, average"
    )
    (export,) = proposed(captured.out)
    assert run(export) == 0
    assert capsys.readouterr().out == "wrote again.csv\n"
    assert run(export) == 0
    assert capsys.readouterr().out == "wrote again.csv, in place of the file that was there\n"


def test_a_folder_for_results_is_no_file(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ("report cohen", "certify --model cifar10-0.25", "models export cifar10-0.25"):
        assert run(f"{words} --out cohen.tsv") == 1
        assert capsys.readouterr().err.endswith("varsmooth: cohen.tsv is a file; name a folder\n")


def test_an_interval_for_a_radius_begins_at_0_and_abstentions_are_rounded_up() -> None:
    assert run("report cohen") == 0
    page = Path("report/cohen/report.html").read_text()
    ends = re.findall(r"\[([-−]?[\d.]+)–[\d.]+\]", page)
    assert ends
    assert not [end for end in ends if end[0] in "-−"]
    assert "33.4<small>" in page  # as certify says of 1 in 3


def test_a_report_does_not_go_into_a_folder_of_other_things(
    imported: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(imported.iterdir())
    assert run("report cohen --out cohen") == 1
    assert "cohen holds other files" in capsys.readouterr().err
    assert sorted(imported.iterdir()) == before
    for _ in range(2):  # a report may be made again
        assert run("report cohen --out page") == 0


def test_a_run_is_named_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("report cohen cohen") == 2
    assert "cohen is given twice" in capsys.readouterr().err


def test_the_terminal_says_what_a_reader_must_know(
    imported: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = imported / "rows-00000.jsonl"
    rows.write_text("".join(rows.read_text().splitlines(keepends=True)[:2]))
    assert run("report cohen") == 0
    assert "note: cohen is not finished: 2 of 3 images." in capsys.readouterr().err


def test_a_table_goes_into_a_new_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("report export cohen --out new/tables/cohen.csv") == 0
    assert len(Path("new/tables/cohen.csv").read_text().splitlines()) == 4
    assert run("report export cohen --out cohen.tsv/cohen.csv") == 1
    assert "cohen.tsv is a file; name a folder" in capsys.readouterr().err


def test_what_an_imported_file_does_not_say_is_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("report import-tsv nosuch.tsv --sigma 1") == 1
    assert "there is no file nosuch.tsv" in capsys.readouterr().err
    assert run("report import-tsv cohen.tsv --out other") == 2
    assert "--sigma must be given, or --guarantee" in capsys.readouterr().err
    assert not Path("other").exists()
