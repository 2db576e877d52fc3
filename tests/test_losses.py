"""The losses against the paper's formula, closed forms and hand-made cases."""

import json
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from varsmooth.errors import VarsmoothError
from varsmooth.losses import (
    consistency_loss,
    gaussian_kl,
    pass_loss,
    radius_loss,
    variational_loss,
)

VECTORS = json.loads((Path(__file__).parent / "vectors.json").read_text())


@pytest.mark.parametrize(("sigma_s", "sigma_t", "d", "expected"), VECTORS["kl"])
def test_kl_vectors(sigma_s: float, sigma_t: float, d: int, expected: float) -> None:
    divergence = gaussian_kl(torch.tensor(sigma_s, dtype=torch.float64), sigma_t, d)
    assert divergence.item() == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_kl_agrees_with_torch_distributions() -> None:
    sigma_s = torch.tensor([0.1, 0.3, 0.9], dtype=torch.float64)
    normal = torch.distributions.Normal
    expected = torch.distributions.kl_divergence(
        normal(torch.zeros(3, dtype=torch.float64), sigma_s),
        normal(torch.zeros(3, dtype=torch.float64), torch.full((3,), 0.4, dtype=torch.float64)),
    )
    torch.testing.assert_close(gaussian_kl(sigma_s, 0.4), expected)


def scores_and_levels() -> tuple[Tensor, Tensor, Tensor]:
    probabilities = torch.tensor([[0.7, 0.2, 0.1], [0.25, 0.25, 0.5]])
    return probabilities.log(), torch.tensor([0, 1]), torch.tensor([0.25, 0.5])


def test_lambda_zero_is_cross_entropy_and_lambda_one_is_kl() -> None:
    scores, y, sigma = scores_and_levels()
    clean = variational_loss(scores, y, sigma, 0.5, 0.0, d=3072)
    torch.testing.assert_close(clean, torch.tensor([-math.log(0.7), -math.log(0.25)]))
    target = variational_loss(scores, y, sigma, 0.5, 1.0, d=3072)
    torch.testing.assert_close(target, gaussian_kl(sigma, 0.5))


def test_reduction_sum_is_the_formula_to_the_letter() -> None:
    scores, y, sigma = scores_and_levels()
    literal = variational_loss(scores, y, sigma, 0.5, 0.3, d=3072, reduction="sum")
    torch.testing.assert_close(
        literal, 0.7 * -scores[torch.arange(2), y] + 0.3 * gaussian_kl(sigma, 0.5, 3072)
    )


def test_unknown_reduction_is_refused() -> None:
    scores, y, sigma = scores_and_levels()
    with pytest.raises(VarsmoothError, match="reduction"):
        variational_loss(scores, y, sigma, 0.5, 0.3, d=3, reduction="max")  # type: ignore[arg-type]


def test_radius_loss_wants_more_noise_only_where_the_label_wins() -> None:
    scores = torch.tensor([[0.9, 0.1], [0.2, 0.8], [1.0, 0.0]]).log()
    sigma = torch.full((3,), 0.25, requires_grad=True)
    loss = radius_loss(scores, torch.zeros(3, dtype=torch.int64), sigma, 1.0, scale=0.25)
    sure = torch.tensor(0.993).logit()  # Φ⁻¹ is finite even for a certain f
    assert -sure < loss[2] < loss[0] < 0 < loss[1]
    (slope,) = torch.autograd.grad(loss.sum(), sigma)
    assert slope[0] < 0 < slope[1]
    clean = radius_loss(scores, torch.zeros(3, dtype=torch.int64), sigma, 0.0, scale=0.25)
    torch.testing.assert_close(clean, -scores[:, 0])


def test_consistency_of_equal_copies_is_their_entropy() -> None:
    copies = torch.tensor([[0.7, 0.2, 0.1]]).log().repeat(3, 1, 1)  # (m, B, classes)
    entropy = -sum(p * math.log(p) for p in (0.7, 0.2, 0.1))
    torch.testing.assert_close(consistency_loss(copies, 10.0), torch.tensor([0.5 * entropy]))


def test_consistency_punishes_copies_that_disagree() -> None:
    agreeing = torch.tensor([[[2.0, 0.0]], [[2.0, 0.0]]])
    disagreeing = torch.tensor([[[2.0, 0.0]], [[0.0, 2.0]]])
    assert consistency_loss(disagreeing, 10.0, 0.0) > consistency_loss(agreeing, 10.0, 0.0) + 1


def test_pass_takes_what_the_label_does_not_keep() -> None:
    """q = .6 and .2 among the classes, of copies that say .8 and .4, .1 and .3; "pass" has half."""
    first, second = [[0.8, 0.2, 1.0], [0.1, 0.9, 1.0]], [[0.4, 0.6, 1.0], [0.3, 0.7, 1.0]]
    logits = torch.tensor([first, second]).log()  # (m, B, classes + 1)
    losses = pass_loss(logits, torch.tensor([0, 0]), torch.tensor([0.5, 0.5]))
    for loss, q, (p, other) in zip(losses, (0.6, 0.2), ((0.8, 0.4), (0.1, 0.3)), strict=True):
        keep = 1 / (1 + math.exp(-(q - 0.5) / 0.1))
        named = -(math.log(p / 2) + math.log(other / 2)) / 2
        assert loss.item() == pytest.approx(keep * named + (1 - keep) * math.log(2), rel=1e-5)


def test_no_image_passes_under_little_noise() -> None:
    logits = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0))
    y = torch.tensor([0, 1, 2])
    quiet, loud = (pass_loss(logits, y, torch.full((3,), sigma)) for sigma in (0.19, 0.2))
    torch.testing.assert_close(quiet, -logits.log_softmax(2)[:, range(3), range(3)].mean(0))
    assert not torch.allclose(quiet, loud)


def test_the_confidence_that_decides_on_pass_is_not_learned_from_it() -> None:
    logits = torch.zeros(1, 1, 3, requires_grad=True)
    loss = pass_loss(logits, torch.tensor([0]), torch.tensor([1.0])).sum()
    (gradient,) = torch.autograd.grad(loss, logits)
    keep = torch.tensor(0.5)  # q = ½
    expected = torch.tensor([1 / 3, 1 / 3, 1 / 3]) - torch.stack([keep, 0 * keep, 1 - keep])
    torch.testing.assert_close(gradient[0, 0], expected)
