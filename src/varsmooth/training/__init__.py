"""Training of classifiers and selectors: one loop, resumable, the same with many processes."""

from varsmooth.training.classifier import train_classifier
from varsmooth.training.configuration import (
    ClassifierConfig,
    SelectorConfig,
    overrides_from_arguments,
    preset_names,
    read_config,
)
from varsmooth.training.selector import train_selector

__all__ = [
    "ClassifierConfig",
    "SelectorConfig",
    "overrides_from_arguments",
    "preset_names",
    "read_config",
    "train_classifier",
    "train_selector",
]
