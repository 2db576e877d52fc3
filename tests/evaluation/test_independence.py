"""Votes that chose a setting are never counted again by a certificate."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.stats import binomtest
from torch import Tensor, nn

from tests.evaluation import Patch
from tests.small_models import QUICK, run, write_pair
from varsmooth import FixedSelector, LearnedSelector, Options, SmoothedClassifier, certify, noise
from varsmooth.data import ImageDataset, load_dataset
from varsmooth.evaluation.tune.selector import tune


class Halfspace(nn.Module):
    """Class 0 where the mean pixel is above ½: at distance m from it, every σ has the radius m."""

    def forward(self, x: Tensor) -> Tensor:
        score = x.mean(dim=(1, 2, 3)) - 0.5
        return torch.stack([score, -score], dim=1)


class Level(nn.Module):
    """h that is as good as a constant."""

    def forward(self, x: Tensor, sigma_a: Tensor, lam: Tensor) -> Tensor:
        return sigma_a


def test_a_level_tuned_on_one_image_is_certified_at_the_promised_rate() -> None:
    """The best of twenty levels on the votes that certify counts is false in 18 % of trials."""
    pixels = np.full((1, 4, 4, 1), 160, np.uint8)
    data = ImageDataset("toy", "val", pixels, np.array([0]), np.array([0]), ("bright", "dark"))
    x, true = data.batch([0]).images, 4 * (160 / 255 - 0.5)  # ‖δ‖₂ of a change of the mean
    quick: dict[str, Any] = {"n": 100, "n_select": 11, "lams": [0.0], "unclipped": 0, "levels": 20}
    alpha, trials, false = 0.05, 100, 0
    for seed in range(trials):
        g = SmoothedClassifier(Halfspace(), LearnedSelector(Level(), 0.5, 0.0))
        chosen = tune(g, data, "radius", seed=seed, **quick)
        fixed = SmoothedClassifier(g.classifier, FixedSelector(chosen.fixed_sigma))
        (one,) = certify(
            fixed, x, n=100, alpha=alpha, seed=seed, options=Options(n0=20, bound="cohen")
        )
        false += one.prediction == 0 and one.radius > true
    assert binomtest(false, trials, alpha, alternative="greater").pvalue > 1e-3, false


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two data sets of the user's, the images of which have the same ids as those of CIFAR-10."""
    root = tmp_path_factory.mktemp("own")
    sample = load_dataset("cifar10-sample", "test")
    for folder, split, name in itertools.product(("one", "two"), ("val", "test"), ("cat", "dog")):
        place = root / folder / split / name
        place.mkdir(parents=True)
        for i in range(2):
            Image.fromarray(sample.images[i]).save(place / f"{i}.png")
    return root


FACTORY = """
from torch import nn
def small(): return nn.Sequential(nn.Flatten(), nn.Linear(3072, 2))
"""


def test_no_two_commands_share_noise(own: Path, tmp_path: Path, monkeypatch: Patch) -> None:
    (tmp_path / "independent_model.py").write_text(FACTORY)
    monkeypatch.syspath_prepend(tmp_path)
    pair, keys, rekey = write_pair(tmp_path / "pair"), set[tuple[int | str, ...]](), noise._rekey

    def spy(generator: torch.Generator, key: tuple[int | str, ...]) -> None:
        if "probe" not in key:
            keys.add(key)
        rekey(generator, key)

    monkeypatch.setattr(noise, "_rekey", spy)
    small = "--sigma 0.5 --n 50 --n0 20 --alpha 0.05 --model independent_model:small"
    commands = {
        "tune": f"tune {pair} --n 20 --n-select 11 --images 4 --unclipped 0 --out {tmp_path}/t",
        "measure": f"measure {pair} --n 20 --n-select 11 --images 4 --out {tmp_path}/m",
        "adopt": f"adopt independent_model:small --data {own}/one --n 50 --out {tmp_path}/a",
        "val": f"certify {QUICK} --split val --subset 0:4 --model {pair} --out {tmp_path}/1",
        "test": f"certify {QUICK} --subset 0:4 --model {pair} --out {tmp_path}/2",
        "one test": f"certify {small} --data {own}/one --out {tmp_path}/3",
        "one val": f"certify {small} --data {own}/one --split val --out {tmp_path}/4",
        "two test": f"certify {small} --data {own}/two --out {tmp_path}/5",
    }
    drawn = {}
    for name, command in commands.items():
        keys.clear()
        assert run(command) == 0, name
        drawn[name] = keys.copy()
        assert drawn[name], name
    for (one, first), (other, second) in itertools.combinations(drawn.items(), 2):
        assert not first & second, f"{one} and {other} share noise"
    assert {key[0] for key in drawn["test"]} == {0}, "the noise of every version"
