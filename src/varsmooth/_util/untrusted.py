"""Untrusted files: limits on what they may request, and JSON that is read within them.

Limits are checked before memory is allocated.
"""

import json
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

from varsmooth._util.typed import Extra, OptionError, parse
from varsmooth.errors import check, wrap_errors

LIMITS = {
    "PIXELS": 50_000_000,  # of one image; a small file may claim to be a huge picture
    "BYTES": 8 * 2**30,  # of one file, or of the images of a data set in memory
    "CLASSES": 100_000,
    "SIZE": 100_000,  # of an option of a network (classes, widths), of the batches of a replay
    "TEXT": 32 * 2**20,  # bytes of a config.json, a run.json, one row of a run, a table
    "DEPTH": 64,  # of lists and objects in JSON, because readers recurse into them
}


def check_limit(name: str, value: int, what: str) -> None:
    """Refuse `value` above the limit of this name; `what` begins the sentence and has a verb."""
    check(value <= LIMITS[name], f"{what}, above the limit of {LIMITS[name]:,}")


def check_regular(path: Path, limit: str = "BYTES") -> None:
    """Refuse pipes, sockets and devices, which may never end, and files larger than the limit."""
    status = path.stat()
    check(
        stat.S_ISREG(status.st_mode),
        f"{path} is a folder, a pipe, a socket or a device; give a regular file",
    )
    check_limit(limit, status.st_size, f"{path} has {status.st_size:,} bytes")


def parse_json(text: bytes) -> Any:
    """Parse untrusted text as JSON; ValueError if it is not JSON, or nested too deeply."""
    with suppress(RecursionError):
        value: Any = json.loads(text)
        depth = LIMITS["DEPTH"]
        if text.count(b"[") + text.count(b"{") <= depth:
            return value
        inside = [value]
        for _ in range(depth):
            groups = [part.values() if isinstance(part, dict) else part for part in inside]
            inside = [p for group in groups for p in group if isinstance(p, dict | list)]
        if not inside:
            return value
    raise ValueError("it is nested too deeply")


def read_object(
    path: Path,
    hint: Any,
    number: int,
    what: str,
    extra: Extra = "forbid",
    advice: str = "name another file",
) -> tuple[dict[str, Any], Any]:
    """What an untrusted JSON file of format `number` holds, as values and as its type says."""
    check_regular(path, "TEXT")
    content = path.read_bytes()
    with wrap_errors(ValueError, lambda e: f"{path} is not readable as JSON ({e}); copy it again"):
        values = parse_json(content)
    ours = isinstance(values, dict) and "format" in values
    mismatch = f"{path} does not describe a {what}"
    check(ours, f"{mismatch}; {advice}")
    check(
        values["format"] == number,
        f"{path} has format {values['format']!r}, this varsmooth reads {number}; update varsmooth",
    )
    with wrap_errors(OptionError, lambda error: f"{mismatch}: {error}; copy it again"):
        return values, parse(hint, content, extra)
