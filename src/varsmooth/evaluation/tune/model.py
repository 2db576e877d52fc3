"""Tune or measure a model on held-out images, and write the outcome into its description."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from varsmooth._util.fingerprints import fingerprint
from varsmooth._util.processes import choose_device
from varsmooth.data import ImageDataset, load_source
from varsmooth.data.catalog import tuned_images, tuned_on
from varsmooth.data.fitting import fitted
from varsmooth.data.source import Tuned
from varsmooth.defaults import N0
from varsmooth.evaluation.measure import measure
from varsmooth.evaluation.options import HeldOut, TuneOptions
from varsmooth.evaluation.tune import cascade
from varsmooth.evaluation.tune.obstacles import why_one_level
from varsmooth.evaluation.tune.selector import Tuning, tune
from varsmooth.evaluation.tune.table import TableFile, tabulate
from varsmooth.models.cards import has_card, write_card
from varsmooth.models.checkpoints import Checkpoint, load_checkpoint
from varsmooth.models.descriptions import Description, copy_model, describe, find, rewrite
from varsmooth.models.loading import smoothed
from varsmooth.models.options import ModelOptions, TunedStages
from varsmooth.noise import scoped_seed
from varsmooth.probe import probe
from varsmooth.rounding import counted
from varsmooth.smoothing import SmoothedClassifier


@dataclass(frozen=True)
class TunedCascade:
    """The stages by rising λ, the best single σ for the same votes, and a summary in lines."""

    stages: tuple[TunedStages, ...]
    single: TunedStages
    summary: list[str]


def tune_selector(
    model: str, options: TuneOptions, images: HeldOut
) -> tuple[Path, ImageDataset, Tuning]:
    """Choose λ, σ_m, clip and grid: the folder of the tuned model, the images, the choice."""
    tuned = _tuned(model, images)
    _, g, data = _load(
        model, images, ModelOptions(selector="learned", precision=options.precision), tuned
    )
    chosen = tune(g, data, **vars(options), seed=images.seed)
    source, folder = find(model), copy_model(model, images.out, "tuned")
    carded = has_card(source, describe(source))  # a page of the user's own is left alone
    names = ("lam", "sigma_m", "clip", "levels")
    recommended = {name: getattr(chosen.best, name) for name in names}
    about = rewrite(folder, replace(describe(folder), recommended=recommended, tuned=tuned))
    if carded:
        write_card(folder, about)
    return folder, data, chosen


def tune_cascade(
    model: str, options: TuneOptions, images: HeldOut
) -> tuple[Path, ImageDataset, TunedCascade]:
    """Choose the stages for every λ: the folder of the tuned model, the images, the choice."""
    about, tuned = describe(model), _tuned(model, images)
    fixed = ModelOptions(sigma=about.default_sigma, precision=options.precision)
    _, g, data = _load(model, images, fixed, tuned)
    carded = has_card(find(model), about)  # a page of the user's own is left alone
    folder = copy_model(model, images.out, "tuned")
    outputs = probe(g, data.batch([0]).images.to(g.device)).classifier
    file = TableFile(folder / "votes.npz", f"{fingerprint(g.classifier)} {outputs}")
    table = tabulate(
        g,
        data,
        cascade.ladder(about),
        (options.n, N0),
        seed=scoped_seed(images.seed, "tune"),
        batch_size=options.batch_size,
        file=file,
    )
    print(f"choosing stages on {counted(len(data), 'image')}", file=sys.stderr, flush=True)
    choice = cascade.choose(table)
    stages, single = cascade.family(choice, table), cascade.single(choice, table)
    summary = cascade.summary(choice, table)
    if len(stages[-1].levels) == 1:  # of λ = 1, the largest average radius
        summary.append(why_one_level(choice.single, table))
    alone = about.tuned is None or about.tuned.cascade_only
    tuned = replace(tuned, cascade_only=alone)
    about = rewrite(folder, replace(about, cascades=stages, single=single, tuned=tuned))
    if carded:
        write_card(folder, about)
    file.remove()
    return folder, data, TunedCascade(stages, single, summary)


def measure_model(
    model: str, images: HeldOut, n: int, n_select: int, levels: Sequence[float] | None = None
) -> tuple[Path, Description]:
    """Measure a model and write its card: the folder and the description with the metrics."""
    loaded, g, data = _load(model, images, ModelOptions(sigma=describe(model).default_sigma))
    if loaded.selector is not None:
        loaded.selector.to(g.device)
    measured = measure(loaded, data, n, n_select, images.seed, levels)
    folder = copy_model(model, images.out, "measured")
    about = rewrite(folder, measured)
    write_card(folder, about)
    return folder, about


def _tuned(model: str, images: HeldOut) -> Tuned:
    """The images to choose settings on."""
    return tuned_on(images.with_defaults(describe(model).source), images.split, images.images)


def _load(
    model: str, images: HeldOut, options: ModelOptions, tuned: Tuned | None = None
) -> tuple[Checkpoint, SmoothedClassifier, ImageDataset]:
    """The model, smoothed by these options on the device, and images in its numbering."""
    loaded = load_checkpoint(model, images.trust or ())
    about = loaded.description
    g = smoothed(loaded, options).to(choose_device(images.device))
    data = load_source(images.with_defaults(about.source), images.split)
    chosen = data.few(images.images) if tuned is None else tuned_images(tuned, data)
    return loaded, g, fitted(chosen, g, *about.trained_on)
