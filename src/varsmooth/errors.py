"""The one error a user can cause, the checks at the API boundary that raise it, and safe text."""

import difflib
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from operator import index
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from torch import Tensor

E = TypeVar("E", bound=BaseException)


class VarsmoothError(ValueError):
    """Invalid input from the caller; the message is one sentence and says what to do."""


def check(condition: bool, message: str) -> None:
    """Raise `VarsmoothError(message)` unless the condition holds."""
    if not condition:
        raise VarsmoothError(message)


@contextmanager
def wrap_errors(
    kinds: type[E] | tuple[type[E], ...], message: str | Callable[[E], str]
) -> Iterator[None]:
    """What raises one of these errors inside becomes one sentence, which may quote the error."""
    try:
        yield
    except kinds as error:
        raise VarsmoothError(message if isinstance(message, str) else message(error)) from error


def reason(error: BaseException) -> str:
    """What another library's error says, or the error that caused it, in one line.

    A first line that ends in a colon is followed by the beginning of the next two.
    """
    if isinstance(error.__cause__, Exception):
        return reason(error.__cause__)
    if isinstance(error, SystemExit):
        return f"it ended the program, SystemExit({error.code!r})"
    first, *more = (str(error).strip() or type(error).__name__).splitlines()
    return " ".join([first, *(_cut(line) for line in more[:2] if first.endswith(":"))])


def _cut(line: str, width: int = 150) -> str:
    """A line without what goes beyond the width."""
    line = line.strip()
    return line if len(line) <= width else f"{line[:width]} …"


def nearest(word: str, known: Sequence[str]) -> str:
    """The end of an error sentence: the known word nearest to this one."""
    bare = {one.lstrip("-"): one for one in known}
    close = difflib.get_close_matches(word.lstrip("-"), bare, n=1, cutoff=0.45)
    return f"; did you mean {bare[close[0]]}?" if close else f"; choose from {', '.join(known)}"


def check_counts(**counts: Any) -> None:
    """Numbers of draws are whole and at least 1."""
    for name, value in counts.items():
        check(
            hasattr(value, "__index__") and value >= 1,
            f"{name} must be a whole number of at least 1, not {value!r}",
        )


def check_probability(name: str, value: float) -> None:
    """A failure probability lies strictly between 0 and 1."""
    check(
        isinstance(value, int | float) and 0 < value < 1,
        f"{name} must be a number between 0 and 1, not {value!r}",
    )


def check_radius(value: Any) -> float:
    """A radius is one number ≥ 0 and finite."""
    number = hasattr(value, "__float__")
    check(number and 0 <= value < math.inf, f"radius must be ≥ 0 and finite, not {value!r}")
    return float(value)


def check_images(x: "Tensor") -> None:
    """Images are a float tensor (B,C,H,W), not empty, finite, in [0,1]."""
    check(
        hasattr(x, "is_floating_point"),
        "images must be a torch tensor of shape (batch, channels, height, width), "
        f"not {type(x).__name__}; "
        + (
            "give the .images of a batch, as in data.batch([0, 1]).images"
            if hasattr(x, "images")
            else "convert them, as with torch.from_numpy"
        ),
    )
    check(
        x.ndim == 4,
        f"images must have the shape (batch, channels, height, width), not {tuple(x.shape)}; "
        "add a batch dimension with x[None]",
    )
    check(x.numel() > 0, "the batch of images is empty; give at least one image")
    check(
        str(x.dtype) in ("torch.float32", "torch.float64"),
        f"images must be float32 (or float64), not {x.dtype}; "
        + ("convert them with x.float()" if x.is_floating_point() else "divide bytes by 255 first"),
    )
    check(bool(x.isfinite().all()), "the images contain NaN or infinity; remove those images")
    low, high = x.detach().min().item(), x.detach().max().item()
    rounding = low > -1e-3 and high < 1.001
    check(
        low >= 0 and high <= 1,
        f"pixels must lie in [0, 1], these go from {low:.9g} to {high:.9g}; "
        + (
            "clamp them with x.clamp(0, 1)"
            if rounding
            else "scale the images, and put normalisation inside the classifier"
        ),
    )


def check_ids(ids: "Sequence[int] | Tensor | None", batch: int) -> None:
    """Image ids name the noise streams, so there is one for every image and none twice."""
    if ids is None:
        return
    with wrap_errors(TypeError, "ids must be whole numbers, one for each image"):
        listed = [index(i) for i in ids]
    check(len(listed) == batch, f"there are {batch} images but {len(listed)} ids; give one each")
    check(
        len(set(listed)) == batch,
        "two images have the same id and would share their noise; give each its own",
    )


def check_sigma(name: str, sigma: float) -> float:
    """A noise level is one positive finite number."""
    check(not isinstance(sigma, str), f"{name} must be a number, not the text {sigma!r}")
    misfits = (RuntimeError, TypeError, ValueError)
    with wrap_errors(misfits, f"{name} must be one positive number, not {sigma!r}"):
        value = float(sigma)
    check(0 < value < float("inf"), f"{name} must be positive and finite, not {sigma}")
    return value


def check_level(level: float) -> float:
    """A noise level as it is applied, a float32 number."""
    import numpy as np  # not before the command line's help

    return check_sigma("a level", float(np.float32(check_sigma("a level", level))))


def printable(text: str) -> str:
    """Without control characters: names that others chose must not steer the terminal.

    >>> printable("a\\x1b[31mb")
    'a\\\\x1b[31mb'
    """
    return "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in text)
