"""Over thousands of simulated certificates the error rate stays within α, and is not far below it.

The same image under thousands of ids is thousands of independent certificates. α is coarse (0.1):
at 10⁻³ a doubled error rate would hardly ever be seen. False-alarm rate of each test < 10⁻⁶.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch import Tensor

from tests.conftest import Tally
from tests.oracles import (
    Linear,
    LinearSelector,
    Shares,
    WrongAbove,
    arguments,
    at_most,
    fixed,
    point,
)
from varsmooth import (
    ABSTAIN,
    CascadeSelector,
    MedianSelector,
    Options,
    SmoothedClassifier,
    bounds,
    certify,
    certify_at,
    certify_until,
    predict,
)
from varsmooth.certificates import Certificates

TRIALS = 2000


def test_the_alarm_rings_for_a_doubled_rate() -> None:
    assert at_most(int(0.1 * TRIALS), 0.1, TRIALS)
    assert not at_most(int(0.2 * TRIALS), 0.1, TRIALS)


SIGMA_M, SLOPE, CENTER = 0.25, 1.0, 0.4
GOOD, BAD = 0.4, 0.6


def dual(n: int = 101) -> SmoothedClassifier:
    """Right at level .4, wrong at level .6: the true radius is the entry distance of .6."""
    selector = MedianSelector(LinearSelector(CENTER, SLOPE), SIGMA_M, n=n, levels=[GOOD, BAD])
    return SmoothedClassifier(WrongAbove(0.5), selector)


def limited_by_the_classifier() -> SmoothedClassifier:
    """The level .4 everywhere that counts; f decides the radius."""
    selector = MedianSelector(LinearSelector(CENTER, SLOPE), SIGMA_M, n=11, levels=[0.4, 5.0])
    return SmoothedClassifier(Linear(), selector)


FIXED = fixed(Linear())
ENTRY = (np.sqrt(GOOD * BAD) - CENTER) / SLOPE  # where the true median crosses the threshold
BANDED = ENTRY - SIGMA_M * bounds.median_band(101, 0.19)
MOSTLY_H: dict[str, Any] = {"alpha": 0.2, "alpha_select": 0.19}
MOSTLY_F: dict[str, Any] = {"alpha": 0.1, "alpha_select": 1e-3}


def above(certificates: Certificates, truth: float) -> int:
    return int((certificates.radius > truth).sum())


class Case(NamedTuple):
    """false(copies): how many of so many statements are false; each may be with probability rate.

    least: a smaller share of false ones would mean that α is wasted.
    """

    rate: float
    least: float
    false: Callable[[int], int]


def at_one_level(copies: int) -> int:
    x = point(0.7, 0.5, copies=copies)
    return above(certify(FIXED, x, n=150, alpha=0.1, seed=1, options=Options(n0=20)), 0.2)


SHARES = {
    "winner below ½": [0.4, *[0.06] * 10],
    "two equal runners-up": [0.5, 0.2, 0.2, 0.1],
    "1000 classes": [0.3, 0.1, *[0.6 / 998] * 998],
    "two classes": [0.7, 0.3],
}


def smoothed(shares: Sequence[float]) -> tuple[SmoothedClassifier, float]:
    """A classifier with these shares of votes, and its true radius at ½."""
    first, second = sorted(shares)[::-1][:2]
    return fixed(Shares(shares)), float(0.125 * (norm.ppf(first) - norm.ppf(second)))


def false_margins(certificates: Certificates, truth: float) -> int:
    """The radius of A too large, or another class than A certified."""
    return int(((certificates.radius > truth) | (certificates.prediction > 0)).sum())


def by_the_margin(shares: Sequence[float], copies: int) -> int:
    (g, truth), x = smoothed(shares), point(0.5, 0.5, copies=copies)
    options = Options(n0=20)
    return false_margins(certify(g, x, n=150, alpha=0.1, seed=11, options=options), truth)


def by_the_margin_of_gated_votes(copies: int) -> int:
    """Half of the votes, all those for the last class, pass."""

    def gate(z: Tensor, logits: Tensor, sigma: Tensor) -> Tensor:
        return 0.5 - logits[:, -1]

    g = SmoothedClassifier(Shares([0.3, 0.1, 0.1, 0.5]), CascadeSelector([0.25], gates=gate))
    x, options = point(0.5, 0.5, copies=copies), Options(n0=20)
    certificates = certify(g, x, n=300, alpha=0.1, seed=15, options=options)
    assert all(one.ledger.runner_up and one.votes[0].passes > 0 for one in certificates)
    return false_margins(certificates, 0.125 * float(norm.ppf(0.3) - norm.ppf(0.1)))


def until_by_the_margin(shares: Sequence[float], copies: int) -> int:
    (g, truth), x = smoothed(shares), point(0.5, 0.5, copies=copies)
    options = Options(n0=20, n_max=400)
    return false_margins(certify_until(g, x, 0.2, alpha=0.1, seed=12, options=options), truth)


def at_by_the_margin(shares: Sequence[float], copies: int) -> int:
    (g, truth), x = smoothed(shares), point(0.5, 0.5, copies=copies)
    options = Options(n0=20, n_max=400)
    return sum(certify_at(g, x, truth * 1.0001, alpha=0.1, seed=13, options=options).certified)


def answered_by_the_margin(copies: int) -> int:
    """Two classes at a tie, the rest below: either answer may be called wrong."""
    g, _ = smoothed([0.3, 0.3, 0.2, 0.2])
    predictions = predict(g, point(0.5, 0.5, copies=copies), n=150, alpha=0.1, seed=14)
    return int((predictions.prediction != ABSTAIN).sum())


def by_the_selector(copies: int) -> int:
    x, how = point(0.5, 0.5, copies=copies), arguments(n0=21, n_select=101, band=False, **MOSTLY_H)
    return above(certify(dual(), x, n=20, seed=2, **how), ENTRY)


def by_the_classifier(copies: int) -> int:
    x, how = point(0.7, 0.5, copies=copies), arguments(n0=21, n_select=101, band=False, **MOSTLY_F)
    return above(certify(limited_by_the_classifier(), x, n=100, seed=3, **how), 0.2)


def with_the_band(copies: int) -> int:
    """The banded radius exceeds ENTRY − σ_m·z_e no more often than α_h allows."""
    x, how = point(0.5, 0.5, copies=copies), arguments(n0=21, n_select=201, **MOSTLY_H)
    assert BANDED > 0.02
    return above(certify(dual(), x, n=20, seed=2, **how), BANDED)


def deployed(copies: int) -> int:
    """Theorem B: at an x' inside the banded radius a wrong answer has probability ≤ α_p + α_pred.

    Just inside the radius without the band, the empirical median is wrong about half the time.
    """

    def wrong(distance: float) -> int:
        x = point(0.5, 0.5 + float(distance), copies=copies)
        how = arguments(alpha=0.15, alpha_select=0.1)
        answer = predict(dual(), x, n=20, seed=4, **how).prediction
        return int(((answer != 0) & (answer != ABSTAIN)).sum())

    assert wrong(ENTRY * 0.999) > 0.4 * copies
    return wrong((ENTRY - SIGMA_M * bounds.median_band(101, 0.1)) * 0.999)


def tie(copies: int) -> int:
    """At an exact tie any answer is wrong half the time; the test answers at most α of the time."""
    answer = predict(FIXED, point(0.5, 0.5, copies=copies), n=101, alpha=0.1, seed=5).prediction
    return int((answer != ABSTAIN).sum())


def at_fixed(copies: int) -> int:
    x, options = point(0.7, 0.5, copies=copies), Options(n0=20, n_max=400)
    return sum(certify_at(FIXED, x, 0.2001, alpha=0.1, seed=6, options=options).certified)


def at_on_a_grid(copies: int) -> int:
    g, x = limited_by_the_classifier(), point(0.7, 0.5, copies=copies)
    options = Options(n0=21, n_max=300, n_select=101, alpha_select=1e-3, band=False)
    decisions = certify_at(g, x, 0.2001, alpha=0.1, seed=7, options=options)
    return sum(decisions.certified)


def at_by_the_selector(copies: int) -> int:
    x = point(0.5, 0.5, copies=copies)
    options = Options(n0=21, n_max=100, n_select=101, alpha_select=0.19, band=False)
    decisions = certify_at(dual(), x, ENTRY * 1.0001, alpha=0.2, seed=8, options=options)
    return sum(decisions.certified)


LEAST = {  # the runner-up is one of many equals, and bounds that always hold waste most of α
    "certify": dict(zip(SHARES, (0.0, 0.001, 0.005, 0.04), strict=True)),
    "certify_until": dict.fromkeys(SHARES, 0.0),
    "certify_at": dict.fromkeys(SHARES, 0.0),
}

CASES = {
    "fixed": Case(0.1, 0.02, at_one_level),
    "dual, selector": Case(0.19 / 2, 0.03, by_the_selector),  # one side of one level can fail
    "dual, classifier": Case(0.1, 0.01, by_the_classifier),
    "dual, band": Case(0.19 / 2, 0.03, with_the_band),
    "deployed": Case(0.1 / 2, 0.01, deployed),
    "predict": Case(0.1, 0.01, tie),
    "certify_at": Case(0.1, 0.01, at_fixed),
    "certify_at, classifier": Case(0.1, 0.01, at_on_a_grid),
    "certify_at, selector": Case(0.19 / 2, 0.03, at_by_the_selector),
    "predict, margin": Case(0.1, 0.0, answered_by_the_margin),
    "certify, gated votes": Case(0.1, 0.001, by_the_margin_of_gated_votes),
    **{
        f"{name}, {shares}": Case(0.1, least, partial(false, SHARES[shares]))
        for name, false in (
            ("certify", by_the_margin),
            ("certify_until", until_by_the_margin),
            ("certify_at", at_by_the_margin),
        )
        for shares, least in LEAST[name].items()
    },
}


def check(case: Case, trials: int) -> None:
    false = case.false(trials)
    assert at_most(false, case.rate, trials)
    assert false >= case.least * trials


def quick() -> list[object]:
    """Sequential votes for 1000 classes take half a minute."""
    slow = [name for name in CASES if "1000 classes" in name and not name.startswith("certify,")]
    return [pytest.param(name, marks=[pytest.mark.slow] * (name in slow)) for name in CASES]


@pytest.mark.parametrize("name", quick())
def test_no_more_than_alpha_are_false(name: str) -> None:
    check(CASES[name], TRIALS)


@pytest.mark.slow
@pytest.mark.campaign
@pytest.mark.parametrize("name", CASES)
def test_a_hundred_thousand_certificates(name: str, tally: Tally) -> None:
    tally("certificates whose truth is known", 10_000)
    check(CASES[name], 10_000)


def test_median_bounds() -> None:
    """h_ql and h_qu against the true percentiles Φ(∓D/σ_m), each side at a."""
    n, z, a = 201, 0.5, 0.1
    samples = np.sort(np.random.default_rng(1).standard_normal((TRIALS, n)), axis=1)
    q_l, q_u = bounds.order_statistics(n, z, 1.0, a)
    too_high, too_low = samples[:, q_l - 1] > -z, samples[:, q_u - 1] < z
    for errors in (int(too_high.sum()), int(too_low.sum())):
        assert at_most(errors, a, TRIALS)
        assert errors > a / 3 * TRIALS


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
    share = FIXED.votes(point(0.7, 0.5), 40_000, noise=FIXED.noise(1, seed=1))[0, 0] / 40_000
    assert float(share) == pytest.approx(norm.cdf(0.8), abs=0.012)
