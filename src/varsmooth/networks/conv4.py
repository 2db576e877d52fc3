"""The paper's base classifier: four convolutions."""

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional

from varsmooth.errors import require
from varsmooth.networks.encoding import NoiseEmbedding
from varsmooth.networks.normalisation import EMBEDDING, Normalise, PixelInput


class Conv4(nn.Module):
    """x → 4 × [convolution 3×3 → norm → ReLU → halve the size (not the last)] → mean → linear.

    Images (B, channels, H, W) in [0,1] → logits (B, classes). Input normalisation is inside.
    Sizes are halved early, because sampling is what smoothing spends its time on.

    conditional: called as f(x, sigma) with sigma (B,), the level of the noise in x. It divides
        the input by √(v + σ²) and steers every normalisation layer.
    """

    def __init__(
        self,
        classes: int = 10,
        channels: int = 3,
        widths: Sequence[int] = (32, 64, 128, 128),
        norm: str = "batch",
        conditional: bool = False,
    ) -> None:
        super().__init__()
        require(len(widths) == 4, f"conv4 has four widths, not {len(widths)}")
        self.conditional = conditional
        self.input = PixelInput()
        self.embedding = NoiseEmbedding(EMBEDDING) if conditional else None
        self.convolutions = nn.ModuleList()
        self.norms = nn.ModuleList()
        for inputs, outputs in zip([channels, *widths[:-1]], widths, strict=True):
            convolution = nn.Conv2d(inputs, outputs, 3, padding=1, bias=norm == "none")
            nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu")
            self.convolutions.append(convolution)
            self.norms.append(Normalise(norm, outputs, conditional))
        self.linear = nn.Linear(widths[-1], classes)

    def forward(self, x: Tensor, sigma: Tensor | None = None) -> Tensor:
        embedding = None if self.embedding is None else self.embedding(sigma)
        y = self.input(x, sigma)
        for index, (convolution, norm) in enumerate(
            zip(self.convolutions, self.norms, strict=True)
        ):
            y = functional.relu(norm(convolution(y), embedding), inplace=True)
            if index < 3:
                y = functional.max_pool2d(y, 2)
        logits: Tensor = self.linear(y.mean(dim=(2, 3)))
        return logits
