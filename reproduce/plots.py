"""The kinds of figures that the paper draws: methods against each other.

Same look as `report.figures`: a colour for each method, a line style for each guarantee.
"""

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from varsmooth import bounds
from varsmooth.bounds import Floats
from varsmooth.evaluation.report.figures import (
    LINE_STYLES,
    Picture,
    colours,
    draw_band,
    legend_above,
    styled,
)
from varsmooth.evaluation.report.outcomes import Envelope, Outcomes
from varsmooth.evaluation.report.statistics import Share, certified_accuracy, share_intervals

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw(
    name: str,
    caption: str,
    *plots: Callable[["Axes"], None],
    legend: str | None = "upper right",
    height: float = 4.2,
    columns: int | None = None,
    footnote: str = "",
) -> Picture:
    """Draw plots side by side, or `columns` in a row.

    The legend stands at its place inside, or above if it is long or for several plots; "each":
    one inside every plot; None: none. The footnote stands below everything in small type.
    """
    from matplotlib.figure import Figure

    columns = columns or len(plots)
    lines = -(-len(plots) // columns)
    with styled(name):
        figure = Figure(figsize=(max(7.2, 3.2 * columns), height * lines), layout="constrained")
        places = figure.subplots(lines, columns, squeeze=False).flat
        for axes, plot in zip(places, plots, strict=False):
            plot(axes)
        for axes in places[len(plots) :]:
            axes.set_axis_off()
        labels = places[0].get_legend_handles_labels()[1]
        if legend == "each":
            for axes in places[: len(plots)]:
                if axes.get_legend_handles_labels()[1]:
                    axes.legend(fontsize=8)
        elif legend and len(plots) == 1 and len(labels) <= 6:
            places[0].legend(loc=legend)
        elif legend:
            legend_above(figure, places[0])
        if footnote:
            _write_below(figure, footnote)
        return Picture.of(name, caption, figure)


def _write_below(figure: "Figure", text: str) -> None:
    """Small print under a figure, which grows by as much."""
    width, tall = figure.get_size_inches()
    wrapped = textwrap.wrap(text, int(19 * width))
    room = 0.135 * len(wrapped) + 0.1
    figure.set_size_inches(width, tall + room)
    figure.get_layout_engine().set(rect=(0, room / (tall + room), 1, tall / (tall + room)))  # type: ignore[call-arg,union-attr]
    figure.text(
        0.01, 0.04 / (tall + room), "\n".join(wrapped), fontsize=7, color="#444444", va="bottom"
    )


@dataclass(frozen=True)
class Curve:
    """One method's certified accuracy: the best of its runs at each radius."""

    label: str
    runs: Sequence[Outcomes]
    colour: Any = None
    band: bool = False

    def accuracy(self, radii: ArrayLike) -> Floats:
        return certified_accuracy(Envelope(self.label, self.runs).reach, radii)


def plot_curves(axes: "Axes", curves: Sequence[Curve], title: str = "") -> None:
    """Certified accuracy in % against radius: one line for each method, styled by its guarantee."""
    reaches = [float(run.reach.max()) for curve in curves for run in curve.runs]
    radii = np.linspace(0, 1.05 * max(0.0, *reaches) or 1.0, 401)
    for curve, usual in zip(curves, colours(len(curves)), strict=True):
        colour = curve.colour or usual
        accuracy = curve.accuracy(radii)
        n = len(curve.runs[0])
        if curve.band:
            shown = accuracy > 0
            counts = np.rint(accuracy[shown] * n)
            draw_band(axes, radii[shown], *share_intervals(counts, n), colour)
        until = slice(0, int((accuracy > 0).sum()) + 1)
        axes.plot(
            radii[until],
            100 * accuracy[until],
            LINE_STYLES[Envelope(curve.label, curve.runs).guarantee],
            color=colour,
            label=curve.label,
        )
    axes.set(xlabel="ℓ₂ radius r", ylabel="certified accuracy (%)", xlim=(0, radii[-1]))
    highest = max(float(certified_accuracy(run.reach, 0.0)) for c in curves for run in c.runs)
    axes.set_ylim(0, min(100.0, 10 * float(np.ceil(10 * highest + 0.8))))
    axes.set_title(title)


def plot_percentile_bounds(axes: "Axes", n: int, a: float, furthest: float = 4.0) -> None:
    """Percentiles of h that bound its median under a shift of D/σ_m: theory, and n samples.

    Theory: Φ(±D/σ_m). With n samples: q_u/n and q_l/n at failure probability a per side, as far
    as such order statistics exist.
    """
    shift = np.linspace(0, furthest, 81)
    indices = [bounds.order_statistics(n, float(z), 1.0, a) for z in shift]
    low, high = np.array(indices, dtype=np.float64).T
    blue, red = colours(2)
    axes.plot(shift, 100 * bounds.normal_cdf(shift), color=blue, label="p̄ (theory)")
    axes.plot(
        shift, np.where(high <= n, 100 * high / n, np.nan), "--", color=blue, label="q_u / N_h"
    )
    axes.plot(shift, 100 * bounds.normal_cdf(-shift), color=red, label="p̲ (theory)")
    axes.plot(shift, np.where(low >= 1, 100 * low / n, np.nan), "--", color=red, label="q_l / N_h")
    axes.set(xlabel="D / σ_m", ylabel="percentile of h (%)", title=f"N_h = {n:,}")
    axes.set(xlim=(0, furthest), ylim=(0, 101))
    axes.legend(loc="center right", fontsize=8)


def plot_selector_bounds(
    axes: "Axes", distances: Floats, lower: Floats, median: Floats, upper: Floats, title: str
) -> None:
    """Mean bounds of the selector's output against the budget D, as far as there are any."""
    blue, red, green = colours(3)
    axes.plot(distances, upper, "o-", color=red, label="upper bound h_qu", markersize=4)
    axes.plot(distances, median, "o-", color=green, label="median h_50%", markersize=4)
    axes.plot(distances, lower, "o-", color=blue, label="lower bound h_ql", markersize=4)
    axes.set(xlabel="budget D", ylabel="mean σ_s", title=title)
    low, high = np.nanmin([lower, 0.9 * median]), np.nanmax([upper, 1.1 * median])
    axes.set_ylim(0.98 * float(low), 1.02 * float(high))


@dataclass(frozen=True)
class Points:
    """A line of points (x, share of images), one for each setting of a method."""

    label: str
    x: Sequence[float]
    shares: Sequence[Share]
    names: Sequence[str] = ()
    colour: Any = None
    filled: bool = True


def plot_points(axes: "Axes", series: Sequence[Points], xlabel: str, ylabel: str) -> None:
    """Accuracy in % of each point with its 95 % interval, joined within a series."""
    from matplotlib.colors import to_rgba

    for points, usual in zip(series, colours(len(series)), strict=True):
        value = np.array([share.value for share in points.shares])
        ends = np.array([share.interval() for share in points.shares]).T
        axes.errorbar(
            points.x,
            100 * value,
            yerr=100 * np.abs(ends - value),
            fmt="o-" if points.filled else "s--",
            markerfacecolor=None if points.filled else "white",
            color=points.colour or usual,
            ecolor=to_rgba(points.colour or usual, 0.35),
            markersize=5,
            linewidth=1.3,
            elinewidth=0.8,
            capsize=2,
            label=points.label,
        )
        for x, y, name in zip(points.x, 100 * value, points.names, strict=False):
            axes.annotate(name, (x, y), textcoords="offset points", xytext=(4, 4), fontsize=7)
    axes.set(xlabel=xlabel, ylabel=ylabel)


@dataclass(frozen=True)
class ChosenLevels:
    """What one selector chooses: mean and standard deviation of σ_s at each λ."""

    label: str
    lams: Sequence[float]
    means: Sequence[float]
    spreads: Sequence[float]


def plot_levels(axes: "Axes", lines: Sequence[ChosenLevels], target: float) -> None:
    """Mean σ_s ± standard deviation over images against λ, and the level that λ → 1 aims at."""
    for k, (line, colour) in enumerate(zip(lines, colours(len(lines)), strict=True)):
        axes.errorbar(
            np.asarray(line.lams) + 0.004 * (k - len(lines) / 2),
            line.means,
            yerr=line.spreads,
            fmt="o-",
            color=colour,
            markersize=5,
            linewidth=1.3,
            elinewidth=0.8,
            capsize=2,
            label=line.label,
        )
    axes.axhline(target, linestyle="--", color="#777777", linewidth=1)
    axes.set(xlabel="λ", ylabel="σ_s")
    axes.set_ylim(0, 1.35 * target)


@dataclass(frozen=True)
class Line:
    """Attack runs of one budget each, joined in this order; the first of several is drawn larger.

    label: for the legend; one that begins with _ is left out of it. names: beside the points.
    filled, dashed: the look of the points and of what joins them.
    """

    label: str
    runs: Sequence[Outcomes]
    names: Sequence[str] = ()
    colour: Any = None
    filled: bool = True
    dashed: bool = False
    marker: str = "o"


def plot_tradeoff(axes: "Axes", lines: Sequence[Line], title: str = "") -> None:
    """Accuracy under attack against accuracy without, in %, with pale 95 % intervals of both.

    Right and up is better. Points of one data set move together: their differences are far more
    certain than the intervals of each.
    """
    for line, usual in zip(lines, colours(len(lines)), strict=True):
        colour = line.colour or usual
        shares = [(Share.of(run.clean_correct), Share.of(run.correct)) for run in line.runs]
        x, y = np.array([[100 * share.value for share in pair] for pair in shares]).T
        ends = np.array([[share.interval() for share in pair] for pair in shares])  # (runs, 2, 2)
        across, along = np.abs(100 * ends - np.stack([x, y], axis=1)[:, :, None]).transpose(1, 2, 0)
        axes.errorbar(x, y, along, across, fmt="none", ecolor=colour, elinewidth=0.7, alpha=0.25)
        look = {"marker": line.marker, "color": colour}
        look["markerfacecolor"] = colour if line.filled else "white"
        dashes = "--" if line.dashed else "-"
        axes.plot(x, y, dashes, markersize=5, linewidth=1.3, label=line.label, **look)
        if len(x) > 1:
            axes.plot(x[0], y[0], markersize=9, label="_first", **look)
        for at_x, at_y, name in zip(x, y, line.names, strict=False):
            axes.annotate(
                name,
                (at_x, at_y),
                textcoords="offset points",
                xytext=(6, -10),
                fontsize=7,
                color=colour,
            )
    axes.set(xlabel="clean accuracy (%)", ylabel="accuracy under attack (%)", title=title)
