"""What a long command says: at once what it is going to do, at the end what to do next."""

import os
import sys


def announce(doing: str, **settings: object) -> None:
    """One line on standard error before the work starts, in the first of several processes."""
    if _is_first():
        said = ", ".join(f"{name} {value}" for name, value in settings.items() if value is not None)
        print(f"{doing}: {said}", file=sys.stderr, flush=True)


def conclude(result: list[str], *commands: str) -> None:
    """The result on standard output, and the commands that usually follow."""
    if _is_first():
        print("\n".join([*result, *(f"next: {command}" for command in commands)]))


def _is_first() -> bool:
    return os.environ.get("RANK", "0") == "0"
