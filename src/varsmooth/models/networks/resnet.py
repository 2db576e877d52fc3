"""ResNet-20 for small images (He et al. 2016), for users who want more than conv4."""

from torch import Tensor, nn
from torch.nn import functional

from varsmooth.errors import require
from varsmooth.models.networks.encoding import NoiseEmbedding
from varsmooth.models.networks.normalisation import EMBEDDING, NormalisedConvolution, scale_pixels


class ResidualBlock(nn.Module):
    """ReLU(x' + conv(ReLU(conv(x)))), x' = x or, where the shape changes, a 1×1 convolution."""

    def __init__(
        self, inputs: int, outputs: int, stride: int, norm: str, conditional: bool
    ) -> None:
        super().__init__()
        self.first = NormalisedConvolution(inputs, outputs, norm, conditional, stride=stride)
        self.second = NormalisedConvolution(outputs, outputs, norm, conditional)
        self.shortcut = (
            None
            if inputs == outputs and stride == 1
            else NormalisedConvolution(
                inputs, outputs, norm, conditional, kernel_size=1, stride=stride
            )
        )

    def forward(self, x: Tensor, embedding: Tensor | None) -> Tensor:
        y = functional.relu(self.first(x, embedding), inplace=True)
        y = self.second(y, embedding)
        if self.shortcut is not None:
            x = self.shortcut(x, embedding)
        return functional.relu(x + y, inplace=True)


class ResNet20(nn.Module):
    """Convolution → 3 stages × `blocks` residual blocks of width, 2·width, 4·width → mean → linear.

    Images (B, channels, H, W) in [0,1] → logits (B, classes); the options are those of `Conv4`.
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
        super().__init__()
        require(1 <= blocks <= 200, f"blocks must lie between 1 and 200, not {blocks}")
        self.conditional = conditional
        self.embedding = NoiseEmbedding(EMBEDDING) if conditional else None
        self.stem = NormalisedConvolution(channels, width, norm, conditional)
        self.blocks = nn.ModuleList()
        inputs = width
        for stage in range(3):
            for block in range(blocks):
                outputs, stride = width * 2**stage, 2 if stage > 0 and block == 0 else 1
                self.blocks.append(ResidualBlock(inputs, outputs, stride, norm, conditional))
                inputs = outputs
        self.linear = nn.Linear(inputs, classes)

    def forward(self, x: Tensor, sigma: Tensor | None = None) -> Tensor:
        embedding = None if self.embedding is None else self.embedding(sigma)
        y = functional.relu(self.stem(scale_pixels(x, sigma), embedding), inplace=True)
        for block in self.blocks:
            y = block(y, embedding)
        logits: Tensor = self.linear(y.mean(dim=(2, 3)))
        return logits
