"""Values checked against their types: options from text, YAML or Python, and JSON from a file.

A rule beside a type narrows it: `n: Count` is a whole number ≥ 1. Every option is checked when it
is set, not when it is first used. pydantic does the work, strictly: no value becomes another kind,
NaN and infinity fit nothing, and an object has no unknown entries. It is imported with the first
value, so that the command line's help does not wait for it.
"""

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import MISSING, fields
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from varsmooth.errors import VarsmoothError

if TYPE_CHECKING:
    from pydantic import TypeAdapter

Extra = Literal["forbid", "ignore"]


class OptionError(VarsmoothError):
    """A value that does not fit: its name, or its place as `votes[0].sigma`, and what is wrong.

    The reader of the error spells the name, as `--n-select`.
    """

    def __init__(self, name: str = "", problem: str = "has a wrong value") -> None:
        super().__init__(f"{name.lstrip('.') or 'it'} {problem}")
        self.name, self.problem = name, problem


def as_option(name: str) -> str:
    """An option as it is typed on the command line: `--n-select`."""
    return "--" + name.replace("_", "-")


class Typed:
    """Base of a dataclass of options: each field is read as its type says when it is made."""

    def __post_init__(self) -> None:
        kind: Any = type(self)
        hints = _hints(kind)
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if field.default is MISSING or value is not field.default:
                object.__setattr__(self, field.name, read(field.name, hints[field.name], value))


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def read(name: str, hint: Any, value: Any) -> Any:
    """The value of an option as its type says; an `OptionError` if it does not fit.

    Text is read as the type says, and one value stands for a list of one.
    """
    for kind in _members(hint):
        with suppress(ValueError, TypeError, OverflowError):
            return _adapter(kind).validate_python((_plain(kind, value),))[0]
    raise OptionError(name, f"must be {words(hint)}, not {value!r}")


def _members(hint: Any) -> list[Any]:
    """The types that a union allows, None first."""
    inner = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return sorted(inner, key=lambda kind: kind is not NoneType)


def _plain(hint: Any, value: Any) -> Any:
    """A value as typed by a user, converted to this type before it is checked."""
    kind = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    origin, text = get_origin(kind), isinstance(value, str)
    if text and b"\0" in os.fsencode(value):
        raise ValueError("text holds a zero byte")
    if origin in (list, tuple):
        several = isinstance(value, Iterable) and not isinstance(value, Mapping)
        parts = value.split(",") if text else list(value) if several else [value]
        inner = [one for one in get_args(kind) if one is not Ellipsis]
        kinds = inner * len(parts) if len(inner) == 1 else inner
        return origin(read("", one, part) for one, part in zip(kinds, parts, strict=True))
    if not text:
        numpy = kind in (int, float) and type(value).__module__ == "numpy"
        return value.item() if numpy else value
    if kind is bool:
        return {"true": True, "false": False}.get(value.lower())
    if kind is NoneType:
        return None if value == "null" else value
    return kind(value or None) if kind in (int, float, Path) else value


def parse(hint: Any, text: bytes, extra: Extra = "forbid") -> Any:
    """JSON as its type says, with the tuples and dataclasses that it names; else `OptionError`.

    Args:
        hint: The type.
        text: One JSON value.
        extra: "ignore" allows entries that a dataclass does not name.
    """
    from pydantic import ValidationError

    if rb"\u0000" in text:  # no name and no path has one
        raise OptionError(problem="holds a zero byte")
    try:
        return _adapter(hint, extra).validate_json(b"[%b]" % text)[0]
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"][1:])
        unknown = first["type"] in ("unexpected_keyword_argument", "extra_forbidden")
        kind = "unknown" if unknown else first["type"]
        problems = {"missing": "is missing", "unknown": "is unknown"}
        raise OptionError("".join(place), problems.get(kind, "has a wrong value")) from None


def fit(hint: Any, value: Any, extra: Extra = "forbid") -> Any:
    """`parse` for values that are JSON already, with tuples as lists and paths as text."""
    return parse(hint, json.dumps(value, default=str).encode(), extra)


@cache
def _adapter(hint: Any, extra: Extra = "forbid") -> "TypeAdapter[Any]":
    """Of a tuple of one: the configuration of a dataclass comes from what is around it."""
    from pydantic import ConfigDict, TypeAdapter

    config = ConfigDict(strict=True, allow_inf_nan=False, extra=extra)
    return TypeAdapter(tuple[hint], config=config)


def words(hint: Any) -> str:
    """A type in words: `int | None` is a whole number."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return str(inner[1].words)
    if origin in (Union, UnionType):
        each = [words(kind) for kind in inner if kind is not NoneType]
        # "a number, or several" says "a number" too
        return ", or ".join(w for w in each if not any(o.startswith(f"{w},") for o in each))
    if origin is Literal:
        return " or ".join(filter(None, (", ".join(inner[:-1]), inner[-1])))
    if origin is list or Ellipsis in inner:
        return f"{words(inner[0])}, or several separated by commas"
    if origin is tuple:
        return f"{len(inner)} values separated by commas, each {words(inner[0])}"
    named = {bool: "true or false", int: "a whole number", float: "a number", Path: "a path"}
    return named.get(hint, "text" if hint is str else "a group of options")
