"""Training of classifiers and selectors: one loop, resumable, the same with many processes."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from varsmooth.training.configuration import (
    ClassifierConfig,
    SelectorConfig,
    about_preset,
    preset_names,
    read_config,
)

if TYPE_CHECKING:
    from varsmooth.training.tasks import train_classifier, train_selector

__all__ = [
    "ClassifierConfig",
    "SelectorConfig",
    "about_preset",
    "preset_names",
    "read_config",
    "train_classifier",
    "train_selector",
]


def __getattr__(name: str) -> Any:
    """The training itself, imported on first use: the command line's help needs no torch."""
    if name in ("train_classifier", "train_selector"):
        return getattr(import_module(f"{__name__}.tasks"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
