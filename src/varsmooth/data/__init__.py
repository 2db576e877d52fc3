"""Data sets: CIFAR-10, an embedded sample of it, and the user's own images."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from varsmooth.data.catalog import data_root, load_dataset, load_source
    from varsmooth.data.dataset import Batch, ImageDataset
    from varsmooth.data.fetch import fetch_cifar10

__all__ = ["Batch", "ImageDataset", "data_root", "fetch_cifar10", "load_dataset", "load_source"]

_MODULES = {"Batch": "dataset", "ImageDataset": "dataset", "fetch_cifar10": "fetch"}


def __getattr__(name: str) -> Any:
    """Imported on first use: the command line's help reads `data.source` without numpy."""
    if name in __all__:
        return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'catalog')}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
