"""The results of a batch of images: a sequence, a short table, and columns."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, overload

import torch
from torch import Tensor

from varsmooth.rounding import rounded

if TYPE_CHECKING:
    from typing_extensions import Self


Result = TypeVar("Result", bound=Any)

SHOWN = 12
"""Images of a batch that `print` and a notebook show."""


@dataclass(frozen=True, repr=False)
class Results(Sequence[Result], Generic[Result]):
    """The results of a batch: `results[i]` is one image's; the columns are tensors (B,)."""

    items: tuple[Result, ...]

    _columns: ClassVar[tuple[str, ...]] = ("id", "prediction", "sigma")
    _shown: ClassVar[dict[str, Callable[[float], str]]] = {
        "sigma": "{:.4f}".format,
        "radius": lambda radius: rounded(radius, 4),
    }

    def __repr__(self) -> str:
        """A short table; the evidence is in the items."""
        lines = self._lines()
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        table = ["  ".join(map(str.rjust, line, widths)) for line in lines]
        return "\n".join(table + self._more())

    def _repr_html_(self) -> str:
        head, *rows = self._lines()
        cells = ["".join(f"<td>{cell}</td>" for cell in row) for row in rows]
        body = "".join(f"<tr>{row}</tr>" for row in cells) + "".join(
            f"<tr><td colspan={len(head)}>{line}</td></tr>" for line in self._more()
        )
        names = "".join(f"<th>{name}</th>" for name in head)
        return f"<table><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>"

    def _lines(self) -> list[tuple[str, ...]]:
        """Names of the columns, and a line for each image."""
        shown = [
            tuple(self._shown.get(name, str)(getattr(item, name)) for name in self._columns)
            for item in self.items[:SHOWN]
        ]
        return [self._columns, *shown]

    def _more(self) -> list[str]:
        return [f"… {len(self)} images in all"] if len(self) > SHOWN else []

    def __len__(self) -> int:
        return len(self.items)

    @overload
    def __getitem__(self, index: int) -> Result: ...
    @overload
    def __getitem__(self, index: slice) -> "Self": ...
    def __getitem__(self, index: int | slice) -> "Result | Self":
        return type(self)(self.items[index]) if isinstance(index, slice) else self.items[index]

    @property
    def prediction(self) -> Tensor:
        """Classes, int64 (B,); −1 where abstaining."""
        return torch.tensor([item.prediction for item in self.items])

    @property
    def sigma(self) -> Tensor:
        """Noise levels, float64 (B,)."""
        return torch.tensor([item.sigma for item in self.items], dtype=torch.float64)
