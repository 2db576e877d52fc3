"""Tables of certificates: every number against one worked out by hand."""

import itertools
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, multinomial

from varsmooth.bounds import average_certified_radius
from varsmooth.evaluation.report.pages import templates
from varsmooth.evaluation.report.statistics import (
    Interval,
    PairedDifference,
    Share,
    certified_accuracy,
    envelope,
    false_certificates,
    mean_interval,
    reach,
    regret,
    share_intervals,
    sigma_groups,
)
from varsmooth.evaluation.report.tables import Cell, Table
from varsmooth.rounding import percent, rounded

NEVER = -np.inf


def test_abstentions_and_wrong_classes_count_at_no_radius() -> None:
    column = reach([0, 1, -1, 2], [0, 0, 0, 2], [0.5, 9.0, 0.0, 0.25])
    assert column.tolist() == [0.5, NEVER, NEVER, 0.25]
    accuracy = certified_accuracy(column, [0.0, 0.25, 0.2500001, 0.5, 0.6])
    assert accuracy.tolist() == [0.5, 0.5, 0.25, 0.25, 0.0]
    assert average_certified_radius(column) == 0.75 / 4


def test_unlabelled_is_never_right_by_abstaining() -> None:
    assert reach([-1], [-1], [0.0]).tolist() == [NEVER]


def test_envelope_is_the_best_at_each_radius_and_regret_the_worst_gap() -> None:
    short, long = [0.2] * 8 + [NEVER] * 2, [1.0] * 4 + [NEVER] * 6
    radii = [0.0, 0.1, 0.5]
    best = envelope([short, long])
    assert certified_accuracy(best, radii).tolist() == [0.8, 0.8, 0.4]
    assert regret(short, best, radii) == pytest.approx(0.4)
    assert regret(long, best, radii) == pytest.approx(0.4)
    assert regret([1.0] * 9 + [NEVER], best, radii) == pytest.approx(-0.1)


def test_share_interval_is_exact() -> None:
    assert list(Share(0, 20).interval()) == pytest.approx([0.0, 1 - 0.025 ** (1 / 20)])
    assert list(Share(20, 20).interval()) == pytest.approx([0.025 ** (1 / 20), 1.0])
    low, high = Share(7, 20).interval()
    assert binom.sf(6, 20, low) == pytest.approx(0.025)
    assert binom.cdf(7, 20, high) == pytest.approx(0.025)
    assert Share(7, 20).interval(0.99).low < low
    columns = share_intervals([0, 7, 20], 20)
    assert (columns[0][1], columns[1][1]) == (low, high)


def test_mean_interval_is_students() -> None:
    low, high = mean_interval([0.0, 1.0])  # t with one degree of freedom is Cauchy: tan(0.475 π)
    assert (low + high) / 2 == pytest.approx(0.5)
    assert (high - low) / 2 == pytest.approx(math.tan(0.475 * math.pi) / 2)
    assert mean_interval([3.0]) == (-math.inf, math.inf)


def test_paired_difference_by_hand() -> None:
    first = np.array([1, 1, 1, 0, 0, 1], dtype=bool)
    second = np.array([1, 0, 0, 1, 0, 1], dtype=bool)
    difference = PairedDifference.of(first, second)
    assert (difference.only_first, difference.only_second, difference.n) == (2, 1, 6)
    assert difference.value == pytest.approx(1 / 6)
    assert PairedDifference(8, 1, 50).p_value == pytest.approx(2 * (1 + 9) / 2**9)
    assert PairedDifference(0, 0, 50).p_value == 1.0
    low, high = PairedDifference(8, 0, 8).interval()  # 0.8 ± z √((0.9 + 0.1 − 0.8²)/10)
    assert [low, high] == pytest.approx([0.8 - 1.959964 * 0.6 / math.sqrt(10), 1.0], abs=1e-6)
    low, high = PairedDifference(3, 1, 50).interval()
    assert list(PairedDifference(1, 3, 50).interval()) == pytest.approx([-high, -low])


@pytest.mark.parametrize("chances", [(0.2, 0.05), (0.1, 0.1), (0.4, 0.3)])
def test_paired_interval_covers(chances: tuple[float, float]) -> None:
    """Coverage by complete enumeration of 40 images: near 95 %, and far from it at 80 %."""
    n, truth = 40, chances[0] - chances[1]
    covered = {0.95: 0.0, 0.8: 0.0}
    for a in range(n + 1):
        for b in range(n + 1 - a):
            weight = multinomial.pmf([a, b, n - a - b], n, [*chances, 1 - sum(chances)])
            for level in covered:
                low, high = PairedDifference(a, b, n).interval(level)
                covered[level] += float(weight) * (low <= truth <= high)
    assert 0.94 <= covered[0.95] <= 0.985
    assert 0.77 <= covered[0.8] <= 0.88


def test_false_certificates_of_a_whole_table() -> None:
    total = false_certificates(1e-3, 500)
    assert total.expected == pytest.approx(0.5)
    assert binom.cdf(total.at_most, 500, 1e-3) >= 0.95 > binom.cdf(total.at_most - 1, 500, 1e-3)
    assert total.all_true == pytest.approx(math.exp(500 * math.log1p(-1e-3)))


def test_sigma_groups() -> None:
    levels = np.array([0.5, 0.25, 0.5, 1.0])
    assert [group.tolist() for group in sigma_groups(levels)] == [[1], [0, 2], [3]]
    spread = np.random.default_rng(0).permutation(np.linspace(0.1, 1, 55))
    groups = sigma_groups(spread, most=5)
    assert [len(group) for group in groups] == [11] * 5
    assert all(spread[a].max() < spread[b].min() for a, b in itertools.pairwise(groups))


@given(st.floats(0, 10), st.integers(1, 6))
def test_a_shown_radius_is_never_above_the_true_one(radius: float, digits: int) -> None:
    shown = Decimal(rounded(radius, digits))
    assert shown <= Decimal(radius)
    assert Decimal(radius) - shown < Decimal(1).scaleb(-digits)


@given(st.integers(1, 10_000), st.data())
def test_a_shown_percentage_is_rounded_down_from_integers(n: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, n))
    tenths = int(percent(k, n).replace(".", ""))
    assert tenths * n <= 1000 * k < (tenths + 1) * n


def test_cells_round_intervals_outward() -> None:
    assert Cell.share(Share(29, 100)).text.startswith("29.0 [")
    low, high = Share(29, 100).interval()
    shown = Cell.share(Share(29, 100)).text.split("[")[1].rstrip("]").split("–")
    assert float(shown[0]) <= 100 * low
    assert float(shown[1]) >= 100 * high
    assert Cell.difference(PairedDifference(0, 10, 100)).text.startswith("−10.0 [−")
    assert Cell.difference(PairedDifference(10, 0, 100)).text.startswith("+10.0 [+")
    small = Cell.signed(-0.00026, Interval(-0.00032, -0.00014), 3)  # excludes 0, and shows it
    assert small.text == "−0.0003 [−0.0004, −0.0001]"


def test_table_formats() -> None:
    share = Share(1, 3)
    table = Table("t", "50 % of σ", ["run", "x_1"], [[Cell.of("a|b & c"), Cell.share(share)]])
    assert table.to_markdown().splitlines()[2:4] == ["| run | x_1 |", "| --- | ---: |"]
    assert "a\\|b & c" in table.to_markdown()
    assert r"\caption{50 \% of $\sigma$}" in table.to_latex()
    assert r"a|b \& c & 33.3 [" in table.to_latex()
    assert r"run & x\_1 \\" in table.to_latex()
    head, line = table.to_csv().splitlines()
    assert head == "run,x_1,x_1 low,x_1 high"
    assert [float(x) for x in line.split(",")[1:]] == [1 / 3, *share.interval()]
    parts: Any = templates("varsmooth.evaluation.report").get_template("parts.html").module
    html = parts.table(table)
    assert "<td>a|b &amp; c</td>" in html
    assert "33.3<small>[" in html
