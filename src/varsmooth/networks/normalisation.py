"""Normalisation layers by name, with parameters of their own or steered by a noise level."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from varsmooth.errors import require
from varsmooth.networks.encoding import NoiseEmbedding, ScaleAndShift

EMBEDDING = 32
"""Size of the embedding of σ that a conditional network shares among its layers."""

LAYERS: dict[str, Callable[[int, bool], nn.Module]] = {
    "batch": lambda channels, affine: nn.BatchNorm2d(channels, affine=affine),
    "group": lambda channels, affine: nn.GroupNorm(8, channels, affine=affine),
    "layer": lambda channels, affine: nn.GroupNorm(1, channels, affine=affine),
    "none": lambda channels, affine: nn.Identity(),
}
"""What `norm` may be: statistics over the batch, over an image's groups of channels, over all of
an image, or none."""


class Normalise(nn.Module):
    """One normalisation layer: norm(x), or (1 + a(e)) · norm(x) + b(e) when conditional."""

    def __init__(self, kind: str, channels: int, conditional: bool) -> None:
        super().__init__()
        require(kind in LAYERS, f"norm must be one of {', '.join(LAYERS)}, not {kind!r}")
        layer = LAYERS[kind](channels, not conditional)
        self.layer = ScaleAndShift(layer, channels, EMBEDDING) if conditional else layer

    def forward(self, x: Tensor, embedding: Tensor | None) -> Tensor:
        y: Tensor = self.layer(x) if embedding is None else self.layer(x, embedding)
        return y


class PixelInput(nn.Module):
    """Pixels in [0,1] to numbers of order one: (x − ½) / √(v + σ²), v = 1/16 (pixel variance).

    σ is the level told to a conditional network; others use the constant `sigma` = 0. Written
    out here, inside the classifier, so that noise is always in pixel units.
    """

    def forward(self, x: Tensor, sigma: Tensor | None) -> Tensor:
        if sigma is None:
            return (x - 0.5) * 4
        return (x - 0.5) * torch.rsqrt(1 / 16 + sigma.square()).view(-1, 1, 1, 1)


__all__ = ["EMBEDDING", "LAYERS", "NoiseEmbedding", "Normalise", "PixelInput"]
