"""Our own: what each idea of the training of h is worth. Selectors trained alike but for one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from reproduce.figures import plot_levels
from reproduce.harness import Context, Experiment, Figure, Result, outcomes
from reproduce.replay import CPU, CertifyScale, medians_of
from reproduce.scales import Need, size
from varsmooth.bounds import Floats, average_certified_radius
from varsmooth.evaluation.options import ModelOptions
from varsmooth.evaluation.report.outcomes import Outcomes
from varsmooth.evaluation.report.statistics import (
    Share,
    mean_interval,
)
from varsmooth.evaluation.report.tables import Cell, Table
from varsmooth.models.descriptions import CONFIG, describe
from varsmooth.models.networks import AttentionSelector
from varsmooth.training import SelectorConfig, train_selector


@dataclass(frozen=True, kw_only=True)
class AblationScale(CertifyScale):
    """All variants are for the same f."""

    unused = ("sigmas", "multiples", "percentiles", "choice", "n_select", "alpha_select")

    trained: float = size("σ_a", 0.25, stated=False)
    fixed_lams: tuple[float, ...] = size("λ of training for one λ", (0.0, 0.2), stated=False)
    asked_lams: tuple[float, ...] = size("λ asked of the variants", (0.0, 0.2, 0.4), stated=False)
    epochs: int = size("epochs of h", 200)
    images_per_epoch: int = size("images in an epoch of h", 45_000, stated=False)
    train_split: str = size("split that is trained on", "train", stated=False)


def ablation(context: Context, scale: AblationScale) -> Result:
    """Selectors that differ in one idea, trained alike, on one f."""
    found = Variants.measure(context, scale)
    return Result([found.figure()], [found.table()])


PATH = "reproduce.ablation:UnconditionedSelector"
"""What a description names it by; whoever loads it must say that they trust this path."""


class UnconditionedSelector(AttentionSelector):
    """The paper's h with λ hidden: it sees the same middle value whatever is asked."""

    def forward(self, x: Tensor, sigma_a: Tensor, lam: Tensor) -> Tensor:
        return super().forward(x, sigma_a, torch.full_like(lam, 0.5))


UNIVERSAL, HIDDEN, LITERAL = "universal λ", "λ hidden from h", "KL summed over dimensions"
READING, REWARDED = "reads f's output", "reads f's output, rewarded for radius"
LEVELS_ONLY = (HIDDEN, LITERAL)
"""Variants of which only σ_s matters."""


def variants_of(fixed_lams: Sequence[float]) -> dict[str, dict[str, Any]]:
    """The reference, and what each variant changes in its training."""
    only = {f"trained for λ = {lam:g}": {"lam": lam} for lam in fixed_lams}
    return {
        UNIVERSAL: {},
        **only,
        HIDDEN: {"network": PATH},
        LITERAL: {"reduction": "sum"},
        READING: {"network": "confidence"},
        REWARDED: {"network": "confidence", "objective": "radius"},
    }


def trained(context: Context, scale: AblationScale, changes: Mapping[str, Any]) -> str:
    """The folder of a selector for f that is trained with these changes, or is there already."""
    classifier = context.model(Need.fixed(scale.trained, selector=True))
    part = describe(classifier).classifier
    assert part is not None
    values = {
        "epochs": scale.epochs,
        "images_per_epoch": scale.images_per_epoch,
        "data": scale.data,
        "train_split": scale.train_split,
        "held_out_images": scale.held_out,
        "seed": scale.seed,
        **changes,
    }
    folder = context.folder("selectors", {**values, "f": part.fingerprint})
    if not (folder / CONFIG).is_file():
        train_selector(
            SelectorConfig(
                out=folder,
                classifier=classifier,
                batch_size=min(64, scale.images_per_epoch),
                learning_rate=2e-3,
                **context.places,
                **values,
            )
        )
    return str(folder)


@dataclass(frozen=True)
class Chosen:
    """What one selector chooses at one λ: σ_s on held-out images, and how f does under it.

    certified: on test images; None for variants of which only σ_s matters.
    """

    variant: str
    lam: float
    mean: float
    std: float
    certified: Outcomes | None

    @property
    def outcomes(self) -> Outcomes:
        assert self.certified is not None
        return self.certified

    @property
    def radii(self) -> Floats:
        """The radius of each test image, 0 where wrong or abstaining."""
        found: Floats = np.maximum(self.outcomes.reach, 0)
        return found

    @property
    def cells(self) -> list[Cell]:
        """Certified accuracy and average radius, if they were measured."""
        if self.certified is None:
            return [Cell("–"), Cell("–")]
        radius = average_certified_radius(self.certified.reach)
        correct = Cell.share(Share.of(self.certified.correct))
        return [correct, Cell.mean_radius(radius, mean_interval(self.radii))]


def chosen_by(
    context: Context, scale: AblationScale, name: str, changes: Mapping[str, Any], lam: float
) -> Chosen:
    """Ask a selector on held-out images for σ_s, and on test images for f's votes under it."""
    title = f"{name}, λ = {lam:g}"

    def options() -> ModelOptions:
        sigma_a = scale.trained
        return ModelOptions(
            trained(context, scale, changes),
            lam=lam,
            sigma_a=sigma_a,
            sigma_m=sigma_a,
            clip=(sigma_a / 20, sigma_a * 20),
            levels=0,
            n_median=scale.held_out_draws,
            trust=[PATH],
        )

    def certified() -> Outcomes:
        data = context.images(scale.data, "test", scale.images)
        settings = replace(scale.settings, method="conditional")
        return outcomes(context.certify(title, options(), data, settings))

    def spread() -> list[float]:
        medians = medians_of(context, scale, replace(options(), levels=[scale.trained]))
        return [float(medians.mean()), float(medians.std())]

    found = None if name in LEVELS_ONLY else context.run(title, certified)
    mean, std = context.fact(f"σ_s on held-out images: {title}", spread)
    return Chosen(name, lam, mean, std, found)


@dataclass(frozen=True)
class Variants:
    """Every variant at every λ that it can be asked for."""

    chosen: Sequence[Chosen]
    sigma_t: float
    held_out: int

    @classmethod
    def measure(cls, context: Context, scale: AblationScale) -> "Variants":
        found = [
            chosen_by(context, scale, name, changes, lam)
            for name, changes in variants_of(scale.fixed_lams).items()
            for lam in ([changes["lam"]] if "lam" in changes else scale.asked_lams)
        ]
        return cls(found, 2 * scale.trained, scale.held_out)

    def figure(self) -> Figure:
        lines: dict[str, list[tuple[float, float, float]]] = {}
        for one in self.chosen:
            lines.setdefault(one.variant, []).append((one.lam, one.mean, one.std))
        return Figure(
            "variants",
            "σ_s on held-out images (mean and standard deviation over images) against the "
            "requested λ, for selectors identical except for one idea. Dashed: the target σ_t.",
            [partial(plot_levels, lines=lines, target=self.sigma_t)],
            height=3.6,
            width=6.8,
        )

    def table(self) -> Table:
        rows = [
            [
                Cell.of(one.variant),
                Cell(f"{one.lam:g}", one.lam),
                Cell(f"{one.mean:.4f}", one.mean),
                Cell(f"{one.std:.4f}", one.std),
                *one.cells,
            ]
            for one in self.chosen
        ]
        return Table(
            "variants",
            "Selectors identical except for one idea of their training: σ_s on held-out images, "
            "and on test images the certified accuracy at r = 0 in % and the average radius, h "
            "unattacked. 95 % intervals over images.",
            ["selector", "λ", "mean σ_s", "sd of σ_s", "certified at r = 0", "ACR"],
            rows,
        )


ABLATION = Experiment(
    "ablation",
    "ours, on §3.1",
    "what each idea is worth: universal λ, conditioning, KL per dimension, reading f",
    {
        "cpu": AblationScale(**CPU, epochs=3, images_per_epoch=1600),
        "paper": AblationScale(),
    },
    {"cpu": "15 min", "paper": "days on a GPU"},
    ablation,
    lambda scale: [Need.fixed(scale.trained, selector=True)],
)
