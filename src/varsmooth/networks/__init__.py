"""Networks: classifiers f and selector networks h, built by name."""

from varsmooth.networks.conv4 import Conv4
from varsmooth.networks.registry import build, network_names
from varsmooth.networks.resnet import ResNet20
from varsmooth.networks.selector import AttentionSelector, ConfidenceSelector, ReadsClassifier

__all__ = [
    "AttentionSelector",
    "ConfidenceSelector",
    "Conv4",
    "ReadsClassifier",
    "ResNet20",
    "build",
    "network_names",
]
