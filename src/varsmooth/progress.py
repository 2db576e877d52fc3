"""How far a long command is: a bar on a terminal, a plain line now and then in a log."""

import sys
import time
from collections.abc import Mapping

from tqdm import tqdm

SECONDS = 30.0  # between two lines of a log


class Progress:
    """Counts images or votes; shows how many, how fast and the time left on standard error."""

    def __init__(
        self, total: int, label: str, done: int = 0, shown: bool = True, unit: str = "images"
    ) -> None:
        terminal = sys.stderr.isatty()
        self.total, self.label, self.unit = total, label, unit
        self.logging = shown and not terminal
        self.bar = tqdm(
            total=total,
            initial=done,
            desc=label,
            unit={"images": "img"}.get(unit, unit),
            unit_scale=unit != "images",
            dynamic_ncols=True,
            disable=not (shown and terminal),
        )
        self.first, self.count, self.shares, self.waiting = done, done, "", ""
        self.started, self.told, self.said = time.monotonic(), -SECONDS, done

    def add(
        self, images: int, shares: Mapping[str, str] | None = None, samples: float | None = None
    ) -> None:
        """So many more.

        Args:
            images: images, or votes
            shares: percent of the rows so far, by name
            samples: noisy images that each of the last ones took
        """
        self.count += images
        shown = [f"{name}: {share} %" for name, share in (shares or {}).items()]
        cost = [] if samples is None else [f"{samples:,.0f} samples an image"]
        self.shares = ", ".join(shown + cost)
        self.waiting = ""
        self.bar.update(images)
        self._show()

    def wait(self, together: int, undecided: int) -> None:
        """Of the images that vote together, `undecided` still need votes."""
        self.waiting = f"{together - undecided} more decided, {undecided} undecided"
        self._show()

    def _show(self) -> None:
        self.bar.set_postfix_str(self._details(), refresh=True)
        if self.logging and time.monotonic() - self.told >= SECONDS:
            self._tell()

    def _details(self) -> str:
        return ", ".join(filter(None, (self.waiting, self.shares)))

    def _tell(self) -> None:
        self.told, self.said = time.monotonic(), self.count
        speed = (self.count - self.first) / max(self.told - self.started, 1e-9)
        left = tqdm.format_interval((self.total - self.count) / speed) if speed else "?"
        fast = f"{speed:,.0f}" if speed >= 100 else f"{speed:.3g}"
        print(
            f"{self.label}: {self.count}/{self.total} {self.unit}, {fast} {self.unit}/s, "
            f"{left} left" + (f"; {details}" if (details := self._details()) else ""),
            file=sys.stderr,
            flush=True,
        )

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.close()
        if self.logging and self.count > self.said:
            self._tell()
