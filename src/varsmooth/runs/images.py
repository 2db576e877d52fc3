"""From options to images whose labels mean what the model's outputs mean."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from varsmooth.data import ImageDataset, load_source
from varsmooth.data.fitting import fitted, renumbered
from varsmooth.data.splitting import has_splits
from varsmooth.errors import require
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


def seen_in_training(images: ImageDataset, data: DataOptions, model: BuiltModel) -> int:
    """How many of the images the model's classifier was trained on."""
    part = model.about.classifier if model.about is not None else None
    split = part.training.get("train_split") if part is not None else None
    if model.about is None or split is None:
        return 0
    here, there = data.absolute().data, model.about.source.absolute().data
    if here != there or here in NAMES or has_splits(Path(str(here))):
        return len(images) if here == there and data.split == split else 0
    return int(np.isin(images.ids, load_source(data, split).ids).sum())


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
