"""Every figure of a report: functions that draw runs on axes.

One look for all: a colour for each run, safe for colour-blind readers, and a line style for each
guarantee: solid `sound`, dashed `conditional`, dotted `heuristic`.
"""

import io
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from varsmooth.bounds import Floats
from varsmooth.evaluation.report.outcomes import Envelope, Outcomes, shared_images
from varsmooth.evaluation.report.pages import data_url
from varsmooth.evaluation.report.statistics import (
    PairedDifference,
    Share,
    certified_accuracy,
    certified_counts,
    share_intervals,
    sigma_groups,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LINE_STYLES = {"sound": "-", "conditional": "--", "heuristic": ":", None: "-"}

SIGMA_AXIS = "σ of the image (pixels in [0, 1])"
STYLE = Path(__file__).with_name("figures.mplstyle")
POINTS: dict[str, Any] = {"marker": "o", "markersize": 5, "elinewidth": 1.1, "capsize": 2.5}

# Okabe and Ito's palette without its yellow, which is too pale on white.
_PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")

MISSING = (
    "matplotlib is not installed, so there are no figures; install it with: pip install matplotlib"
)


def have_matplotlib() -> bool:
    """Whether the optional dependency matplotlib is installed; does not import it."""
    return find_spec("matplotlib") is not None


@dataclass(frozen=True)
class Picture:
    """A figure in the formats it is written in."""

    name: str
    caption: str
    png: bytes
    svg: str

    @classmethod
    def of(cls, name: str, caption: str, figure: "Figure") -> "Picture":
        png, svg = io.BytesIO(), io.StringIO()
        figure.savefig(png, format="png", dpi=160, metadata={"Software": None})
        figure.savefig(svg, format="svg", metadata={"Date": None})
        return cls(name, caption, png.getvalue(), svg.getvalue())

    @property
    def url(self) -> str:
        return data_url(self.svg.encode())


def draw(
    name: str, caption: str, plot: Callable[["Axes"], None], height: float = 4.2
) -> list[Picture]:
    """Draw on axes and return PNG and SVG; an empty list without matplotlib.

    A long legend stands above the axes.
    """
    if not have_matplotlib():
        return []
    from matplotlib.figure import Figure

    with styled(name):
        figure = Figure(figsize=(7.2, height), layout="constrained")
        plot(axes := figure.subplots())
        labels = axes.get_legend_handles_labels()[1]
        if len(labels) > 6:
            legend_above(figure, axes)
        elif labels:
            axes.legend()
        return [Picture.of(name, caption, figure)]


def styled(name: str, **more: Any) -> AbstractContextManager[None]:
    """The style of every figure; the same name gives the same SVG every time."""
    import matplotlib

    style: Any = dict(matplotlib.rc_params_from_file(STYLE, use_default_template=False))
    return matplotlib.rc_context(style | {"svg.hashsalt": name, **more})


def legend_above(figure: "Figure", axes: "Axes") -> None:
    """The legend of `axes` above the whole figure, which grows by as much."""
    handles, labels = axes.get_legend_handles_labels()
    width, tall = figure.get_size_inches()
    across = 3 if max(map(len, labels), default=0) <= 24 else 2
    figure.set_size_inches(width, tall + 0.2 * -(-len(labels) // across))
    figure.legend(handles, labels, loc="outside upper center", ncols=across, fontsize=8)


def colours(n: int) -> list[Any]:
    """n colours that differ; beyond seven, steps along one scale from dark to light."""
    if n <= len(_PALETTE):
        return list(_PALETTE[:n])
    from matplotlib import colormaps

    return [colormaps["viridis"](0.9 * i / (n - 1)) for i in range(n)]


def literal(name: str) -> str:
    """A label that shows this name: matplotlib reads $…$ as mathematics, and hides _names.

    >>> literal("$$"), literal("_mine")
    ('\\\\$\\\\$', ' _mine')
    """
    return (" " * name.startswith("_") + name).replace("$", r"\$")


def _line(run: Outcomes | Envelope, colour: Any) -> dict[str, Any]:
    """How a run is drawn: its colour, the line style of its guarantee, and both in words."""
    name = run.name if isinstance(run, Outcomes) else f"envelope of {run.label}"
    label = f"{name} ({run.guarantee})" if run.guarantee else name
    return {"color": colour, "linestyle": LINE_STYLES[run.guarantee], "label": literal(label)}


def draw_band(axes: "Axes", x: Floats, low: Floats, high: Floats, colour: Any) -> None:
    """Pointwise intervals of shares as a pale band in %."""
    axes.fill_between(x, 100 * low, 100 * high, color=colour, alpha=0.13, linewidth=0)


def plot_certified_accuracy(
    axes: "Axes", runs: Sequence[Outcomes], envelopes: Sequence[Envelope] = ()
) -> None:
    """Certified accuracy against radius: one curve for each run, a grey one for each envelope."""
    curves: list[Outcomes | Envelope] = [*runs, *envelopes]
    radii = _fine_radii(curves)
    greys = map(str, np.linspace(0.5, 0.75, len(envelopes)))
    tones = [*colours(len(runs)), *greys]
    for place, (curve, colour) in enumerate(zip(curves, tones, strict=True)):
        accuracy, look = 100 * certified_accuracy(curve.reach, radii), _line(curve, colour)
        above = accuracy > 0
        if isinstance(curve, Envelope):
            look |= {"linewidth": 3.2, "alpha": 0.8, "zorder": 1.5}
        else:
            low, high = share_intervals(certified_counts(curve.reach, radii), len(curve))
            draw_band(axes, radii[above], low[above], high[above], colour)
            look["linewidth"] = 1.7 + 1.1 * (len(runs) - 1 - place) / max(len(runs) - 1, 1)
            if (most := curve.largest_radius) is not None and most <= radii[-1]:
                axes.axvline(most, color=colour, linewidth=0.8, alpha=0.6)
        until = slice(0, int(above.sum()) + 1)  # a falling curve above 0, and one point more
        axes.plot(radii[until], accuracy[until], **look)
    axes.set(xlabel="ℓ₂ radius r", ylabel="certified accuracy (%)", xlim=(0, radii[-1]))
    highest = max(float(certified_accuracy(curve.reach, 0.0)) for curve in curves)
    axes.set_ylim(0, min(100, 10 * np.ceil(10 * highest + 0.8)))  # a round number above it


def plot_differences(axes: "Axes", runs: Sequence[Outcomes], baseline: Outcomes) -> None:
    """Certified accuracy of each run minus the baseline's, paired by image, with 95 % bands."""
    radii = _fine_radii(runs)[:: 2 if len(runs) < 4 else 4]
    axes.axhline(0, color="#555555", linewidth=1)
    for run, colour in zip(runs, colours(len(runs)), strict=True):
        if run is baseline or (pair := shared_images(run, baseline)) is None:
            continue
        one, other = pair
        gaps = [PairedDifference.of(one.reach >= r, other.reach >= r) for r in radii]
        low, high = np.array([gap.interval() for gap in gaps]).T
        draw_band(axes, radii, low, high, colour)
        axes.plot(radii, [100 * gap.value for gap in gaps], **_line(run, colour))
    axes.set(
        xlabel="ℓ₂ radius r", xlim=(0, radii[-1]), ylabel=literal(f"points above {baseline.name}")
    )


def plot_sigma_distribution(axes: "Axes", runs: Sequence[Outcomes]) -> None:
    """The σ of the images: one histogram per run, scaled to its highest bar; a triangle marks the
    median.
    """
    every = np.concatenate([run.sigmas for run in runs])
    low, high = every.min(), every.max()
    half = max((high / low) ** (0.5 / 49), 1.01)  # of a bin; the extreme values are bin centres
    edges = np.geomspace(low / half, high * half, 51)
    places = reversed(range(len(runs)))  # the first run above the others
    for run, base, colour in zip(runs, places, colours(len(runs)), strict=True):
        count, _ = np.histogram(run.sigmas, edges)
        heights = base + 0.8 * count / count.max()
        axes.stairs(heights, edges, baseline=base, fill=True, color=colour, alpha=0.85)
        axes.axhline(base, color="#999999", linewidth=0.7)
        median = float(np.median(run.sigmas))
        axes.plot(median, base - 0.07, marker="^", color=colour, markersize=6, clip_on=False)
    axes.set_yticks(range(len(runs)), [literal(run.name) for run in reversed(runs)])
    axes.set(xscale="log", xlabel=SIGMA_AXIS, ylim=(-0.2, len(runs)))
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    _plain_log_ticks(axes, np.unique(every))


def plot_accuracy_by_sigma(axes: "Axes", runs: Sequence[Outcomes]) -> None:
    """Accuracy of images with similar σ, with 95 % intervals."""
    for run, colour in zip(runs, colours(len(runs)), strict=True):
        groups = sigma_groups(run.sigmas)
        shares = [Share.of(run.correct[group]) for group in groups]
        value = np.array([share.value for share in shares])
        ends = np.array([share.interval() for share in shares]).T  # (2, groups)
        axes.errorbar(
            [float(np.median(run.sigmas[group])) for group in groups],
            100 * value,
            yerr=100 * np.abs(ends - value),
            **POINTS,
            **_line(run, colour),
        )
    certify = runs[0].verb == "certify"
    axes.set(xscale="log", xlabel=SIGMA_AXIS, ylim=(0, 103))
    axes.set_ylabel("certified right (%)" if certify else "accuracy (%)")
    _plain_log_ticks(axes, np.unique(np.concatenate([run.sigmas for run in runs])))


def plot_robust_accuracy(axes: "Axes", runs: Sequence[Outcomes]) -> None:
    """Accuracy under attack against its budget ε, from clean accuracy at ε = 0 on."""
    for run, colour in zip(runs, colours(len(runs)), strict=True):
        budgets = run.budgets()
        shares = [Share.of(run.clean_correct[run.eps == budgets[0]])]
        shares += [Share.of(run.correct[run.eps == eps]) for eps in budgets]
        low, high = np.array([share.interval() for share in shares]).T
        at = np.array([0.0, *budgets])
        draw_band(axes, at, low, high, colour)
        values = [100 * share.value for share in shares]
        axes.plot(at, values, "o-", color=colour, label=literal(run.name))
    axes.set(xlabel="ℓ₂ budget ε of the attack", ylabel="accuracy under attack (%)", ylim=(0, 100))
    axes.set_xlim(left=0)


def plot_clean_against_robust(axes: "Axes", runs: Sequence[Outcomes]) -> None:
    """Accuracy under the largest attack against accuracy without one, a point for each run."""
    for run, colour in zip(runs, colours(len(runs)), strict=True):
        at = run.select(run.eps == run.budgets()[-1])
        clean, robust = Share.of(at.clean_correct), Share.of(at.correct)
        errors = [
            [
                [100 * (share.value - share.interval().low)],
                [100 * (share.interval().high - share.value)],
            ]
            for share in (clean, robust)
        ]
        label = literal(f"{run.name}, ε = {run.budgets()[-1]:g}")
        place = (100 * clean.value, 100 * robust.value)
        sideways, upright = errors
        axes.errorbar(*place, upright, sideways, color=colour, label=label, linestyle="", **POINTS)
    axes.set(xlabel="accuracy without attack (%)", ylabel="accuracy under attack (%)")


def _fine_radii(runs: Sequence[Outcomes | Envelope]) -> Floats:
    """Where curves are evaluated: 400 steps to just beyond the largest radius certified right."""
    furthest = max(0.0, *(float(run.reach.max()) for run in runs))
    return np.linspace(0, 1.05 * furthest or 1.0, 401)


def _plain_log_ticks(axes: "Axes", levels: Floats) -> None:
    """The levels in use, if they are few and well separated; otherwise round numbers."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

    low, high = axes.get_xlim()
    axes.set_xlim(low / 1.1, high * 1.1)
    usual = [digit * 10.0**power for power in range(-4, 3) for digit in (1, 2.5, 5)]
    inside = [number for number in usual if low / 1.1 <= number <= high * 1.1]
    apart = len(levels) <= 8 and bool((np.diff(np.log(levels)) > 0.1).all())
    locator = FixedLocator(inside) if len(inside) >= 3 else MaxNLocator(5)
    if apart:
        locator = FixedLocator(levels.tolist())
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}"))
    axes.xaxis.set_minor_locator(NullLocator())
