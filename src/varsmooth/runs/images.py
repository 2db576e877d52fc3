"""From options to images whose labels mean what the model's outputs mean."""

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from PIL import Image

from varsmooth.data import ImageDataset, load_dataset
from varsmooth.errors import VarsmoothError, require
from varsmooth.runs.building import Model
from varsmooth.runs.options import DataOptions
from varsmooth.smoothing import evaluation_mode

SIZES = {"cifar10": 32}
"""Pixels a side of the images that a known data set's models were trained on."""


def load_images(options: DataOptions, model: Model) -> ImageDataset:
    """The chosen images, with labels in the model's numbering."""
    images = load_dataset(options.data, options.split, options.root)
    if options.subset is not None:
        images = images[slice_of(options.subset)]
    if options.resize is not None:
        images = resized(images, options.resize)
    wanted = SIZES.get(model.dataset)
    height, width = images.images.shape[1:3]
    require(
        wanted is None or (height, width) == (wanted, wanted),
        f"the model was trained on images of {wanted}×{wanted} pixels, but {images.name} has "
        f"{width}×{height}; add --resize {wanted}",
    )
    images = renumbered(images, model.class_names)
    check_fit(model, images)
    return images


def check_fit(model: Model, images: ImageDataset) -> None:
    """Show the model one image, so that a mismatch is a sentence and not a traceback."""
    g = model.g
    device = next((p.device for p in g.parameters()), None)
    x = images.batch(slice(0, 1)).images.to(device)
    try:
        with torch.no_grad(), evaluation_mode(g):
            outputs = g.logits(x, g.selector.respond(x)).shape[1]
    except (RuntimeError, TypeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise VarsmoothError(
            f"the model cannot read the images of {images.name}, which have "
            f"{x.shape[1]} channels of {x.shape[3]}×{x.shape[2]} pixels: {reason}"
        ) from error
    highest = -1 if images.labels is None else int(images.labels.max())
    require(
        highest < outputs,
        f"{images.name} has labels up to {highest}, but the model knows {outputs} classes",
    )


def slice_of(text: str) -> slice:
    """`0:10000:20` as Python means it.

    >>> slice_of("0:10000:20"), slice_of("-100:")
    (slice(0, 10000, 20), slice(-100, None, None))
    """
    try:
        parts = [int(part) if part.strip() else None for part in text.split(":")]
    except ValueError:
        parts = []
    if not 2 <= len(parts) <= 3 or parts[2:] == [0]:
        raise VarsmoothError(f"a subset is START:STOP or START:STOP:STEP, not {text!r}")
    return slice(*parts)


def renumbered(images: ImageDataset, class_names: tuple[str, ...]) -> ImageDataset:
    """Labels by the model's class names, where both sides have names; numbers otherwise."""
    names = images.class_names
    unnamed = names == tuple(str(i) for i in range(len(names)))
    if images.labels is None or unnamed or not class_names or names == class_names:
        return images
    unknown = [name for name in names if name not in class_names]
    require(
        not unknown,
        f"{images.name} has the classes {', '.join(unknown)}, which the model does not know; "
        f"name its folders after the model's classes: {', '.join(class_names)}",
    )
    numbers = np.array([class_names.index(name) for name in names])
    return replace(images, labels=numbers[images.labels], class_names=class_names)


def resized(images: ImageDataset, side: int) -> ImageDataset:
    """The central square of every image, scaled to side × side pixels."""
    require(side >= 1, f"--resize needs at least 1 pixel, not {side}")
    return replace(images, images=np.stack([_scaled(image, side) for image in images.images]))


def _scaled(pixels: np.ndarray[Any, np.dtype[np.uint8]], side: int) -> Any:
    height, width, channels = pixels.shape
    square = min(height, width)
    left, top = (width - square) // 2, (height - square) // 2
    picture = Image.fromarray(pixels[..., 0] if channels == 1 else pixels)
    box = (left, top, left + square, top + square)
    scaled = np.asarray(picture.resize((side, side), Image.Resampling.LANCZOS, box=box))
    return scaled.reshape(side, side, channels)


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
