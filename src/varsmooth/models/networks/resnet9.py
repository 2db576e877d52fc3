"""ResNet-9: wide, shallow and at half the resolution, a classifier worth smoothing on a CPU."""

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional

from varsmooth.models.networks.encoding import NoiseEmbedding
from varsmooth.models.networks.normalisation import EMBEDDING, NormalisedConvolution, scale_pixels
from varsmooth.models.networks.resnet import ResidualBlock


class ResNet9(nn.Module):
    """Convolution 5×5, stride 2 → block → 2 × [convolution → halve the size → ReLU → block]
    → mean → linear, with residual blocks of two convolutions: nine convolutions in all.

    Images (B, channels, H, W) in [0,1] → logits (B, classes). Few wide layers keep a processor
    busier than many narrow ones, as in networks that hold speed records on CIFAR-10. The stem
    halves the size at once, because noise drowns the finest detail anyway. Chosen by measurement,
    see docs/strong-classifier.md. `widths` are the channels before and after each halving; the
    other options are those of `Conv4`.
    """

    def __init__(
        self,
        classes: int = 10,
        channels: int = 3,
        widths: Sequence[int] = (64, 128, 256),
        norm: str = "weight",
        conditional: bool = False,
    ) -> None:
        super().__init__()
        self.conditional = conditional
        self.embedding = NoiseEmbedding(EMBEDDING) if conditional else None
        self.stem = NormalisedConvolution(
            channels, widths[0], norm, conditional, kernel_size=5, stride=2
        )
        self.halvings = nn.ModuleList(
            NormalisedConvolution(inputs, outputs, norm, conditional)
            for inputs, outputs in pairwise(widths)
        )
        self.blocks = nn.ModuleList(
            ResidualBlock(width, width, 1, norm, conditional) for width in widths
        )
        self.linear = nn.Linear(widths[-1], classes)

    def forward(self, x: Tensor, sigma: Tensor | None = None) -> Tensor:
        embedding = None if self.embedding is None else self.embedding(sigma)
        y = functional.relu(self.stem(scale_pixels(x, sigma), embedding), inplace=True)
        y = self.blocks[0](y, embedding)
        for halve, block in zip(self.halvings, self.blocks[1:], strict=True):
            y = functional.max_pool2d(halve(y, embedding), 2)
            y = block(functional.relu(y, inplace=True), embedding)
        logits: Tensor = self.linear(y.mean(dim=(2, 3)))
        return logits
