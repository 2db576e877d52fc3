"""Runs → the sections of a report: figures, tables and sentences in reading order."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from varsmooth.bounds import Floats
from varsmooth.errors import require
from varsmooth.report import figures, statements, summaries
from varsmooth.report.figures import Picture, draw
from varsmooth.report.outcomes import Envelope, Outcomes
from varsmooth.report.tables import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Section:
    """A heading with what stands below it."""

    heading: str
    sentences: Sequence[str] = ()
    pictures: Sequence[Picture] = ()
    tables: Sequence[Table | None] = ()


def report_sections(
    runs: Sequence[Outcomes],
    envelopes: Sequence[Envelope] = (),
    radii: Sequence[float] | None = None,
) -> list[Section]:
    """The whole report of runs of one verb."""
    verb = runs[0].verb
    require(
        not envelopes or verb == "certify",
        f"an envelope is over certify runs and does not fit a report of {verb} runs",
    )
    body = {"certify": _certify, "attack": _attack, "predict": _predict}[verb]
    return [
        Section("Summary", statements.cautions(runs, envelopes), (), [_summary(runs)]),
        *body(runs, envelopes, radii),
        *_noise_levels(runs),
        Section("What the numbers mean", [*statements.what_holds(runs), *_methods(runs)]),
    ]


def _summary(runs: Sequence[Outcomes]) -> Table:
    if runs[0].verb == "attack":
        return summaries.robust_accuracy_table(runs)
    return summaries.summary_table(runs)


def _methods(runs: Sequence[Outcomes]) -> list[str]:
    """How the intervals were computed, of those that are shown."""
    said = [statements.INTERVALS]
    if len(runs) > 1 or runs[0].verb == "attack":
        said.append(statements.PAIRED)
    if len(runs) > 1 and runs[0].verb == "predict":
        said.append(statements.TESTED)
    return said


def _certify(
    runs: Sequence[Outcomes], envelopes: Sequence[Envelope], radii: Sequence[float] | None
) -> list[Section]:
    every = [*runs, *(run for best in envelopes for run in best.runs)]
    at: Floats = summaries.round_radii(every) if radii is None else np.array(sorted(radii))
    require(bool((at >= 0).all()), "radii are distances and cannot be negative")
    curves = draw(
        "certified-accuracy",
        "Share of images certified right for every perturbation shorter than r. Solid: sound; "
        "dashed: conditional; dotted: heuristic. Bands: pointwise 95 % intervals.",
        lambda axes: figures.plot_certified_accuracy(axes, runs, envelopes),
    )
    sections = [
        Section(
            "Certified accuracy",
            (),
            [curves],
            [
                summaries.certified_accuracy_table(runs, envelopes, at),
                summaries.regret_table(runs, envelopes, at),
            ],
        )
    ]
    if (differences := summaries.difference_table(runs, at)) is not None:
        gaps = draw(
            "differences",
            f"Certified accuracy less that of {runs[0].name} on the same images, in percentage "
            "points. Where a band excludes 0 the runs differ at that radius.",
            lambda axes: figures.plot_differences(axes, runs),
            legend="best",
        )
        sections.append(Section("Paired differences", (), [gaps], [differences]))
    return sections


def _attack(
    runs: Sequence[Outcomes], envelopes: Sequence[Envelope], radii: Sequence[float] | None
) -> list[Section]:
    require(radii is None, "radii belong to certify runs; an attack run has budgets of its own")
    curves = draw(
        "robust-accuracy",
        "Accuracy under attack against the budget; at ε = 0 without attack. Bands: pointwise "
        "95 % intervals.",
        lambda axes: figures.plot_robust_accuracy(axes, runs),
    )
    pictures = [curves]
    shared = summaries.shared_budgets(runs)
    if shared and len(runs) > 1:
        chosen = shared if len(shared) <= 3 else [shared[0], shared[len(shared) // 2], shared[-1]]
        pictures.append(
            draw(
                "clean-against-robust",
                "What a run gives up without attack for what it keeps under attack: right and up "
                "is better. Bars: 95 % intervals.",
                *(_at_budget(runs, eps) for eps in chosen),
                height=3.2,
            )
        )
    sections = [Section("Accuracy under attack", (), pictures)]
    if (differences := summaries.difference_table(runs, np.array([]))) is not None:
        sections.append(Section("Paired differences", (), (), [differences]))
    return sections


def _at_budget(runs: Sequence[Outcomes], eps: float) -> Callable[["Axes"], None]:
    return lambda axes: figures.plot_clean_against_robust(axes, runs, eps)


def _predict(
    runs: Sequence[Outcomes], envelopes: Sequence[Envelope], radii: Sequence[float] | None
) -> list[Section]:
    require(radii is None, "radii belong to certify runs; a predict run has none")
    if (differences := summaries.difference_table(runs, np.array([]))) is None:
        return []
    return [Section("Paired differences", (), (), [differences])]


def _noise_levels(runs: Sequence[Outcomes]) -> list[Section]:
    """Which σ was given to the images; nothing where no run records it, or all are one level."""
    known = [
        run.select(run.eps == run.budgets()[-1]) if run.verb == "attack" else run
        for run in runs
        if summaries.has_sigma(run)
    ]
    levels = {level for run in known for level in np.unique(run.sigmas)}
    if len(levels) < 2:
        return []
    histograms = draw(
        "sigma",
        "Noise levels given to the images"
        + (" under the strongest attack" if runs[0].verb == "attack" else "")
        + "; each line is scaled to its own highest bar. Triangle: "
        "median.",
        lambda axes: figures.plot_sigma_distribution(axes, known),
        legend=None,
        height=1.2 + 0.75 * len(known),
    )
    accuracy = draw(
        "accuracy-by-sigma",
        "How often images with about the same σ are right: one point for each level, or for each "
        "tenth of the images. Images chose their σ, so this is no effect of σ alone.",
        lambda axes: figures.plot_accuracy_by_sigma(axes, known),
        legend="best",
    )
    tables = [summaries.sigma_table(known)]
    return [Section("Noise levels", (), [histograms, accuracy], tables)]
