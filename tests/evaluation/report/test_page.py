"""The report as one page: its content and order, and that untrusted text never becomes code."""

import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from matplotlib import cbook
from matplotlib.figure import Figure

from tests.evaluation import Patch
from tests.oracles import Linear, LinearSelector
from tests.report_runs import attacked, certified, certify_into, predicted, write
from tests.small_models import write_pair
from varsmooth import MedianSelector, SmoothedClassifier
from varsmooth.evaluation.report import Outcomes, figures, open_runs, write_report
from varsmooth.evaluation.report.document import command_of
from varsmooth.evaluation.report.exchange import export
from varsmooth.evaluation.report.gallery import SIDE, gallery
from varsmooth.evaluation.report.outcomes import outcome
from varsmooth.evaluation.report.pages import picture
from varsmooth.evaluation.report.summaries import baseline_of
from varsmooth.evaluation.report.summary_text import chosen_baseline, verdict
from varsmooth.models.descriptions import describe, rewrite
from varsmooth.models.options import TunedStages

CHOSEN = {"selector": "median", "sigma_m": 0.25}


class Page(HTMLParser):
    """The elements of a page with their attributes, and its text by element."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: dict[str, list[str]] = {}
        self._inside: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("img", "meta"):
            self._inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._inside.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.words.setdefault(self._inside[-1], []).append(data)

    def cards(self) -> list[dict[str, str | None]]:
        return [
            attributes
            for _, attributes in self.elements
            if str(attributes.get("class")).startswith("card ")
        ]


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    """A chosen σ, two single ones of which the second is better, an attack and predictions."""
    radii = {"chosen": 0.5, "small": 0.1, "large": 0.3}
    folders = []
    for name, radius in radii.items():
        selector = CHOSEN if name == "chosen" else {"selector": "fixed", "sigma": radius}
        rows = [certified(i, 0, 0, radius + 0.001 * i) for i in range(8)]
        rows += [certified(8, 0, 1, 0.7), certified(9, 0, -1, 0.0)]
        folders.append(write(tmp_path / name, rows, selector=selector))
    attack = [attacked(i, 0, 0.5, 0, i % 2) for i in range(4)]
    folders.append(write(tmp_path / "attack", attack, verb="attack"))
    votes = [predicted(i, 0, 0) for i in range(10)]
    return [*folders, write(tmp_path / "predict", votes, verb="predict")]


def test_the_page_reads_from_conclusion_to_settings(runs: list[Path], tmp_path: Path) -> None:
    page = Page(write_report(open_runs(runs), tmp_path / "out"))
    assert page.words["h1"] == [
        "chosen: 80.0 % of 10 images certified as their true class, average certified radius "
        "0.402 (sound)"
    ]
    assert page.words["h2"] == [
        "Certified accuracy",
        "Compared with the best single σ",
        "Attacks",
        "Predictions",
        "Images of chosen",
        "What the numbers mean",
        "Settings",
    ]
    assert page.words["dt"] == ["Model", "Data", "Date", "Command", "Environment"]


def test_the_verdict_names_the_best_single_sigma(runs: list[Path], tmp_path: Path) -> None:
    opened = open_runs(runs)
    better = verdict(opened)[1]
    assert better.startswith("Its average radius is larger than with the best single σ (large)")
    assert "+0.160 [" in better  # 0.8 · (0.5 − 0.3)
    twin = write(tmp_path / "twin", opened[2].rows, selector=CHOSEN)
    assert (
        "No significant difference from σ = 0.3 (large)" in verdict(open_runs([twin, runs[2]]))[1]
    )
    dear = [row | {"samples": 2200} for row in opened[2].rows]
    costly = write(tmp_path / "costly", dear, selector=CHOSEN)
    assert verdict(open_runs([costly, runs[2]]))[1].endswith(
        "on the same 10 images, with 2200 against 1100 samples per image."
    )
    doubled = [row | {"radius": 2 * row["radius"]} for row in opened[0].rows]
    huge = write(tmp_path / "huge", doubled, selector={"selector": "fixed", "sigma": 1.0})
    assert "smaller than with" in verdict(open_runs([twin, huge]))[1]
    assert "cannot show what choosing σ per image gains" in verdict(opened[:1])[1]
    alone = verdict(opened[1:2])  # a single σ has nothing to be compared with
    assert len(alone) == 2
    assert alone[1].startswith("Under any change of ‖δ‖₂ ≤ ")
    stopped = replace(opened[1], header=opened[1].header | {"config": {"at": [0.3], "alpha": 0.1}})
    headline, wrong = verdict([stopped])
    assert headline == "small: 0.0 % at r = 0.3 of 10 images certified as their true class (sound)"
    assert wrong.startswith("Under any change of ‖δ‖₂ ≤ 0.3 a wrong answer has probability at most")
    assert "80.0 % at r = 0.05" in verdict(opened[1:2], [0.05])[0]
    assert verdict(opened[1:3])[1].startswith("Of the 2 runs, large has the largest")
    equal = write(tmp_path / "equal", opened[2].rows, selector=opened[2].header["selector"])
    tie = verdict([*opened[1:3], *open_runs([equal])])[1]
    assert tie.startswith("Of the 3 runs, large, equal share the largest average certified radius")


def test_a_single_sigma_on_other_images_is_no_baseline(runs: list[Path], tmp_path: Path) -> None:
    """As of `val` beside runs on `test`, though its radii are larger."""
    chosen, small, large = open_runs(runs)[:3]
    zoo = chosen.header["dataset"]
    better = [row | {"radius": 2.0} for row in large.rows]
    fixed = {"selector": "fixed", "sigma": 2.0}
    val = write(tmp_path / "val", better, selector=fixed, dataset=zoo | {"split": "val"})
    opened = [*open_runs([val]), chosen, small, large]
    assert "larger than with the best single σ (large)" in verdict(opened)[1]
    assert "larger than with σ = 0.1 (small)" in verdict(opened[:3])[1]
    (how,) = chosen_baseline(opened, baseline_of(opened))
    assert "of the 2 single-σ runs on these images" in how
    assert "shares no image with σ = 2 (val)" in verdict(opened[:2])[1]


def test_a_run_that_stopped_early_is_compared_at_its_radii(
    runs: list[Path], tmp_path: Path
) -> None:
    chosen, small, large = open_runs(runs)[:3]
    rows = [row | {"radius": min(row["radius"], 0.25)} for row in chosen.rows]
    config = chosen.header["config"] | {"at": [0.2, 0.25]}
    at = open_runs([write(tmp_path / "at", rows, selector=CHOSEN, config=config)])[0]
    text = verdict([at, small, large])[1]
    assert "verage" not in text
    assert "minus that of the best single σ (large), in points: +0.0 [" in text
    assert "at r = 0.2," in text
    assert "+80.0 [" in verdict([at, small])[1]
    other = replace(large, header=large.header | {"config": config | {"at": [0.7]}})
    assert "decided different radii" in verdict([at, other])[1]
    assert "no average radius" in verdict([small, other])[1]


def test_the_missing_run_is_proposed_at_the_tuned_sigma(runs: list[Path], tmp_path: Path) -> None:
    folder = write_pair(tmp_path / "model")
    (chosen,) = open_runs(runs[:1])
    config = chosen.header["config"] | {"model": str(folder)}
    tuned = replace(chosen, header=chosen.header | {"config": config})
    assert "certify --sigma 0.5 …" in verdict([tuned])[1]
    rewrite(folder, replace(describe(folder), single=TunedStages(1.0, (0.354,), (0.5,))))
    assert "certify --sigma 0.354 …" in verdict([tuned])[1]


def test_cards_say_what_the_rows_say(runs: list[Path], tmp_path: Path) -> None:
    page = Page(write_report(open_runs(runs), tmp_path / "out"))
    cards = page.cards()
    assert [card["data-outcome"] for card in cards] == ["right"] * 8 + ["wrong", "abstains"]
    assert [float(str(card["data-radius"])) for card in cards][:2] == [0.5, 0.501]
    lines = [text for text in page.words["td"] if text.startswith("attack,")]
    assert lines == ["attack, attacked with ε = 0.5"] * 4


def test_a_card_says_what_its_result_follows_from(tmp_path: Path) -> None:
    selector = MedianSelector(LinearSelector(0.3, 1.0), 0.25, 101, (0.12, 0.5), 4)
    g = SmoothedClassifier(Linear(), selector)
    run = certify_into(tmp_path / "run", g, [0.9], n=200, n0=21, n_select=201)
    (row,) = run.rows()
    shown = gallery(subject := Outcomes.open(run.folder), [subject])
    *votes, spent = shown.evidence(row)
    level = row["evidence"]["votes"][0]
    assert len(votes) == len(row["evidence"]["votes"]) > 1
    assert votes[0].startswith(f"Votes at σ = {level['sigma']:.4g}: cat {level['counts'][0]}")
    assert votes[0].endswith(" of 200.")
    assert spent == "α = 0.001, 1e-05 of it for the selector; seed 0."
    assert shown.evidence(attacked(0, 0, 0.5, 0, 1)) == [
        "Votes before the attack: cat 90, dog 10 of 100.",
        "Votes under attack: cat 60, dog 40 of 100.",
    ]
    assert shown.evidence(predicted(0, 0, 0)) == ["Votes: cat 90, dog 10 of 100."]


def test_an_attack_does_not_make_an_image_right() -> None:
    assert outcome(attacked(1, 1, 0.25, clean=0, prediction=1)) == "wrong"
    assert outcome(attacked(1, 1, 0.25, clean=1, prediction=1)) == "right"
    assert outcome(attacked(1, 1, 0.25, clean=1, prediction=-1)) == "abstains"
    assert outcome(attacked(1, 1, 0.25, clean=1, prediction=0)) == "broken"


def test_images_are_shown_where_they_are_found(tmp_path: Path) -> None:
    config = {"alpha": 1e-3, "lattice": False, "data": "cifar10-sample"}
    dataset = {"name": "cifar10-sample", "split": "test", "subset": ":2", "size": 2}
    dataset["class_names"] = ["cat", "dog"]
    rows = [certified(i, 0, 0, 0.5) for i in (0, 1)]
    folder = write(tmp_path / "run", rows, config=config, dataset=dataset)
    page = Page(write_report(open_runs([folder]), tmp_path / "out"))
    thumbnails = [g for tag, g in page.elements if tag == "img" and g["alt"] == "image 1: cat"]
    assert str(thumbnails[0]["src"]).startswith("data:image/png;base64,")


def test_large_images_become_thumbnails() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (300, 400, 3), dtype=np.uint8)
    url = picture(noise, SIDE)
    assert url.startswith("data:image/jpeg")
    assert len(url) < 4 * SIDE * SIDE
    assert picture(noise[:28, :28, :1], SIDE).startswith("data:image/png")


def test_whatever_a_run_folder_holds_is_text(tmp_path: Path) -> None:
    """Every string of a run as an attack: the page gains no element and no attribute by it."""
    evil = '<script>alert(1)</script>\' onerror="x" &amp;'
    dataset = {"name": evil, "split": evil, "subset": evil, "size": 2, "class_names": [evil] * 3}
    rows = [certified(0, 0, 0, 0.5), certified(1, 0, 1, 0.5)]
    harmless = write(tmp_path / "tame", rows, name="tame", selector={"selector": "tame"})
    folder = write(
        tmp_path / "evil",
        rows,
        name=evil,
        dataset=dataset,
        config={"alpha": 1e-3, "model": evil, "data": evil},
        environment={"torch": evil, "device": evil, evil: evil},
        selector={"selector": evil, evil: evil},
        started=evil,
    )
    tame, page = (
        Page(write_report(open_runs([run]), tmp_path / f"out-{run.name}"))
        for run in (harmless, folder)
    )
    assert [tag for tag, _ in page.elements] == [tag for tag, _ in tame.elements]
    assert [set(attributes) for _, attributes in page.elements] == [
        set(attributes) for _, attributes in tame.elements
    ]
    assert evil in page.words["dd"][1]


def test_names_of_runs_are_text_in_figures_and_tables(tmp_path: Path) -> None:
    """matplotlib reads mathematics between $ and hides _names; a spreadsheet computes =1+1."""
    names = ("$$", "_hidden", "=1+1")
    rows = [certified(i, 0, 0, 0.3 + i / 10) for i in range(4)]
    tries = [attacked(i, 0, 0.25, 0, i % 2) for i in range(4)]
    runs = open_runs([write(tmp_path / str(i), rows, name=name) for i, name in enumerate(names)])
    attacks = open_runs(
        [write(tmp_path / f"a{i}", tries, name=name, verb="attack") for i, name in enumerate(names)]
    )
    for plot, shown in (
        (figures.plot_certified_accuracy, runs),
        (figures.plot_robust_accuracy, attacks),
    ):
        plot(axes := Figure().subplots(), shown)
        labels = [text.get_text() for text in axes.legend().texts]
        assert len(labels) == len(names)
        assert not any(map(cbook.is_math_text, labels))
    out = write_report([*runs, *attacks], tmp_path / "out").parent
    lines = "".join(path.read_text() for path in out.glob("*.csv")).splitlines()
    cells = [line.split(",")[0] for line in lines]
    assert "'=1+1" in cells
    assert "=1+1" not in cells
    photo = write(tmp_path / "photo", [certified(0, 0, 0, 0.5, file="=1+1.png")])
    assert ",'=1+1.png" in export(photo, "csv").read_text()


def test_the_page_needs_nothing_but_itself(runs: list[Path], tmp_path: Path) -> None:
    page = Page(write_report(open_runs(runs), tmp_path / "out"))
    for _, attributes in page.elements:
        assert str(attributes.get("src", "data:")).startswith("data:")
        assert str(attributes.get("href", "#")).startswith("#")
    script, style = ("".join(page.words[tag]) for tag in ("script", "style"))
    assert not re.search(r"url\(|@import|https?:|fetch|XMLHttp|import", script + style)


def test_without_matplotlib_the_page_says_what_is_missing(
    runs: list[Path], monkeypatch: Patch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    page = write_report(open_runs(runs), tmp_path / "out")
    assert "pip install matplotlib" in page.read_text()
    assert Page(page).cards()
    assert not list(page.parent.glob("*.png"))
    assert (page.parent / "summary.csv").exists()


def test_reading_runs_does_not_wait_for_matplotlib(runs: list[Path]) -> None:
    code = "import sys; from varsmooth.evaluation.report import open_runs; open_runs([]); "
    code += "sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_page_does_not_show_where_the_folders_lie(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.chdir(tmp_path)
    config = {"alpha": 1e-3, "model": f"{tmp_path}/models/mine", "data": f"{tmp_path}/photos"}
    run = write(tmp_path / "run", [certified(0, 1, 1, 0.5)], config=config)
    page = write_report(open_runs([run]), tmp_path / "out").read_text()
    assert str(tmp_path) not in page
    assert "--model models/mine --data photos --out RUN" in page
    config["model"] = "/elsewhere/mine"
    run = write(tmp_path / "other", [certified(0, 1, 1, 0.5)], config=config)
    assert "<dd>mine; σ" in write_report(open_runs([run]), tmp_path / "out").read_text()


def test_the_command_repeats_the_run() -> None:
    config = {"model": "my model", "sigma": 0.25, "clip": [0.1, 0.5], "n": 1000, "alpha": 0.01}
    config |= {"selector": "median", "batch_size": 7, "data": "cifar10-sample", "subset": ":20"}
    assert command_of({"verb": "certify", "config": config}) == (
        "varsmooth certify --model 'my model' --selector median --sigma 0.25 --clip 0.1,0.5 "
        "--data cifar10-sample --subset :20 --alpha 0.01 --out RUN"
    )


def test_the_contents_lead_to_every_section(runs: list[Path], tmp_path: Path) -> None:
    page = Page(write_report(open_runs(runs), tmp_path / "out"))
    links = [str(attributes["href"])[1:] for _, attributes in page.elements if "href" in attributes]
    assert links == [str(attributes["id"]) for tag, attributes in page.elements if tag == "section"]
    assert len(links) == len(page.words["h2"])


def test_a_long_gallery_is_a_sample_of_all_images(
    runs: list[Path], monkeypatch: Patch, tmp_path: Path
) -> None:
    monkeypatch.setattr("varsmooth.evaluation.report.gallery.MOST", 5)
    page = Page(write_report(open_runs(runs[:1]), tmp_path / "out"))
    assert [card["data-image"] for card in page.cards()] == ["0", "2", "4", "6", "8"]
    assert "5 of 10 images, evenly from all." in page.words["li"]
