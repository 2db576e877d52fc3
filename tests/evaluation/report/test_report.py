"""Runs to figures, tables and a page."""

import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from tests.evaluation import Output
from tests.report_runs import attacked, certified, header, predicted, write
from varsmooth import VarsmoothError
from varsmooth.cli import main
from varsmooth.evaluation.records import Run
from varsmooth.evaluation.report import Envelope, Outcomes, open_runs, write_report
from varsmooth.evaluation.report.figures import (
    colours,
    plot_accuracy_by_sigma,
    plot_certified_accuracy,
    plot_robust_accuracy,
    plot_sigma_distribution,
)
from varsmooth.evaluation.report.outcomes import shared_images
from varsmooth.evaluation.report.summaries import (
    difference_table,
    regret_table,
    round_radii,
    summary_table,
)
from varsmooth.evaluation.report.summary_text import cautions, result, verdict, what_holds


@pytest.fixture
def dual(tmp_path: Path) -> Path:
    """Right with radius 0.5 and 0.3, wrong, abstaining."""
    rows = [
        certified(0, 0, 0, 0.5, sigma=0.5),
        certified(1, 1, 1, 0.3),
        certified(2, 0, 1, 0.4),
        certified(3, 2, -1, 0.0),
    ]
    return write(tmp_path / "dual", rows)


@pytest.fixture
def fixed(tmp_path: Path) -> Path:
    """Right with radius 0.2 wherever it answers."""
    rows = [certified(i, label, label, 0.2) for i, label in [(2, 0), (0, 0), (1, 1)]]
    return write(tmp_path / "fixed", [*rows, certified(3, 2, -1, 0.0)])


@pytest.fixture
def attack(tmp_path: Path) -> Path:
    """Image 1 is wrong without attack and, by chance, right under it."""
    rows = [attacked(0, 0, 0.25, 0, 0), attacked(1, 1, 0.25, 0, 1)]
    rows += [attacked(0, 0, 0.5, 0, 1), attacked(1, 1, 0.5, 0, 0)]
    return write(tmp_path / "attack", rows, verb="attack", size=2)


def text(table: object) -> list[list[str]]:
    return [[cell.text.split(" [")[0] for cell in row] for row in table.rows]  # type: ignore[attr-defined]


def test_columns_of_a_run(dual: Path) -> None:
    run = Outcomes.open(dual)
    assert run.reach.tolist() == [0.5, 0.3, -np.inf, -np.inf]
    assert run.correct.tolist() == [True, True, False, False]
    assert run.abstained.tolist() == [False, False, False, True]
    assert (run.guarantee, run.alpha, run.expected) == ("sound", 1e-3, 4)


def test_summary(dual: Path, fixed: Path) -> None:
    assert text(summary_table(open_runs([dual, fixed]))) == [
        ["dual", "sound", "50.0", "25.0", "0.200", "0.25 (0.25–0.462)", "4", "1100", "0.500"],
        ["fixed", "sound", "75.0", "25.0", "0.150", "0.25", "4", "1100", "0.500"],
    ]


def test_differences_are_paired_by_image_whatever_the_order(dual: Path, fixed: Path) -> None:
    one, other = Outcomes.open(dual), Outcomes.open(fixed).select(np.array([2, 0, 3, 1]))
    pair = shared_images(one, other)
    assert pair is not None
    assert pair[0].ids.tolist() == pair[1].ids.tolist() == [0, 1, 2, 3]
    table = difference_table([one, other], one, np.array([0.0, 0.2, 0.25]))
    assert text(table) == [["fixed", "4", "−0.050", "+25.0", "+25.0", "−50.0"]]


def test_runs_over_other_images_are_not_paired(dual: Path, tmp_path: Path) -> None:
    relabelled = write(tmp_path / "relabelled", [certified(0, 1, 1, 0.2)])
    elsewhere = write(tmp_path / "elsewhere", [certified(9, 1, 1, 0.2)])
    for folder in (relabelled, elsewhere):
        runs = open_runs([dual, folder])
        assert difference_table(runs, runs[0], np.array([0.0])).rows == []
        assert "shares no image with dual" in cautions(runs, [])[0]
    part = open_runs([dual, write(tmp_path / "part", [certified(0, 0, 0, 0.2)])])
    assert "shares 1 images with dual" in cautions(part, [])[0]


def test_unfinished_runs_say_so(tmp_path: Path) -> None:
    runs = open_runs([write(tmp_path / "half", [certified(0, 0, 0, 0.2)], size=7)])
    assert cautions(runs, []) == ["half is not finished: 1 of 7 images."]


def test_unequal_settings_are_said(tmp_path: Path) -> None:
    rows = [certified(0, 0, 0, 0.2)]
    config = header("one")["config"]
    few = write(tmp_path / "few", rows, config=config | {"n": 1000})
    many = write(tmp_path / "many", rows, config=config | {"n": 10_000})
    messages = cautions(open_runs([few, many]), [])
    differ = "differ in votes (few: 1000, many: 10000); more votes alone can make radii larger."
    assert messages == [f"The runs {differ}"]
    ours = write(tmp_path / "ours", rows, config=config | {"bound": "best"})
    more = write(tmp_path / "more", [certified(0, 0, 0, 0.2, samples=2200)])
    guess = write(tmp_path / "guess", [certified(0, 0, 0, 0.2, guarantee="heuristic")])
    bound, samples = cautions(open_runs([ours, more, guess]), [])
    assert bound == (
        "The runs differ in the bound on the runner-up (ours: its own votes where that is larger, "
        "more: 1 − p_A); one by its own votes alone can make radii larger."
    )
    assert samples == (
        "The runs differ in samples per image (ours: 1100, more: 2200, guess: 1100); more samples "
        "alone can make radii larger."
    )


def test_envelope(dual: Path, fixed: Path, tmp_path: Path) -> None:
    best = Envelope.parse(f"sweep={tmp_path}/[df]*")  # a pattern: both
    assert [run.name for run in best.runs] == ["dual", "fixed"]
    assert best.reach.tolist() == [-np.inf, 0.2, 0.3, 0.5]  # ¾ up to 0.2, then ½ up to 0.3
    runs = open_runs([dual, fixed])
    assert text(regret_table(runs, [best], np.array([0.0, 0.3]))) == [
        ["dual", "25.0"],
        ["fixed", "50.0"],
    ]
    assert "hindsight" in cautions(runs, [best])[0]
    weak = write(tmp_path / "weak", [certified(0, 0, 0, 0.2, guarantee="heuristic")])
    strong = write(tmp_path / "strong", [certified(0, 0, 0, 0.2)])
    assert Envelope("mixed", open_runs([strong, weak])).guarantee == "heuristic"
    with pytest.raises(VarsmoothError, match="same images"):
        write_report(runs, tmp_path / "out", [Envelope("bad", open_runs([dual, weak]))])
    with pytest.raises(VarsmoothError, match="label=run1"):
        Envelope.parse("runs/a,runs/b")


def test_the_whole_table_statement(dual: Path, tmp_path: Path) -> None:
    (sound, total) = what_holds(open_runs([dual]))
    assert sound.startswith("sound: within the radius no attack")
    assert "α = 0.001 is per image" in total
    assert "at most α·n = 0.004 are too large" in total
    assert "All 4 radii hold with probability at least 0.996" in total  # .999⁴ = .996006
    twins = open_runs([dual, write(tmp_path / "twin", [certified(9, 0, 0, 0.2)])])
    assert len(what_holds(twins)) == 3  # another n is another statement
    same = write(tmp_path / "same", [certified(i, 0, 0, 0.2) for i in range(4)])
    assert what_holds(open_runs([dual, same]))[1].startswith("dual; same: α = 0.001")
    row = certified(0, 0, 0, 0.2, guarantee="heuristic")
    *_, nothing = what_holds(open_runs([write(tmp_path / "h", [row])]))
    assert "it implies nothing about the whole table" in nothing
    unknown = write(tmp_path / "u", [certified(0, 0, 0, 0.2)], config={})
    assert "not recorded" in what_holds(open_runs([unknown]))[-1]


@pytest.mark.parametrize(
    ("guarantee", "style"), [("sound", "-"), ("conditional", "--"), ("heuristic", ":")]
)
def test_curves_name_their_guarantee(tmp_path: Path, guarantee: str, style: str) -> None:
    rows = [certified(0, 0, 0, 1.0, guarantee=guarantee), certified(1, 0, -1, 0.0)]
    rows = [row | {"guarantee": guarantee} for row in rows]
    axes = Figure().subplots()
    plot_certified_accuracy(axes, open_runs([write(tmp_path / "a", rows)]))
    (line,) = axes.get_lines()
    assert line.get_linestyle() == style
    assert line.get_label() == f"a ({guarantee})"
    x, y = np.asarray(line.get_xdata()), np.asarray(line.get_ydata())
    assert set(y[x <= 1.0]) == {50.0}
    assert set(y[x > 1.0]) == {0.0}


def test_accuracy_under_attack_needs_the_clean_image_right_too(attack: Path) -> None:
    runs = open_runs([attack])
    axes = Figure().subplots()
    plot_robust_accuracy(axes, runs)
    (line,) = axes.get_lines()
    assert np.asarray(line.get_xdata()).tolist() == [0.0, 0.25, 0.5]
    assert np.asarray(line.get_ydata()).tolist() == [50.0, 50.0, 0.0]


def test_sigma_figures(dual: Path) -> None:
    axes = Figure().subplots()
    plot_accuracy_by_sigma(axes, open_runs([dual]))
    line = axes.get_lines()[0]
    assert np.asarray(line.get_xdata()).tolist() == [0.25, 0.5]
    assert np.asarray(line.get_ydata()).tolist() == [pytest.approx(100 / 3), 100.0]
    axes = Figure().subplots()
    plot_sigma_distribution(axes, open_runs([dual]))
    heights = np.asarray(axes.patches[0].get_data().values)  # type: ignore[attr-defined]
    assert sorted(heights[heights > 0]) == pytest.approx([0.8 / 3, 0.8])


def test_colours_differ() -> None:
    for n in (1, 7, 8, 20):
        assert len({str(colour) for colour in colours(n)}) == n


def test_round_radii(dual: Path, fixed: Path) -> None:
    assert round_radii(open_runs([dual])) == pytest.approx(np.arange(6) * 0.1)
    assert round_radii(open_runs([fixed])) == pytest.approx(np.arange(5) * 0.05)


def test_report_of_certificates(dual: Path, fixed: Path, tmp_path: Path) -> None:
    name = "<i>R&D</i>"
    rows = [certified(i, 0, 0, 0.1 * i, guarantee="conditional") for i in range(4)]
    odd = write(tmp_path / "odd", rows, name=name)
    page = write_report(
        open_runs([dual, fixed, odd]), tmp_path / "out", [Envelope.parse(f"all={dual},{fixed}")]
    )
    written = {path.name for path in page.parent.iterdir()}
    pictures = ("certified-accuracy", "differences", "sigma", "accuracy-by-sigma")
    tables = ("summary", "certified-accuracy", "differences", "regret", "accuracy-by-sigma")
    assert written == {"report.html"} | {f"{p}.{e}" for p in pictures for e in ("png", "svg")} | {
        f"{t}.{e}" for t in tables for e in ("md", "tex", "csv")
    }
    html = page.read_text()
    assert name not in html
    assert "&lt;i&gt;R&amp;D&lt;/i&gt;" in html
    assert "chosen with hindsight" in html
    assert "α = 0.001 is per image" in html
    with Image.open(page.parent / "certified-accuracy.png") as image:
        assert image.width > 1000
    assert "<svg" in (page.parent / "differences.svg").read_text()


def test_a_report_is_the_same_every_time(fixed: Path, tmp_path: Path) -> None:
    one = write_report(open_runs([fixed]), tmp_path / "one")
    two = write_report(open_runs([fixed]), tmp_path / "two")
    for path in one.parent.iterdir():
        assert path.read_bytes() == (two.parent / path.name).read_bytes(), path.name


@pytest.mark.parametrize(
    "rows",
    [
        [certified(0, 0, 0, 0.3)],
        [certified(0, 0, -1, 0.0), certified(1, 0, 1, 0.3)],
        [certified(0, 0, 0, 0.3, sigma=None, samples=None, seconds=None)],
        [certified(i, 0, 0, 0.3, sigma=0.16 + 1e-3 * i) for i in range(30)],
    ],
    ids=["one image", "none right", "imported", "narrow range of levels"],
)
def test_extreme_runs(tmp_path: Path, rows: list[dict[str, object]]) -> None:
    page = write_report(open_runs([write(tmp_path / "run", rows)]), tmp_path / "out")
    assert "nan" not in page.read_text().partition("<section><h2>Where")[0].split("base64")[0]


def test_report_of_attacks_and_predictions(attack: Path, tmp_path: Path) -> None:
    rows = [attacked(0, 0, 0.25, 0, 0), attacked(1, 1, 0.25, 1, 1)]
    strong = write(tmp_path / "strong", rows, verb="attack", size=2)
    page = write_report(open_runs([attack, strong]), tmp_path / "attacks")
    assert (page.parent / "robust-accuracy.png").exists()
    table = (page.parent / "robust-accuracy.csv").read_text().splitlines()
    assert [line.split(",")[:2] for line in table[1:]] == [
        ["attack", "0.25"],
        ["attack", "0.5"],
        ["strong", "0.25"],
    ]
    gaps = (page.parent / "attack-differences.md").read_text().splitlines()[-1]
    assert re.match(r"\| strong \| 2 \| \+50.0 \[.*\] \| \+50.0 \[.*\] \| – \|", gaps)

    votes = [predicted(0, 0, 0), predicted(1, 1, -1, 0.5)]
    runs = [write(tmp_path / name, votes, verb="predict") for name in ("p", "q")]
    page = write_report(open_runs(runs), tmp_path / "predictions")
    assert "| q | 2 | +0.0" in (page.parent / "predict-differences.md").read_text()
    assert "| p | 50.0 [" in (page.parent / "predictions.md").read_text()


def test_radii_are_distances(dual: Path, tmp_path: Path) -> None:
    with pytest.raises(VarsmoothError, match="cannot be negative"):
        write_report(open_runs([dual]), tmp_path / "out", radii=[-1, 1])


def test_runs_of_one_name_are_told_apart(dual: Path, tmp_path: Path) -> None:
    twin = write(tmp_path / "twin", [certified(0, 0, 0, 0.3)], name="dual")
    assert [run.name for run in open_runs([dual, twin])] == [f"dual ({dual})", f"dual ({twin})"]
    attack = write(tmp_path / "attack", [attacked(0, 0, 0.1, 0, 0)], name="dual", verb="attack")
    assert [run.name for run in open_runs([dual, attack])] == ["dual", "dual"], "each in its tables"


def test_the_interval_of_the_average_radius_stays_in_its_range(tmp_path: Path) -> None:
    """100 unanimous votes at σ = 0.25 certify 0.375 at α = 0.001."""
    rows = [certified(i, 0, 0 if i else 1, 0.37) for i in range(3)]
    config = header("one")["config"] | {"n": 100}
    (run,) = open_runs([write(tmp_path / "few", rows, config=config)])
    assert run.largest_radius == pytest.approx(0.375, abs=0.0005)
    (row,) = summary_table([run]).rows
    assert row[4].text == "0.246 [0.000–0.376]"


def test_the_headline_prefers_the_stronger_guarantee(tmp_path: Path) -> None:
    rows = [certified(0, 0, 0, 0.2)]
    chosen = {"selector": {"selector": "median"}}
    folders = [
        write(tmp_path / word, [row | {"guarantee": word} for row in rows], **chosen)
        for word in ("heuristic", "conditional", "sound")
    ]
    assert verdict(open_runs(folders))[0].startswith("sound: ")


def test_command_line(dual: Path, fixed: Path, tmp_path: Path, capsys: Output) -> None:
    out = tmp_path / "out"
    options = ["--radii", "0,0.25", "--envelope", f"s={dual},{fixed}; t={fixed}"]
    assert main(["report", *options, str(fixed), "--out", str(out)]) == 0
    assert str(out / "report.html") in capsys.readouterr().out
    table = (out / "certified-accuracy.md").read_text().splitlines()
    assert table[2] == "| run | guarantee | r = 0 | r = 0.25 |"
    assert table[5:] == [
        "| s (envelope) | sound | 75.0 | 50.0 |",
        "| t (envelope) | sound | 75.0 | 0.0 |",
    ]
    assert main(["report", "export", str(dual), "--to", "tsv"]) == 0
    tsv = str(dual.with_name("dual.tsv"))
    assert main(["report", "import-tsv", tsv, "--sigma", "0.25", "--out", str(tmp_path / "b")]) == 0
    assert main(["report", "--help"]) == 0


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["report", "{attack}", "--radii", "0,1"], 1, "radii need a certify run"),
        (["report", "{attack}", "--envelope", "a={dual}"], 1, "needs a certify run"),
        (["report", "{unlabelled}"], 1, "accuracy is not defined"),
        (["report", "{empty}"], 1, "has no rows yet"),
        (["report", "{mixed}"], 1, "mixes the guarantees"),
        (["report", "{search}"], 1, "searched for false certificates"),
        (["report", "nowhere"], 1, "nowhere does not hold a run"),
        (["report", "make"], 2, "at least one run"),
        (["report", "recompute", "{dual}"], 2, "--alpha"),
        (["report", "recompute", "{dual}", "--alpha", "0.1"], 1, "without evidence"),
        (["report", "{dual}", "--colour", "red"], 2, "colour"),
    ],
)
def test_failures_are_one_sentence(
    arguments: list[str],
    code: int,
    sentence: str,
    dual: Path,
    attack: Path,
    tmp_path: Path,
    capsys: Output,
) -> None:
    folders = {
        "dual": dual,
        "attack": attack,
        "unlabelled": write(tmp_path / "unlabelled", [certified(0, None, 1, 0.5)]),
        "empty": write(tmp_path / "empty", []),
        "mixed": write(
            tmp_path / "mixed",
            [certified(0, 0, 0, 0.5), certified(1, 0, 0, 0.5, guarantee="heuristic")],
        ),
        "search": write(
            tmp_path / "search", [attacked(0, 0, 0.1, 0, 0) | {"violated": False}], verb="attack"
        ),
    }
    words = [word.format(**folders) for word in arguments]
    assert main([*words, *(["--out", str(tmp_path / "o")] if code == 1 else [])]) == code
    error = capsys.readouterr().err
    assert sentence in error.splitlines()[-1]
    assert code == 2 or error.count("\n") <= 2  # the plan, the failure
    assert not (tmp_path / "o").exists()


def result_of(folder: Path) -> list[str]:
    run = Run.open(folder)
    return result(run, run.rows())


def test_the_summary_of_an_attack_agrees_with_the_report(attack: Path) -> None:
    """An image that was wrong before the attack is not right after it."""
    lines = result_of(attack)
    assert "clean accuracy 50.0 %, attacked 50.0 %, 50.0 % of the predictions changed" in lines[1]
    assert "clean accuracy 50.0 %, attacked 0.0 %, 50.0 % of the predictions changed" in lines[2]


def test_the_result_of_a_run_agrees_with_the_report(dual: Path, tmp_path: Path) -> None:
    (line,) = result_of(dual)
    assert line.endswith(
        "certified accuracy 50.0 %, average certified radius 0.200 "
        "(misclassified images count as 0), 25.0 % abstained"
    )
    unlabelled = write(tmp_path / "u", [certified(0, None, 1, 0.5)])
    assert result_of(unlabelled)[0].endswith("unlabelled, 0.0 % abstained")
