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
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from reproduce.harness import Context, Experiment, Need, Result, Scale, size
from varsmooth._util.processes import choose_device
from varsmooth.data import ImageDataset, load_dataset
from varsmooth.errors import check
from varsmooth.evaluation.report.statistics import Interval, mean_interval
from varsmooth.evaluation.report.tables import Cell, Table
from varsmooth.losses import gaussian_kl
from varsmooth.models.checkpoints import load_checkpoint
from varsmooth.selectors import FixedSelector
from varsmooth.smoothing import SmoothedClassifier, evaluation_mode
from varsmooth.training.loop import evenly_spaced


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
    """The mean objective of three selectors for one λ, and the levels they choose.

    confidence_gain, oracle_gain: what they gain over the constant, with a 95 % interval.
    """

    lam: float
    constant: float
    confidence: float
    oracle: float
    constant_level: float
    confidence_levels: Sequence[float]
    confidence_gain: Sequence[float]
    oracle_gain: Sequence[float]


def tabulate(
    classifier: nn.Module,
    data: ImageDataset,
    levels: Sequence[float],
    at: float,
    draws: int = 32,
    seed: int = 0,
) -> LossTable:
    """Evaluate f on every image at every level; `draws` noisy copies of each."""
    check(draws % 2 == 0, f"draws must be even, to be halved, not {draws}")
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
    both = (choose + judge) / 2
    best = int(choose.mean(dim=0).argmin())
    own = choose.argmin(dim=1)  # (N,)
    sure, chosen = torch.empty(len(both)), []
    for group in torch.tensor_split(table.confidence.argsort(), bins):
        for mine, others in ((group[::2], group[1::2]), (group[1::2], group[::2])):
            sure[mine] = both[mine, int(both[others].mean(dim=0).argmin())]
        chosen.append(float(table.levels[both[group].mean(dim=0).argmin()]))
    oracle = judge.gather(1, own[:, None])[:, 0]
    return Attainable(
        lam=lam,
        constant=float(both[:, best].mean()),
        confidence=float(sure.mean()),
        oracle=float(oracle.mean()),
        constant_level=float(table.levels[best]),
        confidence_levels=chosen,
        confidence_gain=_mean(both[:, best] - sure),
        oracle_gain=_mean(judge[:, best] - oracle),
    )


def _mean(gains: Tensor) -> list[float]:
    return [float(gains.mean()), *mean_interval(gains.numpy())]


@dataclass(frozen=True, kw_only=True)
class AttainableScale(Scale):
    """A fixed f at σ_a with h told σ_a, and the universal one up to σ_a′ with h told σ_a′/2."""

    sigmas: tuple[float, ...] = size("σ_a", (0.25,), stated=False)
    universal: tuple[float, ...] = size("σ_a′", (1.0,), stated=False)
    images: int = size("held-out images", 5000, stated=False)
    lams: tuple[float, ...] = size("λ", (0.0, 0.1, 0.2, 0.5), stated=False)
    draws: int = size("noisy copies of an image at each level", 32, stated=False)
    shares: tuple[float, ...] = size(
        "levels, as shares of σ_t",
        (0.04, 0.1, 0.175, 0.25, 0.35, 0.4, 0.45, 0.5, 0.575, 0.65, 0.8, 1.0),
        stated=False,
    )

    @property
    def needs(self) -> list[Need]:
        fixed = [Need.fixed(sigma) for sigma in self.sigmas]
        universal = [Need.universal(sigma) for sigma in self.universal]
        return [*fixed, *(replace(need, selector=False) for need in universal)]


def measured(context: Context, scale: AttainableScale, need: Need) -> list[Attainable]:
    """The three selectors at every λ, for one f."""

    def make() -> list[dict[str, Any]]:
        model = load_checkpoint(context.model(need))
        assert model.classifier is not None
        told = model.description.sigma_of_selector
        f = model.classifier.to(choose_device(context.device))
        images = evenly_spaced(load_dataset(scale.data, "val", context.root), scale.images)
        levels = [2 * told * share for share in scale.shares]
        table = tabulate(f, images, levels, told, scale.draws, scale.seed)
        return [asdict(attainable(table, lam, 2 * told)) for lam in scale.lams]

    return [Attainable(**found) for found in context.fact(f"attainable, {need.title}", make)]


def run(context: Context, scale: AttainableScale) -> Result:
    """A table; the question is how much there is to gain, which no claim of the paper is about."""
    rows = [
        [
            Cell.of(need.title),
            Cell(f"{one.lam:g}", one.lam),
            Cell(f"{one.constant_level:.3g}", one.constant_level),
            Cell(f"{one.constant:.3f}", one.constant),
            Cell.signed(one.confidence_gain[0], Interval(*one.confidence_gain[1:]), 4),
            Cell.signed(one.oracle_gain[0], Interval(*one.oracle_gain[1:]), 3),
            Cell.of(f"{one.confidence_levels[0]:.3g} … {one.confidence_levels[-1]:.3g}"),
        ]
        for need in scale.needs
        for one in measured(context, scale, need)
    ]
    table = Table(
        "attainable",
        "The objective (1−λ) CE + λ KL on held-out images, σ_t = 2 σ_a: of the best single level, "
        "and how much lower it is with a level for each tenth of the images by the confidence of f "
        "(least sure to surest), and with each image's best level, chosen with the label. The "
        "oracle chooses on one half of the draws and is measured on the other, levels by "
        "confidence on halves of the images; the single level is chosen on all images. 95 % "
        "intervals over images.",
        ["model", "λ", "best σ", "objective", "by confidence", "oracle", "levels by confidence"],
        rows,
    )
    return Result([], [table], [])


ATTAINABLE = Experiment(
    "attainable",
    "ours, on the loss",
    "what any selector could gain over the best single level",
    {"cpu": AttainableScale(images=1000), "paper": AttainableScale()},
    {"cpu": "5 min", "paper": "10 min on a GPU after training"},
    run,
    lambda scale: scale.needs,
)
