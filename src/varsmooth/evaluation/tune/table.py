"""Votes of f on held-out images by level, class and confidence, from which every rule is scored."""

import hashlib
import itertools
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from varsmooth._util.files import replace_file
from varsmooth._util.progress import Progress
from varsmooth.bounds import Integers
from varsmooth.data import ImageDataset
from varsmooth.defaults import ALPHA, N0
from varsmooth.errors import check
from varsmooth.methods.cascade_plan import (
    Quantiles,
    expected_quantiles,
    margin_is_larger,
    vote_quantiles,
)
from varsmooth.smoothing import RETURNED_NAN, SmoothedClassifier, evaluation_mode

CONFIDENCES = (0.0, 0.3, 0.4, 0.5, 0.6, 0.7)
"""Confidences from which a vote may count; 0 counts every vote."""

SAVE_EVERY = 30.0
"""Seconds between two states of a growing table."""


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
        pays = [
            margin_is_larger(self.selection[..., c], n0, n, ALPHA)
            for c in range(len(self.confidences))
        ]
        return [
            (
                expected_quantiles(self.selection[..., c], n0, n, ALPHA),
                vote_quantiles(self.counts[..., c], n, ALPHA, pays[c]),
            )
            for c in range(len(self.confidences))
        ]

    def rows(self, chosen: NDArray[np.bool_]) -> "ConfidentVotes":
        """The same of some of the images."""
        return replace(
            self,
            counts=self.counts[chosen],
            selection=self.selection[chosen],
            labels=self.labels[chosen],
        )


def tabulate(
    g: SmoothedClassifier,
    data: ImageDataset,
    levels: Sequence[float],
    draws: tuple[int, int] = (1000, N0),
    confidences: Sequence[float] = CONFIDENCES,
    seed: int = 0,
    batch_size: int | None = None,
    file: "TableFile | None" = None,
) -> ConfidentVotes:
    """The votes of f on every image of `data` at every level: those of `certify` with this seed.

    A rule that is chosen on them and then certified on the same images needs another seed.

    Args:
        draws: Votes n and selection draws n0 of an image at a level.
        file: Where the table is kept while it grows, so that the same call resumes.
    """
    labels = data.known_labels
    n, n0 = draws
    each = len(levels) * (n + n0)  # votes of one image
    about = [list(levels), n, n0, list(confidences), seed, len(data)]
    tables = [] if file is None else file.load(about, data)
    done = sum(map(len, tables))
    bar = Progress(len(data) * each, "votes", done * each, unit="votes")
    with bar, torch.no_grad(), evaluation_mode(g):
        for first in range(done, len(data), 5):
            x, _, ids = data.batch(range(first, min(first + 5, len(data))))
            tables.append(_block(g, x, ids, levels, draws, confidences, seed, batch_size))
            bar.add(len(x) * each)
            if file is not None:
                file.save(tables, done=first + 5 >= len(data))
    both = np.concatenate(tables)  # (N, 2L, classes, C)
    votes, selection = both[:, ::2], both[:, 1::2]
    return ConfidentVotes(tuple(levels), tuple(confidences), votes, selection, labels, n, n0)


def _block(
    g: SmoothedClassifier,
    x: torch.Tensor,
    ids: Sequence[int] | torch.Tensor,
    levels: Sequence[float],
    draws: tuple[int, int],
    confidences: Sequence[float],
    seed: int,
    batch_size: int | None,
) -> Integers:
    """Votes and selection draws of a few images, level by level: (B, 2L, classes, C)."""
    noise, x = g.noise(len(x), seed, ids), x.to(g.device)
    needed, table = torch.tensor(confidences, device=g.device), torch.empty(0)
    has_nan = torch.zeros((), dtype=torch.bool, device=g.device)  # read once, not per batch
    wanted = zip(("votes", "class-selection"), draws, strict=True)
    for i, (sigma, (purpose, count)) in enumerate(itertools.product(levels, wanted)):
        level = torch.full((len(x),), sigma, device=g.device)
        for rows, epsilon in noise.batches(x, purpose, count, batch_size):
            logits = g.logits(noise.perturb(x[rows], level[rows], epsilon), level[rows])
            has_nan |= logits.isnan().any()
            sure, vote = logits.softmax(dim=1).max(dim=1)
            if len(table) == 0:
                shape = (len(x), 2 * len(levels), logits.shape[1], len(needed))
                table = torch.zeros(shape, dtype=torch.int64, device=g.device)
            counted = (sure[:, None] >= needed).long()
            table[:, i].index_put_((rows, vote), counted, accumulate=True)
    check(not bool(has_nan), RETURNED_NAN)
    values: Integers = table.cpu().numpy()
    return values


class TableFile:
    """A table that grows in a file, from which the same table resumes.

    Args:
        path: The file.
        model: What identifies the classifier.
    """

    def __init__(self, path: Path, model: str) -> None:
        self.path, self.model = path, model
        self.key, self.saved = "", time.monotonic()

    def load(self, about: list[object], data: ImageDataset) -> list[Integers]:
        """The images so far; none if the file is of another table, or damaged."""
        x, _, ids = data.batch([0])
        pixels = hashlib.sha256(x.numpy().tobytes()).hexdigest()
        self.key = json.dumps([self.model, about, pixels, np.asarray(ids).tolist()])
        try:
            with np.load(self.path, allow_pickle=False) as stored:
                same = str(stored["key"]) == self.key
                return [stored["table"]] if same and len(stored["table"]) else []
        except (OSError, ValueError, KeyError, EOFError):
            return []

    def save(self, tables: Sequence[Integers], done: bool) -> None:
        """Replace the file, at most every SAVE_EVERY seconds until the table is done."""
        if not done and time.monotonic() - self.saved < SAVE_EVERY:
            return
        buffer = BytesIO()
        np.savez_compressed(buffer, key=np.array(self.key), table=np.concatenate(tables))
        replace_file(self.path, buffer.getvalue())
        self.saved = time.monotonic()

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
