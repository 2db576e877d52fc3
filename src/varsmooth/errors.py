"""The one error a user can cause, and the checks at the public edge that raise it."""

import difflib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


class VarsmoothError(ValueError):
    """What the caller gave cannot work; the message is one sentence and says what to do."""


def require(condition: bool, sentence: str) -> None:
    """Raise `VarsmoothError(sentence)` unless the condition holds."""
    if not condition:
        raise VarsmoothError(sentence)


def nearest(word: str, known: Sequence[str]) -> str:
    """The end of an error sentence: the known word nearest to this one."""
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.4)
    return f"; did you mean {close[0]}?" if close else f"; choose from {', '.join(known)}"


def check_counts(**counts: Any) -> None:
    """Numbers of draws are whole and at least 1."""
    for name, value in counts.items():
        require(
            hasattr(value, "__index__") and value >= 1,
            f"{name} must be a whole number of at least 1, not {value!r}",
        )


def check_images(x: "Tensor") -> None:
    """Images are a float tensor (B,C,H,W), not empty, finite, in [0,1]."""
    require(
        hasattr(x, "is_floating_point"),
        "images must be a torch tensor of shape (batch, channels, height, width), "
        f"not {type(x).__name__}; convert them, as with torch.from_numpy",
    )
    require(
        x.ndim == 4,
        f"images must have the shape (batch, channels, height, width), not {tuple(x.shape)}; "
        "add a batch dimension with x[None]",
    )
    require(x.numel() > 0, "the batch of images is empty; give at least one image")
    require(
        str(x.dtype) in ("torch.float32", "torch.float64"),
        f"images must be float32 (or float64), not {x.dtype}; "
        + ("convert them with x.float()" if x.is_floating_point() else "divide bytes by 255 first"),
    )
    require(bool(x.isfinite().all()), "the images contain NaN or infinity; remove those images")
    low, high = x.detach().min().item(), x.detach().max().item()
    require(
        low >= 0 and high <= 1,
        f"pixels must lie in [0, 1], these go from {low:g} to {high:g}; "
        "scale the images, and put normalisation inside the classifier",
    )


def check_ids(ids: "Sequence[int] | Tensor | None", batch: int) -> None:
    """Image ids name the noise streams, so there is one for every image and none twice."""
    if ids is None:
        return
    require(
        all(hasattr(i, "__index__") for i in ids), "ids must be whole numbers, one for each image"
    )
    listed = [int(i) for i in ids]
    require(len(listed) == batch, f"there are {batch} images but {len(listed)} ids; give one each")
    require(len(set(listed)) == batch, "two images have the same id and would share their noise")


def check_sigma(name: str, sigma: float) -> float:
    """A noise level is one positive finite number."""
    try:
        require(not isinstance(sigma, str), f"{name} must be a number, not the text {sigma!r}")
        value = float(sigma)
    except TypeError as error:
        raise VarsmoothError(f"{name} must be one positive number, not {sigma!r}") from error
    require(0 < value < float("inf"), f"{name} must be positive and finite, not {sigma}")
    return value
