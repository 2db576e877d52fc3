"""CIFAR-10 in its two official layouts, and the checks that it is complete and unaltered.

60,000 photographs of 32×32 pixels in 10 classes (Krizhevsky, "Learning Multiple Layers of Features
from Tiny Images", technical report, University of Toronto, 2009). Both layouts hold five training
batches and a test batch of 10,000 images each. In memory, a batch is always the bytes of the
binary layout: one row of 3073 bytes for each image, the label, then 32×32 red, green, blue.
"""

import hashlib
import json
import pickle
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from varsmooth.data.dataset import ImageDataset
from varsmooth.errors import VarsmoothError, check, wrap_errors

CITATION = (
    "Alex Krizhevsky, Learning Multiple Layers of Features from Tiny Images, "
    "technical report, University of Toronto, 2009"
)
CLASS_NAMES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
SPLITS, SAMPLE_SPLITS = ("train", "val", "test"), ("test", "val")
BINARY, PYTHON = "cifar-10-batches-bin", "cifar-10-batches-py"
Records = NDArray[np.uint8]  # (n, 3073): label, then 3×32×32 pixels

IMAGES_PER_FILE = 10_000
"""Images in each of the six batches."""
SHA256 = {
    "data_batch_1": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}
"""Of each file of the official binary layout."""
BATCHES = tuple(SHA256)


def find_cifar10(root: Path) -> Path | None:
    """The folder in the data directory that holds CIFAR-10, the binary layout first."""
    return next((root / name for name in (BINARY, PYTHON) if (root / name).is_dir()), None)


def cifar10_folder(root: Path) -> Path:
    """The same folder, which must be there."""
    if (folder := find_cifar10(root)) is not None:
        return folder
    raise VarsmoothError(f"CIFAR-10 is not in {root}; get it with: varsmooth data fetch cifar10")


def load_cifar10(root: Path, split: str) -> ImageDataset:
    """`train`: the first 45,000 training images; `val`: the last 5,000 of them; `test`: all.

    An id is the image's place in the training set (`train`, `val`) or the test set (`test`).
    """
    check(split in SPLITS, f"CIFAR-10 has no split {split!r}; choose train, val or test")
    folder = cifar10_folder(root)
    first, held_out = 0, IMAGES_PER_FILE // 2
    if split == "test":
        records = read_batch(folder, "test_batch")
    elif split == "val":
        records = read_batch(folder, "data_batch_5")[-held_out:]
        first = 5 * IMAGES_PER_FILE - held_out
    else:
        records = np.concatenate([read_batch(folder, n) for n in BATCHES[:5]])[:-held_out]
    return ImageDataset(
        name="cifar10",
        split=split,
        pixels=np.ascontiguousarray(records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)),
        labels=records[:, 0].astype(np.int64),
        class_names=CLASS_NAMES,
        ids=np.arange(first, first + len(records), dtype=np.int64),
        shuffled=True,
    )


def load_sample(split: str) -> ImageDataset:
    """The sample in the package: `test`, the first 100 test images of each class; `val`, 20 others.

    The ids are the images' ids in `cifar10`, so a result on the sample is a result on CIFAR-10.
    Each split is one lossless PNG sheet (images side by side, row after row) and a JSON file with
    ids and labels; `tools/make_sample.py` writes both.
    """
    check(
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
        pixels=np.ascontiguousarray(tiles).reshape(-1, 32, 32, 3),
        labels=np.array(about["labels"], np.int64),
        ids=np.array(about["ids"], np.int64),
        class_names=tuple(about["class_names"]),
        shuffled=True,
    )


def read_batch(folder: Path, name: str) -> Records:
    """One batch as rows of the binary layout, from whichever layout the folder has."""
    binary, records = folder.name == BINARY, np.empty((0, 3073), np.uint8)
    path = folder / f"{name}.bin" if binary else folder / name
    missing = f"{path} is missing; delete {folder} and run: varsmooth data fetch cifar10"
    with wrap_errors(FileNotFoundError, missing):
        content: Any = np.fromfile(path, dtype=np.uint8) if binary else load_plain_pickle(path)
    with suppress(KeyError, TypeError, ValueError, OverflowError):  # not a batch
        if binary:
            records = content.reshape(-1, 3073)
        else:
            records = np.column_stack([np.array(content["labels"], np.uint8), content["data"]])
    check(
        records.dtype == np.uint8
        and records.shape == (IMAGES_PER_FILE, 3073)
        and int(records[:, 0].max()) < 10,
        f"{name} in {folder} does not hold {IMAGES_PER_FILE} CIFAR-10 images; "
        "delete that folder and run: varsmooth data fetch cifar10",
    )
    return records


def verify_cifar10(folder: Path) -> None:
    """Raise unless every batch is, byte for byte, that of the official binary files.

    A python layout is compared through its rows in the binary layout, so that one list of
    checksums serves every source.
    """
    digests = {n: hashlib.sha256(read_batch(folder, n).tobytes()).hexdigest() for n in BATCHES}
    altered = [name for name in BATCHES if digests[name] != SHA256[name]]
    check(
        not altered,
        f"the checksum of {', '.join(altered)} in {folder} is not that of the official files",
    )


_NDARRAY = object()  # stands for the class numpy.ndarray, which itself is not handed out


def _reconstruct(subtype: object, shape: tuple[int, ...], kind: object) -> NDArray[Any]:
    """An empty array, which the pickle then fills with its own bytes."""
    if subtype is not _NDARRAY or shape != (0,):
        raise pickle.UnpicklingError("an array of an unknown kind")
    return np.empty(0, dtype=np.uint8)


def _dtype(code: str, align: object = False, copy: object = True) -> "np.dtype[Any]":
    """Number types only: u1, i8, f4, ..."""
    dtype = np.dtype(code, copy=True)
    if dtype.kind not in "biuf":
        raise pickle.UnpicklingError(f"an array of {dtype}")
    return dtype


_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,  # numpy 1, the official files
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,  # numpy 2
    ("numpy", "ndarray"): _NDARRAY,
    ("numpy", "dtype"): _dtype,
}


class _ArrayUnpickler(pickle.Unpickler):
    """A reader of pickles that can build nothing but arrays, lists, strings, numbers and dicts.

    A pickle may call anything it can name. Here it can name three things, which numpy writes into
    every pickled array, and each of them is replaced by a function of ours that does only what
    reading an array needs.
    """

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return _ALLOWED[module, name]


def load_plain_pickle(path: Path) -> Any:
    """The content of a pickle file, refused if it holds more than arrays and plain values."""
    try:
        with path.open("rb") as file:
            return _ArrayUnpickler(file, encoding="latin1").load()
    except FileNotFoundError:
        raise
    except Exception as error:  # a damaged pickle may raise anything
        raise VarsmoothError(
            f"{path} is not a pickle of plain arrays, lists, strings, numbers and dicts "
            f"({error}); get a clean copy with: varsmooth data fetch cifar10"
        ) from error
