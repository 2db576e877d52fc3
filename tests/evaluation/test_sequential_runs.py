"""`certify --at` and `--until`: rows whose votes decided when to stop."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.evaluation import Output, Patch
from tests.small_models import run, table
from varsmooth import Options, certify_at, load, load_dataset
from varsmooth._util import progress
from varsmooth._util.typed import OptionError
from varsmooth.evaluation import certify as certify_module
from varsmooth.evaluation.options import CertifyOptions
from varsmooth.evaluation.records import Run
from varsmooth.evaluation.resample import _stopped_p_value
from varsmooth.evaluation.verify import verify_run

FEW = "--n0 20 --n-select 61 --n-median 21 --alpha 0.05 --alpha-select 0.01 --n-max 300"
SUBSET = "--subset 3:1000:115"
RADII = [0.0, 0.05, 0.1, 0.2]
AT = f"certify {FEW} {SUBSET} --at 0.2,0,0.05,0.1 --model"


@pytest.fixture(scope="module")
def curve(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nine images at four radii, in blocks of four."""
    folder = tmp_path_factory.mktemp("runs") / "curve"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(certify_module, "BLOCK_SIZE", 4)
        assert run(AT, model, "--out", folder) == 0
    return folder


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: Patch) -> None:
    monkeypatch.setattr(certify_module, "BLOCK_SIZE", 4)


def test_rows_are_what_certify_at_says(curve: Path, model: Path) -> None:
    batch = load_dataset("cifar10-sample")[3:1000:115].batch(slice(None))
    options = Options(alpha_select=0.01, n0=20, n_select=61, n_max=300)
    g = load(model, n_median=21)
    truth = certify_at(g, batch.images, RADII, alpha=0.05, seed=0, ids=batch.ids, options=options)
    record = Run.open(curve)
    rows = {row["id"]: row for row in record.rows()}
    assert len({decision.reached for decision in truth}) > 2
    for decision in truth:
        row = rows[decision.certificate.id]
        assert row["samples"] == decision.samples
        assert row["evidence"]["ledger"]["anytime"]
        assert record.certificate(row) == decision.certificate
        assert sum(row["radius"] >= r for r in RADII if row["prediction"] >= 0) == decision.reached


def test_the_samples_shown_are_the_mean_of_the_whole_run(
    model: Path, tmp_path: Path, capsys: Output
) -> None:
    assert run(AT, model, "--out", tmp_path) == 0
    drawn = [row["samples"] for row in Run.open(tmp_path).rows()]
    assert f"{np.mean(drawn):,.0f} samples per image" in capsys.readouterr().err
    assert round(np.mean(drawn)) != round(np.mean(drawn[8:]))  # the last block's would differ


def test_verify_derives_the_rows_again(curve: Path) -> None:
    verification = verify_run(curve, replay="all", resample=2, seed=9)
    assert verification.problems == []
    counted = len(verification.rows), verification.replayed, verification.resampled
    assert counted == (9, 9, 2)


@pytest.mark.parametrize("what", ["radius", "votes", "ledger", "n_max"])
def test_verify_sees_what_was_changed(curve: Path, tmp_path: Path, what: str) -> None:
    record, changed = Run.open(curve), []
    header = json.loads(json.dumps(record.header))
    for row in record.rows():
        if what == "radius" and row["radius"] > 0:
            row["radius"] *= 1.01
        elif what == "votes":
            row["evidence"]["votes"][0]["counts"][0] += 1
        elif what == "ledger":
            row["evidence"]["ledger"]["anytime"] = False
        changed.append(row)
    if what == "n_max":
        header["config"]["n_max"] = 15
    Run.create(tmp_path / "run", header).append(changed)
    assert verify_run(tmp_path / "run").problems


def test_an_interrupted_run_continues_to_the_same_rows(
    curve: Path, model: Path, tmp_path: Path, capsys: Output
) -> None:
    assert run(AT, model, "--out", tmp_path) == 0
    (rows,) = tmp_path.glob("rows-*.jsonl")
    lines = rows.read_bytes().splitlines(keepends=True)
    rows.write_bytes(b"".join(lines[:5]))
    capsys.readouterr()
    assert run(AT, model, "--out", tmp_path) == 0
    captured = capsys.readouterr()
    assert table(tmp_path) == table(curve)
    assert "9 of 9 images" in captured.out
    assert all(f"certified accuracy at r = {r:g}: " in captured.out for r in RADII)
    assert "; r ≥ 0: " in captured.err  # the curve so far


def test_the_log_says_how_many_images_are_undecided(
    model: Path, tmp_path: Path, capsys: Output, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(progress, "SECONDS", 0.0)
    assert run(AT, model, "--out", tmp_path) == 0
    output = capsys.readouterr().err
    assert "certify: 0/9 images" in output
    assert "0 more decided, 4 undecided" in output
    assert (
        "4 more decided, 0 undecided, r ≥ 0: " in output
    )  # the second block, and the curve so far


def test_a_radius_until_more_votes_would_not_help(model: Path, tmp_path: Path) -> None:
    assert run(f"certify {FEW} {SUBSET} --until 0.3 --model", model, "--out", tmp_path) == 0
    assert verify_run(tmp_path, replay="all").problems == []
    samples = [row["samples"] for row in table(tmp_path)]
    assert min(samples) < max(samples)


def test_a_radius_until_the_next_listed_one_is_out_of_reach(model: Path, tmp_path: Path) -> None:
    options = f"certify {FEW} {SUBSET} --until 0.01 --model"
    assert run(options, model, "--out", tmp_path / "alone") == 0
    assert run(options, model, "--at", "0.05,9", "--out", tmp_path / "listed") == 0
    assert verify_run(tmp_path / "listed", replay="all").problems == []
    alone, listed = (table(tmp_path / name) for name in ("alone", "listed"))
    assert sum(row["samples"] for row in listed) < sum(row["samples"] for row in alone)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_max": 100}, "n_max belongs to `at` or `until`"),
        ({"at": 0.1, "n": 10}, "give `n_max`"),
        ({"at": 0.1, "method": "paper", "distance": 1}, "method cannot be paper with `at`"),
        ({"at": [-0.1]}, "at must be a number ≥ 0"),
    ],
)
def test_options_that_do_not_go_together(options: dict[str, object], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        CertifyOptions(**options)  # type: ignore[arg-type]


def test_the_limit_is_recorded() -> None:
    assert CertifyOptions(at=0.5).n_max == 100_000
    assert CertifyOptions().n_max is None  # as in the runs of earlier versions


def test_fresh_votes_against_votes_that_stopped_when_they_looked_best() -> None:
    """Stopping where the share is largest is no alarm; another p is one."""
    rng, alarms = np.random.default_rng(0), 0
    for _ in range(100):
        votes = (rng.random(400) < 0.7).cumsum()
        n = np.arange(16, 401, 16)
        stop = int(n[np.argmax(votes[n - 1] / n)])
        p = _stopped_p_value(int(votes[stop - 1]), int(rng.binomial(stop, 0.7)), stop)
        alarms += p < 0.05
    assert alarms <= 5
    assert _stopped_p_value(280, 160, 400) < 1e-6
    assert _stopped_p_value(160, 280, 400) < 1e-6
