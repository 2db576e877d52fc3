"""From a name or a path to a data set."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from platformdirs import user_data_path

from varsmooth._util.typed import read
from varsmooth.data.cifar10 import cifar10_folder, load_cifar10, load_sample
from varsmooth.data.dataset import ImageDataset
from varsmooth.data.files import preprocess
from varsmooth.data.own import SUFFIXES, load_arrays, load_folder, load_image, splits_in
from varsmooth.data.source import NAMES, Interpolation, Source, Tuned, path_of
from varsmooth.errors import check


def data_root(root: str | Path | None = None) -> Path:
    """The data directory: the given one, else $VARSMOOTH_DATA, else the platform's usual place."""
    chosen = root or os.environ.get("VARSMOOTH_DATA") or user_data_path("varsmooth")
    return Path(chosen).expanduser()


def load_dataset(
    name_or_path: str | Path,
    split: str = "test",
    root: str | Path | None = None,
    resize: int | None = None,
    center_crop: int | None = None,
    interpolation: Interpolation | None = None,
) -> ImageDataset:
    """A data set by name, or the user's own by path.

    Image files are decoded when a batch of them is read, so a folder may be larger than memory.

    Args:
        name_or_path: `cifar10`; `cifar10-sample`, embedded in the package; or a folder of class
            sub-folders, a folder of images, an image, or a `.npz` / `.npy` file.
        split: Of `cifar10` train (45,000), val (5,000 held out) or test (10,000), of the sample
            test (1,000) or val (200). A folder may have sub-folders, or `.npz` files, train, val,
            test; without them `test` is the whole set, `val` a fixed fifth of each class and
            `train` the rest.
        root: The data directory (default: $VARSMOOTH_DATA, else the platform's usual place).
        resize: Crop each image to its central square and scale it to this many pixels per side;
            photographs of different sizes need it.
        center_crop: Side in pixels of the central square to keep; `resize` then scales the shorter
            side. resize=256, center_crop=224 is usual for ImageNet.
        interpolation: lanczos (default), bicubic or bilinear.

    Examples:
        >>> sample = load_dataset("cifar10-sample")
        >>> sample.images.shape, sample.class_names[3], sample[0:10:5].ids.tolist()
        ((1000, 32, 32, 3), 'cat', [0, 5])
    """
    name_or_path = read("name_or_path", str | Path, name_or_path)
    scaling = {"resize": resize, "center_crop": center_crop, "interpolation": interpolation}
    options: dict[str, Any] = {"data": str(name_or_path), "root": root and Path(root), **scaling}
    source = Source(**options).absolute()
    preprocessing = source.preprocessing
    if name_or_path == "cifar10":
        data = load_cifar10(data_root(root), split)
    elif name_or_path == "cifar10-sample":
        data = load_sample(split)
    elif (path := path_of(name_or_path)).is_dir():
        data = load_folder(path, split, preprocessing)
    elif (suffix := path.suffix.lower()) in (".npz", ".npy"):
        data = load_arrays(path, split)
    else:
        known = ", ".join(sorted(SUFFIXES))
        check(
            suffix in SUFFIXES,
            f"{path} is not of a known kind; use a folder of images, .npz, .npy or one of {known}",
        )
        data = load_image(path, split, preprocessing)
    data = replace(data, source=source)
    if resize is None or not isinstance(data.pixels, np.ndarray):
        return data
    return replace(data, pixels=np.stack([preprocess(x, preprocessing) for x in data.pixels]))


def load_source(source: Source, split: str) -> ImageDataset:
    """The images of a source, whose data must be named."""
    return load_dataset(str(source.data), split, source.root, *source.preprocessing)


def tuned_on(source: Source, split: str, images: int) -> Tuned:
    """The images to choose settings on: half of the split where there are no others to certify."""
    half = split == unseen_split(source) == "val"
    return Tuned(str(source.absolute().data), split, images, half)


def left_to_certify(source: Source, tuned: Tuned | None) -> dict[str, str | None]:
    """The split and subset of the images that no settings were chosen on; None: the default."""
    split = unseen_split(source)
    half = tuned is not None and tuned.half
    return {"split": None if split == "test" else split, "subset": "1::2" if half else None}


def tuned_images(tuned: Tuned, images: ImageDataset) -> ImageDataset:
    """Those of a split that settings are chosen on."""
    return (images[::2] if tuned.half else images).few(tuned.images)


def check_source(source: Source) -> None:
    """Check that the images that a source names exist, without reading them."""
    if source.data == "cifar10":
        cifar10_folder(data_root(source.root))
    elif source.data is not None and source.data not in NAMES:
        path_of(source.data)


def has_own(split: str, source: Source) -> bool:
    """Whether a source has images for this split alone: a name has, and a folder that is split."""
    return source.data in NAMES or split in splits_in(Path(str(source.data)).expanduser())


def unseen_split(source: Source) -> str:
    """The split to evaluate a model of this source on: test, or val where test is everything."""
    return "test" if has_own("test", source) else "val"
