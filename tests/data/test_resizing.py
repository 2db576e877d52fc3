"""Photographs of different sizes become one data set when they are scaled as they are read."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from varsmooth.data import load_dataset
from varsmooth.errors import VarsmoothError


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A left half of 0 and a right half of 200, in three sizes; one is grey."""
    for place, (height, width) in enumerate([(20, 30), (64, 40), (17, 17)]):
        pixels = np.zeros((height, width, 3), np.uint8)
        pixels[:, width // 2 :] = 200
        folder = tmp_path / ("cat", "dog")[place % 2]
        folder.mkdir(exist_ok=True)
        Image.fromarray(pixels[..., 0] if place == 1 else pixels).save(folder / f"{place}.png")
    return tmp_path


def test_resize_comes_before_the_sizes_are_compared(photos: Path) -> None:
    with pytest.raises(VarsmoothError, match="resize=32"):
        load_dataset(photos)
    data = load_dataset(photos, resize=8)
    assert data.images.shape == (3, 8, 8, 3)
    assert (data.images[:, :, :2] < 20).all()
    assert (data.images[:, :, 6:] > 180).all()
    assert load_dataset(photos, "train", resize=8).files == ("cat/2.png",)


def test_arrays_and_single_images_are_resized_too(photos: Path, tmp_path: Path) -> None:
    one = load_dataset(photos / "dog" / "1.png", resize=8)
    assert one.images.shape == (1, 8, 8, 1)
    np.savez(tmp_path / "a.npz", images=np.full((2, 5, 9, 3), 7, np.uint8))
    assert (load_dataset(tmp_path / "a.npz", resize=4).images == 7).all()
    assert load_dataset("cifar10-sample", resize=16).images.shape == (1000, 16, 16, 3)
    with pytest.raises(VarsmoothError, match="resize must be a whole number from 1"):
        load_dataset(photos, resize=0)
