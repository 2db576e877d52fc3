"""Runs → tables."""

from collections.abc import Sequence
from decimal import ROUND_HALF_EVEN

import numpy as np

from varsmooth.bounds import Floats
from varsmooth.evaluation.report.outcomes import Envelope, Outcomes, shared_images
from varsmooth.evaluation.report.statistics import (
    Interval,
    PairedDifference,
    Share,
    mean_interval,
    regret,
    sigma_groups,
)
from varsmooth.evaluation.report.tables import Cell, Table, Value
from varsmooth.rounding import percent, rounded

INTERVALS = "95 % intervals over images in brackets"
UNKNOWN = Cell("–")


def round_radii(runs: Sequence[Outcomes | Envelope], most: int = 8) -> Floats:
    """Radii for a table: multiples of a round step from 0 to the largest one certified right."""
    furthest = max(0.0, *(float(run.reach.max()) for run in runs))
    steps = (digit * 10.0**power for power in range(-4, 6) for digit in (1, 2.5, 5))
    step = next(step for step in steps if furthest / step < most)
    return np.array([step * k for k in range(int(furthest / step) + 1)])


def baseline_of(runs: Sequence[Outcomes]) -> Outcomes:
    """What the other runs are compared with.

    The best single σ of `baselines_of`, where some runs have one σ for every image and others
    choose it; otherwise the first run. The best has the largest average certified radius, or
    certified accuracy at the decided radii if one of these runs stopped at some.
    """
    single = baselines_of(runs)
    if not single:
        return runs[0]
    radii = decided_radii(single + [run for run in runs if run.fixed_sigma is None])
    return max(
        single,
        key=lambda run: (
            (run.reach[:, None] >= radii).mean() if radii else 0.0,
            run.average_radius,
        ),
    )


def baselines_of(runs: Sequence[Outcomes]) -> list[Outcomes]:
    """The sound runs at a single σ that others, which choose σ, can be compared with.

    Those that share images with them are taken before those that share few or none.
    """
    single = [run for run in runs if run.fixed_sigma is not None and run.guarantee == "sound"]
    choosing = [run for run in runs if run.fixed_sigma is None]
    if not single or not choosing:
        return []
    pairs = [[shared_images(run, other) for other in choosing] for run in single]
    shared = [sum(len(pair[0]) for pair in each if pair) for each in pairs]
    return [run for run, n in zip(single, shared, strict=True) if 2 * n >= max(shared)]


def decided_radii(runs: Sequence[Outcomes]) -> list[float] | None:
    """The radii that all sequential runs among these decided; None if none stopped at radii."""
    decided = [set(run.decided_radii) for run in runs if run.decided_radii]
    return sorted(set.intersection(*decided)) if decided else None


def summary_table(runs: Sequence[Outcomes]) -> Table:
    """One line per run: what it is, how often it is right, what it cost."""
    certify = runs[0].verb == "certify"

    def row(run: Outcomes) -> dict[str, Value]:
        cells: dict[str, Value] = {"run": run.name}
        cells |= {"guarantee": run.guarantee or ""} if certify else {}
        cells["certified right %" if certify else "accuracy %"] = Share.of(run.correct)
        cells["abstains %"] = Cell.share(Share.of(run.abstained), up=True)
        if certify:
            low, high = mean_interval(np.maximum(run.reach, 0))
            most = max(run.largest_radius or np.inf, float(run.reach.max()))
            interval = Interval(max(low, 0.0), min(high, most))
            cells["ACR"] = Cell.mean_radius(run.average_radius, interval)
        cost = {"votes / image": _mean(run.samples, 0), "s / image": _mean(run.seconds, 3)}
        return cells | {"median σ": _sigma(run.sigmas), "images": len(run)} | cost

    return Table.of(
        "summary" if certify else "predictions",
        f"Summary of the runs; {INTERVALS}; in parentheses, the σ range of 90 % of the images."
        + (" ACR: average certified radius, 0 where wrong or abstaining." if certify else ""),
        [row(run) for run in runs],
    )


def certified_accuracy_table(
    runs: Sequence[Outcomes], envelopes: Sequence[Envelope], radii: Floats
) -> Table:
    """Certified accuracy of every run and envelope at the chosen radii."""
    rows: list[dict[str, Value]] = []
    for run in runs:
        at: dict[str, Value] = {f"r = {r:g}": Share.of(run.reach >= r) for r in radii}
        rows.append({"run": run.name, "guarantee": run.guarantee or "", **at})
    for best in envelopes:
        shares = {r: Share.of(best.reach >= r) for r in radii}
        most = {f"r = {r:g}": Cell(percent(s.k, s.n), s.value) for r, s in shares.items()}
        rows.append({"run": f"{best.label} (envelope)", "guarantee": best.guarantee, **most})
    return Table.of(
        "certified-accuracy",
        f"Certified accuracy in % at ℓ₂ radius r; an abstention counts as wrong; {INTERVALS}.",
        rows,
    )


def difference_table(
    runs: Sequence[Outcomes], baseline: Outcomes, radii: Sequence[float] | Floats = ()
) -> Table:
    """Each run minus the baseline, on the images both have; empty if no run shares any with it.

    Certify runs at each radius, attack runs at each budget of the baseline, predict runs as they
    are.
    """

    def gaps(one: Outcomes, other: Outcomes) -> dict[str, Value]:
        gap = PairedDifference.of
        if one.verb == "certify":
            at = {f"r = {r:g}": gap(one.reach >= r, other.reach >= r) for r in radii}
            stopped = decided_radii([one, other]) is not None  # no average of such radii
            return {"ACR": UNKNOWN if stopped else radius_difference(one, other), **at}
        if one.verb == "predict":
            difference = gap(one.correct, other.correct)
            return {
                "accuracy": difference,
                "p": Cell(f"{difference.p_value:.2g}", difference.p_value),
            }
        once, mine, theirs = one.eps == one.budgets()[0], one.correct, other.correct
        under: dict[str, Value] = {
            f"ε = {eps:g}": gap(mine[at], theirs[at]) if (at := one.eps == eps).any() else UNKNOWN
            for eps in baseline.budgets()
        }
        return {"clean": gap(one.clean_correct[once], other.clean_correct[once]), **under}

    return Table.of(
        "differences" if baseline.verb == "certify" else f"{baseline.verb}-differences",
        f"Difference from {baseline.name} in percentage points, paired by image; {INTERVALS}.",
        [
            {"run": run.name, "shared images": pair[0].images, **gaps(*pair)}
            for run in runs
            if run is not baseline and (pair := shared_images(run, baseline)) is not None
        ],
    )


def radius_difference(one: Outcomes, other: Outcomes) -> Cell:
    """The difference of the average certified radius, paired by image."""
    gap = np.maximum(one.reach, 0) - np.maximum(other.reach, 0)
    return Cell.signed(float(gap.mean()), mean_interval(gap), 3)


def regret_table(runs: Sequence[Outcomes], envelopes: Sequence[Envelope], radii: Floats) -> Table:
    """How far each run stays below each envelope, at the worst of the radii."""

    def cell(run: Outcomes, best: Envelope) -> Cell:
        pair = shared_images(run, best.runs[0])
        if pair is None or not len(pair[0]) == len(run) == len(best.runs[0]):
            return UNKNOWN
        gap = regret(run.reach, best.reach, radii)
        return Cell(rounded(100 * gap, 1, ROUND_HALF_EVEN), gap)

    return Table.of(
        "regret",
        "Regret: the largest gap below the envelope in percentage points, over the radii of the "
        "table and on the same images; negative if the run is above the envelope everywhere.",
        [
            {"run": run.name} | {best.label: cell(run, best) for best in envelopes}
            for run in (runs if envelopes else ())
        ],
    )


def robust_accuracy_table(runs: Sequence[Outcomes]) -> Table:
    """Accuracy of attack runs without attack and at each budget, and the loss."""
    every = [(run, eps, run.select(run.eps == eps)) for run in runs for eps in run.budgets()]
    return Table.of(
        "robust-accuracy",
        "Accuracy in % without attack and under an attack of ℓ₂ budget ε, and the paired loss in "
        f"percentage points; {INTERVALS}.",
        [
            {
                "run": run.name,
                "ε": Cell(f"{eps:g}", eps),
                "clean": Share.of(at.clean_correct),
                "robust": Share.of(at.correct),
                "loss": PairedDifference.of(at.correct, at.clean_correct),
                "median σ": _sigma(at.sigmas),
                "images": len(at),
            }
            for run, eps, at in every
        ],
    )


def sigma_table(runs: Sequence[Outcomes]) -> Table:
    """Accuracy of images with similar σ."""
    groups = [(run, group) for run in runs for group in sigma_groups(run.sigmas)]
    return Table.of(
        "accuracy-by-sigma",
        f"Accuracy in % of the images whose σ lies between two values; {INTERVALS}.",
        [
            {
                "run": run.name,
                "σ from": Cell(f"{(low := float(run.sigmas[group].min())):.4g}", low),
                "σ to": Cell(f"{(high := float(run.sigmas[group].max())):.4g}", high),
                "images": len(group),
                "accuracy": Share.of(run.correct[group]),
            }
            for run, group in groups
        ],
    )


def _mean(column: Floats, digits: int) -> Cell:
    mean = float(column.mean())  # NaN if any image does not record it
    return UNKNOWN if np.isnan(mean) else Cell(rounded(mean, digits, ROUND_HALF_EVEN), mean)


def _sigma(sigmas: Floats) -> Cell:
    low, middle, high = (float(q) for q in np.quantile(sigmas, [0.05, 0.5, 0.95]))
    if np.isnan(middle):
        return UNKNOWN
    spread = "" if low == high else f" ({low:.3g}–{high:.3g})"
    return Cell(f"{middle:.3g}{spread}", middle)
