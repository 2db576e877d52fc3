"""certify: image → level → votes → bound → certificate."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from torch import Tensor

from varsmooth import bounds
from varsmooth.cascade import CascadeSelector, Plan, Stages, can_improve, make_plan
from varsmooth.certificates import Certificates
from varsmooth.defaults import ALPHA, ALPHA_SELECT, N0, N_SELECT, N
from varsmooth.errors import check_counts, require
from varsmooth.evidence import Ledger, LevelVotes, Method, SelectorEvidence
from varsmooth.sampling import Ids, Sampler, image_by_image
from varsmooth.selectors import FixedSelector, MedianSelector
from varsmooth.smoothing import Selector, SmoothedClassifier, check_smoothed


def certify(
    g: SmoothedClassifier,
    x: Tensor,
    *,
    n: int = N,
    n0: int = N0,
    alpha: float = ALPHA,
    method: Literal["sound", "conditional"] = "sound",
    n_select: int = N_SELECT,
    alpha_select: float = ALPHA_SELECT,
    band: bool = True,
    runner_up: bool = False,
    seed: int | None = None,
    ids: Ids = None,
    batch_size: int | None = None,
    progress: bool = False,
) -> Certificates:
    """A class and an ℓ2 radius for every image, with the evidence.

    Fixed σ: ĉ from n0 votes, p̲ = CP⁻ of its count in n fresh votes at α, R = σ Φ⁻¹(p̲).

    `CascadeSelector`: the class A and the stage k from n0 votes at each stage, then fresh votes for
    `R = min(Ĥ_k, min_{j<k} X̂_j)`, with `Ĥ_k = s_k [Φ⁻¹(p̲_k(A)) − Φ⁻¹(τ_k)]` and
    `X̂_j = min_{c≠A} s_j [Φ⁻¹(τ_j) − Φ⁻¹(p̄_j(c))]` (Theorem C). Stages before k get as few of the
    n votes as they should need, stages after it none.

    `MedianSelector`: with entry distances D̂_j (no x' closer than D̂_j has level s_j) from n_select
    samples of h at alpha_select, and class radii R̂_j at α − alpha_select,
    R = min_j max(D̂_j, R̂_j) over every level of the grid (Theorem A), for all attacks on f and h
    together. Levels are visited by increasing D̂_j while they can still matter.

    For these, P(R exceeds the true radius) ≤ α per image, whatever the attacker does.

    Args:
        g: The smoothed classifier.
        x: Images (B,C,H,W) in [0,1].
        n: Votes at the level that decides.
        n0: Selection draws.
        alpha: Maximum probability, per image, that the radius is too large.
        method: "conditional" gives Cohen's certificate at the chosen σ, true while the attacker
            does not move σ. The only one there is for an unprotected selector.
        n_select: Samples of h.
        alpha_select: The part of α for the bounds on h.
        band: Cover the deployed `predict`, whose median is empirical; False speaks of the ideal
            median only.
        runner_up: Bound the runner-up too, which helps with many classes; choose before looking.
        seed: None takes fresh entropy.
        ids: Names of the images' noise streams; 0, 1, … by default.
        batch_size: Noisy images per forward pass; changes no draw.
        progress: Show a bar, image by image.

    Returns:
        One `Certificate` per image.

    References:
        Cohen, Rosenfeld, Kolter: Certified Adversarial Robustness via Randomized Smoothing, 2019.
    """
    if progress:
        return Certificates(image_by_image(certify, locals()))
    check_method(method)
    kind, ledger, sampler = begin(
        g, x, method, alpha, alpha_select, band, seed, ids, batch_size, runner_up=runner_up
    )
    _check_draws(ledger, n, n0, n_select)
    if isinstance(g.selector, CascadeSelector):
        return _certify_cascade(sampler, g.selector.stages, ledger, n0, n)
    return _certify_levels(kind, ledger, sampler, n0, n, n_select)


def check_method(method: str) -> None:
    """`certify`, `certify_at` and `certify_until` know two methods."""
    require(
        method in ("sound", "conditional"),
        f"method must be 'sound' or 'conditional', not {method!r}; "
        "the paper's certificate is certify_as_paper",
    )


def begin(
    g: SmoothedClassifier,
    x: Tensor,
    method: Literal["sound", "conditional", "paper"],
    alpha: float,
    alpha_select: float,
    band: bool,
    seed: int | None,
    ids: Ids,
    batch_size: int | None,
    *,
    runner_up: bool = False,
    anytime: bool = False,
) -> tuple[Method, Ledger, Sampler]:
    """Which certificate it is, how its α is divided, and where it draws from."""
    check_smoothed(g, x)
    kind = certificate_method(g.selector, method)
    deployed = g.selector.n if band and isinstance(g.selector, MedianSelector) else 0
    ledger = Ledger.of(kind, alpha, alpha_select, deployed, runner_up, anytime)
    if isinstance(g.selector, MedianSelector) and ledger.n_deploy:
        g.selector.covered = (ledger.n_deploy, ledger.alpha_deploy)
    return kind, ledger, Sampler(g, x, g.noise(len(x), seed, ids), batch_size)


def certificate_method(
    selector: Selector, method: Literal["sound", "conditional", "paper"]
) -> Method:
    """The certificate to give; refuses what does not exist, and says why."""
    if isinstance(selector, CascadeSelector):
        require(
            method == "sound",
            f"the certificate of a cascade is sound and there is no {method} one; leave method out",
        )
        return "cascade"
    if isinstance(selector, FixedSelector):
        require(
            method != "paper", "a fixed noise level has no selector to attack; leave method out"
        )
        return "fixed"
    if method == "conditional":
        return "conditional"
    require(
        isinstance(selector, MedianSelector),
        "an attacker who perturbs the image also moves an unprotected selector's noise level, "
        f"so no {method} certificate exists; wrap the selector in MedianSelector, or ask for "
        "method='conditional', which assumes that the selector is not attacked",
    )
    require(
        method == "paper" or (isinstance(selector, MedianSelector) and selector.grid is not None),
        "the sound certificate looks at every level the selector can choose, so it needs a grid: "
        "give clip=(0.12, 0.5) and levels=8, or what varsmooth tune finds for the model",
    )
    return method


def _check_draws(ledger: Ledger, n: int, n0: int, n_select: int) -> None:
    check_counts(n=n, n0=n0, n_select=n_select)
    a = ledger.alpha_class / 2 if ledger.runner_up else ledger.alpha_class
    fewest = bounds.fewest_votes_to_certify(a)
    require(
        n >= fewest,
        f"at alpha={ledger.alpha:g} even n={n} unanimous votes certify nothing; use n ≥ {fewest}",
    )


def _certify_cascade(
    sampler: Sampler, stages: Stages, ledger: Ledger, n0: int, n: int
) -> Certificates:
    """Theorem C: selection draws fix class, stage and votes per stage; fresh ones are counted."""
    plans, drawn = cascade_plans(sampler, stages, ledger.alpha_class, n0, n)
    votes: list[list[LevelVotes]] = [[] for _ in plans]
    for stage, level in enumerate(stages.levels):
        for count in sorted({p.votes[stage] for p in plans if stage <= p.stage}):
            rows = [i for i, p in enumerate(plans) if stage <= p.stage and p.votes[stage] == count]
            at = {i: (level, plans[i].candidate) for i in rows}
            for i, counted in sampler.votes(at, count).items():
                votes[i].append(counted)
    sigma = [stages.levels[plan.stage] for plan in plans]
    samples = [first + sum(v.n for v in row) for first, row in zip(drawn, votes, strict=True)]
    return sampler.certificates("cascade", ledger, votes, sigma, samples, stages=stages)


def cascade_plans(
    sampler: Sampler, stages: Stages, a: float, n0: int, n: int
) -> tuple[list[Plan], list[int]]:
    """One plan per image from n0 draws at every stage that may matter, and the draws it took."""
    seen: list[list[list[int]]] = [[] for _ in sampler.everyone]
    rows = list(sampler.everyone)
    for stage, level in enumerate(stages.levels):
        votes = sampler.votes(dict.fromkeys(rows, (level, 0)), n0, purpose="class-selection")
        for i, counted in votes.items():
            seen[i].append(list(counted.counts))
        if stage + 1 < len(stages) and rows:
            improvable = can_improve(stages, np.array([seen[i] for i in rows]), n0, n, a)
            rows = [i for i, more in zip(rows, improvable, strict=True) if more]
        if not rows:
            break
    plans = [make_plan(stages, np.array(counts), n0, n, a) for counts in seen]
    return plans, [n0 * len(counts) for counts in seen]


@dataclass(frozen=True)
class Selection:
    """What the selection draws fix, image by image, before any vote is counted.

    `visits` are (D̂_j, s_j) of every level that may matter, by increasing D̂_j; (0, σ) alone where
    there is no selector to bound.
    """

    sigma: list[float]
    candidates: list[int]
    visits: list[list[tuple[float, float]]]
    selector: Sequence[SelectorEvidence] | None = None


def select(kind: Method, ledger: Ledger, sampler: Sampler, n0: int, n_select: int) -> Selection:
    """Level, class and levels to visit of every image."""
    sigma = sampler.nominal_levels(n0) if kind == "sound" else sampler.chosen_levels()
    candidates = sampler.candidates(sampler.everyone, sigma, n0)
    if kind != "sound":
        return Selection(sigma, candidates, [[(0.0, level)] for level in sigma])
    selector = sampler.selector_evidence(n_select)
    visits = [evidence.levels_by_distance(ledger) for evidence in selector]
    return Selection(sigma, candidates, visits, selector)


def _certify_levels(
    kind: Method, ledger: Ledger, sampler: Sampler, n0: int, n: int, n_select: int
) -> Certificates:
    """Votes at every level that can matter: by increasing D̂_j, until D̂_j ≥ the minimum."""
    chosen = select(kind, ledger, sampler, n0, n_select)
    votes: list[list[LevelVotes]] = [[] for _ in chosen.sigma]
    radius = [math.inf for _ in chosen.sigma]
    for visit in zip(*chosen.visits, strict=True):  # one (D̂_j, s_j) of every image
        rows = [i for i, (distance, _) in enumerate(visit) if distance < radius[i]]
        if not rows:
            break
        at = {i: (visit[i][1], chosen.candidates[i]) for i in rows}
        for i, level in sampler.votes(at, n).items():
            votes[i].append(level)
            radius[i] = min(radius[i], max(visit[i][0], level.radius(ledger)))
    samples = [n0 + n * len(row) for row in votes]
    return sampler.certificates(kind, ledger, votes, chosen.sigma, samples, chosen.selector)


def certify_as_paper(
    g: SmoothedClassifier,
    x: Tensor,
    *,
    distance: float,
    every_index: bool = False,
    n: int = N,
    n0: int = N0,
    alpha: float = ALPHA,
    n_select: int = N_SELECT,
    alpha_select: float = ALPHA_SELECT,
    runner_up: bool = False,
    seed: int | None = None,
    ids: Ids = None,
    batch_size: int | None = None,
) -> Certificates:
    """The paper's certificate of a median-protected selector (Experiment A), for comparison.

    The worst radius over the selector's lower bound, median and upper bound at `distance` D, each
    level with its own top class and votes, capped at D. It skips levels, so it is `heuristic`.
    Arguments not listed are those of `certify`.

    Args:
        g: The smoothed classifier, with a `MedianSelector`.
        x: Images (B,C,H,W) in [0,1].
        distance: D, the attack budget that the bounds on the selector hold for.
        every_index: Look at every sampled level between the bounds.
        n: Votes at each level.
        n0: Selection draws at each level.
        alpha: Failure probability at each level.
        alpha_select: Failure probability of the bounds on h, besides alpha.

    Returns:
        One `Certificate` per image.
    """
    require(0 <= distance < math.inf, f"distance must be ≥ 0, not {distance}")
    kind, ledger, sampler = begin(
        g, x, "paper", alpha, alpha_select, False, seed, ids, batch_size, runner_up=runner_up
    )
    _check_draws(ledger, n, n0, n_select)
    selector = sampler.selector_evidence(n_select, distance)
    plans = [evidence.levels_between(ledger, every_index) for evidence in selector]
    votes: list[list[LevelVotes]] = [[] for _ in plans]
    for visit in range(max(len(plan) for plan in plans)):
        rows = [i for i in sampler.everyone if visit < len(plans[i])]
        levels = [plans[i][visit] for i in rows]
        asked = zip(levels, sampler.candidates(rows, levels, n0), strict=True)
        for i, level in sampler.votes(dict(zip(rows, asked, strict=True)), n).items():
            votes[i].append(level)
    sigma = [evidence.median_level for evidence in selector]
    samples = [(n0 + n) * len(plan) for plan in plans]
    return sampler.certificates(kind, ledger, votes, sigma, samples, selector)
