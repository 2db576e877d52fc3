"""The paper's base classifier: four convolutions."""

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional

from varsmooth.errors import require
from varsmooth.models.networks.encoding import NoiseEmbedding
from varsmooth.models.networks.normalisation import EMBEDDING, NormalisedConvolution, scale_pixels


class Conv4(nn.Module):
    """x → 4 × [convolution 3×3, normalised → halve the size (not the last) → ReLU] → mean → linear.

    Images (B, channels, H, W) in [0,1] → logits (B, classes). Input normalisation is inside. Sizes
    are halved early, because smoothing spends its time on sampling, and before the ReLU, which
    commutes with the maximum and then has a quarter of the work.

    Args:
        classes: Number of classes.
        channels: Of the images.
        widths: Channels of the four convolutions.
        norm: See `varsmooth.models.networks.normalisation`; chosen by measurement, see
            docs/normalisation.md.
        conditional: Called as f(x, sigma) with sigma (B,), the level of the noise in x. It divides
            the input by √(v + σ²) and scales and shifts every layer.
    """

    def __init__(
        self,
        classes: int = 10,
        channels: int = 3,
        widths: Sequence[int] = (32, 64, 128, 128),
        norm: str = "weight",
        conditional: bool = False,
    ) -> None:
        super().__init__()
        require(len(widths) == 4, f"conv4 has four widths, not {len(widths)}")
        self.conditional = conditional
        self.embedding = NoiseEmbedding(EMBEDDING) if conditional else None
        self.layers = nn.ModuleList(
            NormalisedConvolution(inputs, outputs, norm, conditional)
            for inputs, outputs in zip([channels, *widths[:-1]], widths, strict=True)
        )
        self.linear = nn.Linear(widths[-1], classes)

    def forward(self, x: Tensor, sigma: Tensor | None = None) -> Tensor:
        embedding = None if self.embedding is None else self.embedding(sigma)
        y = scale_pixels(x, sigma)
        for index, layer in enumerate(self.layers):
            y = layer(y, embedding)
            if index < 3:
                y = functional.max_pool2d(y, 2)
            y = functional.relu(y, inplace=True)
        logits: Tensor = self.linear(y.mean(dim=(2, 3)))
        return logits
