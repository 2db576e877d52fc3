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
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from varsmooth._util.files import append_lines, make_folder
from varsmooth._util.fingerprints import earlier_fingerprint, fingerprint
from varsmooth._util.typed import parse
from varsmooth.cascade import describe_gate
from varsmooth.errors import check
from varsmooth.noise import NoiseStream
from varsmooth.smoothing import SmoothedClassifier
from varsmooth.types import NonNegative

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
    noise: str  # kind of noise, device and precision, which have streams of their own; the gate


_LINE = tuple[str, int, int, str, int, float, str, tuple[NonNegative, ...]]
"""A `VoteKey` and its counts."""


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
                with suppress(ValueError):  # a torn line
                    *values, counts = parse(_LINE, line)
                    if sum(counts) == (key := VoteKey(*values)).n:
                        self.counts[key] = counts

    def add(self, found: dict[VoteKey, tuple[int, ...]]) -> None:
        """Keep these counts, here and on the disk."""
        self.counts |= found
        lines = "".join(json.dumps([*key, counts]) + "\n" for key, counts in found.items())
        append_lines(self.file, lines.encode())


class CachedSmoothedClassifier(SmoothedClassifier):
    """A smoothed classifier that asks f only for votes that the store does not have.

    f is known by its fingerprint: architecture and weights. If the answers of your own f depend on
    anything else, keep that in its `state_dict`, or use another folder.
    """

    def __init__(self, g: SmoothedClassifier, folder: str | Path) -> None:
        check(
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

    def votes(self, x: Tensor, n: int, **draws: Any) -> Tensor:
        """The counts of `SmoothedClassifier`, from the store where it has them."""
        sigma, noise = draws.get("sigma"), draws.get("noise")
        purpose, start = draws.get("purpose", "votes"), draws.get("start", 0)
        if sigma is None or noise is None or noise.scope or purpose not in PURPOSES:
            return super().votes(x, n, **draws)
        drawn = f"{purpose} from {start}" if start else purpose
        keys = self._keys(x, n - start, sigma, noise, drawn)
        missing = [row for row, key in enumerate(keys) if key not in self.store.counts]
        if missing:
            rest = draws | {"sigma": sigma[missing], "noise": noise.rows(missing)}
            counts = super().votes(x[missing], n, **rest)
            found = zip(missing, counts.tolist(), strict=True)
            self.store.add({keys[row]: tuple(count) for row, count in found})
        return torch.tensor([self.store.counts[key] for key in keys], device=x.device)

    def _keys(
        self, x: Tensor, n: int, sigma: Tensor, noise: NoiseStream, purpose: str
    ) -> list[VoteKey]:
        """What each image's votes are stored under."""
        kind = f"{'lattice' if noise.lattice else 'gaussian'} {x.device.type} {x.dtype}"
        if self.gate is not None:  # it turns votes into "pass", so that it decides the counts too
            network = fingerprint(self.gate) if isinstance(self.gate, nn.Module) else ""
            kind += f" {json.dumps(describe_gate(self.gate))} {network}"
        pixels = x.detach().cpu().contiguous().numpy()  # whatever their layout in memory
        digests = [hashlib.sha256(image.tobytes()).hexdigest()[:32] for image in pixels]
        return [
            VoteKey(digest, id, noise.seed, purpose, n, level, kind)
            for digest, id, level in zip(digests, noise.ids, sigma.tolist(), strict=True)
        ]
