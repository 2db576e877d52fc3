"""A denoiser in front of a frozen classifier: smoothing without retraining f."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from varsmooth.errors import check
from varsmooth.models.names import CLASSIFIERS
from varsmooth.models.networks.classifiers import ResidualBlock
from varsmooth.models.networks.layers import (
    EMBEDDING,
    PIXEL_VARIANCE,
    NoiseEmbedding,
    NormalisedConvolution,
    StandardisedConv2d,
    scale_pixels,
)


class Denoiser(nn.Module):
    """x̂ = ½ + v/(v+σ²) (z − ½) + σ √(v/(v+σ²)) F(z, σ), v the variance of pixels.

    Noisy images z (B, channels, H, W) with even H and W, their levels sigma (B,) → images of that
    shape. The first two terms are the best linear estimate of a pixel from itself; the residual
    network F adds what its surroundings tell (preconditioning as in Karras et al. 2022). F works
    at half the size.
    """

    def __init__(self, channels: int = 3, width: int = 48, blocks: int = 4) -> None:
        super().__init__()
        self.embedding = NoiseEmbedding(EMBEDDING)
        self.stem = NormalisedConvolution(channels, width, "weight", True, 5, stride=2)
        self.blocks = nn.ModuleList(
            ResidualBlock(width, width, 1, "weight", True) for _ in range(blocks)
        )
        self.output = StandardisedConv2d(width, 4 * channels, 3, padding=1)
        nn.init.constant_(self.output.gain, 0.1)  # begins near the linear estimate

    def forward(self, z: Tensor, sigma: Tensor) -> Tensor:
        embedding = self.embedding(sigma)
        y = functional.relu(self.stem(scale_pixels(z, sigma), embedding), inplace=True)
        for block in self.blocks:
            y = block(y, embedding)
        residual = functional.pixel_shuffle(self.output(y), 2)
        keep = (PIXEL_VARIANCE / (PIXEL_VARIANCE + sigma.square())).view(-1, 1, 1, 1)
        return 0.5 + keep * (z - 0.5) + sigma.view(-1, 1, 1, 1) * keep.sqrt() * residual


class DenoisedClassifier(nn.Module):
    """f(z, σ) = classifier(denoiser(z, σ)), a classifier for every σ (Salman et al. 2020).

    For a classifier that cannot be trained again: it stays in evaluation mode. The denoiser is part
    of f, so certificates hold however good it is; a better one makes them larger.

    Args:
        denoiser: Noisy images z (B,C,H,W) and their noise levels sigma (B,) → images of that shape.
        classifier: Images in [0,1] → logits, as for `SmoothedClassifier`; a `conditional` one gets
            σ = 0.
    """

    conditional = True

    def __init__(self, denoiser: nn.Module, classifier: nn.Module) -> None:
        super().__init__()
        self.denoiser, self.classifier = denoiser, classifier
        for name in ("class_names", "image_shape", "preprocessing"):  # what it says of its images
            if hasattr(classifier, name):
                setattr(self, name, getattr(classifier, name))

    def train(self, mode: bool = True) -> "DenoisedClassifier":
        super().train(mode)
        self.classifier.eval()
        return self

    def forward(self, z: Tensor, sigma: Tensor) -> Tensor:
        x = self.denoiser(z, sigma)
        conditional = getattr(self.classifier, "conditional", False)
        output = self.classifier(x, sigma.new_zeros(len(x))) if conditional else self.classifier(x)
        logits: Tensor = getattr(output, "logits", output)
        return logits


def denoised(
    classifier: str = "conv4",
    classifier_options: Mapping[str, Any] | None = None,
    channels: int = 3,
    width: int = 48,
    blocks: int = 4,
) -> DenoisedClassifier:
    """A fresh `Denoiser` before a registered classifier whose weights are frozen."""
    from varsmooth.models.networks.registry import build

    known = [name for name in CLASSIFIERS if name != "denoised"]
    check(  # a description is untrusted input: no import path here
        classifier in known,
        f"the classifier behind a denoiser must be one of {', '.join(known)}; to put a denoiser in "
        "front of your own network, use DenoisedClassifier in Python",
    )
    frozen = build(classifier, classifier_options)
    for parameter in frozen.parameters():
        parameter.requires_grad_(False)
    return DenoisedClassifier(Denoiser(channels, width, blocks), frozen)
