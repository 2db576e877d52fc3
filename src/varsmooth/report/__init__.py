"""Records → tables, figures, pages.

statistics: what a table of certificates says, as pure functions of columns; outcomes: runs as
columns; figures: every plot; summaries and tables: every table; statements: the sentences;
gallery: the images; document, pages and templates: the page; exchange: a run for other programs
and at another α; tsv: published results as runs.
"""

from varsmooth.report.document import write_report
from varsmooth.report.exchange import export, recompute
from varsmooth.report.outcomes import Envelope, Outcomes, open_runs, shared_images
from varsmooth.report.statistics import (
    PairedDifference,
    Share,
    average_certified_radius,
    certified_accuracy,
    envelope,
    reach,
    regret,
)
from varsmooth.report.tsv import import_tsv

__all__ = [
    "Envelope",
    "Outcomes",
    "PairedDifference",
    "Share",
    "average_certified_radius",
    "certified_accuracy",
    "envelope",
    "export",
    "import_tsv",
    "open_runs",
    "reach",
    "recompute",
    "regret",
    "shared_images",
    "write_report",
]
