"""From options to images whose labels mean what the model's outputs mean."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from varsmooth.data import ImageDataset, load_source
from varsmooth.data.catalog import tuned_images
from varsmooth.data.fitting import fitted, renumbered
from varsmooth.data.splitting import has_splits
from varsmooth.errors import require
from varsmooth.models.descriptions import Tuned
from varsmooth.models.source import NAMES
from varsmooth.runs.building import BuiltModel
from varsmooth.runs.options import DataOptions


def load_images(
    options: DataOptions, model: BuiltModel | None, class_names: tuple[str, ...] = ()
) -> ImageDataset:
    """The chosen images, with labels in the model's numbering, or in that of `class_names`."""
    images = load_source(options, options.split)
    if options.subset is not None:
        chosen = slice_of(options.subset)
        require(
            len(range(len(images))[chosen]) > 0,
            f"--subset {options.subset} selects none of the {len(images)} images of "
            f"{images.name} {images.split}",
        )
        images = images[chosen]
    if model is None:
        return renumbered(images, class_names)
    return fitted(images, model.g, model.class_names, model.image_shape)


def seen_before(images: ImageDataset, data: DataOptions, model: BuiltModel) -> dict[str, int]:
    """How many of the images the classifier was trained on, and its settings were chosen on."""
    about = model.about
    training = {} if about is None or about.classifier is None else about.classifier.training
    tuned = None if about is None else about.tuned
    trained, chosen = 0, 0
    if about is not None and "train_split" in training:
        there = about.source.absolute().data
        trained = _shared(images, data, there, training["train_split"])
    if tuned is not None:
        chosen = _shared(images, data, tuned.data, tuned.split, tuned)
    return {"seen_in_training": trained, "seen_in_tuning": chosen}


def _shared(
    images: ImageDataset,
    data: DataOptions,
    there: str | None,
    split: str,
    tuned: Tuned | None = None,
) -> int:
    """How many of the images are among those of a split, or among the tuned ones of it."""
    here = data.absolute().data
    apart = here in NAMES or has_splits(Path(str(here)))  # each split has its own ids
    if here != there or (apart and split != data.split):
        return 0
    used = load_source(data, split)
    used = used if tuned is None else tuned_images(tuned, used)
    return int(np.isin(images.ids, used.ids).sum())


def slice_of(text: str) -> slice:
    """`0:10000:20` as Python means it.

    Examples:
        >>> slice_of("0:10000:20"), slice_of("-100:")
        (slice(0, 10000, 20), slice(-100, None, None))
    """
    return slice(*(int(part) if part else None for part in text.split(":")))


def described(images: ImageDataset, options: DataOptions) -> dict[str, Any]:
    """What a run records of its images; the digest tells changed pixels, labels and ids."""
    digest = hashlib.sha256()
    for array in (images.images, images.labels, images.ids):
        digest.update(b"-" if array is None else np.ascontiguousarray(array).tobytes())
    return {
        "name": images.name,
        "split": images.split,
        "subset": options.subset,
        "size": len(images),
        "class_names": list(images.class_names),
        "digest": digest.hexdigest(),
    }
