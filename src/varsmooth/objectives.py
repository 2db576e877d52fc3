"""The losses of f and h: the variational objective, and consistency over copies of noise."""

from typing import Literal

from torch import Tensor

from varsmooth.errors import require

Reduction = Literal["mean", "sum"]


def gaussian_kl(sigma_s: Tensor, sigma_t: Tensor | float, d: int = 1) -> Tensor:
    """KL(N(0, σ_s² I_d) ‖ N(0, σ_t² I_d)) = d · [½ (σ_s/σ_t)² − ½ − log(σ_s/σ_t)], per image.

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

    scores (B, classes): log of the mean softmax, as `SmoothedClassifier.forward` gives them, so
        that CE is just −scores[y].
    sigma_s (B,): the levels that h chose; sigma_t: the target level; lam: λ in [0, 1].
    reduction: of the KL over the d dimensions of an image. "mean" is the KL per dimension. "sum"
        is the formula to the letter; at d = 3072 it outweighs the cross-entropy for any λ > 0.01
        and forces σ_s = σ_t.
    """
    require(reduction in ("mean", "sum"), f"reduction must be 'mean' or 'sum', not {reduction!r}")
    cross_entropy = -scores.gather(1, y[:, None])[:, 0]  # (B,)
    divergence = gaussian_kl(sigma_s, sigma_t, d if reduction == "sum" else 1)
    return (1 - lam) * cross_entropy + lam * divergence


def consistency_loss(logits: Tensor, weight: float, entropy: float = 0.5) -> Tensor:
    """Consistency of f over m noise copies of each image (Jeong & Shin 2020), per image (B,).

    η · mean_k KL(p̄ ‖ p_k) + entropy · H(p̄), with p_k = softmax of copy k and p̄ their mean:
    the first term makes the copies agree, the second makes the agreement confident.

    logits (m, B, classes) with m ≥ 2; weight: η.
    """
    log_p = logits.log_softmax(dim=-1)  # (m, B, classes)
    mean = log_p.exp().mean(dim=0)  # (B, classes)
    log_mean = mean.clamp_min(1e-20).log()
    divergence = (mean * (log_mean - log_p)).sum(dim=-1).mean(dim=0)  # (B,)
    return weight * divergence - entropy * (mean * log_mean).sum(dim=-1)
