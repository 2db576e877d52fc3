"""pgd against closed-form optima, on f alone and through noise and selector."""

import math
from collections.abc import Callable
from typing import Literal

import pytest
import torch
from torch import Tensor, nn

from tests.oracles import LinearSelector, Spy, WrongAbove, point
from varsmooth import (
    FixedSelector,
    MedianSelector,
    PGDOptions,
    SmoothedClassifier,
    VarsmoothError,
    attacks,
    pgd,
)
from varsmooth.noise import NoiseStream

SHAPE = (3, 8, 8)
EOT, TWO_STARTS = PGDOptions(samples=2), PGDOptions(restarts=2)


class Hyperplane(nn.Module):
    """Logits ±w·(x − ½)."""

    def __init__(self) -> None:
        super().__init__()
        w = torch.randn(SHAPE, generator=torch.Generator().manual_seed(0))
        self.w = nn.Parameter(w / w.norm())

    def margin(self, x: Tensor) -> Tensor:
        return ((x - 0.5) * self.w).flatten(1).sum(dim=1)

    def forward(self, x: Tensor) -> Tensor:
        margin = self.margin(x)
        return torch.stack([margin, -margin], dim=1)


def zeros(images: int) -> Tensor:
    return torch.zeros(images, dtype=torch.long)


@pytest.fixture
def x() -> Tensor:
    return 0.4 + 0.2 * torch.rand(5, *SHAPE, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_pgd_reaches_the_optimum_on_a_linear_model(norm: Literal["l2", "linf"], x: Tensor) -> None:
    f, eps = Hyperplane(), 0.3 if norm == "l2" else 0.1
    dual_norm = 1.0 if norm == "l2" else float(f.w.detach().abs().sum())
    adversarial = pgd(f, x, zeros(5), eps, steps=20, options=PGDOptions(norm=norm))
    damage = f.margin(x) - f.margin(adversarial)
    assert (damage >= 0.95 * eps * dual_norm).all()
    delta = (adversarial - x).flatten(1)
    size = delta.norm(dim=1) if norm == "l2" else delta.abs().amax(dim=1)
    assert (size <= eps * (1 + 1e-5)).all()


def test_pgd_through_noise_reaches_the_optimum_too(x: Tensor) -> None:
    f = Hyperplane()
    g = SmoothedClassifier(f, FixedSelector(0.25), samples=8)
    adversarial = pgd(g, x, zeros(5), 0.3, steps=20, seed=1, options=EOT)
    assert (f.margin(x) - f.margin(adversarial) >= 0.95 * 0.3).all()


def test_pgd_stays_in_the_box() -> None:
    x = torch.rand(4, *SHAPE).round()
    adversarial = pgd(Hyperplane(), x, zeros(4), 2.0, steps=5, options=TWO_STARTS)
    assert adversarial.min() >= 0
    assert adversarial.max() <= 1
    assert ((adversarial - x).flatten(1).norm(dim=1) <= 2.0 * (1 + 1e-5)).all()


def test_pgd_attacks_the_selector() -> None:
    """f is right at every pixel; only by moving σ to a bad level can the answer be changed."""

    class SoftlyWrongAbove(WrongAbove):
        def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
            score = 5 * (sigma - self.bad)
            return torch.stack([-score, score], dim=1)

    selector = MedianSelector(LinearSelector(0.4, 1.0), 0.1, n=11)
    g = SmoothedClassifier(SoftlyWrongAbove(0.5), selector)
    x = point(0.5, 0.5, copies=3)
    noise = g.noise(3, seed=1)
    assert g(x, noise).argmax(dim=1).tolist() == [0, 0, 0]
    adversarial = pgd(g, x, zeros(3), 0.2, steps=10, seed=1)
    assert g(adversarial, noise).argmax(dim=1).tolist() == [1, 1, 1]
    # It walks along the one pixel that h reads; the worst of noisy losses may lie a step inside.
    assert (adversarial[:, 0, 0, 1] > 0.6).all()
    torch.testing.assert_close(adversarial[:, 0, 0, 0], x[:, 0, 0, 0])


def test_budget_per_image(x: Tensor) -> None:
    eps = torch.tensor([0.0, 0.1, 0.2, 0.3, 0.4])
    adversarial = pgd(Hyperplane(), x, zeros(5), eps)
    torch.testing.assert_close((adversarial - x).flatten(1).norm(dim=1), eps, atol=1e-5, rtol=0)


def test_the_worst_point_is_kept() -> None:
    """A huge step overshoots a narrow dip; the best point seen must be returned all the same."""

    def dip(x: Tensor) -> Tensor:
        bad = torch.exp(-(((x.flatten(1)[:, 0] - 0.6) / 0.02) ** 2))
        return torch.stack([1 - 5 * bad, torch.zeros(len(x))], dim=1)

    x, y = point(0.58, 0.5), zeros(1)
    worst = pgd(dip, x, y, 0.4, steps=7, options=PGDOptions(step_size=0.3))
    final_loss = -dip(worst).log_softmax(dim=1)[0, 0]
    assert final_loss >= -dip(x).log_softmax(dim=1)[0, 0]


def test_under_noise_luck_does_not_decide() -> None:
    """One draw barely shows a small step's gain; the last point is the worst all the same."""
    x, y = torch.full((64, *SHAPE), 0.5), zeros(64)
    g = SmoothedClassifier(Hyperplane(), FixedSelector(0.5), samples=1)
    attacked = pgd(g, x, y, 0.05, steps=5, seed=1)
    lengths = (attacked - x).flatten(1).norm(dim=1)
    torch.testing.assert_close(lengths, torch.full((64,), 0.05), atol=1e-5, rtol=0)


def test_a_worse_restart_does_not_replace_a_better_one() -> None:
    def peak(x: Tensor) -> Tensor:
        away = (x.flatten(1) - 0.5).square().sum(dim=1)
        return torch.stack([away, torch.zeros(len(x))], dim=1)

    x, y = point(0.5, 0.5), zeros(1)
    options = PGDOptions(step_size=1e-6, restarts=4)
    attacked = pgd(peak, x, y, 0.3, steps=1, seed=1, options=options)
    torch.testing.assert_close(attacked, x, atol=1e-5, rtol=0)


def test_the_loss_is_that_of_the_mean_probability() -> None:
    answers = iter([0.9, 0.1, 0.5])

    def model(x: Tensor) -> Tensor:
        share = next(answers)
        return torch.tensor([[share, 1 - share]]).log()

    y = zeros(1)
    loss = attacks._loss(model, point(0.5, 0.5), y, 3, NoiseStream.make(1))
    assert float(loss) == pytest.approx(-math.log(0.5))


def test_restarts_escape_a_flat_start() -> None:
    def plateau(x: Tensor) -> Tensor:
        away = (x.flatten(1) - 0.5).norm(dim=1)
        return torch.stack([1 - torch.relu(away - 0.1), torch.zeros(len(x))], dim=1)

    x, y = point(0.5, 0.5), zeros(1)
    assert torch.equal(pgd(plateau, x, y, 0.3, seed=1), x)  # no gradient at the start
    assert (pgd(plateau, x, y, 0.3, seed=1, options=TWO_STARTS) - x).norm() > 0.25


def test_seed_and_ids_repeat_an_attack(x: Tensor) -> None:
    g = SmoothedClassifier(Hyperplane(), FixedSelector(0.5), samples=4)
    y = zeros(5)
    whole = pgd(g, x, y, 0.3, steps=3, seed=1, options=TWO_STARTS)
    part = pgd(g, x[3:4], y[3:4], 0.3, steps=3, seed=1, ids=[3], options=TWO_STARTS)
    torch.testing.assert_close(part, whole[3:4])
    assert not torch.equal(whole, pgd(g, x, y, 0.3, steps=3, seed=2, options=TWO_STARTS))


def test_eot_draws_are_fresh_every_step() -> None:
    f, options = Spy(), PGDOptions(restarts=3, samples=2)
    g = SmoothedClassifier(f, FixedSelector(0.5), samples=4)
    pgd(g, point(0.5, 0.5), zeros(1), 1e-9, 3, options=options)
    noisy = torch.cat(f.seen)
    assert len(noisy) == 3 * 4 * 2 * 4  # 3 starts, steps + 1 evaluations, 2 EOT draws, 4 samples
    assert len(torch.unique(noisy.flatten(1), dim=0)) == len(noisy)


def test_the_model_is_left_as_it_was(x: Tensor) -> None:
    f = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(192), nn.Dropout(), nn.Linear(192, 2))
    f[3].weight.requires_grad_(False)
    before = {k: v.clone() for k, v in f.state_dict().items()}
    pgd(SmoothedClassifier(f, FixedSelector(0.1)), x, zeros(5), 0.1, 3)
    assert f.training
    assert all(p.grad is None for p in f.parameters())
    assert [p.requires_grad for p in f.parameters()] == [True, True, False, True]
    assert all(torch.equal(v, before[k]) for k, v in f.state_dict().items())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"eps": -0.1}, "eps"),
        ({"eps": torch.zeros(2)}, "eps"),
        ({"steps": 0}, "steps"),
        ({"options": PGDOptions(norm="l1")}, "norm"),  # type: ignore[arg-type]
        ({"options": PGDOptions(restarts=0)}, "restarts"),
        ({"y": torch.zeros(4)}, "class indices"),
        ({"y": [0] * 5}, "class indices"),
        ({"y": torch.full((5,), 7)}, "from 0 to 1"),
        ({"y": torch.full((5,), -1)}, "from 0 to 1"),
        ({"x": torch.full((5, *SHAPE), 2.0)}, "pixels"),
    ],
    ids=str,
)
def test_bad_input_is_refused(change: dict[str, object], words: str, x: Tensor) -> None:
    call: dict[str, object] = {"x": x, "y": zeros(5), "eps": 0.1}
    attack: Callable[..., Tensor] = pgd
    with pytest.raises(VarsmoothError, match=words):
        attack(Hyperplane(), **{**call, **change})
