"""Metrics of a trained model on held-out images.

f: its accuracy without noise, and at levels around σ_a the accuracy of the vote, the certified
accuracy and the average certified radius.
h: which levels it chooses for each λ, how much they differ between images, and whether they follow
each image's own best level, the one with the largest certified radius.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from scipy.stats import spearmanr
from torch import nn

from varsmooth._util.progress import Progress
from varsmooth.bounds import Floats, average_certified_radius
from varsmooth.data import ImageDataset
from varsmooth.errors import VarsmoothError
from varsmooth.evaluation.tune.selector import VoteTable, sample_selector, tabulate_votes
from varsmooth.models.cards import RADII
from varsmooth.models.checkpoints import Checkpoint
from varsmooth.models.descriptions import Description, Part
from varsmooth.noise import scoped_seed
from varsmooth.rounding import counted, percent, rounded
from varsmooth.selectors import FixedSelector, LearnedSelector
from varsmooth.smoothing import SmoothedClassifier, evaluation_mode

LAMBDAS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""The λ at which a card shows the levels of a selector."""

Metrics = dict[str, Any]


def measured_levels(sigma_a: float, universal: bool) -> list[float]:
    """The levels at which f is measured: around σ_a, or over the range (0, σ_a']."""
    shares = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1) if universal else (0.25, 0.5, 0.75, 1, 1.25, 1.5, 2)
    return [share * sigma_a for share in shares]


def measure_classifier(
    classifier: nn.Module, data: ImageDataset, levels: Sequence[float], votes: int, seed: int = 0
) -> tuple[Metrics, VoteTable]:
    """Accuracy in percent, without noise and of the vote at each level, without abstention."""
    g = SmoothedClassifier(classifier, FixedSelector(levels[0]))
    each = ", ".join(f"{s:g}" for s in levels)
    plan = f"measuring {counted(len(data), 'image')}, {votes} votes each at σ = {each}"
    print(plan, file=sys.stderr, flush=True)
    table = tabulate_votes(g, data, levels, votes, scoped_seed(seed, "measure"))
    right = table.counts.argmax(axis=2) == table.labels[:, None]  # (N, levels)
    metrics = {
        "images": len(data),
        "votes": votes,
        "plain_accuracy": round(100 * plain_accuracy(g, data), 2),
        "smoothed_accuracy": {
            f"{level:g}": round(100 * float(share), 2)
            for level, share in zip(levels, right.mean(axis=0), strict=True)
        },
        "certified": _certified(table),
    }
    return metrics, table


def _certified(table: VoteTable) -> Metrics:
    """Certified accuracy in percent at each of RADII, and the average radius, level by level.

    The candidate is the label, which does not depend on the votes: the bound holds as it stands,
    and images that f gets wrong count as radius 0. Each level records its number of images and
    votes: `measure` may be repeated for some levels with more.
    """
    radii = np.maximum(table.radii(table.labels, range(len(table.levels))), 0)  # (N, levels)
    return {
        f"{level:g}": {
            **{
                r: float(percent(int(((mine > 0) & (mine >= float(r))).sum()), len(mine)))
                for r in RADII
            },
            "average_radius": float(rounded(average_certified_radius(mine), 4)),
            "images": len(mine),
            "votes": table.n,
        }
        for level, mine in zip(table.levels, radii.T, strict=True)
    }


def plain_accuracy(g: SmoothedClassifier, data: ImageDataset) -> float:
    """The accuracy of f itself on images without noise; a conditional f gets σ = 0."""
    device, predictions = g.device, []
    with evaluation_mode(g), torch.no_grad():
        for x, _, _ in data.batches(100):
            logits = g.logits(x.to(device), torch.zeros(len(x), device=device))
            predictions.append(logits.argmax(dim=1).cpu())
    return float((torch.cat(predictions).numpy() == data.known_labels).mean())


def measure_selector(
    classifier: nn.Module,
    selector: nn.Module,
    sigma_a: float,
    data: ImageDataset,
    lams: Sequence[float] = LAMBDAS,
    samples: int = 31,
    table: VoteTable | None = None,
    seed: int = 0,
) -> Metrics:
    """The levels σ_s = median of h over the images for each λ: mean, std, min, max.

    With a table of votes also Spearman's rank correlation of σ_s with the image's best level, over
    the images that f gets right at any level: 1 if h orders the images by their best level, None
    where one of the two is constant.
    """
    g = SmoothedClassifier(classifier, LearnedSelector(selector, sigma_a, 0.0))
    scope = scoped_seed(seed, "measure")
    best = None if table is None else best_levels(table)
    chosen: dict[str, dict[str, float | None]] = {}
    with Progress(len(lams) * len(data), f"{len(lams)} settings of h") as bar:
        for lam in lams:
            raw = sample_selector(g, data, lam, sigma_a, samples, scope, bar=bar)
            sigma = raw[:, samples // 2]
            row: dict[str, float | None] = {
                name: round(float(getattr(sigma, name)()), 5)
                for name in ("mean", "std", "min", "max")
            }
            if best is not None:
                known = ~np.isnan(best)
                varied = all(len(np.unique(side[known])) > 1 for side in (sigma, best))
                rho = spearmanr(sigma[known], best[known]).statistic if varied else None
                row["rank_correlation"] = None if rho is None else round(float(rho), 3)
            chosen[f"{lam:g}"] = row
    return {"images": len(data), "samples": samples, "sigma": chosen}


def best_levels(table: VoteTable) -> Floats:
    """Each image's best σ (N,): the largest certified radius of its label; NaN if it has none."""
    radii = table.radii(table.labels, range(len(table.levels)))  # (N, levels)
    best = np.asarray(table.levels)[radii.argmax(axis=1)]
    return np.where(radii.max(axis=1) > 0, best, np.nan)


def measure(
    model: Checkpoint,
    data: ImageDataset,
    votes: int = 100,
    samples: int = 31,
    seed: int = 0,
    levels: Sequence[float] | None = None,
) -> Description:
    """The model's description with what was measured on `data` entered under the split's name.

    With `levels`, only f is certified, at these levels; the rest of the entry stays as it is.
    """
    about, split = model.description, data.split
    if model.classifier is None or about.classifier is None:
        raise VarsmoothError("a selector without its classifier cannot be measured")
    at = levels or measured_levels(about.sigma_a, about.universal)
    metrics, table = measure_classifier(model.classifier, data, at, votes, seed)
    before = about.classifier.metrics.get(split)
    if levels and before:
        certified = before.get("certified", {}) | metrics["certified"]
        metrics = before | {"certified": certified}
    changed: dict[str, Any] = {"classifier": _entered(about.classifier, split, metrics)}
    if about.selector and model.selector and not levels:
        low, high = about.lam_range or (0.0, 1.0)
        lams = [lam for lam in LAMBDAS if low <= lam <= high] or [low]
        sigma_a = about.sigma_of_selector
        metrics = measure_selector(
            model.classifier, model.selector, sigma_a, data, lams, samples, table, seed
        )
        changed["selector"] = _entered(about.selector, split, metrics)
    return replace(about, **changed)


def _entered(part: Part, split: str, metrics: Metrics) -> Part:
    return replace(part, metrics={**part.metrics, split: metrics})
