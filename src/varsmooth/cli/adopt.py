"""`varsmooth adopt`: from a classifier of your own to a model that can be certified."""

import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from varsmooth._util.files import check_unused
from varsmooth.cli.feedback import announce, check_here, command, conclude, held_out, say
from varsmooth.data.source import Source
from varsmooth.defaults import ALPHA, ALPHA_SELECT
from varsmooth.errors import VarsmoothError, check
from varsmooth.models.cards import accuracy_table, plain
from varsmooth.models.descriptions import Description, Part
from varsmooth.types import Count, Device, NonNegative, Positive

if TYPE_CHECKING:
    from torch import nn

    from varsmooth.data import ImageDataset


LABELLED = "adopt measures on labelled images: a folder with a sub-folder per class, or an .npz"


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
    """Check your own classifier on real images, show what smoothing achieves, and save it.

    The factory is a function or class package.module:name without arguments that returns an
    nn.Module; the working directory is searched. Images are (B,C,H,W) in [0,1], normalisation
    belongs inside. Nothing is trained: it prints the accuracy without noise and, at a few noise
    levels, the accuracy of the vote, the certified accuracy and the average radius.

    examples:
      varsmooth adopt my_package.nets:make --data photos/ --out my_model

    Args:
        factory: import path of the factory
        data: a name from `varsmooth data list`, or the path of your own images, labelled
        out: folder for the model; to load it, give the import path to --trust
        split: images that the classifier was not trained on
        levels: noise levels to try (default: 0.06,0.12,0.25,0.5)
        images: how many images are used, spread over the split
        n: votes per image and level
    """
    levels = sorted(levels or (0.06, 0.12, 0.25, 0.5))
    from varsmooth.bounds import fewest_votes_to_certify

    fewest = fewest_votes_to_certify(ALPHA - ALPHA_SELECT)
    check(n >= fewest, f"--n {n} votes certify nothing; at least {fewest} are needed")
    check(":" in factory, f"{factory} should be an import path package.module:name")
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
    from varsmooth._util.processes import choose_device
    from varsmooth.data import load_source
    from varsmooth.data.catalog import has_own, left_to_certify, tuned_images, tuned_on
    from varsmooth.data.fitting import fitted, outputs_on
    from varsmooth.data.folders import SUFFIXES
    from varsmooth.models.checkpoints import save
    from varsmooth.selectors import FixedSelector
    from varsmooth.smoothing import SmoothedClassifier

    network = _made(factory).to(choose_device(device)).eval()
    check(
        bool(network.state_dict()),
        f"{factory} makes a network without weights, so there is no model to save; certify it as "
        f"it is: varsmooth certify --model {factory} --sigma 0.25 --data {data} --out runs/own",
    )
    g = SmoothedClassifier(network, FixedSelector(levels[0]))
    check(Path(data).suffix.lower() not in SUFFIXES, f"{data} is one image; {LABELLED}")
    unseen, tuned = load_source(source, split), tuned_on(source, split, images)
    check(unseen.labels is not None, f"{data} has no labels; {LABELLED}")
    names = tuple(getattr(network, "class_names", ())) or unseen.class_names
    shape = getattr(network, "image_shape", None) or unseen.shape
    chosen = fitted(tuned_images(tuned, unseen), g, names, shape)
    trial = Trial.of(network, chosen, levels, n, seed)
    epoch = trial.epoch(source) if trial.guesses or trial.suffers else None
    advice, outputs = trial.advice(epoch), outputs_on(chosen, g)
    if outputs != len(names):
        advice += f"; note that it has {outputs} outputs for {len(names)} classes"
    described = Description(
        **source.entries(),
        class_names=names,
        sigma_a=float(trial.best),
        image_shape=chosen.shape,
        classifier=Part(factory, metrics={split: trial.metrics}),
        tuned=tuned,
    )
    save(out, described, classifier=network.cpu())
    said = [
        f"{len(chosen)} images of {chosen.name} {split}, the classifier as it is",
        plain("\n".join(accuracy_table(trial.metrics))),
        f"{advice}; saved in {out}",
    ]
    if not has_own(split, source):
        said.append(
            f"if the classifier was trained on all of {data}, it has seen these images: its "
            f"accuracy and radii are then too large; train it on load_dataset({data!r}, 'train'"
            + (")" if resize is None else f", resize={resize})")
        )
    ready = Path(f"{out}-noise") if epoch else out
    where = {"data": data, "root": root, "resize": resize}
    sigma = "0.25" if trial.guesses else trial.best  # guesses choose no level
    train = command(
        f"train classifier --network {factory} --initial {out} --sigma {sigma}",
        **where,
        trust=factory,
        out=ready,
    )
    first = [f"{train}  # add --flip false if left and right tell classes apart"] * bool(epoch)
    if trial.guesses:
        again = command(f"adopt {factory}", **where, split=split, out=f"{out}-checked")
        conclude(said, *first, f"{again}  # instead, once it is mended")
    else:
        conclude(said, *first, *_certify(ready, left_to_certify(source, tuned), factory))


def _made(factory: str) -> "nn.Module":
    """What the factory returns, with a note if its images will not be normalised."""
    from varsmooth.models.networks import build

    network = build(factory)
    if any(kind.__module__.startswith("transformers.") for kind in type(network).__mro__):
        note = "a bare transformers model is not given the normalised images that it expects"
        say(f"note: {note}; let {factory} return from_transformers(model, processor)", sys.stderr)
    return network


def _certify(model: Path, left: dict[str, str | None], factory: str) -> list[str]:
    """The commands from a model that can be certified to its report and to a cascade."""
    run = f"runs/{model.name}-certified"
    certify = command(f"certify --model {model}", **left, trust=factory, out=run)
    tune = command(f"tune {model} --goal cascade", trust=factory)
    return [certify, command(f"report {run}"), tune]


@dataclass(frozen=True)
class Trial:
    """A classifier measured under noise. seconds: for one image, one vote."""

    metrics: dict[str, Any]
    images: "ImageDataset"
    seconds: float

    @classmethod
    def of(
        cls, network: "nn.Module", images: "ImageDataset", levels: list[float], n: int, seed: int
    ) -> "Trial":
        """n votes for each image at each level."""
        import time

        from varsmooth.evaluation.measure import measure_classifier

        began = time.perf_counter()
        metrics, _ = measure_classifier(network, images, levels, n, seed)
        votes = len(images) * n * len(levels)
        return cls(metrics, images, (time.perf_counter() - began) / votes)

    @property
    def right(self) -> int:
        """Images that f gets right without noise."""
        return round(float(self.metrics["plain_accuracy"]) / 100 * len(self.images))

    @property
    def guesses(self) -> bool:
        """Whether f may be no better than the commonest class."""
        return self._may_guess(self.right)

    @cached_property
    def best(self) -> str:
        """The level of the largest average radius at which the vote does not guess."""
        votes, certified = self.metrics["smoothed_accuracy"], self.metrics["certified"]
        able = [s for s in votes if not self._may_guess(round(votes[s] / 100 * len(self.images)))]
        lowest = next(iter(votes))
        return str(max(able or [lowest], key=lambda s: float(certified[s]["average_radius"])))

    @property
    def loss(self) -> float:
        """Points of accuracy that noise at the best level costs."""
        plain, votes = self.metrics["plain_accuracy"], self.metrics["smoothed_accuracy"]
        return float(plain - votes[self.best])

    @property
    def suffers(self) -> bool:
        """Whether that is more than 5 points."""
        return self.loss > 5

    def _may_guess(self, correct: int) -> bool:
        import numpy as np

        from varsmooth.bounds import clopper_pearson_lower

        chance = np.bincount(self.images.known_labels).max() / len(self.images)
        return bool(clopper_pearson_lower(correct, len(self.images), 0.05) <= chance)

    def epoch(self, source: Source) -> str | None:
        """How long an epoch of training takes, in words; None without images to train on."""
        from varsmooth.data import load_source

        with suppress(VarsmoothError):
            minutes = 3 * self.seconds * len(load_source(source, "train")) / 60
            return f"about {max(minutes, 0.1):.1f} min per epoch"
        return None

    def advice(self, epoch: str | None) -> str:
        """What the measurements mean, in a sentence."""
        if self.guesses:
            return (
                f"the classifier is not clearly better than chance: right on {self.right} of "
                f"{len(self.images)} images; check its weights, its normalisation and the order of "
                "its classes, or train it"
            )
        if self.suffers:
            how = epoch or f"{self.images.name} has no training images"
            cost = f"noise of σ = {self.best} costs {self.loss:.0f} points of accuracy"
            return f"{cost}: fine-tune under noise ({how})"
        return f"the classifier stands noise of σ = {self.best} well as it is"
