"""The model card: what a model is for, what it can do, and how it was made. Needs no torch."""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from varsmooth._util.files import replace_file
from varsmooth.errors import VarsmoothError
from varsmooth.models.descriptions import (
    CARD,
    WEIGHTS,
    Description,
    Part,
    describe,
    find,
    is_released,
)
from varsmooth.rounding import rounded

RADII = ("0", "0.25", "0.5")
"""Where a card shows certified accuracy."""

USE = """\
Research on certified robustness: predictions by majority vote under Gaussian noise, with ℓ2 radii
in pixel units, pixels in [0, 1]."""
LIMITS = """\
A certificate says that the prediction is constant within its radius, not that it is right. Radii
are for ℓ2 changes of the pixels of the image as the model sees it, nothing else (no rotation, no
other norm). Accuracy was measured on images of the data set above and says nothing about others."""
CITATION = """\
"Variational Randomized Smoothing for Sample-Wise Adversarial Robustness"; the sound certificates
are varsmooth's own (docs/concepts/certificate.md in its repository)."""


def write_card(folder: Path, about: Description) -> None:
    """Write the card into the folder of its model."""
    replace_file(folder / CARD, _card_in(folder, about).encode())


def has_card(folder: Path, about: Description) -> bool:
    """Whether the folder has the card of this description, and no other text in its place."""
    path = folder / CARD
    return path.is_file() and path.read_text(encoding="utf-8") == _card_in(folder, about)


def _card_in(folder: Path, about: Description) -> str:
    return card(folder.resolve().name, about, is_released(folder))


def card(name: str, about: Description, released: bool = False, log: bool = True) -> str:
    """The model card in Markdown; log: with the training log, one line per epoch."""
    level = f"every σ up to {about.sigma_a:g}" if about.universal else f"σ_a = {about.sigma_a:g}"
    origin = f"Trained on {about.dataset} for noise of"
    if about.adopted:
        origin = f"Adopted and measured on {about.dataset}, not trained under noise here; default:"
    lines = [
        f"# {name}",
        "",
        f"{origin} {level}.",
        f"Classes: {', '.join(about.class_names)}.",
        *("", "## Intended use", "", USE, "", "## Limits", "", LIMITS),
    ]
    if about.cascades:
        lines += ["", "## Tuned cascade", "", *_tuned(about)]
    for title, part in (("Classifier f", about.classifier), ("Selector h", about.selector)):
        if part is None:
            continue
        lines += ["", f"## {title}", "", f"Network `{part.network}`, options `{part.options}`."]
        lines += [f"Fingerprint `{part.fingerprint[:16]}`."]
        if part is about.selector and about.selector_sigma and about.sigma_t:
            sigmas = f"σ_a of h: {about.selector_sigma:g}; target level σ_t: {about.sigma_t:g}."
            lines += [sigmas]
        if part is about.selector and about.recommended:
            settings = ", ".join(f"{name} {value}" for name, value in about.recommended.items())
            lines += ["", f"Recommended settings: {settings}."]
        try:
            for split, metrics in part.metrics.items():
                lines += ["", f"### On `{split}`, {metrics['images']} images", ""]
                voted = "smoothed_accuracy" in metrics
                lines += accuracy_table(metrics) if voted else _levels(metrics)
        except (AttributeError, LookupError, TypeError, ValueError) as error:  # untrusted input
            raise VarsmoothError(f"the metrics of {name} cannot be read ({error!r})") from error
        lines += _training(part) if log else []
    licence = "MIT, as varsmooth." if released else "Chosen by whoever shares this model."
    lines += ["", "## Licence and citation", "", f"Licence: {licence}", f"Please cite {CITATION}"]
    return "\n".join(lines) + "\n"


def _tuned(about: Description) -> list[str]:
    """The stages for every λ and the best single σ, with what to expect where that is known."""
    use = "The default selector, with --lam λ (1 by default), LEVEL:THRESHOLD,…"
    named = [(f"from λ = {member.lam:g}", member) for member in about.cascades]
    named += [] if about.single is None else [("the best single σ", about.single)]
    rows = [
        (name, str(one), f"{100 * one.expected[0]:.1f}", rounded(one.expected[1], 4))
        for name, one in named
        if one.expected is not None
    ]
    if len(rows) < len(named):
        return [f"{use}: {'; '.join(f'{name} {one}' for name, one in named)}."]
    head = ("", "stages", "certified right %", "average radius")
    return [f"{use}; accuracy and radius to expect on new images:", "", *_table([head, *rows])]


def accuracy_table(metrics: Mapping[str, Any]) -> list[str]:
    """A column for each level: the vote's accuracy and, where measured, certified accuracy."""
    votes, certified = metrics["smoothed_accuracy"], metrics.get("certified", {})
    plain = metrics.get("plain_accuracy")
    lines = [] if plain is None else [f"Accuracy of f without noise: {plain:g} %.", ""]
    by_level = {level: {"vote": value} for level, value in votes.items()}
    for level, values in certified.items():
        by_level[level] = by_level.get(level, {}) | values
    levels = sorted(by_level, key=float)
    titles = {"vote": "vote"}
    if certified:
        titles |= {r: f"certified at {r}" for r in RADII}
        titles |= {"average_radius": "average radius", "images": "images", "votes": "votes"}
    rows = [("σ", *levels)]
    for key, title in titles.items():
        cells = (by_level[level].get(key) for level in levels)
        rows += [(title, *("" if value is None else f"{value:g}" for value in cells))]
    head = f"Accuracy in percent by noise level; vote: {metrics['votes']} votes, no abstention."
    return [*lines, head, "", *_table(rows)]


def _levels(metrics: Mapping[str, Any]) -> list[str]:
    """A row for each λ."""
    rows = [("λ", "mean", "std", "min", "max", "ρ")]
    for lam, row in metrics["sigma"].items():
        rho = row.get("rank_correlation")
        numbers = (f"{row[key]:.4f}" for key in ("mean", "std", "min", "max"))
        rows.append((lam, *numbers, "–" if rho is None else f"{rho:.2f}"))
    head = (
        f"The level σ_s that h chooses (median of {metrics['samples']} samples), over the images; "
        "ρ is its rank correlation with the image's best level:"
    )
    return [head, "", *_table(rows)]


def _training(part: Part) -> list[str]:
    """The configuration of the run and what each of its epochs reported."""
    if not (part.training or part.history):
        return []
    settings = ", ".join(f"{key} = {value}" for key, value in part.training.items())
    columns = [key for key in (*part.history, {})[0] if key != "seconds"]
    rows = [[str(row.get(key, "")) for key in columns] for row in part.history]
    return [
        *("", "<details><summary>Training log</summary>", "", f"Configuration: {settings}.", ""),
        *(_table([columns, *rows]) if rows else ()),
        *("", "</details>"),
    ]


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return [lines[0], "|" + "---|" * len(rows[0]), *lines[1:]]


def plain(markdown: str) -> str:
    """A card for the terminal: titles without signs, tables with aligned columns."""
    lines: list[str] = []
    table: list[list[str]] = []
    for line in [*re.sub(r"`|</?details>|<summary>|</summary>", "", markdown).splitlines(), ""]:
        if line.startswith("|"):
            if not line.startswith("|---"):
                table.append([cell.strip() for cell in line.strip("|").split("|")])
            continue
        lines += [f"  {row}" for row in aligned(table)] if table else []
        table = []
        lines.append(re.sub(r"^#+ ", "", line))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip() + "\n"


def aligned(rows: Iterable[Sequence[str]]) -> list[str]:
    """Rows of cells as lines with columns of equal width.

    Examples:
        >>> aligned([("σ", "radius"), ("0.25", "1")])
        ['σ     radius', '0.25  1']
    """
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip_longest(*rows, fillvalue="")]
    pairs = [zip(row, widths, strict=False) for row in rows]
    return ["  ".join(cell.ljust(width) for cell, width in row).rstrip() for row in pairs]


def overview(names: Iterable[str]) -> list[str]:
    """One line for each model: level, selector, certified accuracy where measured, size."""
    shares = [f"r={r} %" for r in RADII]
    head = ("model", "σ", "selector", "split", "images", *shares, "avg radius", "MB")
    return aligned([head, *(_row(name) for name in names)])


def _row(name: str) -> tuple[str, ...]:
    about, size = describe(name), (find(name) / WEIGHTS).stat().st_size
    level = f"≤ {about.sigma_a:g}" if about.universal else f"{about.sigma_a:g}"
    selector = about.selector.network if about.selector else "-"
    metrics = about.classifier.metrics if about.classifier else {}
    split = next((one for one in ("test", "val") if "certified" in metrics.get(one, {})), None)
    cells: tuple[str, ...] = ("-",) * (3 + len(RADII))
    if split is not None:
        by_level = metrics[split]["certified"]
        nearest = min(by_level, key=lambda one: abs(float(one) - about.default_sigma))
        certified = by_level[nearest]
        shares = [f"{certified[r]:.1f}" for r in RADII]
        cells = (split, str(certified["images"]), *shares, rounded(certified["average_radius"]))
    return (name, level, selector, *cells, f"{size / 1e6:.1f}")
