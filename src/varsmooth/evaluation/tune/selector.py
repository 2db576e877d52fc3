"""Choosing λ, σ_m, clip and grid for a trained pair of f and h, on held-out images.

The votes of f are tabulated once over a fine grid of levels, and the raw samples of h once per
(λ, σ_m). Every setting is then scored offline, by the arithmetic of the sound certificate.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from varsmooth import bounds
from varsmooth._util.progress import Progress
from varsmooth.bounds import Integers
from varsmooth.data import ImageDataset
from varsmooth.defaults import ALPHA, ALPHA_SELECT, N_SELECT
from varsmooth.errors import VarsmoothError, check
from varsmooth.evaluation.options import TuneOptions
from varsmooth.noise import scoped_seed
from varsmooth.selectors import Grid, LearnedSelector
from varsmooth.smoothing import SmoothedClassifier, evaluation_mode

Goal = Literal["clean", "certified", "radius"]


@dataclass(frozen=True)
class VoteTable:
    """Votes of f for each image at each level: counts (N, levels, classes), labels (N,)."""

    levels: tuple[float, ...]
    counts: Integers
    labels: Integers

    @property
    def n(self) -> int:
        return int(self.counts[0, 0].sum())

    def radii(self, candidates: Integers, columns: Sequence[int]) -> bounds.Floats:
        """R̂ of each image's candidate class at the chosen columns: (N, columns)."""
        rows = np.arange(len(self.labels))[:, None]
        top = self.counts[rows, np.asarray(columns)[None], candidates[:, None]]
        return bounds.class_radius(
            top, self.n, np.asarray(self.levels)[list(columns)], ALPHA - ALPHA_SELECT
        )


@dataclass(frozen=True)
class Candidate:
    """Options of the protected selector, and their score on the held-out images."""

    lam: float
    sigma_m: float
    levels: tuple[float, ...]
    score: float

    @property
    def clip(self) -> tuple[float, float] | None:
        """The range of the grid; None for a single level."""
        return (self.levels[0], self.levels[-1]) if len(self.levels) > 1 else None


@dataclass(frozen=True)
class Tuning:
    """The best setting for a goal, beside the best single σ for the same goal and images."""

    best: Candidate
    fixed_sigma: float
    fixed_score: float


def tune(
    g: SmoothedClassifier,
    data: ImageDataset,
    goal: Goal,
    radius: float = 0.0,
    *,
    seed: int = 0,
    **settings: Any,
) -> Tuning:
    """Choose λ, σ_m and the grid of levels for a goal, on held-out images of `data`.

    Candidates are each λ, each σ_m, and every run of neighbouring levels, or of every second one,
    of `levels` geometric levels in [σ_a/4, 2σ_a], so that the clip range is chosen with the grid.

    Args:
        g: f with its `LearnedSelector`.
        data: Held-out images.
        goal: `clean`, accuracy of the plain vote; `certified`, accuracy certified soundly at
            `radius`; `radius`, average certified radius (wrong and abstaining images count 0).
        radius: The radius of goal `certified`.
        seed: Of the noise, which is independent of what `certify` draws under any seed.
        settings: See `varsmooth.evaluation.options.TuneOptions`.
    """
    options = TuneOptions(goal=goal, radius=radius, **settings)
    n_select, batch_size = options.n_select, options.batch_size
    lams, sigma_a, seed = options.lams, _learned(g).sigma_a, scoped_seed(seed, "tune")
    check(len(lams) > 0 and options.levels >= 2, "tune needs at least one lam and two levels")
    ladder = Grid.make(options.levels, (sigma_a / 4, 2 * sigma_a)).levels
    table = tabulate_votes(g, data, ladder, options.n, seed, batch_size)
    candidates: list[Candidate] = []
    tried = list(itertools.product(options.sigma_ms or (sigma_a / 2, sigma_a, 2 * sigma_a), lams))
    with Progress(len(tried) * len(data), f"{len(tried)} settings of h") as bar:
        for sigma_m, lam in tried:
            raw = sample_selector(g, data, lam, sigma_m, n_select, seed, batch_size, bar)
            median = raw[:, (n_select - 1) // 2]
            for columns in _runs(len(ladder)):
                grid = tuple(ladder[j] for j in columns)
                if ((grid[0] <= median) & (median <= grid[-1])).mean() >= options.unclipped:
                    score = score_grid(table, raw, sigma_m, columns, goal, radius)
                    candidates.append(Candidate(lam, sigma_m, grid, score))
    check(
        bool(candidates),
        f"no grid between {ladder[0]:.3g} and {ladder[-1]:.3g} holds the levels of "
        f"{100 * options.unclipped:g} % of the images; try other lams, or a smaller unclipped",
    )
    best = max(candidates, key=lambda setting: setting.score)
    fixed = [  # with a single level h has no effect
        score_grid(table, raw, sigma_a, [column], goal, radius) for column in range(len(ladder))
    ]
    top = int(np.argmax(fixed))
    return Tuning(best, ladder[top], fixed[top])


def _runs(levels: int) -> Iterator[tuple[int, ...]]:
    """Neighbouring levels, or every second one: the grids that are tried."""
    for step in (1, 2):
        for low in range(levels):
            for high in range(low + step, levels, step):
                yield tuple(range(low, high + 1, step))


def tabulate_votes(
    g: SmoothedClassifier,
    data: ImageDataset,
    levels: Sequence[float],
    n: int,
    seed: int,
    batch_size: int | None = None,
) -> VoteTable:
    """n votes of f for every image of `data` at every level."""
    labels, tables = data.known_labels, []
    with Progress(len(data) * len(levels) * n, "votes", unit="votes") as bar:
        for x, _, ids in data.batches(10):
            x, noise = x.to(g.device), g.noise(len(x), seed, ids)
            counts = []
            for sigma in levels:
                level = x.new_full((len(x),), sigma)
                counts.append(g.votes(x, n, sigma=level, noise=noise, batch_size=batch_size))
                bar.add(len(x) * n)
            tables.append(torch.stack(counts, dim=1))
    return VoteTable(tuple(levels), torch.cat(tables).cpu().numpy(), labels)


def sample_selector(
    g: SmoothedClassifier,
    data: ImageDataset,
    lam: float,
    sigma_m: float,
    n: int,
    seed: int,
    batch_size: int | None = None,
    bar: Progress | None = None,
) -> bounds.Floats:
    """n raw samples of h(x+ε) for every image, ascending: (N, n), h being the selector of g."""
    learned = _learned(g)
    before, learned.lam, raw = learned.lam, lam, []
    try:
        with evaluation_mode(g), torch.no_grad():
            for x, _, ids in data.batches(10):
                x, noise = x.to(g.device), g.noise(len(x), seed, ids)
                raw.append(learned.samples(x, sigma_m, n, noise, "selector-bounds", batch_size))
                if bar is not None:
                    bar.add(len(x))
    finally:
        learned.lam = before
    samples: bounds.Floats = torch.cat(raw).cpu().double().sort(dim=1).values.numpy()
    return samples


def _learned(g: SmoothedClassifier) -> LearnedSelector:
    if not isinstance(g.selector, LearnedSelector):
        raise VarsmoothError(
            "tune needs a classifier with a learned selector; load the pair with selector='learned'"
        )
    return g.selector


def score_grid(
    table: VoteTable,
    raw: bounds.Floats,
    sigma_m: float,
    columns: Sequence[int],
    goal: Goal,
    radius: float,
) -> float:
    """The score of the grid of these columns with these samples of h."""
    grid = Grid(tuple(table.levels[j] for j in columns))
    median = raw[:, (raw.shape[1] - 1) // 2]
    chosen = np.asarray(columns)[np.searchsorted(grid.thresholds, median)]  # (N,) table columns
    candidates = table.counts[np.arange(len(chosen)), chosen].argmax(axis=1)  # (N,)
    right = candidates == table.labels
    if goal == "clean":
        return float(right.mean())
    below = (raw[:, :, None] <= np.asarray(grid.thresholds)).sum(axis=1)  # (N, L−1)
    band = bounds.median_band(N_SELECT, ALPHA_SELECT)
    entry = bounds.entry_distances(below, raw.shape[1], sigma_m, ALPHA_SELECT / 2, band)
    certified = np.maximum(entry, table.radii(candidates, columns)).min(axis=1)  # Theorem A
    earned = np.where(right, np.maximum(certified, 0), 0)
    if goal == "certified":
        return float((earned >= radius).mean())
    return bounds.average_certified_radius(earned)
