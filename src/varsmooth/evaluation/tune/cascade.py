"""Choosing the stages of a cascade on held-out images, as a function of λ.

The votes of f are counted once, by level, class and confidence. Every rule is then scored offline,
by the arithmetic that `certify` uses: class and stage from the selection draws, radius from the
votes.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from varsmooth._util.progress import Progress
from varsmooth.bounds import Floats, average_certified_radius
from varsmooth.cascade import Stages
from varsmooth.data import ImageDataset
from varsmooth.defaults import ALPHA, N0
from varsmooth.errors import check
from varsmooth.evaluation.tune.selector import Integers
from varsmooth.methods.cascade import (
    Quantiles,
    cascade_radii,
    expected_quantiles,
    runner_up_pays,
    vote_quantiles,
)
from varsmooth.models.descriptions import Description
from varsmooth.models.options import TunedStages
from varsmooth.smoothing import RETURNED_NAN, SmoothedClassifier, evaluation_mode

CONFIDENCES = (0.0, 0.3, 0.4, 0.5, 0.6, 0.7)
"""Confidences from which a vote may count; 0 is no gate."""

THRESHOLDS = (0.5, 0.55, 0.6, 0.7, 0.8)
LAMBDAS = tuple(round(0.1 * k, 1) for k in range(11))


@dataclass(frozen=True)
class ConfidentVotes:
    """Votes for each image, level, class and confidence: the gate at c leaves counts[..., c].

    counts (N, L, classes, C) of n draws, selection the same of n0 draws, labels (N,).
    """

    levels: tuple[float, ...]
    confidences: tuple[float, ...]
    counts: Integers
    selection: Integers
    labels: Integers
    n: int
    n0: int

    @cached_property
    def quantiles(self) -> list[tuple[Quantiles, Quantiles]]:
        """Of the radii to expect and of those that the votes give, for every confidence."""
        n0, n = self.n0, self.n
        return [
            (
                expected_quantiles(self.selection[..., c], n0, n, ALPHA),
                vote_quantiles(
                    self.counts[..., c],
                    n,
                    ALPHA,
                    runner_up_pays(self.selection[..., c], n0, n, ALPHA),
                ),
            )
            for c in range(len(self.confidences))
        ]

    def outcomes(
        self, columns: Sequence[int], thresholds: Sequence[float], gate: int = 0
    ) -> tuple[Floats, Integers]:
        """Radius (N,), negative where nothing is certified, and class (N,) of every image."""
        stages = Stages(tuple(self.levels[j] for j in columns), tuple(thresholds))
        expected, found = (
            cascade_radii(stages, Quantiles(*(q[:, list(columns)] for q in quantiles))).reshape(
                len(self.labels), -1
            )
            for quantiles in self.quantiles[gate]
        )  # each (N, S·classes)
        best = expected.argmax(axis=1)
        return found[np.arange(len(best)), best], best % self.counts.shape[2]


def ladder(about: Description) -> tuple[float, ...]:
    """Levels to choose from, in steps of √2 down from the largest that f was trained for.

    An f for one level is tried above it too: from 2 σ_a.
    """
    top = about.sigma_a if about.universal else 2 * about.sigma_a
    return tuple(round(top * 2 ** (-k / 2), 3) for k in range(7))


@dataclass(frozen=True)
class Rule:
    """Stages and gate, with certified accuracy at 0 and average certified radius."""

    columns: tuple[int, ...]
    thresholds: tuple[float, ...]
    gate: int
    accuracy: float
    radius: float


def tabulate(
    g: SmoothedClassifier,
    data: ImageDataset,
    levels: Sequence[float],
    n: int = 1000,
    n0: int = N0,
    confidences: Sequence[float] = CONFIDENCES,
    seed: int = 0,
    batch_size: int | None = None,
) -> ConfidentVotes:
    """The votes of f on every image of `data` at every level: the draws `certify` would take."""
    labels = data.known_labels
    device = g.device
    wanted = (("votes", n), ("class-selection", n0))
    needed, tables = torch.tensor(confidences, device=device), []
    bar = Progress(len(data) * len(levels) * (n + n0), "votes", unit="votes")
    with bar, torch.no_grad(), evaluation_mode(g):
        for x, _, ids in data.batches(5):
            noise, x = g.noise(len(x), seed, ids), x.to(device)
            table = torch.empty(0)
            for i, (sigma, (purpose, draws)) in enumerate(itertools.product(levels, wanted)):
                level = torch.full((len(x),), sigma, device=device)
                for rows, epsilon in noise.batches(x, purpose, draws, batch_size):
                    logits = g.logits(noise.perturb(x[rows], level[rows], epsilon), level[rows])
                    check(not bool(logits.isnan().any()), RETURNED_NAN)
                    sure, vote = logits.softmax(dim=1).max(dim=1)
                    if len(table) == 0:  # levels and purposes in turn
                        shape = (len(x), 2 * len(levels), logits.shape[1], len(needed))
                        table = torch.zeros(shape, dtype=torch.int64, device=device)
                    counted = (sure[:, None] >= needed).long()
                    table[:, i].index_put_((rows, vote), counted, accumulate=True)
                bar.add(len(x) * draws)
            tables.append(table)
    both = torch.cat(tables).cpu().numpy()  # (N, 2L, classes, C)
    votes, selection = both[:, ::2], both[:, 1::2]
    return ConfidentVotes(tuple(levels), tuple(confidences), votes, selection, labels, n, n0)


def rules(table: ConfidentVotes, stages: int = 4) -> Iterator[Rule]:
    """Every rule of up to `stages` levels; levels and thresholds fall, the last one is ½."""
    falling = sorted(range(len(table.levels)), key=lambda j: -table.levels[j])
    careful = sorted(THRESHOLDS, reverse=True)
    for count in range(1, stages + 1):
        for columns in itertools.combinations(falling, count):
            for early in itertools.combinations_with_replacement(careful, count - 1):
                for gate in range(len(table.confidences)):
                    taus = (*early, 0.5)
                    radius, answer = table.outcomes(columns, taus, gate)
                    earned = np.where(answer == table.labels, radius, 0)
                    right = float((earned > 0).mean())
                    yield Rule(columns, taus, gate, right, average_certified_radius(earned))


def choose(found: Sequence[Rule], lams: Sequence[float] = LAMBDAS) -> list[tuple[float, Rule]]:
    """The best rule for each λ: the largest (1−λ) · accuracy / best + λ · radius / best.

    λ = 1 is the largest average radius of all rules with τ = ½ and no gate, which are never
    below σ = s_1; no other member may exceed it, so that more λ never means less radius, nor
    less λ less accuracy.
    """
    plain = [r for r in found if set(r.thresholds) == {0.5} and r.gate == 0]
    top = max(plain, key=lambda r: (r.radius, r.accuracy))
    check(
        top.radius > 0,
        "no image can be certified with these votes at any level; raise n, or train the classifier "
        "under noise first",
    )
    allowed = [r for r in found if r.radius <= top.radius]
    most = max(r.accuracy for r in allowed)

    def score(rule: Rule, lam: float) -> float:
        return (1 - lam) * rule.accuracy / most + lam * rule.radius / top.radius

    chosen = [(lam, max(allowed, key=lambda r: (score(r, lam), r.radius))) for lam in lams]
    return [(lam, top if lam == 1 else rule) for lam, rule in chosen]


def family(chosen: Sequence[tuple[float, Rule]], table: ConfidentVotes) -> tuple[TunedStages, ...]:
    """The chosen rules as a model's description keeps them; a rule stands once."""
    return tuple(
        TunedStages(
            lam=next(alike)[0],
            levels=tuple(table.levels[j] for j in rule.columns),
            thresholds=rule.thresholds,
            gate=table.confidences[rule.gate] or None,
        )
        for rule, alike in itertools.groupby(chosen, key=lambda pair: pair[1])
    )


def best_single(found: Sequence[Rule]) -> Rule:
    """One σ without a gate, with the largest average radius."""
    return max((r for r in found if len(r.columns) == 1 and not r.gate), key=lambda r: r.radius)


def summary(found: Sequence[Rule], table: ConfidentVotes) -> list[str]:
    """The best single σ and the chosen cascades, a line each."""
    single = best_single(found)
    level = table.levels[single.columns[0]]
    edge = " (the largest level tried)" * (level == max(table.levels))
    lines = [f"one σ = {level:g}: {single.accuracy:.3f}, {single.radius:.4f}{edge}"]
    chosen = choose(found)
    for rule, alike in itertools.groupby(chosen, key=lambda pair: pair[1]):
        lams = [f"{lam:g}" for lam, _ in alike]
        (stages,) = family([(1.0, rule)], table)
        label = " to ".join(dict.fromkeys((lams[0], lams[-1])))
        lines.append(f"λ = {label}: {rule.accuracy:.3f}, {rule.radius:.4f}  {stages}")
    if chosen[-1][1].radius == single.radius:
        lines.append("no cascade has a larger average radius here than one σ")
    return lines
