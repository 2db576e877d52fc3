"""`varsmooth tune` and `measure`: settings chosen, and a card written, on held-out images."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from varsmooth._util.files import only_writer
from varsmooth.cli.feedback import announce, command, conclude, resolve_images
from varsmooth.errors import check
from varsmooth.evaluation.options import HeldOut, TuneOptions
from varsmooth.models.cards import card, plain
from varsmooth.models.descriptions import CARD, CONFIG, check_new_model, describe, results_folder
from varsmooth.rounding import counted, rounded
from varsmooth.types import Count, Odd, Positive

if TYPE_CHECKING:
    from varsmooth.evaluation.tune.model import TunedCascade
    from varsmooth.evaluation.tune.selector import Tuning


def tune(model: str, /, *, options: TuneOptions, images: HeldOut) -> None:
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
    _announce(f"tune {model} for {options.goal}", model, images, options.n, "tuned")
    cascade = options.goal == "cascade"
    check(
        cascade or describe(model).selector is not None,
        f"{model} has no selector to tune; train one, or tune a cascade with --goal cascade",
    )
    from varsmooth.evaluation.tune.model import tune_cascade, tune_selector

    if cascade:
        with only_writer(results_folder(model, images.out, "tuned")):
            folder, data, stages = tune_cascade(model, options, images)
        count = counted(len(data), "image")
        title = f"certified on {count} of {data.name}: accuracy at 0, average radius"
        lines, commands = stages.summary, after_cascade(stages, folder, images, options)
    else:
        with only_writer(results_folder(model, images.out, "tuned")):
            folder, data, chosen = tune_selector(model, options, images)
        scores = {"clean": "accuracy", "certified": f"accuracy certified at {options.radius:g}"}
        score = scores.get(options.goal, "average certified radius")
        title = f"{score} on {counted(len(data), 'image')} of {data.name} {images.split}"
        best, grid = chosen.best, ", ".join(f"{level:.4g}" for level in chosen.best.levels)
        lines = [
            f"selector  {rounded(best.score, 4)}  --lam {best.lam:g} --sigma-m {best.sigma_m:g}, "
            f"levels {grid}",
            f"one σ     {rounded(chosen.fixed_score, 4)}  --sigma {chosen.fixed_sigma:.4g}",
        ]
        commands = [after_selector(chosen, model, folder, images, options)]
    written = f"written into the description of {folder}"
    conclude([title, *(f"  {line}" for line in lines), written], *commands)


def after_selector(
    chosen: "Tuning", model: str, folder: Path, images: HeldOut, options: TuneOptions
) -> str:
    """The command to certify the better of the selector and the best single σ."""
    certify = partial(_certify, images=images, options=options)
    if chosen.fixed_score < chosen.best.score:
        selector = "median" if describe(folder).cascades else None  # not the model's default
        return certify(folder, selector=selector, out=f"runs/{folder.name}-tuned")
    sigma, out = f"{chosen.fixed_sigma:.4g}", f"runs/{Path(model).name}-fixed"
    one = certify(model, sigma=sigma, out=out)
    return f"{one}  # one σ for all images is at least as good here, and simpler"


def after_cascade(
    chosen: "TunedCascade", folder: Path, images: HeldOut, options: TuneOptions
) -> list[str]:
    """The commands to certify the cascade with the largest radius, if any, and the best σ."""
    certify = partial(_certify, images=images, options=options)
    sigma, out = f"{chosen.single.levels[0]:.4g}", f"runs/{folder.name}"
    fixed = certify(folder, sigma=sigma, out=f"{out}-fixed")
    several = [stages for stages in chosen.stages if len(stages.levels) > 1]
    if not several:
        return [fixed]
    best = several[-1] is chosen.stages[-1]
    lam = None if best else f"{several[-1].lam:g}"
    run = certify(folder, lam=lam, out=f"{out}-cascade")
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
    _announce(f"measure {model}", model, images, n, "measured")
    from varsmooth.evaluation.tune.model import measure_model

    with only_writer(results_folder(model, images.out, "measured")):
        folder, about = measure_model(model, images, n, n_select, levels)
    shown = plain(card(folder.name, about, log=False))
    written = f"written into {folder / CONFIG} and {folder / CARD}"
    conclude([shown, written], command("models", folder))


def _announce(doing: str, model: str, images: HeldOut, n: int, suffix: str) -> None:
    """Announce the plan, or raise an error that says what is missing."""
    source = resolve_images(model, images, trained=True)
    if images.out is not None and not (images.out / CONFIG).exists():
        check_new_model(images.out)
    chosen = f"at most {images.images} of {source.words(images.split)}"
    announce(
        doing, images.device, images=chosen, n=n, out=results_folder(model, images.out, suffix)
    )


def _certify(model: str | Path, images: HeldOut, options: TuneOptions, **chosen: str | None) -> str:
    """The command that certifies the tuned model on images that tuning has not seen."""
    from varsmooth.data.catalog import left_to_certify

    about = describe(model)
    left = left_to_certify(images.with_defaults(about.source), about.tuned)
    where = {"data": images.data, "root": images.root, **images.preprocessing._asdict()}
    precision = None if options.precision == "float32" else options.precision
    about_f = {"model": model, "trust": images.trust, "precision": precision}
    return command("certify", **about_f, **where, **left, **chosen)
