"""Forged runs that are as consistent as possible, and the option of verify that sees each.

The checksums are right, every radius follows from its evidence, and header and rows agree.
"""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.evaluation.test_forgery import put, rewrite
from tests.small_models import QUICK, edit_header, run, write_pair
from varsmooth import load
from varsmooth.certificates import Certificate
from varsmooth.evaluation.records import Row, Run, open_as_one
from varsmooth.evaluation.replay import machine_of
from varsmooth.evaluation.runner import identity, other_environment
from varsmooth.evaluation.verify import verify_run
from varsmooth.evidence import LevelVotes

FEW = "--n0 20 --alpha 0.05"
RUNS = {
    "dual": QUICK,
    "fixed": f"{FEW} --n 60 --sigma 0.25",
    "seed 1": f"{FEW} --n 60 --sigma 0.25 --seed 1",
    "cascade": f"{FEW} --n 60 --cascade 0.5:0.6,0.25",
    "conditional": f"{FEW} --n 60 --selector learned --method conditional",
    "paper": f"{QUICK} --method paper --distance 0.1",
    "at": f"{FEW} --cascade 0.5,0.25 --at 0,0.1 --n-max 60",
    "cached": f"{FEW} --n 60 --sigma 0.25 --vote-cache VOTES",
}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Honest runs on nine images; those with a cache wait for what is put into it."""
    here = tmp_path_factory.mktemp("runs")
    write_pair(here / "pair")
    write_pair(here / "other", seed=5)
    for name, options in RUNS.items():
        certify(here, options.replace("VOTES", str(here / "votes")), here / name)
    return here


def certify(here: Path, options: str, out: Path) -> None:
    command = f"certify {options} --subset 3:1000:115 --model {here}/pair --out"
    assert run(command, out) == 0


Change = Callable[[Certificate], Certificate]


def each(change: Change, source: Path, out: Path, **header: Any) -> Path:
    """Every certificate changed and derived again, and entries of the header with them."""

    def changed(opened: Run, row: Row) -> None:
        put(row, change(opened.certificate(row)))
        row["guarantee"] = row["evidence"]["guarantee"]

    return edit_header(rewrite(source, out, changed), **header)


def votes(change: Callable[[LevelVotes], LevelVotes]) -> Change:
    return lambda one: replace(one, votes=tuple(map(change, one.votes)))


def raised(by: int) -> Callable[[LevelVotes], LevelVotes]:
    """So many votes moved from the largest other class to the candidate."""

    def change(level: LevelVotes) -> LevelVotes:
        counts = list(level.counts)
        other = max(range(10), key=lambda c: (c != level.candidate) * counts[c])
        moved = min(by, counts[other])
        counts[other] -= moved
        counts[level.candidate] += moved
        return replace(level, counts=tuple(counts))

    return change


def winner(level: LevelVotes) -> LevelVotes:
    """The class that the counted votes chose."""
    return replace(level, candidate=max(range(10), key=level.counts.__getitem__))


def as_method(name: str) -> Change:
    return lambda one: replace(one, method=name)


def thresholds(one: Certificate) -> Certificate:
    assert one.stages is not None
    lower = replace(one.stages, thresholds=(0.5, 0.5))
    settings = {**one.settings, "thresholds": [0.5, 0.5]}
    return replace(one, stages=lower, settings=settings)


def looser(one: Certificate) -> Certificate:
    return replace(one, ledger=replace(one.ledger, alpha_class=10 * one.ledger.alpha_class))


def stopped(one: Certificate) -> Certificate:
    return replace(one, ledger=replace(one.ledger, anytime=False))


def mixed(here: Path, out: Path, renamed: bool) -> Path:
    """Of two runs the larger radius of each image; if renamed, the rows all name one seed."""
    other = {row["id"]: row for row in Run.open(here / "seed 1").rows()}
    own_seed = Run.open(here / "fixed").rows()[0]["evidence"]["seed"]

    def best(opened: Run, row: Row) -> None:
        if other[row["id"]]["radius"] > row["radius"]:
            row |= other[row["id"]]
        if renamed:
            row["evidence"] = row["evidence"] | {"seed": own_seed}

    return rewrite(here / "fixed", out, best)


def labels_as_predicted(here: Path, out: Path) -> Path:
    def right(opened: Run, row: Row) -> None:
        row["label"] = max(row["prediction"], 0)

    return rewrite(here / "fixed", out, right)


def without_first_stage(one: Certificate) -> Certificate:
    return replace(one, votes=one.votes[-1:], samples=20 + one.votes[-1].n)


def other_model(here: Path, out: Path, probe: bool) -> Path:
    """The run now names another model, and with `probe` knows its outputs."""
    g = load(here / "other", sigma=0.25)
    about = json.loads(json.dumps(identity(g, (3, 32, 32))))
    named: dict[str, Any] = {
        "config": {"model": str(here / "other")},
        "fingerprints": about["fingerprints"],
    }
    if probe:
        named["probe"] = about["probe"]
    return edit_header(shutil.copytree(here / "fixed", out), **named)


def other_level(here: Path, out: Path) -> Path:
    """The votes of σ = 0.25 as votes of σ = 0.5, in a run that says so throughout."""
    probe = json.loads(json.dumps(identity(load(here / "pair", sigma=0.5), (3, 32, 32))["probe"]))
    options = {"config": {"sigma": 0.5}, "selector": {"sigma": 0.5}, "probe": probe}
    return each(at_half, here / "fixed", out, **options)


def at_half(one: Certificate) -> Certificate:
    return replace(votes(lambda level: replace(level, sigma=0.5))(one), sigma=0.5)


def poisoned(here: Path, out: Path) -> Path:
    """An honest certify with votes that somebody put into its cache."""
    cache = shutil.copytree(here / "votes", out.with_name("votes"))
    (file,) = cache.rglob("votes-*.jsonl")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for *key, counts in lines:
        if "votes" in key:
            counts[:] = sorted(counts)[-1:] + [0] * (len(counts) - 1)
            counts[1] = 60 - counts[0]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    certify(here, RUNS["cached"].replace("VOTES", str(cache)), out)
    return out


def cheaper(here: Path, out: Path) -> Path:
    def change(opened: Run, row: Row) -> None:
        row["selector_samples"] = 1

    return rewrite(here / "dual", out, change)


def of(name: str, change: Change, **header: Any) -> Callable[[Path, Path], Path]:
    return lambda here, out: each(change, here / name, out, **header)


def same(one: Certificate) -> Certificate:
    return one


STAGES = {"config": {"cascade": "0.5:0.5,0.25"}, "selector": {"thresholds": [0.5, 0.5]}}
SOUND = {"config": {"method": "sound"}}
FIXED = {"selector": "fixed", "sigma": 0.25}
PLAIN = {"config": {"at": None, "n_max": None, "n": 60}}

ATTEMPTS: dict[str, tuple[str, Callable[[Path, Path], Path]]] = {
    "one vote more in each row": ("replay", of("fixed", votes(raised(1)))),
    "votes one sd higher": ("replay", of("cascade", votes(raised(4)))),
    "ten times the votes": (
        "replay",
        of("fixed", lambda one: replace(
            votes(lambda v: replace(v, counts=tuple(10 * n for n in v.counts)))(one),
            samples=620), config={"n": 600}),
    ),
    "another level": ("replay", other_level),
    "another level in the rows alone": ("verify", of("fixed", at_half)),
    "another seed": ("replay", of("fixed", lambda one: replace(one, seed=7), config={"seed": 7})),
    "the class that the votes chose": ("replay", of("fixed", votes(winner))),
    "the best rows of two seeds": ("verify", lambda here, out: mixed(here, out, False)),
    "the best rows of two seeds, renamed": ("replay", lambda here, out: mixed(here, out, True)),
    "a smaller alpha in the header": ("verify", of("fixed", same, config={"alpha": 0.01})),
    "a larger alpha in the rows": ("verify", of("fixed", looser)),
    "votes at stopping times as a fixed number": ("verify", of("at", stopped, **PLAIN)),
    "conditional as sound": ("verify", of("conditional", same, **SOUND)),
    "conditional as fixed": ("verify", of("conditional", as_method("fixed"), **SOUND)),
    "conditional as a fixed model": (
        "verify",
        of("conditional", as_method("fixed"), config={**SOUND["config"], "sigma": 0.25},
           selector={**FIXED, "sigma_a": ..., "lam": ...}),
    ),
    "heuristic as sound": ("verify", of("paper", as_method("sound"), **SOUND)),
    "thresholds chosen on the votes": ("replay", of("cascade", thresholds, **STAGES)),
    "an early stage forgotten": ("verify", of("cascade", without_first_stage)),
    "the labels that were predicted": ("verify", labels_as_predicted),
    "another model, with the old outputs": (
        "verify", lambda here, out: other_model(here, out, False)),
    "another model, with its outputs": (
        "replay", lambda here, out: other_model(here, out, True)),
    "a cache with made-up votes": ("replay", poisoned),
    "radii that were not requested": ("verify", of("fixed", same, config={"at": 0.1})),
    "a band that is neither there nor not": ("verify", of("fixed", same, config={"band": ""})),
    "a stopping rule that was not used": ("replay", of("at", same, config={"until": 0.1})),
    "fewer draws of the selector": ("replay", cheaper),
    "noise on the lattice": ("verify", of("fixed", same, config={"lattice": True})),
}  # fmt: skip


@pytest.mark.parametrize("name", ATTEMPTS)
def test_an_attempt_is_seen(name: str, here: Path, tmp_path: Path) -> None:
    """By the option that claims it; what only a replay sees is consistent without one."""
    option, forge = ATTEMPTS[name]
    forged = forge(here, tmp_path / "run")
    plain = verify_run(forged).problems
    if option == "verify":
        assert plain
        return
    assert plain == [], "the case is too easy"
    assert verify_run(forged, replay="all").problems


def test_the_honest_runs_pass(here: Path) -> None:
    for name in RUNS:
        assert verify_run(here / name, replay="all").problems == [], name


def test_counts_that_are_a_little_higher_everywhere(here: Path, tmp_path: Path) -> None:
    """No image alone shows it, and all of them together do."""
    honest = tmp_path / "honest"
    command = f"certify {RUNS['fixed']} --subset 3:1000:30 --model {here}/pair --out {honest}"
    assert run(command) == 0
    assert verify_run(honest, resample=34, seed=3).problems == []
    forged = each(votes(raised(5)), honest, tmp_path / "run")
    (problem,) = verify_run(forged, resample=34, seed=3).problems
    assert "34 images are together larger than with fresh noise" in problem


def test_a_part_of_another_machine_is_read_as_such(here: Path, tmp_path: Path) -> None:
    """Whichever folder is named first: its rows are not exact here, and those of here are."""
    command = f"certify {RUNS['fixed']} --batch-size 8 --subset 3:1000:115 --model {here}/pair"
    for shard in (1, 2):
        assert run(f"{command} --shard {shard}/2 --out {tmp_path}/{shard}") == 0
    edit_header(tmp_path / "2", environment={"torch": "0"})
    theirs = {row["id"] for row in Run.open(tmp_path / "2").rows()}
    for first, other in ((1, 2), (2, 1)):
        joined = open_as_one([tmp_path / str(first), tmp_path / str(other)])
        there = {
            row["id"]
            for row in joined.rows()
            if other_environment(joined.header | machine_of(row), torch.device("cpu"))
        }
        assert there == theirs


def test_an_early_stage_that_stopped_when_it_pleased(here: Path, tmp_path: Path) -> None:
    """In a run that claims another machine, too, the numbers of votes are those of the plan."""

    def stops(opened: Run, row: Row) -> None:
        one = opened.certificate(row)
        early = [replace(v, counts=tuple(c * 4 // 5 for c in v.counts)) for v in one.votes[:-1]]
        saved = sum(v.n for v in one.votes[:-1]) - sum(v.n for v in early)
        put(row, replace(one, votes=(*early, one.votes[-1]), samples=one.samples - saved))

    forged = rewrite(here / "cascade", tmp_path / "run", stops)
    edit_header(forged, environment={"torch": "0"})
    problems = " ".join(verify_run(forged, replay="all").problems)
    assert "another class, level or bound, or other numbers of votes" in problems
