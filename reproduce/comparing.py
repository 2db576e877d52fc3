"""Points under attack against each other: paired gaps, choices among them, lines and tables."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from reproduce.attacked import CLIPPED, G_V, G_V_STAR, Arena, G, Point
from reproduce.experiment import Verdict
from reproduce.tradeoffs import Line
from varsmooth.report.figures import colours
from varsmooth.report.outcomes import Outcomes
from varsmooth.report.statistics import LEVEL, Difference, MeanDifference, PairedDifference
from varsmooth.report.tables import Cell, Table

COLOURS = dict(zip((G_V_STAR, G_V, CLIPPED, G), [*colours(3), "#555555"], strict=True))
LEGEND = {
    G: "g, σ_s swept",
    G_V: "g_v, λ swept",
    G_V_STAR: "g_v*, λ swept",
    CLIPPED: "g_v* clipped, λ swept",
}


def robust_gap(one: Point, other: Point) -> PairedDifference:
    """Accuracy under attack of one less that of the other, image by image."""
    _check_images(one, other)
    return PairedDifference.of(one.outcomes.correct, other.outcomes.correct)


def clean_gap(one: Point, other: Point) -> PairedDifference:
    """The same without attack."""
    _check_images(one, other)
    return PairedDifference.of(one.outcomes.clean_correct, other.outcomes.clean_correct)


def loss_gap(losing: Sequence[Point], keeping: Sequence[Point]) -> MeanDifference:
    """How much more accuracy the first lose to the attack than the second, over all settings."""
    return averaged((a.lost - b.lost for a, b in _pairs(losing, keeping)))


def averaged(columns: Iterable[Any]) -> MeanDifference:
    """The mean over settings of one number for each image, with its interval over images."""
    return MeanDifference(np.mean(list(columns), axis=0).tolist())


def _pairs(first: Sequence[Point], second: Sequence[Point]) -> list[tuple[Point, Point]]:
    pairs = list(zip(first, second, strict=True))
    for one, other in pairs:
        _check_images(one, other)
    return pairs


def _check_images(one: Point, other: Point) -> None:
    assert np.array_equal(one.outcomes.ids, other.outcomes.ids)


def best(points: Sequence[Point]) -> Point:
    """The most robust, among equals the one with the best clean accuracy; with hindsight."""
    return max(points, key=lambda point: (point.robust.k, point.clean.k))


def dominating(points: Sequence[Point], baseline: Point) -> Point:
    """The one whose smaller gain over the baseline, clean or robust, is largest; with hindsight."""
    return max(
        points,
        key=lambda point: (
            min(point.robust.k - baseline.robust.k, point.clean.k - baseline.clean.k),
            point.robust.k + point.clean.k,
        ),
    )


def lowered(gaps: Mapping[str, Difference]) -> list[str]:
    """Which of several differences lie below 0, at a level that many comparisons cannot cheat."""
    level = 1 - (1 - LEVEL) / max(len(gaps), 1)
    return [name for name, gap in gaps.items() if gap.interval(level).high < 0]


def weakest(verdicts: Sequence[Verdict]) -> Verdict:
    """The least favourable of several; untested if one is."""
    order: tuple[Verdict, ...] = ("untested", "not", "partly", "held")
    return min(verdicts, key=order.index, default="untested")


def spread(points: Sequence[Point]) -> str:
    """How much the selected σ_s differ between images, in words."""
    shares = [p.outcomes.clean_sigmas.std() / p.outcomes.clean_sigmas.mean() for p in points]
    return f"selected σ_s differ between images by {100 * max(shares):.0f} % (sd/mean) at most"


def moved(points: Sequence[Point]) -> str:
    """How far the attack moved the σ_s of an image that it had reason to attack, in words."""
    shares = []
    for outcomes in (point.outcomes for point in points):
        shift = np.abs(outcomes.sigmas / outcomes.clean_sigmas - 1)[outcomes.clean_correct]
        shares.append(float(shift.mean()) if len(shift) else 0.0)
    return f"the attack moved σ_s by {100 * max(shares):.1f} % (mean over images) at most"


def lines_of(arenas: Sequence[Arena], methods: Sequence[str]) -> list[Line]:
    """A line for each model and method; the first of a method stands in the legend.

    g is hollow and grey, with its σ_s = σ_a named by the model.
    """
    lines, seen = [], set[str]()
    for arena in arenas:
        for method in methods:
            points = arena.methods[method]
            names = [arena.title if p is arena.baseline else "" for p in points]
            lines.append(
                Line(
                    f"_{method}" if method in seen else LEGEND[method],
                    [point.outcomes for point in points],
                    names,
                    COLOURS[method],
                    filled=method != G,
                    dashed=method == G,
                    marker="s" if method == G else "o",
                )
            )
            seen.add(method)
    return lines


def points_table(name: str, caption: str, arenas: Sequence[Arena]) -> Table:
    """Every point: levels before and under attack, accuracies, gaps to g at σ_s = σ_a."""
    rows = []
    for arena in arenas:
        for point in arena.points:
            before, after = point.outcomes.clean_sigmas, point.outcomes.sigmas
            gaps = [
                Cell("–")
                if point is arena.baseline
                else Cell.difference(gap(point, arena.baseline))
                for gap in (clean_gap, robust_gap)
            ]
            rows.append(
                [
                    Cell.of(arena.title),
                    Cell(f"{arena.eps:g}", arena.eps),
                    Cell.of(point.method),
                    Cell.of(point.knob),
                    Cell(f"{before.mean():.4f}", float(before.mean())),
                    Cell(f"{before.std():.4f}", float(before.std())),
                    Cell(f"{after.mean():.4f}", float(after.mean())),
                    Cell.share(point.clean),
                    Cell.share(point.robust),
                    *gaps,
                ]
            )
    return Table(
        name,
        f"{caption} Accuracies in %, with 95 % intervals over images; gaps to g at σ_s = σ_a in "
        "percentage points, paired by image.",
        [
            "model",
            "γ",
            "method",
            "setting",
            "mean σ_s",
            "sd of σ_s",
            "mean σ_s attacked",
            "clean",
            "robust",
            "clean − g",
            "robust − g",
        ],
        rows,
    )


def records_of(arenas: Sequence[Arena]) -> list[Outcomes]:
    """The runs behind the points, each once."""
    return list({p.outcomes.name: p.outcomes for arena in arenas for p in arena.points}.values())
