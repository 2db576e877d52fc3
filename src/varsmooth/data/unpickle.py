"""A reader of pickles that can build nothing but arrays, lists, strings, numbers and dicts.

The official python layout of CIFAR-10 is a set of pickles, and a pickle may call anything it can
name. Here it can name three things, which numpy writes into every pickled array, and each of them
is replaced by a function of ours that does only what reading an array needs.
"""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from varsmooth.errors import VarsmoothError

_NDARRAY = object()  # stands for the class numpy.ndarray, which itself is not handed out


def _reconstruct(subtype: object, shape: tuple[int, ...], kind: object) -> NDArray[Any]:
    """An empty array, which the pickle then fills with its own bytes."""
    if subtype is not _NDARRAY or shape != (0,):
        raise pickle.UnpicklingError("an array that is not a plain one")
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
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}") from None


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
