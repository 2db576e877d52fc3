"""varsmooth: randomized smoothing with a noise level of its own for every input.

image → selector (which σ?) → noise → votes → bound → certificate
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from varsmooth.attacks import pgd as pgd
    from varsmooth.certificates import ABSTAIN as ABSTAIN
    from varsmooth.certificates import Certificate as Certificate
    from varsmooth.certificates import Prediction as Prediction
    from varsmooth.certification import certify as certify
    from varsmooth.certification import predict as predict
    from varsmooth.data import load_dataset as load_dataset
    from varsmooth.decisions import certify_at as certify_at
    from varsmooth.errors import VarsmoothError as VarsmoothError
    from varsmooth.models.loading import load as load
    from varsmooth.selectors import FixedSelector as FixedSelector
    from varsmooth.selectors import LearnedSelector as LearnedSelector
    from varsmooth.selectors import MedianSelector as MedianSelector
    from varsmooth.selectors import NoiseSelector as NoiseSelector
    from varsmooth.smoothing import SmoothedClassifier as SmoothedClassifier

__version__ = "0.1.0"

# Imported on first use, so that the command line's help does not wait for torch.
_ROOMS = {
    "ABSTAIN": "certificates",
    "Certificate": "certificates",
    "FixedSelector": "selectors",
    "LearnedSelector": "selectors",
    "MedianSelector": "selectors",
    "NoiseSelector": "selectors",
    "Prediction": "certificates",
    "SmoothedClassifier": "smoothing",
    "VarsmoothError": "errors",
    "certify": "certification",
    "certify_at": "decisions",
    "load": "models.loading",
    "load_dataset": "data",
    "pgd": "attacks",
    "predict": "certification",
}

__all__ = list(_ROOMS)


def __getattr__(name: str) -> Any:
    if name not in _ROOMS:
        raise AttributeError(f"module 'varsmooth' has no attribute {name!r}")
    return getattr(import_module(f"varsmooth.{_ROOMS[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_ROOMS])
