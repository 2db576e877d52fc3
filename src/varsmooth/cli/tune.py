"""`varsmooth tune`: settings of a protected selector, chosen on held-out images."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from varsmooth.cli.feedback import conclude
from varsmooth.cli.held_out import HeldOut
from varsmooth.errors import require
from varsmooth.models.cards import has_card, write_card
from varsmooth.models.descriptions import describe, find, own_copy, recommend, rewrite
from varsmooth.models.settings import Settings
from varsmooth.training.configuration import TuneOptions

if TYPE_CHECKING:
    from varsmooth.training.tuning import Tuning


def tune(model: str, /, *, settings: TuneOptions, images: HeldOut) -> None:
    """Choose λ, σ_m, clip and grid for a model and write them into its description.

    The choice is made on held-out images, never on test images. The best single σ for the same
    goal is shown beside it, with a plain word if it is the better one.

    examples:
      varsmooth tune runs/cpu/h-0.25
      varsmooth tune my_model/ --goal certified --radius 0.5 --images 1000
      varsmooth tune cifar10-0.25 --goal clean --out my_tuned
      varsmooth tune cifar10-universal-1.00 --goal cascade --n 1000 --out my_cascade

    Args:
        model: folder or released name of a classifier with its selector
    """
    require(
        images.split != "test",
        "settings chosen on test images would flatter the results there; use another --split",
    )
    images.announce(f"tune {model} for {settings.goal}", model, settings.n)
    if settings.goal == "cascade":
        _tune_cascade(model, settings, images)
        return
    require(
        describe(model).selector is not None,
        f"{model} has no selector to tune; train one, or tune a cascade with --goal cascade",
    )
    from varsmooth.training.tuning import tune as choose

    tuned = images.tuned(model)
    _, g, fitting = images.fit(model, Settings(protect=False), tuned)
    chosen = choose(g, fitting, **vars(settings), seed=images.seed)
    best = chosen.best
    source, folder = find(model), own_copy(model, images.out, "tuned")
    carded = has_card(source, describe(source))  # a page of the user's own is left alone
    names = ("lam", "sigma_m", "clip", "levels")
    about = recommend(folder, {name: getattr(best, name) for name in names}, tuned)
    if carded:
        write_card(folder, about)
    what = {"clean": "accuracy", "certified": f"accuracy certified at {chosen.radius:g}"}
    grid = ", ".join(f"{level:.4g}" for level in best.levels)
    conclude(
        [
            f"{what.get(chosen.goal, 'average certified radius')} on {chosen.images} images of "
            f"{fitting.name} {images.split}",
            f"  selector  {best.score:.4f}  --lam {best.lam:g} --sigma-m {best.sigma_m:g}, "
            f"levels {grid}",
            f"  one σ     {chosen.fixed_score:.4f}  --sigma {chosen.fixed_sigma:.4g}",
            f"written into the description of {folder}",
        ],
        verdict(chosen, model, folder, images),
    )


def verdict(chosen: "Tuning", model: str, folder: Path, images: HeldOut) -> str:
    """The command that follows from whether a level per image pays."""
    if chosen.fixed_score < chosen.best.score:
        return images.certify(folder, out=f"runs/{folder.name}-tuned")
    one = images.certify(
        model, sigma=f"{chosen.fixed_sigma:.4g}", out=f"runs/{Path(model).name}-fixed"
    )
    return f"{one}  # one σ for all images is at least as good here, and simpler"


def _tune_cascade(model: str, settings: TuneOptions, images: HeldOut) -> None:
    """Write the best stages for every λ into the description, and print them beside one σ."""
    from varsmooth.training import cascades

    about, tuned = describe(model), images.tuned(model)
    _, g, data = images.fit(model, Settings(sigma=about.default_sigma), tuned)
    given: dict[str, Any] = {"seed": images.seed, "batch_size": settings.batch_size}
    table = cascades.tabulate(g, data, cascades.ladder(about), settings.n, **given)
    found = list(cascades.rules(table))
    members = cascades.family(cascades.choose(found), table)
    folder = own_copy(model, images.out, "tuned")
    rewrite(folder, replace(about, cascades=members, tuned=tuned))
    first, *others = members[-1].levels
    how = {"cascade": "tuned", "lam": 1} if others else {"sigma": f"{first:.4g}"}
    run = f"runs/{folder.name}-{'cascade' if others else 'fixed'}"
    conclude(
        [
            f"certified on {len(data)} images of {data.name}: accuracy at 0, average radius",
            *(f"  {line}" for line in cascades.summary(found, table)),
            f"written into the description of {folder}",
        ],
        images.certify(folder, **how, out=run),
    )
