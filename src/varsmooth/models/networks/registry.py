"""From the name of a network and its options to the network."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from varsmooth._util.untrusted import check_limit
from varsmooth.errors import VarsmoothError, check, nearest, reason
from varsmooth.models.names import maker_of


def build(network: str, options: Mapping[str, Any] | None = None) -> nn.Module:
    """A fresh network from a registered name, or from an import path `package.module:name` of a
    class or function.

    An import path runs that package's code, so it must come from the user, never from a file
    of unknown origin.

    Examples:
        >>> build("conv4", {"widths": (8, 8, 8, 8)}).linear
        Linear(in_features=8, out_features=10, bias=True)
    """
    options = dict(options or {})
    maker: Callable[..., Any] = maker_of(network)
    how = "it must be a function that takes no arguments and returns the network"
    check(not isinstance(maker, nn.Module), f"{network} is a network itself; {how}")
    check(callable(maker), f"{network} is not a class or function that makes a network; {how}")
    parameters = inspect.signature(maker).parameters
    if all(p.kind != p.VAR_KEYWORD for p in parameters.values()):  # no **kwargs that take any
        for name in options:
            close = nearest(name, [*parameters]) if parameters else "; it takes none"
            check(name in parameters, f"{network} has no option {name!r}{close}")
    missing = [name for name in _required(parameters) if name not in options]
    needed = f"{network} needs the argument{'s' * (len(missing) > 1)} {', '.join(missing)}"
    check(not missing, f"{needed}; {how}, as in: def make(): return ...")
    try:
        _check_sizes(network, options)
        made = maker(**options)
    except VarsmoothError:
        raise
    except SystemExit as error:
        raise VarsmoothError(f"{network} cannot be built: {reason(error)}; {how}") from error
    except Exception as error:  # options are untrusted input
        given = f" with {options}" if options else ""
        why = f"{type(error).__name__}: {reason(error)}"
        raise VarsmoothError(f"{network} cannot be built{given}: it raised {why}") from error
    if not isinstance(made, nn.Module):
        raise VarsmoothError(f"{network} must return an nn.Module, not {type(made).__name__}")
    return made


def _required(parameters: Mapping[str, inspect.Parameter]) -> list[str]:
    """Names of the arguments without a default."""
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [n for n, p in parameters.items() if p.default is p.empty and p.kind not in several]


def _check_sizes(network: str, value: Any) -> None:
    """No number in the options may ask for more memory than any network needs."""
    if isinstance(value, Mapping | list | tuple):
        for inner in value.values() if isinstance(value, Mapping) else value:
            _check_sizes(network, inner)
    elif isinstance(value, int):
        check_limit("SIZE", value, f"an option of {network} is {value:,}")
