"""The bound on what a selector can gain, on tables whose answer is known."""

from pathlib import Path

import pytest
import torch

from reproduce.attainable import LossTable, attainable, tabulate
from tests.reproduce.commands import results, run
from varsmooth.data import load_dataset
from varsmooth.errors import VarsmoothError
from varsmooth.losses import gaussian_kl
from varsmooth.models.networks import Conv4

LEVELS = torch.tensor([0.1, 0.2, 0.4])


def table(per_image: torch.Tensor, confidence: torch.Tensor) -> LossTable:
    return LossTable(LEVELS, per_image.expand(2, *per_image.shape), confidence)


def test_images_that_all_agree_leave_nothing_to_gain() -> None:
    same = torch.tensor([1.0, 0.5, 0.9]).expand(40, 3)
    found = attainable(table(same, torch.rand(40)), lam=0.0, sigma_t=0.5)
    assert found.constant == found.confidence == found.oracle == 0.5
    assert found.constant_level == pytest.approx(0.2)
    assert list(found.oracle_gain) == list(found.confidence_gain) == [0, 0, 0]


def test_confidence_that_tells_images_apart_reaches_the_oracle() -> None:
    sure = torch.arange(40) >= 20
    losses = torch.where(sure[:, None], torch.tensor([2.0, 2, 1]), torch.tensor([0.0, 2, 2]))
    found = attainable(table(losses, torch.linspace(0, 1, 40)), lam=0.0, sigma_t=0.5)
    assert found.oracle == found.confidence == 0.5
    assert found.constant == 1.0
    assert found.confidence_levels == pytest.approx([0.1] * 5 + [0.4] * 5)


def test_confidence_that_says_nothing_gains_nothing() -> None:
    losses = torch.tensor([[0.0, 0.9, 2], [2.0, 0.9, 0]]).repeat(100, 1)
    shuffled = torch.rand(200, generator=torch.Generator().manual_seed(0))
    found = attainable(table(losses, shuffled), lam=0.0, sigma_t=0.5)
    assert found.oracle == 0
    assert found.confidence > 0.8


def test_lambda_one_wants_the_target() -> None:
    losses = torch.rand(40, 3)
    found = attainable(table(losses, torch.rand(40)), lam=1.0, sigma_t=0.4)
    assert found.constant_level == pytest.approx(0.4)
    assert found.oracle_gain[0] == 0
    assert found.constant == pytest.approx(float(gaussian_kl(LEVELS, 0.4).min()), abs=1e-6)


def test_tabulate_a_real_classifier() -> None:
    data = load_dataset("cifar10-sample", "val")[:6]
    found = tabulate(Conv4(widths=(8, 8, 8, 8)), data, [0.1, 0.3], at=0.25, draws=4)
    assert found.cross_entropy.shape == (2, 6, 2)
    assert bool((found.cross_entropy > 0).all())
    assert bool(((found.confidence > 0.1) & (found.confidence <= 1)).all())
    with pytest.raises(VarsmoothError, match="even"):
        tabulate(Conv4(), data, [0.1], at=0.25, draws=3)


def test_it_is_measured_for_fixed_and_universal_classifiers(tmp_path: Path) -> None:
    words = "attainable --data cifar10-sample --images 20 --draws 2 --shares 0.2,0.5 --lams 0,0.5"
    assert run(words, "--store", tmp_path / "store", "--out", tmp_path / "out") == 0
    config, claims, _ = results(tmp_path / "out")
    assert claims == []
    for title, levels in (("σ_a = 0.25", (0.1, 0.25)), ("σ_a′ = 1", (0.2, 0.5))):
        found = config["facts"][f"attainable, {title}"]
        assert [one["lam"] for one in found] == [0, 0.5]
        for one in found:
            assert any(one["constant_level"] == pytest.approx(level) for level in levels)
            low, high = one["oracle_gain"][1:]
            assert low <= one["oracle_gain"][0] <= high
    assert "σ_a′ = 1" in (tmp_path / "out" / "attainable.md").read_text()
