"""Types of plain values with the range they must lie in; importable without torch."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any


@dataclass(frozen=True)
class Rule:
    """What a value must be, in words, and as limits or as a test; pydantic reads it.

    Attributes:
        limits: Any of ge, gt, le and lt.
        holds: A test of the value that limits cannot express; it may raise ValueError.
    """

    words: str
    limits: tuple[tuple[str, float], ...] = ()
    holds: Callable[[Any], bool] | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        schema = {**handler(source), **dict(self.limits)}
        if self.holds is None:
            return schema
        test = {"type": "no-info", "function": self._tested}
        return {"type": "function-after", "function": test, "schema": schema}

    def _tested(self, value: Any) -> Any:
        if self.holds is not None and not self.holds(value):
            raise ValueError(self.words)
        return value


def _between(words: str, **limits: float) -> Rule:
    return Rule(words, tuple(limits.items()))


Count = Annotated[int, _between("a whole number from 1 to 10⁸", ge=1, le=10**8)]
Few = Annotated[int, _between("a whole number from 1 to 1000", ge=1, le=1000)]
UpTo1000 = Annotated[int, _between("a whole number from 0 to 1000", ge=0, le=1000)]
NonNegative = Annotated[int, _between("a whole number from 0 to 2⁶³", ge=0, lt=2**63)]
Odd = Annotated[
    int, Rule("an odd number from 1 to 10⁸", holds=lambda value: value in range(1, 10**8, 2))
]
Positive = Annotated[float, _between("a number > 0, at most 10⁹", gt=0, le=1e9)]
Weight = Annotated[float, _between("a number ≥ 0", ge=0)]
Output = Annotated[
    float, Rule("a number, or infinity", (("allow_inf_nan", True),), lambda value: value == value)
]
"""Of a network: anything but NaN."""
Probability = Annotated[float, _between("a number between 0 and 1", gt=0, lt=1)]
Port = Annotated[int, _between("a whole number from 0 to 65535", ge=0, lt=65536)]
Device = Annotated[
    str,
    Rule(
        "auto, cpu, cuda, mps or another device of torch, as in cuda:1",
        holds=lambda value: re.fullmatch(r"auto|[a-z]+(:\d{1,3})?", value) is not None,
    ),
]
Share = Annotated[float, _between("a number in [0, 1]", ge=0, le=1)]
Distance = Annotated[float, _between("a number from 0 to 10⁹", ge=0, le=1e9)]
Class = Annotated[int, _between("a class, or -1", ge=-1, lt=2**31)]
Id = Annotated[int, _between("a whole number of 64 bits", ge=-(2**63), lt=2**63)]
