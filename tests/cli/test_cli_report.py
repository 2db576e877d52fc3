"""`varsmooth report` as a user meets it: what is printed, what is written, what is refused."""

import re
from pathlib import Path

import pytest

from tests.small_models import proposed, run
from tests.terminal import Terminal

HEAD = "idx\tlabel\tpredict\tradius\tcorrect\ttime\n"
ROWS = "0\t1\t1\t1.5\t1\t0:00:01\n1\t1\t-1\t0.0\t0\t0:00:01\n2\t1\t0\t0.3\t0\t0:00:01\n"


@pytest.fixture(autouse=True)
def imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of three images: right, abstaining, wrong."""
    monkeypatch.chdir(tmp_path)
    Path("cohen.tsv").write_text(HEAD + ROWS)
    assert run("report import-tsv cohen.tsv --sigma 1 --out cohen") == 0
    return tmp_path / "cohen"


def test_a_report_ends_with_its_conclusion_and_what_to_type_next(cli: Terminal) -> None:
    report = proposed(cli("report import-tsv cohen.tsv --sigma 1 --out again").out)[-1]
    printed = cli(report)
    assert printed.err.startswith("report on again: out report/again\n")
    conclusion = "again: 33.3 % of 3 images certified as their true class, average"
    assert printed.out.startswith(conclusion)
    (export,) = proposed(printed.out)
    assert cli(export).out == "wrote again.csv\n"
    assert cli(export).out == "wrote again.csv, in place of the file that was there\n"


def test_an_interval_for_a_radius_begins_at_0_and_abstentions_are_rounded_up(cli: Terminal) -> None:
    cli("report cohen")
    page = Path("report/cohen/report.html").read_text()
    ends = re.findall(r"\[([-−]?[\d.]+)–[\d.]+\]", page)
    assert ends
    assert not [end for end in ends if end[0] in "-−"]
    assert "33.4<small>" in page  # as certify says of 1 in 3


def test_a_report_does_not_go_into_a_folder_of_other_things(imported: Path, cli: Terminal) -> None:
    before = sorted(imported.iterdir())
    cli.refuses("report cohen --out cohen", "cohen holds other files")
    assert sorted(imported.iterdir()) == before
    for _ in range(2):  # a report may be made again
        cli("report cohen --out page")


def test_the_terminal_says_what_a_reader_must_know(imported: Path, cli: Terminal) -> None:
    rows = imported / "rows-00000.jsonl"
    rows.write_text("".join(rows.read_text().splitlines(keepends=True)[:2]))
    assert "note: cohen is not finished: 2 of 3 images." in cli("report cohen").err


def test_a_table_goes_into_a_new_folder(cli: Terminal) -> None:
    cli("report export cohen --out new/tables/cohen.csv")
    assert len(Path("new/tables/cohen.csv").read_text().splitlines()) == 4


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        *(
            (f"{words} --out cohen.tsv", 1, "varsmooth: cohen.tsv is a file; name a folder\n")
            for words in (
                "report cohen",
                "certify --model cifar10-0.25",
                "models export cifar10-0.25",
            )
        ),
        ("report export cohen --out cohen.tsv/cohen.csv", 1, "cohen.tsv is a file; name a folder"),
        ("report cohen --out /dev/null/rep", 1, "/dev/null is a file; name a folder"),
        ("report cohen cohen", 2, "cohen is given twice"),
        ("report import-tsv nosuch.tsv --sigma 1", 1, "there is no file nosuch.tsv"),
        ("report import-tsv cohen.tsv --out other", 2, "--sigma must be given, or --guarantee"),
    ],
)
def test_what_is_refused(words: str, code: int, sentence: str, cli: Terminal) -> None:
    cli.refuses(words, sentence, code=code)
    assert not Path("other").exists()
