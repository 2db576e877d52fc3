"""Whether images suit a model: their size, and labels that mean what its outputs mean."""

from dataclasses import replace

import numpy as np
import torch

from varsmooth.data.dataset import ImageDataset
from varsmooth.errors import check
from varsmooth.smoothing import SmoothedClassifier, evaluation_mode


def fitted(
    images: ImageDataset,
    g: SmoothedClassifier,
    class_names: tuple[str, ...] = (),
    image_shape: tuple[int, int, int] | None = None,
) -> ImageDataset:
    """The images with labels in the model's numbering; raises an error if they do not fit.

    Args:
        images: What the model is to see.
        g: The model; it is shown one image.
        class_names: Its classes, in the order of its outputs.
        image_shape: (channels, height, width) it was trained on, if known.
    """
    channels, height, width = images.shape
    if image_shape is not None:
        size = f"{image_shape[2]}×{image_shape[1]}"
        square = image_shape[1] == image_shape[2]
        check(
            channels == image_shape[0],
            f"the model was trained on {_kind(image_shape[0])} images, but those of {images.name} "
            f"are {_kind(channels)}; convert them",
        )
        check(
            (height, width) == image_shape[1:],
            f"the model was trained on images of {size} pixels, but {images.name} has "
            f"{width}×{height}; scale to {size}" + f" with `resize={image_shape[1]}`" * square,
        )
    images = renumbered(images, class_names)
    outputs = outputs_on(images, g)
    check_labels(images, -1 if images.labels is None else int(images.labels.max()), outputs)
    return images


def check_labels(images: ImageDataset, highest: int, outputs: int) -> None:
    """The model has an output for every label, of which the highest in use is given."""
    lowest = 0 if images.labels is None else int(images.labels.min())
    check(
        highest != outputs or lowest == 0,
        f"the labels of {images.name} go from {lowest} to {highest}, where the network has "
        f"{outputs} outputs, 0 to {outputs - 1}; if your labels begin at 1, subtract 1",
    )
    check(
        highest < outputs,
        f"{images.name} has labels from 0 to {highest}, but the model knows {outputs} classes; "
        "name images of its classes with `data`, or another model",
    )


def _kind(channels: int) -> str:
    return {1: "grey", 3: "colour"}.get(channels, f"{channels}-channel")


def outputs_on(images: ImageDataset, g: SmoothedClassifier) -> int:
    """The number of classes of the model, which must be able to read the images."""
    x = images.batch(slice(0, 1)).images.to(g.device)
    with torch.no_grad(), evaluation_mode(g):
        return g.logits(x, torch.full_like(x[:, 0, 0, 0], 0.5)).shape[1]


def renumbered(images: ImageDataset, class_names: tuple[str, ...]) -> ImageDataset:
    """Labels by the model's class names, where both sides have names; numbers otherwise."""
    names = images.class_names
    unnamed = names == tuple(str(i) for i in range(len(names)))
    if images.labels is None or unnamed or not class_names or names == class_names:
        return images
    unknown = [name for name in names if name not in class_names]
    check(
        not unknown,
        f"{images.name} has the classes {', '.join(unknown)}, which the model does not know; "
        f"name its folders after the model's classes: {', '.join(class_names)}",
    )
    numbers = np.array([class_names.index(name) for name in names])
    return replace(images, labels=numbers[images.labels], class_names=class_names)
