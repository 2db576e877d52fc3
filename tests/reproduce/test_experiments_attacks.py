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
from reproduce.arenas import Arena, Attacks, AttackScale, Point
from reproduce.harness import Context, Need
from reproduce.records import read_records
from reproduce.robustness import (
    DOUBLED,
    Budget,
    Model,
    drop_claims,
    excess_kurtosis,
    selector_claims,
)
from reproduce.universal import universal_claims
from tests.reproduce.commands import lines_of, results, run, sized
from tests.small_models import write_pair
from varsmooth.bounds import Floats
from varsmooth.data import load_dataset
from varsmooth.evaluation import attack
from varsmooth.evaluation.report.outcomes import Outcomes
from varsmooth.evaluation.report.statistics import PairedDifference
from varsmooth.models.checkpoints import load_checkpoint, save
from varsmooth.models.descriptions import Description, Part
from varsmooth.models.networks import AttentionSelector, Conv4
from varsmooth.selectors import FixedSelector
from varsmooth.smoothing import SmoothedClassifier

TINY = (
    "--images 8 --steps 2 --samples 2 --n-median-attack 3 --selector-samples 1 --n 15 --n-median 5 "
    "--choice 4"
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
    sigma, told = float(text), float(text) / (2 if kind else 1)
    options = {"widths": [8, 8, 8, 8], "classes": 2, "conditional": bool(kind)}
    classifier = Conv4(classes=2, widths=(8, 8, 8, 8), conditional=bool(kind))
    selector = AttentionSelector()
    nn.init.normal_(selector.output.weight, std=0.3)
    g = SmoothedClassifier(classifier, FixedSelector(told))
    x = load_dataset(str(data)).batch(slice(None)).images.repeat(16, 1, 1, 1)
    noisy = x + told * torch.randn(x.shape)
    with torch.no_grad():
        classifier.linear.weight *= 1000
        middle = g.logits(noisy, g.selector(x)).view(16, 8, 2).mean(dim=0).median(dim=0).values
        classifier.linear.bias.sub_(middle)
    description = Description(
        dataset="cifar10",
        class_names=("even", "odd"),
        sigma_a=sigma,
        universal=bool(kind),
        selector_sigma=told,
        recommended={"lam": 0.2, "clip": [0.1, 0.5], "levels": 4},
        classifier=Part("conv4", options),
        selector=Part("attention"),
    )
    save(folder, description, classifier=classifier, selector=selector)


def test_records_stand_for_their_runs_on_another_machine(
    tmp_path: Path, models: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An experiment repeats no run that a result beside it holds, finished or not."""
    out, asked = tmp_path / "weak-attack", f"weak-attack {FIXED} --data {data} --models {models}"
    attacked: list[str] = []
    original = Context.attack

    def attack(self: Context, name: str, *rest: Any) -> Any:
        if len(attacked) == 3 and "σ_a = 0.12" in name:
            raise KeyboardInterrupt
        attacked.append(name)
        return original(self, name, *rest)

    monkeypatch.setattr(Context, "attack", attack)
    assert run(f"{asked} --sigmas 0.25 --store {tmp_path / 'one'} --out {out}") == 0
    of_one, lines = len(attacked), lines_of(out)
    attacked.clear()
    both = f"{asked} --sigmas 0.12,0.25 --out {out} --store"
    assert run(both, tmp_path / "two") == 130
    assert len(attacked) == 3
    assert all("σ_a = 0.12" in name for name in attacked)
    assert lines_of(out) == lines  # the committed result is as it was
    unfinished = out / "unfinished.csv.gz"
    first, begun = list(attacked), set(read_records(unfinished))
    attacked.pop()  # one more run, of a σ_s that comes before the others
    assert run(both.replace("--multiples 1,2", "--multiples 0.5,1,2"), tmp_path / "half") == 130
    of_half = set(read_records(unfinished)) - begun
    assert of_half
    attacked[:] = [*first, "the fourth may run now"]
    assert run(both, tmp_path / "three") == 0
    later = attacked[4:]
    assert later, "nothing was left to do"
    assert not set(later) & set(first)
    assert all("σ_a = 0.12" in name for name in later)
    assert set(read_records(unfinished)) <= of_half  # what only the other sizes need
    whole = tmp_path / "apart" / "whole"
    assert run(f"{asked} --sigmas 0.12,0.25 --store {tmp_path / 'four'} --out {whole}") == 0
    for path in whole.iterdir():
        assert path.read_bytes() == (out / path.name).read_bytes(), path.name
    attacked.clear()
    strong = f"{asked.replace('weak', 'strong')} --sigmas 0.25 --budgets 0.3"
    assert run(f"{strong} --store {tmp_path / 'six'} --out {tmp_path / 'strong-attack'}") == 0
    assert attacked  # the strong ones
    again = [name for name in attacked if "weak attack" in name]
    assert all(name.startswith("g_v*,") for name in again)  # which the weak attack left out
    attacked.clear()
    fewer = asked.replace("--steps 2", "--steps 1")
    assert run(f"{fewer} --sigmas 0.25 --store {tmp_path / 'five'} --out {tmp_path / 'few'}") == 0
    assert len(attacked) == of_one  # other settings, other runs


class Found:
    """A results folder: configuration, claims, and which images are right in each run."""

    def __init__(self, folder: Path) -> None:
        self.config, self.claims, self.lines = results(folder)

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

    def __call__(self, words: str, out: Path) -> Found:
        places = ("--models", self.models, "--store", self.store, "--out", out)
        name, _, sizes = words.partition(" ")
        assert run(f"{name} --data {self.data} {sizes}", *places) == 0
        return Found(out)


@pytest.fixture(scope="module")
def experiment(models: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Laboratory:
    return Laboratory(models, data, tmp_path_factory.mktemp("store"))


WEAK = ("γ = 2", "weak attack")
STRONG = ("γ = 2", "strong attack")


def test_weak_attack(tmp_path: Path, experiment: Laboratory) -> None:
    found = experiment(f"weak-attack {FIXED} --eps 2 --sigmas 0.25,0.5", tmp_path)
    better, chosen, larger, unmoved = found.claims
    gains = []
    for sigma, knobs in (("0.25", ("0", "0.4")), ("0.5", ("0.2",))):
        base = found.robust("g", f"σ_a = {sigma}", f"σ_s = {sigma}", *WEAK)
        robust = [found.robust("g_v", f"σ_a = {sigma}", f"λ = {k}", *WEAK) for k in knobs]
        gains.append(max(right.mean() for right in robust) - base.mean())
    assert any(gains)  # or the rest would compare zeros
    assert list(better["numbers"].values()) == pytest.approx(gains)
    assert list(larger["numbers"].values()) == pytest.approx([gains[1] - gains[0]])
    assert chosen["verdict"] != "untested"
    attacked = found.clean("g_v", "σ_a = 0.5", "λ = 0.2", *WEAK)
    shifts = found.shifts("g_v", "σ_a = 0.5", "λ = 0.2", *WEAK)
    assert 0 < attacked.sum() < len(attacked)  # images that are wrong anyway are not attacked
    assert unmoved["numbers"]["σ_a = 0.5"] == pytest.approx(-shifts[attacked].mean())
    assert {"weak-attack.png", "weak-attack.svg", "weak-attack.md", "weak-attack.csv"} <= {
        path.name for path in tmp_path.iterdir()
    }
    for said in ("PGD steps: 2 (paper: 200)", "test images: 8 (full", "σ_a with every λ: 0.25"):
        assert said in (tmp_path / "weak-attack.md").read_text()


def test_one_model_cannot_show_a_trend(tmp_path: Path, experiment: Laboratory) -> None:
    found = experiment(f"weak-attack {FIXED} --eps 2 --sigmas 0.25", tmp_path)
    assert found.claims[2]["verdict"] == "untested"


def test_strong_attack(tmp_path: Path, experiment: Laboratory) -> None:
    found = experiment(f"strong-attack {FIXED} --budgets 0.5,2 --sigmas 0.25", tmp_path)
    drops, selectors, lambdas = found.claims[:7], found.claims[7:11], found.claims[11:]
    stronger, alone, drop, less, larger, better, cost = drops
    title, lams = "σ_a = 0.25", ("0", "0.4")

    def names(method: str, eps: str, kind: str) -> list[tuple[str, ...]]:
        knobs = ["σ_s = 0.25"] if method == "g" else [f"λ = {lam}" for lam in lams]
        return [(method, title, knob, f"γ = {eps}", f"{kind} attack") for knob in knobs]

    def fell(method: str, eps: str) -> float:
        weak, strong = (
            np.mean([found.robust(*name) for name in names(method, eps, kind)])
            for kind in ("weak", "strong")
        )
        return float(weak - strong)

    assert stronger["numbers"] == pytest.approx(
        {f"{method}, {title}": fell(method, "2") for method in ("g", "g_v", "g_v*")}
    )
    assert any(stronger["numbers"].values())
    assert alone["numbers"] == pytest.approx({f"g_v, {title}": fell("g_v", "2")})
    assert drop["numbers"] == pytest.approx({title: fell("g_v", "2") - fell("g", "2")})
    excess = {eps: fell("g_v", eps) - fell("g_v*", eps) for eps in ("0.5", "2")}
    assert any(excess.values())
    assert less["numbers"] == pytest.approx({f"{title}, γ = {e}": x for e, x in excess.items()})
    assert larger["numbers"] == pytest.approx({title: excess["2"] - excess["0.5"]})
    star, plain = (
        np.mean([found.robust(*name) for name in names(method, "2", "strong")])
        for method in ("g_v*", "g_v")
    )
    assert better["numbers"][f"{title}, γ = 2"] == pytest.approx(star - plain)
    paid = np.mean(
        [
            found.clean(*one).mean() - found.clean(*other).mean()
            for one, other in zip(
                names("g_v", "2", "strong"), names("g_v*", "2", "strong"), strict=True
            )
        ]
    )
    assert cost["numbers"] == pytest.approx(
        {title: paid, f"{title}, 5 points minus this": 0.05 - paid}
    )

    def shifted(method: str, eps: str, *others: tuple[str, ...]) -> float:
        """Mean over the images that were attacked in these runs and in some others."""
        mine = names(method, eps, "strong")
        attacked = np.all([found.clean(*name) for name in [*mine, *others]], axis=0)
        return float(np.mean([found.shifts(*name)[attacked] for name in mine]))

    reached, defended, further, far = selectors
    assert reached["numbers"][f"{title}, γ = 2"] == pytest.approx(shifted("g_v", "2"))
    both = [names(method, "2", "strong") for method in ("g_v", "g_v*")]
    less_moved = shifted("g_v", "2", *both[1]) - shifted("g_v*", "2", *both[0])
    assert defended["numbers"][f"{title}, γ = 2"] == pytest.approx(less_moved)
    assert further["numbers"] == pytest.approx(
        {f"{title}, γ = 2 − 0.5": shifted("g_v*", "2") - shifted("g_v*", "0.5")}
    )
    assert far["numbers"] == pytest.approx({f"{title}, γ = 2": shifted("g_v*", "2")})
    normal, smaller, traded = lambdas
    first, last = names("g_v*", "2", "strong")
    ends = f"{title}, λ = 0 and λ = 0.4"
    robuster = found.robust(*last).mean() - found.robust(*first).mean()
    assert traded["numbers"] == pytest.approx(
        {
            f"{ends}, clean": found.clean(*first).mean() - found.clean(*last).mean(),
            f"{ends}, robust": robuster,
        }
    )
    tails = [excess_kurtosis(found.column("clean_sigma", *one)).mean() for one in (first, last)]
    assert normal["numbers"] == pytest.approx({ends: tails[0] - tails[1]})
    wider = found.column("clean_sigma", *last).mean() - found.column("clean_sigma", *first).mean()
    assert smaller["numbers"] == pytest.approx(
        {f"{ends}, σ_s / σ_a": wider / 0.25, f"{ends}, robust": robuster}
    )


def point(method: str, right: int, of: int = 8, sigma: float = 0.25) -> Point:
    """A point that is right without attack, and on so many images under it."""
    header = {"name": method, "verb": "attack", "config": {}, "dataset": {"size": of}}
    rows = [
        {
            "id": i,
            "label": 0,
            "eps": 0.3,
            "prediction": int(i >= right),
            "clean_prediction": 0,
            "sigma": sigma,
            "sigma_clean": sigma,
        }
        for i in range(of)
    ]
    return Point(method, "0.25", "λ = 0", 0.3, Outcomes.of(header, rows))


def test_what_any_smoothing_loses_to_the_strong_attack_is_no_fault_of_h() -> None:
    methods = {name: [point(name, right)] for name, right in (("g_v", 4), ("g_v*", 5))}
    at = Arena("σ_a = 0.25", point("g", 6), methods)
    weak = {name: [point(name, 8)] for name in ("g", "g_v", "g_v*")}
    models = [Model(0.25, [Budget(at, weak)])]
    stronger, _, drop, less, *_ = drop_claims(models, "one h")
    reached, defended, further, far = selector_claims(models, "one h")
    assert stronger.numbers == {
        "g, σ_a = 0.25": 2 / 8,
        "g_v, σ_a = 0.25": 4 / 8,
        "g_v*, σ_a = 0.25": 3 / 8,
    }
    assert reached.numbers == {"σ_a = 0.25, γ = 0.3": 0.0}  # σ_s is where it was
    assert reached.verdict == "refuted"
    assert defended.numbers == {"σ_a = 0.25, γ = 0.3": 0.0}
    assert defended.verdict == "trivial"  # there is nothing to defend
    assert further.verdict == "untested"  # one γ
    assert far.verdict == "refuted"
    assert drop.numbers == {"σ_a = 0.25": (8 - 4) / 8 - (8 - 6) / 8}
    assert less.numbers == {"σ_a = 0.25, γ = 0.3": 1 / 8}


def test_clipping(tmp_path: Path, experiment: Laboratory) -> None:
    words = f"clipping {FIXED} --eps 2 --held-out 5 --held-out-draws 11 --sigmas 0.25"
    found = experiment(words, tmp_path)
    better, best_g, chosen, effective, defended, alike, centre, width = found.claims
    title = "σ_a = 0.25"
    about = (title, "σ_s = 0.25", *STRONG)
    base_clean, base = found.clean("g", *about), found.robust("g", *about)
    settings = [
        [
            gap
            for method in ("g_v*", "g_v*, clipped")
            for gap in (
                float(found.clean(method, title, f"λ = {lam}", *STRONG).mean() - base_clean.mean()),
                float(found.robust(method, title, f"λ = {lam}", *STRONG).mean() - base.mean()),
            )
        ]
        for lam in ("0", "0.4")
    ]
    best = max(settings, key=lambda gaps: (min(gaps), sum(gaps)))
    for claim in (better, best_g):  # four differences at one λ, and perhaps the one that decides
        assert len(claim["numbers"]) in (4, 5)
    assert list(better["numbers"].values())[:4] == pytest.approx(best)
    attacked = found.clean("g_v*", title, "λ = 0", *STRONG) & found.clean(
        "g_v*, clipped", title, "λ = 0", *STRONG
    )
    bare, bounded = (
        found.shifts(method, title, "λ = 0", *STRONG)[attacked].mean()
        for method in ("g_v*", "g_v*, clipped")
    )
    assert defended["numbers"][f"{title}, λ = 0"] == pytest.approx(bare - bounded)
    clipped = found.robust("g_v*, clipped", title, "λ = 0.4", *STRONG)
    gap = PairedDifference.of(clipped, found.robust("g_v*", title, "λ = 0.4", *STRONG))
    assert alike["numbers"][f"{title}, λ = 0.4"] == pytest.approx(gap.value)
    assert effective["numbers"] == alike["numbers"]
    assert "5 not run" in centre["number"]  # Table 2 has eight rows, three of σ_a = 0.25
    unattacked = [
        line for line in found.lines if line["run"] == f"g_v*, {title}, λ = 0.2, no attack"
    ]
    low, high = np.percentile([float(line["sigma"]) for line in unattacked], [5, 95])
    assert centre["numbers"][f"{title}, λ = 0.2"] == pytest.approx((low + high) / 2)
    thresholds = (tmp_path / "clip-thresholds.csv").read_text().splitlines()[1].split(",")
    low, high = map(float, thresholds[-2:])
    sigmas = [
        float(line[column])
        for line in found.lines
        if line["run"].startswith("g_v*, clipped, σ_a = 0.25, λ = 0,")
        for column in ("sigma", "clean_sigma")
    ]
    assert low - 1e-6 <= min(sigmas)
    assert max(sigmas) <= high + 1e-6
    assert "0.16, 0.24" in (tmp_path / "clip-thresholds.md").read_text()
    free = [
        float(line["clean_sigma"])
        for line in found.lines
        if line["run"] == ", ".join(("g_v*", title, "λ = 0", *STRONG))
    ]
    low, high = np.percentile(free, [5, 95])
    assert centre["numbers"][f"{title}, λ = 0"] == pytest.approx((low + high) / 2)
    assert width["numbers"][f"{title}, λ = 0"] == pytest.approx(2 * (high - low) / (high + low))
    assert chosen["verdict"] != "untested"


def test_a_gain_that_grows_is_that_of_the_universal_classifier() -> None:
    """f_u is compared with each f at the noise of f; at one point for all it would cancel."""

    def fixed(sigma: float, right: int) -> Arena:
        star = [point("g_v*", right, sigma=sigma)]
        return Arena(f"σ_a = {sigma:g}", point("g", 4), {"g": [point("g", 4)], "g_v*": star})

    on_f_u = [point("g_v*", 5, sigma=0.2), point("g_v*", 7, sigma=0.9)]
    swept = {0.12: point("g", 4), 1.0: point("g", 4)}
    claims = universal_claims({0.12: fixed(0.12, 6), 1.0: fixed(1.0, 3)}, swept, on_f_u)
    grown = next(c for c in claims if c.statement.startswith("g_v* performs better on f_u esp"))
    gain = ((7 - 3) - (5 - 6)) / 8
    assert grown.numbers["g_v*, σ_a = 1 − 0.12, robust"] == pytest.approx(gain)


def test_universal(tmp_path: Path, experiment: Laboratory) -> None:
    words = f"universal {FIXED} --eps 2 --universal-lams 0,0.5 --levels 0.25 --sigmas 0.25,0.5"
    found = experiment(words, tmp_path)
    same, selector, growth, growth_of_star, replaced = found.claims
    gains = []
    for sigma in ("0.25", "0.5"):
        one = found.robust("g", "σ_a′ = 1", f"σ_s = {sigma}", *STRONG)
        other = found.robust("g", f"σ_a = {sigma}", f"σ_s = {sigma}", *STRONG)
        gains.append(one.mean() - other.mean())
        assert same["numbers"][f"σ_a = {sigma}, robust"] == pytest.approx(gains[-1])
    name = "g, σ_a = 0.5 − 0.25, robust"
    assert growth["numbers"][name] == pytest.approx(gains[1] - gains[0])

    def star_near(level: str, sigma: float) -> float:
        """g_v* on one f, at the λ whose mean σ_s is nearest."""
        knobs = {line["run"].split(", ")[2] for line in found.lines if level in line["run"]}
        names = [("g_v*", level, knob, *STRONG) for knob in knobs if "λ" in knob]
        means = [abs(found.column("clean_sigma", *name).mean() - sigma) for name in names]
        return float(found.robust(*names[int(np.argmin(means))]).mean())

    small, large = (
        star_near("σ_a′ = 1", sigma) - star_near(f"σ_a = {sigma:g}", sigma) for sigma in (0.25, 0.5)
    )
    name = "g_v*, σ_a = 0.5 − 0.25, robust"
    assert growth_of_star["numbers"][name] == pytest.approx(large - small)
    assert [sum(f"σ_a = {s}," in title for title in selector["numbers"]) for s in (0.25, 0.5)] == [
        2,
        2,
    ]
    assert all("against σ_a = 0.5," in title for title in replaced["numbers"])
    assert "selector" in found.config["models"]["universal-1.00"]


def test_universal_extended(tmp_path: Path, experiment: Laboratory) -> None:
    words = (
        f"universal-extended {TINY} --budgets 0.1,0.5 --lams 0,0.4 --far-lams 0,0.9 --multiples 1"
    )
    found = experiment(f"{words} --sigmas 0.25", tmp_path)
    better, swept, chosen, far_claim, depends, sweep = found.claims
    for eps, last in (("0.1", "0.4"), ("0.5", "0.9")):
        ends = [
            ("g_v*", "σ_a′ = 0.25", f"λ = {lam}", f"γ = {eps}", STRONG[-1]) for lam in ("0", last)
        ]
        gap = abs(found.clean(*ends[0]).mean() - found.clean(*ends[1]).mean())
        title = next(t for t in sweep["numbers"] if f"γ = {eps}, " in t and t.endswith("clean"))
        assert sweep["numbers"][title] == pytest.approx(gap)
    assert swept["numbers"] == better["numbers"]  # one σ_s, so it is the most robust one
    assert depends["verdict"] == "untested"  # one range
    assert sum("γ = 0.1" in title for title in better["numbers"]) == 2
    assert chosen["verdict"] != "untested"
    far = ("γ = 0.5", "strong attack")
    ours = [("g_v*", "σ_a′ = 0.25", f"λ = {lam}", *far) for lam in ("0", "0.9")]
    best = max(ours, key=lambda about: (found.robust(*about).sum(), found.clean(*about).sum()))
    theirs = ("g", "σ_a = 0.12", "σ_s = 0.12", *far)
    dropped, other, gap = far_claim["numbers"].values()
    assert gap == pytest.approx(found.robust(*best).mean() - found.robust(*theirs).mean())
    near = found.robust("g", "σ_a = 0.12", "σ_s = 0.12", "γ = 0.1", "strong attack")
    assert other == pytest.approx(near.mean() - found.robust(*theirs).mean())
    assert dropped > 0
    assert found.clean(*theirs).mean() > found.robust(*theirs).mean()


def test_attack_convergence(tmp_path: Path, experiment: Laboratory) -> None:
    tried = "--tried-steps 1,4 --tried-samples 1,4 --tried-n-median-attack 1 "
    words = f"attack-convergence {TINY} --eps 2 {tried} --tried-selector-samples 1 --sigmas 0.25"
    found = experiment(f"{words} --selector-samples 2", tmp_path)
    (claim,) = found.claims

    def robust(method: str, steps: int, samples: int, *more: str, kind: str = "strong") -> float:
        settings = (f"PGD steps {steps}", f"EOT draws per step {samples}", *more)
        about = ("σ_a = 0.25", "λ = 0.2", "γ = 2", f"{kind} attack", *settings)
        return float(found.robust(method, *about).mean())

    def median(n: int) -> str:
        return f"draws of h's median in the attack {n}"

    two, four = (f"draws of h per step on g_v {n}" for n in (2, 4))
    star, plain, weak = (
        robust("g_v*", 2, 2, median(3)),
        robust("g_v", 2, 2, median(3), two),
        robust("g_v", 2, 2, median(3), kind="weak"),
    )
    expected = {
        "g_v*, σ_a = 0.25, PGD steps 2 → 4": robust("g_v*", 4, 2, median(3)) - star,
        "g_v*, σ_a = 0.25, EOT draws per step 2 → 4": robust("g_v*", 2, 4, median(3)) - star,
        f"g_v*, σ_a = 0.25, {DOUBLED}": robust("g_v*", 4, 4, median(7)) - star,
        "g_v, σ_a = 0.25, PGD steps 2 → 4": robust("g_v", 4, 2, median(3), two) - plain,
        "g_v, σ_a = 0.25, EOT draws per step 2 → 4": robust("g_v", 2, 4, median(3), two) - plain,
        f"g_v, σ_a = 0.25, {DOUBLED}": robust("g_v", 4, 4, median(3), four) - plain,
        "weak attack on g_v, σ_a = 0.25, PGD steps 2 → 4": robust(
            "g_v", 4, 2, median(3), kind="weak"
        )
        - weak,
    }
    assert claim["numbers"] == pytest.approx(expected)
    assert any(expected.values())
    robust("g_v", 2, 2, median(3))  # one draw of h is there too, under its own name


def test_nothing_is_attacked_twice(
    tmp_path: Path, experiment: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was run is resumed, and experiments share runs: Fig. 7 has those of Fig. 6b."""
    words = f"{FIXED} --sigmas 0.5 --few-lams 0.2 --multiples 1"
    found = experiment(f"strong-attack {words} --budgets 2", tmp_path / "strong")

    def never(*_: object, **__: object) -> None:
        raise AssertionError("an image was attacked again")

    monkeypatch.setattr(attack, "find_adversarial", never)
    again = experiment(f"strong-attack {words} --budgets 2", tmp_path / "again")
    assert again.lines == found.lines


def test_what_is_missing_is_said(
    tmp_path: Path, experiment: Laboratory, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "universal-extended --sigmas 0.5 --models"
    assert run(words, experiment.models, "--store", experiment.store, "--out", tmp_path) != 0
    told = capsys.readouterr().err
    assert "cifar10-universal-0.50 with its selector" in told
    assert "varsmooth train selector cpu/h-universal-0.50" in told
    assert told.strip().count("\n") == 0


def test_the_selector_under_attack_is_the_papers(experiment: Laboratory) -> None:
    """No clip, no grid, σ_m = σ_a, whatever the description recommends."""
    scale = sized(AttackScale(), "attack-convergence", f"{TINY} --data {experiment.data}")
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
    """What g did before h was trained is found again when f comes with its h."""
    scale = sized(AttackScale(), "attack-convergence", f"{TINY} --data cifar10-sample")
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
    found = experiment(f"weak-attack {FIXED} --eps 2 --sigmas 0.25", tmp_path)
    page = (tmp_path / "weak-attack.md").read_text()
    assert "PGD steps: 2" in page
    assert "EOT" not in page
    assert "samples" in found.config["sizes"]  # at its default, which nothing reads


def test_excess_kurtosis_of_a_mixture() -> None:
    """Against the fourth moment of noise that was drawn, and its error against resampling."""
    rng = np.random.default_rng(0)
    sigmas = rng.uniform(0.1, 0.4, 400)
    noise = (sigmas[:, None] * rng.standard_normal((400, 5000))).ravel()
    kurtosis = (noise**4).mean() / (noise**2).mean() ** 2 - 3
    found = excess_kurtosis(sigmas)
    assert found.mean() == pytest.approx(kurtosis, abs=0.03)
    again = [excess_kurtosis(rng.choice(sigmas, 400)).mean() for _ in range(2000)]
    assert found.std() / 400**0.5 == pytest.approx(np.std(again), rel=0.1)
    assert not excess_kurtosis(np.full(5, 0.25)).any()


@pytest.mark.parametrize(
    "name", ["weak-attack --eps 2", "strong-attack --budgets 2", "clipping --eps 2 --held-out 4"]
)
def test_one_level_may_have_more_images(name: str, tmp_path: Path, experiment: Laboratory) -> None:
    words = FIXED.replace("--images 8", "--images 4")
    found = experiment(f"{name} {words} --sigmas 0.25,0.5 --closer 2", tmp_path)
    runs = [line["run"] for line in found.lines if "val" not in line["run"]]
    counts = {run: runs.count(run) for run in runs}
    assert {count for run, count in counts.items() if "σ_a = 0.25" in run} == {8}
    assert {count for run, count in counts.items() if "σ_a = 0.5" in run} == {4}


def test_gains_on_different_images_are_not_compared(tmp_path: Path, experiment: Laboratory) -> None:
    words = FIXED.replace("--images 8", "--images 4")
    found = experiment(f"weak-attack {words} --eps 2 --sigmas 0.25,0.5 --closer 2", tmp_path)
    better, _, larger, _ = found.claims
    assert len(better["numbers"]) == 2
    assert larger["verdict"] == "untested"
