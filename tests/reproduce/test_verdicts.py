"""The page of verdicts: every number and verdict is recomputed from the committed records."""

import csv
import gzip
import io
from pathlib import Path

import numpy as np
import pytest

from reproduce.comparisons import (
    ATTACKED,
    CENTRE,
    DIMENSIONS,
    SHELL,
    SLOPE,
    right,
    three_level_radius,
)
from reproduce.statistics import Estimate, pooled
from reproduce.verdicts import MEASURES, Measure, rows_of

RESULTS = Path(__file__).parents[2] / "results"
PAGE = (RESULTS / "README.md").read_text(encoding="utf-8")
ROWS = rows_of(PAGE)


@pytest.mark.parametrize("name", MEASURES)
def test_the_page_says_what_the_records_say(name: str) -> None:
    measure, rows = MEASURES[name], [row for row in ROWS if row.name == name]
    assert rows, "a measure without a sentence"
    assert {row.experiment for row in rows} == {measure.experiment}
    for row in rows:
        assert row.number == measure.number(RESULTS)
        if measure.cases is not None:
            assert row.decision == measure.decide(pooled(measure.by_case(RESULTS)))


def test_the_page_opens_with_at_most_twelve_lines() -> None:
    opening, paper, ours = (part for part in PAGE.split("\n## ")[:3])
    assert 8 <= len(rows_of(opening)) <= 12
    assert not {row.name for row in rows_of(ours)} & {row.name for row in rows_of(paper)}
    named = {row.name for row in ROWS}
    assert named == set(MEASURES)
    assert {row.name for row in rows_of(opening)} <= {
        row.name for row in [*rows_of(paper), *rows_of(ours)]
    }


@pytest.mark.parametrize("name", MEASURES)
def test_the_cases_stand_on_the_page_of_the_result(name: str) -> None:
    measure = MEASURES[name]
    page = (RESULTS / measure.experiment / "README.md").read_text(encoding="utf-8")
    section = page.split(f"### {name}\n")[1].split("\n### ")[0]
    assert measure.number(RESULTS) in section
    assert section.count("\n| ") == len(measure.by_case(RESULTS)) + bool(measure.cases)


def columns(experiment: str) -> dict[str, dict[int, dict[str, str]]]:
    """The records as text, by run and image: read without any code of this project."""
    content = gzip.decompress((RESULTS / experiment / "records.csv.gz").read_bytes()).decode()
    runs: dict[str, dict[int, dict[str, str]]] = {}
    for line in csv.DictReader(io.StringIO(content)):
        runs.setdefault(line["run"], {})[int(line["id"])] = line
    return runs


def is_right(line: dict[str, str]) -> float:
    return float(line["prediction"] == line["clean_prediction"] == line["label"])


def test_three_numbers_by_hand() -> None:
    """Clean accuracy, dual smoothing and universal training, by means over plain text."""
    runs = columns("clean")
    gaps = []
    for name in (name for name in runs if name.startswith("g_v")):
        one, other = runs[name], runs[f"g beside {name}"]
        same = [line["prediction"] == line["label"] for line in one.values()]
        rest = [other[i]["prediction"] == line["label"] for i, line in one.items()]
        gaps.append(np.mean(same) - np.mean(rest))
    assert f"{100 * np.mean(gaps):+.2f} " in MEASURES["clean-gain"].number(RESULTS)
    assert len(gaps) == 20
    runs = columns("strong-attack")
    gaps = []
    for name in (n for n in runs if n.startswith("g_v,") and n.endswith("γ = 0.3, strong attack")):
        dual = runs[name.replace("g_v", "g_v*")]
        gaps.append(np.mean([is_right(dual[i]) - is_right(line) for i, line in runs[name].items()]))
    assert f"{100 * np.mean(gaps):+.2f} " in MEASURES["dual-gain"].number(RESULTS)
    assert len(gaps) == 14
    runs = columns("universal")
    gains = []
    for s in ("0.12", "1"):
        one, other = (
            runs[f"g, {model}, σ_s = {s}, γ = 0.3, strong attack"]
            for model in ("σ_a′ = 1", f"σ_a = {s}")
        )
        gains.append(np.mean([is_right(one[i]) - is_right(line) for i, line in other.items()]))
    number = MEASURES["universal-robust-grows"].number(RESULTS)
    assert f"{100 * (gains[1] - gains[0]):+.2f} " in number


def test_each_attack_is_compared_with_the_chosen_one_of_its_kind() -> None:
    runs = columns("attack-convergence")
    chosen: dict[tuple[str, bool], str] = {}
    gaps = []
    for name, lines in runs.items():
        first = chosen.setdefault((name.split(",")[0], "weak attack" in name), name)
        if first != name:
            gaps.append(np.mean([is_right(x) - is_right(runs[first][i]) for i, x in lines.items()]))
    assert len(gaps) == len(runs) - 3
    assert f"{100 * np.mean(gaps):+.2f} ".replace("-", "−") in MEASURES["converged"].number(RESULTS)


@pytest.mark.parametrize(
    ("rule", "value", "error", "decision"),
    [
        ("larger", 0.02, 0.002, "holds"),
        ("larger", 0.002, 0.0005, "no difference"),
        ("larger", 0.004, 0.01, "open"),
        ("close", 0.003, 0.002, "holds"),
        ("close", 0.03, 0.002, "does not hold"),
        ("close", 0.009, 0.002, "open"),
        ("not worse", 0.03, 0.02, "holds"),
        ("not worse", -0.03, 0.002, "does not hold"),
        ("not worse", -0.009, 0.002, "open"),
        ("above", 0.02, 0.002, "holds"),
        ("above", 0.009, 0.0001, "does not hold"),
        ("above", 0.009, 0.001, "open"),
    ],
)
def test_rules(rule: str, value: float, error: float, decision: str) -> None:
    measure = Measure("clean", rule=rule)  # type: ignore[arg-type]
    assert measure.decide(Estimate(value, error, 1000)) == decision


def test_three_levels_fail_by_sampling_too() -> None:
    """The probabilities of the counterexample against noise that was drawn."""
    assert three_level_radius(1000, 1e-3) == pytest.approx(0.394, abs=0.001)
    rng, moved = np.random.default_rng(0), CENTRE + SLOPE * ATTACKED
    for sigma, distance in ((moved, ATTACKED), (0.36, 0.0), (CENTRE, 0.0), (0.3, 12.5)):
        z = sigma * rng.standard_normal((2000, DIMENSIONS))
        z[:, 0] += distance
        scaled = np.linalg.norm(z, axis=1) / DIMENSIONS**0.5
        hit = ((scaled >= SHELL[0]) & (scaled <= SHELL[1])).mean()
        assert right(sigma, distance) == pytest.approx(1 - hit, abs=0.04)
