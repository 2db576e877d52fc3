"""A denoiser in front of a classifier that cannot be trained again."""

from torch import Tensor, nn


class DenoisedClassifier(nn.Module):
    """f(z, σ) = classifier(denoiser(z, σ)), a classifier for every σ (Salman et al. 2020).

    The denoiser is part of f, so certificates hold however good it is; a better one makes them
    larger.

    Args:
        denoiser: Noisy images z (B,C,H,W) and their noise levels sigma (B,) → images of that shape.
        classifier: Images in [0,1] → logits, as for `SmoothedClassifier`; a `conditional` one gets
            σ = 0.
    """

    conditional = True

    def __init__(self, denoiser: nn.Module, classifier: nn.Module) -> None:
        super().__init__()
        self.denoiser, self.classifier = denoiser, classifier

    def forward(self, z: Tensor, sigma: Tensor) -> Tensor:
        x = self.denoiser(z, sigma)
        told = getattr(self.classifier, "conditional", False)
        output = self.classifier(x, sigma.new_zeros(len(x))) if told else self.classifier(x)
        logits: Tensor = getattr(output, "logits", output)
        return logits
