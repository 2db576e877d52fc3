"""What a certificate assumes of f, h and the gate is checked at the first call."""

import pytest
import torch
from torch import Tensor, nn

from varsmooth import CascadeSelector, FixedSelector, MedianSelector, SmoothedClassifier, certify
from varsmooth.errors import VarsmoothError
from varsmooth.probe import check_assumptions, probe

X = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def network(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3), *layers, nn.Flatten(), nn.Linear(8 * 36, 4))


class AlwaysDropout(nn.Module):
    """Dropout that evaluation mode does not switch off."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(x, 0.1, training=True)


class Awake(nn.BatchNorm2d):
    """Ignores evaluation mode."""

    def train(self, mode: bool = True) -> "Awake":
        super().train(True)
        return self


class Centred(nn.Module):
    """Looks across the batch."""

    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(dim=0)


class MasksAClass(nn.Module):
    """The first class never wins."""

    def forward(self, logits: Tensor) -> Tensor:
        return torch.cat([torch.full_like(logits[:, :1], -1e9), logits[:, 1:]], dim=1)


class OnRange(nn.Module):
    """A network that is finite on [0, 1] alone."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.network, self.kind = network(), kind

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "root":
            return torch.as_tensor(self.network(x.sqrt()))
        outside = (x < 0).flatten(1).any(dim=1, keepdim=True)
        return torch.where(outside, torch.inf, self.network(x))


@pytest.mark.parametrize("kind", ["root", "infinite"])
def test_a_classifier_that_is_not_finite_under_noise_is_refused(kind: str) -> None:
    g = SmoothedClassifier(OnRange(kind), FixedSelector(0.25))
    with pytest.raises(VarsmoothError, match=r"the classifier rejects pixels outside \[0, 1\]"):
        certify(g, X, n=50, alpha=0.05)


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (nn.BatchNorm2d(8, track_running_stats=False), "other images of its batch"),
        (Centred(), "other images of its batch"),
        (AlwaysDropout(), "different outputs for the same images"),
        (Awake(8), r"of its batch.*its layer [.01]+ \(Awake\) stays in training mode: call .eval"),
    ],
    ids=["BatchNorm", "centred", "dropout", "awake"],
)
def test_a_classifier_that_is_no_function_of_the_image_is_refused(
    layer: nn.Module, message: str
) -> None:
    for selector in (FixedSelector(0.25), CascadeSelector([0.5, 0.25])):
        for f in (network(layer), nn.Sequential(network(layer), MasksAClass())):
            with pytest.raises(VarsmoothError, match=message):
                certify(SmoothedClassifier(f, selector), X, n=50, alpha=0.05)


def test_a_selector_or_gate_that_looks_across_the_batch_is_refused() -> None:
    for selector in (
        MedianSelector(lambda x: 0.3 + 0 * x[:, 0, 0, 0] + x.mean(), 0.25, 21, (0.1, 1.0), 4),
        CascadeSelector([0.5, 0.25], gates=lambda z, logits, sigma: logits[:, 0] - z.mean()),
    ):
        with pytest.raises(VarsmoothError, match="depends on the other images"):
            check_assumptions(SmoothedClassifier(network(), selector), X)


def test_what_evaluation_mode_makes_right_is_accepted_and_left_as_it_was() -> None:
    f = network(nn.BatchNorm2d(8), nn.Dropout(0.5)).train()
    g, calls = SmoothedClassifier(f, FixedSelector(0.25)), []
    f.register_forward_hook(lambda *call: calls.append(len(call[1][0])))
    check_assumptions(g, X)
    assert f.training
    assert sum(calls) == 12
    check_assumptions(g, X)
    assert sum(calls) == 12, "once for each classifier and selector"
    assert probe(g, X) == probe(g, X)
