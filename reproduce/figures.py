"""The paper's figures: its axes and curves, and paired differences where curves coincide.

Same look as `report.figures`: colours that colour-blind readers can tell apart, and a line style
for each guarantee. Sizes and captions stand on the experiment's page, not in the picture.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from reproduce.statistics import Differences, pooled
from varsmooth import bounds
from varsmooth.bounds import Floats
from varsmooth.evaluation.report.figures import LINE_STYLES, Picture, colours, draw_band, styled
from varsmooth.evaluation.report.outcomes import Envelope, Outcomes
from varsmooth.evaluation.report.statistics import certified_accuracy, share_intervals

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Plot = Callable[["Axes"], None]
GREY = "#777777"


def tex(text: str) -> str:
    """Symbols as they are typeset: `g_v*, σ_a = 0.25` → `$g_v^*$, $\\sigma_a = 0.25$`.

    >>> tex("g_v*, σ_a′ = 1")
    "$g_v^*$, $\\\\sigma_a'$ = 1"
    """
    symbols = {
        r"g_v\*": "g_v^*",
        "g_v": "g_v",
        "σ_a′": r"\sigma_a'",
        "σ_([astm])": r"\sigma_#",
        "N_h": "N_h",
        "f_u": "f_u",
        "h_50%": r"h_{50\%}",
        "h_q([lu])": r"h_{q_#}",
        "q_([lu])": r"q_#",
        r"\b([fgh])\b(?![_-])": "#",
        "λ": r"\lambda",
        "γ": r"\gamma",
        "σ": r"\sigma",
    }
    either = "|".join(f"(?:{key})" for key in symbols)

    def typeset(match: "re.Match[str]") -> str:
        for key, value in symbols.items():
            if symbol := re.fullmatch(key, match[0]):
                group = symbol[1] if symbol.groups() else ""
                return f"${value.replace('#', group)}$"
        return match[0]

    return re.sub(either, typeset, text)


@dataclass(frozen=True)
class Figure:
    """Plots on axes, `columns` in a row. height: of one row, width: of all, in inches.

    columns: as several numbers, those of each row, which then has its own legend.
    """

    name: str
    caption: str
    plots: Sequence[Plot]
    columns: int | Sequence[int] | None = None
    height: float = 3.2
    width: float = 0.0


def draw(figure: Figure) -> Picture:
    """The figure in the formats that are committed."""
    from matplotlib.figure import Figure as Canvas

    columns = figure.columns or len(figure.plots)
    each = [columns] * -(-len(figure.plots) // columns) if isinstance(columns, int) else columns
    with styled(figure.name, **{"mathtext.fontset": "dejavusans"}):
        size = (figure.width or max(6.4, 3.3 * max(each)), figure.height * len(each))
        canvas = Canvas(figsize=size, layout="constrained")
        if isinstance(columns, int):
            parts, shapes = [canvas], [(len(each), columns)]
        else:
            parts = list(canvas.subfigures(len(each), 1, squeeze=False)[:, 0])
            shapes = [(1, across) for across in each]
        plots, lines = iter(figure.plots), 0
        for part, shape in zip(parts, shapes, strict=True):
            grid = part.subplots(*shape, squeeze=False)
            for axes in grid.flat:
                if (plot := next(plots, None)) is not None:
                    plot(axes)
                else:
                    axes.set_axis_off()
            _label_outer_panels(grid)
            lines += _add_legends(part, list(grid.flat), size[0], shape[1])
        canvas.set_size_inches(size[0], size[1] + 0.24 * lines)
        return Picture.of(figure.name, figure.caption, canvas)


def _label_outer_panels(grid: Any) -> None:
    """Axes and titles that neighbours share are labelled once: on the left, below, on top."""
    repeated = []
    for (row, column), axes in np.ndenumerate(grid):
        left, above = grid[row, max(0, column - 1)], grid[max(0, row - 1), column]
        if left is not axes and left.get_ylabel() == axes.get_ylabel():
            repeated.append(axes.set_ylabel)
        if above is not axes and above.get_xlabel() == axes.get_xlabel():
            repeated.append(above.set_xlabel)
        if above is not axes and above.get_title() == axes.get_title():
            repeated.append(axes.set_title)
    for clear in repeated:
        clear("")


def _add_legends(part: Any, panels: Sequence["Axes"], width: float, columns: int) -> int:
    """One legend above all panels if it is that of one of them, else one above each panel.

    part: the figure or the row of it; width: in inches. Returns the lines of a shared legend.
    """
    free = [axes for axes in panels if axes.get_legend() is None]
    legends = [axes.get_legend_handles_labels() for axes in free]
    own = [dict(zip(labels, handles, strict=True)) for handles, labels in legends]
    every = {label: handle for labels in own for label, handle in labels.items()}
    look: dict[str, Any] = {"fontsize": 9, "columnspacing": 1.2, "handletextpad": 0.5}
    if not every:
        return 0
    if any(labels.keys() == every.keys() for labels in own):
        look["ncols"], lines = _legend_shape(every, width)
        part.legend(every.values(), every, loc="outside upper center", **look)
        return lines
    for axes, labels in zip(free, own, strict=True):
        if not labels:
            continue
        look["ncols"], _ = _legend_shape(labels, width / columns - 0.9)
        look |= {"title": axes.get_title() or None, "bbox_to_anchor": (0.5, 1.0)}
        axes.legend(labels.values(), labels, loc="lower center", **look)
        axes.set_title("")
    return 0


def _legend_shape(labels: Collection[str], width: float) -> tuple[int, int]:
    """Columns and lines of a legend of this width in inches: 13 characters take an inch."""
    longest = max((_visible_length(label) for label in labels), default=0)
    across = max(1, int(13 * (width + 0.12) / (longest + 6)))
    lines = max(1, -(-len(labels) // across))
    return max(1, -(-len(labels) // lines)), lines


def _visible_length(label: str) -> int:
    return len(re.sub(r"[${}_^]", "", re.sub(r"\\[a-z]+", "x", label)))


# Fig. 2 and 5: certified accuracy against radius


@dataclass(frozen=True)
class Curve:
    """One method's certified accuracy: the best of its runs at each radius.

    dashes: by default those of its guarantee.
    """

    label: str
    runs: Sequence[Outcomes]
    colour: Any = None
    band: bool = False
    dashes: Any = None
    width: float = 1.6

    def accuracy(self, radii: ArrayLike) -> Floats:
        return certified_accuracy(Envelope(self.label, self.runs).reach, radii)

    @property
    def style(self) -> Any:
        return self.dashes or LINE_STYLES[Envelope(self.label, self.runs).guarantee]


def plot_curves(
    axes: "Axes", curves: Sequence[Curve], title: str = "", own_legend: bool = False
) -> None:
    """Certified accuracy in % against radius: one line for each method.

    own_legend: inside, for plots whose lines are not those of their neighbours.
    """
    reaches = [float(run.reach.max()) for curve in curves for run in curve.runs]
    radii = np.linspace(0, 1.02 * max(0.0, *reaches) or 1.0, 401)
    usual = iter(colours(sum(curve.colour is None for curve in curves)))
    for curve in curves:
        colour = curve.colour or next(usual)
        accuracy = curve.accuracy(radii)
        n = len(curve.runs[0])
        if curve.band:
            shown = accuracy > 0
            counts = np.rint(accuracy[shown] * n)
            draw_band(axes, radii[shown], *share_intervals(counts, n), colour)
        until = slice(0, int((accuracy > 0).sum()) + 1)
        line = {"color": colour, "label": tex(curve.label), "linestyle": curve.style}
        axes.plot(radii[until], 100 * accuracy[until], linewidth=curve.width, **line)
    axes.set(xlabel=r"$\ell_2$ radius $r$", ylabel="certified accuracy (%)", xlim=(0, radii[-1]))
    highest = max(float(certified_accuracy(run.reach, 0.0)) for c in curves for run in c.runs)
    axes.set_ylim(0, min(100.0, 10 * float(np.ceil(10 * highest + 0.5))))
    axes.set_title(tex(title))
    if own_legend:
        axes.legend(loc="upper right", fontsize=9)


def plot_certified_gaps(
    axes: "Axes",
    base: Curve,
    curves: Sequence[Curve],
    until: float,
    title: str = "",
    ylabel: str = "minus g at its best σ_s (points)",
) -> None:
    """Certified accuracy minus that of a base curve, in points, as far as a radius.

    Band: the paired 95 % interval of the last curve. Each curve ends at its largest radius.
    """
    radii = np.linspace(0, until, 161)
    axes.axhline(0, color=base.colour or GREY, linewidth=1.2)
    for curve in curves:
        reach = max(float(run.reach.max()) for run in curve.runs)
        shown = radii[radii <= reach]
        gap = 100 * (curve.accuracy(shown) - base.accuracy(shown))
        if curve is curves[-1]:
            ends = np.array([_paired_ends(curve, base, float(r)) for r in shown]).T
            axes.fill_between(shown, *(100 * ends), color=curve.colour, alpha=0.15, linewidth=0)
        style = {"color": curve.colour, "linestyle": curve.style, "label": tex(curve.label)}
        axes.plot(shown, gap, linewidth=curve.width, **style)
    axes.set(xlabel=r"$\ell_2$ radius $r$", ylabel=tex(ylabel), xlim=(0, until))
    axes.set_title(tex(title))


def _paired_ends(one: Curve, other: Curve, radius: float) -> tuple[float, float]:
    """The paired interval of the best run of each at a radius."""
    reaches = [
        max((run.reach >= radius for run in curve.runs), key=lambda c: int(c.sum()))
        for curve in (one, other)
    ]
    gap = reaches[0].astype(float) - reaches[1]
    low, high = pooled([Differences(range(len(gap)), gap)]).interval()
    return low, high


# Fig. 4 and App. A; App. B


def plot_percentile_bounds(axes: "Axes", n: int, a: float, furthest: float = 4.0) -> None:
    """Percentiles of h that bound its median under a shift of D/σ_m: theory, and n samples.

    Theory: Φ(±D/σ_m). With n samples: q_u/n and q_l/n at failure probability a per side, as far
    as such order statistics exist.
    """
    shift = np.linspace(0, furthest, 161)
    indices = [bounds.order_statistics(n, float(z), 1.0, a) for z in shift]
    low, high = np.array(indices, dtype=np.float64).T
    blue, red = colours(2)
    lines = (
        (100 * bounds.normal_cdf(shift), "-", blue, r"$\overline{p}$ (theory)"),
        (np.where(high <= n, 100 * high / n, np.nan), "--", blue, r"$q_u / N_h$"),
        (100 * bounds.normal_cdf(-shift), "-", red, r"$\underline{p}$ (theory)"),
        (np.where(low >= 1, 100 * low / n, np.nan), "--", red, r"$q_l / N_h$"),
    )
    for y, style, colour, label in lines:
        axes.plot(shift, y, style, color=colour, label=label, linewidth=1.6)
    axes.set(xlabel=r"$D / \sigma_m$", ylabel="percentile of $h$ (%)", xlim=(0, furthest))
    axes.set(ylim=(-2, 102), title=f"$N_h$ = {n:,}")


def plot_selector_bounds(axes: "Axes", distances: Floats, means: Floats, title: str) -> None:
    """How far the mean bounds of h lie from its median, in % of it, against the budget D.

    means: lower bound, median, upper bound at each D, (D, 3).
    """
    lower, median, upper = means.T
    blue, red = colours(2)
    for bound, colour, label in (
        (upper, red, "upper bound h_qu"),
        (lower, blue, "lower bound h_ql"),
    ):
        y = 100 * (bound / median - 1)
        axes.plot(distances, y, "o-", color=colour, label=tex(label), markersize=4, linewidth=1.4)
    axes.axhline(0, color=GREY, linewidth=1)
    text, corner = tex(f"h_50% = {float(median[0]):.3f}"), (0.04, 0.04)
    axes.annotate(text, corner, xycoords="axes fraction", fontsize=9)
    axes.set(xlabel="budget $D$", ylabel=tex("bound minus h_50% (%)"), title=tex(title))


# Fig. 6 to 9, App. C: accuracy, and what is gained, paired by image


@dataclass(frozen=True)
class Line:
    """Runs joined in this order: points of clean against robust accuracy.

    model: written once beside the lines of this model. hollow: of a baseline, dashed and hollow.
    filled: the one point of a hollow line that is not: g at σ_s = σ_a.
    """

    label: str
    runs: Sequence[Outcomes]
    model: str = ""
    colour: Any = None
    filled: int | None = None
    hollow: bool = False
    marker: str = "o"


def plot_plane(axes: "Axes", lines: Sequence[Line], title: str = "") -> None:
    """Accuracy under attack against accuracy without, in %; the first point of a line is larger.

    A single model is named in the title, several beside their lines.
    """
    models: dict[str, list[Any]] = {}
    for line in lines:
        x = np.array([100 * float(run.clean_correct.mean()) for run in line.runs])
        y = np.array([100 * float(run.correct.mean()) for run in line.runs])
        look: dict[str, Any] = {"marker": line.marker, "color": line.colour}
        look["markerfacecolor"] = "white" if line.hollow else line.colour
        dashes = "--" if line.hollow else "-"
        axes.plot(x, y, dashes, markersize=5, linewidth=1.2, label=tex(line.label), **look)
        if len(x) > 1:
            axes.plot(x[0], y[0], markersize=9, label="_first", **look)
        if line.filled is not None:
            axes.plot(x[line.filled], y[line.filled], line.marker, color=line.colour, label="_at")
        models.setdefault(line.model, []).append(np.array([x, y]))
    axes.margins(x=0.15, y=0.14)
    if len(models) > 1:
        _name_models(axes, models)
    else:
        title = ", ".join(filter(None, [*models, title]))
    axes.set(xlabel="clean accuracy (%)", ylabel="accuracy under attack (%)", title=tex(title))


SIDES = ((0, -1), (0, 1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1))
"""Where a name may stand beside its lines, from the preferred place on: below, above, right, …"""


def _name_models(axes: "Axes", models: Mapping[str, Sequence[Floats]]) -> None:
    """Each model's name beside its lines (2, n), where it covers the least of all lines."""
    axes.autoscale_view()
    to_pixels, share = axes.transData, np.linspace(0, 1, 20)[:, None]
    lines = [to_pixels.transform(line.T) for each in models.values() for line in each]
    covered = [(1 - share) * a + share * b for line in lines for a, b in pairwise([line[0], *line])]
    for model in filter(None, models):
        ends = to_pixels.transform(np.concatenate(models[model], axis=1).T)
        centre, half = (ends.max(axis=0) + ends.min(axis=0)) / 2, np.ptp(ends, axis=0) / 2
        size = np.array([7.5 * _visible_length(tex(model)), 14.0])
        places = [centre + np.array(side) * (half + size / 2 + 12) for side in SIDES]
        costs = [_overlap(axes, place, size, np.concatenate(covered)) for place in places]
        best = int(np.argmin(costs))
        covered.append(places[best] + (share - 0.5) * size * (1, 0))
        nearest = min(ends.tolist(), key=lambda end: float(np.square(end - places[best]).sum()))
        axes.annotate(
            tex(model),
            tuple(to_pixels.inverted().transform(nearest)),
            tuple(to_pixels.inverted().transform(places[best])),
            ha="center",
            va="center",
            fontsize=9,
            arrowprops={"arrowstyle": "-", "color": GREY, "linewidth": 0.7, "shrinkB": 4},
        )


def _overlap(axes: "Axes", centre: Floats, size: Floats, covered: Floats) -> float:
    """How many of the covered pixels (n, 2) a text would hide; inf beyond the axes."""
    if not all(axes.bbox.contains(*(centre + end * size / 2)) for end in (-1, 1)):
        return np.inf
    return float((np.abs(covered - centre) < size / 2 + 3).all(axis=1).sum())


@dataclass(frozen=True)
class Gaps:
    """Paired differences at some values of a setting, such as λ."""

    label: str
    x: Sequence[float]
    differences: Sequence[Differences]
    colour: Any = None


PAIRED = "with paired 95 % intervals over images (hollow: the same on every image)"
"""What `plot_gaps` draws, for captions."""


def plot_gaps(
    axes: "Axes", series: Sequence[Gaps], ylabel: str, title: str = "", xlabel: str = "λ"
) -> None:
    """Differences in points with paired 95 % intervals over images, side by side at each x.

    A single series is named in the title; several at a single x have each a place of its own.
    """
    values = sorted({x for gaps in series for x in gaps.x})
    places, names = values, [f"{x:g}" for x in values]
    spread = len(series) > 1 and len(values) == 1
    if spread:
        title, xlabel = ", ".join(filter(None, [title, f"{xlabel} = {names[0]}"])), ""
        places, names = [float(k) for k in range(len(series))], [tex(one.label) for one in series]
    elif len(series) == 1:
        title = title or series[0].label.lstrip("_")
    step = min((b - a for a, b in pairwise(places)), default=0.1)
    axes.axhline(0, color=GREY, linewidth=1)
    for k, (gaps, usual) in enumerate(zip(series, colours(len(series)), strict=True)):
        estimates = [pooled([one]) for one in gaps.differences]
        x = np.array([float(k)] if spread else gaps.x)
        x = x + (0 if spread else 0.6 * step * ((k + 0.5) / len(series) - 0.5))
        y = np.array([100 * one.value for one in estimates])
        ends = np.array([one.interval() for one in estimates]).T
        colour = gaps.colour or usual
        axes.errorbar(
            x,
            y,
            yerr=np.abs(100 * ends - y),
            fmt="o",
            color=colour,
            markersize=4.5,
            elinewidth=1.1,
            capsize=2,
            label=tex(gaps.label) if len(series) > 1 and not spread else None,
        )
        certain = np.array([one.error == 0 for one in estimates])
        hollow: dict[str, Any] = {
            "color": colour,
            "markerfacecolor": "white",
            "markersize": 4.5,
            "zorder": 3,
        }
        axes.plot(x[certain], y[certain], "o", **hollow)
    axes.set(xlabel=tex(xlabel), ylabel=tex(ylabel), title=tex(title))
    axes.set_xticks(places, names)
    axes.set_xlim(places[0] - 0.6 * step, places[-1] + 0.6 * step)


def plot_lines(
    axes: "Axes",
    lines: Sequence[tuple[str, Sequence[float], Sequence[float], Any, str]],
    xlabel: str,
    ylabel: str,
) -> None:
    """(label, x, y, colour, style) of each line."""
    for label, x, y, colour, style in lines:
        filled = "white" if style.endswith("--") else colour
        look: dict[str, Any] = {"color": colour, "markerfacecolor": filled, "label": tex(label)}
        axes.plot(x, y, style, markersize=4.5, linewidth=1.3, **look)
    axes.set(xlabel=tex(xlabel), ylabel=tex(ylabel), title="")
