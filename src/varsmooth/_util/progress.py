"""How far a long command is: a bar on a terminal, a plain line now and then in a log."""

import sys
import time

from tqdm import tqdm

from varsmooth.errors import printable

SECONDS = 30.0  # between two lines of a log


class Progress:
    """Counts images or votes; shows how many, how fast and the time left on standard error."""

    def __init__(
        self, total: int, label: str, done: int = 0, shown: bool = True, unit: str = "images"
    ) -> None:
        terminal = sys.stderr.isatty()
        self.total, self.label, self.unit = total, printable(label), unit
        self.logging = shown and not terminal
        self.bar = tqdm(
            total=total,
            initial=done,
            desc=self.label,
            unit={"images": "img"}.get(unit, unit),
            unit_scale=unit != "images",
            dynamic_ncols=True,
            disable=not (shown and terminal),
        )
        self.first, self.count = done, done
        self.found: tuple[str, ...] = ()
        self.waiting: tuple[str, ...] = ()
        self.started, self.told, self.said = time.monotonic(), -SECONDS, done

    def add(self, more: int, *found: str) -> None:
        """So many more images or votes, and what they showed."""
        self.count += more
        self.found, self.waiting = found, ()
        self.bar.update(more)
        self._show()

    def wait(self, together: int, undecided: int) -> None:
        """Of the images that vote together, `undecided` still need votes."""
        self.waiting = (f"{together - undecided} more decided, {undecided} undecided",)
        self._show()

    def _show(self) -> None:
        self.bar.set_postfix_str(self._details(), refresh=True)
        if self.logging and time.monotonic() - self.told >= SECONDS:
            self._tell()

    def _details(self) -> str:
        return ", ".join(self.waiting + self.found)

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
