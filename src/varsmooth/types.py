"""Types of plain values with the range they must lie in; importable without torch."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal


@dataclass(frozen=True)
class Rule:
    """What a value must be, in words and as a test."""

    words: str
    holds: Callable[[Any], bool]


Count = Annotated[int, Rule("a whole number from 1 to 10⁸", lambda value: 1 <= value <= 10**8)]
Few = Annotated[int, Rule("a whole number from 1 to 1000", lambda value: 1 <= value <= 1000)]
NonNegative = Annotated[int, Rule("a whole number from 0 to 2⁶³", lambda value: 0 <= value < 2**63)]
Odd = Annotated[int, Rule("an odd number from 1 to 10⁸", lambda value: value in range(1, 10**8, 2))]
Positive = Annotated[float, Rule("a number > 0, at most 10⁹", lambda value: 0 < value <= 1e9)]
Weight = Annotated[float, Rule("a number ≥ 0", lambda value: value >= 0)]
Probability = Annotated[float, Rule("a number between 0 and 1", lambda value: 0 < value < 1)]
Port = Annotated[int, Rule("a whole number from 0 to 65535", lambda value: 0 <= value < 65536)]
Device = Literal["auto", "cpu", "cuda"]
Share = Annotated[float, Rule("a number in [0, 1]", lambda value: 0 <= value <= 1)]
Distance = Annotated[float, Rule("a number from 0 to 10⁹", lambda value: 0 <= value <= 1e9)]
Class = Annotated[int, Rule("a class, or -1", lambda value: -1 <= value < 2**31)]
Id = Annotated[int, Rule("a whole number of 64 bits", lambda value: -(2**63) <= value < 2**63)]
