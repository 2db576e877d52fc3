"""`certify --estimate`: the predicted time and votes are those the run then takes."""

import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.evaluation import Output, Patch
from tests.small_models import run, write_pair
from varsmooth.evaluation.certify import Certifying, certify_dataset
from varsmooth.evaluation.estimate import estimate
from varsmooth.evaluation.options import CertifyOptions, DataOptions, ModelOptions, RunOptions
from varsmooth.evaluation.runner import Job


@pytest.fixture
def model(tmp_path: Path) -> ModelOptions:
    return ModelOptions(model=str(write_pair(tmp_path / "model")), sigma=0.25)


def test_fixed_votes_are_counted_and_nothing_is_written(
    tmp_path: Path, model: ModelOptions, capsys: Output
) -> None:
    words = f"certify --model {model.model} --sigma 0.25 --n 100 --n0 20 --alpha 0.05 "
    words += f"--subset 0:30 --batch-size 64 --out {tmp_path}/run"
    assert run(f"{words} --estimate true") == 0
    output = capsys.readouterr().out
    assert "30 images to certify, 120 samples of f per image: 3,600 forward passes" in output
    assert re.search(r"memory of a process: [\d,]+ MB", output)
    assert re.search(
        r"one process like this: \d+ s\n8 of them, each with a device of its own: \d+", output
    )
    assert not (tmp_path / "run").exists()
    assert run(f"{words} --shard 1/2") == 0
    capsys.readouterr()
    assert run(f"{words} --estimate true") == 0
    assert re.search(r"^1\d images to certify", capsys.readouterr().out), "the others are there"


@pytest.mark.parametrize(
    ("words", "workers"), [("--shard 1/4", 4), ("--devices 2", 2), ("--shard 2/3 --devices 2", 6)]
)
def test_the_workers_are_those_of_the_command(
    words: str, workers: int, tmp_path: Path, model: ModelOptions, capsys: Output
) -> None:
    certify = f"certify --model {model.model} --sigma 0.25 --n 40 --n0 20 --alpha 0.05"
    more = "--subset 0:30 --batch-size 16 --estimate true --out"
    assert run(f"{certify} {more} {tmp_path}/run {words}") == 0
    output = capsys.readouterr().out
    assert output.startswith("30 images to certify"), "those of all shards"
    assert f"\n{workers} of them, each with a device of its own: " in output


def test_what_a_pilot_adds(tmp_path: Path, model: ModelOptions) -> None:
    """Samples that depend on the image come from 20 images spread over the data."""
    settings = CertifyOptions(n0=16, n_max=48, alpha=0.05, at=[0, 0.1])
    job = Job(Certifying(settings), model, DataOptions(subset="0:200"), RunOptions(tmp_path / "r"))
    cost = estimate(job)
    assert (len(cost.seconds), cost.images) == (20, 200)
    assert 32 <= cost.samples.mean() <= 64
    assert "±2 standard errors" in "\n".join(cost.text(4))
    dual = ModelOptions(model=model.model, lam=0.2)
    settings = CertifyOptions(n=2000, n0=16, n_select=61, alpha=0.05, alpha_select=0.01)
    cost = estimate(Job(Certifying(settings), dual, DataOptions(), RunOptions(tmp_path / "r")))
    assert set(cost.selector_samples) == {16 + 61}
    assert cost.samples.mean() >= 16 + 2000, "a pilot of fewer votes is scaled to all of them"


RELEASED = ModelOptions(model="cifar10-0.25")
CASES: dict[str, tuple[dict[str, Any], CertifyOptions, str]] = {
    "fixed": ({"sigma": 0.25}, CertifyOptions(n=1000, n0=100, alpha=0.05), "0:20"),
    "stopping": (
        {"sigma": 0.25},
        CertifyOptions(n0=100, n_max=1000, alpha=0.05, at=[0, 0.25, 0.5]),
        "0:100",
    ),
    "dual": (
        {"lam": 0.2},
        CertifyOptions(n=300, n0=50, n_select=101, alpha=0.05, alpha_select=0.01),
        "0:40",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_right_within_a_factor_of_one_and_a_half(
    tmp_path: Path, case: str, monkeypatch: Patch
) -> None:
    """By the processor's clock, which other work on the machine does not advance."""
    monkeypatch.setattr(time, "perf_counter", time.process_time)
    options, settings, subset = CASES[case]
    model, data = replace(RELEASED, **options), DataOptions(subset=subset)
    job = Job(Certifying(settings), model, data, RunOptions(tmp_path / "run"))
    estimated = 3600 * estimate(job).hours()
    began = time.process_time()
    record = certify_dataset(model, data, settings, job.options)
    seconds = sum(row["seconds"] for row in record.rows())
    assert seconds <= time.process_time() - began
    print(f"{case}: estimated {estimated:.1f} s, took {seconds:.1f} s: {estimated / seconds:.2f}")
    assert 1 / 1.5 <= estimated / seconds <= 1.5
