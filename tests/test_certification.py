"""predict, certify and certify_at against closed forms; the evidence and its arithmetic."""

import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import betabinom, binom, norm
from torch import Tensor, nn

from tests.oracles import (
    Disc,
    Linear,
    LinearSelector,
    NearestOfTwo,
    Shares,
    Shell,
    WrongAbove,
    arguments,
    fixed,
    point,
)
from varsmooth import (
    ABSTAIN,
    Certificate,
    FixedSelector,
    LearnedSelector,
    MedianSelector,
    Options,
    SmoothedClassifier,
    bounds,
    certify,
    certify_as_paper,
    certify_at,
    certify_until,
    predict,
    sampling,
)
from varsmooth.errors import VarsmoothError
from varsmooth.evidence import Evidence, Ledger, LevelVotes, SelectorEvidence
from varsmooth.methods.base import leads
from varsmooth.probe import check_assumptions
from varsmooth.selectors import Grid
from varsmooth.sequential import success_chance, votes_needed

# --- fixed noise level ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("f", "x", "sigma", "radius"),
    [
        (Linear(), point(0.8, 0.5), 0.25, 0.3),
        (Linear(), point(0.8, 0.5), 0.50, 0.3),
        (NearestOfTwo(), point(0.1, 0.3), 0.1, 0.1),
        (Disc(), point(0.5, 0.5), 0.5, 0.5507598142),
    ],
    ids=["linear", "linear-wide", "nearest", "disc"],
)
def test_fixed_radius_is_tight(f: nn.Module, x: Tensor, sigma: float, radius: float) -> None:
    certificate = certify(fixed(f, sigma), x, n=40_000, alpha=1e-6, seed=1)[0]
    assert certificate.prediction == 0
    assert certificate.guarantee == "sound"
    assert radius * 0.9 < certificate.radius <= radius


def test_certificate_follows_from_its_counts() -> None:
    certificate = certify(fixed(Linear()), point(0.7, 0.5), seed=1)[0]
    (votes,) = certificate.votes
    assert votes.n == 1000
    expected = bounds.class_radius(votes.counts[0], 1000, 0.25, 1e-3)
    assert certificate.radius == float(expected)
    assert certificate.ledger == Ledger(alpha=1e-3, alpha_class=1e-3)


def test_a_split_vote_abstains() -> None:
    """On a grid max(D̂_j, R̂_j) is never negative; a radius of 0 certifies nothing."""
    for g in (fixed(Linear()), dual(Linear())):
        certificates = certify(g, point(0.5, 0.5, copies=20), seed=1)
        abstained = certificates.prediction == ABSTAIN
        assert abstained.sum() >= 19
        assert (certificates.radius[abstained] == 0).all()


def test_selection_draws_are_not_the_votes() -> None:
    g = fixed(Linear())
    x = point(0.5, 0.5)
    noise = g.noise(1, seed=5)
    chosen = g.votes(x, 100, noise=noise, purpose="class-selection")
    assert not torch.equal(chosen, g.votes(x, 100, noise=noise))


class Watcher(nn.Module):
    """Remembers the noise it is shown, in units of its level; class 0, or the level .4."""

    conditional = True

    def __init__(self, x: Tensor) -> None:
        super().__init__()
        self.x, self.seen = x, list[Tensor]()

    def forward(self, z: Tensor, sigma: Tensor | None = None) -> Tensor:
        level = torch.full((len(z),), 0.25) if sigma is None else sigma
        self.seen.append(((z - self.x) / level.view(-1, 1, 1, 1)).flatten(1))
        if sigma is None:
            return torch.full((len(z),), 0.4)
        return torch.tensor([[1.0, 0.0]]).expand(len(z), 2)


def test_no_draw_serves_two_purposes() -> None:
    """Selection, estimation, selector and classifier: all their noise differs."""
    x = torch.full((1, 1, 1, 64), 0.5, dtype=torch.float64)

    def watched(learn: bool, call: Callable[[SmoothedClassifier], object]) -> Tensor:
        f, h = Watcher(x), Watcher(x)
        h.conditional = False
        median = MedianSelector(h, 0.25, n=33, levels=[0.2, 0.4, 0.8])
        g = SmoothedClassifier(f, median if learn else FixedSelector(0.25))
        check_assumptions(g, x)  # once for each classifier, with images of its own
        f.seen, h.seen = [], []
        call(g)
        return torch.cat(f.seen + h.seen)

    expected = [
        (True, lambda g: predict(g, x, n=16, seed=1), 33 + 16),
        (False, lambda g: certify(g, x, n=50, seed=1, options=Options(n0=40)), 40 + 50),
        (True, lambda g: certify(g, x, n=50, seed=1, options=Options(n0=40, n_select=101)), 231),
        (True, lambda g: certify(g, x, n=50, seed=1, options=Options(method="conditional")), 183),
        (False, lambda g: certify_at(g, x, 0.1, seed=1, options=Options(n0=40, n_max=304)), None),
    ]  # fmt: skip
    for learn, call, draws in expected:
        noise = nn.functional.normalize(watched(learn, call))
        overlaps = noise @ noise.T  # 1 for the same draw, about ±1/8 for two
        first = torch.triu(overlaps > 0.99, diagonal=1).any(dim=0).logical_not()
        assert int(first.sum()) == (len(noise) if draws is None else draws)


def test_runner_up_certifies_without_an_absolute_majority() -> None:
    g, x = fixed(Shares([0.4, *[0.6 / 9] * 9])), point(0.5, 0.5)
    assert certify(g, x, seed=1, options=Options(bound="cohen"))[0].prediction == ABSTAIN
    (best,) = certify(g, x, seed=1)
    assert best.ledger.runner_up
    assert best.prediction == 0
    assert best.radius > 0.05
    assert certify_at(g, x, 0.05, seed=1).certified == [True]
    assert certify_until(g, x, seed=1)[0].radius > 0.05
    assert predict(g, x, n=1000, seed=1)[0].prediction == 0  # the same rule: argmax


def test_the_runner_up_is_the_largest_other_count() -> None:
    ledger = Ledger(1e-3, 1e-3, runner_up=True)
    expected = float(bounds.margin_radius(600, 300, 1000, 0.25, 1e-3))
    for counts in ((70, 600, 300, 30), (300, 600, 30, 70), (30, 600, 70, 300)):
        assert LevelVotes(0.25, 1, counts).radius(ledger) == expected


# --- predict -------------------------------------------------------------------------------


def test_predict_answers_or_abstains() -> None:
    g = fixed(Linear())
    x = torch.cat([point(0.8, 0.5), point(0.2, 0.5), point(0.501, 0.5)])
    predictions = predict(g, x, n=200, seed=1)
    assert predictions.prediction.tolist() == [0, 1, ABSTAIN]
    votes = predictions.counts.sum(dim=1).tolist()
    assert votes == [one.samples for one in predictions]
    assert max(votes[:2]) < 50 < votes[2] <= 200  # as soon as they are decided
    assert predictions.sigma.tolist() == [0.25] * 3
    assert predict(g, x, n=200, alpha=None, seed=1)[2].prediction in (0, 1)


@pytest.mark.parametrize("n", [1, 16, 50, 200])
def test_a_plain_majority_stops_when_it_is_decided(n: int) -> None:
    """The answer is that of all n votes, ties included, though few are cast."""
    g = fixed(Linear())
    x = torch.cat([point(0.5, 0.5, copies=300), point(0.9, 0.5)])
    predictions = predict(g, x, n=n, alpha=None, seed=1)
    every = g.votes(x, n, noise=g.noise(len(x), seed=1), purpose="predict")
    assert predictions.prediction.tolist() == every.argmax(dim=1).tolist()
    assert bool((predictions.counts <= every).all())
    assert [one.samples for one in predictions] == predictions.counts.sum(dim=1).tolist()
    assert n == 1 or bool((every[:, 0] == every[:, 1]).any())  # a tie is among them
    if n == 200:
        assert predictions[300].samples < 64
        assert max(one.samples for one in predictions) == 200


def test_a_majority_that_stops_early_is_that_of_all_votes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is least sure, at p = ½, it errs no more often than it may, but it does err."""
    monkeypatch.setattr(sampling, "EARLY_STOP_ERROR", 0.3)
    g, x = fixed(Linear()), point(0.5, 0.5, copies=2000)
    predictions = predict(g, x, n=1000, alpha=None, seed=1)
    every = g.votes(x, 1000, noise=g.noise(len(x), seed=1), purpose="predict")
    wrong = int((predictions.prediction != every.argmax(dim=1)).sum())
    assert binom.cdf(wrong, 2000, 0.3) < 1 - 1e-6
    assert wrong > 20


@pytest.mark.parametrize("classes", [2, 10, 1000])
def test_a_lead_is_shown_at_one_share_of_alpha_for_each_wrong_class(classes: int) -> None:
    """At log E ≥ log((C − 1)/α). Coverage cannot see log(1/α): few classes ever lead wrongly."""
    needed = bounds.fewest_votes_to_decide(math.log((classes - 1) / 1e-3))
    unanimous = [LevelVotes(0.25, 0, (n, *[0] * (classes - 1))) for n in (needed - 1, needed)]
    assert [leads(votes, 1e-3) for votes in unanimous] == [False, True]


def test_the_lead_of_a_class_over_another() -> None:
    """Against the sum over all outcomes of 10 tosses."""
    every = [math.comb(10, k) / 2**10 for k in range(11)]
    expected = [sum(every[8:]), sum(every[5:])]
    assert bounds.lead_p_value([8, 5], [2, 5]) == pytest.approx(expected)


def test_predict_takes_fresh_entropy_unless_seeded() -> None:
    g, x = fixed(Linear()), point(0.5, 0.5, copies=20)
    assert not torch.equal(predict(g, x).counts, predict(g, x).counts)
    assert torch.equal(predict(g, x, seed=3).counts, predict(g, x, seed=3).counts)


def test_predict_splits_alpha_for_the_median() -> None:
    g = SmoothedClassifier(Linear(), MedianSelector(LinearSelector(0.3, 0.1), 0.25, n=101))
    ledger = predict(g, point(0.8, 0.5))[0].ledger
    assert ledger == Ledger(1e-3, 1e-3 - 1e-5, alpha_deploy=1e-5, n_deploy=101)


# --- the sound dual certificate ------------------------------------------------------------

LEVELS = 8


def dual(f: nn.Module, center: float = 0.40, n: int = 1001) -> SmoothedClassifier:
    selector = MedianSelector(
        LinearSelector(center, 1.0), 0.25, n=n, clip=(0.12, 1.0), levels=LEVELS
    )
    return SmoothedClassifier(f, selector)


def true_dual_radius(radii: list[float], band: float = 0.0) -> float:
    """min_j max(D_j, R_j) with exact F_j for h = 0.40 + the last pixel, σ_m = 0.25."""
    levels = np.geomspace(0.12, 1.0, LEVELS)
    z = (np.sqrt(levels[:-1] * levels[1:]) - 0.40) / 0.25
    away = np.maximum(np.concatenate([[-np.inf], z]), np.concatenate([-z, [-np.inf]]))
    return float(np.maximum(0.25 * np.maximum(0, away - band), radii).min())


def test_worked_example_of_the_certificate() -> None:
    """h(x) = .40, ‖a‖ = 1, σ_m = .25, margin .5, N = N_h = 10⁴: R̂ = .37084862."""
    levels = tuple(float(s) for s in np.geomspace(0.12, 1.0, LEVELS))
    below = [1488, 1993, 2821, 4151, 6086, 8262, 9669]
    thresholds = [math.sqrt(a * b) for a, b in itertools.pairwise(levels)]
    gaps = np.diff([0, *below, 10_000])
    middles = [0.01, *[1.0001 * t for t in thresholds]]
    samples = tuple(float(s) for s in np.repeat(middles, gaps))
    votes = []
    for sigma in levels:
        top = math.floor(10_000 * norm.cdf(0.5 / sigma))
        votes.append(LevelVotes(sigma, 0, (top, 10_000 - top)))
    selector = SelectorEvidence(samples, 0.25, (0.12, 1.0), levels)
    evidence = Evidence(Ledger(1e-3, 5e-4, 5e-4), tuple(votes), selector)
    certificate = Certificate.derive("sound", evidence, sigma=0.4, id=0, seed=0, settings={})
    assert certificate.radius == pytest.approx(0.37084862, abs=5e-9)
    assert certificate.selector is not None
    entry = certificate.selector.entry_distances(certificate.ledger)
    expected = bounds.entry_distances(below, 10_000, 0.25, 2.5e-4)  # test_bounds has the numbers
    np.testing.assert_allclose(entry, expected, atol=1e-15)


def test_a_sample_on_a_threshold_counts_for_the_level_it_snaps_to() -> None:
    levels = (1.0, 4.0, 16.0)  # thresholds 2 and 8, exact
    for raw, index in ((2.0, 0), (8.0, 1), (math.nextafter(8.0, 9.0), 2)):
        evidence = SelectorEvidence((raw,) * 101, 0.25, None, levels)
        entry = evidence.entry_distances(Ledger(1e-3, 9e-4, 1e-4))
        snapped = Grid(levels).snap(torch.tensor([raw], dtype=torch.float64))
        assert float(snapped) == levels[index]
        assert [distance == 0 for distance in entry] == [j == index for j in range(3)]


def test_dual_radius_is_tight() -> None:
    # Class 0 up to level .5, wrong from .73 on: the radius is that level's entry distance.
    g, x = dual(WrongAbove(0.6)), point(0.5, 0.5)
    radii = [3.0 * s for s in np.geomspace(0.12, 1.0, LEVELS)[:6]] + [-np.inf] * 2
    truth = true_dual_radius(radii)
    ideal = Options(n_select=40_001, band=False)
    certificate = certify(g, x, n=2000, seed=2, options=ideal)[0]
    assert certificate.guarantee == "sound"
    assert 0.9 * truth < certificate.radius <= truth
    # The band of the deployed median costs σ_m·z_e where the entry distance decides.
    banded = certify(g, x, n=2000, seed=2, options=Options(n_select=40_001))[0]
    z_e = bounds.median_band(1001, 1e-5)
    assert banded.radius == pytest.approx(certificate.radius - 0.25 * z_e, abs=1e-12)
    assert banded.ledger == Ledger(1e-3, 1e-3 - 1e-5, 1e-5, 1e-5, 1001)


def test_dual_radius_limited_by_the_classifier() -> None:
    truth = 0.2  # margin of the linear classifier, at every level
    certificate = certify(dual(Linear()), point(0.7, 0.5), n=40_000, seed=2)[0]
    assert 0.9 * truth < certificate.radius <= truth


def test_unvisited_levels_cannot_matter() -> None:
    """Visiting lazily gives the radius that visiting every level gives."""
    g = dual(Linear())
    x = torch.cat([point(0.55 + 0.01 * i, 0.4 + 0.01 * i) for i in range(30)])
    lazy = certify(g, x, n=1000, seed=4)
    assert len({len(certificate.votes) for certificate in lazy}) > 1
    for i, certificate in enumerate(lazy):
        assert len(certificate.votes) < LEVELS
        assert certificate.selector is not None
        assert g.selector.describe()["levels"] == list(certificate.selector.levels or ())
        row, noise = x[i : i + 1], g.noise(1, seed=4, ids=[i])
        everything = [
            LevelVotes(s, certificate.votes[0].candidate, tuple(counts))
            for s in certificate.selector.levels or ()
            for counts in g.votes(row, 1000, sigma=torch.tensor([s]), noise=noise).tolist()
        ]
        evidence = Evidence(certificate.ledger, tuple(everything), certificate.selector)
        full = Certificate.derive("sound", evidence, sigma=0.0, id=i, seed=4, settings={})
        assert full.radius == certificate.radius
        seen = {level.sigma: level for level in everything}
        assert all(seen[level.sigma] == level for level in certificate.votes)


def test_levels_outside_the_clip_do_not_hide_the_level_that_is_used() -> None:
    """h ≈ .2 is clipped to .3 and lands on level .4, where the margin is only .03."""

    class SureAtLowNoise(nn.Module):
        conditional = True

        def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
            scores = Linear()(x)
            return torch.where((sigma < 0.35)[:, None], torch.tensor([1.0, 0.0]), scores)

    selector = MedianSelector(
        LinearSelector(0.2, 0.05), 0.25, n=11, clip=(0.3, 0.5), levels=[0.1, 0.2, 0.4, 0.8]
    )
    g = SmoothedClassifier(SureAtLowNoise(), selector)
    certificates = certify(g, point(0.53, 0.5, copies=10), n=1000, seed=1)
    assert (certificates.radius < 0.03).all()
    used = predict(g, point(0.53, 0.5))[0].sigma
    assert {v.sigma for c in certificates for v in c.votes} == {used}


def test_the_selectors_noise_is_recorded_as_applied() -> None:
    """0.7 is applied as the float32 below it; D̂ must not be computed from more."""
    selector = MedianSelector(LinearSelector(0.4, 0.1), 0.7, n=11, levels=[0.3, 0.5])
    g = SmoothedClassifier(Linear(), selector)
    for x in (point(0.7, 0.5), point(0.7, 0.5).double()):
        evidence = certify(g, x, seed=1)[0].selector
        assert evidence is not None
        assert evidence.sigma_m == float(torch.tensor(0.7, dtype=x.dtype)) <= 0.7


def test_one_level_is_fixed_smoothing() -> None:
    g = SmoothedClassifier(Linear(), MedianSelector(LinearSelector(0.3, 1.0), 0.25, levels=[0.25]))
    x = point(0.7, 0.5, copies=3)
    one, plain = certify(g, x, seed=1), certify(fixed(Linear()), x, seed=1)
    for a, b in zip(one, plain, strict=True):
        assert a.votes[0].counts == b.votes[0].counts
        assert a.radius == b.recompute(1e-3 - 1e-5).radius


# --- the trap: three levels agree, one between them is wrong ---------------------------------


def test_paper_certifies_a_false_radius_and_sound_does_not() -> None:
    d, direction = 3072, -1
    x = torch.full((1, 3, 32, 32), 0.5)
    selector = MedianSelector(
        LinearSelector(0.33, 0.25), 0.25, clip=(0.16, 0.50), levels=[0.16, 0.33, 0.375, 0.50]
    )
    g = SmoothedClassifier(Shell(), selector)
    false = certify_as_paper(g, x, n=1000, distance=0.68, seed=1)[0]
    assert false.guarantee == "heuristic"
    assert false.prediction == 0
    assert [v.sigma for v in false.votes] == pytest.approx([0.16, 0.33, 0.50])
    assert false.radius > 0.35

    attacked = x.clone()
    attacked.view(1, d)[0, direction] += 0.30  # inside the radius that was claimed
    assert predict(g, attacked, seed=2)[0].prediction == 1

    true = certify(g, x, n=1000, seed=1)[0]
    assert true.guarantee == "sound"
    assert 0 <= true.radius < 0.18
    every = Options(every_index=True)
    exhaustive = certify_as_paper(g, x, n=1000, distance=0.68, seed=1, options=every)[0]
    assert (exhaustive.prediction, exhaustive.radius) == (ABSTAIN, 0.0)


def test_paper_method_by_hand() -> None:
    g = SmoothedClassifier(Linear(), MedianSelector(LinearSelector(0.40, 0.2), 0.25))
    certificate = certify_as_paper(g, point(0.9, 0.5), distance=0.1, seed=3)[0]
    assert certificate.selector is not None
    samples = certificate.selector.samples
    q_l, q_u = bounds.order_statistics(1001, 0.1, 0.25, 5e-6)
    expected = [samples[q_l - 1], samples[500], samples[q_u - 1]]
    assert [v.sigma for v in certificate.votes] == expected
    assert certificate.radius == 0.1  # every level allows more; capped at D
    assert certificate.sigma == samples[500]
    options = Options(n0=1, every_index=True)
    (every,) = certify_as_paper(g, point(0.9, 0.5), 0.1, n=20, seed=3, options=options)
    assert [v.sigma for v in every.votes] == sorted(set(samples[q_l - 1 : q_u]))
    other = certify_as_paper(g, point(0.1, 0.5), distance=0.1, seed=3)[0]
    assert (other.prediction, other.radius) == (1, 0.1)


def test_paper_method_without_a_bound_certifies_nothing() -> None:
    h = LinearSelector(0.40, 0.01)
    g = SmoothedClassifier(Linear(), MedianSelector(h, 0.25))
    beyond = certify_as_paper(g, point(0.9, 0.5), distance=0.7, seed=3)[0]
    assert (beyond.prediction, beyond.radius, beyond.votes) == (ABSTAIN, 0.0, ())
    at_zero = certify_as_paper(g, point(0.9, 0.5), distance=0.0, seed=3)[0]
    assert (at_zero.prediction, at_zero.radius) == (0, 0.0)
    for ends in ({"clip": (0.3, 0.5)}, {"levels": [0.3, 0.4, 0.5]}):  # stand in for the bounds
        g = SmoothedClassifier(Linear(), MedianSelector(h, 0.25, **ends))
        certificate = certify_as_paper(g, point(1.0, 0.5), distance=0.7, seed=3)[0]
        assert [v.sigma for v in certificate.votes] == pytest.approx([0.3, certificate.sigma, 0.5])
        assert 0.35 < certificate.radius < 0.5
        assert certificate.sigma == pytest.approx(0.4, abs=0.005)


# --- conditional ---------------------------------------------------------------------------


def test_conditional_certifies_at_the_chosen_level() -> None:
    g = SmoothedClassifier(Linear(), MedianSelector(LinearSelector(0.40, 0.2), 0.25, n=11))
    certificate = certify(g, point(0.7, 0.5), seed=3, options=Options(method="conditional"))[0]
    assert certificate.guarantee == "conditional"
    deployed = predict(g, point(0.7, 0.5), seed=3)[0]
    assert certificate.votes[0].sigma == certificate.sigma == deployed.sigma
    assert 0.1 < certificate.radius < 0.25


def test_sound_is_refused_for_an_unprotected_selector() -> None:
    class Network(nn.Module):
        def forward(self, x: Tensor, sigma_a: Tensor, lam: Tensor) -> Tensor:
            return sigma_a

    g = SmoothedClassifier(Linear(), LearnedSelector(Network(), 0.25, 0.0))
    with pytest.raises(VarsmoothError, match="MedianSelector"):
        certify(g, point(0.7, 0.5))
    with pytest.raises(VarsmoothError, match="MedianSelector"):
        certify_as_paper(g, point(0.7, 0.5), distance=0.1)
    conditional = certify(g, point(0.7, 0.5), options=Options(method="conditional"))
    assert conditional.guarantee == "conditional"
    g = SmoothedClassifier(Linear(), MedianSelector(LinearSelector(0.4, 1.0), 0.25))
    with pytest.raises(VarsmoothError, match="grid"):
        certify(g, point(0.7, 0.5))


# --- evidence ------------------------------------------------------------------------------


def test_recompute_counts_unvisited_levels_as_unknown() -> None:
    """Ten unanimous votes allow little at α = 10⁻³ and much at ½, beyond levels never visited."""
    g, x = dual(WrongAbove(9.0)), point(0.5, 0.5)
    certificate = certify(g, x, n=20, seed=2)[0]
    looser = certificate.recompute(0.5)
    assert certificate.selector is not None
    seen = {level.sigma for level in certificate.votes}
    unseen = [j for j, s in enumerate(certificate.selector.levels or ()) if s not in seen]
    entry = certificate.selector.entry_distances(looser.ledger)
    assert looser.radius == min(entry[j] for j in unseen)
    assert looser.radius < certify(g, x, n=20, alpha=0.5, seed=2)[0].radius
    selective = certificate.recompute(0.5, alpha_select=0.4)
    assert selective.ledger.alpha_class == pytest.approx(0.1)
    entry = certificate.selector.entry_distances(selective.ledger)
    assert looser.radius < selective.radius == min(entry[j] for j in unseen)


# --- certify_at ----------------------------------------------------------------------------


def test_certify_at_decides_with_few_votes() -> None:
    g, x = fixed(Linear()), point(0.8, 0.5, copies=20)
    yes = certify_at(g, x, 0.2, seed=1)
    assert all(yes.certified)
    assert {d.reason for d in yes} == {"certified"}
    assert np.mean(yes.samples) < 2000
    no = certify_at(g, x, 0.4, seed=1)
    assert not any(no.certified)
    assert {d.reason for d in no} == {"futile"}
    assert no.prediction.tolist() == [ABSTAIN] * 20
    assert np.mean(no.samples) < 2000


def test_certify_at_gives_up_at_n_max() -> None:
    g, options = fixed(Linear()), Options(n_max=304)
    (decision,) = certify_at(g, point(0.8, 0.5), 0.29, seed=1, options=options)
    assert not decision.certified
    assert decision.reason in ("undecided", "futile")
    assert decision.samples <= 100 + 304
    # One look is all there is, and a fair coin rarely shows enough in it.
    x, options = point(0.5, 0.5, copies=50), Options(n_max=16)
    coins = certify_at(g, x, 0.05, alpha=0.2, seed=1, options=options)
    assert sum(coins.certified) < 10
    assert {d.reason for d in coins if not d.certified} == {"undecided"}


@pytest.mark.parametrize(("n", "p0", "goal"), [(16, 0.55, 1.6), (400, 0.8, 7.0), (50, 0.99, 7.0)])
def test_votes_needed_against_trying_every_count(n: int, p0: float, goal: float) -> None:
    enough = bounds.log_e_value(np.arange(n + 1), n, p0) >= goal
    assert votes_needed(n, p0, goal) == (int(enough.argmax()) if enough.any() else n + 1)


def test_the_chance_to_certify_against_the_beta_binomial() -> None:
    n, n_max, top = 320, 2000, np.arange(220, 300)
    needed = np.full_like(top, 1620)
    exact = betabinom.sf(needed - top - 1, n_max - n, top + 0.5, n - top + 0.5)
    chance = success_chance(needed, n_max, top, n)
    assert np.abs(chance - exact).max() < 0.02
    assert ((chance < 1e-3) == (exact < 1e-3)).mean() > 0.95
    assert success_chance(np.array([96]), 100, np.array([40]), 48) == [0.0]  # not with all of 52


def test_giving_up_loses_few_radii_that_are_there() -> None:
    """p is above Φ(r/σ) by three standard errors of n_max votes: few are given up on the way."""
    g, x = fixed(Linear()), point(0.8, 0.5, copies=300)
    options = Options(n_max=4000)
    decisions = certify_at(g, x, 0.25, seed=3, options=options)
    assert sum(decision.reason == "futile" for decision in decisions) <= 15
    hopeless = certify_at(g, x, 0.3, seed=3, options=options)  # p = Φ(r/σ): a yes is a mistake
    assert np.mean(hopeless.samples) < 2000


def test_certify_at_on_a_grid() -> None:
    g, x = dual(WrongAbove(0.6)), point(0.5, 0.5)
    sound = certify(g, x, n=10_000, seed=1)[0]
    inside = certify_at(g, x, sound.radius * 0.99, seed=1)[0]
    assert inside.certified
    assert inside.certificate.guarantee == "sound"
    outside = certify_at(g, x, sound.radius * 1.01, seed=1)[0]
    assert not outside.certified
    fewer, more = inside.certificate.votes, outside.certificate.votes
    assert len(more) == len(fewer) + 1  # it went on to the level that is wrong


def test_certify_at_stops_at_the_first_level_that_fails() -> None:
    """Right at the nominal level and far away, wrong between: a later pass repairs nothing."""

    class WrongAt(WrongAbove):
        def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
            wrong = ((sigma - self.bad).abs() < 0.05).to(x.dtype)
            return torch.stack([1 - wrong, wrong], dim=1)

    g, options = dual(WrongAt(0.55)), Options(n_max=2000)
    (decision,) = certify_at(g, point(0.5, 0.5), 0.6, seed=1, options=options)
    assert (decision.certified, decision.prediction) == (False, ABSTAIN)
    assert decision.reason == "futile"
    assert decision.certificate.votes[-1].sigma == pytest.approx(0.545, abs=0.01)
    assert decision.samples == 100 + sum(level.n for level in decision.certificate.votes)


def test_certify_at_spends_what_alpha_select_leaves() -> None:
    """A certain classifier passes at the first look where E ≥ 1/(α − α_h)."""
    selector = MedianSelector(LinearSelector(0.3, 0.1), 0.25, n=11, levels=[0.25])
    g, x = SmoothedClassifier(WrongAbove(9.0), selector), point(0.5, 0.5)
    radius, spent = 0.25 * float(norm.ppf(0.8)), []
    for alpha_select in (1e-3, 0.19):
        options = Options(alpha_select=alpha_select)
        (decision,) = certify_at(g, x, radius, alpha=0.2, options=options)
        looks = np.arange(16, 200, 16)
        enough = bounds.log_e_value(looks, looks, 0.8) >= -math.log(0.2 - alpha_select)
        spent.append(int(looks[enough][0]))
        assert [level.n for level in decision.certificate.votes] == spent[-1:]
    assert spent[0] < spent[1]


# --- bad input -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (torch.zeros(3, 8, 8), "batch"),
        (torch.zeros(0, 3, 8, 8), "empty"),
        (torch.zeros(1, 3, 8, 8, dtype=torch.uint8), "255"),
        (torch.full((1, 3, 8, 8), 1.5), r"\[0, 1\]"),
        (torch.full((1, 3, 8, 8), float("nan")), "NaN"),
    ],
    ids=["rank", "empty", "dtype", "range", "nan"],
)
def test_bad_images_are_refused(x: Tensor, words: str) -> None:
    g = fixed(Linear())
    for call in (predict, certify, lambda g, x: certify_at(g, x, 0.1)):
        with pytest.raises(VarsmoothError, match=words):
            call(g, x)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n": 9}, "n ≥ 10"),
        ({"alpha": 0.0}, "alpha"),
        ({"alpha": 1.0}, "alpha"),
        ({"n0": 0}, "n0"),
        ({"method": "exact"}, "method"),
        ({"method": "paper"}, "certify_as_paper"),
        ({"ids": [1, 2]}, "ids"),
        ({"ids": ["a"]}, "ids must be whole"),
        ({"n": 1e2}, "n must be a whole number"),
        ({"n": "100"}, "n must be a whole number"),
        ({"alpha": [0.1, 0.2]}, "alpha must be a number"),
    ],
    ids=str,
)
def test_bad_options_are_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(VarsmoothError, match=words):
        certify(fixed(Linear()), point(0.7, 0.5), **arguments(**options))


class Returning(nn.Module):
    """A classifier that gives back whatever it is made of."""

    def __init__(self, output: Any) -> None:
        super().__init__()
        self.output = output

    def forward(self, z: Tensor) -> Any:
        return self.output(z)


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (lambda z: (z.flatten(1), None), "one tensor of scores .* not tuple"),
        (lambda z: z.flatten(1)[:, :1], "two or more"),
        (lambda z: z @ torch.zeros(7, 7), "fails on torch.float32 images of 2×1 pixels"),
    ],
    ids=["a tuple", "one score", "an error of its own"],
)
def test_a_classifier_that_cannot_serve_is_named(output: Any, words: str) -> None:
    for call in (predict, certify, lambda g, x: g(x)):
        with pytest.raises(VarsmoothError, match=words):
            call(fixed(Returning(output)), torch.zeros(1, 1, 1, 2))


H, X, F, AS_TENSOR = LinearSelector(0.4, 1.0), point(0.7, 0.5), Linear(), r"torch\.from_numpy"
Wrong: Any = Options  # mypy would notice
ARRAYS: list[Any] = [np.zeros((1, 1, 1, 2), np.float32), [[0.5]]]
SIGMAS: list[Any] = [0.0, -1.0, float("nan"), float("inf"), "wide"]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: certify(dual(F), X, options=Options(alpha_select=1e-3)), "alpha_select"),
        (lambda: certify(dual(F), X, options=Options(n_select=0)), "n_select"),
        (lambda: predict(fixed(F), X, n=10), "n ≥ 12"),
        (lambda: certify(fixed(F), X, options=Wrong(bound="runner-up")), "'best' or 'cohen'"),
        (lambda: certify_at(dual(F), X, -0.1), "radius"),
        (lambda: certify_at(dual(F), X, 0.1, options=Options(n_select=0)), "n_select"),
        (lambda: certify_at(dual(F), X, 0.1, options=Options(n_max=10)), "n_max"),
        (lambda: certify(dual(F), X).recompute(1e-3, alpha_select=-1.0), "alpha_select"),
        (lambda: predict(fixed(F), point(0.5, 0.5, copies=2), ids=[1, 1]), "same id"),
        *((partial(certify, fixed(F), array), AS_TENSOR) for array in ARRAYS),
        (lambda: certify(fixed(F), X.half()), r"x\.float\(\)"),
        *((partial(FixedSelector, sigma), "sigma") for sigma in SIGMAS),
        (lambda: MedianSelector(H, 0.25, n=1000), "odd"),
        (lambda: MedianSelector(MedianSelector(H, 0.25), 0.25), "cannot wrap a MedianSelector"),
        (lambda: MedianSelector(H, 0.25, clip=(0.5, 0.5)), "low < high"),
        (lambda: MedianSelector(H, 0.25, levels=8), "clip"),
        (lambda: MedianSelector(H, 0.25, levels=[0.5, 0.25]), "ascend"),
        (lambda: LearnedSelector(nn.Identity(), 0.25, -0.1), "lam"),
        (lambda: SmoothedClassifier(F, Wrong()), "selector"),
        (lambda: MedianSelector(lambda x: x, 0.25, n=3)(X), "one level per image"),
        (lambda: MedianSelector(lambda x: -x.mean((1, 2, 3)), 0.01, n=3)(X), "positive"),
    ],
)
def test_what_cannot_be_is_refused(call: Any, words: str) -> None:
    with pytest.raises(VarsmoothError, match=words):
        call()


def test_a_dual_radius_covers_queries_that_set_its_share_aside() -> None:
    """Measured: 2.6 % wrong answers at α = 1 % inside a radius made with α_p = 4.5 %."""
    selector = MedianSelector(LinearSelector(0.4, 1.0), 0.25, 51, (0.1, 1.0), 4)
    g, x = SmoothedClassifier(Linear(), selector), point(0.9, 0.5)
    certified: dict[str, Any] = {"n": 400, "n_select": 401, "alpha": 0.05, "seed": 1}
    generous = certify(g, x, **arguments(alpha_select=0.045, **certified))[0]
    strict = certify(g, x, **arguments(alpha_select=1e-3, **certified))[0]
    ideal = certify(g, x, **arguments(alpha_select=1e-3, band=False, **certified))[0]
    answer = predict(g, x, n=400, alpha=0.01, options=Options(alpha_select=2e-3))[0]
    heuristic = certify_as_paper(g, x, 0.1, n=400, seed=1, options=Options(n_select=401))[0]
    assert strict.covers(answer)
    assert not heuristic.covers(answer)
    assert not generous.covers(answer)
    assert not ideal.covers(answer)
    assert not strict.covers(predict(g, x, n=400, alpha=None)[0])
    fewer = SmoothedClassifier(g.classifier, selector.with_draws(41))
    answer = predict(fewer, x, n=400, alpha=0.01, options=Options(alpha_select=2e-3))[0]
    assert not strict.covers(answer)
    one = fixed(g.classifier)
    assert certify(one, x, n=400, seed=1)[0].covers(predict(one, x, n=400, alpha=0.01)[0])
