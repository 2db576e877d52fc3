"""The images of a run, one card each: what was predicted, how far it holds, and the evidence."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from varsmooth.certificates import ABSTAIN
from varsmooth.data import load_dataset
from varsmooth.errors import VarsmoothError
from varsmooth.report.markup import Html, element, grid, join, picture
from varsmooth.report.outcomes import Outcomes
from varsmooth.rounding import rounded
from varsmooth.runs.images import resized
from varsmooth.runs.records import Row

Pixels = NDArray[np.uint8]  # (H,W,C)

SIDE = 96
"""Pixels a side of a thumbnail, at most."""

MOST = 1000
"""Images in one gallery: a page of a few megabytes opens at once."""

SHOW = {"all": "all images", "right": "right", "wrong": "wrong", "abstains": "abstains"}
SORT = {
    "image": "image number",
    "failures": "failures first",
    "smallest": "smallest radius first",
    "largest": "largest radius first",
    "sigma": "smallest σ first",
}


def gallery(subject: Outcomes, runs: Sequence[Outcomes]) -> tuple[list[str], Html]:
    """Sentences, and a card for each image of `subject` with the rows of all `runs` on it.

    Of an attack, the rows at its largest budget.
    """
    said = []
    if subject.verb == "attack":
        subject = subject.select(subject.eps == subject.budgets()[-1])
    if len(subject) > MOST:
        said.append(f"The first {MOST} of {len(subject)} images.")
        subject = subject.select(np.arange(MOST))
    try:
        pixels = _pixels(subject.header)
    except VarsmoothError as error:
        pixels = {}
        said.append(f"The images themselves cannot be shown: {error}.")
    found: dict[int, list[tuple[str, Row]]] = {}
    for run in runs:
        if all(run.header["dataset"][k] == subject.header["dataset"][k] for k in ("name", "split")):
            for row in run.rows:
                found.setdefault(row["id"], []).append((run.name, row))
    names = subject.header["dataset"]["class_names"]
    cards = [_card(row, found[row["id"]], names, pixels.get(row["id"])) for row in subject.rows]
    controls = element(
        "div",
        element("label", "Show ", _choice(SHOW)),
        element("label", "Sort by ", _choice(SORT)),
        element("output", f"{len(cards)} images"),
        class_="controls",
    )
    return said, join(controls, element("div", *cards, class_="gallery"))


def outcome(row: Row) -> str:
    """One word for a row; under attack an image also has to be right without one."""
    if row["prediction"] == ABSTAIN:
        return "abstains"
    before = row.get("clean_prediction", row["prediction"])
    return "right" if row["label"] == row["prediction"] == before else "wrong"


def _choice(options: dict[str, str]) -> Html:
    return element("select", *(element("option", text, value=v) for v, text in options.items()))


def _card(
    row: Row, rows: Sequence[tuple[str, Row]], names: Sequence[str], pixels: Pixels | None
) -> Html:
    word, label = outcome(row), _class(row["label"], names)
    thumbnail = [] if pixels is None else [_thumbnail(pixels, f"image {row['id']}: {label}")]
    numbers = [f"σ {row['sigma']:.3g}"] if row.get("sigma") is not None else []
    numbers += [f"R {rounded(row['radius'])}"] if "radius" in row else []
    summary = element(
        "summary",
        *thumbnail,
        element("span", f"{row['id']}: {label}"),
        element("span", f"→ {_class(row['prediction'], names)}", class_="answer"),
        element("span", ", ".join(numbers), class_="numbers"),
        element("span", word, class_="outcome"),
    )
    columns = ["run", "prediction", "σ", "radius", "outcome"]
    lines = [_line(name, other, names) for name, other in rows]
    evidence = [element("p", sentence) for sentence in _evidence(row, names)]
    return element(
        "details",
        summary,
        element("div", grid(columns, lines), *evidence, class_="evidence"),
        class_=f"card {word}",
        data_image=row["id"],
        data_outcome=word,
        data_radius=row.get("radius", 0.0),
        data_sigma=row.get("sigma") or 0.0,
    )


def _line(name: str, row: Row, names: Sequence[str]) -> list[str]:
    """One run's result on the image."""
    attacked = f", attacked with ε = {row['eps']:g}" if "eps" in row else ""
    sigma = "–" if row.get("sigma") is None else f"{row['sigma']:.4g}"
    radius = rounded(row["radius"], 4) if "radius" in row else "–"
    return [name + attacked, _class(row["prediction"], names), sigma, radius, outcome(row)]


def _evidence(row: Row, names: Sequence[str]) -> list[str]:
    """The votes behind a row, and how α was spent."""
    if "clean_counts" in row:
        before = _votes("Votes before the attack", row["clean_counts"], names)
        return [before, _votes("Votes under attack", row["counts"], names)]
    if "counts" in row:
        return [_votes("Votes", row["counts"], names)]
    evidence: dict[str, Any] | None = row.get("evidence")
    if not evidence:
        return ["The run was imported and has no evidence."]
    ledger = evidence["ledger"]
    said = [_votes(f"Votes at σ = {v['sigma']:.4g}", v["counts"], names) for v in evidence["votes"]]
    select = f", {ledger['alpha_select']:g} of it for the selector" * bool(ledger["alpha_select"])
    return [*said, f"α = {ledger['alpha']:g}{select}; seed {evidence['seed']}."]


def _votes(what: str, counts: Sequence[int], names: Sequence[str]) -> str:
    """The three classes with most votes."""
    top = sorted(range(len(counts)), key=lambda c: -counts[c])[:3]
    shown = ", ".join(f"{_class(c, names)} {counts[c]}" for c in top if counts[c])
    return f"{what}: {shown} of {sum(counts)}."


def _class(number: int, names: Sequence[str]) -> str:
    if number == ABSTAIN:
        return "abstains"
    return names[number] if number < len(names) else str(number)


def _pixels(header: dict[str, Any]) -> dict[int, Pixels]:
    """The images by id, from where the run found them."""
    config, dataset = header["config"], header["dataset"]
    root, side = config.get("root"), config.get("resize")
    name = config.get("data", dataset["name"])
    images = load_dataset(name, dataset["split"], None if root is None else Path(root))
    images = images if side is None else resized(images, side)
    return dict(zip(images.ids.tolist(), images.images, strict=True))


def _thumbnail(pixels: Pixels, alt: str) -> Html:
    """Small images as they are, larger ones scaled down."""
    image = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
    kind = "png" if max(image.size) <= SIDE else "jpeg"
    image.thumbnail((SIDE, SIDE))
    out = io.BytesIO()
    image.save(out, kind)
    return picture(out.getvalue(), kind, alt)
