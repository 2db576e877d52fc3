"""The learned gate of `cascade-gate`, in closed form."""

import math

import torch
from torch import Tensor, nn

from reproduce.cascade_gate import Stakes, gamblers_loss, with_unknown
from varsmooth.models.networks import build


class Constant(nn.Module):
    """The same three probabilities, the last for "don't know", whatever the image."""

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        return torch.tensor([[0.5, 0.2, 0.3]]).log().expand(len(x), -1)


def test_stakes_keep_the_vote_and_its_softmax_is_what_is_staked() -> None:
    logits = Stakes(Constant())(torch.zeros(2, 3, 4, 4), torch.ones(2))
    assert logits.argmax(dim=1).tolist() == [0, 0]
    torch.testing.assert_close(logits.softmax(dim=1), torch.tensor([[0.7, 0.3]] * 2))


def test_the_gamblers_loss_pays_the_odds() -> None:
    logits = torch.tensor([[0.5, 0.2, 0.3]]).log()
    loss = gamblers_loss(logits, torch.tensor([1]), odds=2.0)
    assert math.isclose(loss.item(), -math.log(0.2 + 0.3 / 2), rel_tol=1e-6)


def test_the_new_output_leaves_the_others_as_they_were() -> None:
    f = build("conv4", {"widths": [4, 4, 4, 4], "conditional": True})
    x, sigma = torch.rand(2, 3, 16, 16), torch.full((2,), 0.5)
    logits = with_unknown(f)(x, sigma)
    torch.testing.assert_close(logits[:, :-1], f(x, sigma))
    assert logits[:, -1].tolist() == [0.0, 0.0]
