"""Every experiment end to end at a tiny scale, and its numbers against independent ones."""

import gzip
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from reproduce.__main__ import EXPERIMENTS
from reproduce.committed import resume
from reproduce.comparisons import (
    Committed,
    at_distance,
    attacked_gap,
    bounds_width,
    certified_gain,
    chosen_radius,
    every_model,
    largest_gap,
    sound_radius,
    soundness_cost,
    traded,
)
from reproduce.harness import Context, Evidence
from reproduce.records import outcomes_of, read_records
from reproduce.replay import Certified, CertifyScale, Replay, levels_between, selector_options
from reproduce.scales import Need, Scale, resized, sizes_in_use
from reproduce.statistics import pooled, radius_gap
from reproduce.verdicts import BESIDE
from tests.reproduce.commands import results, run, sized
from tests.small_models import write_pair
from varsmooth.bounds import class_radius, order_statistics
from varsmooth.data import load_dataset
from varsmooth.defaults import ABSTAIN
from varsmooth.errors import VarsmoothError
from varsmooth.evaluation.options import ModelOptions
from varsmooth.evaluation.records import Run
from varsmooth.evaluation.report.outcomes import Outcomes
from varsmooth.evaluation.vote_cache import VoteStore
from varsmooth.models.loading import load
from varsmooth.selectors import Grid, NoiseSelector

PREDICTED = "--data cifar10-sample --images 6 --n 60"
TINY = (
    f"{PREDICTED} --n0 20 --n-select 61 --alpha 0.05 "
    "--alpha-select 0.01 --multiples 0.5,1,1.5 --percentiles 0,50,100 --held-out 5 "
    "--held-out-draws 11 --choice 3"
)
"""Sizes that take seconds."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Untrained pairs for two levels, named as training names them."""
    folder = tmp_path_factory.mktemp("models")
    write_pair(folder / "h-0.25", seed=1, spread=0.3)
    write_pair(folder / "h-0.50", seed=3, spread=0.3, sigma_a=0.5)
    return folder


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def tiny() -> CertifyScale:
    return sized(CertifyScale(), "certified", TINY)


def test_sizes_are_options() -> None:
    scale = sized(Scale(), "tradeoff", "--images 7 --sigmas 0.25 --data cifar10-sample")
    assert (scale.images, scale.sigmas, scale.data) == (7, (0.25,), "cifar10-sample")
    with pytest.raises(VarsmoothError, match="--images must be a whole number above 0, not 'many'"):
        resized(Scale(), {"images": "many"})


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("tradeof", "invalid choice: 'tradeof'"),
        ("clean --steps 3", "clean has no --steps; see: python -m reproduce clean --help"),
        ("clean --variant nonsense", "--variant must be confidence, long, wide"),
        ("clean --variant confidence --models m", "leave out --models"),
    ],
)
def test_wrong_usage(words: str, sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_help_lists_every_size(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(f"{name} --help") == 0
    shown = capsys.readouterr().out
    for entry in sizes_in_use(EXPERIMENTS[name].scales["cpu"]):
        assert f"--{entry.name.replace('_', '-')} " in shown


def test_what_is_missing_is_one_sentence(tmp_path: Path) -> None:
    context = Context(tmp_path, models=tmp_path)
    text = context.lack([Need.fixed(0.5), Need("universal-1.00", selector=True)])
    assert "cifar10-0.50, cifar10-universal-1.00 with its selector" in text
    assert "varsmooth train classifier cpu/f-0.50" in text
    assert "\n" not in text


def test_the_list_names_every_experiment(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("list") == 0
    shown = capsys.readouterr().out
    assert all(experiment.paper in shown for experiment in EXPERIMENTS.values())


def test_percentiles(tmp_path: Path) -> None:
    assert run("percentiles --out", tmp_path / "percentiles") == 0
    gaps = [largest_gap(n, 5e-6) for n in (1_000, 10_000, 100_000)]
    assert gaps == sorted(gaps, reverse=True)
    assert 6 < gaps[0] < 8  # about 4.42 σ of a fair coin in 1,000 tosses: 100·4.42·0.5/√1000
    assert run("pages --results", tmp_path) == 0
    page = (tmp_path / "percentiles/README.md").read_text()
    assert "python -m reproduce percentiles" in page
    assert "![percentiles](percentiles.png)" in page


def test_tradeoff(tmp_path: Path, models: Path, store: Path) -> None:
    words = f"tradeoff {TINY} --swept 0.5 --sigmas 0.25,0.5"
    assert run(words, "--models", models, "--store", store, "--out", tmp_path) == 0
    config, lines = results(tmp_path)
    assert {"tradeoff.png", "tradeoff.svg", "certified-accuracy.md"} <= {
        path.name for path in tmp_path.iterdir()
    }
    caption = (tmp_path / "certified-accuracy.md").read_text()
    for text in (
        "test images: 6 (full scale: 10000)",
        "votes N: 60 (paper: 1000)",
        "σ_a: 0.25, 0.5",
    ):
        assert text in caption
    assert str(tmp_path.parent) not in json.dumps(config)
    right = {
        sigma: [
            line["prediction"] == line["label"]
            for line in lines
            if line["run"] == f"σ_s = σ_a = {sigma}"
        ]
        for sigma in ("0.25", "0.5")
    }
    gap = np.mean(right["0.25"]) - np.mean(right["0.5"])
    (near,) = traded((0.25, 0.5), "σ_s = σ_a = {s:g}", far=False)(Committed(tmp_path)).values()
    assert pooled([near]).value == pytest.approx(gap)

    def average(level: str) -> float:
        mine = [line for line in lines if line["run"] == f"σ_a = 0.5, σ_s = {level}"]
        return float(np.mean([radius_if_right(line) for line in mine]))

    for one, other in (("0.25", "0.5"), ("0.5", "0.75")):
        runs = [Committed(tmp_path).runs[f"σ_a = 0.5, σ_s = {level}"] for level in (one, other)]
        measured = pooled([radius_gap(*runs) / 0.5]).value
        assert measured == pytest.approx((average(one) - average(other)) / 0.5)


@pytest.mark.parametrize(
    ("variant", "need", "model"),
    [
        (None, Need.fixed(0.12, selector=True), "cifar10-0.12-gv"),
        (None, Need.fixed(0.25, selector=True), "cifar10-0.25-gv"),
        (None, Need.fixed(0.5, selector=True), "cifar10-0.50-gv"),
        (None, Need.fixed(1.0, selector=True), "cifar10-1.00-gv"),
        ("wide", Need.fixed(0.25, selector=True), "cifar10-0.25-wide-gv"),
        ("long", Need.fixed(0.25, selector=True), "cifar10-0.25-long-gv"),
        ("confidence", Need.fixed(0.25, selector=True), "cifar10-0.25-confidence"),
        (None, Need.universal(1.0), "cifar10-universal-1.00"),
    ],
)
def test_g_v_has_the_selector_that_was_trained_for_it(
    tmp_path: Path, variant: str | None, need: Need, model: str
) -> None:
    context = Context(tmp_path, variant=variant)
    assert context.g_v_options(need, 0.2).model == model
    assert context.has_own(need) == model.endswith("-gv")


def test_a_selector_for_another_f_is_not_that_of_g_v(tmp_path: Path) -> None:
    for name, seed in (("h-0.25", 1), ("hv-0.25", 2), ("h-0.50", 3), ("hv-0.50", 3)):
        write_pair(tmp_path / name, seed=seed, spread=0.3)
    context = Context(tmp_path / "store", models=tmp_path)
    assert not context.has_own(Need("0.25", selector=True))
    assert context.has_own(Need("0.50", selector=True))
    named = context.g_v_options(Need("0.50", selector=True), 0.2).model
    assert named == str(tmp_path / "hv-0.50")


def test_a_second_time_nothing_is_computed(
    tmp_path: Path, models: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = f"tradeoff {TINY} --swept 0.25 --sigmas 0.25"
    assert run(words, "--models", models, "--store", store, "--out", tmp_path / "one") == 0

    def never(*_: object) -> None:
        raise AssertionError("votes were drawn again")

    monkeypatch.setattr(Run, "append", never)
    monkeypatch.setattr(VoteStore, "add", never)
    assert run(words, "--models", models, "--store", store, "--out", tmp_path / "two") == 0
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


def test_a_committed_result_is_redrawn_from_its_records(
    tmp_path: Path, models: Path, store: Path
) -> None:
    """Without models, data or runs: figures, tables and pages are the same bytes."""
    for name, sizes in (("certified", TINY), ("selector-bounds", TINY), ("clean", PREDICTED)):
        words = f"{name} {sizes} --sigmas 0.25"
        assert run(words, "--models", models, "--store", store, "--out", tmp_path / name) == 0
    written = {path: path.read_bytes() for path in tmp_path.glob("*/*")}
    assert run("pages --results", tmp_path) == 0
    assert {path: path.read_bytes() for path in written} == written
    records = tmp_path / "clean" / "records.csv.gz"
    records.write_bytes((tmp_path / "certified" / "records.csv.gz").read_bytes())
    assert run("pages --results", tmp_path) == 1


def test_levels_are_finer_than_the_spread_of_h_however_small() -> None:
    for spread in (0.001, 0.3):
        medians = 0.2 * (1 + spread * np.linspace(-1, 1, 101))
        levels = np.array(levels_between(medians, (0, 5, 20, 35, 50, 65, 80, 95, 100)))
        low, high = np.percentile(medians, [5, 95])
        inside = levels[(levels >= low - 1e-7) & (levels <= high + 1e-7)]
        assert np.diff(inside).max() <= 0.2 * (high - low)
        assert levels[0] < medians.min()  # a clip at the percentiles can change something
        assert levels[-1] > medians.max()


@pytest.mark.parametrize("clip", [None, (0.2, 0.3)])
def test_replays_are_what_certify_gives(
    tmp_path: Path, models: Path, store: Path, tiny: CertifyScale, clip: tuple[float, float] | None
) -> None:
    context = Context(store, models=models)
    need = Need.fixed(0.25, selector=True)
    levels = Grid.make([0.15, 0.2, 0.22, 0.24, 0.26, 0.28, 0.3, 0.36], None).levels
    certified = Certified(context, tiny, 0.25)
    replay = Replay(certified.table, certified.samples_run(0.2, levels))
    model = replace(selector_options(context, need, 0.2, levels), clip=clip or (0.01, 5.0))
    data = context.images(tiny.data, "test", tiny.images)

    def direct(name: str, **changes: Any) -> Outcomes:
        settings = replace(tiny.settings, **changes)
        return Outcomes.open(context.execute("certify", name, model, data, settings).folder)

    compared = 0
    for distance in (0.0, 0.05, 0.2):
        replayed = replay.paper(distance, clip)
        expected = direct("paper", method="paper", distance=distance)
        compared += same_where_right(replayed, expected)
        assert np.array_equal(replayed.sigmas, expected.sigmas)
    replayed = replay.sound(clip)
    compared += same_where_right(replayed, direct("sound"))
    assert compared > 0
    assert replayed.radii.sum() > 0
    assert (replay.conditional(clip).radii >= replayed.radii - 1e-3).all()


def same_where_right(replayed: Outcomes, expected: Outcomes) -> int:
    """The same class and radius for each image that is right, whose number this returns."""
    right = expected.correct
    assert np.array_equal(replayed.correct, right)
    assert np.array_equal(replayed.radii[right], expected.radii[right])
    assert (replayed.predictions[~right] == ABSTAIN).all()
    return int(right.sum())


def test_g_is_certified_as_by_a_run_at_the_level(
    models: Path, store: Path, tiny: CertifyScale
) -> None:
    """The votes are the same; images whose class is not their label get none."""
    context = Context(store, models=models)
    certified = Certified(context, tiny, 0.25)
    model = ModelOptions(context.model(Need.fixed(0.25)), sigma=0.25)
    data = context.images(tiny.data, "test", tiny.images)
    run = context.execute("certify", "direct", model, data, tiny.settings)
    right = [row["id"] for row in run.rows() if row["label"] == row["prediction"]]
    for row in run.rows():
        votes = run.certificate(row).votes[0]
        expected = votes if votes.candidate == row["label"] else None
        assert certified.table.at(0.25, row["id"]) == expected
    assert 0 < len(right) < len(run.rows())
    assert same_where_right(certified.g(0.25), Outcomes.open(run.folder)) == len(right)


def test_certified(tmp_path: Path, models: Path, store: Path) -> None:
    words = f"certified {TINY} --sigmas 0.25"
    assert run(words, "--models", models, "--store", store, "--out", tmp_path) == 0
    _, lines = results(tmp_path)
    assert "snapped" in (tmp_path / "certified-accuracy.md").read_text()
    assert "0.16, 0.24" in (tmp_path / "clip-thresholds.md").read_text()
    assert {line["guarantee"] for line in lines} == {"sound", "conditional", "heuristic"}

    def best(part: str, number: Callable[[dict[str, str]], float]) -> float:
        """The largest mean of the runs whose name has this part, from the compact records."""
        runs: dict[str, list[float]] = {}
        for line in lines:
            if part in line["run"]:
                runs.setdefault(line["run"], []).append(number(line))
        return max(float(np.mean(each)) for each in runs.values())

    def certified(part: str, radius: float) -> float:
        right = partial(reaches, radius=radius)
        return best(part, right)

    evidence = Committed(tmp_path)
    (runs,) = every_model(evidence)
    usual = max(float(np.median(run.sigmas)) for run in runs.free)
    reach = 0.9 * float(class_radius(1000, 1000, usual, 1e-3))  # the last tenth decides nothing
    assert runs.decided == [r for r in (0, 0.125, 0.25, 0.375, 0.5) if r <= reach]
    for rival, part in (("equal", "σ_s = 0.25"), ("envelope", "g, ")):
        gaps = certified_gain(rival)(evidence)
        assert len(gaps) == len(runs.decided)
        for r, gap in zip(runs.decided, gaps.values(), strict=True):
            expected = certified("no attack", r) - certified(part, r)
            assert pooled([gap]).value == pytest.approx(expected)
    for which, d in ((0, 0.05), (-1, 0.3)):
        (gap,) = attacked_gap(which)(evidence).values()
        mine = [certified(f"λ = {lam}, attack on h, D = {d:g}", d) for lam in ("0", "0.1", "0.2")]
        assert pooled([gap]).value == pytest.approx(max(mine) - certified("g, ", d))
    (sound,) = sound_radius()(evidence).values()
    gap_in_radius = best("sound, clipped", radius_if_right) - best("g, ", radius_if_right)
    assert pooled([sound]).value == pytest.approx(gap_in_radius / 0.25)
    lost = {
        f"σ_a = 0.25, λ = {lam}": best(f"λ = {lam}, no attack", radius_if_right)
        - best(f"λ = {lam}, sound, clipped", radius_if_right)
        for lam in ("0", "0.1", "0.2")
    }
    costs = {name: 0.25 * pooled([each]).value for name, each in soundness_cost()(evidence).items()}
    assert costs == pytest.approx(lost)
    assert len(at_distance("clip")(evidence)) == 15  # clipped or not at the same λ and D
    attacked = at_distance("attack")(evidence)
    assert len(attacked) == 15
    assert all((gap.values >= 0).all() for gap in attacked.values())
    name = "σ_a = 0.25, λ = 0.1, r = 0.3"
    expected = certified("λ = 0.1, no attack", 0.3) - certified(
        "λ = 0.1, attack on h, D = 0.3", 0.3
    )
    assert pooled([attacked[name]]).value == pytest.approx(expected)
    assert len(chosen_radius()(evidence)) == 1  # held-out images chose a λ and a σ_s


def reaches(line: dict[str, str], radius: float) -> float:
    return float(line["prediction"] == line["label"] and float(line["radius"]) >= radius)


def test_selector_bounds(tmp_path: Path, models: Path, store: Path) -> None:
    words = f"selector-bounds {TINY} --distances 0,0.1,0.9 --sigmas 0.25,0.5"
    assert run(words, "--models", models, "--store", store, "--out", tmp_path) == 0
    config, _ = results(tmp_path)
    means = np.array(config["facts"]["bounds, σ_a = 0.25, λ = 0"], dtype=float)[:, :, 0]
    assert np.isnan(means[2, [0, 2]]).all()  # 61 samples bound nothing at D = 3.6 σ_m
    g = load(models / "h-0.25", lam=0.0)
    images, _, ids = load_dataset("cifar10-sample")[0:996:166].batch(slice(None))
    with torch.no_grad():
        assert isinstance(g.selector, NoiseSelector)
        samples = g.selector.samples(images, 0.25, 61, g.noise(6, 0, ids), "selector-bounds")
    ordered = samples.sort(dim=1).values.numpy()
    low, high = order_statistics(61, 0.1, 0.25, 0.005)
    width = ordered[:, high - 1].mean() - ordered[:, low - 1].mean()
    assert means[1, 2] - means[1, 0] == pytest.approx(width, rel=1e-4)
    assert means[1, 1] == pytest.approx(ordered[:, 30].mean(), rel=1e-4)
    assert "% of the median" in bounds_width(Committed(tmp_path))


def test_clean(tmp_path: Path, models: Path, store: Path) -> None:
    words = f"clean {PREDICTED} --lams 0,0.4 --sigmas 0.25"
    assert run(words, "--models", models, "--store", store, "--out", tmp_path) == 0
    _, lines = results(tmp_path)
    g = load(models / "h-0.25", lam=0.4, selector="learned")
    images, labels, ids = load_dataset("cifar10-sample")[0:996:166].batch(slice(None))
    assert labels is not None
    with torch.no_grad():
        chosen = g.selector(images, g.noise(6, 0, ids))
        level = torch.full((6,), float(chosen.double().mean()))
        votes, fixed = (
            g.votes(images, 60, sigma=sigma, noise=g.noise(6, 0, ids), purpose="predict")
            for sigma in (chosen, level)
        )
    mine = [line for line in lines if line["run"] == "g_v, σ_a = 0.25, λ = 0.4"]
    assert [float(line["sigma"]) for line in mine] == pytest.approx(chosen.tolist(), rel=1e-6)
    assert [int(line["prediction"]) for line in mine] == votes.argmax(dim=1).tolist()
    mine = [line for line in lines if line["run"] == "g beside g_v, σ_a = 0.25, λ = 0.4"]
    assert [int(line["prediction"]) for line in mine] == fixed.argmax(dim=1).tolist()
    right, other = (v.argmax(dim=1).eq(labels).double().mean() for v in (votes, fixed))
    gap = BESIDE(Committed(tmp_path))["σ_a = 0.25, λ = 0.4"]
    assert pooled([gap]).value == pytest.approx(float(right - other))


def radius_if_right(line: dict[str, str]) -> float:
    return float(line["radius"]) if line["prediction"] == line["label"] else 0.0


def test_the_command_says_what_is_missing(
    tmp_path: Path, models: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("certified --models", models, "--out", tmp_path / "out") == 1
    shown = capsys.readouterr().err
    assert "cifar10-0.12 with its selector, cifar10-1.00 with its selector" in shown
    assert not (tmp_path / "out").exists()


def test_other_released_selectors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--variant`: their h, the same f, and results beside the paper's."""
    monkeypatch.chdir(tmp_path)
    words = f"clean {PREDICTED} --lams 0 --sigmas 0.25"
    assert run(words) == 0
    assert run(words, "--variant", "confidence") == 0
    assert run("pages") == 0
    paper, ours = (results(Path("results") / folder / "clean") for folder in ("", "confidence"))
    assert ours[0]["command"].endswith(" --variant confidence")
    assert "h (confidence, objective radius) 6 epochs" in ours[0]["trained"][0]
    assert "h (KL per dimension; paper: sum) 20 epochs" in paper[0]["trained"][0]
    parts = [config["models"]["cifar10-0.25"] for config, _ in (paper, ours)]
    assert parts[0]["classifier"] == parts[1]["classifier"]
    assert parts[0]["selector"] != parts[1]["selector"]
    capsys.readouterr()
    assert run("clean --variant confidence") == 1
    shown = capsys.readouterr().err
    assert "cifar10-0.12-confidence with its selector" in shown
    assert "leave out its σ_a with --sigmas" in shown


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("clean --images 0", "--images must be a whole number above 0, not '0'"),
        ("clean --images 2.5", "--images must be a whole number above 0, not '2.5'"),
        ("clean --lams 0,1.5", "--lams must be a number from 0 to 1, separated by commas"),
        ("clean --sigmas -1", "--sigmas must be a number above 0, separated by commas"),
        ("clean --precision float16", "--precision must be one of float32, bfloat16"),
        ("weak-attack --closer 0", "--closer must be a whole number above 0"),
        ("certified --choice -1", "--choice must be a whole number from 0 on"),
        ("strong-attack --n-median 4", "--n-median must be an odd number above 0, not '4'"),
        ("matched --parts foo", "must be one of weak, strong, universal, extended, "),
        (
            "clean --sigmas 0.3",
            "cifar10-0.30 with its selector missing among the released models; leave out",
        ),
        ("clean --sigmas 0.254", "σ_a has two digits"),
        ("clean --data cifar10-sample --images 5000", "cifar10-sample test has "),
        ("weak-attack --data cifar10-sample --images 60 --closer 50", "images, not 3000"),
        ("certified --data cifar10-sample --images 6 --choice 6000", "images, not 6000"),
        ("certified --variant long --sigmas 0.25", "was trained for g_v, without the median"),
        ("strong-attack --variant long --sigmas 0.25", "strong-attack --methods g_v"),
        ("clean --variant long", "cifar10-1.00-long with its selector missing among the released"),
    ],
)
def test_a_wrong_size_is_one_sentence_before_any_work(
    words: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words, "--out", tmp_path / "out", "--store", tmp_path / "store") == 1
    shown = capsys.readouterr().err
    assert sentence in shown
    assert "Traceback" not in shown
    assert not list(tmp_path.iterdir())


def test_nothing_is_rewritten_unless_all_results_can_be_redrawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = f"clean {PREDICTED} --lams 0 --sigmas 0.25"
    assert run(words, "--out", tmp_path / "clean", "--store", tmp_path.parent / "s") == 0
    (tmp_path / "percentiles").mkdir()
    assert run("percentiles --out", tmp_path / "percentiles") == 0
    page = tmp_path / "percentiles" / "README.md"
    page.write_text("[1]")  # to be rewritten
    (tmp_path / "clean" / "records.csv.gz").unlink()
    assert run("pages --results", tmp_path) == 1
    assert f"{tmp_path / 'clean'}: the records hold no" in capsys.readouterr().err
    assert page.read_text() == "[1]"


def small_set(path: Path, seed: int) -> None:
    """Labelled images, all of them in the split `test`."""
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (6, 32, 32, 3), dtype=np.uint8)
    np.savez(path, images=images, labels=rng.integers(0, 10, 6))


def test_changed_images_are_not_taken_for_the_earlier_ones(
    tmp_path: Path, models: Path, store: Path
) -> None:
    words = "clean --images 6 --n 20 --lams 0 --sigmas 0.25"
    places = ("--models", models, "--store", store, "--data", tmp_path / "own.npz")
    labels = []
    for seed, out in ((1, "first"), (2, "second")):
        small_set(tmp_path / "own.npz", seed)
        assert run(words, *places, "--out", tmp_path / out) == 0
        labels.append([line["label"] for line in results(tmp_path / out)[1]])
    small_set(tmp_path / "own.npz", 1)
    assert run(words, *places, "--out", tmp_path / "third") == 0
    assert labels[0] != labels[1]
    assert [line["label"] for line in results(tmp_path / "third")[1]] == labels[0]


def test_images_without_labels_are_refused_before_any_work(
    tmp_path: Path, models: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "own.npz", images=np.zeros((6, 32, 32, 3), np.uint8))
    words = "tradeoff --images 6 --sigmas 0.25 --swept 0.25 --data"
    places = ("--models", models, "--store", tmp_path / "s", "--out", tmp_path / "o")
    assert run(words, tmp_path / "own.npz", *places) == 1
    assert "has no labels; experiments need them" in capsys.readouterr().err
    assert not (tmp_path / "s").exists()


def test_a_result_is_not_replaced_by_a_smaller_one_or_by_another_experiment(
    tmp_path: Path, models: Path, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = ("--models", models, "--store", store, "--out", tmp_path / "mine")
    words = "clean --data cifar10-sample --n 20 --sigmas 0.25"
    assert run(f"{words} --images 6 --lams 0,0.2", *places) == 0
    there = {path.name: path.read_bytes() for path in (tmp_path / "mine").iterdir()}
    for changed, why in (
        (f"{words} --images 5 --lams 0,0.2", "a larger result (test images)"),
        (f"{words} --images 6 --lams 0,0.4", "a larger result (λ)"),
        (f"{words} --images 6 --lams 0,0.2 --seed 3", "a larger result (seed of every draw)"),
        ("percentiles", "holds a result of clean"),
    ):
        assert run(changed, *places) == 1
        assert why in capsys.readouterr().err
        assert {p.name: p.read_bytes() for p in (tmp_path / "mine").iterdir()} == there
    assert run(f"{words} --images 7 --lams 0,0.2,0.4", *places) == 0  # more is welcome
    config = results(tmp_path / "mine")[0]
    assert config["command"].endswith(" --models YOURS")
    assert set(config["models"]) == {"0.25"}
    assert run("pages --results", tmp_path) == 0  # whatever the folder is called
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "in"):
        assert run(words, *places[:-1], out) == 1
        assert "is a file; name a folder with --out" in capsys.readouterr().err
    assert run(words, *places[:-1], tmp_path) == 1
    assert "has other things in it; name a folder of its own" in capsys.readouterr().err
    (tmp_path / "strange").mkdir()
    (tmp_path / "strange" / "config.json").write_text("[1]")
    assert run(words, *places[:-1], tmp_path / "strange") == 1
    assert "holds something else" in capsys.readouterr().err
    assert run("pages --results", tmp_path) == 0  # which is none of theirs


def a_row_less(records: bytes) -> bytes:
    return gzip.compress(b"".join(gzip.decompress(records).splitlines(keepends=True)[:-1]))


def a_label_that_is_none(records: bytes) -> bytes:
    head, first, *rest = gzip.decompress(records).decode().splitlines(keepends=True)
    cells = first.split(",")
    cells[-7] = "x"
    return gzip.compress((head + ",".join(cells) + "".join(rest)).encode())


def truncated(records: bytes) -> bytes:
    return records[:-20]


def no_gzip(records: bytes) -> bytes:
    return b"hello"


def damaged(small_result: Path, folder: Path, damage: Callable[[bytes], bytes]) -> None:
    path = Path(shutil.copytree(small_result, folder)) / "records.csv.gz"
    path.write_bytes(damage(path.read_bytes()))


@pytest.fixture(scope="module")
def small_result(models: Path, store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("small") / "clean"
    assert run(SMALL, "--models", models, "--store", store, "--out", out) == 0
    return out


SMALL = "clean --data cifar10-sample --n 20 --sigmas 0.25 --images 6 --lams 0,0.2"


@pytest.mark.parametrize("damage", [None, truncated, no_gzip, a_row_less, a_label_that_is_none])
def test_a_damaged_result_is_one_sentence_that_names_it(
    damage: Callable[[bytes], bytes] | None,
    tmp_path: Path,
    small_result: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    damaged(small_result, tmp_path / "clean", damage or (lambda records: records))
    if damage is None:
        (tmp_path / "clean" / "config.json").write_text("{")
    assert run("pages --results", tmp_path) == 1
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    assert str(tmp_path / "clean") in shown


def test_a_damaged_result_does_not_stop_another(
    tmp_path: Path, models: Path, store: Path, small_result: Path
) -> None:
    damaged(small_result, tmp_path / "clean", truncated)
    assert run(SMALL, "--models", models, "--store", store, "--out", tmp_path / "other") == 0


def test_what_is_held_out_is_not_tested(
    tmp_path: Path, models: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small_set(tmp_path / "own.npz", 1)
    words = "certified --sigmas 0.25 --images 4 --choice 1 --data"
    places = ("--models", models, "--store", tmp_path / "s", "--out", tmp_path / "o")
    (tmp_path / "folder").mkdir()
    small_set(tmp_path / "folder" / "test.npz", 1)
    for own in ("own.npz", "folder"):
        assert run(words, tmp_path / own, *places) == 1
        assert f"{own} has no val of its own" in capsys.readouterr().err
    assert not (tmp_path / "s").exists()


def test_the_order_of_values_does_not_matter() -> None:
    scale = EXPERIMENTS["strong-attack"].scales["cpu"]
    one, other = (
        resized(scale, {"lams": lams, "budgets": budgets})
        for lams, budgets in (("0,0.4", "0.1,1"), ("0.4,0,0.4", "1,0.1"))
    )
    assert one == other


ROWS = [{"id": 0, "label": 1, "prediction": 1, "sigma": 0.25}]


def test_unfinished_work_of_others_stays(tmp_path: Path) -> None:
    """A smaller run into the same folder ends without what a larger one has begun."""
    evidence = Evidence()
    close = resume(evidence, tmp_path, {"sizes": "large"})
    partial = outcomes_of("predict", ROWS, "a")
    evidence.runs["a"] = partial
    evidence.facts["clip"] = 1
    evidence.kept()
    other = Evidence()
    close = resume(other, tmp_path, {"sizes": "small"})
    other.runs["b"] = partial
    other.kept()
    close()
    assert set(read_records(tmp_path / "unfinished.csv.gz")) == {"a"}
    again = Evidence()
    close = resume(again, tmp_path, {"sizes": "large"})
    assert again.facts == {"clip": 1}
    again.runs["a"] = partial
    close()
    assert not list(tmp_path.iterdir())


def test_lambdas_that_are_asked_for_are_used_at_every_level() -> None:
    scale = EXPERIMENTS["weak-attack"].scales["cpu"]
    chosen = resized(scale, {"lams": "0.1", "sigmas": "0.5"})
    assert chosen.lams_of(0.5) == (0.1,)
    assert resized(scale, {"lams": "0.1", "few_lams": "0.3"}).lams_of(0.5) == (0.3,)
    assert scale.lams_of(0.5) == (0.0, 0.2, 0.4)
