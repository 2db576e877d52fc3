"""Gaussian noise from explicit per-image streams.

Every draw is a function of (seed, scope, image id, purpose, chunk): the batch size, the order
of the images, the number of workers and restarts change nothing, and no two images share noise.
"""

import hashlib
import itertools
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import torch
from torch import Tensor

from varsmooth.defaults import BATCH_SIZE
from varsmooth.errors import check

CHUNK = 16
"""Draws that come from one key. Constant: it is part of what a seed means."""

_WORDS = 624  # 32-bit words in the state of a Mersenne Twister
_OFFSET = 24  # bytes before them in the state that torch's CPU generator exports


def keyed_generator(device: torch.device | str, seed: int, *key: int | str) -> torch.Generator:
    """A generator whose stream is a function of (seed, *key), with the key's whole entropy."""
    generator = torch.Generator(device)
    _rekey(generator, (seed, *key))
    return generator


def _rekey(generator: torch.Generator, key: tuple[int | str, ...]) -> None:
    """Start `generator` anew from `key`.

    torch's CPU generator keeps 32 bits of `manual_seed`: among a million chunks about a hundred
    pairs would share their noise. So on the CPU the whole state is filled from a hash of the key.
    Other devices use Philox, whose key is the 64-bit seed itself.
    """
    digest = hashlib.shake_256(repr(key).encode())
    if generator.device.type != "cpu":
        generator.manual_seed(int.from_bytes(digest.digest(8), "little"))
        return
    state = _blank_state().copy()
    words = state[_OFFSET : _OFFSET + 8 * _WORDS].view(np.uint64)
    words[:] = np.frombuffer(digest.digest(4 * _WORDS), dtype="<u4")
    generator.set_state(torch.from_numpy(state))


@cache
def _blank_state() -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """The exported state of a CPU generator that has drawn nothing yet."""
    state: np.ndarray[tuple[int], np.dtype[np.uint8]]
    state = torch.Generator().manual_seed(0).get_state().numpy()
    words = state[_OFFSET : _OFFSET + 8 * _WORDS].view(np.uint64)
    expected = np.random.RandomState(0).get_state(legacy=False)["state"]["key"]  # the same twister
    if not np.array_equal(words, expected):
        raise RuntimeError(
            "varsmooth does not know how this torch stores the state of its CPU generator"
        )
    return state


def scoped_seed(seed: int, scope: str) -> int:
    """A seed whose noise is independent of the seed's own and of every other scope's.

    Settings are chosen on draws from a scope, so that a certificate under the same seed never
    counts them again. The empty scope is the seed itself. 48 bits, which every JSON reader keeps.

    >>> scoped_seed(7, ""), scoped_seed(7, "tune")
    (7, 61910047130959)
    """
    if not scope:
        return seed
    return int.from_bytes(hashlib.shake_256(repr((seed, scope)).encode()).digest(6), "little")


@dataclass(frozen=True)
class NoiseStream:
    """The noise of one batch of images: one independent stream per image id and purpose.

    With `lattice`, noise on the 8-bit lattice (see `perturb`), where floating point cannot leak x.
    """

    seed: int
    ids: tuple[int, ...]
    lattice: bool = False
    scope: tuple[str, ...] = ()

    @classmethod
    def make(
        cls,
        batch: int,
        seed: int | None = None,
        ids: Sequence[int] | Tensor | None = None,
        lattice: bool = False,
    ) -> "NoiseStream":
        """Streams for `batch` images; no seed means fresh entropy, no ids means 0..batch-1."""
        if ids is None:
            ids = range(batch)
        elif isinstance(ids, Tensor):
            ids = ids.tolist()
        ids = tuple(int(i) for i in ids)
        seed = secrets.randbits(63) if seed is None else seed
        check(hasattr(seed, "__index__"), f"seed must be a whole number, not {seed!r}")
        return cls(int(seed), ids, lattice)

    def scoped(self, name: str) -> "NoiseStream":
        """The same images with noise that is independent of every other scope's."""
        return replace(self, scope=(*self.scope, name))

    def rows(self, rows: Sequence[int]) -> "NoiseStream":
        """The streams of some of the images, unchanged."""
        return replace(self, ids=tuple(self.ids[row] for row in rows))

    def batches(
        self, like: Tensor, purpose: str, n: int, batch_size: int | None = None, start: int = 0
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Standard normal draws start..n-1 of every image, images in order.

        Args:
            like: Images (B,C,H,W) that give shape, dtype and device.
            purpose: Draws for different purposes are independent.
            n: The number of draws.
            batch_size: M, about; bounds memory.
            start: The first draw, a multiple of CHUNK.

        Yields:
            (rows, epsilon): epsilon (M,C,H,W) in channels-last memory, and rows (M,), the image
                that each draw belongs to.
        """
        check(
            batch_size is None or batch_size >= 1,
            f"batch_size must be at least 1, not {batch_size}",
        )
        channels, height, width = like.shape[1:]
        dtype = torch.float64 if self.lattice else like.dtype
        generator = torch.Generator(like.device)
        chunks = itertools.product(range(len(self.ids)), range(start // CHUNK, -(-n // CHUNK)))
        most = min(CHUNK, n - start)  # draws of one chunk that are used
        per_batch = max(1, (batch_size or BATCH_SIZE) // most)
        # A CPU draws blocks of 16 numbers, so that fewer of them are the same draws with less work.
        prefix = like.device.type == "cpu" and channels * height * width % 16 == 0
        size = most if prefix else CHUNK  # draws of one chunk that are made
        while batch := list(itertools.islice(chunks, per_batch)):
            shape = (len(batch), size, height, width, channels)
            epsilon = torch.empty(shape, dtype=dtype, device=like.device)
            for slot, (row, chunk) in zip(epsilon, batch, strict=True):
                _rekey(generator, (self.seed, *self.scope, self.ids[row], purpose, chunk))
                drawn = slot[: n - chunk * CHUNK] if prefix else slot
                drawn.normal_(generator=generator)
            rows = torch.tensor([row for row, _ in batch]).repeat_interleave(size)
            epsilon = epsilon.flatten(0, 1)
            draws = torch.arange(size)
            wanted = torch.cat([chunk * CHUNK + draws < n for _, chunk in batch])
            if not wanted.all():  # the last chunk of an image is cut
                kept = wanted.nonzero()[:, 0]  # a GPU would have to count a mask, and we to wait
                rows, epsilon = rows[kept], epsilon[kept.to(like.device, non_blocking=True)]
            yield rows.to(like.device, non_blocking=True), epsilon.permute(0, 3, 1, 2)

    def perturb(self, x: Tensor, sigma: Tensor, epsilon: Tensor) -> Tensor:
        """x + σ·ε for x (M,C,H,W), sigma (M,), epsilon (M,C,H,W); differentiable in x and σ.

        On the lattice: (round(255 x) + round(255 σ ε)) / 255. Integer addition is exact, so the
        theorems hold on the lattice of 8-bit images; gradients pass the rounding straight through.
        """
        scale = sigma.view(-1, 1, 1, 1)
        x = x.contiguous(memory_format=torch.channels_last)  # as epsilon: quicker, and one layout
        if not self.lattice:
            return torch.addcmul(x, scale.to(x.dtype), epsilon)
        steps = _round(255 * scale.double() * epsilon)
        return ((_round(255 * x.double()) + steps) / 255).to(x.dtype)


def _round(values: Tensor) -> Tensor:
    """Round to integers; the gradient is that of the identity."""
    return values.detach().round() + (values - values.detach())  # the second term is exactly 0
