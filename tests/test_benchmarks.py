"""The benchmarks run at tiny sizes and report their results; timings are not checked here."""

import importlib.util
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks import (
    answering,
    cost,
    curve,
    deciding,
    draws,
    dual,
    fixed,
    memory,
    precision,
    scaling,
    steps,
    stopping,
    training,
)
from benchmarks.__main__ import measure, processor
from benchmarks.peers import Limit, ReferenceLoop
from benchmarks.tables import fill_template, tables
from benchmarks.timing import interleave
from tests.oracles import Linear
from varsmooth import CascadeSelector, Certificate, FixedSelector, SmoothedClassifier, certify
from varsmooth.bounds import log_e_value
from varsmooth.cascade import Stages
from varsmooth.data import load_dataset
from varsmooth.evaluation.build import build
from varsmooth.evidence import Evidence, Ledger, LevelVotes

HAS_ART = all(importlib.util.find_spec(name) is not None for name in ("art", "statsmodels"))
BENCHMARKS = Path(fixed.__file__).parent


def test_every_part_runs_and_fills_its_table(tmp_path: Path) -> None:
    small = {
        "fixed": fixed.run(fixed.QUICK),
        "dual": dual.run(dual.QUICK, ["cifar10-0.25"]),
        "precision": precision.run(precision.QUICK, ["cifar10-0.25"]),
        "deciding": deciding.run(deciding.QUICK, votes=None),
        "curve": curve.run(curve.QUICK, votes=None, store=tmp_path),
        "stopping": stopping.run(20),
        "training": training.run(training.QUICK),
        "cost": cost.run(cost.QUICK),
        # Processes take seconds to start: `test_other_processes` looks at these two.
        "memory": [{"tool": "ours", "n": n, "batch_size": 16, "megabytes": 3.0} for n in (1, 2)],
        "processes": {"ratio": {"median": 1.9, "low": 1.8, "high": 2.0}},
        "processor": processor(),
        "threads": 1,
        "torch": torch.__version__,
        "seconds": {"fixed": 90.0, "dual": 1.0},
    }
    results = json.loads(json.dumps(small))
    parts = tables(results)
    assert ("art best" in parts["fixed"]) == HAS_ART
    page = fill_template((BENCHMARKS / "README.md").read_text(), tables(results))
    assert "| conv4 | 40 | limit best |" in page
    assert "Minutes: fixed 1.5, dual 0.0." in page
    assert fill_template(page, tables(results)) == page


@pytest.mark.parametrize("preset", ["cpu/strong", "cpu/strong-consistency"])
def test_training_steps_are_compared_with_f_alone(preset: str) -> None:
    result = steps.run(steps.QUICK, preset, widths=[8, 8, 8])
    assert result["images_per_second"].keys() == {"whole", "bare"}
    assert 0 < result["share"]["low"] <= result["share"]["high"]


@pytest.mark.slow
def test_other_processes() -> None:
    assert [row["n"] for row in memory.run(memory.QUICK)] == [20, 200]
    assert scaling.run(scaling.QUICK)["ratio"]["median"] > 0


def test_parts_can_be_run_alone() -> None:
    results = measure(quick=True, only=("training",))
    assert results["training"]["images_per_second"].keys() == {"ours", "naive"}
    assert "fixed" not in results


def test_the_reference_loop_certifies_what_we_certify() -> None:
    """Radius 0.3 at every σ: a peer that did less work would be no fair one."""
    x = torch.tensor([0.8, 0.5]).expand(1, 1, 1, -1).contiguous()
    loop = ReferenceLoop(Linear(), 0.5, batch_size=512).certify(x, 4000)
    g = SmoothedClassifier(Linear(), FixedSelector(0.5))
    assert loop[0] == pytest.approx(float(certify(g, x, n=4000, seed=1).radius[0]), abs=0.08)
    assert 0.2 < loop[0] < 0.32


def test_the_limit_does_all_the_work_there_is() -> None:
    seen: list[int] = []

    class Counting(torch.nn.Module):
        def forward(self, z: torch.Tensor) -> torch.Tensor:
            seen.append(len(z))
            return z.mean(dim=(2, 3))

    limit = Limit(Counting(), 0.25, batch_size=64)
    limit.classifier = Counting()
    limit.certify(torch.zeros(2, 3, 32, 32), 150)
    assert sum(seen) == 2 * (100 + 150)


@pytest.mark.skipif(not HAS_ART, reason="ART comes with `make bench`")
def test_art_certifies_what_we_certify() -> None:
    from benchmarks.peers import Art

    classifier, x = fixed.make("conv4"), fixed.images(2)
    theirs = Art(classifier, 0.25, batch_size=128).certify(x, 300)
    ours = certify(SmoothedClassifier(classifier, FixedSelector(0.25)), x, n=300, seed=1).radius
    assert theirs == pytest.approx(ours, abs=0.15)


def test_a_round_runs_every_way_and_turns_the_order() -> None:
    order: list[str] = []
    ticks = iter(range(100))
    ways = {name: lambda name=name: order.append(name) for name in "ab"}
    seconds = interleave(ways, rounds=2, clock=lambda: float(next(ticks)), warm=False)
    assert order == ["a", "b", "b", "a"]
    assert seconds == {"a": [1.0, 1.0], "b": [1.0, 1.0]}


def test_a_page_without_its_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="one marker"):
        fill_template("no markers here", {"dual": "a table"})
    with pytest.raises(ValueError, match="no end"):
        fill_template("<!-- dual -->", {"dual": "a table"})


def test_the_figures_in_the_readme_are_those_of_the_last_run() -> None:
    page = (BENCHMARKS / "README.md").read_text()
    stored = json.loads((BENCHMARKS / "results.json").read_text())
    assert fill_template(page, tables(stored)) == page


def certificate(votes: list[LevelVotes], stages: Stages | None = None) -> Certificate:
    facts: dict[str, Any] = {"id": 0, "seed": 0, "settings": {}}
    method = "fixed" if stages is None else "cascade"
    evidence = Evidence(Ledger(1e-3, 1e-3), tuple(votes), stages=stages)
    return Certificate.derive(method, evidence, sigma=votes[-1].sigma, **facts)


def test_a_radius_is_refuted_by_votes_at_any_of_its_levels() -> None:
    """Ours claims p(0) ≈ .99 at its last level, and a runner-up of 10 % at the stage before."""
    fixed = certificate([LevelVotes(0.5, 0, (990, 10))])
    assert fixed.radius > 0.5
    assert not curve.refuted(certificate([LevelVotes(0.5, 0, (9900, 100))]), fixed)
    assert curve.refuted(certificate([LevelVotes(0.5, 0, (7000, 3000))]), fixed)
    stages = Stages((1.0, 0.5), (0.5, 0.5))
    last = LevelVotes(0.5, 0, (990, 5, 5))
    ours = certificate([LevelVotes(1.0, 0, (800, 100, 100)), last], stages)
    assert ours.radius > 0.9
    many = LevelVotes(0.5, 0, (9900, 50, 50))
    same, worse = LevelVotes(1.0, 0, (8000, 1000, 1000)), LevelVotes(1.0, 0, (5500, 500, 4000))
    assert not curve.refuted(certificate([same, many], stages), ours)
    assert not curve.refuted(certificate([same], stages), ours)  # N votes chose another stage
    assert curve.refuted(certificate([worse, many], stages), ours)
    assert curve.refuted(certificate([same, LevelVotes(0.5, 0, (7000, 3000, 0))], stages), ours)
    early = certificate([LevelVotes(1.0, 0, (800, 100, 100))], stages)
    later = certificate([same, LevelVotes(0.5, 0, (10, 9980, 10))], stages)
    assert not curve.refuted(later, early)  # what the second stage says does not matter to it


def test_the_curve_is_measured_with_a_cascade() -> None:
    *_, last = curve.CASES
    assert isinstance(build(last.model).g.selector, CascadeSelector)


def test_an_oracle_needs_no_more_votes_than_a_test_can_do_with() -> None:
    """Wald's bound lies below the votes that the e-process takes, and grows as p nears p0."""
    p = np.array([0.6, 0.7, 0.8])
    votes = curve.oracle_votes(p, 0.5)
    assert (np.diff(votes) < 0).all()
    for each, bound in zip(p, votes, strict=True):
        n = np.arange(1, 2000)
        taken = n[log_e_value(each * n, n, 0.5) >= -math.log(1e-3)][0]
        assert 0.5 * taken < bound < taken
    assert curve.oracle_votes(np.array([0.5]), 0.5) > 1e9


def test_images_near_a_radius_are_expected_to_be_lost() -> None:
    """p̂ = .52 after 1,000 votes: 100,000 votes would probably show p > ½; at .3 they would not."""
    near, far = (certificate([LevelVotes(0.5, 0, (k, 1000 - k))]) for k in (520, 300))
    assert near.prediction == far.prediction == -1
    lost = curve.hindsight([near, far], [0, 0], 100_000)["lost"]
    assert 0.3 < lost[0] < 0.5
    assert lost[1:] == pytest.approx([0, 0, 0, 0], abs=1e-3)
    assert curve.hindsight([near, far], [1, 1], 100_000)["lost"] == [0, 0, 0, 0, 0]


def test_one_draw_of_noise_and_what_a_vote_costs() -> None:
    data = load_dataset("cifar10-sample", "val")[:8]
    network = torch.nn.Module()
    network.forward = lambda x, sigma: torch.arange(10.0).expand(len(x), 10) * sigma[:, None]
    assert draws.one_draw(network, data, 0.5) == (data.known_labels == 9).mean()
    layers = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, stride=2, padding=1), torch.nn.Flatten())
    network.forward = lambda x, sigma: layers(x)
    network.layers = layers
    assert draws.multiplications(network, (3, 8, 8)) == 3 * 3 * 3 * 4 * 4 * 4
    assert draws.seconds_per_vote(network, (3, 8, 8), rounds=1) > 0


def test_queries_are_counted_and_timed() -> None:
    rows = answering.run("cifar10-universal-1.00", images=2, n=64)
    assert [row["selector"] for row in rows][1] == "cascade, λ = 1"
    assert rows[0]["votes"][0] <= 64
    assert rows[0]["fewer"] == 64 / rows[0]["votes"][0]
