"""A convolution with its normalisation, chosen by name, plain or steered by a noise level."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional

from varsmooth.errors import require
from varsmooth.models.networks.encoding import ScaleAndShift

EMBEDDING = 32
"""Size of the embedding of σ that a conditional network shares among its layers."""

NORMS: dict[str, Callable[[int, bool], nn.Module]] = {
    "weight": lambda channels, affine: nn.Identity(),
    "batch": lambda channels, affine: nn.BatchNorm2d(channels, affine=affine),
    "group": lambda channels, affine: nn.GroupNorm(8, channels, affine=affine),
    "layer": lambda channels, affine: nn.GroupNorm(1, channels, affine=affine),
    "none": lambda channels, affine: nn.Identity(),
}
"""What is normalised: the weights, or the activations by statistics of the batch, of an image's
groups of channels, or of a whole image; or nothing."""


class StandardisedConv2d(nn.Conv2d):
    """A convolution whose kernels are used as g · √2 · (w − mean w) / ‖w − mean w‖.

    Weight standardisation (Qiao et al. 2019; Brock et al. 2021): learning is as quick as with
    normalised activations, but the network stays one fixed function of its input, whatever the
    noise. The factor √2 keeps the variance through a ReLU; g is learned, one per channel. `kept`
    are the kernels in use inside `constant_weights`.
    """

    kept: Tensor | None = None

    def __init__(
        self, inputs: int, outputs: int, kernel_size: int, stride: int = 1, padding: int = 0
    ) -> None:
        super().__init__(inputs, outputs, kernel_size, stride, padding)
        self.gain = nn.Parameter(torch.ones(outputs))

    def kernels(self) -> Tensor:
        """The standardised kernels."""
        variance, mean = torch.var_mean(self.weight, (1, 2, 3), keepdim=True, correction=0)
        fan_in = self.weight[0].numel()
        scale = self.gain.view(-1, 1, 1, 1) * torch.rsqrt(variance * fan_in / 2 + 1e-4)
        return (self.weight - mean) * scale

    def forward(self, x: Tensor) -> Tensor:
        kept = self.kept
        weight = self.kernels() if kept is None else kept
        return functional.conv2d(x, weight, self.bias, self.stride, self.padding)

    @contextmanager
    def constant_weights(self) -> Iterator[None]:
        """Inside, the weights must not change, and the kernels are standardised once.

        They are constants there: gradients reach the input, not the weights. Results stay the
        same, bit for bit; without this conv4 spends 5 % of its time on its kernels.
        """
        before = self.kept
        self.kept = self.kernels().detach() if before is None else before
        try:
            yield
        finally:
            self.kept = before


class NormalisedConvolution(nn.Module):
    """norm(conv(x)), or (1 + a(e)) · norm(conv(x)) + b(e) with e (B, EMBEDDING) made from σ."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        norm: str,
        conditional: bool = False,
        kernel_size: int = 3,
        stride: int = 1,
    ) -> None:
        super().__init__()
        require(norm in NORMS, f"norm must be one of {', '.join(NORMS)}, not {norm!r}")
        padding = kernel_size // 2
        if norm == "weight":
            self.convolution: nn.Conv2d = StandardisedConv2d(
                inputs, outputs, kernel_size, stride, padding
            )
        else:
            self.convolution = nn.Conv2d(
                inputs, outputs, kernel_size, stride, padding, bias=norm == "none"
            )
        nn.init.kaiming_normal_(self.convolution.weight, nonlinearity="relu")
        layer = NORMS[norm](outputs, not conditional)
        self.norm = ScaleAndShift(layer, outputs, EMBEDDING) if conditional else layer

    def forward(self, x: Tensor, embedding: Tensor | None = None) -> Tensor:
        y = self.convolution(x)
        y = self.norm(y) if embedding is None else self.norm(y, embedding)
        return y  # type: ignore[no-any-return]


def scale_pixels(x: Tensor, sigma: Tensor | None) -> Tensor:
    """Pixels in [0,1] to numbers of order one: (x − ½) / √(v + σ²), v = 1/16 (pixel variance).

    σ (B,) is the input of a conditional network; others divide by √v. This happens inside the
    classifier, so that noise is always in pixel units.
    """
    if sigma is None:
        return (x - 0.5) * 4
    return (x - 0.5) * torch.rsqrt(1 / 16 + sigma.square()).view(-1, 1, 1, 1)
