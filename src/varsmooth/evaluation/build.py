"""From options to a smoothed classifier, and to images whose labels mean what its outputs mean."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch

from varsmooth._util.typed import as_option
from varsmooth.data import ImageDataset, load_source
from varsmooth.data.catalog import tuned_images
from varsmooth.data.files import ImageFiles, pixel_digests
from varsmooth.data.fitting import fitted, renumbered
from varsmooth.data.own import splits_in
from varsmooth.data.source import AS_IS, NAMES, Preprocessing, Source, sample
from varsmooth.errors import VarsmoothError, check, wrap_errors
from varsmooth.evaluation.headers import SEEN
from varsmooth.evaluation.options import DataOptions, ModelOptions, recorded
from varsmooth.models.adapters import in_precision
from varsmooth.models.checkpoints import load_checkpoint
from varsmooth.models.descriptions import Description
from varsmooth.models.loading import make_selector, smooth, smoothed
from varsmooth.models.names import is_code, is_external
from varsmooth.models.networks import build as build_network
from varsmooth.models.options import SelectorKind
from varsmooth.models.selection import options_for, resolve_selector
from varsmooth.rounding import counted
from varsmooth.smoothing import SmoothedClassifier

OWN_FACTS = ("class_names", "image_shape", "preprocessing")
"""What a network of the user's own may say of its images, as `NormalisedClassifier` does."""

FILES = "files-"
"""Begins a digest that covers the index of image files and not their pixels."""


@dataclass(frozen=True)
class BuiltModel:
    """A smoothed classifier and what is known of its training: class names and image shape.

    Attributes:
        fingerprint: That of the classifier, as loading has just checked it.
    """

    g: SmoothedClassifier
    class_names: tuple[str, ...] = ()
    image_shape: tuple[int, int, int] | None = None
    about: Description | None = None
    preprocessing: Preprocessing = AS_IS
    fingerprint: str = ""

    @property
    def own(self) -> Source:
        """The images to take where none are named, scaled as the model wants them."""
        if self.about is None:
            return replace(sample(), **self.preprocessing._asdict())
        return self.about.samples


def build(options: ModelOptions, device: torch.device | str = "cpu") -> BuiltModel:
    """The smoothed classifier that the options describe.

    What they leave open is as the checkpoint recommends, see `varsmooth.load`.
    """
    if options.model is None:
        raise VarsmoothError("choose a model with --model: a released name, a folder, module:name")
    if is_code(options.model):
        model = _own(options, options.model)
    else:
        checkpoint = load_checkpoint(options.model, options.trust or ())
        about, g = checkpoint.description, smoothed(checkpoint, options)
        model = BuiltModel(g, *about.trained_on, about)
        if about.classifier and g.classifier is checkpoint.classifier:  # float32
            model = replace(model, fingerprint=about.classifier.fingerprint)
    model.g.to(device).eval()
    return model


def stored_model(
    header: Mapping[str, Any], model: str | None, trust: list[str] | None
) -> ModelOptions:
    """The model that the header of a stored run names, or `model` if it was moved.

    What the run's options leave to the model is as it was then, although the model may have been
    tuned since. The header is untrusted input: it may name a checkpoint on this machine, but code
    to import and models to fetch only the caller names, by `model` and `trust`.
    """
    named, about = recorded(ModelOptions, header["config"]), header["selector"]
    if not is_code(named.model) and about.get("selector") in get_args(SelectorKind):
        with wrap_errors(
            (KeyError, TypeError, ValueError), "the selector in the header of the run is damaged"
        ):
            then = options_for(about)
        then = {name: value for name, value in then.items() if getattr(named, name) is None}
        if "cascade" in then:  # chosen by λ among stages that may be others now
            then["lam"] = None
        named = replace(named, selector=about["selector"], **then)
    check(
        model is not None or not is_external(named.model),
        f"this run was made with {named.model}, which is never run or fetched unasked; if you "
        f"trust it, add --model {named.model}",
    )
    return replace(named, model=named.model if model is None else model, trust=trust)


def _own(options: ModelOptions, path: str) -> BuiltModel:
    """The user's own: what module:factory returns."""
    model = build_network(path)
    network = model.classifier if isinstance(model, SmoothedClassifier) else model
    known = {name: getattr(network, name) for name in OWN_FACTS if hasattr(network, name)}
    known["class_names"] = tuple(getattr(model, "class_names", known.get("class_names", ())))
    if isinstance(model, SmoothedClassifier):
        used = [
            as_option(name) for name in (*options.of_selector(), *["lattice"] * options.lattice)
        ]
        check(not used, f"{path} comes with its own selector; leave out {', '.join(used)}")
        model.classifier = in_precision(model.classifier, options.precision)
        return BuiltModel(model, **known)
    plan = resolve_selector(None, options)
    return BuiltModel(smooth(model, make_selector(plan.about), options), **known)


def load_images(
    options: DataOptions, model: BuiltModel | None, class_names: tuple[str, ...] = ()
) -> ImageDataset:
    """The chosen images, with labels in the model's numbering, or in that of `class_names`."""
    images = load_source(options, options.split)
    if options.subset is not None:
        chosen = slice(*(int(part) if part else None for part in options.subset.split(":")))
        check(
            len(range(len(images))[chosen]) > 0,
            f"--subset {options.subset} selects none of the {counted(len(images), 'image')} of "
            f"{images.name} {images.split}",
        )
        images = images[chosen]
    if model is None:
        return renumbered(images, class_names)
    return fitted(images, model.g, model.class_names, model.image_shape)


def stored_images(header: Mapping[str, Any]) -> ImageDataset:
    """The images that the header of a stored run names, if they are those it recorded.

    The header is untrusted input. Its digest covers the pixels of arrays; that of image files
    covers their names and sizes, and each row its pixels (`is_image_of`). So a run shows no image
    that its writer did not have.
    """
    config, dataset = header["config"], header["dataset"]
    data = recorded(DataOptions, {**config, "data": config.get("data") or dataset["name"]})
    data = replace(data, split=dataset["split"])
    names = tuple(dataset["class_names"]) if "digest" in dataset else ()
    images = load_images(data, None, names)
    check_same_images(header, images, data)
    return images


def check_same_images(header: Mapping[str, Any], images: ImageDataset, data: DataOptions) -> None:
    """Refuse images that are not those of the run with this header."""
    dataset = header["dataset"]
    known = "digest" not in dataset and data.data in NAMES  # imported results name a data set only
    check(
        known or dataset == described(images, data),
        f"{data.data} holds other images or labels than those of the run",
    )


def is_image_of(row: Mapping[str, Any], images: ImageDataset, place: int) -> bool:
    """Whether the image at this position is the one that a row of the run recorded."""
    if isinstance(images.pixels, np.ndarray):
        return True
    return bool(pixel_digests(images.pixels[place][None]) == [row.get("pixels")])


def seen_before(
    images: ImageDataset,
    data: DataOptions,
    about: Description | None,
    options: ModelOptions,
    known_as: str | None = None,
) -> dict[str, int]:
    """How many of the images the classifier was trained on, and its options were chosen on.

    Chosen values that the options replace do not count. If the images were moved, `known_as` is
    the path that the model knows them by.
    """
    here = known_as or data.absolute().data
    counts = dict.fromkeys(SEEN, 0)
    training = about.classifier.training if about and about.classifier else {}
    if about and "train_split" in training:
        split = str(training["train_split"])
        used = _seen(data, split) if here == str(about.source.absolute().data) else None
        counts["seen_in_training"] = _shared(images, used)
    if about and about.tuned and resolve_selector(about, options).tuned:
        used = _seen(data, about.tuned.split) if here == about.tuned.data else None
        counts["seen_in_tuning"] = _shared(images, used and tuned_images(about.tuned, used))
    return counts


def _seen(data: DataOptions, split: str) -> ImageDataset | None:
    """The images of a split that the model knows; None if those of `data` cannot be among them."""
    here = data.absolute().data
    apart = here in NAMES or bool(splits_in(Path(str(here))))  # each split has its own ids
    return None if apart and split != data.split else load_source(data, split)


def _shared(images: ImageDataset, seen: ImageDataset | None) -> int:
    return 0 if seen is None else int(np.isin(images.ids, seen.ids).sum())


def described(images: ImageDataset, options: DataOptions) -> dict[str, Any]:
    """What a run records of its images; the digest tells other ids and labels, and other images.

    Images in memory are compared by their pixels. Image files are compared by their names and
    sizes, because they are not decoded at the start of a run: their pixels stand in its rows.
    """
    digest, kind, pixels = hashlib.sha256(), "", images.pixels
    if isinstance(pixels, ImageFiles):
        kind = FILES
        index = json.dumps([images.files, pixels.sizes.tolist()]).encode()
        digest.update(hashlib.sha256(index).digest())
    else:
        for start in range(0, len(pixels), 256):
            digest.update(np.ascontiguousarray(pixels[start : start + 256]).tobytes())
    for array in (images.labels, images.ids):
        digest.update(b"-" if array is None else np.ascontiguousarray(array).tobytes())
    return {
        "name": images.name,
        "split": images.split,
        "subset": options.subset,
        "size": len(images),
        "class_names": list(images.class_names),
        "digest": kind + digest.hexdigest(),
    }
