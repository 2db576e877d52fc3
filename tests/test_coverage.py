"""Over thousands of simulated certificates the error rate stays within α, and is not far below it.

The same image under thousands of ids is thousands of independent certificates. α is coarse (0.1):
at 10⁻³ a doubled error rate would hardly ever be seen. False-alarm rate of each test < 10⁻⁶.
"""

import numpy as np
import pytest
import torch
from scipy.stats import binom, norm

from tests.oracles import Linear, LinearSelector, WrongAbove, point
from varsmooth import (
    ABSTAIN,
    FixedSelector,
    MedianSelector,
    SmoothedClassifier,
    bounds,
    certify,
    certify_at,
    predict,
)

TRIALS = 2000


def at_most(errors: int, rate: float, trials: int = TRIALS) -> bool:
    """Whether `errors` is believable at this error rate (one-sided, 10⁻⁶)."""
    return bool(binom.sf(errors - 1, trials, rate) > 1e-6)


def test_the_alarm_rings_for_a_doubled_rate() -> None:
    assert at_most(int(0.1 * TRIALS), 0.1)
    assert not at_most(int(0.2 * TRIALS), 0.1)


@pytest.mark.parametrize("runner_up", [False, True])
def test_fixed_certificate(runner_up: bool) -> None:
    g = SmoothedClassifier(Linear(), FixedSelector(0.25))
    found = certify(
        g, point(0.7, 0.5, copies=TRIALS), n0=20, n=150, alpha=0.1, runner_up=runner_up, seed=1
    )
    false = int((found.radius > 0.2).sum())
    assert at_most(false, 0.1)
    assert false > 0.02 * TRIALS  # tight: with two classes the runner-up bound spends half of α


def test_median_bounds() -> None:
    """h_ql and h_qu against the true percentiles Φ(∓D/σ_m), each side at a."""
    n, z, a = 201, 0.5, 0.1
    samples = np.sort(np.random.default_rng(1).standard_normal((TRIALS, n)), axis=1)
    q_l, q_u = bounds.order_statistics(n, z, 1.0, a)
    too_high, too_low = samples[:, q_l - 1] > -z, samples[:, q_u - 1] < z
    for errors in (int(too_high.sum()), int(too_low.sum())):
        assert at_most(errors, a)
        assert errors > a / 3 * TRIALS


SIGMA_M, SLOPE, CENTER = 0.25, 1.0, 0.4
GOOD, BAD = 0.4, 0.6


def dual(n: int = 101) -> SmoothedClassifier:
    """Right at level .4, wrong at level .6: the true radius is the entry distance of .6."""
    selector = MedianSelector(LinearSelector(CENTER, SLOPE), SIGMA_M, n=n, levels=[GOOD, BAD])
    return SmoothedClassifier(WrongAbove(0.5), selector)


ENTRY = (np.sqrt(GOOD * BAD) - CENTER) / SLOPE  # where the true median crosses the threshold


def test_dual_certificate_limited_by_the_selector() -> None:
    found = certify(
        dual(), point(0.5, 0.5, copies=TRIALS), n0=21, n=20, alpha=0.2, n_select=101,
        alpha_select=0.19, band=False, seed=2,
    )  # fmt: skip
    false = int((found.radius > ENTRY).sum())
    assert at_most(false, 0.19 / 2)  # only one side of one level can fail
    assert false > 0.03 * TRIALS


def test_dual_certificate_limited_by_the_classifier() -> None:
    selector = MedianSelector(LinearSelector(CENTER, SLOPE), SIGMA_M, n=11, levels=[0.4, 5.0])
    g = SmoothedClassifier(Linear(), selector)
    found = certify(
        g, point(0.7, 0.5, copies=TRIALS), n0=21, n=100, alpha=0.1, n_select=101,
        alpha_select=1e-3, band=False, seed=3,
    )  # fmt: skip
    false = int((found.radius > 0.2).sum())
    assert at_most(false, 0.1)
    assert false > 0.01 * TRIALS


def test_dual_certificate_with_the_band() -> None:
    """The banded radius exceeds ENTRY − σ_m·z_e no more often than α_h allows."""
    found = certify(
        dual(), point(0.5, 0.5, copies=TRIALS), n0=21, n=20, alpha=0.2, n_select=201,
        alpha_select=0.19, seed=2,
    )  # fmt: skip
    truth = ENTRY - SIGMA_M * bounds.median_band(101, 0.19)
    assert truth > 0.02
    false = int((found.radius > truth).sum())
    assert at_most(false, 0.19 / 2)
    assert false > 0.03 * TRIALS


def test_deployed_predictions_inside_the_radius() -> None:
    """Theorem B: at an x' inside the banded radius a wrong answer has probability ≤ α_p + α_pred.

    Just inside the radius without the band, the empirical median is wrong about half the time.
    """
    g, alpha_select = dual(n=101), 0.1

    def wrong(distance: float) -> int:
        x = point(0.5, 0.5 + float(distance), copies=TRIALS)
        answer = predict(g, x, n=20, alpha=0.15, alpha_select=alpha_select, seed=4).prediction
        return int(((answer != 0) & (answer != ABSTAIN)).sum())

    banded = ENTRY - SIGMA_M * bounds.median_band(101, alpha_select)
    inside = wrong(banded * 0.999)
    assert at_most(inside, alpha_select / 2)
    assert inside > 0.01 * TRIALS
    assert wrong(ENTRY * 0.999) > 0.4 * TRIALS


def test_predict_errs_within_alpha() -> None:
    """At an exact tie any answer is wrong half the time; the test answers at most α of the time."""
    g = SmoothedClassifier(Linear(), FixedSelector(0.25))
    answer = predict(g, point(0.5, 0.5, copies=TRIALS), n=101, alpha=0.1, seed=5).prediction
    answered = int((answer != ABSTAIN).sum())
    assert at_most(answered, 0.1)
    assert answered > 0.05 * TRIALS


def test_certify_at_with_a_fixed_level() -> None:
    g = SmoothedClassifier(Linear(), FixedSelector(0.25))
    x = point(0.7, 0.5, copies=TRIALS)
    decisions = certify_at(g, x, 0.2001, alpha=0.1, n0=20, n_max=400, seed=6)
    false = sum(decisions.certified)
    assert at_most(false, 0.1)
    assert false > 0.01 * TRIALS


def test_certify_at_on_a_grid() -> None:
    selector = MedianSelector(LinearSelector(CENTER, SLOPE), SIGMA_M, n=11, levels=[0.4, 5.0])
    g = SmoothedClassifier(Linear(), selector)
    decisions = certify_at(
        g, point(0.7, 0.5, copies=TRIALS), 0.2001, alpha=0.1, n0=21, n_max=300, n_select=101,
        alpha_select=1e-3, band=False, seed=7,
    )  # fmt: skip
    false = sum(decisions.certified)
    assert at_most(false, 0.1)
    assert false > 0.01 * TRIALS
    selector_only = certify_at(
        dual(), point(0.5, 0.5, copies=TRIALS), ENTRY * 1.0001, alpha=0.2, n0=21, n_max=100,
        n_select=101, alpha_select=0.19, band=False, seed=8,
    )  # fmt: skip
    false = sum(selector_only.certified)
    assert at_most(false, 0.19 / 2)
    assert false > 0.03 * TRIALS


@pytest.mark.parametrize(
    ("p", "p0", "mean"), [(0.8, 0.5, 41), (0.99, 0.9, 105), (0.8, 0.7, 325)], ids=str
)
def test_e_process_needs_few_votes(p: float, p0: float, mean: int) -> None:
    """Mean votes until E ≥ 1000, looking after every vote."""
    horizon = 10 * mean
    votes = np.random.default_rng(0).random((300, horizon)) < p
    log_e = bounds.log_e_value(votes.cumsum(axis=1), np.arange(1, horizon + 1), p0)
    enough = log_e >= np.log(1000)
    assert enough.any(axis=1).all()
    assert (enough.argmax(axis=1) + 1).mean() == pytest.approx(mean, rel=0.2)


def test_the_true_radius_of_the_toy_is_right() -> None:
    """The closed form behind the tests above, by an independent count."""
    g = dual(n=1001)
    just_inside, just_outside = (
        predict(g, point(0.5, 0.5 + float(d)), n=20, seed=9)[0].sigma
        for d in (ENTRY - 0.05, ENTRY + 0.05)
    )
    assert just_inside == pytest.approx(GOOD)
    assert just_outside == pytest.approx(BAD)
    share = g.votes(point(0.7, 0.5), 4000, sigma=torch.tensor([0.25]))[0, 0] / 4000
    assert float(share) == 1.0
    linear = SmoothedClassifier(Linear(), FixedSelector(0.25))
    share = linear.votes(point(0.7, 0.5), 40_000, noise=linear.noise(1, seed=1))[0, 0] / 40_000
    assert float(share) == pytest.approx(norm.cdf(0.8), abs=0.012)
