"""Feedback of a long command: first errors or the plan, at the end the result and what to type."""

import os
import shlex
import sys
from typing import TextIO, TypeVar

from varsmooth._util.typed import as_option
from varsmooth.data.source import Source, sample
from varsmooth.defaults import ALPHA, ALPHA_SELECT
from varsmooth.errors import check, printable
from varsmooth.models.descriptions import Description, describe
from varsmooth.models.names import check_code, is_code, is_external
from varsmooth.types import Device

S = TypeVar("S", bound=Source)


def resolve_images(
    model: str | None, images: S, trained: bool = False, about: Description | None = None
) -> S:
    """The images of a command, after checking that they and the model exist.

    This and `announce` come before torch is imported, which takes seconds.

    Args:
        model: as the user named it; an address is not fetched yet
        images: as the user named them; without a name those of the model
        trained: the model's training images themselves, not a sample of them
        about: the model's description, if it was read already
    """
    from varsmooth.data.catalog import check_source

    if model is not None and is_code(model):
        check_code(model)
        images = images.with_defaults(sample())
    elif model is not None and not is_external(model):
        about = about or describe(model)
        images = images.with_defaults(about.source if trained else about.samples)
    check_source(images)
    return images


def check_votes(n: int) -> None:
    """A verb that certifies at the default α, with a selector or without, needs enough votes."""
    from varsmooth.bounds import fewest_votes_to_certify

    fewest = fewest_votes_to_certify(ALPHA - ALPHA_SELECT)
    check(n >= fewest, f"--n {n} votes certify nothing; at least {fewest} are needed")


def held_out(images: Source) -> str | None:
    """A note on held-out images that are part of the training images."""
    from varsmooth.data.catalog import has_own

    whole = images.data is not None and not has_own("val", images)
    return f"a fixed fifth of each class, because {images.data} has no val" if whole else None


def announce(doing: str, device: Device | None = None, **settings: object) -> None:
    """The plan on standard error before the work starts, in the first of several processes.

    The device has a line of its own: torch, which knows it, is imported while the rest is read, and
    shards started together write whole lines into one log.
    """
    if not _is_first():
        return
    shown = ", ".join(f"{k} {_value(v)}" for k, v in settings.items() if v is not None)
    say(f"{doing}: {shown}" if shown else doing, sys.stderr)
    if device is not None:
        from varsmooth._util.processes import choose_device

        say(f"device: {choose_device(device)}", sys.stderr)


def _value(value: object) -> str:
    """A setting as the plan shows it."""
    if isinstance(value, list):
        return ", ".join(map(_value, value))
    if isinstance(value, float):
        return f"{value:g}"
    return f"{value:,}" if isinstance(value, int) and value >= 10_000 else str(value)


def command(verb: str, *words: object, **options: object) -> str:
    """A command to type next, quoted for the shell; an option that is None or empty is left out.

    Examples:
        >>> command("report export", "my runs/a", to="csv", out=None)
        "varsmooth report export 'my runs/a' --to csv"
    """
    parts = ["varsmooth", verb, *(shlex.quote(str(word)) for word in words)]
    for name, value in options.items():
        if value is not None and value != []:
            text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
            parts += [as_option(name), shlex.quote(text)]
    return " ".join(parts)


def conclude(result: list[str], *commands: str) -> None:
    """The result on standard output, and the commands that usually follow."""
    if _is_first():
        say("\n".join([*result, *(f"next: {command}" for command in commands)]))


def say(text: str, file: TextIO | None = None, end: str = "\n") -> None:
    """Print without control characters, which untrusted names may contain."""
    print(printable(text), file=file, end=end, flush=True)


def _is_first() -> bool:
    return os.environ.get("RANK", "0") == "0"
