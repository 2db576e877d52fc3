"""Selector networks h(x + ε, σ_a, λ) → σ_s: the paper's, and one that reads f."""

import math

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from varsmooth.errors import VarsmoothError, check
from varsmooth.models.networks.layers import SinusoidalEncoding

RANGE = 2.5
"""σ_s stays within σ_a · exp(±RANGE): no level so small or large that its gradient vanishes."""


def positive_level(raw: Tensor, sigma_a: Tensor, above: float = RANGE) -> Tensor:
    """σ_s = σ_a · exp(R · tanh(u/R)): smooth, positive, and σ_a where the output u (B,1) is 0.

    R = RANGE where u < 0, and `above` where u > 0.
    """
    output = raw[:, 0]
    limit = torch.where(output > 0, above, RANGE)
    return sigma_a * torch.exp(limit * torch.tanh(output / limit))


class AttentionSelector(nn.Module):
    """The paper's h: convolution → + encodings of σ_a and λ → self-attention → convolutions → σ_s.

    The paper fixes the order up to the self-attention. Ours: all sizes, the convolutions after it,
    the second use of σ_a and λ before the output, and the range of the output.

    Noisy images (B, channels, H, W), sigma_a (B,), lam (B,) → σ_s (B,).
    The first convolution has stride 2 and its output is pooled once, so that attention sees 8×8
    tokens for 32×32 images; h then costs about a third of conv4.
    """

    def __init__(self, channels: int = 3, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        check(width % (2 * heads) == 0, f"width {width} must be a multiple of {2 * heads}")
        self.stem = nn.Conv2d(channels, width, 3, stride=2, padding=1)
        self.encoding = SinusoidalEncoding(width)
        self.before = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.body = nn.Sequential(
            nn.GroupNorm(1, width),
            nn.Conv2d(width, 2 * width, 3, padding=1),
            nn.SiLU(),
            nn.MaxPool2d(2),
            nn.GroupNorm(1, 2 * width),
            nn.Conv2d(2 * width, 2 * width, 3, padding=1),
            nn.SiLU(),
        )
        self.condition = nn.Linear(2 * width, 2 * width)
        self.output = nn.Linear(2 * width, 1)
        _start_near_zero(self.output)

    def forward(self, x: Tensor, sigma_a: Tensor, lam: Tensor) -> Tensor:
        y = functional.silu(self.stem((x - 0.5) * 4))
        y = functional.avg_pool2d(y, 2)  # (B, W, H/4, W/4)
        code = self.encoding(sigma_a) + self.encoding(lam + 1)  # shifted: σ_a and λ differ in kind
        y = y.permute(0, 2, 3, 1) + code[:, None, None]  # channels last: tokens are a view
        tokens = self.before(y.flatten(1, 2))  # (B, T, W)
        y = y + self._attend(tokens).view_as(y)
        features = self.body(y.permute(0, 3, 1, 2)).mean(dim=(2, 3))  # (B, 2W)
        # λ decides how far everything moves, so it also meets the features where they are few.
        codes = torch.cat([self.encoding(sigma_a), self.encoding(lam + 1)], dim=1)
        features = features * (1 + self.condition(codes)) + codes
        return positive_level(self.output(features), sigma_a)

    def _attend(self, tokens: Tensor) -> Tensor:
        """self.attention(tokens, tokens, tokens), without the copies that it makes: (B, T, W).

        A training step of h takes a quarter less time so.
        """
        attention = self.attention
        joint = functional.linear(tokens, attention.in_proj_weight, attention.in_proj_bias)
        split = joint.view(*tokens.shape[:2], 3, attention.num_heads, -1).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(*split)  # (B, heads, T, W/heads)
        output: Tensor = attention.out_proj(attended.transpose(1, 2).flatten(2))
        return output


class ReadsClassifier(nn.Module):
    """A selector network that looks at the classifier's own output.

    The classifier is attached, not owned: it is not part of this module's parameters, state or
    mode, so checkpoints hold it once and training h cannot change it.
    """

    def attach(self, classifier: nn.Module) -> None:
        """Use this classifier from now on."""
        object.__setattr__(self, "_classifier", classifier)

    def read(self, x: Tensor, sigma: Tensor) -> Tensor:
        """log softmax f(x) (B, classes); gradients reach x, never f's parameters."""
        classifier = getattr(self, "_classifier", None)
        if not isinstance(classifier, nn.Module):
            raise VarsmoothError("this selector reads a classifier; call attach(classifier) first")
        frozen = {name: p.detach() for name, p in classifier.named_parameters()}
        conditional = getattr(classifier, "conditional", False)
        output = functional_call(classifier, frozen, (x, sigma) if conditional else (x,))
        logits: Tensor = getattr(output, "logits", output)
        return logits.log_softmax(dim=1)


class ConfidenceSelector(ReadsClassifier):
    """h that reads the confidence of f at the noisy image: log p and sorted log p → σ_s.

    One evaluation costs one of f and a small perceptron. log p shows which classes f sees, the
    sorted values how sure it is of any.

    Args:
        classes: Number of classes of f.
        width: Of the perceptron.
        highest: The largest σ_s / σ_a. Under far more noise than it was trained with, f gives every
            image the same class with any radius, and an h rewarded for the radius would send images
            there.
    """

    def __init__(self, classes: int = 10, width: int = 64, highest: float | None = None) -> None:
        super().__init__()
        check(width % 4 == 0, f"width {width} must be a multiple of 4")
        check(highest is None or highest > 1, f"highest must be above 1, not {highest}")
        self.above = RANGE if highest is None else math.log(highest)
        self.encoding = SinusoidalEncoding(width // 2)
        self.stem = nn.Linear(2 * classes, width)
        self.hidden = nn.Linear(width, width)
        self.condition = nn.Linear(width, width)
        self.output = nn.Linear(width, 1)
        _start_near_zero(self.output)

    def forward(self, x: Tensor, sigma_a: Tensor, lam: Tensor) -> Tensor:
        log_p = self.read(x, sigma_a).clamp_min(-12)  # (B, classes)
        inputs = torch.cat([log_p, log_p.sort(dim=1, descending=True).values], dim=1) / 4
        codes = torch.cat([self.encoding(sigma_a), self.encoding(lam + 1)], dim=1)  # (B, width)
        features = functional.silu(self.stem(inputs) + codes)
        features = functional.silu(self.hidden(features)) * (1 + self.condition(codes)) + codes
        return positive_level(self.output(features), sigma_a, self.above)


def _start_near_zero(layer: nn.Linear) -> None:
    """Levels start near σ_a; not at exactly zero, where no gradient would pass the layer."""
    nn.init.normal_(layer.weight, std=0.01)
    nn.init.zeros_(layer.bias)
