"""Limits on what a file may ask for, checked before memory is allocated.

Each can be raised by an environment variable of its name: VARSMOOTH_MAX_PIXELS=200000000.
"""

import os
import stat
from pathlib import Path

from varsmooth.errors import VarsmoothError, require

LIMITS = {
    "PIXELS": 50_000_000,  # of one image; a small file may claim to be a huge picture
    "BYTES": 8 * 2**30,  # of one file, or of the images of a data set in memory
    "CLASSES": 100_000,
    "SIZE": 100_000,  # of an option of a network (classes, widths), of the batches of a replay
    "TEXT": 32 * 2**20,  # bytes of a config.json, a run.json, one row of a run, a table
}


def limit_of(name: str) -> int:
    """The limit of this name, as it is or as the user raised it."""
    variable = f"VARSMOOTH_MAX_{name}"
    text = os.environ.get(variable)
    try:
        return LIMITS[name] if text is None else int(text)
    except ValueError:
        raise VarsmoothError(f"{variable} must be an integer, not {text!r}") from None


def check_limit(name: str, value: int, what: str) -> None:
    """Refuse `value` above the limit of this name; `what` begins the sentence and has a verb."""
    limit, variable = limit_of(name), f"VARSMOOTH_MAX_{name}"
    require(value <= limit, f"{what}, above the limit of {limit:,}; raise it with {variable}")


def check_regular(path: Path, limit: str = "BYTES") -> None:
    """Refuse pipes, sockets and devices, which may never end, and files larger than the limit."""
    status = path.stat()
    require(
        stat.S_ISREG(status.st_mode),
        f"{path} is a folder, a pipe, a socket or a device; give a regular file",
    )
    check_limit(limit, status.st_size, f"{path} has {status.st_size:,} bytes")
