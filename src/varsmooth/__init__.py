"""varsmooth: randomized smoothing with a noise level of its own for every input.

image → selector (which σ?) → noise → votes → bound → certificate
"""

from varsmooth.attacks import pgd
from varsmooth.certificates import ABSTAIN, Certificate, Certificates, Prediction, Predictions
from varsmooth.certification import certify, predict
from varsmooth.decisions import certify_at
from varsmooth.errors import VarsmoothError
from varsmooth.selectors import FixedSelector, LearnedSelector, MedianSelector, NoiseSelector
from varsmooth.smoothing import SmoothedClassifier

__version__ = "0.1.0"

__all__ = [
    "ABSTAIN",
    "Certificate",
    "Certificates",
    "FixedSelector",
    "LearnedSelector",
    "MedianSelector",
    "NoiseSelector",
    "Prediction",
    "Predictions",
    "SmoothedClassifier",
    "VarsmoothError",
    "certify",
    "certify_at",
    "pgd",
    "predict",
]
