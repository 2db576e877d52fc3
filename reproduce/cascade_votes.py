"""A table of votes by level, class and confidence, and the certificates that follow from it.

The votes of f are counted once, in blocks that resume. The certificates of any cascade then follow
as `certify` would make them: class, stage and votes per stage from the selection draws, the radius
from the votes. Fewer draws than the table has are drawn from it without replacement.
"""

import io
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from reproduce.harness import Context
from reproduce.scales import Need, Scale, size
from varsmooth._util.files import replace_file
from varsmooth.cascade import Stages
from varsmooth.certificates import Certificate
from varsmooth.data import load_dataset
from varsmooth.defaults import ALPHA, N0
from varsmooth.errors import check
from varsmooth.evaluation.tune import cascade as cascades
from varsmooth.evaluation.tune.cascade import ConfidentVotes
from varsmooth.evaluation.tune.selector import Integers
from varsmooth.evidence import Evidence, Ledger, LevelVotes
from varsmooth.methods.cascade import can_improve, make_plan
from varsmooth.models.loading import load
from varsmooth.models.options import TunedStages

CONFIDENCES = (0.0, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
BLOCK = 20


@dataclass(frozen=True, kw_only=True)
class VoteScale(Scale):
    """One universal f, the levels at which it votes, and how often."""

    sigmas: tuple[float, ...] = size("σ_a′", (1.0,), stated=False)
    images: int = size("test images", 1000, stated=False)
    n: int = size("votes N", 1000, stated=False)
    levels: tuple[float, ...] = size(
        "levels", (0.707, 0.5, 0.354, 0.25, 0.177, 0.125), stated=False
    )

    @property
    def need(self) -> Need:
        """The model of f and its selector."""
        return Need.universal(self.sigmas[0])


def votes_of(context: Context, scale: VoteScale, split: str, n: int, count: int) -> ConfidentVotes:
    """The first images of a split, in blocks that are kept in the store."""
    name = context.model(scale.need)
    g = load(name, sigma=scale.levels[0])
    data = load_dataset(scale.data, split, context.root)
    folder = context.store / "confident-votes" / Path(name).name
    blocks = []
    for start in range(0, count, BLOCK):
        stop = min(start + BLOCK, count)
        path = folder / f"{split}-{start}-{stop}-{n}.npz"
        if not path.is_file():
            levels, some = scale.levels, data[start:stop]
            made = cascades.tabulate(g, some, levels, n, N0, CONFIDENCES, scale.seed)
            keep(path, made)
        blocks.append(kept(path, scale, n))
    joined: dict[str, Any] = {
        column: np.concatenate([getattr(block, column) for block in blocks])
        for column in ("counts", "selection", "labels")
    }
    return replace(blocks[0], **joined)


def keep(path: Path, table: ConfidentVotes) -> None:
    """Write a block of the table, whole or not at all."""
    content = io.BytesIO()
    np.savez_compressed(
        content,
        levels=np.array(table.levels),
        counts=table.counts.astype(np.int32),
        selection=table.selection.astype(np.int16),
        labels=table.labels,
    )
    replace_file(path, content.getvalue())


def kept(path: Path, scale: VoteScale, n: int) -> ConfidentVotes:
    """A block of the table."""
    with np.load(path) as block:
        check(
            np.allclose(block["levels"], scale.levels),
            f"{path} holds other levels; choose another --store, or the same levels",
        )
        counts, selection = (block[name].astype(np.int64) for name in ("counts", "selection"))
        labels = block["labels"].astype(np.int64)
    levels = tuple(float(np.float32(s)) for s in scale.levels)
    return ConfidentVotes(levels, CONFIDENCES, counts, selection, labels, n, N0)


@dataclass(frozen=True)
class Certified:
    """What a rule certifies on every image, and how many noisy images f was shown on average."""

    predictions: list[int]
    radii: list[float]
    sigmas: list[float]
    samples: float


def certify_with(
    table: ConfidentVotes,
    rule: TunedStages,
    n: int,
    seed: int,
    n0: int = N0,
    every_vote: bool = False,
) -> Certified:
    """Certificates of a cascade with n ≤ table.n votes at the stage that answers.

    every_vote: n votes at every earlier stage too, not as few as are planned.
    """
    columns = [int(np.argmin(np.abs(np.array(table.levels) - s))) for s in rule.levels]
    gate = table.confidences.index(rule.gate or 0.0)
    stages = Stages(tuple(table.levels[j] for j in columns), rule.thresholds)
    rng = np.random.default_rng(seed)
    counts, selection = (
        values[..., gate][:, columns] for values in (table.counts, table.selection)
    )  # (N, S, classes)
    found = []
    for votes, first in zip(counts, selection, strict=True):
        chosen = np.array([_drawn(row, table.n0, n0, rng)[0] for row in first])
        seen = 1
        while seen < len(stages) and can_improve(stages, chosen[:seen], n0, n, ALPHA):
            seen += 1
        plan = make_plan(stages, chosen[:seen], n0, n, ALPHA)
        wanted = [n] * len(plan.votes) if every_vote else plan.votes
        evidence = [
            LevelVotes(stages.levels[j], plan.candidate, *_drawn(votes[j], table.n, m, rng))
            for j, m in enumerate(wanted)
        ]
        found.append(_certificate(stages, evidence, n0 * seen))
    return Certified(
        [c.prediction for c in found],
        [c.radius for c in found],
        [c.sigma for c in found],
        float(np.mean([c.samples for c in found])),
    )


def _certificate(stages: Stages, votes: list[LevelVotes], drawn: int) -> Certificate:
    facts: dict[str, Any] = {"id": 0, "seed": 0, "settings": {}}
    return Certificate.derive(
        "cascade",
        Evidence(Ledger(ALPHA, ALPHA), tuple(votes), stages=stages),
        sigma=votes[-1].sigma,
        samples=drawn + sum(level.n for level in votes),
        **facts,
    )


def _drawn(
    counts: Integers, n: int, wanted: int, rng: np.random.Generator
) -> tuple[tuple[int, ...], int]:
    """(votes by class, passes) of `wanted` of n votes, drawn without replacement."""
    every = np.append(counts, n - counts.sum())
    if wanted < n:
        every = rng.multivariate_hypergeometric(every, wanted)
    return tuple(int(k) for k in every[:-1]), int(every[-1])


def at_equal_total(table: ConfidentVotes, rule: TunedStages, seed: int, n0: int = N0) -> Certified:
    """The cascade with so few votes that f sees no more noisy images than at one σ with N votes."""
    budget, n = N0 + table.n, table.n
    while (found := certify_with(table, rule, n, seed, n0)).samples > budget:
        n = int(0.995 * n * budget / found.samples)
    return found
