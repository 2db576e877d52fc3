"""What a reader needs to tell curves apart: names that cover none of them, legends, symbols."""

from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from reproduce.figures import (
    Figure,
    Gaps,
    Line,
    _add_legends,
    draw,
    plot_gaps,
    plot_plane,
    tex,
)
from reproduce.records import outcomes_of
from reproduce.statistics import Differences
from varsmooth.evaluation.report.outcomes import Outcomes


def run(clean: int, robust: int) -> Outcomes:
    """An attack on 100 images, of which so many are right before it and under it."""
    rows = [
        {"id": i, "label": 1, "clean_prediction": int(i < clean), "prediction": int(i < robust)}
        for i in range(100)
    ]
    return outcomes_of("attack", rows)


def test_names_of_models_cover_no_line() -> None:
    """The second model lies where the name of the first would stand by default."""
    points = {"σ_a = 0.25": [(60, 50), (65, 52)], "σ_a = 0.5": [(50, 49), (75, 50), (75, 40)]}
    lines = [Line("g", [run(*p) for p in points[m]], model=m) for m in points]
    canvas = Canvas()
    axes = canvas.subplots()
    plot_plane(axes, lines)
    canvas.draw_without_rendering()
    assert len(axes.texts) == 2
    share = np.linspace(0, 1, 50)[:, None]
    for text in axes.texts:
        box = text.get_window_extent()
        for each in points.values():
            for a, b in pairwise(each):
                along = axes.transData.transform((1 - share) * a + share * b)
                assert not any(box.contains(*pixel) for pixel in along)


@pytest.mark.parametrize(("labels", "together"), [("ab ab", True), ("ab a", True), ("ab c", False)])
def test_panels_share_a_legend_if_it_is_that_of_one(labels: str, together: bool) -> None:
    canvas = Canvas()
    panels = list(canvas.subplots(1, 2))
    for axes, own in zip(panels, labels.split(), strict=True):
        for label in own:
            axes.plot([0, 1], [0, 1], label=label)
    _add_legends(canvas, panels, 6.4, 2)
    assert len(canvas.legends) == together
    assert all((axes.get_legend() is None) == together for axes in panels)


def test_neighbours_are_labelled_once() -> None:
    seen: list[Axes] = []

    def plot(axes: Axes, xlabel: str) -> None:
        axes.set(xlabel=xlabel, ylabel="y")
        seen.append(axes)

    draw(Figure("one", "", [partial(plot, xlabel=x) for x in ("a", "b", "a", "c")], columns=2))
    assert [axes.get_ylabel() for axes in seen] == ["y", "", "y", ""]
    assert [axes.get_xlabel() for axes in seen] == ["", "b", "a", "c"]


def test_each_row_may_have_its_own_legend() -> None:
    seen: list[Axes] = []

    def plot(axes: Axes, label: str) -> None:
        axes.plot([0, 1], [0, 1], label=label)
        seen.append(axes)

    draw(Figure("rows", "", [partial(plot, label=x) for x in ("a", "b", "b")], columns=(1, 2)))
    parts: list[Any] = [axes.get_figure(root=False) for axes in seen]
    assert parts[1] is parts[2] is not parts[0]
    texts = [[text.get_text() for text in part.legends[0].get_texts()] for part in parts[:2]]
    assert texts == [["a"], ["b"]]
    assert all(axes.get_legend() is None for axes in seen)


def test_gaps_at_one_value_stand_beside_their_names() -> None:
    axes = Canvas().subplots()
    gap = Differences(range(3), np.array([0.0, 1.0, 0.0]))
    same = Differences(range(3), np.zeros(3))
    plot_gaps(axes, [Gaps("f", [0.2], [gap]), Gaps("g", [0.2], [same])], "y", "title")
    assert [label.get_text() for label in axes.get_xticklabels()] == ["$f$", "$g$"]
    assert axes.get_title() == r"title, $\lambda$ = 0.2"
    assert not axes.get_legend_handles_labels()[1]
    hollow = [line for line in axes.lines if line.get_markerfacecolor() == "white"]
    assert [np.array(line.get_xdata()).tolist() for line in hollow] == [[], [1.0]]


def test_symbols_are_typeset() -> None:
    assert tex("draws of h's median of g_v*") == "draws of $h$'s median of $g_v^*$"
