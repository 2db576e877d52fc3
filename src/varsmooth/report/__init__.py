"""Records → tables, figures, pages.

statistics: what a table of certificates says, as pure functions of columns; outcomes: a run as
columns; sweeps: envelopes; figures: every plot, on axes; summaries and tables: every table;
statements: the sentences; sections, page, writing: the report; exchange: CSV, Parquet and the
community's tab-separated files; recomputing: another α from stored evidence.
"""

from varsmooth.report.exchange import export, import_tsv
from varsmooth.report.outcomes import Outcomes, open_runs, shared_images
from varsmooth.report.recomputing import recompute
from varsmooth.report.statistics import (
    PairedDifference,
    Share,
    average_certified_radius,
    certified_accuracy,
    envelope,
    reach,
    regret,
)
from varsmooth.report.sweeps import Envelope
from varsmooth.report.writing import write_report

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
