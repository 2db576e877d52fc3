"""Write the sample of CIFAR-10 that the package carries.

    varsmooth data fetch cifar10
    python tools/make_sample.py

`test`: the first 100 test images of each class; `val`: the first 20 of each class among the 5,000
held-out training images. Both keep the order and the ids of the full data set.
"""

import json
from pathlib import Path

import numpy as np
from PIL import Image

import varsmooth.data
from varsmooth.data import load_dataset
from varsmooth.data.cifar10 import CITATION

FOLDER = Path(varsmooth.data.__file__).parent / "sample"
COLUMNS = 40


def write(split: str, per_class: int) -> None:
    full = load_dataset("cifar10", split)
    assert full.labels is not None
    first = [np.flatnonzero(full.labels == c)[:per_class] for c in range(10)]
    chosen = full[np.sort(np.concatenate(first))]
    assert chosen.labels is not None
    tiles = chosen.images.reshape(-1, COLUMNS, 32, 32, 3).swapaxes(1, 2)
    sheet = Image.fromarray(np.ascontiguousarray(tiles).reshape(-1, COLUMNS * 32, 3))
    sheet.save(FOLDER / f"{split}.png", optimize=True)
    about = {
        "origin": f"CIFAR-10, https://www.cs.toronto.edu/~kriz/cifar.html, split {split}",
        "citation": CITATION,
        "class_names": chosen.class_names,
        "ids": chosen.ids.tolist(),
        "labels": chosen.labels.tolist(),
    }
    lines = ",\n".join(f" {json.dumps(k)}: {json.dumps(v)}" for k, v in about.items())
    (FOLDER / f"{split}.json").write_text("{\n" + lines + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    write("test", per_class=100)
    write("val", per_class=20)
