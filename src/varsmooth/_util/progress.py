"""Progress of a long command: a bar on a terminal, a line every 30 seconds in a log."""

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
        self.details: tuple[str, ...] = ()
        self.waiting: tuple[str, ...] = ()
        self.started, self.last_log, self.logged = time.monotonic(), -SECONDS, done

    def add(self, more: int, *details: str) -> None:
        """Count more images or votes; `details` are shown beside the count."""
        self.count += more
        self.details, self.waiting = details, ()
        self.bar.update(more)
        self._show()

    def wait(self, together: int, undecided: int) -> None:
        """Of the `together` images of a block, `undecided` still need votes."""
        self.waiting = (f"{together - undecided} more decided, {undecided} undecided",)
        self._show()

    def _show(self) -> None:
        self.bar.set_postfix_str(self._details(), refresh=True)
        if self.logging and time.monotonic() - self.last_log >= SECONDS:
            self._log()

    def _details(self) -> str:
        return ", ".join(self.waiting + self.details)

    def _log(self) -> None:
        self.last_log, self.logged = time.monotonic(), self.count
        speed = (self.count - self.first) / max(self.last_log - self.started, 1e-9)
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
        if self.logging and self.count > self.logged:
            self._log()
