"""How much could any selector gain? The objective at its optimum: constant, by confidence, oracle.

A selector that turns out constant has either failed to learn or found the optimum. This measures
which, for one classifier and λ, on images that nothing was trained on. The objective
(1−λ) CE + λ KL is tabulated for every image and every level of a grid; then three selectors that
need no training are compared:

- constant: one level for all images, the best on average;
- confidence: one level for each tenth of the images, ordered by how sure f is of its own
  prediction; what can be had without knowing the label;
- oracle: the best level of each image, which sees the label; no selector can be better.

Choices are made on one half (of the draws, or of the images) and measured on the other, so that
no gain comes from fitting the noise.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from varsmooth.data import ImageDataset
from varsmooth.errors import require
from varsmooth.objectives import gaussian_kl
from varsmooth.selectors import FixedSelector
from varsmooth.smoothing import SmoothedClassifier, evaluation_mode


@dataclass(frozen=True)
class LossTable:
    """What f says about each image i at each level s of the grid.

    cross_entropy (2, N, levels): −log mean softmax[y] over each half of the draws;
    confidence (N,): highest mean softmax at the level `at`, averaged over the draws.
    """

    levels: Tensor
    cross_entropy: Tensor
    confidence: Tensor


@dataclass(frozen=True)
class Attainable:
    """The mean objective of three selectors for one λ, and the levels they choose."""

    lam: float
    constant: float
    confidence: float
    oracle: float
    constant_level: float
    confidence_levels: tuple[float, ...]
    oracle_mean: float
    oracle_std: float


def tabulate(
    classifier: nn.Module,
    data: ImageDataset,
    levels: Sequence[float],
    at: float,
    draws: int = 32,
    seed: int = 0,
) -> LossTable:
    """Evaluate f on every image at every level; `draws` noisy copies of each."""
    require(draws % 2 == 0, f"draws must be even, to be halved, not {draws}")
    device = next(classifier.parameters()).device
    halves: list[list[Tensor]] = [[], []]  # per half: one (N,) per level
    with evaluation_mode(classifier), torch.no_grad():
        for level in levels:
            for half in (0, 1):
                smoothed = SmoothedClassifier(classifier, FixedSelector(level), samples=draws // 2)
                halves[half].append(_cross_entropy(smoothed, data, f"half {half}", device, seed))
        smoothed = SmoothedClassifier(classifier, FixedSelector(at), samples=draws)
        sure = [
            smoothed(x.to(device), smoothed.noise(len(x), seed, ids)).max(dim=1).values.exp()
            for x, _, ids in data.batches(100)
        ]
    stacked = torch.stack([torch.stack(half, dim=1) for half in halves])  # (2, N, levels)
    return LossTable(torch.tensor(list(levels)), stacked, torch.cat(sure).cpu())


def _cross_entropy(
    smoothed: SmoothedClassifier, data: ImageDataset, scope: str, device: torch.device, seed: int
) -> Tensor:
    found = []
    for images, labels, ids in data.batches(100):
        assert labels is not None
        noise = smoothed.noise(len(images), seed, ids).scoped(scope)
        scores = smoothed(images.to(device), noise).cpu()
        found.append(-scores.gather(1, labels[:, None])[:, 0])
    return torch.cat(found)  # (N,)


def attainable(table: LossTable, lam: float, sigma_t: float, bins: int = 10) -> Attainable:
    """The three selectors for one λ."""
    penalty = lam * gaussian_kl(table.levels, sigma_t)  # (levels,)
    choose, judge = (1 - lam) * table.cross_entropy + penalty  # each (N, levels)
    best = int(choose.mean(dim=0).argmin())
    own = choose.argmin(dim=1)  # (N,)
    levels = table.levels[own]
    order = table.confidence.argsort()
    by_bin, chosen = [], []
    for group in torch.tensor_split(order, bins):
        for mine, others in ((group[::2], group[1::2]), (group[1::2], group[::2])):
            index = int((choose + judge)[others].mean(dim=0).argmin())
            by_bin.append((choose + judge)[mine, index].sum() / 2)
        chosen.append(float(table.levels[(choose + judge)[group].mean(dim=0).argmin()]))
    return Attainable(
        lam=lam,
        constant=float(judge[:, best].mean()),
        confidence=float(torch.stack(by_bin).sum() / len(order)),
        oracle=float(judge.gather(1, own[:, None]).mean()),
        constant_level=float(table.levels[best]),
        confidence_levels=tuple(chosen),
        oracle_mean=float(levels.mean()),
        oracle_std=float(levels.std(correction=0)),
    )
