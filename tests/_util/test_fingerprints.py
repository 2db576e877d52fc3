"""Fingerprints: the same for the same function, others for others."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from varsmooth import LearnedSelector, MedianSelector, load
from varsmooth._util.fingerprints import fingerprint
from varsmooth.models.descriptions import describe, released_names
from varsmooth.models.networks import AttentionSelector, ConfidenceSelector, Conv4, ResNet20
from varsmooth.smoothing import evaluation_mode


class Own(nn.Module):
    """A user's network whose options leave no trace in its weights."""

    def __init__(self, power: float = 1.0, activation: Callable[..., Tensor] = torch.relu) -> None:
        super().__init__()
        self._exponent = power
        self.activation = activation
        self.linear = nn.Linear(3, 2)


def small(norm: str) -> Conv4:
    return Conv4(widths=(8, 8, 8, 8), norm=norm)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (AttentionSelector(heads=4), AttentionSelector(heads=2)),
        (small("group"), small("layer")),
        (ResNet20(width=8, blocks=1, norm="group"), ResNet20(width=8, blocks=1, norm="layer")),
        (ConfidenceSelector(highest=2.0), ConfidenceSelector(highest=3.0)),
        (Own(), Own(power=2.0)),
        (Own(), Own(activation=torch.tanh)),
        (nn.Sequential(nn.ReLU()), nn.Sequential(nn.Tanh())),
        (nn.Conv2d(3, 3, 3), nn.Conv2d(3, 3, 3, stride=2)),
    ],
    ids=lambda module: type(module).__name__,
)
def test_options_that_change_the_function_change_the_identity(
    one: nn.Module, other: nn.Module
) -> None:
    other.load_state_dict(one.state_dict())
    assert fingerprint(one) != fingerprint(other)


def test_weights_change_the_identity_and_use_does_not() -> None:
    module: Any = small("weight")
    before = fingerprint(module)
    assert fingerprint(module.to(memory_format=torch.channels_last)) == before
    with evaluation_mode(module):
        module(torch.rand(2, 3, 8, 8))
        assert fingerprint(module) == before
    assert fingerprint(module) == before
    with torch.no_grad():
        module.linear.bias[0] += 1e-6
    assert fingerprint(module) != before


def test_options_of_a_selector_are_not_its_identity() -> None:
    network = AttentionSelector()
    selectors = [
        MedianSelector(LearnedSelector(network, 0.25, lam), sigma_m, 21)
        for lam, sigma_m in ((0.0, 0.25), (0.5, 0.5))
    ]
    assert fingerprint(selectors[0]) == fingerprint(selectors[1])


def test_released_models_are_known_by_their_fingerprints() -> None:
    for name in released_names():
        about = describe(name)
        part, module = about.classifier, load(name, sigma=about.sigma_a).classifier
        assert part is not None
        assert part.fingerprint == fingerprint(module)
