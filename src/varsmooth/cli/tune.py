"""`varsmooth tune`: settings of a protected selector, chosen on held-out images."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from varsmooth.cli.feedback import conclude
from varsmooth.cli.held_out import HeldOut
from varsmooth.typed import Count, Few, Positive, Share, Weight

if TYPE_CHECKING:
    from varsmooth.data import ImageDataset
    from varsmooth.smoothing import SmoothedClassifier
    from varsmooth.training.tuning import Tuning


def tune(
    model: str,
    /,
    *,
    goal: Literal["clean", "certified", "radius", "cascade"] = "radius",
    radius: Weight = 0.0,
    lams: list[Share] | None = None,
    sigma_ms: list[Positive] | None = None,
    levels: Few = 9,
    n: Count = 500,
    n_select: Count = 301,
    unclipped: Share = 0.9,
    batch_size: Count | None = None,
    images: HeldOut,
) -> None:
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
        goal: of the selector: clean accuracy, accuracy certified soundly at a radius, or average
            certified radius; cascade: the stages of a cascade, for every λ
        radius: the radius of goal `certified`
        lams: values of λ to try, 0,0.1,0.2
        sigma_ms: values of σ_m to try (default: half, once and twice the selector's σ_a)
        levels: levels of the ladder from which grids are cut
        n: votes of f per image and level
        n_select: samples of h per image and setting
        unclipped: share of the images whose level must lie within the clip range
    """
    images.announce(f"tune {model} for {goal}", model, n)
    from varsmooth.errors import VarsmoothError
    from varsmooth.models.cards import has_card, write_card
    from varsmooth.models.descriptions import describe, find, own_copy, recommend
    from varsmooth.models.settings import Settings
    from varsmooth.training.tuning import tune as choose

    loaded, tuned = images.load(model), images.tuned(model)
    if goal == "cascade":
        g, fitting = images.fit(loaded, Settings(sigma=loaded.description.default_sigma), tuned)
        _tune_cascade(model, g, fitting, n, batch_size, images)
        return
    if loaded.selector is None:
        raise VarsmoothError(
            f"{model} has no selector to tune; train one, or tune a cascade with --goal cascade"
        )
    g, fitting = images.fit(loaded, Settings(protect=False), tuned)
    chosen = choose(
        g,
        fitting,
        goal,
        radius,
        lams=lams or (0.0, 0.1, 0.2, 0.3, 0.4, 0.5),
        sigma_ms=sigma_ms,
        levels=levels,
        n=n,
        n_select=n_select,
        unclipped=unclipped,
        seed=images.seed,
        batch_size=batch_size,
    )
    best = chosen.best
    source, folder = find(model), own_copy(model, images.out, "tuned")
    carded = has_card(source, describe(source))  # a page of the user's own is left alone
    names = ("lam", "sigma_m", "clip", "levels")
    about = recommend(folder, {name: getattr(best, name) for name in names}, tuned)
    if carded:
        write_card(folder, about)
    what = {"clean": "accuracy", "certified": f"accuracy certified at {radius:g}"}
    grid = ", ".join(f"{level:.4g}" for level in best.levels)
    conclude(
        [
            f"{what.get(goal, 'average certified radius')} on {chosen.images} images of "
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
        return images.certify(folder, out="runs/tuned")
    one = images.certify(model, sigma=f"{chosen.fixed_sigma:.4g}", out="runs/fixed")
    return f"{one}  # one σ for all images is at least as good here, and simpler"


def _tune_cascade(
    model: str,
    g: "SmoothedClassifier",
    data: "ImageDataset",
    n: int,
    batch_size: int | None,
    images: HeldOut,
) -> None:
    """Write the best stages for every λ into the description, and print them beside one σ."""
    from dataclasses import replace

    from varsmooth.models.descriptions import describe, own_copy, rewrite
    from varsmooth.training import cascades

    about = describe(model)
    levels = cascades.ladder(about)
    table = cascades.tabulate(g, data, levels, n, seed=images.seed, batch_size=batch_size)
    found = list(cascades.rules(table))
    members = cascades.family(cascades.choose(found), table)
    folder = own_copy(model, images.out, "tuned")
    rewrite(folder, replace(about, cascades=members, tuned=images.tuned(model)))
    conclude(
        [
            f"certified on {len(data)} images of {data.name}: accuracy at 0, average radius",
            *(f"  {line}" for line in cascades.summary(found, table)),
            f"written into the description of {folder}",
        ],
        images.certify(folder, cascade="tuned", lam=1, out="runs/cascade"),
    )
