"""Classifiers and selectors whose smoothed behaviour is known in closed form.

All of them read images (B,1,1,d); pixel 0.5 is the origin by default.
"""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import torch
from scipy.stats import binom
from torch import Tensor, nn

from varsmooth import FixedSelector, Options, SmoothedClassifier


def arguments(**values: Any) -> dict[str, Any]:
    """Arguments of `certify` and `predict`; those that belong to `Options` become one."""
    names = {field.name for field in fields(Options)}
    options = Options(**{name: value for name, value in values.items() if name in names})
    others = {name: value for name, value in values.items() if name not in names}
    return others | {"options": options}


def at_most(errors: int, rate: float, trials: int) -> bool:
    """Whether so many errors are believable at this error rate (one-sided, 10⁻⁶)."""
    return bool(binom.sf(errors - 1, trials, rate) > 1e-6)


def fixed(f: nn.Module, sigma: float = 0.25) -> SmoothedClassifier:
    return SmoothedClassifier(f, FixedSelector(sigma))


class Linear(nn.Module):
    """Class 0 where the first pixel exceeds ½: p = Φ(margin/σ), so R = margin at every σ."""

    def forward(self, x: Tensor) -> Tensor:
        score = x.flatten(1)[:, 0] - 0.5
        return torch.stack([score, torch.zeros_like(score)], dim=1)


class NearestOfTwo(nn.Module):
    """Class 0 where c0 = (0,0) is nearer than c1 = (4,0), with coordinates ten times the pixels."""

    def forward(self, x: Tensor) -> Tensor:
        z = 10 * x.flatten(1)
        c1 = torch.tensor([4.0, 0.0])
        return torch.stack([-(z**2).sum(1), -((z - c1) ** 2).sum(1)], dim=1)


class Disc(nn.Module):
    """Class 0 inside the unit disc around the origin."""

    def forward(self, x: Tensor) -> Tensor:
        score = 1 - (x.flatten(1) - 0.5).norm(dim=1)
        return torch.stack([score, torch.zeros_like(score)], dim=1)


class Shell(nn.Module):
    """Class 0 except on the shell 0.36√d ≤ ‖z‖ ≤ 0.39√d, where it is class 1."""

    def forward(self, x: Tensor) -> Tensor:
        z = x.flatten(1) - 0.5
        scaled = z.norm(dim=1) / z.shape[1] ** 0.5
        wrong = ((scaled >= 0.36) & (scaled <= 0.39)).float()
        return torch.stack([1 - wrong, wrong], dim=1)


class WrongAbove(nn.Module):
    """A conditional classifier: class 0 for certain below the level `bad`, class 1 from it on."""

    conditional = True

    def __init__(self, bad: float) -> None:
        super().__init__()
        self.bad = bad

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        wrong = (sigma >= self.bad).to(x.dtype)
        return torch.stack([1 - wrong, wrong], dim=1)


class Shares(nn.Module):
    """Class c with probability shares[c], σ = ¼ around ½: by the first pixel's quantile."""

    def __init__(self, shares: Sequence[float]) -> None:
        super().__init__()
        self.classes, self.ends = len(shares), torch.tensor(shares).cumsum(0).double()

    def forward(self, x: Tensor) -> Tensor:
        u = torch.special.ndtr((x.flatten(1)[:, 0].double() - 0.5) / 0.25)
        chosen = torch.bucketize(u, self.ends).clamp(max=self.classes - 1)
        return nn.functional.one_hot(chosen, self.classes).float()


class Spy(nn.Module):
    """Remembers the images that it is shown; its scores are their first two pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = list[Tensor]()

    def forward(self, z: Tensor) -> Tensor:
        self.seen.append(z.detach().clone())
        return z.flatten(1)[:, :2]


class LinearSelector(nn.Module):
    """h(x) = center + slope·(last pixel − ½): the median is exact, and D moves it by ∓ D·slope."""

    def __init__(self, center: float, slope: float) -> None:
        super().__init__()
        self.center, self.slope = center, slope

    def forward(self, x: Tensor) -> Tensor:
        return self.center + self.slope * (x.flatten(1)[:, -1] - 0.5)


def point(*pixels: float, copies: int = 1) -> Tensor:
    """The same small image `copies` times: (copies, 1, 1, d)."""
    return torch.tensor(pixels).expand(copies, 1, 1, -1).contiguous()
