"""certify_at with several radii and certify_until: as few votes as needed, and never above α."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch import Tensor, nn

from tests.oracles import Linear, LinearSelector, WrongAbove, arguments, at_most, fixed, point
from varsmooth import (
    ABSTAIN,
    CascadeSelector,
    FixedSelector,
    MedianSelector,
    Options,
    SmoothedClassifier,
    VarsmoothError,
    bounds,
    certify,
    certify_at,
    certify_until,
)
from varsmooth.certificates import Certificates
from varsmooth.evaluation.records import read_certificate
from varsmooth.noise import NoiseStream
from varsmooth.smoothing import Selector

RADII = (0.0, 0.1, 0.2, 0.3, 0.4)

# --- the confidence sequence ---------------------------------------------------------------


@pytest.mark.parametrize("a", [1e-3, 0.1, 0.3])
@pytest.mark.parametrize(("k", "n"), [(16, 16), (12, 16), (900, 1000), (100_000, 100_000), (3, 90)])
def test_the_bound_is_where_the_e_process_stops_rejecting(k: int, n: int, a: float) -> None:
    bound = float(bounds.anytime_lower(k, n, a))
    below = np.linspace(1e-6, bound, 500)
    assert (bounds.log_e_value(k, n, below) >= -np.log(a)).all()
    assert bounds.log_e_value(k, n, bound + 1e-9) < -np.log(a)
    assert bound < bounds.clopper_pearson_lower(k, n, a)


def test_the_bound_of_no_success_is_zero_and_arrays_are_welcome() -> None:
    bound = bounds.anytime_lower([[0, 5], [7, 10]], 10, 1e-3)
    assert bound.shape == (2, 2)
    assert bound[0, 0] == 0
    assert (np.diff(bound.ravel()) > 0).all()
    assert bounds.anytime_lower(10, 10, 0.9) == pytest.approx(
        float(bounds.anytime_lower(10, 10, 1 / np.e)), abs=1e-12
    )  # above 1/e there is no proof, so that no more is claimed


def test_the_e_process_falls_with_p0_wherever_it_rejects() -> None:
    """What makes one interval of the rejected p0; proved in docs/concepts/certificate.md."""
    rng = np.random.default_rng(0)
    n = rng.integers(1, 3000, size=400)
    k = rng.binomial(n, rng.beta(0.7, 0.3, size=400))
    p0 = np.linspace(1e-4, 1 - 1e-4, 1001)
    log_e = np.maximum(bounds.log_e_value(k[:, None], n[:, None], p0), -1)
    both = (log_e[:, :-1] >= 1) & (log_e[:, 1:] >= 1)
    assert both.sum() > 10_000
    assert (np.diff(log_e)[both] < 0).all()
    rejected = log_e >= 1
    assert (np.diff(rejected.astype(int)) <= 0).all()  # once it is below, it stays below


# --- several radii -------------------------------------------------------------------------


def mixed(count: int = 12) -> Tensor:
    """Margins 0, .03, .06, …: R is the margin at every σ."""
    return torch.cat([point(0.5 + 0.03 * i, 0.5) for i in range(count)])


def grid() -> SmoothedClassifier:
    selector = MedianSelector(LinearSelector(0.4, 1.0), 0.25, n=101, levels=[0.2, 0.4, 0.6])
    return SmoothedClassifier(Linear(), selector)


class Early(nn.Module):
    """Class 0 above ½ and class 1 far below it; between them, and at σ = 1 always, class 2."""

    conditional = True

    def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
        z = x.flatten(1)[:, 0] - 0.5
        vote = torch.where(z > 0, 0, torch.where(z < -0.8 * sigma, 1, 2))
        return nn.functional.one_hot(vote, 3).to(x.dtype)


def cascade() -> SmoothedClassifier:
    return SmoothedClassifier(Early(), CascadeSelector([1.0, 0.25], [0.55, 0.52]))


KINDS = {"fixed": lambda: fixed(Linear()), "grid": grid, "cascade": cascade}


@pytest.mark.parametrize("kind", KINDS)
def test_several_radii_on_the_votes_of_one(kind: str) -> None:
    """Each radius is certified at the same look as alone; the last one tried costs the most.

    Alone, a radius may be given up where the votes for a smaller one would have saved it.
    """
    g, x = KINDS[kind](), mixed()
    options = Options(n_max=3000, n_select=201)
    every = certify_at(g, x, RADII, seed=1, options=options)
    alone = [certify_at(g, x, r, seed=1, options=options) for r in RADII]
    for i, decision in enumerate(every):
        singles = [decisions[i].certified for decisions in alone]
        saved = decision.reached - [*singles, False].index(False)
        assert saved == 0 or (saved > 0 and alone[decision.reached - saved][i].reason == "futile")
        samples = [decisions[i].samples for decisions in alone[: decision.reached + 1]]
        assert max(samples) <= decision.samples
        assert saved or decision.samples <= sum(samples)
        assert saved or decision.samples == max(samples) or kind != "fixed"
        assert decision.radii == RADII
        if decision.certified:
            assert decision.radius == RADII[decision.reached - 1]
            assert decision.certificate.radius >= decision.radius
            assert decision.prediction == decision.certificate.prediction == 0
        else:
            assert (decision.prediction, decision.radius) == (ABSTAIN, 0.0)
    counts = {decision.reached for decision in every}
    assert {0, 1, 2, 3} <= counts  # or the test would show nothing
    assert {d.reason for d in every} >= {"futile"}


def test_radii_are_sorted_and_checked() -> None:
    g, x = fixed(Linear()), point(0.9, 0.5)
    (decision,) = certify_at(g, x, [0.2, 0.0, 0.1, 0.1], seed=1)
    assert decision.radii == (0.0, 0.1, 0.2)
    assert (decision.reached, decision.reason) == (3, "certified")
    with pytest.raises(VarsmoothError, match="at least one radius"):
        certify_at(g, x, [])
    with pytest.raises(VarsmoothError, match="finite, not nan"):
        certify_at(g, x, [0.1, float("nan")])
    for wrong in (0.0, 1.0):
        with pytest.raises(VarsmoothError, match="tolerance must lie between 0 and 1"):
            certify_until(g, x, wrong)


@pytest.mark.parametrize("kind", ["fixed", "cascade"])
def test_radii_that_no_vote_can_certify_are_refused_with_the_ceiling(kind: str) -> None:
    g, x = KINDS[kind](), point(0.9, 0.5)
    ceiling, sigma, tau = {"fixed": (0.355, 0.25, 0.5), "cascade": (1.296, 1.0, 0.55)}[kind]
    for radius, enough in ((ceiling, True), (ceiling + 0.001, False)):
        p0 = norm.cdf(radius / sigma + norm.ppf(tau))
        assert (bounds.log_e_value(100, 100, p0) >= -np.log(0.001)) == enough
    with pytest.raises(
        VarsmoothError, match=f"`n_max=100` votes can certify is {ceiling}, not 5; "
    ):
        certify_at(g, x, [5, 9], options=Options(n_max=100))
    (decision,) = certify_at(g, x, [0.1, 5], seed=0, options=Options(n_max=100))
    assert decision.reached == 1


# --- certificates --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_sequential_certificate_follows_from_its_evidence(kind: str) -> None:
    g, x, options = KINDS[kind](), mixed(8), Options(n_max=2000, n_select=201)
    decided = certify_at(g, x, RADII, seed=1, options=options).certificates
    settled = certify_until(g, x, 0.2, seed=1, options=options)
    for one in (*decided, *settled):
        assert one.ledger.anytime
        assert one.guarantee == "sound"
        assert read_certificate(one.to_dict()) == one
        assert one.recompute(one.ledger.alpha) == one
        assert one.recompute(1e-5, 1e-6 if kind == "grid" else None).radius <= one.radius
        assert all(level.n <= 2000 for level in one.votes)
    assert sum(one.prediction == 0 for one in settled) >= 5
    again = certify_until(g, x[2:5], 0.2, seed=1, ids=[2, 3, 4], options=options)
    assert list(again) == list(settled)[2:5]  # whatever is beside it in the batch


def test_a_radius_stops_near_what_all_the_votes_would_give() -> None:
    g, x, n_max, options = fixed(Linear()), mixed()[3:9], 8000, Options(n_max=8000)
    certificates = certify_until(g, x, 0.1, seed=2, options=options)
    full = certify(g, x, n=n_max, seed=2)
    anytime = [
        float(bounds.class_radius(c.votes[0].top, n_max, 0.25, 1e-3, anytime=True)) for c in full
    ]
    ratio = certificates.radius.numpy() / np.array(anytime)
    assert (ratio > 0.85).all()  # the prediction is not the future, but near it
    assert np.mean(ratio) > 0.9
    assert np.mean([one.samples for one in certificates]) < n_max / 2
    hopeless = certify_until(g, point(0.5, 0.5, copies=10), 0.1, seed=2, options=options)
    assert set(hopeless.prediction.tolist()) == {ABSTAIN}
    assert np.mean([one.samples for one in hopeless]) < n_max / 2


def test_a_radius_also_stops_where_the_next_listed_one_is_out_of_reach() -> None:
    """R = .09, …, .24: .05 is reached and .5 is not, which few votes tell."""
    g, x, how = fixed(Linear()), mixed()[3:9], arguments(seed=2, n_max=8000)
    alone, listed, above = (
        certify_until(g, x, 0.02, at=at, **how) for at in (0.0, [0.5, 0.05], 0.01)
    )
    samples = [[one.samples for one in certificates] for certificates in (alone, listed)]
    assert all(few < many / 4 for many, few in zip(*samples, strict=True))
    assert (listed.radius > 0.05).all()
    assert list(above) == list(alone)  # past the last of them the tolerance decides


@pytest.mark.parametrize("kind", KINDS)
def test_undecided_images_are_told_after_every_look(kind: str) -> None:
    g, x = KINDS[kind](), mixed(8)
    calls: dict[Any, Any] = {certify_at: RADII, certify_until: 0.2}
    for call, what in calls.items():
        left = list[int]()
        call(g, x, what, seed=1, options=Options(n_max=500, n_select=201, undecided=left.append))
        assert left[0] == 8 or call is certify_until
        assert left[-1] == 0
        assert left == sorted(left, reverse=True)


def test_votes_go_to_the_level_that_limits_the_radius() -> None:
    """Level .4 is right, level .6 wrong: its entry distance is R, which few votes show."""
    selector = MedianSelector(LinearSelector(0.4, 1.0), 0.25, n=1001, levels=[0.4, 0.6])
    g = SmoothedClassifier(WrongAbove(0.5), selector)
    (one,) = certify_until(g, point(0.5, 0.5), 0.05, seed=1)
    (wanted,) = certify(g, point(0.5, 0.5), seed=1)
    assert one.radius == wanted.radius > 0
    assert one.samples < 300


# --- error rates ---------------------------------------------------------------------------


class Coins(SmoothedClassifier):
    """Votes that are tosses: at level s class c has the probability shares[s][c], for all images.

    Everything but f is real. R is known, and ten thousand images take seconds.
    """

    def __init__(self, shares: Mapping[float, tuple[float, ...]], selector: Selector) -> None:
        super().__init__(Linear(), selector)
        self.shares, self.random = shares, np.random.default_rng(0)

    def count_votes(
        self,
        x: Tensor,
        n: int,
        sigma: Tensor,
        noise: NoiseStream,
        purpose: str = "votes",
        start: int = 0,
        batch_size: int | None = None,
    ) -> Tensor:
        shares = {float(np.float32(level)): share for level, share in self.shares.items()}
        rows = [shares[level] for level in sigma.tolist()]
        return torch.from_numpy(self.random.multinomial(n - start, rows))


FIXED_P = float(norm.cdf(0.2 / 0.25))  # R = .2
TOSS = {0.25: (FIXED_P, 1 - FIXED_P)}
EARLIER = {1.0: (0.45, 0.35, 0.2), 0.5: (0.9, 0.08, 0.02)}
ANSWERING = {1.0: (0.45, 0.3, 0.25), 0.5: (0.7, 0.2, 0.1)}
CAREFUL = {1.0: (0.5, 0.32, 0.18), 0.5: (0.9, 0.08, 0.02)}
TWO, CAREFUL_TWO = CascadeSelector([1.0, 0.5]), CascadeSelector([1.0, 0.5], [0.7, 0.6])
GRID = MedianSelector(LinearSelector(0.25, 0.01), 0.25, n=11, levels=[0.25, 5.0])
MARGIN, SPREAD = "grid, with the runner-up", (0.42, 0.3, 0.14, 0.14)
COIN_KINDS = {
    "fixed": (Coins(TOSS, FixedSelector(0.25)), 0.2),
    "cascade: an earlier stage decides": (Coins(EARLIER, TWO), -norm.ppf(0.35)),
    "cascade: the answering stage decides": (
        Coins(ANSWERING, TWO),
        0.25 * (norm.ppf(0.7) - norm.ppf(0.2)),
    ),
    "cascade with thresholds": (
        Coins(CAREFUL, CAREFUL_TWO),
        0.5 * (norm.ppf(0.9) - norm.ppf(0.6)),
    ),
    "grid": (Coins(TOSS | {5.0: (0.99, 0.01)}, GRID), 0.2),
    MARGIN: (
        Coins({0.25: SPREAD, 5.0: (0.97, 0.01, 0.01, 0.01)}, GRID),
        0.125 * (norm.ppf(0.42) - norm.ppf(0.3)),
    ),
}


def tossed(kind: str) -> tuple[Coins, float]:
    """A kind and its true radius, with tosses of its own: whatever ran before, the same ones."""
    g, truth = COIN_KINDS[kind]
    g.random = np.random.default_rng(1)
    return g, float(truth)


OPTIONS = arguments(n_max=1000, alpha=0.1, n0=50, n_select=51, alpha_select=1e-3, band=False)


def error_rate_is(errors: int, trials: int, alpha: float, at_least: float) -> None:
    """Not above α, and high enough that a doubled rate would be seen."""
    assert at_most(errors, alpha, trials)
    assert errors >= at_least * trials


@pytest.mark.parametrize("copies", [1000, pytest.param(10_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", COIN_KINDS)
def test_radii_are_too_large_at_most_as_often_as_alpha(kind: str, copies: int) -> None:
    """With the runner-up's bound two sequences have to fail; some of the images are certified."""
    g, truth = tossed(kind)
    tight = kind != MARGIN
    x = point(0.5, 0.5, copies=copies)
    radii = [0.0, 0.5 * truth, 0.9 * truth, 1.0001 * truth, 1.05 * truth, 1.5 * truth]
    decisions = certify_at(g, x, radii, seed=1, **OPTIONS)
    false = sum(d.reached > 3 for d in decisions if d.prediction == 0)
    error_rate_is(false, copies, 0.1, at_least=0.005 * tight)
    _count_false(decisions.certificates, truth, at_least=0.005 * tight)
    least, share = (2, 0.9) if tight else (1, 0.5)
    assert sum(d.reached >= least for d in decisions) > share * copies


@pytest.mark.parametrize("copies", [500, pytest.param(10_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", COIN_KINDS)
@pytest.mark.parametrize("listed", [False, True], ids=["until", "until at"])
def test_stopped_radii_are_too_large_at_most_as_often_as_alpha(
    kind: str, copies: int, listed: bool
) -> None:
    g, truth = tossed(kind)
    at = [0.9 * truth, 1.05 * truth] if listed else [0.0]
    x = point(0.5, 0.5, copies=copies)
    certificates = certify_until(g, x, 0.05, at=at, seed=1, **OPTIONS)
    _count_false(certificates, truth, at_least=0.002 * (kind != MARGIN))


def _count_false(certificates: Certificates, truth: float, at_least: float) -> None:
    false = sum(one.radius > (truth if one.prediction == 0 else 0) for one in certificates)
    error_rate_is(false, len(certificates), 0.1, at_least)


@pytest.mark.parametrize("selector", [FixedSelector(0.5), CascadeSelector([0.5, 0.25])])
def test_nothing_is_certified_for_no_class(selector: Selector) -> None:
    """At α > 1/e the test of a radius accepts before the bound on p does."""
    x = torch.full((40, 1, 1, 16), 0.5)
    x[:, 0, 0, 0] = torch.linspace(0.5, 0.9, 40)
    g = SmoothedClassifier(Linear(), selector)
    decisions = certify_at(g, x, [0.0, 0.1], alpha=0.9, seed=1, options=Options(n0=10, n_max=100))
    assert any(decisions.certified)
    assert not [one for one in decisions if one.certified and one.prediction == ABSTAIN]
