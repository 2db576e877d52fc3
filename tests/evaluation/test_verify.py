"""verify: what a run must satisfy to pass."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binomtest, norm

from tests.conftest import Tally
from tests.evaluation import Output
from tests.evaluation.test_forgery import put, rewrite
from tests.small_models import QUICK, edit_header, run, write_pair
from varsmooth import ABSTAIN, bounds, load
from varsmooth._util.fingerprints import fingerprint
from varsmooth.evaluation.records import Row, Run
from varsmooth.evaluation.report.document import command_of
from varsmooth.evaluation.resample import REPEATS, pooled_p_value
from varsmooth.evaluation.verify import FALSE_ALARM, verify_run
from varsmooth.evidence import Ledger, LevelVotes
from varsmooth.models.descriptions import copy_model, describe
from varsmooth.models.descriptions import rewrite as describe_anew
from varsmooth.models.networks import AttentionSelector
from varsmooth.models.options import TunedStages


def certified_row(row: dict[str, Any]) -> bool:
    return bool(row["radius"] > 0)


def edit(
    folder: Path, copy: Path, change: Any, which: Callable[[dict[str, Any]], bool] = certified_row
) -> Path:
    """A copy of a run whose first such row was changed."""
    chosen = next(row["id"] for row in Run.open(folder).rows() if which(row))
    return rewrite(folder, copy / "edited", lambda _, row: row["id"] == chosen and change(row))


def test_verify_accepts_a_faithful_run(certified: Path, capsys: Output) -> None:
    assert run(f"verify {certified} --resample 5 --seed 3") == 0
    out = capsys.readouterr().out
    assert "9 rows, one for each image, follow from their evidence" in out
    assert "model and images are those of the run" in out
    assert "5 images repeated with fresh noise" in out


@pytest.mark.parametrize(
    ("model", "options", "later"),
    [
        ("cifar10-small", "", {"cascades": (TunedStages(0.0, (0.5, 0.25), (0.5, 0.5)),)}),
        ("cifar10-0.25", "--n-median 101", {"recommended": {"lam": 0.4, "sigma_m": 0.3}}),
    ],
)
def test_a_run_is_verified_with_the_selector_it_had(
    model: str, options: str, later: dict[str, Any], tmp_path: Path, capsys: Output
) -> None:
    folder = copy_model(model, tmp_path / "model", "copy")
    command = f"certify --model {folder} --subset :2 --n 40 --n0 20 {options} --out {tmp_path}/run"
    assert run(command) == 0
    describe_anew(folder, replace(describe(folder), **later))  # as a second `tune` does
    assert run(f"verify {tmp_path}/run --replay all") == 0
    shown = command_of(Run.open(tmp_path / "run").header)  # in the report
    assert ("--cascade 1.0:0.5:0.5,0.707:0.5:0.4,0.5:0.5:0.3,0.354" in shown) == (not options)
    capsys.readouterr()
    assert run(command) == 1
    assert "the selector's" in capsys.readouterr().err


def at(path: str, change: Callable[[Any], Any]) -> Callable[[dict[str, Any]], None]:
    """Another value in a row, at a place such as evidence/votes/0/sigma."""

    def edit(row: dict[str, Any]) -> None:
        *way, last = (int(k) if k.lstrip("-").isdigit() else k for k in path.split("/"))
        place: Any = row
        for key in way:
            place = place[key]
        place[last] = change(place[last])

    return edit


def more_votes(row: dict[str, Any]) -> None:
    row["evidence"]["votes"][0]["counts"][row["prediction"]] += 1


def larger_twice(row: dict[str, Any]) -> None:
    row["radius"] = row["evidence"]["radius"] = row["radius"] + 0.01


def foreign_sigma(row: dict[str, Any]) -> None:
    row["sigma"] = row["evidence"]["sigma"] = 0.2


def as_if_fixed(row: dict[str, Any]) -> None:
    """What its level alone would give, without a word about the selector."""
    evidence = row["evidence"]
    (level,) = [level for level in evidence["votes"] if level["sigma"] == row["sigma"]]
    votes = LevelVotes(level["sigma"], level["candidate"], tuple(level["counts"]))
    row["radius"] = evidence["radius"] = votes.radius(Ledger(**evidence["ledger"]))
    evidence |= {"selector": None, "votes": [level]}


VOTES, COUNTS = "evidence/votes", "evidence/votes/0/counts"
CHANGES: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "cheaper": (at("samples", lambda n: 1), "samples of its evidence should be"),
    "larger": (at("radius", lambda r: r * 1.0000001), "radius is"),
    "as if fixed": (as_if_fixed, "not the evidence that its method needs"),
    "larger twice": (larger_twice, "radius is"),
    "other class": (at("prediction", lambda c: (c + 1) % 10), "prediction is"),
    "more votes": (more_votes, "votes of its evidence should be"),
    "generous alpha": (
        at("evidence/ledger/alpha_class", lambda a: 1.01 * a), "ledger of its evidence should be"),
    "other samples": (at("evidence/selector/samples", lambda h: h[:-1]), "selector samples"),
    "other label": (at("label", lambda c: (c + 1) % 10), "label"),
    "no ledger": (lambda row: row["evidence"].pop("ledger"), "ledger is missing"),
    "halves": (at(COUNTS, lambda c: [c[0] + 0.5, c[1] - 0.5, *c[2:]]),
               "votes[0].counts[0] has a wrong value"),
    "negative": (at(COUNTS, lambda c: [c[0] + c[1] + 1, -1, *c[2:]]),
                 "votes[0].counts[1] has a wrong value"),
    "one more class": (
        at(VOTES, lambda levels: [v | {"counts": [*v["counts"], 0]} for v in levels]),
        "classes, not 10"),
    "a level twice": (at(VOTES, lambda levels: [*levels, levels[-1]]), "occurs 2 times"),
    "no such class": (at(f"{VOTES}/0/candidate", lambda c: -1),
                      "votes[0].candidate has a wrong value"),
    "other level": (at(f"{VOTES}/-1/sigma", lambda s: 0.2), "levels of its evidence"),
    "foreign sigma": (foreign_sigma, "levels of its evidence"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_verify_catches_a_changed_row(
    name: str, certified: Path, tmp_path: Path, capsys: Output
) -> None:
    change, sentence = CHANGES[name]
    copy = edit(certified, tmp_path, change)
    assert run(f"verify {copy}") == 1
    assert sentence in capsys.readouterr().err
    edit_header(copy, config={"model": "nowhere:make"})  # without the model the rest is checked
    assert run(f"verify {copy}") == 1
    assert sentence in capsys.readouterr().err


def test_verify_catches_invented_votes(certified: Path, tmp_path: Path) -> None:
    """Evidence that agrees with itself is caught by fresh noise."""
    chosen = next(row["id"] for row in Run.open(certified).rows() if certified_row(row))

    def invented(opened: Run, row: Row) -> None:
        if row["id"] == chosen:
            one, votes = opened.certificate(row), []
            for level in one.votes:
                other = (level.candidate + 5) % 10
                counts = tuple(60 * (c == other) for c in range(10))
                votes.append(replace(level, candidate=other, counts=counts))
            put(row, replace(one, votes=tuple(votes)))
            assert row["prediction"] != ABSTAIN

    copy = rewrite(certified, tmp_path / "run", invented)
    assert verify_run(copy).problems == []
    (problem,) = {p.partition(",")[0] for p in verify_run(copy, resample=9, seed=2).problems}
    assert problem == f"image {chosen}"


def test_verify_catches_another_model_or_other_images(
    certified: Path, tmp_path: Path, capsys: Output
) -> None:
    other = write_pair(tmp_path / "other", seed=5)
    assert run(f"verify {certified} --model {other}") == 1
    assert "the model is another network or has other weights" in capsys.readouterr().err
    copy = shutil.copytree(certified, tmp_path / "run")
    assert run("verify", edit_header(copy, config={"subset": "2:1000:115"})) == 1
    assert "--data holds other images or labels" in capsys.readouterr().err


def test_verify_wants_every_image_once(certified: Path, tmp_path: Path) -> None:
    """A shortened run, an empty one, a second opinion, a foreign image."""
    rows = Run.open(certified).rows()

    def problems(kept: list[dict[str, Any]]) -> str:
        shutil.rmtree(tmp_path)
        tmp_path.mkdir()
        (tmp_path / "run.json").write_bytes((certified / "run.json").read_bytes())
        Run.open(tmp_path).append(kept)
        return "; ".join(verify_run(tmp_path).problems)

    finish = "images have no row; rerun its certify command to finish it"
    assert problems(rows[1:]) == f"1 of 9 {finish}"
    assert problems([]) == f"9 of 9 {finish}"
    assert problems([*rows, rows[3] | {"seconds": 1.0}]) == "", "the same row may be there twice"
    other = json.loads(json.dumps(rows[3]))
    other["evidence"]["votes"][0]["counts"].reverse()
    assert "two rows contradict each other" in problems([*rows, other])
    foreign = json.loads(json.dumps(rows[0]))
    foreign["id"] = foreign["evidence"]["id"] = 2
    assert "image 2 is not in the data set" in problems([*rows, foreign])


def moved_vote(row: dict[str, Any]) -> None:
    """Between two classes that do not win: nothing that is derived changes."""
    level, (taken, *_) = row["evidence"]["votes"][0], _spread(row)
    level["counts"][taken] -= 1
    level["counts"][(set(range(10)) - {taken, level["candidate"]}).pop()] += 1


def test_replay_catches_a_moved_vote(certified: Path, tmp_path: Path, capsys: Output) -> None:
    assert run(f"verify {certified} --replay all") == 0
    printed = capsys.readouterr()
    assert "9 images replayed from the recorded seed" in printed.out
    assert "replay all" in printed.err.splitlines()[0]
    assert "\r" not in printed.err  # a log gets lines
    assert "check rows: 9/9 rows" in printed.err
    assert "replay: 9/9 images" in printed.err
    copy = edit(certified, tmp_path, moved_vote, lambda row: bool(_spread(row)))
    assert verify_run(copy, resample=9, seed=2).problems == [], "no test can see one vote"
    assert run(f"verify {copy} --replay all") == 1
    assert "replayed evidence differs from the stored one" in capsys.readouterr().err
    assert verify_run(certified, replay=2, seed=2).replayed >= 2


def test_replay_elsewhere_allows_for_rounding(
    certified: Path, tmp_path: Path, capsys: Output
) -> None:
    copy = elsewhere(edit(certified, tmp_path, moved_vote, lambda row: bool(_spread(row))))
    assert run(f"verify {copy} --replay all") == 3
    assert "NOT CHECKED: the exact evidence of 1 images" in capsys.readouterr().out


def _spread(row: dict[str, Any]) -> list[int]:
    level = row["evidence"]["votes"][0]
    return [c for c, n in enumerate(level["counts"]) if n > 0 and c != level["candidate"]]


def test_without_its_code_the_rest_of_a_run_is_checked(
    certified: Path, tmp_path: Path, capsys: Output
) -> None:
    copy = shutil.copytree(certified, tmp_path / "run")
    assert run("verify", edit_header(copy, config={"model": "somewhere:make"})) == 3
    assert "NOT CHECKED: the model (this run was made with" in capsys.readouterr().out
    assert run(f"verify {copy} --replay 1") == 1
    assert "replay and resample need the model" in capsys.readouterr().err
    assert run("verify", edit_header(copy, config={"data": str(tmp_path / "nowhere")})) == 3
    out = capsys.readouterr().out
    assert "NOT CHECKED: the images" in out
    assert "images are those of the run" not in out


def test_a_changed_architecture_is_another_model(
    certified: Path, model: Path, tmp_path: Path, capsys: Output
) -> None:
    """The weights fit a selector with other heads, which is another function."""
    other = tmp_path / "other"
    shutil.copytree(model, other)
    config = json.loads((other / "config.json").read_text())
    config["selector"]["options"] = {"heads": 2}
    network = AttentionSelector(heads=2)
    network.load_state_dict(load(model, n_median=21).selector.selector.network.state_dict())  # type: ignore[union-attr]
    config["selector"]["fingerprint"] = fingerprint(network)
    (other / "config.json").write_text(json.dumps(config))
    for command in (
        f"verify {certified} --model {other}",
        f"certify {QUICK} --subset 3:1000:115 --model {other} --out {certified}",
        f"attack --against {certified} --model {other} --out {tmp_path}/search",
    ):
        assert run(command) == 1
        assert "the model is another network" in capsys.readouterr().err


@pytest.mark.parametrize(
    "config", [{"subset": 5}, {"clip": "wide"}, {"n_median": [1]}, {"sigma": True}]
)
def test_a_configuration_of_odd_types_is_a_sentence(
    certified: Path, tmp_path: Path, config: dict[str, Any]
) -> None:
    copy = edit_header(shutil.copytree(certified, tmp_path / "run"), config=config)
    unchecked = " ".join(verify_run(copy).unchecked)
    assert f"{next(iter(config))} must be" in unchecked


def constant_samples(folder: Path, copy: Path) -> Path:
    """A forgery that every check but a replay passes: h that never moves, and what follows."""

    def constant(opened: Run, row: Row) -> None:
        one = opened.certificate(row)
        assert one.selector is not None
        h = replace(one.selector, samples=(one.sigma,) * len(one.selector.samples))
        put(row, replace(one, selector=h))

    return rewrite(folder, copy, constant)


def elsewhere(folder: Path) -> Path:
    """The same run, with the environment of another machine."""
    return edit_header(folder, environment={"platform": "elsewhere"})


def test_replay_compares_the_samples_of_the_selector(certified: Path, tmp_path: Path) -> None:
    forged = constant_samples(certified, tmp_path / "run")
    assert verify_run(forged).problems == [], "the case is too easy"
    problems = verify_run(forged, replay="all").problems
    assert problems
    assert all("replayed evidence differs" in text for text in problems)
    problems = verify_run(elsewhere(forged), replay="all").problems
    assert any("selector samples" in text for text in problems)


def test_a_run_from_elsewhere_may_differ_a_little_and_no_more(
    certified: Path, tmp_path: Path
) -> None:
    honest = elsewhere(edit(certified, tmp_path / "a", lambda row: None))
    assert verify_run(honest, replay="all").problems == []

    def moved(row: dict[str, Any]) -> None:
        """Six of sixty votes go to the class; radii follow."""
        level = row["evidence"]["votes"][0]
        other = max(range(10), key=lambda c: (c != level["candidate"]) * level["counts"][c])
        taken = min(6, level["counts"][other])
        level["counts"][other] -= taken
        level["counts"][level["candidate"]] += taken
        again = Run.open(certified).certificate(row).rederive()
        row["radius"] = row["evidence"]["radius"] = again.radius

    def few(row: dict[str, Any]) -> bool:
        return certified_row(row) and row["evidence"]["votes"][0]["counts"][row["prediction"]] < 55

    forged = elsewhere(edit(certified, tmp_path / "b", moved, few))
    problems = verify_run(forged, replay="all").problems
    assert any("of the replayed votes differ" in text for text in problems)


@pytest.mark.parametrize(
    "more", ["--cascade 0.5,0.25", "--cascade 0.5,0.25 --at 0,0.1 --n-max 200", "--sigma 0.25", ""]
)
def test_an_honest_recompute_replays(model: Path, tmp_path: Path, more: str) -> None:
    quick = "--n0 20 --alpha 0.05 --alpha-select 0.01" if "--at" in more else QUICK
    if more:
        quick = quick.replace("--n-select 61 --n-median 21", "").replace("--alpha-select 0.01", "")
    certify = f"certify {quick} {more} --subset 3:1000:250 --model"
    assert run(certify, model, "--out", tmp_path / "run") == 0
    assert run(f"report recompute {tmp_path}/run --alpha 0.2 --out {tmp_path}/again") == 0
    assert verify_run(tmp_path / "again", replay="all").problems == []


def simulated_radii(rng: np.random.Generator, raised: float) -> NDArray[np.float64]:
    """Radii of 40 images, stored and fresh; counts of the stored ones raised by so many sd."""
    n, p = 1000, rng.uniform(0.6, 0.98, 40)
    counts = rng.binomial(n, p[:, None], (40, 1 + REPEATS))
    counts[:, 0] = np.minimum(counts[:, 0] + np.rint(raised * np.sqrt(n * p * (1 - p))), n)
    return norm.ppf(bounds.clopper_pearson_lower(counts, n, 0.001))


def test_pooled_resampling_notices_counts_raised_by_one_standard_deviation() -> None:
    rng = np.random.default_rng(5)
    honest, raised = (
        np.array([pooled_p_value(simulated_radii(rng, sd), rng) for _ in range(150)])
        for sd in (0.0, 1.0)
    )
    assert (raised < FALSE_ALARM / 2).mean() >= 0.95
    assert binomtest(int((honest < 0.05).sum()), 150, 0.05, alternative="greater").pvalue > 1e-3
    assert (honest >= FALSE_ALARM / 2).all()


@pytest.mark.slow
@pytest.mark.campaign
def test_pooled_resampling_at_its_promised_rates(tally: Tally) -> None:
    """Power ≥ .95 at one standard deviation on 40 images, false alarms ≤ .001 / 2."""
    rng, tried = np.random.default_rng(6), 1000
    alarms = {
        sd: sum(
            pooled_p_value(simulated_radii(rng, sd), rng) < FALSE_ALARM / 2 for _ in range(tried)
        )
        for sd in (0.0, 1.0)
    }
    tally("pooled resamplings", 2 * tried)
    assert binomtest(alarms[1.0], tried, 0.95, alternative="less").pvalue > 1e-3
    assert binomtest(alarms[0.0], tried, FALSE_ALARM / 2, alternative="greater").pvalue > 1e-3
