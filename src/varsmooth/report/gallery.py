"""The images of a run, one card each: what was predicted, how far it holds, and the evidence."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from varsmooth.data import ImageDataset, load_dataset
from varsmooth.errors import VarsmoothError
from varsmooth.report.outcomes import Outcomes, class_name
from varsmooth.report.pages import picture
from varsmooth.runs.records import Row

SIDE = 96
"""Pixels a side of a thumbnail, at most."""

MOST = 1000
"""Images in one gallery: a page of a few megabytes opens at once."""


@dataclass(frozen=True)
class Card:
    """An image: its row of the run, the rows of all runs on it, its thumbnail if it was found."""

    row: Row
    every: Sequence[tuple[str, Row]]
    thumbnail: str | None
    evidence: Sequence[str]


@dataclass(frozen=True)
class Gallery:
    """The cards of a run, and what to know before looking at them."""

    class_names: Sequence[str]
    sentences: Sequence[str]
    cards: Sequence[Card]


def gallery(subject: Outcomes, runs: Sequence[Outcomes]) -> Gallery:
    """A card for each image of `subject`, with the rows of all `runs` on it.

    Of an attack, the rows at its largest budget.
    """
    said = []
    if subject.verb == "attack":
        subject = subject.select(subject.eps == subject.budgets()[-1])
    if len(subject) > MOST:
        said.append(f"The first {MOST} of {len(subject)} images.")
        subject = subject.select(np.arange(MOST))
    shown = {}
    try:
        images = images_of(subject.header)
        shown = dict(zip(images.ids.tolist(), images.images, strict=True))
    except VarsmoothError as error:
        said.append(f"The images themselves cannot be shown: {error}.")
    found: dict[int, list[tuple[str, Row]]] = {}
    for run in runs:
        for row in run.rows if run.same_data(subject) else ():
            found.setdefault(row["id"], []).append((run.name, row))
    names = subject.header["dataset"]["class_names"]
    cards = []
    for row in subject.rows:
        thumbnail = picture(shown[row["id"]], SIDE) if row["id"] in shown else None
        cards.append(Card(row, found[row["id"]], thumbnail, evidence_of(row, names)))
    return Gallery(names, said, cards)


def images_of(header: dict[str, Any]) -> ImageDataset:
    """The images of a run, from where it found them."""
    config, dataset = header["config"], header["dataset"]
    name, root, resize = (config.get(key) for key in ("data", "root", "resize"))
    return load_dataset(name or dataset["name"], dataset["split"], root, resize)


def evidence_of(row: Row, names: Sequence[str]) -> list[str]:
    """The votes behind a row, and how α was spent."""
    if "clean_counts" in row:
        before = _votes("Votes before the attack", row["clean_counts"], names)
        return [before, _votes("Votes under attack", row["counts"], names)]
    if "counts" in row:
        return [_votes("Votes", row["counts"], names)]
    evidence: dict[str, Any] | None = row.get("evidence")
    if not evidence:
        return ["This run was imported without evidence."]
    ledger = evidence["ledger"]
    said = [_votes(f"Votes at σ = {v['sigma']:.4g}", v["counts"], names) for v in evidence["votes"]]
    select = f", {ledger['alpha_select']:g} of it for the selector" * bool(ledger["alpha_select"])
    return [*said, f"α = {ledger['alpha']:g}{select}; seed {evidence['seed']}."]


def _votes(what: str, counts: Sequence[int], names: Sequence[str]) -> str:
    """The three classes with most votes."""
    top = sorted(range(len(counts)), key=lambda c: -counts[c])[:3]
    shown = ", ".join(f"{class_name(c, names)} {counts[c]}" for c in top if counts[c])
    return f"{what}: {shown} of {sum(counts)}."
