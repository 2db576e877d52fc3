"""The sample inside the package: real CIFAR-10 images, so that everything works at once.

Each split is one lossless PNG sheet (images side by side, row after row) and a JSON file with the
ids, the labels and where they come from; `tools/make_sample.py` writes both.
"""

import json
from importlib.resources import files

import numpy as np
from PIL import Image

from varsmooth.data.dataset import ImageDataset
from varsmooth.errors import require

SAMPLE_SPLITS = ("test", "val")


def load_sample(split: str) -> ImageDataset:
    """`test`: the first 100 test images of each class; `val`: 20 held-out ones of each class.

    The ids are the images' ids in `cifar10`, so a result on the sample is a result on CIFAR-10.
    """
    require(
        split in SAMPLE_SPLITS,
        f"the embedded sample has no split {split!r}; choose test or val, "
        "or get all of CIFAR-10 with: varsmooth data fetch cifar10",
    )
    folder = files("varsmooth.data") / "sample"
    about = json.loads((folder / f"{split}.json").read_text(encoding="utf-8"))
    with (folder / f"{split}.png").open("rb") as file, Image.open(file) as sheet:
        pixels = np.asarray(sheet)
    columns = pixels.shape[1] // 32
    tiles = pixels.reshape(-1, 32, columns, 32, 3).swapaxes(1, 2)  # (rows, columns, 32, 32, 3)
    return ImageDataset(
        name="cifar10-sample",
        split=split,
        images=np.ascontiguousarray(tiles).reshape(-1, 32, 32, 3),
        labels=np.array(about["labels"], np.int64),
        ids=np.array(about["ids"], np.int64),
        class_names=tuple(about["class_names"]),
    )
