"""Does a classifier for all noise levels profit from knowing the level? Two f_u, trained alike."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from reproduce.harness import Claim, Context, Experiment, Figure, Result, VotingScale, size
from reproduce.plots import Points, plot_points
from reproduce.verdicts import judged
from varsmooth.evaluation.options import DataOptions, ModelOptions, PredictOptions
from varsmooth.evaluation.report.outcomes import Outcomes
from varsmooth.evaluation.report.statistics import PairedDifference, Share
from varsmooth.evaluation.report.tables import Cell, Table
from varsmooth.models.descriptions import CONFIG
from varsmooth.models.networks.classifiers import Conv4
from varsmooth.training import ClassifierConfig, train_classifier

PATH = "reproduce.conditioning:BlindClassifier"
"""What a description names it by; whoever loads it must say that they trust this path."""


class BlindClassifier(Conv4):
    """conv4 for all levels with σ hidden: it sees the same middle value whatever the noise is."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options | {"conditional": True})

    def forward(self, x: Tensor, sigma: Tensor | None = None) -> Tensor:
        assert sigma is not None
        return super().forward(x, torch.full_like(sigma, 0.5))


@dataclass(frozen=True, kw_only=True)
class ConditioningScale(VotingScale):
    """The paper trains f_u for 400 epochs with σ_a ~ U(0, 1), and shows no f_u without σ_a."""

    sigmas: tuple[float, ...] = size("σ_s of g", (0.12, 0.25, 0.5, 1.0), stated=False)
    highest: float = size("σ_a′", 1.0)
    epochs: int = size("epochs of f_u", 400)
    n: int = size("votes N", 1000)
    train_split: str = size("split that is trained on", "train", stated=False)


@dataclass(frozen=True)
class Pair:
    """g at one σ_s on the f_u that knows σ and on the one that does not, under the same noise."""

    sigma: float
    told: Outcomes
    blind: Outcomes

    @property
    def gap(self) -> PairedDifference:
        return PairedDifference.of(self.told.correct, self.blind.correct)


def conditioning(context: Context, scale: ConditioningScale) -> Result:
    """Accuracy of g on two f_u that differ in one input."""
    pairs = [
        Pair(sigma, *(predicted(context, scale, name, sigma) for name in NETWORKS))
        for sigma in scale.sigmas
    ]
    figure = Figure(
        "conditioning",
        "Accuracy of g against σ_s on two classifiers for all levels, trained alike: one has the "
        "noise level as an input, the other does not. Bars: 95 % intervals over images; images and "
        "noise are shared, so that the difference is more certain than the bars.",
        [partial(plot_points, series=_series(pairs), xlabel="σ_s", ylabel="accuracy of g (%)")],
        legend="lower left",
        height=3.8,
    )
    return Result([figure], [_table(pairs)], [claim_of(pairs)])


NETWORKS = {"σ is an input": "conv4", "σ is hidden": PATH}


def predicted(context: Context, scale: ConditioningScale, name: str, sigma: float) -> Outcomes:
    """g at σ_s = sigma, by majority."""

    def asked() -> tuple[ModelOptions, DataOptions, PredictOptions]:
        model = ModelOptions(trained(context, scale, NETWORKS[name]), sigma=sigma, trust=[PATH])
        images = context.images(scale.data, "test", scale.images)
        return model, images, PredictOptions(n=scale.n, alpha=None, seed=scale.seed)

    return context.majority(f"g, {name}, σ_s = {sigma:g}", asked)


def trained(context: Context, scale: ConditioningScale, network: str) -> str:
    """The folder of an f_u with this network; trains it, or continues, if it is not there."""
    values: dict[str, Any] = {
        "network": network,
        "sigma": scale.highest,
        "universal": True,
        "epochs": scale.epochs,
        "data": scale.data,
        "train_split": scale.train_split,
        "held_out_images": 100,
        "precision": scale.precision,
        "seed": scale.seed,
    }
    folder = context.folder("classifiers", values)
    if not (folder / CONFIG).is_file():
        train_classifier(ClassifierConfig(out=folder, **context.places, **values))
    return str(folder)


def _series(pairs: Sequence[Pair]) -> list[Points]:
    levels = [pair.sigma for pair in pairs]
    return [
        Points(f"f_u, {name}", levels, [Share.of(run.correct) for run in runs])
        for name, runs in zip(
            NETWORKS, ([p.told for p in pairs], [p.blind for p in pairs]), strict=True
        )
    ]


def _table(pairs: Sequence[Pair]) -> Table:
    rows = [
        [
            Cell(f"{pair.sigma:g}", pair.sigma),
            Cell.share(Share.of(pair.told.correct)),
            Cell.share(Share.of(pair.blind.correct)),
            Cell.difference(pair.gap),
        ]
        for pair in pairs
    ]
    return Table(
        "conditioning",
        "Accuracy of g in % on an f_u that has σ as an input and on one that does not; the "
        "difference in percentage points, paired by image; with 95 % intervals.",
        ["σ_s", *NETWORKS, "difference"],
        rows,
    )


def claim_of(pairs: Sequence[Pair]) -> Claim:
    """The f_u that knows σ is more often right."""
    return judged(
        "g is more accurate on an f_u that has the noise level as an input",
        "ours, on §3.1 and the conclusion",
        {f"σ_s = {pair.sigma:g}": pair.gap for pair in pairs},
        "accuracy of g on the f_u that has σ as an input minus that on one that does not",
        "trained alike; the paper shows no f_u without this input",
    )


CONDITIONING = Experiment(
    "conditioning",
    "ours, on §3.1",
    "one classifier for all levels, with and without the level as an input",
    {"cpu": ConditioningScale(images=1000, epochs=10), "paper": ConditioningScale()},
    {"cpu": "40 min", "paper": "2 h on a GPU"},
    conditioning,
    lambda scale: [],
)
