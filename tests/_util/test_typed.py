"""Options have the types they declare, from text, YAML or Python, or an error says why not."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from varsmooth._util.typed import OptionError, Typed, fit, read
from varsmooth.types import (
    Count,
    NonNegative,
    Odd,
    Positive,
    Probability,
    Share,
    Weight,
)

Levels = NonNegative | list[Positive] | None
Pair = tuple[Positive, Positive] | None


@pytest.mark.parametrize(
    ("hint", "value", "expected"),
    [
        (int, "3", 3),
        (float, "1e-3", 1e-3),  # which YAML takes for text
        (float, 2, 2.0),
        (bool, "false", False),
        (bool, True, True),
        (str, "null", "null"),
        (str | None, "null", None),
        (Path, "there", Path("there")),
        (Literal["a", "b"], "b", "b"),
        (Count | None, None, None),
        (Levels, "8", 8),
        (Levels, "0.25", [0.25]),
        (Levels, "0.12,0.25", [0.12, 0.25]),
        (Pair, "0.1,1", (0.1, 1.0)),
        (Pair, [0.1, 1], (0.1, 1)),
        (list[Weight], 0.5, [0.5]),
        (list[str], "a:B,c:D", ["a:B", "c:D"]),
        (list[float], np.array([1.0, 2.0]), [1.0, 2.0]),
        (int, np.int64(4), 4),
        (dict[str, Any], {"norm": "batch"}, {"norm": "batch"}),
        (Share, "1", 1.0),
    ],
)
def test_what_fits_is_read(hint: Any, value: Any, expected: Any) -> None:
    result = read("option", hint, value)
    assert result == expected
    assert type(result) is type(expected)


@pytest.mark.parametrize(
    ("hint", "value", "sentence"),
    [
        (int, "many", "n must be a whole number, not 'many'"),
        (int, "2.5", "n must be a whole number, not '2.5'"),
        (int, True, "n must be a whole number, not True"),
        (int, None, "n must be a whole number, not None"),
        (Count, "0", "n must be a whole number from 1 to 10⁸, not '0'"),
        (Count | None, -3, "n must be a whole number from 1 to 10⁸, not -3"),
        (NonNegative, "-1", "n must be a whole number from 0 to 2⁶³, not '-1'"),
        (Odd, 10, "n must be an odd number from 1 to 10⁸, not 10"),
        (float, "nan", "n must be a number, not 'nan'"),
        (float, float("inf"), "n must be a number, not inf"),
        (float, "1e400", "n must be a number, not '1e400'"),
        (Positive, "0", "n must be a number > 0, at most 10⁹, not '0'"),
        (Weight, "-1e-9", "n must be a number ≥ 0, not '-1e-9'"),
        (Probability, 1.0, "n must be a number between 0 and 1, not 1.0"),
        (Share, 1.5, r"n must be a number in \[0, 1\], not 1.5"),
        (bool, "maybe", "n must be true or false, not 'maybe'"),
        (Literal["a", "b", "c"], "d", "n must be a, b or c, not 'd'"),
        (
            Pair,
            "1",
            "n must be 2 values separated by commas, each a number > 0, at most 10⁹, not '1'",
        ),
        (Pair, "1,2,3", "n must be 2 values"),
        (
            list[Positive],
            "1,-2",
            "n must be a number > 0, at most 10⁹, or several separated by commas",
        ),
        (
            Levels,
            "a",
            "n must be a whole number from 0 to 2⁶³, or a number > 0, at most 10⁹, or several",
        ),
        (
            Weight | list[Weight] | None,
            -1,
            "n must be a number ≥ 0, or several separated by commas,",
        ),
        (Path, "", "n must be a path, not ''"),
        (Path, "a\0b", "n must be a path, not"),
        (str, "\ud800", "n must be text, not"),
        (str, 3, "n must be text, not 3"),
        (dict[str, Any], 3, "n must be a group of options, not 3"),
        (int, "\x1b[31m", r"not '\\x1b\[31m'"),  # a terminal is not steered by a value
    ],
)
def test_what_does_not_fit_is_one_sentence(hint: Any, value: Any, sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence) as caught:
        read("n", hint, value)
    assert "typing" not in str(caught.value)
    assert caught.value.name == "n"


@dataclass(frozen=True)
class Example(Typed):
    out: Path
    n: Count = 5


def test_a_dataclass_reads_its_fields_when_it_is_made() -> None:
    value: dict[str, Any] = {"out": "here", "n": "7"}
    assert Example(**value) == Example(Path("here"), 7)
    with pytest.raises(OptionError, match="n must be a whole number from 1 to 10⁸, not 0"):
        Example(Path("here"), 0)


@dataclass(frozen=True)
class Inner:
    sigma: Positive
    counts: tuple[NonNegative, ...] = ()


@dataclass(frozen=True)
class Outer:
    kind: Literal["a", "b"]
    parts: tuple[Inner, ...]
    best: Inner | None = None
    flag: bool = False


def test_json_becomes_what_its_type_says() -> None:
    stored = {"kind": "a", "parts": [{"sigma": 1, "counts": [3, 4]}], "best": None}
    assert fit(Outer, stored) == Outer("a", (Inner(1, (3, 4)),))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"kind": "c"}, "kind has a wrong value"),
        ({"kind": []}, "kind has a wrong value"),
        ({"parts": None}, "parts has a wrong value"),
        ({"parts": [{"sigma": 0.0}]}, "parts[0].sigma has a wrong value"),
        ({"parts": [{"sigma": True}]}, "parts[0].sigma has a wrong value"),
        ({"parts": [{"sigma": "0.5"}]}, "parts[0].sigma has a wrong value"),
        ({"parts": [{"sigma": float("nan")}]}, "parts[0].sigma has a wrong value"),
        ({"parts": [{"sigma": 1, "counts": [1, -1]}]}, "parts[0].counts[1] has a wrong value"),
        ({"parts": [{"sigma": 1, "counts": [1, 1.5]}]}, "parts[0].counts[1] has a wrong value"),
        ({"parts": [{"counts": []}]}, "parts[0].sigma is missing"),
        ({"best": {"sigma": 1, "other": 2}}, "best.other is unknown"),
        ({"flag": 1}, "flag has a wrong value"),
    ],
)
def test_json_that_is_otherwise_is_named(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(OptionError) as caught:
        fit(Outer, {"kind": "a", "parts": []} | change)
    assert str(caught.value) == sentence
