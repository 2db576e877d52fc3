"""Runs → tables."""

from collections.abc import Sequence
from decimal import ROUND_HALF_EVEN
from typing import Any

import numpy as np

from varsmooth.bounds import Floats
from varsmooth.report.outcomes import Envelope, Outcomes, shared_images
from varsmooth.report.statistics import (
    PairedDifference,
    Share,
    average_certified_radius,
    certified_counts,
    mean_interval,
    regret,
    sigma_groups,
)
from varsmooth.report.tables import Cell, Table
from varsmooth.rounding import percent, rounded

INTERVALS = "95 % intervals over images in brackets"
_NONE: Floats = np.array([])


def round_radii(runs: Sequence[Outcomes], most: int = 8) -> Floats:
    """Radii for a table: multiples of a round step from 0 to the largest one certified right."""
    furthest = max(0.0, *(float(run.reach.max()) for run in runs))
    steps = (digit * 10.0**power for power in range(-4, 6) for digit in (1, 2.5, 5))
    step = next(step for step in steps if furthest / step < most)
    return np.array([step * k for k in range(int(furthest / step) + 1)])


def summary_table(runs: Sequence[Outcomes]) -> Table:
    """One line per run: what it is, how often it is right, what it cost."""
    certify = runs[0].verb == "certify"
    rows = []
    for run in runs:
        rights = [Cell.share(Share.of(run.correct)), Cell.share(Share.of(run.abstained), up=True)]
        if certify:
            radii = np.maximum(run.reach, 0)
            acr = average_certified_radius(run.reach)
            rights.append(Cell.mean_radius(acr, mean_interval(radii)))
            rights.insert(0, Cell.of(run.guarantee or ""))
        cost = [_mean(run.samples, 0), _mean(run.seconds, 3)]
        rows.append([Cell.of(run.name), *rights, _sigma(run.sigmas), Cell.of(len(run)), *cost])
    rights_names = ["accuracy %", "abstains %"]
    if certify:
        rights_names = ["guarantee", "certified right %", "abstains %", "ACR"]
    costs = ["median σ", "images", "votes / image", "s / image"]
    return Table(
        "summary" if certify else "predictions",
        f"Summary of the runs; {INTERVALS}; beside the median σ the range of 90 % of the images."
        + (" ACR: average certified radius, 0 where wrong or abstaining." if certify else ""),
        ["run", *rights_names, *costs],
        rows,
    )


def certified_accuracy_table(
    runs: Sequence[Outcomes], envelopes: Sequence[Envelope], radii: Floats
) -> Table:
    """Certified accuracy of every run and envelope at the chosen radii."""
    rows = []
    for run in runs:
        counts = certified_counts(run.reach, radii)
        shares = [Cell.share(Share(int(k), len(run))) for k in counts]
        rows.append([Cell.of(run.name), Cell.of(run.guarantee or ""), *shares])
    for best in envelopes:
        n = len(best.runs[0])
        counts = np.rint(best.accuracy(radii) * n).astype(np.int64)
        cells = [Cell(percent(int(k), n), int(k) / n) for k in counts]
        rows.append([Cell.of(f"{best.label} (envelope)"), Cell.of(best.guarantee), *cells])
    return Table(
        "certified-accuracy",
        f"Certified accuracy in % at ℓ₂ radius r; an abstention counts as wrong; {INTERVALS}.",
        ["run", "guarantee", *(f"r = {radius:g}" for radius in radii)],
        rows,
    )


def baseline_of(runs: Sequence[Outcomes]) -> Outcomes:
    """What the other runs are compared with.

    The best single σ, by average certified radius, where some runs have one σ for every image
    and others choose it; otherwise the first run.
    """
    single = [run for run in runs if run.fixed_sigma is not None and run.guarantee == "sound"]
    if not single or all(run.fixed_sigma is not None for run in runs):
        return runs[0]
    return max(single, key=lambda run: average_certified_radius(run.reach))


def difference_table(
    runs: Sequence[Outcomes], baseline: Outcomes, radii: Floats = _NONE
) -> Table | None:
    """Each run minus the baseline, on the images both have; None if no run shares any with it.

    Certify runs at each radius, attack runs at each budget of the baseline, predict runs as they
    are.
    """
    verb = baseline.verb
    columns = {
        "certify": ["ACR", *(f"r = {radius:g}" for radius in radii)],
        "attack": ["clean", *(f"ε = {eps:g}" for eps in baseline.budgets())],
        "predict": ["accuracy", "p"],
    }[verb]
    differences = {
        "certify": lambda one, other: _certified_differences(one, other, radii),
        "attack": lambda one, other: _attacked_differences(one, other, baseline.budgets()),
        "predict": _predicted_differences,
    }[verb]
    rows = [
        [Cell.of(run.name), Cell.of(pair[0].images), *differences(*pair)]
        for run in runs
        if run is not baseline and (pair := shared_images(run, baseline)) is not None
    ]
    return table_or_none(
        "differences" if verb == "certify" else f"{verb}-differences",
        f"Difference to {baseline.name} in percentage points, paired by image; {INTERVALS}.",
        ["run", "shared images", *columns],
        rows,
    )


def radius_difference(one: Outcomes, other: Outcomes) -> Cell:
    """The difference of the average certified radius, paired by image."""
    gap = np.maximum(one.reach, 0) - np.maximum(other.reach, 0)
    return Cell.signed(float(gap.mean()), mean_interval(gap), 3)


def _certified_differences(one: Outcomes, other: Outcomes, radii: Floats) -> list[Cell]:
    rights = ((one.reach >= r, other.reach >= r) for r in radii)
    return [
        radius_difference(one, other),
        *(Cell.difference(PairedDifference.of(*pair)) for pair in rights),
    ]


def _attacked_differences(one: Outcomes, other: Outcomes, budgets: Sequence[float]) -> list[Cell]:
    first = one.eps == one.budgets()[0]
    cells = [
        Cell.difference(PairedDifference.of(one.clean_correct[first], other.clean_correct[first]))
    ]
    for eps in budgets:
        rows = one.eps == eps
        difference = PairedDifference.of(one.correct[rows], other.correct[rows])
        cells.append(Cell.difference(difference) if rows.any() else Cell("–"))
    return cells


def _predicted_differences(one: Outcomes, other: Outcomes) -> list[Cell]:
    difference = PairedDifference.of(one.correct, other.correct)
    return [Cell.difference(difference), Cell(f"{difference.p_value:.2g}", difference.p_value)]


def regret_table(
    runs: Sequence[Outcomes], envelopes: Sequence[Envelope], radii: Floats
) -> Table | None:
    """How far each run stays below each envelope, at the worst of the radii."""
    rows = [[Cell.of(run.name), *(_regret(run, best, radii) for best in envelopes)] for run in runs]
    return table_or_none(
        "regret",
        "Regret: percentage points below the envelope where a run is furthest below it, over the "
        "radii of the table, on the same images; negative if it is above everywhere.",
        ["run", *(best.label for best in envelopes)],
        rows if envelopes else [],
    )


def robust_accuracy_table(runs: Sequence[Outcomes]) -> Table:
    """Accuracy of attack runs without attack and at each budget, and what the attack cost."""
    rows = []
    for run in runs:
        for eps in run.budgets():
            at = run.select(run.eps == eps)
            loss = PairedDifference.of(at.correct, at.clean_correct)
            shares = [Cell.share(Share.of(at.clean_correct)), Cell.share(Share.of(at.correct))]
            cells = [Cell(f"{eps:g}", eps), *shares, Cell.difference(loss), Cell.of(len(at))]
            rows.append([Cell.of(run.name), *cells])
    return Table(
        "robust-accuracy",
        "Accuracy in % without attack and under an attack of ℓ₂ budget ε, and the paired loss in "
        f"percentage points; {INTERVALS}.",
        ["run", "ε", "clean", "robust", "loss", "images"],
        rows,
    )


def _regret(run: Outcomes, best: Envelope, radii: Floats) -> Cell:
    pair = shared_images(run, best.runs[0])
    if pair is None or not len(pair[0]) == len(run) == len(best.runs[0]):
        return Cell("–")
    gap = regret(run.reach, best.accuracy(radii), radii)
    return Cell(rounded(100 * gap, 1, ROUND_HALF_EVEN), gap)


def sigma_table(runs: Sequence[Outcomes]) -> Table | None:
    """Accuracy of the images that were given about the same σ."""
    rows = []
    for run in runs:
        for group in sigma_groups(run.sigmas) if has_sigma(run) else []:
            low, high = float(run.sigmas[group].min()), float(run.sigmas[group].max())
            ends = [Cell(f"{end:.4g}", end) for end in (low, high)]
            share = Share.of(run.correct[group])
            rows.append([Cell.of(run.name), *ends, Cell.of(len(group)), Cell.share(share)])
    return table_or_none(
        "accuracy-by-sigma",
        f"Accuracy in % of the images that were given a σ between two values; {INTERVALS}.",
        ["run", "σ from", "σ to", "images", "accuracy"],
        rows,
    )


def has_sigma(run: Outcomes) -> bool:
    """Whether the noise level of every image is recorded."""
    return bool(np.isfinite(run.sigmas).all())


def selector_text(selector: dict[str, Any]) -> str:
    """A selector's description in a few words.

    >>> selector_text({"selector": "fixed", "sigma": 0.25})
    'fixed, sigma 0.25'
    """
    facts = {k: v for k, v in selector.items() if k not in ("selector", "inner") and v is not None}
    words = [f"{key} {_brief(value)}" for key, value in facts.items()]
    inner = [f"of: {selector_text(selector['inner'])}"] if "inner" in selector else []
    return ", ".join([str(selector.get("selector", "unknown")), *words, *inner])


def table_or_none(
    name: str, caption: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]]
) -> Table | None:
    """A table, unless nothing would be in it."""
    return Table(name, caption, columns, rows) if rows else None


def _brief(value: object) -> str:
    if isinstance(value, list):
        return "(" + ", ".join(_brief(item) for item in value) + ")"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _mean(column: Floats, digits: int) -> Cell:
    if np.isnan(column).any():
        return Cell("–")
    return Cell(rounded(float(column.mean()), digits, ROUND_HALF_EVEN), float(column.mean()))


def _sigma(sigmas: Floats) -> Cell:
    if np.isnan(sigmas).any():
        return Cell("–")
    low, middle, high = (float(q) for q in np.quantile(sigmas, [0.05, 0.5, 0.95]))
    spread = "" if low == high else f" ({low:.3g}–{high:.3g})"
    return Cell(f"{middle:.3g}{spread}", middle)
