"""Data sets: CIFAR-10, an embedded sample of it, and the user's own images."""

from varsmooth.data.catalog import data_root, load_dataset, load_source
from varsmooth.data.dataset import Batch, ImageDataset
from varsmooth.data.fetch import fetch_cifar10

__all__ = ["Batch", "ImageDataset", "data_root", "fetch_cifar10", "load_dataset", "load_source"]
