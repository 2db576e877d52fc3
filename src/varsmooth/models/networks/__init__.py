"""Networks: classifiers f and selector networks h, built by name."""

from varsmooth.models.networks.classifiers import Conv4, ResNet9, ResNet20
from varsmooth.models.networks.denoiser import DenoisedClassifier, Denoiser
from varsmooth.models.networks.registry import build
from varsmooth.models.networks.selector import (
    AttentionSelector,
    ConfidenceSelector,
    ReadsClassifier,
)

__all__ = [
    "AttentionSelector",
    "ConfidenceSelector",
    "Conv4",
    "DenoisedClassifier",
    "Denoiser",
    "ReadsClassifier",
    "ResNet9",
    "ResNet20",
    "build",
]
