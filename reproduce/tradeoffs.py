"""Clean against robust accuracy: a method as a line of points, one for each of its settings."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from varsmooth.report.figures import colours
from varsmooth.report.outcomes import Outcomes
from varsmooth.report.statistics import Share

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
