"""What a long command says: at once what it is going to do, at the end what to do next."""

import os
import shlex
import sys
from typing import TextIO


def announce(doing: str, **settings: object) -> None:
    """One line on standard error before the work starts, in the first of several processes."""
    if _is_first():
        said = ", ".join(
            f"{name} {value:,}" if isinstance(value, int) and value >= 10_000 else f"{name} {value}"
            for name, value in settings.items()
            if value is not None
        )
        say(f"{doing}: {said}", sys.stderr)


def command(words: str, **options: object) -> str:
    """A command to type next; an option that is None or empty is left out."""
    said = ["varsmooth", words]
    for name, value in options.items():
        if value is not None and value != []:
            text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
            said += [f"--{name.replace('_', '-')}", shlex.quote(text)]
    return " ".join(said)


def conclude(result: list[str], *commands: str) -> None:
    """The result on standard output, and the commands that usually follow."""
    if _is_first():
        say("\n".join([*result, *(f"next: {command}" for command in commands)]))


def say(text: str, file: TextIO | None = None) -> None:
    """Print; control characters in names that others chose do not reach the terminal."""
    safe = (c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in text)
    print("".join(safe), file=file, flush=True)


def _is_first() -> bool:
    return os.environ.get("RANK", "0") == "0"
