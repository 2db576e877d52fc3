"""Shards: workers that share a run without a connection.

Shard i of N computes blocks i, i+N, … of the run's images (counted from 1) and appends to a file of
its own, named after the shard and the machine. So any shard may be started anywhere, at any time
and more than once: at worst a block is computed twice, with the same result.
"""

import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from varsmooth._util.files import LOCK
from varsmooth.evaluation.records import Run

Item = TypeVar("Item")
_FILE = re.compile(r"rows-(\d+)-of-(\d+)-.*\.jsonl")


@dataclass(frozen=True)
class Shard:
    """Part `index` of `count`; 1 of 1 is a whole run.

    Examples:
        >>> Shard.parse("2/3").of("abcdefgh")
        'beh'
    """

    index: int = 1
    count: int = 1
    own_file: bool = False

    @classmethod
    def parse(cls, text: str | None) -> "Shard":
        """From "3/32"; without a text the whole run."""
        if text is None:
            return cls()
        index, count = map(int, text.split("/"))
        return cls(index, count, own_file=True)

    def of(self, items: Sequence[Item]) -> Sequence[Item]:
        """This shard's items."""
        return items[self.index - 1 :: self.count]

    @property
    def _name(self) -> str:
        host = re.sub(r"[^\w.-]", "-", socket.gethostname())
        return f"{self.index:05d}-of-{self.count:05d}-{host}"

    @property
    def lock(self) -> str:
        """The name of the lock that a worker of this shard holds."""
        return f"{LOCK}-{self._name}" if self.own_file else LOCK

    def writer(self, rank: int = 0) -> str:
        """The writer of the rows of process `rank`."""
        own = f"{rank:05d}"
        return f"{self._name}-{own}" if self.own_file else own


def blocks(images: int, size: int) -> list[slice]:
    """Positions 0..images-1 in blocks of `size`."""
    return [slice(start, min(start + size, images)) for start in range(0, images, size)]


def unfinished(run: Run) -> list[str]:
    """The shards of a run that have images left, as in `3/32 (10 of 40 images)`.

    Files tell which shard computed what. Empty if everything is there, or if no shards, or shards
    of several counts, wrote the files.
    """
    header, matches = run.header, [_FILE.fullmatch(path.name) for path in run.files]
    counts = {int(match[2]) for match in matches if match}
    if None in matches or len(counts) != 1 or "block" not in header:
        return []
    (count,) = counts
    done: dict[int, set[int]] = {}
    for path in run.files:
        index = int(_FILE.fullmatch(path.name)[1])  # type: ignore[index]
        done.setdefault(index, set()).update(row["id"] for row in run.stored([path]))
    every = blocks(header["dataset"]["size"], header["block"])
    left = []
    for index in range(1, count + 1):
        size = sum(block.stop - block.start for block in Shard(index, count).of(every))
        present = len(done.get(index, ()))
        if present < size:
            left.append(f"{index}/{count} ({present} of {size} images)")
    return left


def unfinished_text(run: Run) -> str:
    """What to add to a sentence that says how many images of a run are missing."""
    left = unfinished(run)
    more = f" and {len(left) - 5} more" if len(left) > 5 else ""
    return f" (unfinished shards: {', '.join(left[:5])}{more})" if left else ""
