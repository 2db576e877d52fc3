"""What a trained model can do, measured on images it has not seen, and told in a model card.

f: its accuracy without noise, and the accuracy of the vote at levels around σ_a.
h: which levels it chooses for each λ, how much they differ between images, and whether they follow
each image's own best level, the one with the largest certified radius.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import spearmanr
from torch import nn

from varsmooth.data import ImageDataset
from varsmooth.errors import require
from varsmooth.models.checkpoints import Checkpoint
from varsmooth.models.descriptions import Description, Part
from varsmooth.selectors import FixedSelector, LearnedSelector
from varsmooth.smoothing import SmoothedClassifier, evaluation_mode
from varsmooth.training.tuning import VoteTable, sample_selector, tabulate_votes

LAMBDAS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""The λ for which the levels of a selector are told."""

Metrics = dict[str, Any]


def measured_levels(sigma_a: float, universal: bool) -> list[float]:
    """The levels at which f is measured: around σ_a, or over the range (0, σ_a']."""
    shares = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1) if universal else (0.25, 0.5, 0.75, 1, 1.25, 1.5, 2)
    return [share * sigma_a for share in shares]


def measure_classifier(
    classifier: nn.Module, data: ImageDataset, levels: Sequence[float], votes: int, seed: int = 0
) -> tuple[Metrics, VoteTable]:
    """Accuracy in percent, without noise and of the vote at each level, without abstention."""
    require(data.labels is not None, f"{data.name} has no labels to measure accuracy with")
    g = SmoothedClassifier(classifier, FixedSelector(levels[0]))
    table = tabulate_votes(g, data, levels, votes, seed)
    right = table.counts.argmax(axis=2) == table.labels[:, None]  # (N, levels)
    metrics = {
        "images": len(data),
        "votes": votes,
        "plain_accuracy": round(100 * plain_accuracy(g, data), 2),
        "smoothed_accuracy": {
            f"{level:g}": round(100 * float(share), 2)
            for level, share in zip(levels, right.mean(axis=0), strict=True)
        },
    }
    return metrics, table


def plain_accuracy(g: SmoothedClassifier, data: ImageDataset) -> float:
    """The accuracy of f itself on images without noise; a conditional f is told σ = 0."""
    device, right = next(g.classifier.parameters()).device, 0
    with evaluation_mode(g), torch.no_grad():
        for x, y, _ in data.batches(100):
            assert y is not None
            logits = g.logits(x.to(device), torch.zeros(len(x), device=device))
            right += int(logits.argmax(dim=1).cpu().eq(y).sum())
    return right / len(data)


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
    the images that f gets right at any level; 1 if h orders the images as it should.
    """
    learned = LearnedSelector(selector, sigma_a, 0.0)
    g = SmoothedClassifier(classifier, learned)
    best = None if table is None else best_levels(table)
    told: dict[str, dict[str, float | None]] = {}
    for lam in lams:
        raw = sample_selector(g, learned, data, lam, sigma_a, samples, seed)  # (N, samples) sorted
        sigma = raw[:, samples // 2]
        told[f"{lam:g}"] = {
            "mean": round(float(sigma.mean()), 5),
            "std": round(float(sigma.std()), 5),
            "min": round(float(sigma.min()), 5),
            "max": round(float(sigma.max()), 5),
        }
        if best is not None:
            told[f"{lam:g}"]["rank_correlation"] = _rank_correlation(sigma, best)
    return {"images": len(data), "samples": samples, "sigma": told}


def best_levels(table: VoteTable) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Each image's best σ (N,): the largest certified radius of its label; NaN if it has none."""
    radii = table.radii(table.labels, range(len(table.levels)))  # (N, levels)
    best = np.asarray(table.levels)[radii.argmax(axis=1)]
    return np.where(radii.max(axis=1) > 0, best, np.nan)


def _rank_correlation(
    sigma: np.ndarray[Any, np.dtype[np.float64]], best: np.ndarray[Any, np.dtype[np.float64]]
) -> float | None:
    """Spearman's ρ over the images that have a best level; None where one side is constant."""
    known = ~np.isnan(best)
    if len(np.unique(sigma[known])) < 2 or len(np.unique(best[known])) < 2:
        return None
    return round(float(spearmanr(sigma[known], best[known]).statistic), 3)


def measure(
    model: Checkpoint, data: ImageDataset, votes: int = 100, samples: int = 31, seed: int = 0
) -> Description:
    """The model's description with what was measured on `data` entered under the split's name."""
    about = model.description
    require(model.classifier is not None, "a selector without its classifier cannot be measured")
    assert model.classifier is not None
    assert about.classifier is not None
    levels = measured_levels(about.sigma_a, about.universal)
    metrics, table = measure_classifier(model.classifier, data, levels, votes, seed)
    changed: dict[str, Any] = {"classifier": _entered(about.classifier, data.split, metrics)}
    if model.selector is not None:
        assert about.selector is not None
        low, high = about.lam_range or (0.0, 1.0)
        lams = [lam for lam in LAMBDAS if low <= lam <= high] or [low]
        metrics = measure_selector(
            model.classifier,
            model.selector,
            about.sigma_of_selector,
            data,
            lams,
            samples,
            table,
            seed,
        )
        changed["selector"] = _entered(about.selector, data.split, metrics)
    return replace(about, **changed)


def _entered(part: Part, split: str, metrics: Metrics) -> Part:
    return replace(part, metrics={**part.metrics, split: metrics})


CARD = "README.md"


def write_card(folder: Path, about: Description) -> str:
    """Write the card into the folder of its model; returns its text."""
    text = card(folder.resolve().name, about)
    (folder / CARD).write_text(text, encoding="utf-8")
    return text


def has_card(folder: Path, about: Description) -> bool:
    """Whether the folder has the card of this description, and no other text in its place."""
    path = folder / CARD
    expected = card(folder.resolve().name, about)
    return path.is_file() and path.read_text(encoding="utf-8") == expected


def card(name: str, about: Description) -> str:
    """The model card in Markdown: what it is, how it was trained, what was measured."""
    level = f"every σ up to {about.sigma_a:g}" if about.universal else f"σ_a = {about.sigma_a:g}"
    lines = [
        f"# {name}",
        "",
        f"Trained on {about.dataset} for noise of {level}.",
        f"Classes: {', '.join(about.class_names)}.",
    ]
    for title, part in (("Classifier f", about.classifier), ("Selector h", about.selector)):
        if part is None:
            continue
        lines += ["", f"## {title}", "", f"Network `{part.network}`, options `{part.options}`."]
        lines += [f"Fingerprint `{part.fingerprint[:16]}`."]
        if part is about.selector:
            lines += _told_settings(about)
        for split, metrics in part.metrics.items():
            lines += ["", f"### On `{split}`, {metrics['images']} images", ""]
            told = _told_accuracy if "smoothed_accuracy" in metrics else _told_levels
            lines += told(metrics)
        lines += _told_training(part)
    return "\n".join(lines) + "\n"


def _told_settings(about: Description) -> list[str]:
    lines = []
    if about.selector_sigma is not None and about.sigma_t is not None:
        lines += [
            f"It is told σ_a = {about.selector_sigma:g}; target level σ_t = {about.sigma_t:g}."
        ]
    if about.recommended:
        settings = ", ".join(f"{name} {value}" for name, value in about.recommended.items())
        lines += ["", f"Recommended settings: {settings}."]
    return lines


def _told_accuracy(metrics: Mapping[str, Any]) -> list[str]:
    accuracy = metrics["smoothed_accuracy"]
    plain = metrics.get("plain_accuracy")
    lines = [] if plain is None else [f"Accuracy of f without noise: {plain:g} %.", ""]
    return [
        *lines,
        f"Accuracy of the vote in percent, {metrics['votes']} votes, no abstention:",
        "",
        f"| σ_s | {' | '.join(accuracy)} |",
        "|---|" + "---|" * len(accuracy),
        f"| accuracy | {' | '.join(f'{value:g}' for value in accuracy.values())} |",
    ]


def _told_levels(metrics: Mapping[str, Any]) -> list[str]:
    """A row for each λ."""
    lines = [
        f"The level σ_s that h chooses (median of {metrics['samples']} samples), over the images; "
        "ρ is its rank correlation with the image's best level:",
        "",
        "| λ | mean | std | min | max | ρ |",
        "|---|---|---|---|---|---|",
    ]
    for lam, row in metrics["sigma"].items():
        rho = row.get("rank_correlation")
        numbers = " | ".join(f"{row[key]:.4f}" for key in ("mean", "std", "min", "max"))
        lines.append(f"| {lam} | {numbers} | {'' if rho is None else f'{rho:.2f}'} |")
    return lines


def _told_training(part: Part) -> list[str]:
    """What the run was asked and what each of its epochs reported."""
    if not part.history:
        return []
    settings = ", ".join(f"{key} = {value}" for key, value in part.training.items())
    columns = [key for key in part.history[0] if key != "seconds"]
    return [
        "",
        "<details><summary>Training log</summary>",
        "",
        f"Configuration: {settings}.",
        "",
        f"| {' | '.join(columns)} |",
        "|" + "---|" * len(columns),
        *(f"| {' | '.join(str(row.get(key, '')) for key in columns)} |" for row in part.history),
        "",
        "</details>",
    ]
