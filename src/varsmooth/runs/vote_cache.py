"""Votes of f, stored once and shared by every certificate that needs them.

Votes at a level do not depend on who chose the level: a second certificate of the same model on
the same images at another λ, clip or D finds most of them here and pays only for the selector.
Each certificate on its own keeps its guarantee, because the stored votes are the very votes it
would have drawn: same weights, pixels, level, number and noise.
"""

import hashlib
import json
import secrets
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from varsmooth.errors import require
from varsmooth.files import append_lines, make_folder
from varsmooth.identity import earlier_fingerprint, fingerprint
from varsmooth.noise import NoiseStream
from varsmooth.smoothing import SmoothedClassifier

PURPOSES = ("votes", "class-selection")
"""Draws that a certificate takes at a level it names. A prediction takes fresh ones."""


class VoteKey(NamedTuple):
    """All that a vote count is a function of, besides the weights of f."""

    image: str  # SHA-256 of the pixels, shortened
    id: int
    seed: int
    purpose: str
    n: int
    sigma: float
    noise: str  # kind of noise, device and precision: each has a stream of its own


class VoteStore:
    """Counts of one classifier's votes in a folder: one append-only file per process.

    Every process writes a file of its own, so that runs may share the folder at the same time,
    and reads everybody's when it starts. A line that a crash tore, or whose counts do not sum to
    n, is skipped: a lost count is computed again, nothing else depends on it.
    """

    def __init__(self, folder: str | Path, classifier: str) -> None:
        self.folder = Path(folder) / classifier[:32]
        make_folder(self.folder)
        self.file = self.folder / f"votes-{secrets.token_hex(8)}.jsonl"
        self.counts: dict[VoteKey, tuple[int, ...]] = {}
        for path in sorted(self.folder.glob("votes-*.jsonl")):
            for line in path.read_bytes().splitlines():
                self._remember(line)

    def _remember(self, line: bytes) -> None:
        try:
            *values, counts = json.loads(line)
            key = VoteKey(*values)
            if sum(counts) == key.n:
                self.counts[key] = tuple(counts)
        except (ValueError, TypeError):
            pass  # a torn line

    def add(self, found: dict[VoteKey, tuple[int, ...]]) -> None:
        """Keep these counts, here and on the disk."""
        self.counts |= found
        lines = "".join(json.dumps([*key, counts]) + "\n" for key, counts in found.items())
        append_lines(self.file, lines.encode())


class RememberingClassifier(SmoothedClassifier):
    """A smoothed classifier that asks f only for votes that the store does not have.

    f is known by its fingerprint: architecture and weights. Whatever else decides what an f of
    your own answers must be in its `state_dict`, or have a store of its own.
    """

    def __init__(self, g: SmoothedClassifier, folder: str | Path) -> None:
        require(
            type(g) is SmoothedClassifier,
            f"votes can be stored for a SmoothedClassifier, not for a {type(g).__name__} of "
            "your own, whose votes may depend on more than the store knows",
        )
        super().__init__(
            g.classifier,
            g.selector,
            samples=g.samples,
            temperature=g.temperature,
            lattice=g.lattice,
        )
        self.store = VoteStore(folder, fingerprint(g.classifier))
        earlier = Path(folder) / earlier_fingerprint(g.classifier)[:32]
        if earlier.is_dir():
            warnings.warn(
                f"{earlier} holds votes of an older varsmooth, which recorded no architecture, and "
                f"is not used; if they are this model's, rename it to {self.store.folder.name}",
                stacklevel=2,
            )

    def votes(
        self,
        x: Tensor,
        n: int,
        *,
        sigma: Tensor | None = None,
        noise: NoiseStream | None = None,
        purpose: str = "votes",
        start: int = 0,
        batch_size: int | None = None,
    ) -> Tensor:
        """As `SmoothedClassifier.votes`, the same counts."""
        known = sigma is not None and noise is not None and noise.scope == ()
        if not known or purpose not in PURPOSES or start != 0:
            return super().votes(
                x,
                n,
                sigma=sigma,
                noise=noise,
                purpose=purpose,
                start=start,
                batch_size=batch_size,
            )
        assert sigma is not None
        assert noise is not None
        keys = vote_keys(x, n, sigma, noise, purpose)
        missing = [row for row, key in enumerate(keys) if key not in self.store.counts]
        if missing:
            drawn = super().votes(
                x[missing],
                n,
                sigma=sigma[missing],
                noise=noise.rows(missing),
                purpose=purpose,
                batch_size=batch_size,
            )
            counts = [tuple(row) for row in drawn.tolist()]
            self.store.add({keys[row]: count for row, count in zip(missing, counts, strict=True)})
        return torch.tensor([self.store.counts[key] for key in keys], device=x.device)


def vote_keys(
    x: Tensor, n: int, sigma: Tensor, noise: NoiseStream, purpose: str
) -> Sequence[VoteKey]:
    """What each image's votes are stored under."""
    kind = f"{'lattice' if noise.lattice else 'gaussian'} {x.device.type} {x.dtype}"
    return [
        VoteKey(_digest(image), id, noise.seed, purpose, n, level, kind)
        for image, id, level in zip(x, noise.ids, sigma.tolist(), strict=True)
    ]


def _digest(image: Tensor) -> str:
    """The pixels of one image (C,H,W), whatever their layout in memory."""
    return hashlib.sha256(image.detach().cpu().contiguous().numpy().tobytes()).hexdigest()[:32]
