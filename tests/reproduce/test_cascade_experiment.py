"""The cascade experiment: a table of votes gives the certificates that `certify` gives."""

import json
from pathlib import Path

import numpy as np
import pytest

from reproduce.__main__ import main
from reproduce.cascade_rules import CASCADE, CascadeScale, limits
from reproduce.cascade_votes import at_equal_total, certify_with, votes_of
from reproduce.committed import result_in, write_again
from reproduce.comparisons import Committed
from reproduce.exact import cascade_violations
from reproduce.harness import Context
from varsmooth import certify, load, load_dataset
from varsmooth.evaluation.tune.cascade import ConfidentVotes
from varsmooth.models.options import TunedStages

SCALE = CascadeScale(data="cifar10-sample", levels=(0.5, 0.125), images=6, n=128)
RULE = TunedStages(1.0, (0.5, 0.125), (0.55, 0.5))


def test_the_table_certifies_as_certify_does(tmp_path: Path) -> None:
    table = votes_of(Context(tmp_path), SCALE, "test", 128, 6)
    found = certify_with(table, RULE, 128, seed=0)
    g = load("cifar10-universal-1.00", cascade="0.5:0.55,0.125")
    x, _, ids = load_dataset("cifar10-sample")[:6].batch(slice(None))
    direct = certify(g, x, n=128, seed=0, ids=ids)
    assert found.samples == np.mean([c.samples for c in direct])
    assert found.sigmas == pytest.approx(direct.sigma.tolist())
    for i, one in enumerate(direct):
        if len(one.votes) == 1 or all(level.n == 128 for level in one.votes):
            assert found.radii[i] == one.radius
            assert found.predictions[i] == one.prediction
    assert {len(c.votes) for c in direct} == {1, 2}
    cheaper = at_equal_total(table, RULE, seed=0)
    assert cheaper.samples <= 100 + 128 < found.samples


def test_the_experiment_runs_resumes_and_is_judged_again(tmp_path: Path) -> None:
    sizes = "--data cifar10-sample --images 6 --held-out 6 --n 64 --deep-images 3 --deep-n 96"
    sizes += " --selector-images 2"
    words = f"cascade {sizes} --levels 0.5,0.25 --lams 0,1 --store {tmp_path / 'store'}"
    assert main([*words.split(), "--out", str(tmp_path / "out")]) == 0
    blocks = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.npz")}
    assert len(blocks) == 3
    page = (tmp_path / "out" / "cascade-64.md").read_text()
    assert "cascade, λ = 1, same total" in page
    assert "best rule, N = 96" in (tmp_path / "out" / "cascade-hindsight.md").read_text()
    assert main([*words.split(), "--out", str(tmp_path / "again")]) == 0
    assert blocks == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.npz")}
    for name in ("cascade-64.md", "cascade-96.csv", "config.json"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()
    before = (tmp_path / "out" / "cascade-64.csv").read_bytes()
    write_again(CASCADE, tmp_path / "out", result_in(CASCADE, tmp_path / "out"), tmp_path)
    assert (tmp_path / "out" / "cascade-64.csv").read_bytes() == before


def test_hindsight_is_not_misled_by_the_selection_draws() -> None:
    clear = 1000 * np.eye(10, dtype=np.int64)
    votes = np.array([[clear[1], clear[1]], [np.full(10, 100), clear[2]]])  # (N, L, classes)
    draws = votes // 10
    labels, top = np.array([1, 2]), TunedStages(1.0, (0.5, 0.25), (0.5, 0.5))

    def table(selection: np.ndarray) -> ConfidentVotes:
        counts, first = votes[..., None], selection[..., None]
        return ConfidentVotes((0.5, 0.25), (0.0,), counts, first, labels, 1000, 100)

    def radius(selection: np.ndarray, rule: TunedStages) -> float:
        found = certify_with(table(selection), rule, 1000, seed=0, every_vote=True)
        return float(np.mean(np.where(found.predictions == labels, found.radii, 0)))

    best = max(radius(draws, TunedStages(1.0, (s,), (0.5,))) for s in (0.5, 0.25))
    by_votes, by_rule, regret, _ = limits(table(draws), top, 2).values()
    assert by_votes == pytest.approx(by_rule) == pytest.approx(radius(draws, top) / best)
    assert by_votes > 1.2
    assert regret == 0
    draws = draws.copy()
    draws[1, 1] = clear[3] // 10  # f voted for another class while the class was chosen
    misled, best = limits(table(draws), top, 2), radius(draws, TunedStages(1.0, (0.5,), (0.5,)))
    assert next(iter(misled.values())) == pytest.approx(radius(votes // 10, top) / best)
    assert list(misled.values())[1] < next(iter(misled.values()))


def test_the_attack_finds_points_beyond_the_radius_and_none_inside(tmp_path: Path) -> None:
    sizes = "--data cifar10-sample --images 2 --n 64 --steps 6 --restarts 1 --beyond 20"
    words = f"cascade-attack {sizes} --judges 500 --store {tmp_path / 'store'}"
    assert main([*words.split(), "--out", str(tmp_path / "out")]) == 0
    (blocks,) = tmp_path.rglob("cascade-attack/*/*.json")
    rows = json.loads(blocks.read_text())
    assert {row["wrong"] for row in rows if row["factor"] < 1} == {False}
    assert {row["wrong"] for row in rows if row["factor"] > 1} == {True}
    assert all(row["share"] <= row["factor"] * (1 + 1e-5) for row in rows)
    assert cascade_violations(Committed(tmp_path / "out")) == (
        "0 of 2 images inside 0.95 R, 2 of 2 at 20 R"
    )
