"""What distinguishes networks: a hash of the architecture, the weights and the buffers.

A hash cannot know everything that `forward` reads. What it does not cover shows in the outputs:
`varsmooth.probe` is the other half of an identity.
"""

import hashlib
import inspect
import json
from collections.abc import Callable, Mapping
from functools import partial
from types import CodeType, ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from varsmooth.smoothing import SmoothedClassifier


def fingerprint(module: nn.Module, tensors: Mapping[str, Tensor] | None = None) -> str:
    """SHA-256 over the architecture, the weights and all buffers: name, dtype, shape, bytes.

    The architecture is the class of every submodule and its plain attributes (numbers, strings,
    functions and other callables by name and by the values they carry, and lists of these), other
    than those that have the default of the constructor's parameter of that name. So two modules
    with the same weights but other heads, strides or norms differ, whatever device or memory layout
    they live in. What an attribute of another type decides is not covered, nor is the code of
    `forward`: a `varsmooth.probe.Probe` is. The settings of our selectors are not part of their
    fingerprints: `describe` states them.

    Args:
        module: A network, or a selector.
        tensors: The fingerprint of this module if its state dict were this one (default: its own).
    """
    state = module.state_dict() if tensors is None else tensors
    unsaved = {name: _rounded(b) for name, b in module.named_buffers() if name not in state}
    architecture = [
        [name, type(part).__qualname__, _settings(part)]
        for name, part in module.named_modules()  # outermost first
    ]
    digest = hashlib.sha256(json.dumps(architecture).encode())
    for name, tensor in sorted({**unsaved, **state}.items()):
        digest.update(f"\0{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        flat = tensor.detach().to("cpu").contiguous().flatten()
        digest.update(flat.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def fingerprints(g: SmoothedClassifier, classifier: str = "") -> dict[str, str]:
    """Those of f and of the selector; also that of a class of the user's own, which may vote so.

    `classifier` is that of f where it was computed a moment ago, as loading a model does.
    """
    own = {} if type(g).__module__.startswith("varsmooth.") else {"smoothing": _own(g)}
    parts = {"classifier": classifier or fingerprint(g.classifier)}
    return parts | {"selector": fingerprint(g.selector)} | own


def _own(g: SmoothedClassifier) -> str:
    """The name, the settings and the code of a subclass."""
    code = {name: _plain(value) for name, value in vars(type(g)).items() if callable(value)}
    about = [type(g).__qualname__, _settings(g), sorted(code.items())]
    return hashlib.sha256(json.dumps(about).encode()).hexdigest()


def _rounded(buffer: Tensor) -> Tensor:
    """To 1/65536 of the largest: code computes these, and processors differ in the last digits."""
    if not buffer.is_floating_point() or buffer.numel() == 0:
        return buffer
    values = buffer.detach().double().cpu()
    scale = 2.0 ** values.abs().max().clamp(1e-300).log2().ceil()
    return (values / scale * 65536).round() * scale


_OWN_TO_TORCH = {*vars(nn.Module()), "_is_torch_compile", "_compiled_call_impl"}


def _settings(part: nn.Module) -> dict[str, Any]:
    """The plain attributes of one module that its constructor's defaults do not imply."""
    described = hasattr(part, "describe") and type(part).__module__.startswith("varsmooth.")
    parameters = inspect.signature(type(part).__init__).parameters
    defaults = {name: parameter.default for name, parameter in parameters.items()}
    settings = {}
    for name, value in sorted(vars(part).items()):
        if name in _OWN_TO_TORCH or (described and not callable(value)):
            continue
        plain = _plain(value)
        if plain is not None and not (name in defaults and plain == _plain(defaults[name])):
            settings[name] = plain
    return settings


def _plain(value: Any, depth: int = 0) -> Any:
    """The value as JSON can hold it; None for what says nothing or is not plain."""
    if isinstance(value, bool | int | str):
        return value
    if isinstance(value, float | complex | bytes | torch.dtype):
        return repr(value)
    if isinstance(value, list | tuple):
        return [_plain(item, depth) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(item, depth) for key, item in sorted(value.items(), key=str)}
    if isinstance(value, partial):
        return {"partial": _plain([value.func, value.args, value.keywords], depth)}
    if inspect.isfunction(value):
        return _function(value, depth + 1)
    if inspect.isroutine(value) or inspect.isclass(value):
        return _named(value.__qualname__, getattr(value, "__self__", None), depth + 1)
    if isinstance(value, SimpleNamespace) or (callable(value) and not isinstance(value, nn.Module)):
        return _named(type(value).__qualname__, value, depth + 1)
    return None


def _named(name: str, carrier: Any, depth: int) -> Any:
    """A name, and the attributes of the object behind it; a module's are covered elsewhere."""
    if isinstance(carrier, nn.Module | ModuleType | type) or depth > 4:  # it may hold itself
        return name
    slots = [vars(kind).get("__slots__", ()) for kind in type(carrier).__mro__]
    names = [name for s in slots for name in ([s] if isinstance(s, str) else s)]
    carried = {name: getattr(carrier, name) for name in names if hasattr(carrier, name)}
    carried |= getattr(carrier, "__dict__", {})
    return [name, _plain(carried, depth)] if carried else name


def _function(function: Callable[..., Any], depth: int) -> Any:
    """A function's name, and the values that it carries.

    Defaults, closure, numbers of its module that it names, and decimal numbers.
    """
    name: str = function.__qualname__
    if (function.__module__ or "").partition(".")[0] == "torch" or depth > 4:  # it may hold itself
        return name
    named = inspect.getclosurevars(function)
    numbers = {k: v for k, v in named.globals.items() if type(v) in (int, float)}
    defaults = (function.__defaults__, function.__kwdefaults__)
    carried: list[Any] = [*defaults, named.nonlocals, numbers]
    values = [_plain(v, depth) for v in carried if v] + _decimals(function.__code__)
    return [name, *values] if values else name


def _decimals(code: CodeType) -> list[str]:
    """The floats in the code of a function and of those inside it, whatever the Python version."""
    inner = [_decimals(part) for part in code.co_consts if isinstance(part, CodeType)]
    own = {repr(number) for number in code.co_consts if isinstance(number, float)}
    return sorted(own.union(*inner))
