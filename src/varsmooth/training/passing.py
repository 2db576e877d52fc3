"""One more output of a classifier, "pass", that it has only while it is trained."""

import torch
from torch import Tensor, nn

from varsmooth.errors import check
from varsmooth.models.networks.classifiers import ConvolutionalClassifier


def add_pass(network: nn.Module) -> None:
    """Give a classifier one more score, after those of the classes; it begins at zero."""
    linear = _last(network)
    weight, bias = linear.weight.detach(), linear.bias.detach()
    _set(network, torch.cat([weight, weight.new_zeros(1, linear.in_features)]), bias)


def drop_pass(network: nn.Module) -> None:
    """Take the last score away; those of the classes stay as they are."""
    linear = _last(network)
    _set(network, linear.weight.detach()[:-1], linear.bias.detach()[:-1])


def _last(network: nn.Module) -> nn.Linear:
    check(
        isinstance(network, ConvolutionalClassifier),
        f'{type(network).__name__} cannot be trained with "pass", which replaces the last layer of '
        "a network of ours; leave out `passing`",
    )
    return network.get_submodule("linear")  # type: ignore[return-value]


def _set(network: nn.Module, weight: Tensor, bias: Tensor) -> None:
    """A last layer of these weights (outputs, inputs); missing biases are zero."""
    outputs, inputs = weight.shape
    linear = nn.Linear(inputs, outputs, device=weight.device, dtype=weight.dtype)
    with torch.no_grad():
        linear.weight.copy_(weight)
        linear.bias.zero_()[: len(bias)] = bias
    network.linear = linear
