"""`varsmooth tune` and `measure`: settings chosen, and a card written, on held-out images."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from varsmooth._util.files import check_unused
from varsmooth.cli.feedback import announce, check_here, command, conclude, say
from varsmooth.data.source import Source, Tuned
from varsmooth.defaults import N0
from varsmooth.errors import check
from varsmooth.evaluation.options import TuneOptions
from varsmooth.models.cards import CARD, card, has_card, plain, write_card
from varsmooth.models.descriptions import (
    CONFIG,
    describe,
    find,
    own_copy,
    place_of,
    rewrite,
)
from varsmooth.models.options import ModelOptions, TunedStages
from varsmooth.rounding import rounded
from varsmooth.types import Count, Device, NonNegative, Odd, Positive

if TYPE_CHECKING:
    from varsmooth.data import ImageDataset
    from varsmooth.evaluation.tune.selector import Tuning
    from varsmooth.models.checkpoints import Checkpoint
    from varsmooth.smoothing import SmoothedClassifier


@dataclass(frozen=True, kw_only=True)
class HeldOut(Source):
    """Images that the model was not trained on.

    Args:
        split: their held-out split
        images: how many of its images are used
        out: folder for a copy of the model with the results (default: the model's own folder; for
            a released model a new one in the working directory)
    """

    split: str = "val"
    images: Count = 1000
    seed: NonNegative = 0
    device: Device = "auto"
    out: Path | None = None
    trust: list[str] | None = None

    def certify(self, model: str | Path, **settings: object) -> str:
        """The command that certifies the tuned model on images that tuning has not seen."""
        from varsmooth.data.catalog import left_to_certify

        about = describe(model)
        images = {"data": self.data, "root": self.root, **self.preprocessing._asdict()}
        left = left_to_certify(self.filled(about.source), about.tuned)
        named = {"trust": self.trust, **images}
        return command("certify", model=model, **named, **left, **settings)

    def tuned(self, model: str) -> Tuned:
        """The images to choose settings on."""
        from varsmooth.data.catalog import tuned_on

        return tuned_on(self.filled(describe(model).source), self.split, self.images)

    def announce(self, doing: str, model: str, n: int, suffix: str) -> None:
        """Say what will be done, or what is not there."""
        source = check_here(model, self, trained=True)
        if self.out is not None and not (self.out / CONFIG).exists():
            check_unused(self.out)
        images = f"at most {self.images} of {source.words(self.split)}"
        announce(doing, self.device, images=images, n=n, out=place_of(model, self.out, suffix))

    def fit(
        self, model: str, options: ModelOptions, tuned: Tuned | None = None
    ) -> tuple["Checkpoint", "SmoothedClassifier", "ImageDataset"]:
        """The model, smoothed by these options on the device, and images in its numbering."""
        from varsmooth._util.processes import choose_device
        from varsmooth.data import load_source
        from varsmooth.data.catalog import tuned_images
        from varsmooth.data.fitting import fitted
        from varsmooth.models.checkpoints import load_checkpoint
        from varsmooth.models.loading import smoothed

        loaded = load_checkpoint(model, self.trust or ())
        about = loaded.description
        g = smoothed(loaded, options).to(choose_device(self.device))
        images = load_source(self.filled(about.source), self.split)
        chosen = images.few(self.images) if tuned is None else tuned_images(tuned, images)
        return loaded, g, fitted(chosen, g, *about.trained_on)


def tune(model: str, /, *, settings: TuneOptions, images: HeldOut) -> None:
    """Choose λ, σ_m, clip and grid for a model and write them into its description.

    The choice is made on held-out images, never on test images. The best single σ for the same
    goal is shown beside it; if it is at least as good, `tune` says so.

    examples:
      varsmooth tune runs/cpu/h-0.25
      varsmooth tune my_model/ --goal certified --radius 0.5 --images 1000
      varsmooth tune cifar10-0.25 --goal clean --out my_tuned
      varsmooth tune cifar10-universal-1.00 --goal cascade --n 1000 --out my_cascade

    Args:
        model: folder or released name of a classifier, with its selector; a cascade needs none
    """
    check(
        images.split != "test",
        "settings chosen on test images would flatter the results there; use another --split",
    )
    images.announce(f"tune {model} for {settings.goal}", model, settings.n, "tuned")
    if settings.goal == "cascade":
        _tune_cascade(model, settings, images)
        return
    check(
        describe(model).selector is not None,
        f"{model} has no selector to tune; train one, or tune a cascade with --goal cascade",
    )
    from varsmooth.evaluation.tune.selector import tune as choose

    tuned = images.tuned(model)
    _, g, fitting = images.fit(model, ModelOptions(selector="learned"), tuned)
    chosen = choose(g, fitting, **vars(settings), seed=images.seed)
    best = chosen.best
    source, folder = find(model), own_copy(model, images.out, "tuned")
    carded = has_card(source, describe(source))  # a page of the user's own is left alone
    names = ("lam", "sigma_m", "clip", "levels")
    recommended = {name: getattr(best, name) for name in names}
    about = rewrite(folder, replace(describe(folder), recommended=recommended, tuned=tuned))
    if carded:
        write_card(folder, about)
    what = {"clean": "accuracy", "certified": f"accuracy certified at {settings.radius:g}"}
    grid = ", ".join(f"{level:.4g}" for level in best.levels)
    conclude(
        [
            f"{what.get(settings.goal, 'average certified radius')} on {len(fitting)} images of "
            f"{fitting.name} {images.split}",
            f"  selector  {rounded(best.score, 4)}  --lam {best.lam:g} --sigma-m {best.sigma_m:g}, "
            f"levels {grid}",
            f"  one σ     {rounded(chosen.fixed_score, 4)}  --sigma {chosen.fixed_sigma:.4g}",
            f"written into the description of {folder}",
        ],
        verdict(chosen, model, folder, images),
    )


def verdict(chosen: "Tuning", model: str, folder: Path, images: HeldOut) -> str:
    """The command that follows from whether a level per image pays."""
    if chosen.fixed_score < chosen.best.score:
        selector = "median" if describe(folder).cascades else None  # not the model's default
        return images.certify(folder, selector=selector, out=f"runs/{folder.name}-tuned")
    one = images.certify(
        model, sigma=f"{chosen.fixed_sigma:.4g}", out=f"runs/{Path(model).name}-fixed"
    )
    return f"{one}  # one σ for all images is at least as good here, and simpler"


def _tune_cascade(model: str, settings: TuneOptions, images: HeldOut) -> None:
    """Write the best stages for every λ into the description, and print them beside one σ."""
    from varsmooth._util.fingerprints import fingerprint
    from varsmooth.evaluation.tune import cascade as cascades
    from varsmooth.evaluation.tune.table import TableFile, tabulate
    from varsmooth.noise import scoped_seed
    from varsmooth.probe import probe

    about, tuned = describe(model), images.tuned(model)
    _, g, data = images.fit(model, ModelOptions(sigma=about.default_sigma), tuned)
    folder = own_copy(model, images.out, "tuned")
    outputs = probe(g, data.batch([0]).images.to(g.device)).classifier
    file = TableFile(folder / "votes.npz", f"{fingerprint(g.classifier)} {outputs}")
    table = tabulate(
        g,
        data,
        cascades.ladder(about),
        (settings.n, N0),
        seed=scoped_seed(images.seed, "tune"),
        batch_size=settings.batch_size,
        file=file,
    )
    say(f"choosing stages on {len(data)} images")
    choice = cascades.choose(table)
    members, single = cascades.family(choice, table), choice.single
    reasons = []
    if len(members[-1].levels) == 1:  # of λ = 1, the largest average radius
        from varsmooth.evaluation.tune.obstacles import why_one_level

        reasons = [why_one_level(single, table)]
    alone = about.tuned is None or about.tuned.cascade_only
    rewrite(folder, replace(about, cascades=members, tuned=replace(tuned, cascade_only=alone)))
    file.remove()
    conclude(
        [
            f"certified on {len(data)} images of {data.name}: accuracy at 0, average radius",
            *(f"  {line}" for line in cascades.summary(choice, table)),
            *reasons,
            f"written into the description of {folder}",
        ],
        *certify_tuned(members, table.levels[single.columns[0]], folder, images),
    )


def certify_tuned(
    members: Sequence[TunedStages], single: float, folder: Path, images: HeldOut
) -> list[str]:
    """The commands for the cascade with the largest radius, if there is any, and the best σ."""
    fixed = images.certify(folder, sigma=f"{single:.4g}", out=f"runs/{folder.name}-fixed")
    several = [member for member in members if len(member.levels) > 1]
    if not several:
        return [fixed]
    best = several[-1] is members[-1]
    lam = None if best else f"{several[-1].lam:g}"
    run = images.certify(folder, lam=lam, out=f"runs/{folder.name}-cascade")
    if best:
        return [run, f"{fixed}  # the best single σ, to compare"]
    return [fixed, f"{run}  # more accurate, average radius no larger"]


def measure(
    model: str,
    /,
    *,
    n: Count = 100,
    n_select: Odd = 31,
    levels: list[Positive] | None = None,
    images: HeldOut,
) -> None:
    """Measure a model and write its card (README.md in its folder).

    Accuracy of f without noise and of its vote around σ_a; the levels that h chooses for each λ,
    how much they differ between images, and whether they follow each image's own best level.

    examples:
      varsmooth measure runs/cpu/h-0.25
      varsmooth measure cifar10-0.25 --split test --images 1000 --out my_copy
      varsmooth measure my_model/ --levels 0.25 --n 1000

    Args:
        model: folder of a model, or a released name
        n: votes of f per image and level
        n_select: samples of h per image and λ; odd
        levels: certify f at these levels alone and keep the rest of the card
    """
    images.announce(f"measure {model}", model, n, "measured")
    from varsmooth.evaluation.measure import measure as measure_model

    loaded, g, chosen = images.fit(model, ModelOptions(sigma=describe(model).default_sigma))
    if loaded.selector is not None:
        loaded.selector.to(g.device)
    measured = measure_model(loaded, chosen, n, n_select, images.seed, levels)
    folder = own_copy(model, images.out, "measured")
    about = rewrite(folder, measured)
    write_card(folder, about)
    shown = plain(card(folder.name, about, log=False))
    written = f"written into {folder / CONFIG} and {folder / CARD}"
    conclude([shown, written], command("models", folder))
