"""The figures of the page, on axes, in the style of a report."""

import io
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from varsmooth.certificates import Certificate
from varsmooth.defaults import ABSTAIN
from varsmooth.evaluation.report.figures import styled
from varsmooth.evaluation.report.outcomes import class_name
from varsmooth.evaluation.report.pages import data_url
from varsmooth.evidence import SelectorEvidence
from varsmooth.rounding import rounded

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ENTRY, CLASS, RADIUS = "#2a9d8f", "#7b61c9", "#d1495b"
"""Entry distances, class radii and the certified radius, as in the documentation's diagrams."""
CASCADE = "#e07a1f"

FAINT, INK = "#b8c0cc", "#334155"


def svg(plot: Callable[..., None], *shown: Any, width: float = 5.2, height: float = 2.6) -> str:
    """What `plot(axes, *shown)` draws, as the address of an SVG picture that needs no font."""
    from matplotlib.figure import Figure

    clear = {"figure.facecolor": "none", "axes.facecolor": "none"}
    with styled("varsmooth", **{"font.size": 9}, **clear):  # only the worker's thread draws
        figure = Figure(figsize=(width, height), layout="constrained")
        plot(figure.subplots(), *shown)
        out = io.BytesIO()
        figure.savefig(out, format="svg", metadata={"Date": None})
    return data_url(out.getvalue())


def _write(axes: "Axes", text: str, place: tuple[float, float], shift: float, **style: Any) -> None:
    """Text beside a place, some points to its right."""
    axes.annotate(text, place, (shift, 0), textcoords="offset points", **style)


def plot_votes(
    axes: "Axes", counts: Sequence[int], class_names: Sequence[str], winner: int
) -> None:
    """The votes of f for each class; the predicted class stands out."""
    shown = sorted(range(len(counts)), key=lambda c: -counts[c])[:10]
    places = range(len(shown))
    colours = [ENTRY if c == winner else FAINT for c in shown]
    axes.barh(places, [counts[c] for c in shown], color=colours, height=0.72)
    for place, c in zip(places, shown, strict=True):
        if counts[c]:
            _write(axes, str(counts[c]), (counts[c], place), 3, va="center")
    names = [class_name(c, class_names) for c in shown]
    axes.set_yticks(places, names, parse_math=False)  # a name may have a $
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set(xlim=(0, 1.12 * max(1, sum(counts))), xlabel=f"votes of f, N = {sum(counts)}")


def plot_radius_curve(
    axes: "Axes",
    curve: Sequence[Certificate],
    grid: Sequence[float],
    ways: Mapping[str, Certificate],
    sigma: float,
    label: int | None,
) -> None:
    """The certified radius at each fixed σ, and the σ and radius of each classifier in `ways`.

    `ways` are the classifier in use and the cascade. A cross marks a certificate of a class other
    than the label.
    """
    levels, radii = [c.sigma for c in curve], [c.radius for c in curve]
    axes.plot(levels, radii, color=FAINT, linewidth=2, zorder=1)
    for c in curve:
        wrong = label is not None and c.prediction not in (label, ABSTAIN)
        on_grid = any(math.isclose(c.sigma, s, rel_tol=1e-5) for s in grid)
        marker, size = ("x", 6) if wrong else ("o", 6 if on_grid else 3.5)
        axes.plot(c.sigma, c.radius, marker, color=RADIUS if wrong else INK, markersize=size)
    at_one = next((c for c in curve if math.isclose(c.sigma, sigma, rel_tol=1e-5)), None)
    if at_one is not None:
        around: Any = {"markerfacecolor": "none", "markeredgewidth": 2, "markersize": 15}
        named = f"one σ = {sigma:g}"
        axes.plot(at_one.sigma, at_one.radius, "D", color=CLASS, label=named, zorder=5, **around)
    in_use, *others = ways.items()
    axes.axvline(in_use[1].sigma, color=ENTRY, linewidth=1.4, linestyle=(0, (4, 2)), zorder=0)
    for (way, c), marker, colour in zip((in_use, *others), "os", (ENTRY, CASCADE), strict=False):
        named = f"{'cascade' if way == 'cascade' else 'this image'}: σ = {c.sigma:.3f}"
        size = 11 if marker == "o" else 7
        axes.plot(c.sigma, c.radius, marker, color=colour, markersize=size, label=named, zorder=4)
    top = max(0.1, *radii, *(c.radius for c in ways.values()))
    axes.set_xscale("log")
    ticks = sorted({*grid, sigma})
    axes.set_xticks(ticks, [f"{s:.2f}" for s in ticks])
    axes.xaxis.minorticks_off()
    axes.set(xlabel="noise level σ", ylabel="certified radius", ylim=(-0.04 * top, 1.12 * top))
    axes.grid(axis="x", visible=False)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, fontsize=9, markerscale=0.7)


def plot_draws(
    axes: "Axes", draws: SelectorEvidence, chosen: float, reachable: tuple[float, float]
) -> None:
    """h under noise: a histogram, the median, and how far an attacker can move it."""
    samples = np.clip(draws.samples, -1e9, 1e9)  # h may return infinity, which cannot be drawn
    least, most = float(samples.min()), float(samples.max())
    margin = max(0.15 * (most - least), 0.002 * draws.median)
    left, right = least - margin, most + margin
    low, high = reachable
    axes.axvspan(max(low, left), min(high, right), color=CLASS, alpha=0.12, linewidth=0)
    axes.hist(samples, bins=30, color=FAINT)
    for bound in (low, high):
        if 0 < bound < math.inf:
            axes.axvline(bound, color=CLASS, linewidth=1.2)
    axes.axvline(draws.median, color=INK, linewidth=1.6)
    for end in draws.clip or ():
        if left < end < right:
            axes.axvline(end, color=INK, linewidth=1, linestyle=":")
    if left <= chosen <= right:
        axes.axvline(chosen, color=RADIUS, linewidth=2, linestyle=(0, (4, 2)))
    else:  # outside the histogram
        beyond = chosen > right
        axes.annotate(
            f"σ {chosen:.4f} →" if beyond else f"← σ {chosen:.4f}",
            (0.99 if beyond else 0.01, 0.97),
            xycoords="axes fraction",
            ha="right" if beyond else "left",
            va="top",
            color=RADIUS,
            weight="bold",
        )
    axes.set(xlim=(left, right), xlabel="h(x + ε)", ylabel=f"draws, N_h = {len(samples)}")
    axes.grid(axis="x", visible=False)
    axes.locator_params(axis="x", nbins=5)
    axes.ticklabel_format(axis="x", useOffset=False)


def plot_construction(axes: "Axes", certificate: Certificate) -> None:
    """How a radius is built: R = min over levels of max(entry distance, class radius).

    At a fixed level there is one row, reached at distance 0. A class radius is missing where no
    vote was needed, because no image nearer than R gets that level.
    """
    levels, distances, radii = construction(certificate)
    finite = [v for v in (*distances, *radii.values()) if math.isfinite(v)]
    end = 1.12 * max([0.1, certificate.radius, *finite])
    for row, (level, entry) in enumerate(zip(levels, distances, strict=True)):
        axes.barh(row, min(entry, end), height=0.62, color=ENTRY, alpha=0.3)
        radius = radii.get(level)
        if radius is not None and radius > 0:
            axes.barh(row, radius, height=0.26, color=CLASS, alpha=0.9)
        elif radius is not None:
            _write(axes, "vote lost", (entry, row), 5, va="center")
        safe = max(entry, radius if radius is not None else -math.inf)
        if 0 < safe <= end:
            fill = RADIUS if radius is not None else "white"
            axes.plot(safe, row, "o", color=RADIUS, markerfacecolor=fill, markersize=6, zorder=3)
    axes.axvline(certificate.radius, color=RADIUS, linewidth=1.6, linestyle=(0, (5, 3)))
    shift, side = (4, "left") if certificate.radius < 0.7 * end else (-4, "right")
    place, bold = (certificate.radius, len(levels) - 0.45), {"color": RADIUS, "weight": "bold"}
    _write(axes, f"R = {rounded(certificate.radius)}", place, shift, ha=side, va="bottom", **bold)
    names = [
        ("▸ " if math.isclose(level, certificate.sigma, rel_tol=1e-5) else "") + f"{level:.3f}"
        for level in levels
    ]
    axes.set_yticks(range(len(levels)), names)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.set(xlim=(0, end), ylim=(-0.6, len(levels) + 0.1))
    axes.set(xlabel="ℓ₂ distance of the attacker's image from x", ylabel="level σ")


def construction(
    certificate: Certificate,
) -> tuple[tuple[float, ...], list[float], dict[float, float]]:
    """Levels, their entry distances, and the class radii of those that were visited."""
    radii = {votes.sigma: votes.radius(certificate.ledger) for votes in certificate.votes}
    selector = certificate.selector
    if selector is None or selector.levels is None:
        levels = tuple(sorted(radii))
        return levels, [0.0] * len(levels), radii
    distances = selector.entry_distances(certificate.ledger).tolist()
    return selector.levels, distances, radii
