"""The cascade experiment: a table of votes gives the certificates that `certify` gives."""

import json
from pathlib import Path

import numpy as np
import pytest

from reproduce.__main__ import main
from reproduce.cascade import (
    CASCADE,
    CascadeScale,
    at_equal_total,
    certify_with,
    mean_samples,
    votes_of,
)
from reproduce.committed import result_in, write_again
from reproduce.harness import Context
from varsmooth import certify, load, load_dataset
from varsmooth.models.descriptions import describe
from varsmooth.models.options import TunedStages

SCALE = CascadeScale(
    data="cifar10-sample", levels=(0.5, 0.25, 0.125), images=8, n=128, precision="float32"
)


@pytest.mark.parametrize("gates", [(), (0.4, 0.0, 0.0)])
def test_the_table_certifies_as_certify_does(tmp_path: Path, gates: tuple[float, ...]) -> None:
    table = votes_of(Context(tmp_path), SCALE, SCALE.levels)
    rule = TunedStages(1.0, (0.5, 0.25, 0.125), (0.55, 0.5, 0.5), gates)
    made = certify_with(table, rule, 128, seed=0)
    g = load("cifar10-universal-1.00", cascade=str(rule))
    x, _, ids = load_dataset("cifar10-sample")[:8].batch(slice(None))
    direct = certify(g, x, n=128, seed=0, ids=ids)
    assert mean_samples(made) == np.mean([c.samples for c in direct])
    for mine, one in zip(made, direct, strict=True):
        assert mine.sigma == one.sigma
        assert mine.ledger == one.ledger
        if len(one.votes) == 1 or all(level.n == 128 for level in one.votes):
            assert (mine.radius, mine.prediction) == (one.radius, one.prediction)
    assert len({len(c.votes) for c in direct}) > 1
    cheaper = at_equal_total(table, rule, seed=0)
    assert mean_samples(cheaper) <= 100 + 128 < mean_samples(made)


def test_the_experiment_runs_resumes_and_is_drawn_again(tmp_path: Path) -> None:
    sizes = "--data cifar10-sample --images 6 --n 64"
    words = f"cascade {sizes} --levels 0.5,0.25 --lams 0,1 --store {tmp_path / 'store'}"
    assert main([*words.split(), "--out", str(tmp_path / "out")]) == 0
    tables = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.npz")}
    assert len(tables) == 1
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    chosen = config["facts"]["rules chosen on held-out images"]
    selector = load("cifar10-universal-1.00", lam=1).selector.describe()  # levels in float32
    assert chosen["rules"]["1"] == {
        name: pytest.approx(selector[name]) for name in ("levels", "thresholds", "gates")
    }
    single = describe("cifar10-universal-1.00").single
    assert single is not None
    assert (chosen["best"],) == single.levels
    page = (tmp_path / "out" / "cascade-64.md").read_text()
    for name in ("cascade, λ = 1, same total", "σ = 0.5, runner-up bounded by 1 − p"):
        assert name in page
    assert main([*words.split(), "--out", str(tmp_path / "again")]) == 0
    assert tables == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.npz")}
    before = (tmp_path / "out" / "cascade-64.csv").read_bytes()
    assert (tmp_path / "again" / "cascade-64.csv").read_bytes() == before
    write_again(CASCADE, tmp_path / "out", result_in(CASCADE, tmp_path / "out"), tmp_path)
    assert (tmp_path / "out" / "cascade-64.csv").read_bytes() == before
