"""Votes of f, stored once and shared by every certificate that needs them.

Votes at a level do not depend on the selector that chose it: a second certificate of the same model
on the same images at another λ, clip or D finds most of them here and pays only for the selector.
Each certificate on its own keeps its guarantee, because the stored votes are the very votes it
would have drawn: same classifier, pixels, level, number and noise.
"""

import hashlib
import json
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from varsmooth._util.files import append_lines, make_folder
from varsmooth._util.fingerprints import fingerprints
from varsmooth._util.typed import parse
from varsmooth._util.untrusted import read_object
from varsmooth.errors import VarsmoothError, check
from varsmooth.noise import NoiseStream
from varsmooth.probe import Probe, probe
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
    noise: str  # kind of noise, device, precision and torch, which have streams of their own


PROBE, FORMAT = "probe.json", 1


@dataclass(frozen=True)
class _Stored:
    format: int
    probe: Probe


_LINE = tuple[str, int, int, str, int, float, str, tuple[NonNegative, ...]]
"""A `VoteKey` and its counts."""


class VoteStore:
    """Counts of one classifier's votes in a folder: one append-only file per process.

    Every process writes a file of its own, so that runs may share the folder at the same time,
    and reads all files when it starts. A line that a crash tore, or whose counts do not sum to
    n, is skipped: a lost count is computed again, nothing else depends on it.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        make_folder(self.folder)
        self.file = self.folder / f"votes-{secrets.token_hex(8)}.jsonl"
        self.counts: dict[VoteKey, tuple[int, ...]] = {}
        for path in sorted(self.folder.glob("votes-*.jsonl")):
            for line in path.read_bytes().splitlines():
                with suppress(ValueError):  # a torn line
                    *values, counts = parse(_LINE, line)
                    if sum(counts) == (key := VoteKey(*values)).n:
                        self.counts[key] = counts

    def add(self, counts: dict[VoteKey, tuple[int, ...]]) -> None:
        """Keep these counts, here and on the disk."""
        self.counts |= counts
        lines = "".join(json.dumps([*key, row]) + "\n" for key, row in counts.items())
        append_lines(self.file, lines.encode())


def store_of(
    folder: str | Path, g: SmoothedClassifier, like: Tensor, prints: Mapping[str, str]
) -> VoteStore:
    """The votes of g's classifier and gate: those under its fingerprints and its outputs.

    Each folder of votes has the outputs of the model that cast them, `probe.json`. Models of one
    fingerprint whose outputs differ have a folder each.
    """
    here = probe(g, like)
    parts = [prints["classifier"]]
    if g.gate is not None:  # it turns votes into "pass", so that it decides the counts too
        settings = g.selector.describe() | {"thresholds": None}  # which decide nothing about votes
        parts += [prints["selector"], json.dumps(settings)]
    name = hashlib.sha256(" ".join(parts).encode()).hexdigest()[:32]
    for place in sorted(Path(folder).glob(f"{name}-*")):
        with suppress(VarsmoothError, OSError):  # no probe, or a damaged one: not its votes
            _, stored = read_object(place / PROBE, _Stored, FORMAT, "model")
            if not stored.probe.differences(here, ("classifier", "gate")):
                return VoteStore(place)
    place = Path(folder) / f"{name}-{secrets.token_hex(4)}"
    make_folder(place)
    text = json.dumps({"format": FORMAT, "probe": asdict(here)})
    append_lines(place / PROBE, text.encode() + b"\n")
    return VoteStore(place)


class CachedSmoothedClassifier(SmoothedClassifier):
    """A smoothed classifier that asks f only for votes that the store does not have.

    f and the gate are known by their fingerprints and by their outputs on fixed images; neither may
    change while this object is in use. `prints` are the fingerprints of g, where they are known.
    """

    def __init__(
        self, g: SmoothedClassifier, folder: str | Path, prints: Mapping[str, str] | None = None
    ) -> None:
        check(
            type(g) is SmoothedClassifier,
            f"votes can be stored for a SmoothedClassifier, not for a {type(g).__name__} of "
            "your own, whose votes may depend on more than the stored key",
        )
        super().__init__(
            g.classifier,
            g.selector,
            samples=g.samples,
            temperature=g.temperature,
            lattice=g.lattice,
        )
        self.folder, self.prints = folder, prints
        self.stores: dict[tuple[int, ...], VoteStore] = {}  # by the shape of the images

    def count_votes(
        self,
        x: Tensor,
        n: int,
        sigma: Tensor,
        noise: NoiseStream,
        purpose: str = "votes",
        start: int = 0,
        batch_size: int | None = None,
    ) -> Tensor:
        """The counts of `SmoothedClassifier`, from the store where it has them."""
        draws = (purpose, start, batch_size)
        if noise.scope or purpose not in PURPOSES:
            return super().count_votes(x, n, sigma, noise, *draws)
        drawn = f"{purpose} from {start}" if start else purpose
        keys = self._keys(x, n - start, sigma, noise, drawn)
        store = self.stores.get(shape := tuple(x.shape[1:]))
        if store is None:
            prints = self.prints or fingerprints(self)
            store = self.stores[shape] = store_of(self.folder, self, x, prints)
        missing = [row for row, key in enumerate(keys) if key not in store.counts]
        if missing:
            levels, streams = sigma[missing], noise.rows(missing)
            counts = super().count_votes(x[missing], n, levels, streams, *draws)
            drawn_now = zip(missing, counts.tolist(), strict=True)
            store.add({keys[row]: tuple(count) for row, count in drawn_now})
        return torch.tensor([store.counts[key] for key in keys], device=x.device)

    def _keys(
        self, x: Tensor, n: int, sigma: Tensor, noise: NoiseStream, purpose: str
    ) -> list[VoteKey]:
        """What each image's votes are stored under."""
        kind = f"{'lattice' if noise.lattice else 'gaussian'} {x.device.type} {x.dtype}"
        kind += f" torch {torch.__version__}"
        pixels = x.detach().cpu().contiguous().numpy()  # whatever their layout in memory
        digests = [hashlib.sha256(image.tobytes()).hexdigest()[:32] for image in pixels]
        return [
            VoteKey(digest, id, noise.seed, purpose, n, level, kind)
            for digest, id, level in zip(digests, noise.ids, sigma.tolist(), strict=True)
        ]
