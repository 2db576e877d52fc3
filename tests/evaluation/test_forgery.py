"""Forged runs, with the code in hand and every checksum computed anew: verify fails, or says so.

Each attempt starts from an honest run. What only `--replay` or `--resample` can see, and what
nothing can, stands in docs/guides/run-a-data-set.md.
"""

import json
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Tally
from tests.small_models import QUICK, edit_header, run, write_pair
from varsmooth.certificates import Certificate
from varsmooth.evaluation.records import Row, Run
from varsmooth.evaluation.verify import verify_run

Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def anytime(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "at"
    quick = "--n0 20 --alpha 0.05 --cascade 0.5,0.25 --at 0,0.1 --n-max 200"
    assert run(f"certify {quick} --subset 3:1000:115 --model", model, "--out", folder) == 0
    return folder


def rewrite(folder: Path, copy: Path, change: Callable[[Run, Row], Any]) -> Path:
    """A copy of a run with every row changed, and the checksums of all lines computed anew."""
    shutil.copytree(folder, copy)
    opened = Run.open(copy)
    rows = opened.rows()
    for row in rows:
        change(opened, row)
    for path in opened.files:
        path.unlink()
    opened.append(rows)
    return copy


def put(row: Row, certificate: Certificate) -> None:
    """Store another certificate, whose radius follows from its evidence."""
    again = certificate.rederive()
    evidence = {k: v for k, v in again.to_dict().items() if k in row["evidence"]}
    row |= {"prediction": again.prediction, "radius": again.radius, "evidence": evidence}
    row |= {"sigma": again.sigma, "samples": again.samples}


def test_a_header_has_a_checksum(certified: Path, tmp_path: Path) -> None:
    """Class names and environment are covered; a header without one is no header."""
    shutil.copytree(certified, tmp_path / "run")
    path = tmp_path / "run" / "run.json"
    header = json.loads(path.read_text())
    for entry in ({"class_names": ["x"] * 10}, {"environment": {"torch": "1"}}):
        path.write_text(json.dumps(header | entry))
        assert run(f"verify {tmp_path}/run") == 1
    del header["check"]
    path.write_text(json.dumps(header))
    assert run(f"verify {tmp_path}/run") == 1


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        ({"class_names": ["cat"] * 10}, "class names are not those of the model"),
        ({"dataset": {"class_names": ["cat"] * 10}}, "other images or labels"),
        ({"noise_scope": "another"}, "noise is not that of these images"),
        ({"seen_in_training": 4}, "trained on 0 of these images, not on 4"),
        ({"fingerprints": {}}, "another network"),
        ({"config": {"precision": "bfloat16"}}, "another network"),
        ({"dataset": {"digest": ...}}, "other images or labels"),
        ({"selector": {"n": 5}}, "the selector's n"),
    ],
)
def test_what_a_header_says_is_compared(
    entry: dict[str, Any], sentence: str, certified: Path, tmp_path: Path
) -> None:
    if entry == {"fingerprints": {}}:
        entry = {"fingerprints": {"classifier": ..., "selector": ...}}
    forged = edit_header(shutil.copytree(certified, tmp_path / "run"), **entry)
    assert sentence in " ".join(verify_run(forged).problems)


def test_the_level_of_a_dual_row_must_be_one_its_selector_can_choose(
    model: Path, tmp_path: Path
) -> None:
    """With few draws nothing is impossible; a hundred suffice."""
    many = QUICK.replace("--n0 20 --n-select 61", "--n0 100 --n-select 201")
    command = f"certify {many} --subset 3:1000:250 --model {model} --out {tmp_path}/certified"
    assert run(command) == 0
    assert verify_run(tmp_path / "certified").problems == []

    def furthest(opened: Run, row: Row) -> None:
        one = opened.certificate(row)
        assert one.selector is not None
        assert one.selector.levels is not None
        low, high = one.selector.levels[0], one.selector.levels[-1]
        put(row, replace(one, sigma=low if one.sigma > (low + high) / 2 else high))

    problems = verify_run(rewrite(tmp_path / "certified", tmp_path / "run", furthest)).problems
    assert any("level of its evidence should be True" in text for text in problems)


@pytest.mark.parametrize("samples", [1, 10**6])
def test_the_samples_of_rows_that_stop_early_are_bounded(
    samples: int, anytime: Path, tmp_path: Path
) -> None:
    def other(opened: Run, row: Row) -> None:
        put(row, replace(opened.certificate(row), samples=samples))

    assert verify_run(anytime).problems == []
    problems = verify_run(rewrite(anytime, tmp_path / "run", other)).problems
    assert any("selection draws" in text for text in problems)


def claimed_elsewhere(opened: Run, row: Row) -> None:
    """The votes of the least certain image all go to its class; its row names another machine."""
    sure = {each["id"]: _share(each) for each in opened.rows()}
    if row["id"] != min(sure, key=sure.__getitem__):
        return
    one = opened.certificate(row)
    levels = []
    for level in one.votes:
        counts = [0] * len(level.counts)
        counts[level.candidate] = level.n
        levels.append(replace(level, counts=tuple(counts)))
    put(row, replace(one, votes=tuple(levels)))
    row["environment"] = {"torch": "0"}


def _share(row: Row) -> float:
    level = row["evidence"]["votes"][0]
    return float(level["counts"][level["candidate"]] / sum(level["counts"]))


def test_a_row_that_names_another_machine_is_replayed_all_the_same(
    certified: Path, tmp_path: Path
) -> None:
    """A few forged votes among many images stay below the share; those of one image do not."""
    forged = rewrite(certified, tmp_path / "run", claimed_elsewhere)
    assert verify_run(forged).problems == [], "the case is too easy"
    problems = verify_run(forged, replay="all").problems
    assert any(text.startswith("image") and "replayed votes differ" in text for text in problems)


def test_rows_that_name_no_other_machine_are_exact(certified: Path, tmp_path: Path) -> None:
    """One row from another machine does not excuse the others."""

    def change(opened: Run, row: Row) -> None:
        if row["id"] == 3:
            row["environment"] = {"torch": "0"}
            return
        one = opened.certificate(row)
        first, *rest = one.votes
        counts = list(first.counts)
        place = max(range(10), key=lambda c: (c != first.candidate) * counts[c])
        if counts[place]:
            counts[place] -= 1
            counts[first.candidate] += 1
        put(row, replace(one, votes=(replace(first, counts=tuple(counts)), *rest)))

    problems = verify_run(rewrite(certified, tmp_path / "run", change), replay="all").problems
    assert any("replayed evidence differs from the stored one" in text for text in problems)


def test_evidence_of_two_images_exchanged(certified: Path, tmp_path: Path) -> None:
    opened = Run.open(certified)
    certificates = [opened.certificate(row) for row in opened.rows()]

    def exchange(opened: Run, row: Row) -> None:
        ids = [one.id for one in certificates]
        other = certificates[(ids.index(row["id"]) + 1) % len(ids)]
        put(row, replace(other, id=row["id"]))

    forged = rewrite(certified, tmp_path / "run", exchange)
    assert verify_run(forged, replay="all").problems


def test_a_bound_chosen_after_the_votes(certified: Path, tmp_path: Path) -> None:
    def better(opened: Run, row: Row) -> None:
        one = opened.certificate(row)
        other = replace(one, ledger=replace(one.ledger, runner_up=not one.ledger.runner_up))
        put(row, max(one.rederive(), other.rederive(), key=lambda each: each.radius))

    def either(opened: Run, row: Row) -> None:
        one = opened.certificate(row)
        put(row, replace(one, ledger=replace(one.ledger, runner_up=True)))

    forged = edit_header(rewrite(certified, tmp_path / "cohen", either), config={"bound": "cohen"})
    assert any("ledger" in text for text in verify_run(forged).problems)
    forged = rewrite(certified, tmp_path / "better", better)
    assert verify_run(forged).problems == [], "only a replay can see it"


def test_another_model_under_the_name_of_the_run(certified: Path, tmp_path: Path) -> None:
    other = write_pair(tmp_path / "other", seed=5)
    forged = edit_header(shutil.copytree(certified, tmp_path / "run"), config={"model": str(other)})
    assert run(f"verify {forged}") == 1


def test_a_run_that_hides_what_its_model_was_trained_on(model: Path, tmp_path: Path) -> None:
    trained = shutil.copytree(model, tmp_path / "model")
    about = json.loads((trained / "config.json").read_text()) | {"dataset": "cifar10-sample"}
    about["classifier"]["training"] = {"train_split": "test"}
    (trained / "config.json").write_text(json.dumps(about))
    certify = f"certify {QUICK} --data cifar10-sample --subset 0:2 --model {trained} --out"
    assert run(f"{certify} {tmp_path}/run") == 0
    assert run(f"verify {tmp_path}/run") == 0
    assert run("verify", edit_header(tmp_path / "run", seen_in_training=...)) == 3
    assert run("verify", edit_header(tmp_path / "run", seen_in_training=0)) == 1


@pytest.mark.slow
@pytest.mark.campaign
def test_any_row_whose_votes_changed(certified: Path, tmp_path: Path, tally: Tally) -> None:
    """A few votes of one row go elsewhere, or selector samples do: a replay sees every one."""
    tally("forged rows with right checksums", FORGED)
    for number in range(FORGED):
        dice = random.Random(number)
        chosen = dice.choice(Run.open(certified).rows())["id"]

        def change(opened: Run, row: Row, dice: random.Random = dice, chosen: int = chosen) -> None:
            if row["id"] == chosen:
                put(row, forged(opened.certificate(row), dice))

        copy = rewrite(certified, tmp_path / str(number), change)
        assert verify_run(copy, replay="all").problems, (number, chosen)


FORGED = 60


def forged(one: Certificate, dice: random.Random) -> Certificate:
    """Other evidence of the same form."""
    if dice.random() < 0.3:
        assert one.selector is not None
        samples = list(one.selector.samples)
        samples[dice.randrange(len(samples))] *= dice.choice([0.9, 1.1])
        return replace(one, selector=replace(one.selector, samples=tuple(sorted(samples))))
    levels = list(one.votes)
    place = dice.randrange(len(levels))
    counts = list(levels[place].counts)
    taken = dice.choice([c for c, n in enumerate(counts) if n > 0])
    other = dice.choice([c for c in range(len(counts)) if c != taken])
    moved = dice.randint(1, counts[taken])
    counts[taken], counts[other] = counts[taken] - moved, counts[other] + moved
    levels[place] = replace(levels[place], counts=tuple(counts))
    return replace(one, votes=tuple(levels))
