"""Training of classifiers and selectors: one loop, resumable, the same with many processes."""

from typing import TYPE_CHECKING, Any

from varsmooth.training.configuration import (
    ClassifierConfig,
    SelectorConfig,
    preset_names,
    read_config,
)

if TYPE_CHECKING:
    from varsmooth.training.classifier import train_classifier
    from varsmooth.training.selector import train_selector

__all__ = [
    "ClassifierConfig",
    "SelectorConfig",
    "preset_names",
    "read_config",
    "train_classifier",
    "train_selector",
]


def __getattr__(name: str) -> Any:
    """The training itself, imported on first use: the command line's help needs no torch."""
    if name == "train_classifier":
        from varsmooth.training.classifier import train_classifier

        return train_classifier
    if name == "train_selector":
        from varsmooth.training.selector import train_selector

        return train_selector
    raise AttributeError(f"module 'varsmooth.training' has no attribute {name!r}")
