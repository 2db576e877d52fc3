"""The cards of the released models agree with the committed records."""

import csv
import gzip
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from varsmooth.models.cards import RADII, has_card, overview
from varsmooth.models.descriptions import describe, find, released_names

RESULTS = Path(__file__).parents[2] / "results"


def certified_runs() -> Iterator[tuple[str, str]]:
    """Released models and the folder of results whose records have their f at fixed levels."""
    for name in released_names():
        about = describe(name)
        if not about.universal:
            yield name, "certified"
        elif name in ("cifar10-strong", "cifar10-denoised"):
            yield name, name.removeprefix("cifar10-")
        elif about.sigma_a == 1 and about.selector is not None:
            yield name, "cascade"


@pytest.mark.parametrize(("name", "experiment"), list(certified_runs()))
def test_certified_accuracy_is_that_of_the_records(name: str, experiment: str) -> None:
    about = describe(name)
    assert about.classifier is not None
    with gzip.open(RESULTS / experiment / "records.csv.gz", "rt") as file:
        rows = list(csv.DictReader(file))
    certified = about.classifier.metrics["test"]["certified"]
    assert f"{about.default_sigma:g}" in certified
    for level, stated in certified.items():
        run = f"g, σ_a = {about.sigma_a:g}, σ_s = {float(level):.3g}"
        fixed = f"σ = {level}" if experiment == "cascade" else f"σ = {level}, N = 1000"
        run = run if experiment == "certified" else fixed
        mine = [row for row in rows if row["run"] == run]
        right = np.array([row["prediction"] == row["label"] for row in mine])
        reach = np.where(right, [float(row["radius"]) for row in mine], 0)
        assert stated["images"] == len(mine) > 0
        assert -1e-9 < reach.mean() - stated["average_radius"] < 1e-4, "rounded down"
        for r in RADII:
            share = 100 * ((reach > 0) & (reach >= float(r))).mean()
            assert -1e-9 < share - stated[r] < 0.1, "rounded down"


def test_the_overview_shows_it() -> None:
    line = next(line for line in overview(["cifar10-0.25"]) if line.startswith("cifar10-0.25"))
    assert line.split()[3:9] == ["test", "1000", "68.2", "49.9", "29.9", "0.272"]


@pytest.mark.parametrize("name", released_names())
def test_the_card_in_the_folder_is_that_of_the_description(name: str) -> None:
    """`varsmooth measure` renews both; whoever edits a description renews the card."""
    assert has_card(find(name), describe(name))
