"""Tuning of cascades: scores are those of `certify`, and λ turns what it promises."""

import dataclasses
import itertools
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.evaluation import Output, Patch
from tests.small_models import run, table, write_pair
from varsmooth import CascadeSelector, Options, SmoothedClassifier, certify, load, load_dataset
from varsmooth.cli.tune import after_cascade
from varsmooth.errors import VarsmoothError
from varsmooth.evaluation.options import HeldOut, TuneOptions
from varsmooth.evaluation.records import Run
from varsmooth.evaluation.tune import cascade as cascades
from varsmooth.evaluation.tune.cascade import Rule, Value, follow
from varsmooth.evaluation.tune.model import TunedCascade
from varsmooth.evaluation.tune.table import ConfidentVotes, TableFile, tabulate
from varsmooth.evaluation.verify import verify_run
from varsmooth.models.cards import card
from varsmooth.models.descriptions import copy_model, describe, rewrite
from varsmooth.models.options import ModelOptions, TunedStages, stages_for
from varsmooth.rounding import rounded

LEVELS = (0.5, 0.25, 0.125)


@pytest.fixture(scope="module")
def votes() -> ConfidentVotes:
    g = load("cifar10-universal-1.00", sigma=0.5)
    data = load_dataset("cifar10-sample", "val")[:8]
    return tabulate(g, data, LEVELS, (96, 32), confidences=(0.0, 0.5))


def test_a_classifier_that_returns_nan_is_refused() -> None:
    g = load("cifar10-universal-1.00", sigma=0.5)
    next(g.parameters()).data.fill_(torch.nan)
    data = load_dataset("cifar10-sample", "val")[:1]
    with pytest.raises(VarsmoothError, match="returned NaN"):
        tabulate(g, data, LEVELS, (8, 8))


def test_the_device_is_not_read_per_batch(monkeypatch: Patch) -> None:
    """On a GPU a read waits for all work; noise reads indices, which are on the processor."""
    g, reads, read = load("cifar10-universal-1.00", sigma=0.5), [], torch.Tensor.__bool__

    def counted(values: torch.Tensor) -> bool:
        reads.append(sys._getframe(1).f_code.co_filename)
        return read(values)

    monkeypatch.setattr(torch.Tensor, "__bool__", counted)
    tabulate(g, load_dataset("cifar10-sample", "val")[:1], LEVELS, (64, 64), batch_size=8)
    assert reads.count(tabulate.__code__.co_filename) == 1


def test_scores_are_those_of_certify(votes: ConfidentVotes) -> None:
    classifier = load("cifar10-universal-1.00", sigma=0.5).classifier
    data = load_dataset("cifar10-sample", "val")[:8]
    x, _, ids = data.batch(slice(None))
    for columns, thresholds, gates in (
        ((0,), (0.5,), (0,)),
        ((2,), (0.6,), (0,)),
        ((0, 2), (0.55, 0.5), (0, 0)),
        ((0, 1, 2), (0.55, 0.5, 0.5), (1, 0, 0)),
    ):
        stages = [LEVELS[j] for j in columns]
        selector = CascadeSelector(stages, thresholds, [votes.confidences[c] for c in gates])
        g = SmoothedClassifier(classifier, selector)
        certificates = certify(g, x, n=96, ids=ids, seed=0, options=Options(n0=32))
        outcome = follow(votes, Rule(columns, thresholds, gates, Value(0, 0)))
        for i, one in enumerate(certificates):
            assert one.votes[0].candidate == outcome.answer[i]
            if all(level.n == 96 for level in one.votes):  # no early stage got fewer votes
                assert one.radius == pytest.approx(max(outcome.radius[i], 0), abs=1e-12)
    assert {len(c.votes) for c in certificates} > {1}


def test_the_gate_leaves_the_confident_votes(votes: ConfidentVotes) -> None:
    assert (votes.counts[..., 0].sum(axis=-1) == 96).all()
    assert (votes.counts[..., 1] <= votes.counts[..., 0]).all()
    assert votes.counts[..., 1].sum() < votes.counts[..., 0].sum()
    x, _, ids = load_dataset("cifar10-sample", "val")[:8].batch(slice(None))
    g = load("cifar10-universal-1.00", cascade="0.5:0.5:0.5")
    counted = g.votes(x, 96, sigma=torch.full((8,), 0.5), noise=g.noise(8, 0, ids))
    np.testing.assert_array_equal(counted[:, :-1].numpy(), votes.counts[:, 0, :, 1])


def test_more_lambda_is_not_less_radius_nor_more_accuracy(votes: ConfidentVotes) -> None:
    choice = cascades.choose(votes, stages=2)
    chosen = [rule for _, rule in choice.rules]
    radii, accuracies = [r.value.radius for r in chosen], [r.value.accuracy for r in chosen]
    assert radii == sorted(radii)
    assert accuracies == sorted(accuracies, reverse=True)
    most = max(len(rule.columns) for rule in chosen)
    pool = cascades.rules(votes, cascades.best_single(votes), 2)
    values = [r.value for r in pool if len(r.columns) <= most]
    assert radii[-1] == max(v.radius for v in values) >= choice.single.value.radius
    assert accuracies[0] == max(v.accuracy for v in values)


def every_rule(table: ConfidentVotes, stages: int) -> list[Rule]:
    """All rules of the search space, by brute force."""
    free = list(itertools.product(cascades.THRESHOLDS, range(len(table.confidences))))
    return [
        follow(table, Rule(columns, (*taus, 0.5), (*gates, 0), Value(0, 0))).rule(table)
        for count in range(1, stages + 1)
        for columns in itertools.combinations(range(len(table.levels)), count)
        for early in itertools.product(free, repeat=count - 1)
        for taus, gates in [([t for t, _ in early], [c for _, c in early])]
    ]


def known(images: int, seed: int) -> ConfidentVotes:
    """Half of the images are easy under much noise; of the others f is wrong there, and unsure."""
    rng = np.random.default_rng(seed)
    labels, easy = rng.integers(0, 3, images), rng.random(images) < 0.5
    rows = np.arange(images)
    shares = np.full((images, 2, 3), 0.01)  # (N, L, classes)
    shares[rows, 0, np.where(easy, labels, (labels + 1) % 3)] = 0.98
    shares[rows, 1, labels] = 0.98
    sure = np.where(easy, 0.99, rng.uniform(0.05, 0.35, images))

    def draw(n: int) -> np.ndarray:
        counts = np.array([[rng.multinomial(n, p / p.sum()) for p in row] for row in shares])
        return np.stack([counts, rng.binomial(counts, sure[:, None, None])], axis=-1)

    return ConfidentVotes((1.0, 0.5), (0.0, 0.5), draw(300), draw(100), labels, 300, 100)


def test_the_search_finds_what_brute_force_finds() -> None:
    table = known(60, seed=0)
    every, pool = every_rule(table, 2), cascades.rules(table, cascades.best_single(table), 2)
    assert set(pool) == set(every)  # two stages fit into the beam
    best = max(pool, key=lambda r: r.value.radius)
    assert best.value.radius > 1.15 * max(r.value.radius for r in cascades.singles(table))
    assert best.gates == (1, 0)  # the gate lets wrong and unsure votes pass


def chance(images: int, seed: int) -> ConfidentVotes:
    """Votes that know nothing of the labels: rules differ by chance alone."""
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet((0.5, 0.5, 0.5), (images, 3))  # (N, L, classes)

    def draw(n: int) -> np.ndarray:
        return np.array([[rng.multinomial(n, p) for p in row] for row in shares])[..., None]

    labels = rng.integers(0, 3, images)
    return ConfidentVotes((0.6, 0.5, 0.4), (0.0,), draw(300), draw(100), labels, 300, 100)


def test_what_is_expected_on_new_images_is_not_flattered() -> None:
    """The value on the images that chose the rule is too high, the crossed one is not."""
    here, expected, new = [], [], []
    for seed in range(30):
        table, others = chance(24, seed), chance(400, 1000 + seed)
        choice = cascades.choose(table, stages=2, lams=(1.0,))
        ((_, rule),) = choice.rules
        here.append(rule.value.radius)
        expected.append(choice.expected[0].radius)
        new.append(follow(others, rule).rule(others).value.radius)
    assert np.mean(here) > 1.1 * np.mean(new)
    assert np.mean(expected) == pytest.approx(np.mean(new), rel=0.2)


def test_fewer_stages_are_preferred_to_an_equal_value() -> None:
    """A second level with the same votes adds nothing: one stage is chosen."""
    table = known(100, seed=3)
    small = [1, 1]
    same = dataclasses.replace(
        table,
        levels=(0.501, 0.5),
        counts=table.counts[:, small],
        selection=table.selection[:, small],
    )
    choice = cascades.choose(same, stages=2)
    assert {len(rule.columns) for _, rule in choice.rules} == {1}


def test_an_unfinished_table_resumes_to_the_same_votes(
    tmp_path: Path, votes: ConfidentVotes, monkeypatch: Patch
) -> None:
    monkeypatch.setattr("varsmooth.evaluation.tune.table.SAVE_EVERY", 0.0)
    g, data = load("cifar10-universal-1.00", sigma=0.5), load_dataset("cifar10-sample", "val")[:8]
    calls = []

    def interrupted(z: torch.Tensor, sigma: torch.Tensor) -> torch.Tensor:
        calls.append(len(z))
        if sum(calls) > 5 * len(LEVELS) * (96 + 32):  # after a block of five images
            raise KeyboardInterrupt
        return logits(z, sigma)

    logits = g.logits
    monkeypatch.setattr(g, "logits", interrupted)
    with pytest.raises(KeyboardInterrupt):
        tabulate(g, data, LEVELS, (96, 32), (0.0, 0.5), file=TableFile(tmp_path / "t", "f"))
    monkeypatch.setattr(g, "logits", logits)
    assert (tmp_path / "t").exists()
    again = TableFile(tmp_path / "t", "f")
    table = tabulate(g, data, LEVELS, (96, 32), (0.0, 0.5), file=again)
    np.testing.assert_array_equal(table.counts, votes.counts)
    other = TableFile(tmp_path / "t", "another f")
    assert other.load([1], data) == []
    again.remove()
    assert not (tmp_path / "t").exists()


def test_stages_are_chosen_by_lambda() -> None:
    assert str(TunedStages(0, (1.0, 0.5), (0.5, 0.5), (0.4, 0.0))) == "1:0.5:0.4,0.5"
    malformed = ("1.0;0.5", "", "tuned", "1:0.4", "0:0.6", "1:1", "inf", "1,,0.5")
    for wrong in (*malformed, "1:0.5:1", "1:0.5:0.2:0.1"):
        with pytest.raises(VarsmoothError, match="cascade must be LEVEL:THRESHOLD"):
            ModelOptions(cascade=wrong)
    family = [TunedStages(0.0, (0.25,), (0.5,)), TunedStages(0.6, (1.0,), (0.5,))]
    assert [stages_for(family, lam).lam for lam in (0, 0.5, 0.6, 1)] == [0.0, 0.0, 0.6, 0.6]
    with pytest.raises(VarsmoothError, match="lam"):
        stages_for(family, 1.5)


@pytest.mark.parametrize(
    ("levels", "words"),
    [
        ([(0.25, 0.1), (0.5, 0.1)],
         ["--out runs/f-cascade",
          "--sigma 0.25 --out runs/f-fixed  # the best single σ, to compare"]),
        ([(0.1,), (0.25,)], ["--sigma 0.25 --out runs/f-fixed"]),
        ([(0.25, 0.1), (0.25,)],
         ["--sigma 0.25 --out runs/f-fixed",
          "--lam 0 --out runs/f-cascade  # more accurate, average radius no larger"]),
    ],
)  # fmt: skip
def test_a_cascade_is_proposed_where_there_is_one(
    levels: list[tuple[float, ...]], words: list[str], tmp_path: Path
) -> None:
    members = tuple(TunedStages(i / 2, s, (0.5,) * len(s)) for i, s in enumerate(levels))
    folder = copy_model("cifar10-0.25", tmp_path / "f", "tuned")
    rewrite(folder, dataclasses.replace(describe(folder), cascades=members))
    chosen = TunedCascade(members, TunedStages(1.0, (0.25,), (0.5,)), [])
    commands = after_cascade(chosen, folder, HeldOut(), TuneOptions())
    assert [line.partition("/f ")[2] for line in commands] == words


def test_from_tune_to_a_verified_run(tmp_path: Path, capsys: Output) -> None:
    model, out = write_pair(tmp_path), tmp_path / "tuned"
    words = f"--data cifar10-sample --images 6 --n 40 --out {out}"
    assert run(f"tune {model} --goal cascade {words}") == 0
    shown = capsys.readouterr().out
    rules = re.findall(r"λ = (?:[\d.]+ to )?[\d.]+: (.*)", shown)
    assert len(rules) == len(set(rules)) > 0  # a rule is shown once, with the λ it serves
    members, single = describe(out).cascades, describe(out).single
    assert members[0].lam == 0
    assert single is not None
    assert f"one σ = {single}: " in shown
    card_lines = card("x", describe(out)).splitlines()
    for one in (*members, single):
        assert one.expected is not None
        accuracy, radius = f"{100 * one.expected[0]:.1f}", rounded(one.expected[1], 4)
        assert f"(expected on new images: {accuracy} %, {radius})" in shown
        assert any(line.endswith(f" {one} | {accuracy} | {radius} |") for line in card_lines)
    assert not (out / "votes.npz").exists()
    few = "--n 60 --n0 20 --subset :6"
    capsys.readouterr()
    assert run(f"certify --model {out} --lam 0.5 {few} --out {tmp_path / 'a'}") == 0
    assert (
        f"by cascade {stages_for(members, 0.5)} (tuned for λ = 0.5, the model's default)"
        in capsys.readouterr().err
    )
    assert run(f"certify --model {out} --lam 0.4 {few} --out {tmp_path / 'a'}") == 1
    refusal = capsys.readouterr().err
    assert "--lam 0.5 there, 0.4 now" in refusal
    assert "weights" not in refusal
    certify_words = f"certify --model {out} --cascade 0.3:0.6,0.1 {few} --out {tmp_path / 'b'}"
    assert run(certify_words) == 0
    rows = table(tmp_path / "b")
    assert {row["evidence"]["method"] for row in rows} == {"cascade"}
    assert run(f"verify {tmp_path / 'b'} --resample 2") == 0
    assert run(f"attack --against {tmp_path / 'b'} --steps 2 --n 40 --out {tmp_path / 'c'}") == 0
    words = f"predict --model {out} --cascade 0.3:0.6,0.1 --n 60 --subset :6"
    assert run(f"{words} --out {tmp_path / 'd'}") == 0
    assert run(f"report {tmp_path / 'b'} --out {tmp_path / 'page'}") == 0


def test_the_ladder_begins_at_the_largest_level_that_f_knows() -> None:
    assert cascades.ladder(describe("cifar10-universal-1.00"))[:3] == (1.0, 0.707, 0.5)
    fixed = cascades.ladder(describe("cifar10-0.25"))
    assert fixed == (0.5, 0.354, 0.25, 0.177, 0.125, 0.088, 0.062)


def test_verify_counts_the_votes_of_early_stages(tmp_path: Path) -> None:
    """Fewer votes against the class, and all that follows from them, do not add up to `samples`."""
    model, out = write_pair(tmp_path), tmp_path / "a"
    few = "--n 60 --n0 20 --alpha 0.2 --subset :20"
    assert run(f"certify --model {model} --cascade 0.3:0.6,0.1 {few} --out {out}") == 0
    assert verify_run(out).problems == []
    opened = Run.open(out)
    rows = opened.rows()
    row = next(row for row in rows if len(row["evidence"]["votes"]) == 2 and row["radius"] > 0)
    counts = row["evidence"]["votes"][0]["counts"]
    row["evidence"]["votes"][0]["counts"] = [k if k == max(counts) else 0 for k in counts]
    again = opened.certificate(row).rederive()
    row["evidence"]["radius"] = row["radius"] = again.radius
    (out / "rows-00000.jsonl").unlink()
    Run.open(out).append(rows)
    (problem,) = verify_run(out).problems
    assert f"image {row['id']}" in problem
    assert "selection draws" in problem


def test_nothing_to_choose_from_is_a_sentence(votes: ConfidentVotes) -> None:
    hopeless = dataclasses.replace(votes, counts=0 * votes.counts)
    with pytest.raises(VarsmoothError, match="no image can be certified with these votes"):
        cascades.choose(hopeless, stages=2)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--goal cascade --lams 0,1", "--lams has no effect on a cascade"),
        ("--goal cascade --levels 3", "--levels has no effect on a cascade"),
        ("--goal cascade --split test", "would flatter the results there"),
        ("--split test", "would flatter the results there"),
    ],
)
def test_tune_refuses_what_it_would_ignore_and_test_images(
    words: str, message: str, capsys: Output
) -> None:
    assert run(f"tune cifar10-universal-1.00 {words}") != 0
    assert message in capsys.readouterr().err


def test_the_card_shows_the_tuned_cascade() -> None:
    about = describe("cifar10-universal-1.00")
    assert str(about.cascades[-1]) == "1:0.5:0.5,0.707:0.5:0.4,0.5,0.354"
    last = about.cascades[-1]
    assert f"from λ = {last.lam:g} {last}; the best single σ 0.5." in card("x", about)
    before = dataclasses.replace(about, single=None)  # tuned by an earlier version
    assert f"from λ = {last.lam:g} {last}." in card("x", before)
