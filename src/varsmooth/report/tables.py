"""Tables that are written once and shown as Markdown, LaTeX, CSV or HTML.

What is shown is rounded in the direction that claims less: radii and accuracies down, intervals
outward. CSV keeps every digit.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN

from varsmooth.report.statistics import Interval, PairedDifference, Share
from varsmooth.rounding import percent, rounded


@dataclass(frozen=True)
class Cell:
    """What is shown, and for CSV the exact value with its interval if it has one."""

    text: str
    value: float | int | str | None = None
    interval: Interval | None = None

    @classmethod
    def of(cls, value: str | int) -> "Cell":
        return cls(str(value), value)

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
        """A difference with its interval, signs shown."""
        numbers = (value, ROUND_HALF_EVEN), (interval.low, ROUND_FLOOR)
        shown, low, high = (
            _sign(rounded(number, digits, direction))
            for number, direction in (*numbers, (interval.high, ROUND_CEILING))
        )
        return cls(f"{shown} [{low}, {high}]", value, interval)

    @classmethod
    def difference(cls, difference: PairedDifference) -> "Cell":
        """A paired difference of accuracies in percentage points."""
        value, (low, high) = 100 * difference.value, difference.interval()
        return cls.signed(value, Interval(100 * low, 100 * high), 1)


def _sign(number: str) -> str:
    return number.replace("-", "−") if number.startswith("-") else f"+{number}"


@dataclass(frozen=True)
class Table:
    """A name for its files, a caption, and rows of cells."""

    name: str
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]

    @classmethod
    def of(cls, name: str, caption: str, rows: Sequence[Mapping[str, Cell | str | int]]) -> "Table":
        """From rows that name their columns; all have the same. No rows, no columns."""
        cells = [
            [cell if isinstance(cell, Cell) else Cell.of(cell) for cell in row.values()]
            for row in rows
        ]
        return cls(name, caption, list(rows[0]) if rows else [], cells)

    def to_markdown(self) -> str:
        head = [self.columns, ["---"] + ["---:"] * (len(self.columns) - 1)]
        lines = [*head, *([cell.text for cell in row] for row in self.rows)]
        escaped = ([text.replace("|", "\\|") for text in line] for line in lines)
        return f"{self.caption}\n\n" + "".join(f"| {' | '.join(line)} |\n" for line in escaped)

    def to_latex(self) -> str:
        """A booktabs table; needs \\usepackage{booktabs}."""
        head, *body = [self.columns, *([cell.text for cell in row] for row in self.rows)]
        alignment = "l" + "r" * (len(self.columns) - 1)
        lines = [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{_latex(self.caption)}}}",
            rf"\begin{{tabular}}{{{alignment}}}",
            r"\toprule",
            _latex_line(head),
            r"\midrule",
            *map(_latex_line, body),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
        ]
        return "\n".join(lines) + "\n"

    def to_csv(self) -> str:
        """Exact values; a column with intervals becomes three."""
        bounded = [any(row[j].interval for row in self.rows) for j in range(len(self.columns))]
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(
            name
            for column, wide in zip(self.columns, bounded, strict=True)
            for name in ([column, f"{column} low", f"{column} high"] if wide else [column])
        )
        for row in self.rows:
            writer.writerow(
                value
                for cell, wide in zip(row, bounded, strict=True)
                for value in ([cell.value, *(cell.interval or ("", ""))] if wide else [cell.value])
            )
        return out.getvalue()


_LATEX = str.maketrans(
    {character: "\\" + character for character in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"–": "--", "−": "$-$", "∞": r"$\infty$", "±": r"$\pm$", "≤": r"$\leq$", "≥": r"$\geq$"}
    | {"σ": r"$\sigma$", "λ": r"$\lambda$", "α": r"$\alpha$", "ε": r"$\varepsilon$"}
    | {"ℓ": r"$\ell$", "₂": "$_2$"}
)


def _latex(text: str) -> str:
    return text.translate(_LATEX)


def _latex_line(cells: Sequence[str]) -> str:
    return " & ".join(map(_latex, cells)) + r" \\"
