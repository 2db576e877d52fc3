"""Calls of the user's own network: what it raises becomes one sentence that says what to do."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from torch import Tensor

from varsmooth.errors import VarsmoothError, reason

_USER_ERRORS = (AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


def _needs_range(function: Callable[..., Any], x: Tensor, *more: Any) -> bool:
    """Whether a function that fails on x works on the same images with pixels in [0, 1]."""
    clamped = x.detach().clamp(0, 1)
    if bool((clamped == x).all()):
        return False
    with suppress(*_USER_ERRORS):
        function(clamped, *more)
        return True
    return False


def needs_range_message(name: str, why: str) -> str:
    """The sentence on a function that fails only where noise takes pixels out of [0, 1]."""
    return (
        f"the {name} rejects pixels outside [0, 1] ({why}), but noise takes them "
        "below 0 and above 1; let it accept them, or clamp them inside its forward"
    )


def _in_half_precision(function: Callable[..., Any]) -> bool:
    """Whether a network of the user's holds float16 or bfloat16 weights."""
    weights: Any = getattr(function, "parameters", tuple)()
    return any(str(w.dtype) in ("torch.float16", "torch.bfloat16") for w in weights)


def call_user_model(name: str, function: Callable[..., Any], x: Tensor, *more: Any) -> Any:
    """What a function of the user's returns for images x; what it raises becomes one sentence."""
    try:
        return function(x, *more)
    except VarsmoothError:
        raise
    except _USER_ERRORS as error:
        if _needs_range(function, x, *more):
            raise VarsmoothError(needs_range_message(name, reason(error))) from error
        channels, height, width = x.shape[1:]
        why = reason(error)
        raise VarsmoothError(
            f"the {name} fails on {x.dtype} images of {width}×{height} pixels with "
            f"{channels} channel{'s' * (channels > 1)}: "
            + why
            + "; BatchNorm trains on two or more images at a time: give a larger `batch_size`"
            * ("more than 1 value per channel" in why)
            + "; call .float() on the network, whose weights are in half precision"
            * _in_half_precision(function)
            + "; most need float32, which x.float() gives" * (str(x.dtype) == "torch.float64")
            + "; channels come first: x.permute(0, 3, 1, 2)" * (channels > 4 > width)
        ) from error
