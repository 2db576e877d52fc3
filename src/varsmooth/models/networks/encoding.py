"""Numbers as inputs of a network: sinusoidal encodings and scale-and-shift conditioning."""

import math

import torch
from torch import Tensor, nn


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

    def forward(self, x: Tensor, embedding: Tensor) -> Tensor:
        scale, shift = self.linear(embedding)[:, :, None, None].chunk(2, dim=1)  # (B, C, 1, 1)
        return torch.addcmul(shift, self.norm(x), 1 + scale)
