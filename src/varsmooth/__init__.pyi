# The public names, each with its module; `__init__.py` reads this file, and so do type checkers.
from varsmooth.api import certify as certify
from varsmooth.api import certify_as_paper as certify_as_paper
from varsmooth.api import certify_at as certify_at
from varsmooth.api import certify_until as certify_until
from varsmooth.api import predict as predict
from varsmooth.attacks import PGDOptions as PGDOptions
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
from varsmooth.defaults import Options as Options
from varsmooth.errors import VarsmoothError as VarsmoothError
from varsmooth.evaluation.labelled import LabelledCertificates as LabelledCertificates
from varsmooth.evaluation.labelled import load_run as load_run
from varsmooth.evaluation.labelled import save_run as save_run
from varsmooth.models.loading import load as load
from varsmooth.selectors import FixedSelector as FixedSelector
from varsmooth.selectors import LearnedSelector as LearnedSelector
from varsmooth.selectors import MedianSelector as MedianSelector
from varsmooth.selectors import NoiseSelector as NoiseSelector
from varsmooth.smoothing import SmoothedClassifier as SmoothedClassifier

__version__: str
__all__: list[str]
