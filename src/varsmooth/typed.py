"""Options as dataclasses whose fields are what their types say, from text, YAML or Python.

A rule beside a type narrows it: `n: Count` is a whole number ≥ 1. Every option is checked when it
is given, not when it is first used. `exact` is the same for what a file holds, without the help
that a person gets: nothing is converted.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import MISSING, dataclass, fields, is_dataclass
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
    cast,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from varsmooth.errors import VarsmoothError


@dataclass(frozen=True)
class Rule:
    """What a value must be, in words and as a test."""

    words: str
    holds: Callable[[Any], bool]


Count = Annotated[int, Rule("a whole number from 1 to 10⁸", lambda value: 1 <= value <= 10**8)]
Few = Annotated[int, Rule("a whole number from 1 to 1000", lambda value: 1 <= value <= 1000)]
NonNegative = Annotated[int, Rule("a whole number from 0 to 2⁶³", lambda value: 0 <= value < 2**63)]
Odd = Annotated[int, Rule("an odd number from 1 to 10⁸", lambda value: value in range(1, 10**8, 2))]
Positive = Annotated[float, Rule("a number > 0", lambda value: value > 0)]
Weight = Annotated[float, Rule("a number ≥ 0", lambda value: value >= 0)]
Probability = Annotated[float, Rule("a number between 0 and 1", lambda value: 0 < value < 1)]
Port = Annotated[int, Rule("a whole number from 0 to 65535", lambda value: 0 <= value < 65536)]
Device = Literal["auto", "cpu", "cuda"]
Share = Annotated[float, Rule("a number in [0, 1]", lambda value: 0 <= value <= 1)]
Distance = Annotated[float, Rule("a number from 0 to 10⁹", lambda value: 0 <= value <= 1e9)]
Level = Annotated[float, Rule("a number > 0, at most 10⁹", lambda value: 0 < value <= 1e9)]
Class = Annotated[int, Rule("a class, or -1", lambda value: -1 <= value < 2**31)]
Id = Annotated[int, Rule("a whole number of 64 bits", lambda value: -(2**63) <= value < 2**63)]


class OptionError(VarsmoothError):
    """An option that cannot be as it was given; whoever asked spells its name."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name} {problem}")
        self.name, self.problem = name, problem


class Typed:
    """Base of a dataclass whose fields are read as their types say when it is made."""

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(type(self), include_extras=True).items():
            object.__setattr__(self, name, read(name, hint, getattr(self, name)))


_MISFITS = (LookupError, OverflowError, TypeError, ValueError)


def read(name: str, hint: Any, value: Any) -> Any:
    """The value of an option as its type says; an `OptionError` if it does not fit."""
    try:
        return _read(hint, value)
    except _MISFITS as error:
        raise OptionError(name, f"must be {words(hint)}, not {value!r}") from error


def _read(hint: Any, value: Any) -> Any:
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        found = _read(inner[0], value)
        return _that(all(rule.holds(found) for rule in inner[1:]), found)
    if origin in (Union, UnionType):
        return _first(inner, value)
    if origin is Literal:
        return _that(value in inner, value)
    if origin in (list, tuple):
        parts = value.split(",") if isinstance(value, str) else _several(value)
        kinds = [inner[0]] * len(parts) if origin is list or inner[-1] is Ellipsis else inner
        return origin(_read(kind, part) for kind, part in zip(kinds, parts, strict=True))
    if is_dataclass(hint):
        kind = cast(type, hint)
        return value if isinstance(value, kind) else kind(**value)
    if hint is str or origin is dict:
        return _that(isinstance(value, origin or str), value)
    return value if hint is Any else _SCALARS[hint](value)


def _first(kinds: Sequence[Any], value: Any) -> Any:
    """The value as the first kind that it fits; null is None where None is among them."""
    if NoneType in kinds and (value is None or value == "null"):
        return None
    first, *others = kinds
    try:
        return _read(first, value)
    except _MISFITS:
        return _first(others, value)


def _several(value: Any) -> list[Any]:
    return (
        list(value) if isinstance(value, Iterable) and not isinstance(value, Mapping) else [value]
    )


def _that(fits: bool, value: Any) -> Any:
    if not fits:
        raise ValueError
    return value


def _whole(value: Any) -> int:
    return int(_that(isinstance(value, str | Integral) and not isinstance(value, bool), value))


def _number(value: Any) -> Any:
    found = float(_that(isinstance(value, str | Real) and not isinstance(value, bool), value))
    return _that(math.isfinite(found), found if isinstance(value, str) else value)


_SCALARS: dict[Any, Callable[[Any], Any]] = {
    bool: lambda value: {"true": True, "false": False}[str(value).lower()],
    int: _whole,
    float: _number,
    Path: lambda value: Path(_that(str(value) != "", value)),
}


def words(hint: Any) -> str:
    """A type as a person says it: `int | None` is a whole number."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return str(inner[1].words)
    if origin in (Union, UnionType):
        return ", or ".join(words(kind) for kind in inner if kind is not NoneType)
    if origin is Literal:
        return " or ".join(filter(None, (", ".join(inner[:-1]), inner[-1])))
    if origin is list or Ellipsis in inner:
        return f"{words(inner[0])}, or several separated by commas"
    if origin is tuple:
        return f"{len(inner)} values separated by commas, each {words(inner[0])}"
    named = {bool: "true or false", int: "a whole number", float: "a number", Path: "a path"}
    return named.get(hint, "text" if hint is str else "a group of options")


class Misfit(ValueError):
    """Where a value is not what its type says, as `votes[0].sigma`, and what is wrong with it."""

    def __init__(self, place: str = "", problem: str = "has a wrong value") -> None:
        super().__init__(f"{place.lstrip('.') or 'it'} {problem}")
        self.place, self.problem = place, problem


def exact(hint: Any, value: Any) -> Any:
    """JSON as its type says, with the tuples and dataclasses that the type names; else `Misfit`.

    A TypedDict stays as it is and may have more entries. NaN fits nothing.
    """
    origin, inner = get_origin(hint), get_args(hint)
    if is_dataclass(hint) or is_typeddict(hint):
        return _exact_object(hint, value)
    if origin is Annotated:
        found = exact(inner[0], value)
        return _fit(all(rule.holds(found) for rule in inner[1:]), found)
    if origin in (Union, UnionType):  # one type, or None
        return None if value is None else exact(inner[0], value)
    if origin is Literal:
        return _fit(type(value) is str and value in inner, value)
    if origin in (list, tuple):
        return origin(_exact_parts(inner, _fit(type(value) in (list, tuple), value)))
    if hint is dict or origin is dict:
        for name, part in _fit(type(value) is dict, value).items():
            _at(f".{name}", inner[1] if inner else Any, part)
        return value
    kinds = (int, float) if hint is float else (hint,)
    small = type(value) is not int or abs(value) < 2**128
    return _fit(hint is Any or (type(value) in kinds and small and value == value), value)


def _exact_parts(kinds: Sequence[Any], value: Sequence[Any]) -> Sequence[Any]:
    """The parts of a list or tuple; thousands of numbers are checked at once."""
    if kinds[-1] is not Ellipsis and len(kinds) > 1:
        parts = zip(kinds, _fit(len(kinds) == len(value), value), strict=True)
        return [_at(f"[{i}]", kind, part) for i, (kind, part) in enumerate(parts)]
    kind = kinds[0]
    plain = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    if plain in (int, float) and set(map(type, value)) == {plain}:
        _fit(all(map(eq, value, value)), value)
        for end in (min(value), max(value)):  # what a rule says of numbers is an interval
            exact(kind, end)
        return value
    return [_at(f"[{i}]", kind, part) for i, part in enumerate(value)]


def _exact_object(hint: Any, value: Any) -> Any:
    kinds, needed = _entries(hint)
    names = _fit(type(value) is dict, value).keys()
    for name in sorted(needed - names):
        raise Misfit(f".{name}", "is missing")
    if is_dataclass(hint):
        for name in sorted(names - kinds.keys()):
            raise Misfit(f".{name}", "is unknown")
    found = {name: _at(f".{name}", kinds[name], value[name]) for name in kinds if name in value}
    return cast(type, hint)(**found) if is_dataclass(hint) else value


@cache
def _entries(hint: Any) -> tuple[dict[str, Any], Set[str]]:
    """The types of the entries of a dataclass or TypedDict, and those that must be there."""
    kinds = get_type_hints(hint, include_extras=True)
    if is_dataclass(hint):
        return kinds, {field.name for field in fields(hint) if field.default is MISSING}
    return kinds, hint.__required_keys__


def _at(place: str, hint: Any, value: Any) -> Any:
    try:
        return exact(hint, value)
    except Misfit as error:
        raise Misfit(place + error.place, error.problem) from None


def _fit(fits: bool, value: Any) -> Any:
    if not fits:
        raise Misfit
    return value
