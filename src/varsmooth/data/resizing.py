"""Images of any size as squares of one size."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from varsmooth.data.dataset import ImageDataset

Pixels = NDArray[np.uint8]


def resized(images: ImageDataset, side: int) -> ImageDataset:
    """The central square of every image, scaled to side × side pixels."""
    if images.images.shape[1:3] == (side, side):
        return images
    return replace(images, images=np.stack([scaled(image, side) for image in images.images]))


def scaled(pixels: Pixels, side: int) -> Pixels:
    """The central square of one image, (H,W) or (H,W,C), scaled to side × side pixels."""
    height, width = pixels.shape[:2]
    square = min(height, width)
    left, top = (width - square) // 2, (height - square) // 2
    picture = Image.fromarray(pixels[..., 0] if pixels.shape[2:] == (1,) else pixels)
    box = (left, top, left + square, top + square)
    found = np.asarray(picture.resize((side, side), Image.Resampling.LANCZOS, box=box))
    return found.reshape(side, side, *pixels.shape[2:])
