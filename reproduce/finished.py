"""Figures of the experiments that have left the code, drawn once more from their records."""

import csv
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from reproduce.comparisons import TABLE_2, Committed, conditioning, converged, relative_width
from reproduce.figures import GREY, Figure, Gaps, draw, plot_gaps, tex
from reproduce.records import CONFIG
from reproduce.statistics import Differences, pooled
from varsmooth.evaluation.report.figures import colours

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Lines = Sequence[dict[str, str]]


def plot_passes(axes: "Axes", lines: Lines, kind: str, title: str) -> None:
    """Width or gain over the passes, on training images and on others, for each λ."""
    for lam, colour in zip(("0.0", "0.1", "0.2"), colours(3), strict=True):
        clip = next(c for (s, each), c in TABLE_2.items() if (s, f"{each:.1f}") == (0.25, lam))
        for images, style in (("training", "o-"), ("held-out", "s--")):
            mine = [one for one in lines if (one["λ"], one["images"]) == (lam, images)]
            x, y = (np.array([float(one[key]) for one in mine]) for key in ("passes", kind))
            face = "white" if "--" in style else colour
            label = tex(f"λ = {float(lam):g}, {images} images")
            look: dict[str, Any] = {"color": colour, "markerfacecolor": face, "label": label}
            axes.plot(x, 100 * y if "%" in kind else y, style, markersize=4, linewidth=1.2, **look)
        if "%" in kind:
            label = tex(f"λ = {float(lam):g}, clip of Table 2")
            axes.axhline(100 * relative_width(clip), color=colour, linestyle=":", label=label)
        else:
            axes.axhline(0, color=GREY, linewidth=1)
    axes.set_xscale("symlog", linthresh=1, linscale=0.5)
    ticks = sorted({int(line["passes"]) for line in lines})
    axes.set_xticks(ticks, [str(tick) for tick in ticks], fontsize=8)
    axes.minorticks_off()
    axes.set_xlim(-0.15, 1.2 * ticks[-1])
    axes.set(xlabel="passes over the training images", title=tex(title))
    axes.set_ylabel(tex("width of σ_s (% of its middle)" if "%" in kind else "gain in the loss"))


def memorisation(folder: Path) -> Figure:
    with (folder / "memorisation.csv").open(encoding="utf-8", newline="") as file:
        lines = [line for line in csv.DictReader(file) if line["λ"]]
    models = list(dict.fromkeys(line["model"] for line in lines))
    plots = [
        partial(
            plot_passes,
            lines=[x for x in lines if x["model"] == m],
            kind=kind,
            title=m.replace("overfitted f with", "f with"),
        )
        for kind in ("width %", "gain")
        for m in models
    ]
    columns = len(models) if len(models) > 1 else 2
    return Figure("memorisation", "", plots, columns, height=3.2, width=9.0)


def plot_variants(axes: "Axes", facts: dict[str, Any]) -> None:
    """σ_s against λ; the reference stands on the ticks."""
    start = "σ_s on held-out images: "
    points: dict[str, list[tuple[float, list[float]]]] = {}
    for name, values in facts.items():
        if name.startswith(start):
            variant, lam = name.removeprefix(start).rsplit(", λ = ", 1)
            points.setdefault(variant, []).append((float(lam), values))
    places = dict(zip(points, (0.0, 0.006, 0.006, -0.012, -0.006, 0.012, 0.018), strict=True))
    for (variant, each), colour in zip(points.items(), colours(len(points)), strict=True):
        x, y, sd = (np.array(v) for v in zip(*((lam, *v[:2]) for lam, v in each), strict=True))
        alone = len(each) == 1
        label = tex(variant.replace("rewarded for radius", "rewarded for the radius"))
        axes.errorbar(
            x + places[variant],
            y,
            yerr=sd,
            fmt="D" if alone else "o-",
            markersize=6 if alone else 5,
            markerfacecolor="white" if alone else colour,
            color=colour,
            capsize=2,
            zorder=4 if alone else 2,
            label=label,
        )
    axes.axhline(0.5, color=GREY, linestyle="--", linewidth=1.2, label=tex("target σ_t"))
    axes.set_xticks((0, 0.2, 0.4), ("0", "0.2", "0.4"))
    axes.set(xlabel=tex("λ"), ylabel=tex("σ_s"), ylim=(0, 0.6), xlim=(-0.04, 0.45))


def plot_converged(axes: "Axes", cases: dict[str, Differences]) -> None:
    """One line for each changed setting."""
    blue = colours(1)[0]
    axes.axvline(0, color=GREY, linewidth=1)
    for place, gap in enumerate(cases.values()):
        one = pooled([gap])
        low, high = one.interval()
        look: dict[str, Any] = {"color": blue, "capsize": 2, "markersize": 6}
        look["markerfacecolor"] = blue if one.error else "white"
        ends = [[100 * (one.value - low)], [100 * (high - one.value)]]
        axes.errorbar([100 * one.value], [place], xerr=ends if one.error else None, fmt="o", **look)
    axes.set_yticks(range(len(cases)), [tex(title) for title in cases], fontsize=9)
    axes.invert_yaxis()
    axes.set_xlabel("difference in robust accuracy (points)")


def plot_conditioning(axes: "Axes", cases: dict[str, Differences]) -> None:
    series = [Gaps("", range(len(cases)), [*cases.values()])]
    plot_gaps(axes, series, "with σ minus without (points)", xlabel="σ_s")
    axes.set_xticks(range(len(cases)), [title.split("= ")[1] for title in cases])


def figure_of(folder: Path) -> Figure:
    name = json.loads((folder / CONFIG).read_text(encoding="utf-8"))["experiment"]
    evidence = Committed(folder)
    if name == "ablation":
        plot = partial(plot_variants, facts=evidence.facts)
        return Figure("variants", "", [plot], height=4.2, width=7.5)
    if name == "conditioning":
        plot = partial(plot_conditioning, cases=dict(conditioning()(evidence)))
        return Figure(name, "", [plot], height=3.4, width=5.5)
    if name == "attack-convergence":
        cases = dict(converged()(evidence))
        height = 0.8 + 0.34 * len(cases)
        return Figure(name, "", [partial(plot_converged, cases=cases)], height=height, width=7.0)
    return memorisation(folder)


HOLLOW = "; paired 95 % intervals over images (hollow: the same on every image)."

if __name__ == "__main__":
    for where in (
        *("memorisation", "long-run", "ablation", "attack-convergence", "conditioning"),
        "wide/attack-convergence",
    ):
        folder = Path("results") / where
        picture = draw(figure_of(folder))
        (folder / f"{picture.name}.png").write_bytes(picture.png)
        (folder / f"{picture.name}.svg").write_bytes(picture.svg.encode())
        text = (folder / CONFIG).read_text(encoding="utf-8")
        text = text.replace("; paired 95 % intervals over images.", HOLLOW)
        (folder / CONFIG).write_text(text, encoding="utf-8")
