"""Values that are what their types say: options from text, YAML or Python, and JSON from a file.

A rule beside a type narrows it: `n: Count` is a whole number ≥ 1. Every option is checked when it
is given, not when it is first used.
"""

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from numbers import Integral, Real
from operator import eq
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from varsmooth.errors import VarsmoothError


class OptionError(VarsmoothError):
    """A value that does not fit: its name, or its place as `votes[0].sigma`, and what is wrong.

    Whoever asked for it spells its name.
    """

    def __init__(self, name: str = "", problem: str = "has a wrong value") -> None:
        super().__init__(f"{name.lstrip('.') or 'it'} {problem}")
        self.name, self.problem = name, problem


def as_option(name: str) -> str:
    """An option as it is typed on the command line: `--n-select`."""
    return "--" + name.replace("_", "-")


class Typed:
    """Base of a dataclass whose fields are read as their types say when it is made."""

    def __post_init__(self) -> None:
        kind: Any = type(self)
        for name, hint in _entries(kind)[0].items():
            object.__setattr__(self, name, read(name, hint, getattr(self, name)))


_MISFITS = (LookupError, OverflowError, TypeError, ValueError)


def read(name: str, hint: Any, value: Any) -> Any:
    """The value of an option as its type says; an `OptionError` if it does not fit."""
    try:
        return fit(hint, value, given=True)
    except _MISFITS as error:
        raise OptionError(name, f"must be {words(hint)}, not {value!r}") from error


def fit(hint: Any, value: Any, given: bool = False) -> Any:
    """A value as its type says, with the tuples and dataclasses that it names; else `OptionError`.

    JSON of a file is held against the type: a TypedDict stays as it is and may have more entries,
    and NaN fits nothing. What a person has given is helped into it: text is read, and one value
    stands for a list of one.
    """
    origin, inner = get_origin(hint), get_args(hint)
    if is_dataclass(hint) or is_typeddict(hint):
        return value if given and isinstance(value, hint) else _object(hint, value, given)
    if origin is Annotated:
        found = fit(inner[0], value, given)
        return _that(all(rule.holds(found) for rule in inner[1:]), found)
    if origin in (Union, UnionType):
        if NoneType in inner and (value is None or (given and str(value) == "null")):
            return None
        *others, last = (kind for kind in inner if kind is not NoneType)
        for kind in others:
            with suppress(*_MISFITS):
                return fit(kind, value, given)
        return fit(last, value, given)
    if origin in (list, tuple):
        return origin(_parts(inner, value, given))
    if hint is dict or origin is dict:
        for name, part in _that(isinstance(value, dict), value).items():
            _at(f".{name}", inner[1] if inner else Any, part, given)
        return value
    if origin is Literal:
        return _that(isinstance(value, str) and value in inner, value)
    if hint is str:
        return _that(isinstance(value, str) and b"\0" not in os.fsencode(value), value)
    if hint is Path:
        return Path(_that(fit(str, str(value)) != "" and isinstance(value, str | Path), value))
    return value if hint is Any else _scalar(hint, value, given)


def _scalar(hint: type, value: Any, given: bool) -> Any:
    """A truth value or a number; a whole one of 2¹²⁸ or more would not survive arithmetic."""
    if given and isinstance(value, str):
        value = {"true": True, "false": False}[value.lower()] if hint is bool else hint(value)
    kind = {bool: bool, int: Integral, float: Real}[hint]
    _that(isinstance(value, kind) and isinstance(value, bool) == (hint is bool), value)
    whole = isinstance(value, Integral)
    _that(abs(value) < 2**128 if whole else value == value, value)
    _that(not given or math.isfinite(value), value)
    return int(value) if hint is int else value


def _parts(kinds: Sequence[Any], value: Any, given: bool) -> Sequence[Any]:
    """The parts of a list or tuple; thousands of numbers are checked at once."""
    if given:  # one value, or several
        one = not isinstance(value, Iterable) or isinstance(value, Mapping)
        value = value.split(",") if isinstance(value, str) else [value] if one else list(value)
    _that(type(value) in (list, tuple), value)
    kind = kinds[0]
    if len(kinds) > 1 and kinds[-1] is not Ellipsis:
        _that(len(kinds) == len(value), value)
    else:
        kinds = [kind] * len(value)
        plain = get_args(kind)[0] if get_origin(kind) is Annotated else kind
        if not given and plain in (int, float) and set(map(type, value)) == {plain}:
            _that(all(map(eq, value, value)), value)
            for end in (min(value), max(value)):  # what a rule says of numbers is an interval
                fit(kind, end)
            return value  # type: ignore[no-any-return]
    parts = zip(kinds, value, strict=True)
    return [_at(f"[{i}]", kind, part, given) for i, (kind, part) in enumerate(parts)]


def _object(hint: Any, value: Any, given: bool) -> Any:
    kinds, needed = _entries(hint)
    names = _that(isinstance(value, dict), value).keys()
    for name in sorted(needed - names):
        raise OptionError(f".{name}", "is missing")
    found = {
        name: _at(f".{name}", kinds[name], value[name], given) for name in kinds if name in names
    }
    if is_typeddict(hint):
        return value
    for name in sorted(names - kinds.keys()):
        raise OptionError(f".{name}", "is unknown")
    return hint(**found)


@cache
def _entries(hint: Any) -> tuple[dict[str, Any], frozenset[str]]:
    """The types of the entries of a dataclass or TypedDict, and those that must be there."""
    kinds = get_type_hints(hint, include_extras=True)
    if is_typeddict(hint):
        return kinds, hint.__required_keys__
    needed = (f.name for f in fields(hint) if f.default is f.default_factory is MISSING)
    return kinds, frozenset(needed)


def _at(place: str, hint: Any, value: Any, given: bool) -> Any:
    try:
        return fit(hint, value, given)
    except OptionError as error:
        raise OptionError(place + error.name, error.problem) from None
    except _MISFITS:
        raise OptionError(place) from None


def _that(fits: bool, value: Any) -> Any:
    if not fits:
        raise OptionError
    return value


def words(hint: Any) -> str:
    """A type as a person says it: `int | None` is a whole number."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return str(inner[1].words)
    if origin in (Union, UnionType):
        said = [words(kind) for kind in inner if kind is not NoneType]
        # "a number, or several" says "a number" too
        return ", or ".join(w for w in said if not any(o.startswith(f"{w},") for o in said))
    if origin is Literal:
        return " or ".join(filter(None, (", ".join(inner[:-1]), inner[-1])))
    if origin is list or Ellipsis in inner:
        return f"{words(inner[0])}, or several separated by commas"
    if origin is tuple:
        return f"{len(inner)} values separated by commas, each {words(inner[0])}"
    named = {bool: "true or false", int: "a whole number", float: "a number", Path: "a path"}
    return named.get(hint, "text" if hint is str else "a group of options")
