"""The attack experiments end to end at a tiny scale, and their numbers from the records."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import nn

from reproduce.__main__ import EXPERIMENTS, build_parser
from reproduce.attacks import Attacks, AttackScale
from reproduce.comparisons import (
    Committed,
    both,
    compare,
    excess_kurtosis,
    last_minus_first,
    moved,
    universal_gain,
)
from reproduce.harness import Context
from reproduce.records import read_records
from reproduce.scales import Need
from reproduce.statistics import pooled
from tests.reproduce.commands import lines_of, results, run, sized
from tests.small_models import write_pair
from varsmooth.bounds import Floats
from varsmooth.data import load_dataset
from varsmooth.models.checkpoints import load_checkpoint, save
from varsmooth.models.descriptions import Description, Part
from varsmooth.models.networks import AttentionSelector, Conv4
from varsmooth.selectors import FixedSelector
from varsmooth.smoothing import SmoothedClassifier

TINY = (
    "--images 8 --steps 2 --samples 2 --n-median-attack 3 --selector-samples 1 --n 15 --n-median 5"
)
FIXED = f"{TINY} --lams 0,0.4 --few-lams 0.2 --every-lam 0.25 --multiples 1,2"
"""Sizes that take seconds."""

SEEDS = {"0.12": 8, "0.25": 7, "0.50": 2, "universal-0.25": 1, "universal-1.00": 1}
"""Of untrained models that are sometimes right, and that attacks of the budgets below mislead."""

Right = NDArray[np.bool_]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Embedded images in two classes, faded until they are close enough for small attacks."""
    folder = tmp_path_factory.mktemp("data")
    pixels = load_dataset("cifar10-sample").images[:9].astype(float)
    faded = (0.8 * pixels[8] + 0.2 * pixels[:8]).round().astype(np.uint8)
    for number, image in enumerate(faded):
        for split in ("test", "val"):
            place = folder / split / ("even", "odd")[number % 2]
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(place / f"{number}.png")
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    """Untrained pairs of three fixed levels and two ranges of levels, undecided about the data."""
    folder = tmp_path_factory.mktemp("models")
    for level, seed in SEEDS.items():
        write_model(folder / f"h-{level}", level, data, seed)
    return folder


def write_model(folder: Path, level: str, data: Path, seed: int) -> None:
    torch.manual_seed(seed)
    kind, _, text = level.rpartition("-")
    sigma, trained_sigma = float(text), float(text) / (2 if kind else 1)
    options = {"widths": [8, 8, 8, 8], "classes": 2, "conditional": bool(kind)}
    classifier = Conv4(classes=2, widths=(8, 8, 8, 8), conditional=bool(kind))
    selector = AttentionSelector()
    nn.init.normal_(selector.output.weight, std=0.3)
    g = SmoothedClassifier(classifier, FixedSelector(trained_sigma))
    x = load_dataset(str(data)).batch(slice(None)).images.repeat(16, 1, 1, 1)
    noisy = x + trained_sigma * torch.randn(x.shape)
    with torch.no_grad():
        classifier.linear.weight *= 1000
        middle = g.logits(noisy, g.selector(x)).view(16, 8, 2).mean(dim=0).median(dim=0).values
        classifier.linear.bias.sub_(middle)
    description = Description(
        dataset="cifar10",
        class_names=("even", "odd"),
        sigma_a=sigma,
        universal=bool(kind),
        selector_sigma=trained_sigma,
        recommended={"lam": 0.2, "clip": [0.1, 0.5], "levels": 4},
        classifier=Part("conv4", options),
        selector=Part("attention"),
    )
    save(folder, description, classifier=classifier, selector=selector)


def test_records_stand_for_their_runs_on_another_machine(
    tmp_path: Path, models: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An experiment repeats no run that a result beside it holds, finished or not."""
    out, command = tmp_path / "weak-attack", f"weak-attack {FIXED} --data {data} --models {models}"
    attacked: list[str] = []
    original = Context.execute

    def attack(self: Context, verb: Any, name: str, *rest: Any) -> Any:
        if len(attacked) == 2 and "σ_a = 0.12" in name:
            raise KeyboardInterrupt
        attacked.append(name)
        return original(self, verb, name, *rest)

    monkeypatch.setattr(Context, "execute", attack)
    assert run(f"{command} --sigmas 0.25 --store {tmp_path / 'one'} --out {out}") == 0
    of_one, lines = len(attacked), lines_of(out)
    attacked.clear()
    both = f"{command} --sigmas 0.12,0.25 --out {out} --store"
    assert run(both, tmp_path / "two") == 130
    assert len(attacked) == 2
    assert all("σ_a = 0.12" in name for name in attacked)
    assert lines_of(out) == lines  # the committed result is as it was
    unfinished = out / "unfinished.csv.gz"
    first, first_keys = list(attacked), set(read_records(unfinished))
    attacked.pop()  # one more run, of a σ_s that comes before the others
    assert run(both.replace("--multiples 1,2", "--multiples 0.5,1,2"), tmp_path / "half") == 130
    of_half = set(read_records(unfinished)) - first_keys
    assert of_half
    attacked[:] = [*first, "the third may run now"]
    assert run(both, tmp_path / "three") == 0
    later = attacked[3:]
    assert later, "nothing was left to do"
    assert not set(later) & set(first)
    assert all("σ_a = 0.12" in name for name in later)
    assert set(read_records(unfinished)) <= of_half  # what only the other sizes need
    whole = tmp_path / "apart" / "whole"
    assert run(f"{command} --sigmas 0.12,0.25 --store {tmp_path / 'four'} --out {whole}") == 0
    for path in whole.iterdir():
        assert path.read_bytes() == (out / path.name).read_bytes(), path.name
    attacked.clear()
    strong = f"{command.replace('weak', 'strong')} --sigmas 0.25 --budgets 0.3"
    assert run(f"{strong} --store {tmp_path / 'six'} --out {tmp_path / 'strong-attack'}") == 0
    assert attacked  # the strong ones
    again = [name for name in attacked if "weak attack" in name]
    assert all(name.startswith("g_v*,") for name in again)  # which the weak attack left out
    attacked.clear()
    fewer = command.replace("--steps 2", "--steps 1")
    assert run(f"{fewer} --sigmas 0.25 --store {tmp_path / 'five'} --out {tmp_path / 'few'}") == 0
    assert len(attacked) == of_one  # other settings, other runs


class Result:
    """A results folder: configuration, and which images are right in each run."""

    def __init__(self, folder: Path) -> None:
        self.config, self.lines = results(folder)

    def clean(self, *parts: str) -> Right:
        return self._right("clean_prediction", parts)

    def robust(self, *parts: str) -> Right:
        """Right before and under the attack."""
        return self._right("prediction", parts) & self.clean(*parts)

    def column(self, name: str, *parts: str) -> Floats:
        return np.array([float(line[name]) for line in self._run(parts)])

    def shifts(self, *parts: str) -> Floats:
        """How far the attack moved σ_s of each image."""
        return np.abs(self.column("sigma", *parts) / self.column("clean_sigma", *parts) - 1)

    def _right(self, column: str, parts: tuple[str, ...]) -> Right:
        return np.array([line[column] == line["label"] for line in self._run(parts)])

    def _run(self, parts: tuple[str, ...]) -> list[dict[str, str]]:
        mine = [line for line in self.lines if line["run"] == ", ".join(parts)]
        assert len(mine) == 8, f"{parts} is not one run of 8 images"
        return mine


class Laboratory:
    """Runs experiments on the models and the data of this file, in one store."""

    def __init__(self, models: Path, data: Path, store: Path) -> None:
        self.models, self.data, self.store = models, data, store

    def __call__(self, words: str, out: Path) -> Result:
        places = ("--models", self.models, "--store", self.store, "--out", out)
        name, _, sizes = words.partition(" ")
        assert run(f"{name} --data {self.data} {sizes}", *places) == 0
        return Result(out)


@pytest.fixture(scope="module")
def experiment(models: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Laboratory:
    return Laboratory(models, data, tmp_path_factory.mktemp("store"))


WEAK = ("γ = 2", "weak attack")
STRONG = ("γ = 2", "strong attack")


def test_weak_attack(tmp_path: Path, experiment: Laboratory) -> None:
    result = experiment(f"weak-attack {FIXED} --eps 2 --sigmas 0.25,0.5", tmp_path)
    ours, theirs = "g_v, σ_a = {s:g}, λ = {l:g}, ", "g, σ_a = {s:g}, σ_s = {s:g}, "
    gains = compare(ours + ON_F, theirs + ON_F, budgets=(2.0,))(Committed(tmp_path))
    assert set(gains) == {"σ_a = 0.25, λ = 0", "σ_a = 0.25, λ = 0.4", "σ_a = 0.5, λ = 0.2"}
    for title, gap in gains.items():
        sigma, lam = title.split(", ")
        base = result.robust("g", sigma, sigma.replace("σ_a", "σ_s"), *WEAK)
        expected = result.robust("g_v", sigma, lam, *WEAK).mean() - base.mean()
        assert pooled([gap]).value == pytest.approx(expected)
    assert any(gap.values.any() for gap in gains.values())  # or zeros would be compared
    attacked = result.clean("g_v", "σ_a = 0.5", "λ = 0.2", *WEAK)
    shifts = result.shifts("g_v", "σ_a = 0.5", "λ = 0.2", *WEAK)
    assert 0 < attacked.sum() < len(attacked)  # images that are wrong anyway are not attacked
    change = moved("g_v", "weak", (2.0,))(Committed(tmp_path))["σ_a = 0.5, λ = 0.2"]
    assert change.values.mean() == pytest.approx(shifts[attacked].mean())
    assert {"weak-attack.png", "weak-attack.svg", "weak-attack.md", "weak-attack.csv"} <= {
        path.name for path in tmp_path.iterdir()
    }
    for text in ("PGD steps: 2 (paper: 200)", "test images: 8 (full", "σ_a with every λ: 0.25"):
        assert text in (tmp_path / "weak-attack.md").read_text()


ON_F = "γ = {e:g}, weak attack"


def test_strong_attack(tmp_path: Path, experiment: Laboratory) -> None:
    """A difference of differences: what the strong attack takes, of g_v and of g_v*."""
    result = experiment(f"strong-attack {FIXED} --budgets 0.5,2 --sigmas 0.25", tmp_path)
    runs = {m: f"{m}, σ_a = {{s:g}}, λ = {{l:g}}, γ = 2, " for m in ("g_v", "g_v*")}
    drops = {
        m: compare(run + "weak attack", run + "strong attack", budgets=(2.0,))
        for m, run in runs.items()
    }
    less = both(drops["g_v"], drops["g_v*"])(Committed(tmp_path))
    for lam in ("0", "0.4"):
        drop = {
            m: result.robust(m, "σ_a = 0.25", f"λ = {lam}", *WEAK).mean()
            - result.robust(m, "σ_a = 0.25", f"λ = {lam}", *STRONG).mean()
            for m in runs
        }
        gap = less[f"σ_a = 0.25, λ = {lam}"]
        assert pooled([gap]).value == pytest.approx(drop["g_v"] - drop["g_v*"])
    table = (tmp_path / "strong-attack.md").read_text()
    assert all(f"| {method} |" in table for method in ("g", "g_v", "g_v*"))


def test_strong_attack_on_g_v_alone(tmp_path: Path, experiment: Laboratory) -> None:
    """For an h that was trained without the median."""
    words = f"strong-attack {FIXED} --budgets 2 --sigmas 0.25 --methods g_v"
    result = experiment(words, tmp_path)
    assert {line["run"].split(",")[0] for line in result.lines} == {"g", "g_v"}
    assert "robust accuracy of g_v minus that of g at" in (tmp_path / "README.md").read_text()


def test_clipping(tmp_path: Path, experiment: Laboratory) -> None:
    words = f"clipping {FIXED} --eps 2 --held-out 4 --held-out-draws 5 --sigmas 0.25"
    result = experiment(words, tmp_path)
    for lam in ("0", "0.4"):
        low, high = result.config["facts"][f"clip, σ_a = 0.25, λ = {lam}"]
        clipped = result.column("clean_sigma", "g_v*, clipped", "σ_a = 0.25", f"λ = {lam}", *STRONG)
        free = result.column("clean_sigma", "g_v*", "σ_a = 0.25", f"λ = {lam}", *STRONG)
        assert clipped == pytest.approx(np.clip(free, low, high), rel=1e-6)
        assert (clipped != free).any()
    levels = {line["run"] for line in result.lines if line["run"].endswith("no attack")}
    assert levels == {f"g_v*, σ_a = 0.25, λ = {lam}, no attack" for lam in ("0.1", "0.2")}


def test_matched(tmp_path: Path, experiment: Laboratory) -> None:
    """g stands at the mean level of what it is compared with; Table 2 clips as it says."""
    words = f"matched {TINY} --budgets 2 --lams 0,0.4 --few-lams 0.2 --every-lam 0.25"
    more = "--strong-lams 0.2 --universal-lams 0.1 --universal 1 --sigmas 0.25,0.5"
    more += " --ranges 0.25 --range-budgets 2"
    result = experiment(f"{words} {more}", tmp_path)
    facts = {name: value for name, value in result.config["facts"].items() if "mean" in name}
    assert len(facts) == 3 + 2 + 1 + 1
    for name, level in facts.items():
        method, model, lam, kind = name.removeprefix("mean σ_s of ").split(", ")
        learned = result.column("clean_sigma", method, model, lam, "γ = 2", kind)
        assert level == pytest.approx(learned.mean(), rel=1e-6)
        rival = result.column("clean_sigma", "g", model, f"σ_s = {level:g}", "γ = 2", kind)
        assert rival == pytest.approx(level, rel=1e-6)
    for sigma, lam, clip in ((0.25, 0.0, (0.16, 0.24)), (0.5, 0.0, (0.34, 0.48))):
        free = result.column("sigma", "g_v*", f"σ_a = {sigma:g}", f"λ = {lam:g}", "no attack")
        inside = (free > clip[0]).all() and (free < clip[1]).all()
        clipped = f"g_v*, clipped, σ_a = {sigma:g}, λ = {lam:g}, γ = 2, strong attack"
        end = [f"g, σ_a = {sigma:g}, σ_s = {level:g}, γ = 2, strong attack" for level in clip]
        assert inside or any(line["run"] in (clipped, *end) for line in result.lines)
    assert (
        "| g_v*, strong attack, γ = 2 | σ_a = 0.5 | 0.2 |" in (tmp_path / "matched.md").read_text()
    )


def test_universal(tmp_path: Path, experiment: Laboratory) -> None:
    words = f"universal {FIXED} --eps 0.3 --sigmas 0.12,0.5 --universal-lams 0,0.2 --levels 0.25"
    result = experiment(words, tmp_path)
    gains = universal_gain("g", "clean_correct", (0.12, 0.5))(Committed(tmp_path))
    for title, gap in gains.items():
        level, attack = title.replace("σ_a", "σ_s"), ("γ = 0.3", "strong attack")
        one = result.clean("g", "σ_a′ = 1", level, *attack)
        other = result.clean("g", title, level, *attack)
        assert pooled([gap]).value == pytest.approx(one.mean() - other.mean())
    grown = last_minus_first(lambda _: gains)(Committed(tmp_path))
    (change,) = (pooled([gap]).value for gap in grown.values())
    first, last = (pooled([gap]).value for gap in gains.values())
    assert change == pytest.approx(last - first)
    (near,) = universal_gain("g_v*", "correct", (0.12,))(Committed(tmp_path)).values()
    levels = {
        lam: abs(result.column("clean_sigma", "g_v*", "σ_a′ = 1", lam, *attack).mean() - 0.12)
        for lam in ("λ = 0", "λ = 0.2")
    }
    mine = result.robust("g_v*", "σ_a′ = 1", min(levels, key=lambda lam: levels[lam]), *attack)
    other = result.robust("g_v*", "σ_a = 0.12", "λ = 0.2", *attack)
    assert pooled([near]).value == pytest.approx(mine.mean() - other.mean())


def test_universal_extended(tmp_path: Path, experiment: Laboratory) -> None:
    words = f"universal-extended {TINY} --sigmas 0.25 --budgets 0.1,0.5 --multiples 1 --lams 0,0.5"
    result = experiment(f"{words} --far-lams 0,0.9", tmp_path)
    at = ("σ_a′ = 0.25", "λ = 0.9", "γ = 0.5", "strong attack")
    assert len(result.robust("g_v*", *at)) == 8  # the further sweep is that of σ_a′ = 0.25, γ = 0.5
    result.robust("g", "σ_a = 0.12", "σ_s = 0.12", "γ = 0.1", "strong attack")
    assert (
        "| σ_a = 0.12 | 0.5 | g_v* | λ = 0.9 |" in (tmp_path / "universal-extended.md").read_text()
    )


def test_the_selector_under_attack_is_the_papers(experiment: Laboratory) -> None:
    """No clip, no grid, σ_m = σ_a, whatever the description recommends."""
    scale = sized(AttackScale(), "strong-attack", f"{TINY} --data {experiment.data}")
    context = Context(experiment.store, models=experiment.models)
    point = Attacks(context, scale, 0.3).g_v_star(Need.fixed(0.25, selector=True), 0.4)
    about = point.outcomes.header["selector"]
    assert (about["sigma_m"], about["levels"], about["n"]) == (0.25, None, 5)
    assert about["inner"] == {"selector": "learned", "sigma_a": 0.25, "lam": 0.4}
    levels = np.unique(point.outcomes.clean_sigmas)
    assert len(levels) == 8  # no two images were snapped to one level
    low, high = about["clip"]
    assert low < levels.min() / 5
    assert high > levels.max() * 5


def test_a_run_at_a_fixed_level_does_not_wait_for_a_selector(tmp_path: Path) -> None:
    """The run of g alone is reused after h was trained for the same f."""
    scale = sized(AttackScale(), "strong-attack", f"{TINY} --data cifar10-sample")
    write_pair(tmp_path / "h-0.25")
    pair = load_checkpoint(tmp_path / "h-0.25")
    alone = replace(pair.description, selector=None, selector_sigma=None, recommended={})
    save(tmp_path / "alone" / "f-0.25", alone, classifier=pair.classifier)
    folders = [
        Attacks(Context(tmp_path / "store", models=models), scale, 0.3)
        .g(Need.fixed(0.25), 0.25)
        .outcomes.header["config"]["model"]
        for models in (tmp_path / "alone", tmp_path)
    ]
    assert folders[0] == folders[1]  # one run, begun by the first model
    assert len(list((tmp_path / "store" / "runs").iterdir())) == 1


def test_sizes_without_a_use_are_neither_options_nor_in_captions(
    tmp_path: Path, experiment: Laboratory, capsys: pytest.CaptureFixture[str]
) -> None:
    for each in EXPERIMENTS.values():
        for scale in each.scales.values():
            assert set(scale.unused) <= {entry.name for entry in fields(scale)}
    with pytest.raises(SystemExit):
        build_parser().parse_args(["weak-attack", "--samples", "4"])
    assert "--samples" in capsys.readouterr().err
    result = experiment(f"weak-attack {FIXED} --eps 2 --sigmas 0.25", tmp_path)
    page = (tmp_path / "weak-attack.md").read_text()
    assert "PGD steps: 2" in page
    assert "EOT" not in page
    assert "samples" in result.config["sizes"]  # at its default, which nothing reads


def test_excess_kurtosis_of_a_mixture() -> None:
    """Against the fourth moment of noise that was drawn, and its error against resampling."""
    rng = np.random.default_rng(0)
    sigmas = rng.uniform(0.1, 0.4, 400)
    noise = (sigmas[:, None] * rng.standard_normal((400, 5000))).ravel()
    kurtosis = (noise**4).mean() / (noise**2).mean() ** 2 - 3
    kurtoses = excess_kurtosis(sigmas)
    assert kurtoses.mean() == pytest.approx(kurtosis, abs=0.03)
    again = [excess_kurtosis(rng.choice(sigmas, 400)).mean() for _ in range(2000)]
    assert kurtoses.std() / 400**0.5 == pytest.approx(np.std(again), rel=0.1)
    assert not excess_kurtosis(np.full(5, 0.25)).any()


@pytest.mark.parametrize(
    "name", ["weak-attack --eps 2", "strong-attack --budgets 2", "clipping --eps 2 --held-out 4"]
)
def test_one_level_may_have_more_images(name: str, tmp_path: Path, experiment: Laboratory) -> None:
    words = FIXED.replace("--images 8", "--images 4")
    result = experiment(f"{name} {words} --sigmas 0.25,0.5 --closer 2", tmp_path)
    runs = [line["run"] for line in result.lines]
    counts = {run: runs.count(run) for run in runs}
    assert {count for run, count in counts.items() if "σ_a = 0.25" in run} == {8}
    assert {count for run, count in counts.items() if "σ_a = 0.5" in run} == {4}
