"""From a classifier of the user's own to a model: what it does under noise, and what would help.

Nothing is trained here. `adopt` measures f on images it has not seen; `Trial` says what the numbers
mean, and how to train f for every noise level where that pays.
"""

import math
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
from torch import nn

from varsmooth._util.files import only_writer
from varsmooth._util.typed import as_option
from varsmooth.bounds import Floats, class_radius, clopper_pearson_lower
from varsmooth.data import ImageDataset, load_source
from varsmooth.data.catalog import has_own, tuned_images
from varsmooth.data.fitting import check_labels, fitted, outputs_on
from varsmooth.data.own import SUFFIXES
from varsmooth.data.source import Source, Tuned
from varsmooth.defaults import ALPHA, ALPHA_SELECT
from varsmooth.errors import VarsmoothError, check, printable
from varsmooth.evaluation.measure import Metrics, measure_classifier, measured_levels
from varsmooth.models.checkpoints import save
from varsmooth.models.descriptions import Description, Part
from varsmooth.models.networks import build
from varsmooth.noise import scoped_seed
from varsmooth.probe import check_assumptions
from varsmooth.rounding import counted, rounded
from varsmooth.selectors import FixedSelector
from varsmooth.smoothing import SmoothedClassifier
from varsmooth.training.configuration import ClassifierConfig

LABELLED = "adopt measures on labelled images: a folder with a sub-folder per class, or an .npz"

TOLERATED = 5.0
"""Points of accuracy that noise, or training under it, may cost before the advice mentions it."""

STEPS, BATCH = 500, 128
"""Fine-tuning takes at least this many steps, in batches of about this size."""


@dataclass(frozen=True)
class Plan:
    """Training for every σ ≤ `sigma`: how long, and the options that differ from the defaults."""

    sigma: float
    epochs: int
    minutes: float

    @property
    def options(self) -> dict[str, Any]:
        """As `train classifier` takes them; a trained network needs a smaller learning rate."""
        chosen = {"sigma": f"{self.sigma:g}", "universal": "true", "epochs": self.epochs}
        return {**chosen, "learning_rate": 0.001}


@dataclass(frozen=True)
class Trial:
    """A classifier measured under noise.

    Attributes:
        metrics: What `measure_classifier` returned.
        plan: How to train it for every level; None without images to train on.
        batch_norms: Names of its BatchNorm layers.
    """

    metrics: Metrics
    images: ImageDataset
    plan: Plan | None
    batch_norms: tuple[str, ...]
    outputs: int

    @property
    def right(self) -> int:
        """Images that f gets right without noise."""
        return round(float(self.metrics["plain_accuracy"]) / 100 * len(self.images))

    @property
    def at_chance(self) -> bool:
        """Whether f may be no better than the commonest class."""
        return self._may_be_chance(self.right)

    @cached_property
    def best(self) -> str:
        """The level of the largest average radius at which the vote is better than chance."""
        votes, certified = self.metrics["smoothed_accuracy"], self.metrics["certified"]
        able = [
            s for s in votes if not self._may_be_chance(round(votes[s] / 100 * len(self.images)))
        ]
        lowest = next(iter(votes))
        return str(max(able or [lowest], key=lambda s: float(certified[s]["average_radius"])))

    @property
    def loss(self) -> float:
        """Points of accuracy that noise at the largest level costs."""
        votes = self.metrics["smoothed_accuracy"]
        return float(self.metrics["plain_accuracy"] - votes[max(votes, key=float)])

    @property
    def loses_accuracy(self) -> bool:
        """Whether that is more than TOLERATED."""
        return self.loss > TOLERATED

    @property
    def needs_training(self) -> bool:
        """Whether training comes before certification."""
        return self.plan is not None and (self.at_chance or self.loses_accuracy)

    def _may_be_chance(self, correct: int) -> bool:
        chance = np.bincount(self.images.known_labels).max() / len(self.images)
        return bool(clopper_pearson_lower(correct, len(self.images), 0.05) <= chance)

    def advice(self) -> list[str]:
        """What the measurements mean, in sentences."""
        count, high = len(self.images), max(self.metrics["smoothed_accuracy"], key=float)
        lines = []
        if self._may_be_chance(count):  # even if all of them were right
            lines.append(
                f"right on {self.right} of {counted(count, 'image')}, too few "
                "to tell it from chance; give more held-out images, of every class"
            )
        elif self.at_chance:
            lines.append(
                f"the classifier is not clearly better than chance: right on {self.right} of "
                f"{counted(count, 'image')}; check its weights, its normalisation and the order of "
                "its classes, or train it"
            )
        elif self.loses_accuracy:
            lines.append(f"noise of σ = {high} costs {self.loss:.0f} points of accuracy")
        else:
            lines.append(f"the classifier tolerates noise of σ = {high} without training")
        if self.loses_accuracy and self.plan is None:
            lines.append(f"training under noise would help, but {self.images.name} has no train")
        elif self.plan is not None and self.needs_training:
            lines.append(
                f"train it for every σ up to {self.plan.sigma:g}, as a cascade needs it: "
                f"{self.plan.epochs} epochs, about {_time(self.plan.minutes)} in all"
            )
        if self.batch_norms and self.loses_accuracy:  # benchmarks.normalisation measured it
            names = self.batch_norms
            shown = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
            lines.append(
                f"BatchNorm in {len(names)} layer{'s' * (len(names) > 1)} ({shown}) has the "
                "statistics of images without noise: training over a range of σ renews them for "
                "all levels at once; training at one σ spoils the others, and new statistics alone "
                "are not enough"
            )
        if unreachable := self._unreachable():
            lines.append(unreachable)
        if self.outputs != (classes := len(self.images.class_names)):
            outputs = counted(self.outputs, "output")
            lines.append(f"note that it has {outputs} for {counted(classes, 'class')}")
        return lines

    def _unreachable(self) -> str | None:
        """Which radii of the table are 0 because of too few votes, whatever the classifier."""
        n, certified = int(self.metrics["votes"]), self.metrics["certified"]
        levels = np.array([float(level) for level in certified])
        largest: Floats = class_radius(n, n, levels, ALPHA - ALPHA_SELECT)
        radii = [float(r) for r in next(iter(certified.values())) if r.replace(".", "").isdigit()]
        short = [
            f"{rounded(float(most), 2)} at σ = {level:g}"
            for level, most in zip(levels, largest, strict=True)
            if any(r > most for r in radii)
        ]
        return f"{n} votes certify at most {', '.join(short)}; more with --n" if short else None


def adopt(
    network: nn.Module,
    factory: str,
    source: Source,
    tuned: Tuned,
    out: Path,
    levels: Sequence[float],
    n: int,
    seed: int = 0,
) -> Trial:
    """Measure the network on held-out images, and save it as a model in `out`.

    Args:
        network: f, in evaluation mode on its device.
        factory: Its import path, which the model names.
        source: Labelled images.
        tuned: Which of them choose σ: images that f was not trained on.
        out: Folder of the model.
        levels: Noise levels, ascending.
        n: Votes per image and level.
    """
    data = str(source.data)
    where = {"data": data, "root": source.root, **source.preprocessing._asdict()}
    typed = "".join(f" {as_option(k)} {quote(str(v))}" for k, v in where.items() if v is not None)
    check(
        bool(network.state_dict()),
        f"{factory} makes a network without weights, so there is no model to save; certify it as "
        f"it is: varsmooth certify --model {factory} --sigma 0.25{typed} --out runs/own",
    )
    g = SmoothedClassifier(network, FixedSelector(levels[0]))
    check(Path(data).suffix.lower() not in SUFFIXES, f"{data} is one image; {LABELLED}")
    unseen = load_source(source, tuned.split)
    check(unseen.labels is not None, f"{data} has no labels; {LABELLED}")
    names = tuple(getattr(network, "class_names", ())) or unseen.class_names
    shape = getattr(network, "image_shape", None) or unseen.shape
    chosen = fitted(tuned_images(tuned, unseen), g, names, shape)
    outputs = outputs_on(chosen, g)
    if chosen.class_names == unseen.class_names:  # numbers that only the training images may have
        check_labels(unseen, len(unseen.class_names) - 1, outputs)
    check_assumptions(g, chosen.batch([0]).images.to(g.device))
    began = time.perf_counter()
    metrics, _ = measure_classifier(network, chosen, levels, n, scoped_seed(seed, "adopt"))
    seconds = (time.perf_counter() - began) / (len(chosen) * n * len(levels))
    kinds = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
    norms = tuple(name for name, part in network.named_modules() if isinstance(part, kinds))
    plan = _plan(source, levels[-1], seconds)
    trial = Trial(metrics, chosen, plan, norms, outputs)
    about = Description(
        **source.entries(),
        class_names=names,
        sigma_a=float(trial.best),
        image_shape=chosen.shape,
        classifier=Part(factory, metrics={tuned.split: metrics}),
        tuned=tuned,
    )
    with only_writer(out):
        save(out, about, classifier=network.cpu())
    return trial


def build_network(factory: str) -> nn.Module:
    """What the factory returns, with a note if its images will not be normalised."""
    network = build(factory)
    if any(kind.__module__.startswith("transformers.") for kind in type(network).__mro__):
        note = "a bare transformers model receives unnormalised images"
        how = f"let {factory} return from_transformers(model, processor)"
        print(printable(f"note: {note}; {how}"), file=sys.stderr, flush=True)
    return network


def seen_in_training(source: Source, split: str) -> list[str]:
    """A warning where held-out images may have been training images."""
    if has_own(split, source):
        return []
    scaling = source.preprocessing._asdict().items()
    options = "".join(f", {name}={value!r}" for name, value in scaling if value)
    return [
        f"if the classifier was trained on all of {source.data}, it has seen these images: its "
        "accuracy and radii are then too large; train it on "
        f"load_dataset({source.data!r}, 'train'{options})"
    ]


def gains(metrics: Metrics, config: ClassifierConfig) -> list[str]:
    """What a trained classifier can do, beside the one it started from, if there was one."""
    votes, before = metrics["smoothed_accuracy"], metrics.get("before")
    rows = {"": ["σ = 0", *votes]}
    for name, figures in (("before", before), ("now", metrics)):
        if figures is not None:
            levels = (figures["smoothed_accuracy"].get(sigma) for sigma in votes)
            shares = [figures["plain_accuracy"], *levels]
            rows[name] = ["" if share is None else f"{share:g}" for share in shares]
    widths = [max(map(len, column)) for column in zip(*rows.values(), strict=True)]
    lines = [
        f"accuracy (%) on {metrics['images']} held-out images without noise, and of the vote at"
    ]
    for name, row in rows.items():
        lines.append(f"  {name:<6}  {'  '.join(map(str.rjust, row, widths))}".rstrip())
    if before is not None:
        then, now = float(before["plain_accuracy"]), float(metrics["plain_accuracy"])
        if then - now > TOLERATED:
            lines.append(
                f"warning: accuracy without noise fell by {then - now:.0f} points, from {then:g} "
                f"to {now:g} %; repeat the command with {_remedies(config)}"
            )
    return lines


def _remedies(config: ClassifierConfig) -> str:
    """Options that keep more of the accuracy without noise, as they are typed."""
    out = quote(str(config.out))
    longer = f"--initial {out} --epochs {2 * config.epochs} --out {quote(f'{config.out}-longer')}"
    small = "--sigma-power 2" if config.universal else "--universal true --sigma-power 2"
    new = quote(f"{config.out}-new")
    ways = [f"{longer} to train longer"]
    if not config.universal or config.sigma_power < 2:
        ways.append(f"{small} --out {new} for more of the small levels")
    ways.append(f"--sigma {config.sigma / 2:g} --out {new} for half the noise")
    return ", or ".join(ways)


def _plan(source: Source, sigma: float, seconds: float) -> Plan | None:
    """Long enough for STEPS steps; a step costs about three votes an image.

    The time includes that of measuring the network before and afterwards.
    """
    with suppress(VarsmoothError):
        images = len(load_source(source, "train"))
        epochs = min(max(10, math.ceil(STEPS / math.ceil(images / BATCH))), 200)
        defaults = ClassifierConfig
        held_out = min(len(load_source(source, "val")), defaults.held_out_images)
        measured = 2 * held_out * defaults.n * len(measured_levels(sigma, universal=True))
        return Plan(sigma, epochs, seconds * (3 * images * epochs + measured) / 60)
    return None


def _time(minutes: float) -> str:
    return f"{minutes / 60:.1f} hours" if minutes > 90 else f"{max(math.ceil(minutes), 1)} min"
