"""Small models on disk, and modules of a user's own, for tests of whole runs."""

import re
from pathlib import Path
from typing import Any

import torch
from torch import nn

from varsmooth.cli import main
from varsmooth.data.cifar10 import CLASS_NAMES
from varsmooth.evaluation.headers import header_file
from varsmooth.evaluation.records import Run
from varsmooth.models.checkpoints import save
from varsmooth.models.descriptions import Description, Part
from varsmooth.models.networks import AttentionSelector, Conv4

QUICK = "--n 60 --n0 20 --n-select 61 --n-median 21 --alpha 0.05 --alpha-select 0.01"
"""Options of a certification that takes milliseconds an image."""


def run(words: str, *more: object) -> int:
    """The exit code of one command line."""
    return main([*words.split(), *map(str, more)])


def proposed(text: str) -> list[str]:
    """The commands that follow, as a command has printed them."""
    return re.findall(r"next: varsmooth ([^#\n]*)", text)


def edit_header(folder: Path, **changes: Any) -> Path:
    """Change entries of a run's header, and entries of its entries; its checksum is computed anew.

    ... removes an entry.
    """
    header = Run.open(folder).header
    for name, value in changes.items():
        value = header[name] | value if isinstance(value, dict) else value
        if isinstance(value, dict):
            value = {key: entry for key, entry in value.items() if entry is not ...}
        header[name] = value
    kept = {name: value for name, value in header.items() if value is not ...}
    (folder / "run.json").write_bytes(header_file(kept))
    return folder


def table(folder: Path) -> list[dict[str, Any]]:
    """The rows of a run without the times."""
    rows = Run.open(folder).rows()
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


def write_pair(
    folder: Path, seed: int = 0, scale: float = 100.0, sigma_a: float = 0.25, spread: float = 1.0
) -> Path:
    """An untrained classifier and selector that disagree with themselves under noise."""
    torch.manual_seed(seed)
    classifier, selector = Conv4(widths=(8, 8, 8, 8)), AttentionSelector()
    nn.init.normal_(selector.output.weight, std=spread)
    with torch.no_grad():
        classifier.linear.weight *= scale
    description = Description(
        dataset="cifar10",
        class_names=CLASS_NAMES,
        sigma_a=sigma_a,
        image_shape=(3, 32, 32),
        selector_sigma=sigma_a,
        recommended={"lam": 0.2, "clip": [0.1, 0.5], "levels": 4},
        classifier=Part("conv4", {"widths": [8, 8, 8, 8]}),
        selector=Part("attention"),
    )
    save(folder, description, classifier=classifier, selector=selector)
    return folder


FALSE_LEVEL = '''
"""A conditional classifier that is wrong at levels near 0.385 only, and a linear selector."""
import torch
from torch import nn
from varsmooth import MedianSelector, SmoothedClassifier


class WrongNear(nn.Module):
    conditional = True

    def forward(self, x, sigma):
        wrong = 40 * (0.03 - (sigma - 0.385).abs())
        return torch.stack([torch.zeros_like(wrong), wrong], dim=1)


class Ramp(nn.Module):
    def forward(self, x):
        return 0.33 + 0.25 * (x[:, 0, 0, 0] - 0.5)


def continuous():
    return SmoothedClassifier(WrongNear(), MedianSelector(Ramp(), 0.25, n=1001))


def on_a_grid():
    levels = [0.2, 0.33, 0.39, 0.5]
    return SmoothedClassifier(WrongNear(), MedianSelector(Ramp(), 0.25, n=1001, levels=levels))
'''
"""At x with first pixel ½ the level is 0.33; an attacker at distance 0.1 makes it 0.355."""
