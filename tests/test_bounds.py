"""The statistics against published vectors, brute force and each other."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, norm

from varsmooth import bounds

VECTORS: dict[str, Any] = json.loads((Path(__file__).parent / "vectors.json").read_text())


@pytest.mark.parametrize(("k", "expected"), VECTORS["cohen_n1000_a1e-3_sigma1"].items())
def test_cohen_vectors(k: str, expected: list[float]) -> None:
    p, radius = expected
    assert bounds.clopper_pearson_lower(int(k), 1000, 1e-3) == pytest.approx(p, rel=1e-12)
    assert bounds.class_radius(int(k), 1000, 1.0, 1e-3) == pytest.approx(radius, rel=1e-9)


@pytest.mark.parametrize("case", VECTORS["q_1based"])
def test_order_statistic_vectors(case: dict[str, float]) -> None:
    q = bounds.order_statistics(int(case["N"]), case["D_over_sm"], 1.0, case["a_side"])
    assert q == (case["q_l"], case["q_u"])


@pytest.mark.parametrize(("n", "a", "largest"), VECTORS["Dmax_over_sm"])
def test_largest_distance_with_a_valid_index(n: int, a: float, largest: float) -> None:
    assert bounds.order_statistics(n, largest * (1 - 1e-9), 1.0, a) == (1, n)
    assert bounds.order_statistics(n, largest * (1 + 1e-9), 1.0, a) == (0, n + 1)


@pytest.mark.parametrize(("n", "a", "p", "z"), VECTORS["median_band"])
def test_median_band_vectors(n: int, a: float, p: float, z: float) -> None:
    assert bounds.median_band(n, a) == pytest.approx(z, rel=1e-12)
    assert norm.cdf(bounds.median_band(n, a)) == pytest.approx(p, rel=1e-12)


@pytest.mark.parametrize(("top", "n", "p0", "expected"), VECTORS["logE"])
def test_e_value_vectors(top: int, n: int, p0: float, expected: float) -> None:
    assert bounds.log_e_value(top, n, p0) == pytest.approx(expected, rel=1e-10)


def test_clopper_pearson_at_both_ends() -> None:
    assert bounds.clopper_pearson_lower([0, 10], 10, 0.01) == pytest.approx([0, 0.01**0.1])
    assert bounds.clopper_pearson_upper([0, 10], 10, 0.01) == pytest.approx([1 - 0.01**0.1, 1])


@pytest.mark.parametrize("n", [1, 7, 30])
@pytest.mark.parametrize("a", [0.2, 0.03])
def test_clopper_pearson_covers_for_every_p(n: int, a: float) -> None:
    """Exact coverage by summing the binomial, not by simulation."""
    k = np.arange(n + 1)
    lower = bounds.clopper_pearson_lower(k, n, a)
    upper = bounds.clopper_pearson_upper(k, n, a)
    for p in np.linspace(0.001, 0.999, 201):
        mass = binom.pmf(k, n, p)
        assert mass[lower > p].sum() <= a + 1e-12
        assert mass[upper < p].sum() <= a + 1e-12


def _brute_force(n: int, z: float, a: float) -> tuple[int, int]:
    p_l, p_u = norm.cdf(-z), norm.cdf(z)
    upper = [q for q in range(1, n + 1) if binom.sf(q - 1, n, p_u) <= a]
    lower = [q for q in range(1, n + 1) if binom.cdf(q - 1, n, p_l) <= a]
    return max(lower, default=0), min(upper, default=n + 1)


@settings(deadline=None, max_examples=150)
@given(n=st.integers(1, 80), z=st.floats(0, 3.5), a=st.floats(1e-6, 0.3))
def test_order_statistics_against_brute_force(n: int, z: float, a: float) -> None:
    assert bounds.order_statistics(n, z, 1.0, a) == _brute_force(n, z, a)


@settings(deadline=None, max_examples=150)
@given(n=st.integers(1, 300), z=st.floats(0, 3), a=st.floats(1e-6, 0.3), data=st.data())
def test_order_statistics_are_dual_to_clopper_pearson(
    n: int, z: float, a: float, data: st.DataObject
) -> None:
    """q_u(D) ≤ c ⇔ CP⁻(c, N, a) ≥ p_u(D)."""
    c = data.draw(st.integers(1, n))
    _, q_u = bounds.order_statistics(n, z, 1.0, a)
    lower, p_u = float(bounds.clopper_pearson_lower(c, n, a)), float(norm.cdf(z))
    if abs(lower - p_u) > 1e-12:
        assert (q_u <= c) == (lower >= p_u)


def test_entry_distances_of_the_worked_example() -> None:
    below = [1488, 1993, 2821, 4151, 6086, 8262, 9669]
    want = [0.2470448, 0.19857925, 0.13254499, 0.04258769, 0, 0.05783553, 0.22196059, 0.43831569]
    distances = bounds.entry_distances(below, 10_000, 0.25, 2.5e-4)
    np.testing.assert_allclose(distances, want, atol=5e-9)
    banded = bounds.entry_distances(below, 10_000, 0.25, 2.5e-4, band=0.1)
    np.testing.assert_allclose(banded, np.maximum(0, distances - 0.025), atol=1e-12)


def test_a_single_level_is_entered_at_once() -> None:
    assert bounds.entry_distances([], 100, 0.25, 1e-5).tolist() == [0.0]


@pytest.mark.parametrize(
    ("top", "runner_up", "cohen", "margin", "anytime"),
    [
        (450, 100, -0.2498454421, 0.4231360356, 0.3687166289),
        (800, 100, 0.7013264506, 0.8982800037, 0.8439649287),
        (800, 200, 0.7013264506, 0.6924605496, 0.6403079336),
        (990, 5, 1.9780095821, 2.0359102995, 1.9592236084),
        (520, 200, -0.0735745345, 0.3054753928, 0.2537594371),
    ],
)
def test_both_forms_of_the_radius(
    top: int, runner_up: int, cohen: float, margin: float, anytime: float
) -> None:
    """σ = 1, N = 1000, α = 10⁻³; the selection draws choose the larger one.

    Coverage cannot see an anytime bound that spends α on each side: both sequences hold after every
    vote, which wastes so much of α that even twice α leaves the error rate below α.
    """
    assert bounds.class_radius(top, 1000, 1.0, 1e-3) == pytest.approx(cohen, abs=1e-9)
    radius = bounds.margin_radius(top, runner_up, 1000, 1.0, 1e-3)
    assert radius == pytest.approx(margin, abs=1e-9)
    sequential = bounds.margin_radius(top, runner_up, 1000, 1.0, 1e-3, anytime=True)
    assert sequential == pytest.approx(anytime, abs=1e-9)
    assert bounds.margin_is_larger(top / 10, runner_up / 10, 100, 1000, 1e-3) == (margin > cohen)


def test_margin_radius() -> None:
    """Equal to Cohen's at α/2 for two classes, larger where the rest is spread over many."""
    two = bounds.margin_radius(700, 300, 1000, 0.5, 1e-3)
    assert two == pytest.approx(float(bounds.class_radius(700, 1000, 0.5, 5e-4)))
    spread = bounds.margin_radius(400, 70, 1000, 0.5, 1e-3)
    assert spread > 0 > bounds.class_radius(400, 1000, 0.5, 1e-3)
    p = bounds.clopper_pearson_lower(400, 1000, 5e-4)
    q = bounds.clopper_pearson_upper(70, 1000, 5e-4)
    assert spread == pytest.approx(float(0.25 * (norm.ppf(p) - norm.ppf(q))))


def test_fewest_votes() -> None:
    assert bounds.fewest_votes_to_certify(1e-3) == 10
    assert bounds.fewest_votes_to_decide(-math.log(1e-3)) == 12
    for a in (0.4, 0.05, 1e-3, 1e-6):
        n = bounds.fewest_votes_to_certify(a)
        assert bounds.class_radius(n, n, 1.0, a) > 0
        assert n == 1 or bounds.class_radius(n - 1, n - 1, 1.0, a) <= 1e-12
        n = bounds.fewest_votes_to_decide(-math.log(a))
        assert bounds.log_e_value(n, n, 0.5) >= -np.log(a) > bounds.log_e_value(n - 1, n - 1, 0.5)


def test_e_process_is_a_martingale_at_the_boundary() -> None:
    """E[E_{n+1} | past] = E_n under p = p0, by summing over the next vote."""
    for top, n, p0 in [(0, 0, 0.5), (3, 5, 0.6), (40, 50, 0.9)]:
        now = math.exp(bounds.log_e_value(top, n, p0))
        up = math.exp(bounds.log_e_value(top + 1, n + 1, p0))
        down = math.exp(bounds.log_e_value(top, n + 1, p0))
        assert p0 * up + (1 - p0) * down == pytest.approx(now, rel=1e-9)
