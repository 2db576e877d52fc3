"""Is a spread as wide as the paper's clips memorised? Algorithm 1 on few images, for many passes.

h sees each training image often enough to learn its label by heart, if it can. What it then chooses
is measured over the passes, on these images and on held-out ones: how far σ_s differs between
images, and whether the objective gains from it, compared with the best single level.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from reproduce.attainable import LossTable, tabulate
from reproduce.certified import TABLE_2
from reproduce.harness import (
    Claim,
    Context,
    Experiment,
    Figure,
    Need,
    Result,
    VotingScale,
    size,
)
from reproduce.replay import relative_width
from reproduce.tabulated import TabulatedClassifier, tabulated_answers
from reproduce.verdicts import judged
from varsmooth._util.files import replace_file
from varsmooth._util.processes import Engine, choose_device
from varsmooth.bounds import Floats, normal_quantile
from varsmooth.data import ImageDataset, load_dataset
from varsmooth.evaluation.report.figures import colours
from varsmooth.evaluation.report.statistics import LEVEL, Interval, mean_interval
from varsmooth.evaluation.report.tables import Cell, Table
from varsmooth.losses import gaussian_kl, variational_loss
from varsmooth.models.adapters import in_precision
from varsmooth.models.checkpoints import load_checkpoint, save
from varsmooth.models.descriptions import CONFIG
from varsmooth.models.networks import build
from varsmooth.noise import NoiseStream
from varsmooth.selectors import FixedSelector
from varsmooth.smoothing import Selector, SmoothedClassifier, evaluation_mode
from varsmooth.training import ClassifierConfig, SelectorConfig, train_classifier
from varsmooth.training.loop import evenly_spaced, fit
from varsmooth.training.state import finished
from varsmooth.training.tasks import SelectorTask

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SETS = ("training", "held-out")
KINDS = {
    "released": "released f",
    "overfitted": "overfitted f",
    "batch": "overfitted f with BatchNorm",
}
PASSES = (0, 1, 2, 5, 10, 20, 50, 100, 200)
RATIOS = (0.2, 0.35, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.15, 1.3, 1.6, 2.0)
"""Levels σ/σ_a among which the best single one is sought."""


@dataclass(frozen=True, kw_only=True)
class MemorisationScale(VotingScale):
    """The paper trains h for 200 passes over all training images."""

    sigmas: tuple[float, ...] = size("σ_a", (0.25,), stated=False)
    images: int = size("measured images of each set", 1000, stated=False)
    subset: int = size("training images of h", 45_000, stated=False)
    passes: int = size("passes of h over them", 200)
    classifiers: tuple[str, ...] = size(
        "classifiers f", tuple(KINDS), stated=False, among=tuple(KINDS)
    )
    classifier_passes: int = size(
        "passes of an overfitted f over the same images", 400, stated=False
    )
    lams: tuple[float, ...] = size("λ", (0.0, 0.1, 0.2))
    draws: int = size("noisy copies behind a measured objective", 32, stated=False)
    pool: int = size("noise draws for which f is tabulated, if any", 0, stated=False, zero=True)
    scheme: Literal["gvstar", "gv"] = size(
        "training scheme of h", "gvstar", stated=False, among=("gvstar", "gv")
    )
    train_split: str = size("split that is trained on", "train", stated=False)

    @property
    def training(self) -> dict[str, Any]:
        """What the training of f and h has in common: these images, as they are."""
        return {
            "images": self.subset,
            "data": self.data,
            "train_split": self.train_split,
            "batch_size": min(64, self.subset),
            "crop": 0,
            "flip": False,
            "precision": self.precision,
            "seed": self.seed,
        }

    @property
    def measured(self) -> list[int]:
        """After how many passes h is measured."""
        return [*(done for done in PASSES if done < self.passes), self.passes]


def memorisation(context: Context, scale: MemorisationScale) -> Result:
    """Spread and objective over the passes, for each f."""
    found = [
        Study(sigma_a, kind, studied(context, scale, sigma_a, kind))
        for sigma_a in scale.sigmas
        for kind in scale.classifiers
    ]
    figure = Figure(
        "memorisation",
        "Selectors trained for many passes, over the passes. Above: width of the 5–95 % range of "
        "σ_s relative to its middle; dotted: the clip ranges of Table 2. Below: objective of the "
        "single level that is best on training images minus that of h.",
        [
            partial(_plot, study=study, scale=scale, what=what)
            for what in ("width", "gain")
            for study in found
        ],
        columns=len(found),
        legend="each",
        height=3.4,
    )
    return Result([figure], [_table(found, scale)], [memory_claim(found, scale)])


@dataclass(frozen=True)
class Study:
    """What h chose after each number of passes: seen[passes][set][λ] → measured numbers."""

    sigma_a: float
    kind: str
    seen: Mapping[str, Mapping[str, Mapping[str, Mapping[str, Any]]]]

    @property
    def title(self) -> str:
        return f"σ_a = {self.sigma_a:g}, {KINDS[self.kind]}"

    def at(self, done: int, which: str, lam: float) -> Mapping[str, Any]:
        return self.seen[str(done)][which][f"{lam:g}"]


def studied(context: Context, scale: MemorisationScale, sigma_a: float, kind: str) -> Any:
    """Train h, resuming where it stopped, and measure it on the way."""
    name = f"memorisation, σ_a = {sigma_a:g}, f {kind}, {scale.subset} × {scale.passes}"

    def make() -> Any:
        classifier = classifier_of(context, scale, sigma_a, kind)
        return observed_training(context, scale, classifier)

    return context.fact(name, make)


def classifier_of(context: Context, scale: MemorisationScale, sigma_a: float, kind: str) -> str:
    """released; overfitted: trained on the images of h; batch: the same with BatchNorm."""
    if kind == "released":
        return context.model(Need.fixed(sigma_a))
    values = {
        **scale.training,
        "sigma": sigma_a,
        "epochs": scale.classifier_passes,
        "held_out_images": 100,
        "network_options": {"norm": "batch"} if kind == "batch" else {},
    }
    folder = context.folder("memorisation", values)
    if not (folder / CONFIG).is_file():
        train_classifier(ClassifierConfig(out=folder, **context.places, **values))
    return str(folder)


def observed_training(context: Context, scale: MemorisationScale, classifier: str) -> Any:
    """Algorithm 1 on the subset, as the presets train it; returns what was seen.

    The trained pair is left in the store, in the folder `model` beside `seen.json`.
    """
    model = load_checkpoint(classifier)
    assert model.classifier is not None
    assert model.description.classifier is not None
    values = {
        **scale.training,
        "epochs": scale.passes,
        "learning_rate": 2e-3,
        "scheme": scale.scheme,
    }
    known = {**values, "f": model.description.classifier.fingerprint, "pool": scale.pool}
    folder = context.folder("memorisation", known)
    folder.mkdir(parents=True, exist_ok=True)
    config = SelectorConfig(out=folder, classifier=classifier, **context.places, **values)
    engine = Engine(choose_device(config.device))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        module = build(config.network, {}).to(engine.device)
    train, held_out = (
        load_dataset(scale.data, split, context.root) for split in (scale.train_split, "val")
    )
    sets = [
        evenly_spaced(data, min(scale.images, len(data)))
        for data in (evenly_spaced(train, scale.subset), held_out)
    ]
    sigma_a = model.description.sigma_a
    f = in_precision(model.classifier.to(engine.device), config.precision)
    task = ObservedTask(module, f, sigma_a, config)
    if scale.pool:
        task.tabulate(evenly_spaced(train, scale.subset), scale.pool, folder)
    task.observer = Observer(task, scale, dict(zip(SETS, sets, strict=True)), folder / "seen.json")
    if str(scale.passes) not in task.observer.seen:
        history = fit(task, train, config, engine)
        task.observer.look(scale.passes)
        trained = replace(
            model.description,
            selector=finished(config, {}, history, {}),
            selector_sigma=sigma_a,
            sigma_t=task.sigma_t,
            recommended={"lam": 0.0, "sigma_m": sigma_a},
        )
        save(folder / "model", trained, classifier=model.classifier, selector=module)
    return task.observer.seen


class ObservedTask(SelectorTask):
    """Training of h that is looked at before the first step of an epoch."""

    observer: "Observer"

    def tabulate(self, data: ImageDataset, pool: int, folder: Path) -> None:
        """Train on what f says about a pool of draws at the levels of RATIOS, not on f itself."""
        plain, levels = self.smoothed, [self.learned.sigma_a * ratio for ratio in RATIOS]
        answers = tabulated_answers(plain, data, levels, pool, self.config.seed, folder)
        self.smoothed = TabulatedClassifier(
            plain.classifier, plain.selector, answers, levels, data.ids.tolist(), plain.samples
        )

    def loss(
        self, images: Tensor, labels: Tensor, ids: Tensor, key: tuple[int | str, ...]
    ) -> tuple[Tensor, dict[str, float]]:
        epoch, step, _ = key
        if step == 0:
            self.observer.look(int(epoch))
        return super().loss(images, labels, ids, key)


class Observer:
    """Measures h on fixed images with fixed noise; what was seen is on disk, by passes."""

    def __init__(
        self,
        task: SelectorTask,
        scale: MemorisationScale,
        sets: Mapping[str, ImageDataset],
        path: Path,
    ) -> None:
        self.task, self.scale, self.sets, self.path = task, scale, sets, path
        self.seen: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
        self.tables: dict[str, LossTable] = {}

    def look(self, done: int) -> None:
        """Measure h after so many passes, unless that is on disk already."""
        if done not in self.scale.measured or str(done) in self.seen:
            return
        training = self.task.module.training
        seen: dict[str, dict[str, Any]] = {which: {} for which in self.sets}
        for lam in self.scale.lams:
            for which, found in self._measure(lam).items():
                seen[which][f"{lam:g}"] = found
        self.seen[str(done)] = seen
        self.task.module.train(training)
        replace_file(self.path, json.dumps(self.seen).encode())

    def _measure(self, lam: float) -> dict[str, dict[str, Any]]:
        """For each set of images the range of σ_s, the objective, and the gain over one level.

        The level is the best for the training images among those of the table and h's own mean.
        """
        of_h = {which: self._of_h(data, lam) for which, data in self.sets.items()}
        mean = float(of_h[SETS[0]][0].mean())
        constant = {which: self._of_constants(which, lam, mean) for which in self.sets}
        best = int(constant[SETS[0]].mean(axis=0).argmin())
        seen = {}
        for which, (sigma, objective) in of_h.items():
            gain = constant[which][:, best] - objective
            low, high = np.percentile(sigma, [5, 95])
            seen[which] = {
                "low": float(low),
                "high": float(high),
                "objective": float(objective.mean()),
                "gain": [float(gain.mean()), *mean_interval(gain)],
            }
        return seen

    def _of_h(self, data: ImageDataset, lam: float) -> tuple[Floats, Floats]:
        """The level that h chooses for each image, and its objective there: (n,) each."""
        self.task.learned.lam = lam
        return self._objective(data, lam, self.task.smoothed.selector)

    def _objective(
        self, data: ImageDataset, lam: float, chooses: Selector
    ) -> tuple[Floats, Floats]:
        """The level of each image, and its objective there: (n,) each."""
        task, levels, losses = self.task, [], []
        device = next(task.module.parameters()).device
        smoothed = SmoothedClassifier(
            task.smoothed.classifier, FixedSelector(1.0), samples=self.scale.draws
        )
        with evaluation_mode(task.smoothed), torch.no_grad():
            for images, labels, ids in data.batches(100):
                assert labels is not None
                x, y = images.to(device), labels.to(device)
                noise = NoiseStream.make(len(x), self.scale.seed, ids).scoped("memorisation")
                sigma = chooses(x, noise)
                scores = smoothed.scores(x, sigma, noise)
                loss = variational_loss(scores, y, sigma, task.sigma_t, lam, x[0].numel())
                levels.append(sigma.cpu().double())
                losses.append(loss.cpu().double())
        return torch.cat(levels).numpy(), torch.cat(losses).numpy()

    def _of_constants(self, which: str, lam: float, mean: float) -> Floats:
        """The objective of each image at each level of the table and at one more: (n, levels)."""
        sigma_a = self.task.learned.sigma_a
        if which not in self.tables:
            self.tables[which] = tabulate(
                self.task.smoothed.classifier,
                self.sets[which],
                [sigma_a * ratio for ratio in RATIOS],
                sigma_a,
                2 * self.scale.draws,  # in halves: as many copies as behind h's objective
                self.scale.seed,
            )
        table = self.tables[which]
        penalty = lam * gaussian_kl(table.levels, self.task.sigma_t)
        every = ((1 - lam) * table.cross_entropy.mean(dim=0) + penalty).double().numpy()
        _, own = self._objective(self.sets[which], lam, FixedSelector(mean))
        found: Floats = np.column_stack([every, own])
        return found


def width(seen: Mapping[str, Any]) -> float:
    """The 5–95 % range relative to its middle."""
    return float(relative_width((seen["low"], seen["high"])))


def _plot(axes: "Axes", study: Study, scale: MemorisationScale, what: str) -> None:
    for lam, colour in zip(scale.lams, colours(len(scale.lams)), strict=True):
        for which, style in zip(SETS, ("o-", "s--"), strict=True):
            seen = [study.at(done, which, lam) for done in scale.measured]
            y = [100 * width(s) if what == "width" else s["gain"][0] for s in seen]
            label = f"λ = {lam:g}, {which}"
            axes.plot(scale.measured, y, style, color=colour, markersize=4, label=label)
        theirs = TABLE_2.get((study.sigma_a, lam))
        if what == "width" and theirs is not None:
            axes.axhline(100 * relative_width(theirs), linestyle=":", color=colour, linewidth=1)
    axes.set_xscale("symlog", linthresh=1)
    axes.set(xlabel="passes", title=study.title if what == "width" else "")
    axes.set_ylabel("width of σ_s (%)" if what == "width" else "gain over the best single σ")


def _table(found: Sequence[Study], scale: MemorisationScale) -> Table:
    rows = []
    for study in found:
        for lam in scale.lams:
            for done in scale.measured:
                for which in SETS:
                    seen = study.at(done, which, lam)
                    gain, *ends = seen["gain"]
                    middle = (seen["low"] + seen["high"]) / 2
                    rows.append(
                        [
                            Cell.of(study.title),
                            Cell(f"{lam:g}", lam),
                            Cell.of(done),
                            Cell.of(which),
                            Cell(f"{middle:.3f}", middle),
                            Cell(f"{100 * width(seen):.1f}", width(seen)),
                            Cell(f"{seen['objective']:.4f}", seen["objective"]),
                            Cell.signed(gain, Interval(*ends), 4),
                        ]
                    )
    return Table(
        "memorisation",
        "What h chooses after some passes over its training images: middle of the 5–95 % range of "
        "σ_s and its width relative to it, the objective, and what it gains over the best single "
        "level (of twelve and h's own mean, chosen on the training images), with 95 % intervals "
        "over images.",
        ["model", "λ", "passes", "images", "middle", "width %", "objective", "gain"],
        rows,
    )


GAIN = "objective of the single level that is best on training images minus that of h"


def memory_claim(found: Sequence[Study], scale: MemorisationScale) -> Claim:
    """Does h gain more on the images that it was trained on than on others?"""
    gaps, widths = {}, []
    fair = [study for study in found if study.kind == "released"] or found
    for study in found:
        for lam in scale.lams:
            trained, other = (study.at(scale.passes, which, lam) for which in SETS)
            name = f"{study.title}, λ = {lam:g}"
            if study in fair:
                gaps[name] = Excess(trained["gain"], other["gain"], scale.images)
            theirs = TABLE_2.get((study.sigma_a, lam))
            paper = "" if theirs is None else f", Table 2 {100 * relative_width(theirs):.0f} %"
            widths.append(
                f"{name}: {100 * width(trained):.0f} % on training images, "
                f"{100 * width(other):.0f} % on held-out ones{paper}"
            )
    which = "g_v" if scale.scheme == "gv" else "g_v*"
    return judged(
        f"What h of {which} gains after {scale.passes} passes over {scale.subset:,} images is "
        "memorised: it gains more on these images than on others",
        "ours, on Table 2",
        gaps,
        f"{GAIN}, on training images minus the same on held-out ones",
        "this comparison was chosen after a first look at the numbers, and it is made for the "
        "released f if there is one: with an overfitted f the level that is best on training "
        "images is bad on others, whatever h does; width of the 5–95 % range of σ_s relative to "
        f"its middle, without crops and flips: {'; '.join(widths)}",
        digits=4,
    )


@dataclass(frozen=True)
class Excess:
    """The difference of two independent means over n images, each with its 95 % interval."""

    mine: Sequence[float]
    others: Sequence[float]
    n: int

    @property
    def value(self) -> float:
        return self.mine[0] - self.others[0]

    def interval(self, level: float = LEVEL) -> Interval:
        half = math.hypot(*((high - low) / 2 for _, low, high in (self.mine, self.others)))
        wider = float(normal_quantile((1 + level) / 2) / normal_quantile((1 + LEVEL) / 2))
        return Interval(self.value - wider * half, self.value + wider * half)


MEMORISATION = Experiment(
    "memorisation",
    "ours, on Table 2",
    "spread and objective of h over many passes on few images, and on held-out ones",
    {
        "cpu": MemorisationScale(images=500, subset=2000, passes=100, classifiers=("released",)),
        "paper": MemorisationScale(),
    },
    {"cpu": "2 h", "paper": "days on a GPU"},
    memorisation,
    lambda scale: [Need.fixed(sigma) for sigma in scale.sigmas],
)


LONG_RUN = Experiment(
    "long-run",
    "ours, on Table 2",
    "spread and objective of h over as many passes over all training images as in the paper",
    {
        "cpu": MemorisationScale(images=500, classifiers=("released",), pool=16, scheme="gv"),
        "paper": MemorisationScale(classifiers=("released",)),
    },
    {"cpu": "2.5 h", "paper": "days on a GPU"},
    memorisation,
    lambda scale: [Need.fixed(sigma) for sigma in scale.sigmas],
)
