"""Per-input noise levels for randomized smoothing, with certificates that hold.

image → selector (which σ?) → noise → votes → bound → certificate

Public besides the names here: `attacks`, `bounds`, `cascade`, `certificates`, `data`, `errors`,
`evaluation`, `losses`, `models`, `noise`, `rounding`, `selectors` and `training`. The rest may
change.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from varsmooth.api import certify as certify
    from varsmooth.api import certify_as_paper as certify_as_paper
    from varsmooth.api import certify_at as certify_at
    from varsmooth.api import certify_until as certify_until
    from varsmooth.api import predict as predict
    from varsmooth.attacks import pgd as pgd
    from varsmooth.cascade import CascadeSelector as CascadeSelector
    from varsmooth.certificates import Certificate as Certificate
    from varsmooth.certificates import Certificates as Certificates
    from varsmooth.certificates import Decision as Decision
    from varsmooth.certificates import Decisions as Decisions
    from varsmooth.certificates import Prediction as Prediction
    from varsmooth.certificates import Predictions as Predictions
    from varsmooth.data import load_dataset as load_dataset
    from varsmooth.defaults import ABSTAIN as ABSTAIN
    from varsmooth.errors import VarsmoothError as VarsmoothError
    from varsmooth.evaluation.labelled import LabelledCertificates as LabelledCertificates
    from varsmooth.evaluation.labelled import load_run as load_run
    from varsmooth.evaluation.labelled import save_run as save_run
    from varsmooth.methods.base import Options as Options
    from varsmooth.models.loading import load as load
    from varsmooth.selectors import FixedSelector as FixedSelector
    from varsmooth.selectors import LearnedSelector as LearnedSelector
    from varsmooth.selectors import MedianSelector as MedianSelector
    from varsmooth.selectors import NoiseSelector as NoiseSelector
    from varsmooth.smoothing import SmoothedClassifier as SmoothedClassifier

__version__ = "0.1.0"

# Imported on first use, so that the command line's help does not wait for torch.
_ROOMS = {
    "ABSTAIN Certificate Certificates Decision Decisions Prediction Predictions": "certificates",
    "CascadeSelector": "cascade",
    "FixedSelector LearnedSelector MedianSelector NoiseSelector": "selectors",
    "Options": "methods.base",
    "SmoothedClassifier": "smoothing",
    "VarsmoothError": "errors",
    "certify certify_as_paper certify_at certify_until predict": "api",
    "LabelledCertificates load_run save_run": "evaluation.labelled",
    "load": "models.loading",
    "load_dataset": "data",
    "pgd": "attacks",
}
_HOMES = {name: room for names, room in _ROOMS.items() for name in names.split()}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'varsmooth' has no attribute {name!r}")
    return getattr(import_module(f"varsmooth.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted((globals().keys() | _HOMES) - {"Any", "TYPE_CHECKING", "import_module"})
