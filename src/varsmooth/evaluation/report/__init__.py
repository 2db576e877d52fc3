"""Records → tables, figures, pages.

statistics: pure functions of columns; outcomes: runs as columns; figures: every plot; summaries and
tables: every table; summary_text: the text; gallery: the images; document, pages and templates: the
page; exchange: a run for other programs and at another α, and published results as runs.
"""

from varsmooth.evaluation.report.document import write_report as write_report
from varsmooth.evaluation.report.exchange import export as export
from varsmooth.evaluation.report.exchange import import_tsv as import_tsv
from varsmooth.evaluation.report.exchange import recompute as recompute
from varsmooth.evaluation.report.outcomes import Envelope as Envelope
from varsmooth.evaluation.report.outcomes import Outcomes as Outcomes
from varsmooth.evaluation.report.outcomes import open_runs as open_runs
