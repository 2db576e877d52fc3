"""The selector network that is told no λ, to see what telling it is worth."""

import torch
from torch import Tensor

from varsmooth.models.networks import AttentionSelector

PATH = "reproduce.unconditioned:UnconditionedSelector"
"""What a description names it by; whoever loads it must say that they trust this path."""


class UnconditionedSelector(AttentionSelector):
    """The paper's h with λ hidden: it sees the same middle value whatever is asked."""

    def forward(self, x: Tensor, sigma_a: Tensor, lam: Tensor) -> Tensor:
        return super().forward(x, sigma_a, torch.full_like(lam, 0.5))
