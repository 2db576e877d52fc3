"""`varsmooth adopt`: from a classifier of your own to a model that can be certified."""

import sys
from contextlib import suppress
from pathlib import Path

from varsmooth.cli.feedback import announce, check_here, command, conclude, held_out, say
from varsmooth.defaults import ALPHA, ALPHA_SELECT
from varsmooth.errors import VarsmoothError, require
from varsmooth.files import check_unused
from varsmooth.models.cards import accuracy_table, plain
from varsmooth.models.descriptions import Description, Part
from varsmooth.models.source import Source
from varsmooth.typed import Count, Device, NonNegative, Positive


def adopt(
    factory: str,
    /,
    *,
    data: str,
    out: Path,
    split: str = "val",
    root: Path | None = None,
    resize: Count | None = None,
    levels: list[Positive] | None = None,
    images: Count = 100,
    n: Count = 100,
    seed: NonNegative = 0,
    device: Device = "auto",
) -> None:
    """Check a classifier of your own on real images, say what smoothing gives, and save it.

    The factory is a function or class package.module:name without arguments that returns an
    nn.Module; the working directory is searched. Images are (B,C,H,W) in [0,1], normalisation
    belongs inside. What it prints: accuracy without noise, and at a few noise levels the accuracy
    of the vote, the certified accuracy and the average radius, as the classifier is.

    examples:
      varsmooth adopt my_package.nets:make --data photos/ --out my_model

    Args:
        factory: import path of what makes the classifier
        data: a name from `varsmooth data list`, or the path of your own images, labelled
        out: folder for the model; it loads with --trust and the import path
        split: images that the classifier was not trained on
        levels: noise levels to try (default: 0.06,0.12,0.25,0.5)
        images: how many images are used, spread over the split
        n: votes per image and level
    """
    levels = sorted(levels or (0.06, 0.12, 0.25, 0.5))
    from varsmooth.bounds import clopper_pearson_lower, fewest_votes_to_certify

    fewest = fewest_votes_to_certify(ALPHA - ALPHA_SELECT)
    require(n >= fewest, f"--n {n} votes certify nothing; at least {fewest} are needed")
    require(":" in factory, f"{factory} should be an import path package.module:name")
    check_unused(out)
    source = check_here(factory, Source(data=data, root=root, resize=resize))
    announce(
        f"adopt {factory}",
        device,
        images=f"at most {images} of {data} {split}",
        val=held_out(source) if split == "val" else None,
        n=n,
        levels=",".join(f"{level:g}" for level in levels),
    )
    import time

    import numpy as np
    from torch import nn

    from varsmooth.data import load_source
    from varsmooth.data.catalog import tuned_images, tuned_on, unseen_split
    from varsmooth.data.fitting import fitted, outputs_on
    from varsmooth.models.checkpoints import save
    from varsmooth.models.networks import build
    from varsmooth.processes import choose_device
    from varsmooth.selectors import FixedSelector
    from varsmooth.smoothing import SmoothedClassifier
    from varsmooth.training.cards import measure_classifier

    network: nn.Module = build(factory).to(choose_device(device)).eval()
    if any(kind.__module__.startswith("transformers.") for kind in type(network).__mro__):
        note = "a bare transformers model is not given the normalised images that it expects"
        say(f"note: {note}; let {factory} return from_transformers(model, processor)", sys.stderr)
    unseen = load_source(source, split)
    names = tuple(getattr(network, "class_names", ())) or unseen.class_names
    shape = getattr(network, "image_shape", None) or unseen.shape
    g = SmoothedClassifier(network, FixedSelector(levels[0]))
    tuned = tuned_on(source, split, images)
    chosen = fitted(tuned_images(tuned, unseen), g, names, shape)
    began = time.perf_counter()
    metrics, _ = measure_classifier(network, chosen, levels, n, seed)
    pace = (time.perf_counter() - began) / (len(chosen) * n * len(levels))  # seconds per image
    certified = metrics["certified"]
    chance = np.bincount(chosen.known_labels).max() / len(chosen)  # of the commonest class
    right = round(metrics["plain_accuracy"] / 100 * len(chosen))

    def guessing(correct: int) -> bool:
        return bool(clopper_pearson_lower(correct, len(chosen), 0.05) <= chance)

    votes = metrics["smoothed_accuracy"]
    able = [level for level in votes if not guessing(round(votes[level] / 100 * len(chosen)))]
    lowest = f"{levels[0]:g}"
    best = max(able or [lowest], key=lambda level: float(certified[level]["average_radius"]))
    loss, guesses = metrics["plain_accuracy"] - votes[best], guessing(right)
    epoch = None
    if guesses or loss > 5:
        with suppress(VarsmoothError):  # there may be no images to train on
            minutes = 3 * pace * len(load_source(source, "train")) / 60
            epoch = f"about {max(minutes, 0.1):.1f} min per epoch"
    if guesses:
        advice = (
            f"the classifier is no better than chance: right on {right} of {len(chosen)} images; "
            "check its weights, its normalisation and the order of its classes, or train it"
        )
    elif loss > 5:
        advice = (
            f"noise of σ = {best} costs {loss:.0f} points of accuracy: fine-tune under noise "
            f"({epoch or f'{data} has no training images'})"
        )
    else:
        advice = f"the classifier stands noise of σ = {best} well as it is"
    outputs = outputs_on(chosen, g)
    if outputs != len(names):
        advice += f"; note that it has {outputs} outputs for {len(names)} classes"
    part, where = Part(factory, metrics={split: metrics}), source.entries()
    described = Description(
        **where,
        class_names=names,
        sigma_a=float(best),
        image_shape=chosen.shape,
        classifier=part,
        tuned=tuned,
    )
    save(out, described, classifier=network.cpu())
    own, ready = {"trust": factory}, Path(f"{out}-noise") if epoch else out
    where = {"data": data, "root": root, "resize": resize}
    train = command(
        f"train classifier --network {factory} --initial {out} --sigma {best}",
        **where,
        **own,
        out=ready,
    )
    again = command(f"adopt {factory}", **where, split=split, out=f"{out}-checked")
    certify = command(
        f"certify --model {ready}",
        split=unseen_split(source),
        subset="1::2" if tuned.half else None,
        **own,
        out=f"runs/{ready.name}",
    )
    tune = command(f"tune {ready} --goal cascade", **own)
    conclude(
        [
            f"{len(chosen)} images of {chosen.name} {split}, the classifier as it is",
            plain("\n".join(accuracy_table(metrics))),
            f"{advice}; saved in {out}",
        ],
        *[f"{train}  # add --flip false if left and right tell classes apart"] * bool(epoch),
        *[f"{again}  # once it is mended"] * guesses,
        *[certify, command(f"report runs/{ready.name}"), tune] * (not guesses),
    )
