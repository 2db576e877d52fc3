"""Runs as the columns that experiments compare."""

from collections.abc import Sequence

import numpy as np

from varsmooth.bounds import Floats
from varsmooth.report.outcomes import Outcomes
from varsmooth.report.statistics import PairedDifference, certified_counts
from varsmooth.runs.records import Run


def certified(run: Run, name: str) -> Outcomes:
    """A certify run under another name: runs are shared, and each figure has its own words."""
    return Outcomes.of({**run.header, "name": name}, run.rows())


def majority(run: Run, name: str) -> Outcomes:
    """What the plain majority of a certify run's votes at its level answers, never abstaining."""
    rows = []
    for row in run.rows():
        (level,) = row["evidence"]["votes"]
        rows.append(row | {"prediction": int(np.argmax(level["counts"])), "evidence": None})
    header = {**run.header, "name": name, "verb": "predict"}
    return Outcomes.of({**header, "config": {**header["config"], "alpha": None}}, rows)


def best_at(runs: Sequence[Outcomes], radius: float) -> Outcomes:
    """The run with the highest certified accuracy at a radius; the first of equals."""
    return max(runs, key=lambda run: int(certified_counts(run.reach, radius)))


def gap_at(first: Sequence[Outcomes], second: Sequence[Outcomes], r: float) -> PairedDifference:
    """Certified accuracy at r of the best of some runs less that of the best of others."""
    one, other = best_at(first, r), best_at(second, r)
    assert np.array_equal(one.ids, other.ids)
    return PairedDifference.of(one.reach >= r, other.reach >= r)


def shares_at(runs: Sequence[Outcomes], radii: Sequence[float]) -> Floats:
    """The best certified accuracy at each radius, (m,)."""
    return np.array([certified_counts(best_at(runs, r).reach, r) / len(runs[0]) for r in radii])
