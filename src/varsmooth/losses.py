"""The losses of f and h: the variational objective, consistency over copies of noise, "pass"."""

from typing import Literal

import torch
from torch import Tensor, special
from torch.nn import functional

from varsmooth.errors import check

Reduction = Literal["mean", "sum"]

CERTAINTY = 0.993
"""The largest lower bound of p that 1000 unanimous votes give at α = 10⁻³: α^(1/1000)."""


PASS_CONFIDENCE, PASS_TEMPERATURE, PASS_MIN_SIGMA = 0.5, 0.1, 0.2
"""Of `pass_loss`: the confidence at which the target is half label and half "pass", the temperature
of the transition, and the noise level below which the target is always the label."""


def gaussian_kl(sigma_s: Tensor, sigma_t: Tensor | float, d: int = 1) -> Tensor:
    """KL(N(0, σ_s² I_d) ‖ N(0, σ_t² I_d)) = d · [½ (σ_s/σ_t)² − ½ − log(σ_s/σ_t)], per image.

    Examples:
        >>> import torch
        >>> gaussian_kl(torch.tensor([0.25, 0.5]), 0.25, d=2)
        tensor([0.0000, 1.6137])
    """
    ratio = sigma_s / sigma_t
    return d * (0.5 * ratio.square() - 0.5 - ratio.log())


def variational_loss(
    scores: Tensor,
    y: Tensor,
    sigma_s: Tensor,
    sigma_t: Tensor | float,
    lam: Tensor | float,
    d: int,
    reduction: Reduction = "mean",
) -> Tensor:
    """L = (1−λ) · CE + λ · KL, per image (B,); CE = −log g_s(x)[y].

    Args:
        scores: Log of the mean softmax (B, classes), as `SmoothedClassifier.forward` returns it, so
            that CE is −scores[y].
        y: Labels (B,).
        sigma_s: Levels (B,) that h chose.
        sigma_t: The target level.
        lam: λ in [0, 1].
        d: Dimensions of an image.
        reduction: Of the KL over the d dimensions. "mean" is the KL per dimension; "sum" is the
            paper's formula, which at d = 3072 outweighs the cross-entropy for any λ > 0.01 and
            forces σ_s = σ_t.
    """
    check(reduction in ("mean", "sum"), f"reduction must be 'mean' or 'sum', not {reduction!r}")
    cross_entropy = -scores.gather(1, y[:, None])[:, 0]  # (B,)
    divergence = gaussian_kl(sigma_s, sigma_t, d if reduction == "sum" else 1)
    return (1 - lam) * cross_entropy + lam * divergence


def radius_loss(
    scores: Tensor, y: Tensor, sigma_s: Tensor, lam: Tensor | float, scale: float
) -> Tensor:
    """(1−λ) · CE − λ · r / scale, per image (B,), with the soft radius r = σ_s · Φ⁻¹(p_y).

    Not the paper's, whose objective rewards levels near σ_t, not radii. Here σ_s grows where f
    stays right under more noise, and shrinks where r is negative. p_y is the softmax mean of the
    label, drawn in to [0.007, 0.993], beyond which N = 1000 votes at α = 10⁻³ certify nothing more.

    Args:
        scores: Log of the mean softmax (B, classes).
        y: Labels (B,).
        sigma_s: Levels (B,) that h chose.
        lam: λ in [0, 1].
        scale: The level that counts as one, σ_a.
    """
    log_p = scores.gather(1, y[:, None])[:, 0]  # (B,)
    p = CERTAINTY * log_p.exp() + (1 - CERTAINTY) * (1 - log_p.exp())
    radius: Tensor = sigma_s * special.ndtri(p)
    return -(1 - lam) * log_p - lam * radius / scale


def consistency_loss(logits: Tensor, weight: Tensor | float, entropy: float = 0.5) -> Tensor:
    """Consistency of f over m noise copies of each image, per image (B,).

    η · mean_k KL(p̄ ‖ p_k) + entropy · H(p̄), with p_k = softmax of copy k and p̄ their mean:
    the first term makes the copies agree, the second makes the agreement confident.

    Args:
        logits: Logits (m, B, classes) of the copies, m ≥ 2.
        weight: η, one number or (B,).
        entropy: Weight of the second term.

    References:
        Jeong, Shin: Consistency Regularization for Certified Robustness of Smoothed Classifiers,
            2020.
    """
    log_p = logits.log_softmax(dim=-1)  # (m, B, classes)
    mean = log_p.exp().mean(dim=0)  # (B, classes)
    log_mean = mean.clamp_min(1e-20).log()
    divergence = (mean * (log_mean - log_p)).sum(dim=-1).mean(dim=0)  # (B,)
    return weight * divergence - entropy * (mean * log_mean).sum(dim=-1)


def pass_loss(logits: Tensor, y: Tensor, sigma: Tensor) -> Tensor:
    """Cross-entropy to a target that may say "pass" where f cannot name the image, per image (B,).

    The last of the scores is that of "pass". The target puts sigmoid((q − ½)/0.1) on the label and
    the rest on "pass", where q is the mean softmax of the label among the classes alone over the
    copies of noise; where σ < 0.2 all of it is on the label. An image that noise has made
    unrecognisable is not pushed towards any class, so the copies of other images become consistent
    sooner. "Pass" is for training: its score is dropped from the finished network.

    Args:
        logits: Logits (m, B, classes + 1) of m copies.
        y: Labels (B,).
        sigma: Levels (B,) of the noise.
    """
    with torch.no_grad():
        classes = logits[..., :-1].softmax(dim=-1).mean(dim=0)  # (B, classes)
        q = classes.gather(1, y[:, None])[:, 0]
        keep = torch.sigmoid((q - PASS_CONFIDENCE) / PASS_TEMPERATURE)
        keep = keep.where(sigma >= PASS_MIN_SIGMA, 1.0)  # (B,)
    log_p = logits.log_softmax(dim=-1)
    named = functional.nll_loss(log_p.flatten(0, 1), y.repeat(len(logits)), reduction="none")
    loss: Tensor = keep * named.view(len(logits), -1) - (1 - keep) * log_p[..., -1]
    return loss.mean(dim=0)
