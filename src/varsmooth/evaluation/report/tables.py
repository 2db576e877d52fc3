"""Tables that are written once and shown as Markdown, LaTeX, CSV or HTML.

What is shown is rounded in the direction that claims less: radii and accuracies down, intervals
outward. CSV keeps every digit.
"""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_HALF_EVEN

from varsmooth.evaluation.report.statistics import Interval, PairedDifference, Share
from varsmooth.rounding import percent, rounded


@dataclass(frozen=True)
class Cell:
    """What is shown, and for CSV the exact value with its interval if it has one."""

    text: str
    value: float | int | str | None = None
    interval: Interval | None = None

    @classmethod
    def of(cls, value: "Value") -> "Cell":
        if isinstance(value, Share):
            return cls.share(value)
        if isinstance(value, PairedDifference):
            return cls.difference(value)
        return value if isinstance(value, Cell) else cls(str(value), value)

    @classmethod
    def share(cls, share: Share, up: bool = False) -> "Cell":
        """A percentage with its interval, rounded outward."""
        low, high = share.interval()
        shown = f"{rounded(100 * low, 1)}–{rounded(100 * high, 1, ROUND_CEILING)}"
        return cls(f"{percent(share.k, share.n, up)} [{shown}]", share.value, Interval(low, high))

    @classmethod
    def mean_radius(cls, value: float, interval: Interval) -> "Cell":
        """A radius with its interval, rounded outward."""
        low, high = rounded(interval.low), rounded(interval.high, direction=ROUND_CEILING)
        return cls(f"{rounded(value)} [{low}–{high}]", value, interval)

    @classmethod
    def signed(cls, value: float, interval: Interval, digits: int) -> "Cell":
        """A difference with its interval, signs shown; digits enough to see that it excludes 0."""
        if interval.low * interval.high > 0:
            near = min(abs(interval.low), abs(interval.high))
            digits = max(digits, math.ceil(-math.log10(near)))
        numbers = (
            rounded(value, digits, ROUND_HALF_EVEN),
            rounded(interval.low, digits),
            rounded(interval.high, digits, ROUND_CEILING),
        )
        shown, low, high = (
            number.replace("-", "−") if number.startswith("-") else f"+{number}"
            for number in numbers
        )
        return cls(f"{shown} [{low}, {high}]", value, interval)

    @classmethod
    def difference(cls, difference: PairedDifference) -> "Cell":
        """A paired difference of accuracies in percentage points."""
        value, (low, high) = 100 * difference.value, difference.interval()
        return cls.signed(value, Interval(100 * low, 100 * high), 1)


Value = Cell | Share | PairedDifference | str | int


@dataclass(frozen=True)
class Table:
    """A name for its files, a caption, and rows of cells."""

    name: str
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]

    @classmethod
    def of(cls, name: str, caption: str, rows: Sequence[Mapping[str, Value]]) -> "Table":
        """From rows that name their columns; all have the same. No rows, no columns."""
        cells = [[Cell.of(value) for value in row.values()] for row in rows]
        return cls(name, caption, list(rows[0]) if rows else [], cells)

    def _lines(self) -> list[Sequence[str]]:
        return [self.columns, *([cell.text for cell in row] for row in self.rows)]

    def to_markdown(self) -> str:
        head, *body = ([text.replace("|", "\\|") for text in line] for line in self._lines())
        lines = [head, ["---"] + ["---:"] * (len(head) - 1), *body]
        return f"{self.caption}\n\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines)

    def to_latex(self) -> str:
        """A booktabs table; needs \\usepackage{booktabs}."""
        lines = ([text.translate(_LATEX) for text in line] for line in self._lines())
        head, *body = (" & ".join(line) + r" \\" for line in lines)
        shown = [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{self.caption.translate(_LATEX)}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(self.columns) - 1)}}}",
            *(r"\toprule", head, r"\midrule", *body, r"\bottomrule"),
            r"\end{tabular}",
            r"\end{table}",
        ]
        return "\n".join(shown) + "\n"

    def to_csv(self) -> str:
        """Exact values; a column with intervals becomes three."""
        lines: list[list[object]] = [[] for _ in range(1 + len(self.rows))]
        for name, *cells in zip(self.columns, *self.rows, strict=True):
            wide = any(cell.interval for cell in cells)
            lines[0] += [name, f"{name} low", f"{name} high"] if wide else [name]
            for line, cell in zip(lines[1:], cells, strict=True):
                line += [cell.value, *(cell.interval or ("", ""))] if wide else [cell.value]
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows([map(literal, line) for line in lines])
        return out.getvalue()


def literal(value: object) -> object:
    """A cell of CSV that a spreadsheet shows; it runs text that begins like a formula.

    >>> literal("=1+1"), literal("runs"), literal(-1)
    ("'=1+1", 'runs', -1)
    """
    formula = isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r"))
    return f"'{value}" if formula else value


_LATEX = str.maketrans(
    {character: "\\" + character for character in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"–": "--", "−": "$-$", "∞": r"$\infty$", "±": r"$\pm$", "≤": r"$\leq$", "≥": r"$\geq$"}
    | {"σ": r"$\sigma$", "λ": r"$\lambda$", "α": r"$\alpha$", "ε": r"$\varepsilon$"}
    | {"ℓ": r"$\ell$", "₂": "$_2$"}
)
