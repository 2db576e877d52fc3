"""Classifiers f: the paper's conv4, and residual networks."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from varsmooth.errors import check
from varsmooth.models.networks.layers import (
    EMBEDDING,
    NoiseEmbedding,
    NormalisedConvolution,
    scale_pixels,
)


class ConvolutionalClassifier(nn.Module, ABC):
    """x → scaled pixels → `features` → mean over positions → `linear`, the frame of those below.

    Images (B, channels, H, W) in [0,1] → logits (B, classes). Input normalisation is inside.

    Args:
        conditional: Called as f(x, sigma) with sigma (B,), the level of the noise in x. It divides
            the input by √(v + σ²) and scales and shifts every layer.
    """

    linear: nn.Linear

    def __init__(self, conditional: bool) -> None:
        super().__init__()
        self.conditional = conditional
        self.embedding = NoiseEmbedding(EMBEDDING) if conditional else None

    @abstractmethod
    def features(self, y: Tensor, embedding: Tensor | None) -> Tensor:
        """Scaled pixels (B, channels, H, W) → features (B, width, H', W')."""

    def forward(self, x: Tensor, sigma: Tensor | None = None) -> Tensor:
        embedding = None if self.embedding is None else self.embedding(sigma)
        features = self.features(scale_pixels(x, sigma), embedding)
        logits: Tensor = self.linear(features.mean(dim=(2, 3)))
        return logits


class Conv4(ConvolutionalClassifier):
    """4 × [convolution 3×3, normalised → halve the size (not the last) → ReLU] → mean → linear.

    Sizes are halved early, because smoothing spends its time on sampling, and before the ReLU,
    which commutes with the maximum and then has a quarter of the work.

    Args:
        classes: Number of classes.
        channels: Of the images.
        widths: Channels of the four convolutions.
        norm: See `varsmooth.models.networks.layers`; chosen by measurement, see
            docs/normalisation.md.
        conditional: See `ConvolutionalClassifier`.
    """

    def __init__(
        self,
        classes: int = 10,
        channels: int = 3,
        widths: Sequence[int] = (32, 64, 128, 128),
        norm: str = "weight",
        conditional: bool = False,
    ) -> None:
        super().__init__(conditional)
        check(len(widths) == 4, f"conv4 has four widths, not {len(widths)}")
        self.layers = nn.ModuleList(
            NormalisedConvolution(inputs, outputs, norm, conditional)
            for inputs, outputs in pairwise([channels, *widths])
        )
        self.linear = nn.Linear(widths[-1], classes)

    def features(self, y: Tensor, embedding: Tensor | None) -> Tensor:
        for index, layer in enumerate(self.layers):
            y = functional.relu(layer(y, embedding, halve=index < 3), inplace=True)
        return y


class ResidualBlock(nn.Module):
    """ReLU(x' + conv(ReLU(conv(x)))), x' = x or, where the shape changes, a 1×1 convolution."""

    def __init__(
        self, inputs: int, outputs: int, stride: int, norm: str, conditional: bool
    ) -> None:
        super().__init__()
        self.first = NormalisedConvolution(inputs, outputs, norm, conditional, stride=stride)
        self.second = NormalisedConvolution(outputs, outputs, norm, conditional)
        self.shortcut = None
        if inputs != outputs or stride != 1:
            self.shortcut = NormalisedConvolution(inputs, outputs, norm, conditional, 1, stride)

    def forward(self, x: Tensor, embedding: Tensor | None) -> Tensor:
        y = functional.relu(self.first(x, embedding), inplace=True)
        y = self.second(y, embedding)
        if self.shortcut is not None:
            x = self.shortcut(x, embedding)
        return functional.relu(x + y, inplace=True)


class ResNet20(ConvolutionalClassifier):
    """Convolution → 3 stages × `blocks` residual blocks of width, 2·width, 4·width → mean → linear.

    For small images (He et al. 2016); the other options are those of `Conv4`.
    """

    def __init__(
        self,
        classes: int = 10,
        channels: int = 3,
        width: int = 16,
        blocks: int = 3,
        norm: str = "layer",
        conditional: bool = False,
    ) -> None:
        super().__init__(conditional)
        check(1 <= blocks <= 200, f"blocks must lie between 1 and 200, not {blocks}")
        self.stem = NormalisedConvolution(channels, width, norm, conditional)
        self.blocks = nn.ModuleList()
        inputs = width
        for stage in range(3):
            for block in range(blocks):
                outputs, stride = width * 2**stage, 2 if stage > 0 and block == 0 else 1
                self.blocks.append(ResidualBlock(inputs, outputs, stride, norm, conditional))
                inputs = outputs
        self.linear = nn.Linear(inputs, classes)

    def features(self, y: Tensor, embedding: Tensor | None) -> Tensor:
        y = functional.relu(self.stem(y, embedding), inplace=True)
        for block in self.blocks:
            y = block(y, embedding)
        return y


class ResNet9(ConvolutionalClassifier):
    """Convolution 5×5, stride 2 → blocks → 2 × [convolution → halve the size → ReLU → blocks]
    → mean → linear, with residual blocks of two convolutions: nine convolutions in all where
    every size has one block (`blocks`).

    A classifier worth smoothing on a CPU: few wide layers keep a processor busier than many narrow
    ones, as in networks that hold speed records on CIFAR-10. The stem halves the size at once,
    because noise drowns the finest detail anyway. Chosen by measurement, see
    docs/strong-classifier.md. `widths` are the channels before and after each halving; the other
    options are those of `Conv4`.
    """

    def __init__(
        self,
        classes: int = 10,
        channels: int = 3,
        widths: Sequence[int] = (64, 128, 256),
        norm: str = "weight",
        conditional: bool = False,
        blocks: int = 1,
    ) -> None:
        super().__init__(conditional)
        check(1 <= blocks <= 200, f"blocks must lie between 1 and 200, not {blocks}")
        self.stem = NormalisedConvolution(channels, widths[0], norm, conditional, 5, stride=2)
        self.halvings = nn.ModuleList(
            NormalisedConvolution(inputs, outputs, norm, conditional)
            for inputs, outputs in pairwise(widths)
        )
        self.blocks = nn.ModuleList(
            ResidualBlock(width, width, 1, norm, conditional)
            for width in widths
            for _ in range(blocks)
        )
        self.linear = nn.Linear(widths[-1], classes)

    def features(self, y: Tensor, embedding: Tensor | None) -> Tensor:
        y = functional.relu(self.stem(y, embedding), inplace=True)
        each = len(self.blocks) // (1 + len(self.halvings))  # blocks of one size
        for index, block in enumerate(self.blocks):
            if index > 0 and index % each == 0:
                layer = self.halvings[index // each - 1]
                y = functional.relu(layer(y, embedding, halve=True), inplace=True)
            y = block(y, embedding)
        return y

    def deepened(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The weights of a network with one block per size, as weights of this one.

        The further blocks keep their own weights, but gain and bias of their second convolution
        are zero: each begins as the identity, and the network computes what the shallow one did.
        Weights that already have these blocks, or that lack gains, are returned as they are.
        """
        sizes, gain, bias = (
            1 + len(self.halvings),
            "second.convolution.gain",
            "second.convolution.bias",
        )
        each = len(self.blocks) // sizes
        if f"blocks.0.{gain}" not in weights or f"blocks.{sizes}.{gain}" in weights:
            return dict(weights)
        grown = {name: value for name, value in weights.items() if not name.startswith("blocks.")}
        for name, own in self.state_dict().items():
            if not name.startswith("blocks."):
                continue
            _, index, rest = name.split(".", 2)
            size, extra = divmod(int(index), each)
            shallow = weights.get(f"blocks.{size}.{rest}", own)
            further = torch.zeros_like(own) if rest in (gain, bias) else own
            grown[name] = further if extra else shallow
        return grown
