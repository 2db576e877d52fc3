"""Layers: convolutions with their normalisation, encodings of numbers, and layers steered by σ."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional

from varsmooth.errors import check

EMBEDDING = 32
"""Size of the embedding of σ that a conditional network shares among its layers."""

PIXEL_VARIANCE = 1 / 16
"""v, about that of natural images with pixels in [0,1]."""

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
        weight = self.kernels() if self.kept is None else self.kept
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
    """norm(conv(x)), or (1 + a(e)) · norm(conv(x)) + b(e) with e (B, EMBEDDING) made from σ.

    With `halve` its maxima over 2×2 positions.
    """

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
        check(norm in NORMS, f"norm must be one of {', '.join(NORMS)}, not {norm!r}")
        shape = (inputs, outputs, kernel_size, stride, kernel_size // 2)
        self.convolution: nn.Conv2d = (
            StandardisedConv2d(*shape)
            if norm == "weight"
            else nn.Conv2d(*shape, bias=norm == "none")
        )
        nn.init.kaiming_normal_(self.convolution.weight, nonlinearity="relu")
        layer = NORMS[norm](outputs, not conditional)
        self.norm = ScaleAndShift(layer, outputs, EMBEDDING) if conditional else layer

    def forward(self, x: Tensor, embedding: Tensor | None = None, halve: bool = False) -> Tensor:
        y = self.convolution(x)
        if embedding is not None:
            return self.norm(y, embedding, halve)  # type: ignore[no-any-return]
        y = self.norm(y)
        return halved(y) if halve else y


def halved(y: Tensor) -> Tensor:
    """max_pool2d(y, 2), bit for bit; for votes on a CPU as two maxima, which is quicker."""
    if not _only_votes(y) or min(y.shape[2:]) < 2:  # too small: torch says so
        return functional.max_pool2d(y, 2)
    height, width = (size // 2 * 2 for size in y.shape[2:])
    y = torch.maximum(y[..., 0:width:2], y[..., 1:width:2])
    return torch.maximum(y[:, :, 0:height:2], y[:, :, 1:height:2])


def _only_votes(y: Tensor) -> bool:
    """Whether y is on a CPU, where reading values is free, and needs no gradients."""
    return y.device.type == "cpu" and not torch.is_grad_enabled()


def scale_pixels(x: Tensor, sigma: Tensor | None) -> Tensor:
    """Pixels in [0,1] to numbers of order one: (x − ½) / √(v + σ²), v = PIXEL_VARIANCE.

    σ (B,) is the input of a conditional network; others divide by √v. This happens inside the
    classifier, so that noise is always in pixel units.
    """
    if sigma is None:
        return (x - 0.5) * 4
    return (x - 0.5) * torch.rsqrt(PIXEL_VARIANCE + sigma.square()).view(-1, 1, 1, 1)


class SinusoidalEncoding(nn.Module):
    """e(v) = (sin ω_1 v, …, sin ω_K v, cos ω_1 v, …, cos ω_K v): (B,) → (B, size), K = size/2.

    The positional encoding of Vaswani et al. (2017) for numbers of order one: the frequencies ω_k
    run geometrically from π/4, monotone over [0, 1], to 2π. Higher ones would let neighbouring
    values look unrelated.

    Examples:
        >>> SinusoidalEncoding(32)(torch.tensor([0.0, 0.5])).shape
        torch.Size([2, 32])
    """

    frequencies: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        frequencies = math.pi / 4 * 8 ** torch.linspace(0, 1, size // 2)
        self.register_buffer("frequencies", frequencies, persistent=False)

    def forward(self, values: Tensor) -> Tensor:
        angles = values[:, None] * self.frequencies  # (B, K)
        return torch.cat([angles.sin(), angles.cos()], dim=1)


class NoiseEmbedding(nn.Module):
    """σ (B,) → e (B, size), learned on top of the encoding of log(1 + σ/σ_0), σ_0 = 0.05.

    The logarithm spreads the small levels, where a step of 0.1 changes an image the most.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            SinusoidalEncoding(size), nn.Linear(size, size), nn.SiLU(), nn.Linear(size, size)
        )

    def forward(self, sigma: Tensor) -> Tensor:
        embedding: Tensor = self.layers(torch.log1p(sigma / 0.05) / 4)
        return embedding


class ScaleAndShift(nn.Module):
    """y = (1 + a(e)) · norm(x) + b(e), channel by channel (FiLM, Perez et al. 2018).

    norm has no parameters of its own; a and b are linear in the embedding e (B, size) and start
    at zero, so that the network begins as if it were unconditional.
    """

    def __init__(self, norm: nn.Module, channels: int, size: int) -> None:
        super().__init__()
        self.norm = norm
        self.linear = nn.Linear(size, 2 * channels)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x: Tensor, embedding: Tensor, halve: bool = False) -> Tensor:
        scale, shift = self.linear(embedding)[:, :, None, None].chunk(2, dim=1)  # (B, C, 1, 1)
        scale, y = 1 + scale, self.norm(x)
        if halve and _only_votes(y) and bool((scale >= 0).all()):
            # Growing functions commute with the maximum, rounding included: a quarter of the work.
            return torch.addcmul(shift, halved(y), scale)
        y = torch.addcmul(shift, y, scale)
        return halved(y) if halve else y
