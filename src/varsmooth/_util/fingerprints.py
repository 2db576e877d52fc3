"""What distinguishes networks: a hash of the architecture and the weights."""

import hashlib
import inspect
import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from varsmooth.smoothing import SmoothedClassifier

MARK = "2-"
"""Begins a fingerprint that covers the architecture; the earlier ones cover class and weights."""


def fingerprint(module: nn.Module, tensors: Mapping[str, Tensor] | None = None) -> str:
    """SHA-256 over the architecture and every tensor of `state_dict`: name, dtype, shape, bytes.

    The architecture is the class of every submodule and its plain attributes (numbers, strings,
    functions by name, and lists of these), other than those that have the default of the
    constructor's parameter of that name. So two modules with the same weights but other heads,
    strides or norms differ, whatever device or memory layout they live in. What an attribute of
    another type decides is not covered, nor is the code of `forward`. The settings of a selector
    are not part of its fingerprint: `describe` says them.

    Args:
        module: A network, or a selector.
        tensors: The fingerprint of this module if it held these tensors (default: its own).
    """
    architecture = [
        [name, type(part).__qualname__, {} if hasattr(part, "describe") else _settings(part)]
        for name, part in module.named_modules()  # outermost first
    ]
    found = hashlib.sha256(json.dumps(architecture).encode())
    _add_tensors(found, module.state_dict() if tensors is None else tensors)
    return MARK + found.hexdigest()


def fingerprints(g: SmoothedClassifier) -> dict[str, str]:
    """Those of f and of who chooses σ."""
    return {"classifier": fingerprint(g.classifier), "selector": fingerprint(g.selector)}


def earlier_fingerprint(module: nn.Module) -> str:
    """The form that older versions wrote: SHA-256 over the class name and the tensors alone."""
    found = hashlib.sha256(type(module).__name__.encode())
    _add_tensors(found, module.state_dict())
    return found.hexdigest()


def matches(stored: str | None, module: nn.Module) -> bool:
    """Whether a stored fingerprint, of either form, is this module's."""
    return stored in (fingerprint(module), earlier_fingerprint(module))


def covers_architecture(stored: str) -> bool:
    """Whether a stored fingerprint is of the present form."""
    return stored.startswith(MARK)


def _add_tensors(found: "hashlib._Hash", tensors: Mapping[str, Tensor]) -> None:
    for name, tensor in sorted(tensors.items()):
        found.update(f"\0{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        flat = tensor.detach().to("cpu").contiguous().flatten()
        found.update(flat.view(torch.uint8).numpy().tobytes())


_OWN_TO_TORCH = vars(nn.Module()).keys()


def _settings(part: nn.Module) -> dict[str, Any]:
    """The plain attributes of one module that its constructor's defaults do not imply."""
    parameters = inspect.signature(type(part).__init__).parameters
    defaults = {name: parameter.default for name, parameter in parameters.items()}
    found = {}
    for name, value in sorted(vars(part).items()):
        plain = None if name in _OWN_TO_TORCH else _plain(value)
        if plain is not None and not (name in defaults and plain == _plain(defaults[name])):
            found[name] = plain
    return found


def _plain(value: Any) -> Any:
    """The value as JSON can hold it; None for what says nothing or is not plain."""
    if isinstance(value, bool | int | str):
        return value
    if isinstance(value, float | complex | bytes | torch.dtype):
        return repr(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in sorted(value.items(), key=str)}
    if inspect.isroutine(value) or inspect.isclass(value):
        return value.__qualname__
    return None
