"""Networks: classifiers f and selector networks h, built by name."""

from varsmooth.models.networks.classifiers import Conv4 as Conv4
from varsmooth.models.networks.classifiers import ResNet9 as ResNet9
from varsmooth.models.networks.classifiers import ResNet20 as ResNet20
from varsmooth.models.networks.denoiser import DenoisedClassifier as DenoisedClassifier
from varsmooth.models.networks.denoiser import Denoiser as Denoiser
from varsmooth.models.networks.registry import build as build
from varsmooth.models.networks.selector import AttentionSelector as AttentionSelector
from varsmooth.models.networks.selector import ConfidenceSelector as ConfidenceSelector
from varsmooth.models.networks.selector import ReadsClassifier as ReadsClassifier
