"""The images of a run, one card each: prediction, certified radius and evidence."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from varsmooth.errors import VarsmoothError
from varsmooth.evaluation.build import is_image_of, stored_images
from varsmooth.evaluation.records import Row
from varsmooth.evaluation.report.outcomes import Outcomes, class_name
from varsmooth.evaluation.report.pages import picture

SIDE = 96  # pixels a side of a thumbnail, at most
MOST = 1000  # images in one gallery: a page of a few megabytes opens at once


@dataclass(frozen=True)
class Gallery:
    """The rows of a run and, by the id of the image, everything known about it."""

    rows: Sequence[Row]
    class_names: Sequence[str]
    sentences: Sequence[str]  # notes above the gallery
    every: dict[int, list[tuple[str, Row]]]  # the rows of all runs on the image, with their names
    thumbnails: dict[int, str]  # of the images that could be loaded

    def evidence(self, row: Row) -> list[str]:
        """The votes behind a row, and how α was spent."""
        if "clean_counts" in row:
            before = self._votes("Votes before the attack", row["clean_counts"])
            return [before, self._votes("Votes under attack", row["counts"])]
        if "counts" in row:
            return [self._votes("Votes", row["counts"])]
        if not (evidence := row.get("evidence")):
            return ["This run was imported without evidence."]
        ledger, select = evidence["ledger"], evidence["ledger"]["alpha_select"]
        levels = evidence["votes"]
        votes = [self._votes(f"Votes at σ = {v['sigma']:.4g}", v["counts"]) for v in levels]
        part = f", {select:g} of it for the selector" if select else ""
        return [*votes, f"α = {ledger['alpha']:g}{part}; seed {evidence['seed']}."]

    def _votes(self, what: str, counts: Sequence[int]) -> str:
        """The three classes with most votes."""
        top = sorted(range(len(counts)), key=lambda c: -counts[c])[:3]
        shown = [f"{class_name(c, self.class_names)} {counts[c]}" for c in top if counts[c]]
        return f"{what}: {', '.join(shown)} of {sum(counts)}."


def gallery(subject: Outcomes, runs: Sequence[Outcomes]) -> Gallery:
    """The images of `subject`, with the rows of all `runs` on them.

    Of an attack, the rows at its largest budget.
    """
    notes = []
    if subject.verb == "attack":
        subject = subject.select(subject.eps == subject.budgets()[-1])
    if len(subject) > MOST:
        notes.append(f"{MOST} of {len(subject)} images, evenly from all.")
        subject = subject.select(np.arange(MOST) * len(subject) // MOST)
    every: dict[int, list[tuple[str, Row]]] = {row["id"]: [] for row in subject.rows}
    for run in runs:
        for row in run.rows if run.same_data(subject) else ():
            every.get(row["id"], []).append((run.name, row))
    thumbnails = {}
    try:
        images, rows = stored_images(subject.header), {row["id"]: row for row in subject.rows}
        shown = ((place, id) for place, id in enumerate(images.ids.tolist()) if id in rows)
        thumbnails = {
            id: picture(images.pixels[place], SIDE)
            for place, id in shown
            if is_image_of(rows[id], images, place)
        }
    except VarsmoothError as error:
        notes.append(f"The images themselves cannot be shown: {error}.")
    names = subject.header["dataset"]["class_names"]
    notes.append("Open a card for the evidence.")
    return Gallery(subject.rows, names, notes, every, thumbnails)
