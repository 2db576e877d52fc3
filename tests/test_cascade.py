"""The cascade: Theorem C against vectors, closed forms and brute force; its plan, rule and gate."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch import Tensor, nn

from tests.oracles import Linear, at_most, point
from varsmooth import (
    ABSTAIN,
    CascadeSelector,
    Certificate,
    FixedSelector,
    Options,
    SmoothedClassifier,
    VarsmoothError,
    bounds,
    certify,
    certify_at,
    pgd,
    predict,
)
from varsmooth.bounds import Integers
from varsmooth.cascade import Stages
from varsmooth.evidence import Evidence, Ledger, LevelVotes
from varsmooth.methods.cascade_plan import can_improve, make_plan

Shares = dict[float, tuple[float, float, float]]
FACTS: dict[str, Any] = {"sigma": 1.0, "id": 0, "seed": 0, "settings": {}}


class Coin(nn.Module):
    """A conditional f of three classes whose vote at each level has given probabilities.

    The first pixel of the noise decides: u = Φ((z − ½)/σ) is uniform at pixel ½, and class c is
    named on an interval of length p_σ(c). Shifting the pixel by δ moves u as Cohen's worst case
    does for the class at either end.
    """

    conditional = True

    def __init__(self, shares: Shares) -> None:
        super().__init__()
        self.shares = shares

    def forward(self, z: Tensor, sigma: Tensor) -> Tensor:
        u = torch.special.ndtr((z.flatten(1)[:, 0] - 0.5).double() / sigma)
        logits = torch.zeros(len(z), 3, dtype=torch.float64)
        for level, (a, b, _) in self.shares.items():
            here = (sigma - level).abs() < 1e-6
            vote = torch.where(u > 1 - a, 0, torch.where(u < b, 1, 2))  # A on top, B below
            logits[here] = nn.functional.one_hot(vote[here], 3).double()
        return logits


def cascade(shares: Shares, thresholds: list[float]) -> SmoothedClassifier:
    return SmoothedClassifier(Coin(shares), CascadeSelector(list(shares), thresholds))


def true_radius(shares: Shares, taus: list[float]) -> float:
    """Theorem C for class 0 with exact probabilities; the last stage answers argmax if τ is ½."""
    h, x = [], []
    for (s, (a, b, c)), tau in zip(shares.items(), taus, strict=True):
        h.append(s * (norm.ppf(a) - norm.ppf(tau)))
        x.append(s * (norm.ppf(tau) - norm.ppf(max(b, c))))
    if taus[-1] == 0.5:
        h[-1] = s / 2 * (norm.ppf(a) - norm.ppf(max(b, c)))
    return max(min([h[k], *x[:k]]) for k in range(len(h)))


def derived(stages: Stages, votes: list[LevelVotes]) -> Certificate:
    evidence = Evidence(Ledger(1e-3, 1e-3), tuple(votes), None, stages)
    return Certificate.derive("cascade", evidence, **FACTS)


def votes(sigma: float, top: int, other: int, n: int = 1000) -> LevelVotes:
    return LevelVotes(sigma, 0, (top, other, n - top - other))


@pytest.mark.parametrize(
    ("taus", "counts", "radius"),
    [
        ((0.6,), [(950, 50)], 1.1865149181),
        ((0.6, 0.5), [(700, 180), (870, 130)], 0.4853522118),
        ((0.6, 0.5, 0.5), [(500, 480), (400, 390), (900, 100)], 0.0770270655),
        ((0.5, 0.5), [(300, 600), (990, 10)], None),  # an earlier stage may answer otherwise
    ],
)
def test_the_vectors_of_theorem_c(
    taus: tuple[float, ...], counts: list[tuple[int, int]], radius: float | None
) -> None:
    """Counts of A and of the largest other class in 1000 votes at s = 1, ½, ¼."""
    levels = (1.0, 0.5, 0.25)[: len(taus)]
    seen = [votes(s, *row) for s, row in zip(levels, counts, strict=True)]
    one = derived(Stages(levels, taus), seen)
    assert one.radius == pytest.approx(radius or 0.0, abs=1e-9)
    assert (one.prediction, one.guarantee) == (ABSTAIN if radius is None else 0, "sound")


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_a_radius_does_not_depend_on_the_names_of_the_classes(order: tuple[int, ...]) -> None:
    stages = Stages((1.0, 0.5, 0.25), (0.6, 0.5, 0.5))
    counts = [(500, 480, 20), (400, 390, 210), (900, 60, 40)]  # of A and of the other classes
    renamed = [
        LevelVotes(s, order.index(0), tuple(row[c] for c in order))
        for s, row in zip(stages.levels, counts, strict=True)
    ]
    assert derived(stages, renamed).radius == pytest.approx(0.0770270655, abs=1e-9)


def test_passes_count_as_votes_for_nobody() -> None:
    gated = LevelVotes(1.0, 0, (600, 0, 0), passes=400)
    assert gated.n == 1000
    certificate = derived(Stages((1.0,), (0.5,)), [gated])
    assert certificate.radius == pytest.approx(float(bounds.class_radius(600, 1000, 1.0, 1e-3)))


SHARES = {1.0: (0.55, 0.3, 0.15), 0.5: (0.8, 0.15, 0.05), 0.25: (0.97, 0.02, 0.01)}


def test_certify_finds_class_stage_and_radius() -> None:
    g = cascade(SHARES, [0.5, 0.5, 0.5])
    (certificate,) = certify(g, point(0.5), n=20_000, seed=1, options=Options(n0=2000))
    truth = true_radius(SHARES, [0.5, 0.5, 0.5])  # attained by the last stage
    assert truth == pytest.approx(0.125 * (norm.ppf(0.97) - norm.ppf(0.02)))
    assert (certificate.prediction, certificate.sigma, certificate.method) == (0, 0.25, "cascade")
    assert 0.96 * truth < certificate.radius < truth
    assert [level.sigma for level in certificate.votes] == [1.0, 0.5, 0.25]
    assert [level.n for level in certificate.votes][-1] == 20_000
    assert certificate.samples == 3 * 2000 + sum(level.n for level in certificate.votes)


def test_stages_after_the_deciding_one_are_not_visited() -> None:
    sure = {1.0: (0.999, 0.001, 0.0), 0.5: (0.999, 0.001, 0.0)}
    (certificate,) = certify(cascade(sure, [0.5, 0.5]), point(0.5), seed=1)
    assert [level.sigma for level in certificate.votes] == [1.0]
    assert certificate.samples == 100 + 1000  # not even by selection draws


def test_with_thresholds_of_one_half_the_first_stage_alone_gives_cohens_radius() -> None:
    for a in (0.6, 0.8, 0.95):
        alone = {1.0: (a, 1 - a, 0.0)}
        fixed = SmoothedClassifier(Coin(alone), FixedSelector(1.0))
        same = certify(fixed, point(0.5), seed=3)[0].radius
        assert certify(cascade(alone, [0.5]), point(0.5), seed=3)[0].radius == same


def test_ordinary_classifiers_and_lattice_noise() -> None:
    selector = CascadeSelector([0.5, 0.25])
    x = (point(0.9, 0.5) * 255).round() / 255
    for lattice in (False, True):
        g = SmoothedClassifier(Linear(), selector, lattice=lattice)
        assert 0.25 < certify(g, x, seed=2)[0].radius < 0.41  # .4 at every level


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: CascadeSelector([]), "at least one"),
        (lambda: CascadeSelector([1.0, 0.5], [0.5]), "as levels: 2, not 1"),
        (lambda: CascadeSelector([1.0], [0.4]), r"\[0.5, 1\)"),
        (lambda: CascadeSelector([1.0, 1.0]), "must decrease"),
        (lambda: CascadeSelector([0.25, 0.5]), "must decrease"),
        (lambda: CascadeSelector("0.5,0.25"), "levels must be a list"),  # type: ignore[arg-type]
        (lambda: CascadeSelector(0.5), "levels must be a list"),  # type: ignore[arg-type]
        (lambda: CascadeSelector([0.5], 0.6), "thresholds must be a list"),  # type: ignore[arg-type]
        (lambda: CascadeSelector([0.5], gates=0.4), "gates must be a list"),  # type: ignore[arg-type]
        (lambda: CascadeSelector([0.5], gates=[0.9, 0.9]), "as many gates as levels: 1, not 2"),
        (lambda: CascadeSelector([0.5], gates=[1.5]), r"gates must lie in \[0, 1\)"),
        (
            lambda: certify(
                cascade(SHARES, [0.5] * 3), point(0.5), options=Options(method="conditional")
            ),
            "no conditional",
        ),
        (lambda: cascade(SHARES, [0.5] * 3).votes(point(0.5), 10), "pass sigma"),
        (lambda: predict(cascade(SHARES, [0.5] * 3), point(0.5), n=8), "use `n ≥ 15`"),
        (lambda: CascadeSelector([0.5, 1e-50]), "a level must be positive"),  # 0 in float32
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(call: Any, words: str) -> None:
    with pytest.raises(VarsmoothError, match=words):
        call()


# --- the plan ------------------------------------------------------------------------------


def test_the_plan_takes_the_stage_with_the_largest_radius_to_expect() -> None:
    stages = Stages((1.0, 0.5), (0.5, 0.5))
    counts = np.array([[90, 10, 0], [99, 1, 0]])
    assert make_plan(stages, counts, 100, 1000, 1e-3).stage == 0  # Φ⁻¹(.9) > .5 · Φ⁻¹(.99)
    stages = Stages((1.0, 0.25), (0.5, 0.5))
    counts = np.array([[60, 20, 20], [99, 1, 0]])
    plan = make_plan(stages, counts, 100, 1000, 1e-3)
    assert (plan.stage, plan.candidate) == (1, 0)
    assert plan.votes[0] < plan.votes[1] == 1000
    blocked = np.array([[10, 80, 10], [99, 1, 0]])  # stage 1 answers class 1, whatever follows
    assert make_plan(stages, blocked, 100, 1000, 1e-3).candidate == 1


def test_planned_early_votes_lose_little_radius() -> None:
    """Two stages, p drawn anew for each image, against N votes at both stages."""
    rng, stages, n = np.random.default_rng(0), Stages((0.5, 0.25), (0.8, 0.5)), 1000
    radii = []
    for _ in range(300):
        shares = np.array([rng.dirichlet([1.5, 1.5, 1.0]), rng.dirichlet([6.0, 0.5, 0.5])])
        selection = np.array([rng.multinomial(100, p) for p in shares])
        plan = make_plan(stages, selection, 100, n, 1e-3)
        if plan.stage == 0:
            continue
        few, many = (rng.multinomial(m, shares[0]) for m in (plan.votes[0], n))
        last = rng.multinomial(n, shares[1])[plan.candidate]
        held = float(bounds.class_radius(last, n, 0.25, 1e-3, 0.5))

        def radius(votes: Integers, held: float = held, of: int = plan.candidate) -> float:
            other = np.delete(votes, of).max()
            kept = float(bounds.exclusion_radius(other, votes.sum(), 0.5, 1e-3, 0.8))
            return max(min(held, kept), 0.0)

        radii.append((radius(few), radius(many)))
    planned, every = np.mean(radii, axis=0)
    assert len(radii) > 100
    assert planned >= 0.98 * every  # .977 without headroom; on real votes less is lost


def test_an_early_stage_gets_the_votes_that_are_worth_their_price() -> None:
    stages = Stages((1.0, 0.25), (0.5, 0.5))

    def early(others: int) -> int:
        counts = np.array([[40, others, 0], [99, 1, 0]])
        return make_plan(stages, counts, 100, 1000, 1e-3).votes[0]

    needed = [early(others) for others in (10, 20, 28, 36)]
    assert needed == sorted(needed)  # the nearer another class, the more votes exclude it
    assert needed[0] < 200 < needed[-1]
    hopeless = np.array([[30, 49, 21], [40, 30, 30]])
    assert make_plan(stages, hopeless, 100, 1000, 1e-3).votes == (16, 1000)  # nothing to save


def test_later_stages_are_asked_while_they_could_win() -> None:
    stages = Stages((1.0, 0.25), (0.5, 0.5))
    assert not can_improve(stages, np.array([[100, 0, 0]]), 100, 1000, 1e-3)
    assert can_improve(stages, np.array([[52, 30, 18]]), 100, 1000, 1e-3)


# --- the deployed rule ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shares", "taus", "answer", "sigma"),
    [
        ({1.0: (0.9, 0.1, 0.0), 0.5: (0.1, 0.9, 0.0)}, [0.5, 0.5], 0, 1.0),
        ({1.0: (0.4, 0.35, 0.25), 0.5: (0.1, 0.9, 0.0)}, [0.5, 0.5], 1, 0.5),
        ({1.0: (0.7, 0.3, 0.0), 0.5: (0.1, 0.9, 0.0)}, [0.8, 0.5], 1, 0.5),  # τ of its own stage
        ({1.0: (0.7, 0.3, 0.0), 0.5: (0.1, 0.9, 0.0)}, [0.5, 0.8], 0, 1.0),
        ({1.0: (0.4, 0.35, 0.25), 0.5: (0.25, 0.45, 0.3)}, [0.5, 0.5], 1, 0.5),  # argmax
        ({1.0: (0.4, 0.35, 0.25), 0.5: (0.3, 0.4, 0.3)}, [0.5, 0.6], ABSTAIN, 0.5),
    ],
)
@pytest.mark.parametrize("alpha", [1e-3, None])
def test_the_first_stage_that_reaches_its_threshold_answers(
    shares: Shares, taus: list[float], answer: int, sigma: float, alpha: float | None
) -> None:
    (prediction,) = predict(cascade(shares, taus), point(0.5), n=2000, alpha=alpha, seed=5)
    assert (prediction.prediction, prediction.sigma) == (answer, sigma)
    if alpha is None:  # the plain rule takes all votes, and passes on without a majority
        assert prediction.samples == 2000 * (1 + list(shares).index(sigma))
    else:
        assert prediction.samples < 2500  # decided votes stop
        assert prediction.ledger == Ledger(alpha, alpha / 3)  # L + 1 errors are possible


@pytest.mark.parametrize(
    ("shares", "answer", "sigma"),
    [
        ({1.0: (0.5, 0.3, 0.2), 0.5: (0.9, 0.1, 0.0)}, 0, 0.5),
        ({1.0: (0.5, 0.5, 0.0), 0.5: (0.9, 0.1, 0.0)}, ABSTAIN, 1.0),  # two are left open
        ({1.0: (0.5, 0.3, 0.2), 0.5: (0.1, 0.9, 0.0)}, ABSTAIN, 0.5),  # another class
        ({1.0: (0.5, 0.3, 0.2), 0.5: (0.3, 0.5, 0.2), 0.25: (0.9, 0.1, 0.0)}, ABSTAIN, 0.5),
        ({1.0: (0.5, 0.3, 0.2), 0.5: (0.4, 0.3, 0.3), 0.25: (0.9, 0.1, 0.0)}, 0, 0.25),
        ({1.0: (0.5, 0.3, 0.2), 0.5: (0.4, 0.3, 0.3)}, ABSTAIN, 0.5),  # no stage answers
    ],
)
def test_after_an_undecided_stage_only_the_class_left_open_is_answered(
    shares: Shares, answer: int, sigma: float
) -> None:
    g = cascade(shares, [0.5] * len(shares))
    (prediction,) = predict(g, point(0.5), n=1000, seed=5)
    assert (prediction.prediction, prediction.sigma) == (answer, sigma)
    assert prediction.samples <= 1000 * (list(shares).index(sigma) + 1)


def test_each_image_of_a_batch_walks_its_own_way() -> None:
    g = cascade({1.0: (0.9, 0.1, 0.0), 0.5: (0.1, 0.9, 0.0)}, [0.8, 0.5])
    x = torch.cat([point(0.5), point(0.0), point(0.5)])  # the middle one sees less of class 0
    predictions = predict(g, x, n=1000, seed=5)
    assert predictions.sigma.tolist() == [1.0, pytest.approx(0.5), 1.0]
    for i in range(3):
        (alone,) = predict(g, x[i : i + 1], n=1000, seed=5, ids=[i])
        assert alone == predictions[i]


# --- certify_at ----------------------------------------------------------------------------


@pytest.mark.parametrize("taus", [[0.5, 0.5], [0.6, 0.5], [0.5, 0.6]])
def test_certify_at_decides_around_the_true_radius(taus: list[float]) -> None:
    shares = {1.0: (0.45, 0.35, 0.2), 0.5: (0.93, 0.05, 0.02)}
    truth, g = true_radius(shares, taus), cascade(shares, taus)
    if taus == [0.5, 0.5]:  # stage 1 may turn to class 1: X decides
        assert truth == pytest.approx(norm.ppf(0.65))
    assert certify_at(g, point(0.5), 0.9 * truth, seed=1)[0].certified
    assert not certify_at(g, point(0.5), 1.1 * truth, seed=1)[0].certified
    (zero,) = certify_at(g, point(0.5), 0.0, seed=1)
    assert zero.certified
    assert zero.samples < 1000


# --- the gate ------------------------------------------------------------------------------


class Sure(nn.Module):
    """Class 0 with softmax .9 where the pixel exceeds ½, else class 1 with softmax .6."""

    def forward(self, x: Tensor) -> Tensor:
        above = (x.flatten(1)[:, 0] > 0.5)[:, None]
        return torch.where(above, torch.tensor([[0.9, 0.1]]), torch.tensor([[0.4, 0.6]])).log()


def test_the_gate_turns_unsure_votes_into_passes() -> None:
    plain = SmoothedClassifier(Sure(), CascadeSelector([0.5]))
    gated = SmoothedClassifier(Sure(), CascadeSelector([0.5], gates=[0.7]))
    x = point(0.6, 0.5)
    before = plain.votes(x, 1000, sigma=torch.tensor([0.5]), noise=plain.noise(1, 0))
    after = gated.votes(x, 1000, sigma=torch.tensor([0.5]), noise=gated.noise(1, 0))
    assert after.tolist() == [[int(before[0, 0]), 0, int(before[0, 1])]]
    (certificate,) = certify(gated, x, seed=0)
    (same,) = certify(plain, x, seed=0)
    assert certificate.votes[0].passes > 0
    assert certificate.votes[0].top == same.votes[0].top  # P(f = 0 and stay) is P(f = 0) here
    assert (
        certificate.radius > 5 * same.radius > 0
    )  # for the other votes pass: there is no runner-up
    levels = SmoothedClassifier(Sure(), CascadeSelector([0.5], gates=[0.95]))
    assert certify(levels, x, seed=0)[0].votes[0].passes == 1000
    first = CascadeSelector([0.5, 0.25], gates=[0, 0.95])
    assert certify(SmoothedClassifier(Sure(), first), x, seed=0)[0].votes[0].passes == 0


@pytest.mark.parametrize(
    ("gate", "words"),
    [
        (lambda z, logits, sigma: logits.amax(dim=1, keepdim=True), r"floats of shape \(\d+,\)"),
        (lambda z, logits, sigma: logits[:, 0] > 0, "torch.bool"),
        (lambda z, logits, sigma: torch.tensor(1.0), r"not torch.float32 \(\)"),
        (lambda z, logits, sigma: None, "not None"),
    ],
)
def test_a_gate_that_returns_no_scores_is_refused(gate: Any, words: str) -> None:
    """(M, 1) once counted every vote M times: false certificates."""
    g = SmoothedClassifier(Sure(), CascadeSelector([0.5], gates=gate))
    with pytest.raises(VarsmoothError, match=words):
        certify(g, point(0.6, 0.5), n=40, seed=0, options=Options(n0=10))


# --- soft scores ---------------------------------------------------------------------------


def test_soft_scores_mix_the_stages_and_carry_gradients() -> None:
    selector = CascadeSelector([1.0, 0.5], [0.6, 0.5])
    first, second = torch.tensor([[0.9, 0.1]]), torch.tensor([[0.2, 0.8]])
    torch.testing.assert_close(selector.mix([first, second]), first, atol=5e-3, rtol=0)
    unsure = torch.tensor([[0.5, 0.5]])
    mixed = selector.mix([unsure, second])
    weight = torch.sigmoid(torch.tensor((0.5 - 0.6) / 0.05))
    torch.testing.assert_close(mixed, weight * unsure + (1 - weight) * second)
    for gates in (None, [0.5, 0.5]):
        g = SmoothedClassifier(Sure(), CascadeSelector([0.5, 0.25], gates=gates))
        assert bool(g(point(0.6, 0.5)).isfinite().all())
    g = SmoothedClassifier(Linear(), CascadeSelector([0.5, 0.25]), temperature=0.1)
    x = point(0.7, 0.5).requires_grad_()
    scores = g(x)
    torch.testing.assert_close(scores.exp().sum(dim=1), torch.ones(1))
    (gradient,) = torch.autograd.grad(scores[0, 0], x)
    assert gradient.flatten()[0] > 0
    attacked = pgd(g, x.detach(), torch.tensor([0]), 0.3, 10, seed=0)
    assert attacked.flatten()[0] < 0.45  # through both stages, across the boundary at ½


# --- brute force ---------------------------------------------------------------------------


def plane(seed: int) -> Any:
    """Exact p(c; x) at level σ, by quadrature, of a random three-class f in the plane."""
    rng = np.random.default_rng(seed)
    centres, classes = rng.uniform(-1.5, 1.5, (6, 2)), rng.integers(0, 3, 6)
    nodes = norm.ppf((np.arange(200) + 0.5) / 200)
    grid = np.stack(np.meshgrid(nodes, nodes), -1).reshape(-1, 2)

    def p(x: np.ndarray, sigma: float) -> np.ndarray:
        away = ((x + sigma * grid)[:, None] - centres) ** 2
        return np.bincount(classes[away.sum(-1).argmin(1)], minlength=3) / len(grid)

    return p


def answer(p: Any, x: np.ndarray, stages: Stages) -> int:
    for s, tau in zip(stages.levels, stages.thresholds, strict=True):
        shares = p(x, s)
        if shares.max() >= tau:
            return int(shares.argmax())
    return ABSTAIN


def radius_of(p: Any, x: np.ndarray, stages: Stages, a: int) -> float:
    best, floor = -np.inf, np.inf
    for s, tau in zip(stages.levels, stages.thresholds, strict=True):
        shares = np.clip(p(x, s), 0.01, 0.99)  # what the quadrature can tell
        best = max(best, min(s * (norm.ppf(shares[a]) - norm.ppf(tau)), floor))
        floor = min(floor, s * (norm.ppf(tau) - norm.ppf(np.delete(shares, a).max())))
    return best


def violations(points: int, forget_earlier: bool = False) -> tuple[int, int]:
    """Points x' inside the radius of x that get another class; and points looked at."""
    stages = Stages((1.0, 0.5, 0.25), (0.6, 0.5, 0.5))
    rng, wrong, seen = np.random.default_rng(0), 0, 0
    while seen < points:
        p = plane(int(rng.integers(10_000)))
        x = rng.uniform(-1, 1, 2)
        a = answer(p, x, stages)
        rule = Stages(stages.levels[-1:], stages.thresholds[-1:]) if forget_earlier else stages
        radius = radius_of(p, x, rule, a) if a != ABSTAIN else 0.0
        if radius < 0.05:
            continue
        angle = rng.uniform(0, 2 * np.pi)
        other = x + 0.95 * radius * np.array([np.cos(angle), np.sin(angle)])
        wrong += answer(p, other, stages) != a
        seen += 1
    return wrong, seen


def test_no_point_inside_the_radius_gets_another_class() -> None:
    assert violations(150) == (0, 150)
    assert violations(150, forget_earlier=True)[0] > 0  # a planted bug is seen


# --- coverage ------------------------------------------------------------------------------

COPIES = 5000
EARLIER = {1.0: (0.45, 0.35, 0.2), 0.5: (0.9, 0.08, 0.02)}


@pytest.mark.parametrize(
    "shares",
    [
        EARLIER,  # an earlier stage decides
        {1.0: (0.45, 0.30, 0.25), 0.5: (0.7, 0.2, 0.1)},  # the answering stage decides
    ],
)
def test_certified_radii_are_too_large_at_most_as_often_as_alpha(shares: Any) -> None:
    truth, g = true_radius(shares, [0.5, 0.5]), cascade(shares, [0.5, 0.5])
    x = point(0.5, copies=COPIES)
    certificates = certify(g, x, n=100, alpha=0.1, seed=4, options=Options(n0=30))
    truths = np.array([truth if c.prediction == 0 else 0.0 for c in certificates])
    false = int((certificates.radius.numpy() > truths).sum())
    assert at_most(false, 0.1, COPIES)
    assert false > 0.01 * COPIES  # or the test would have no power


def test_certify_at_is_false_at_most_as_often_as_alpha() -> None:
    truth, g = true_radius(EARLIER, [0.5, 0.5]), cascade(EARLIER, [0.5, 0.5])
    x, options = point(0.5, copies=COPIES), Options(n0=30, n_max=400)
    false = sum(certify_at(g, x, 1.0001 * truth, alpha=0.1, seed=4, options=options).certified)
    assert at_most(false, 0.1, COPIES)
    assert false > 0.005 * COPIES


def test_the_deployed_rule_errs_at_most_as_often_as_alpha_inside_the_radius() -> None:
    truth, g = true_radius(EARLIER, [0.5, 0.5]), cascade(EARLIER, [0.5, 0.5])
    x = point(0.5 - 0.999 * truth, copies=COPIES)  # where class 1 nearly reaches τ at stage 1
    predictions = predict(g, x, n=200, alpha=0.3, seed=4)
    wrong = int(((predictions.prediction != 0) & (predictions.prediction != ABSTAIN)).sum())
    assert at_most(wrong, 0.3, COPIES)
    assert wrong > 0.002 * COPIES


def test_a_stage_that_is_passed_on_wrongly_errs_at_most_as_often_as_its_share_of_alpha() -> None:
    """p_1(A) = ½ = τ_1, so that A answers; stage 2, where B is clear, must not be believed."""
    g = cascade({1.0: (0.5, 0.3, 0.2), 0.5: (0.02, 0.98, 0.0)}, [0.5, 0.5])
    predictions = predict(g, point(0.5, copies=COPIES), n=200, alpha=0.3, seed=4)
    wrong = int((predictions.prediction == 1).sum())
    assert at_most(wrong, 0.3 / 3, COPIES)
    assert wrong > 0.002 * COPIES
