"""certify: image → level → votes → bound → certificate."""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from torch import Tensor

from varsmooth import bounds
from varsmooth.cascade import CascadeSelector, Plan, Stages, can_improve, make_plan
from varsmooth.certificates import Certificate, Certificates, Method
from varsmooth.defaults import ALPHA, ALPHA_SELECT, N0, N_SELECT, N
from varsmooth.errors import require
from varsmooth.evidence import Ledger, LevelVotes, SelectorEvidence
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

    `CascadeSelector`: the class A and the stage k* from n0 votes at each stage, then fresh votes
    for R = min(Ĥ_k*, min_{j<k*} X̂_j), with Ĥ_k = s_k [Φ⁻¹(p̲_k(A)) − Φ⁻¹(τ_k)] and
    X̂_j = min_{c≠A} s_j [Φ⁻¹(τ_j) − Φ⁻¹(p̄_j(c))] (Theorem C). Stages before k* get as few of the
    n votes as they should need, stages after it none.

    `MedianSelector`: with entry distances D̂_j (no x' nearer than D̂_j has level s_j) from n_select
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
    check_smoothed(g, x)
    check_method(method)
    kind = certificate_method(g.selector, method)
    deployed = deployed_draws(g.selector, band)
    ledger = certificate_ledger(kind, alpha, alpha_select, deployed, runner_up)
    _check_draws(ledger, n, n0, n_select)
    sampler = Sampler(g, x, g.noise(len(x), seed, ids), batch_size)
    if isinstance(g.selector, CascadeSelector):
        return _certify_cascade(sampler, g.selector.stages, ledger, n0, n)
    if kind == "sound":
        return _certify_dual(sampler, ledger, n0, n, n_select)
    sigma = sampler.chosen_levels()
    everyone = sampler.everyone
    votes = sampler.votes(everyone, sigma, sampler.candidates(everyone, sigma, n0), n)
    return _derive(kind, sampler, ledger, [[level] for level in votes], sigma, n0)


def _check_draws(ledger: Ledger, n: int, n0: int, n_select: int) -> None:
    a = ledger.alpha_class / 2 if ledger.runner_up else ledger.alpha_class
    fewest = bounds.fewest_votes_to_certify(a)
    require(
        n >= fewest, f"at alpha={ledger.alpha:g} no vote of n={n} can certify; use n ≥ {fewest}"
    )
    require(n0 >= 1, f"n0 must be at least 1, not {n0}")
    require(n_select >= 1, f"n_select must be at least 1, not {n_select}")


def _certify_cascade(
    sampler: Sampler, stages: Stages, ledger: Ledger, n0: int, n: int
) -> Certificates:
    """Theorem C: selection draws fix class, stage and votes per stage; fresh ones are counted."""
    plans, drawn = cascade_plans(sampler, stages, ledger.alpha_class, n0, n)
    votes: list[list[LevelVotes]] = [[] for _ in plans]
    for stage, level in enumerate(stages.levels):
        for count in sorted({p.votes[stage] for p in plans if stage <= p.stage}):
            rows = [i for i, p in enumerate(plans) if stage <= p.stage and p.votes[stage] == count]
            classes = [plans[i].candidate for i in rows]
            found = sampler.votes(rows, [level] * len(rows), classes, count)
            for i, counted in zip(rows, found, strict=True):
                votes[i].append(counted)
    sigma = [stages.levels[plan.stage] for plan in plans]
    return _derive("cascade", sampler, ledger, votes, sigma, drawn, stages=stages)


def cascade_plans(
    sampler: Sampler, stages: Stages, a: float, n0: int, n: int
) -> tuple[list[Plan], list[int]]:
    """One plan per image from n0 draws at every stage that may matter, and the draws it took."""
    seen: list[list[list[int]]] = [[] for _ in sampler.everyone]
    rows = list(sampler.everyone)
    for stage, level in enumerate(stages.levels):
        levels, nobody = [level] * len(rows), [0] * len(rows)
        votes = sampler.votes(rows, levels, nobody, n0, purpose="class-selection")
        for i, counted in zip(rows, votes, strict=True):
            seen[i].append(list(counted.counts))
        if stage + 1 < len(stages) and rows:
            improvable = can_improve(stages, np.array([seen[i] for i in rows]), n0, n, a)
            rows = [i for i, more in zip(rows, improvable, strict=True) if more]
        if not rows:
            break
    plans = [make_plan(stages, np.array(counts), n0, n, a) for counts in seen]
    return plans, [n0 * len(counts) for counts in seen]


def _certify_dual(sampler: Sampler, ledger: Ledger, n0: int, n: int, n_select: int) -> Certificates:
    """Theorem A on every level that can matter: by increasing D̂_j, until D̂_j ≥ the minimum."""
    sigma = sampler.nominal_levels(n0)
    candidates = sampler.candidates(sampler.everyone, sigma, n0)
    selector = sampler.selector_evidence(n_select)
    visits = [levels_by_distance(evidence, ledger) for evidence in selector]
    votes: list[list[LevelVotes]] = [[] for _ in selector]
    radius = [math.inf for _ in selector]
    for visit in range(len(visits[0])):
        rows = [i for i in sampler.everyone if visits[i][visit][0] < radius[i]]
        if not rows:
            break
        levels = [visits[i][visit][1] for i in rows]
        found = sampler.votes(rows, levels, [candidates[i] for i in rows], n)
        for i, level in zip(rows, found, strict=True):
            votes[i].append(level)
            radius[i] = min(radius[i], max(visits[i][visit][0], level.radius(ledger)))
    return _derive("sound", sampler, ledger, votes, sigma, n0, selector)


def levels_by_distance(evidence: SelectorEvidence, ledger: Ledger) -> list[tuple[float, float]]:
    """(D̂_j, s_j) of every grid level, by increasing D̂_j."""
    assert evidence.levels is not None
    distances = evidence.entry_distances(ledger)
    order = np.argsort(distances, kind="stable")
    return [(float(distances[j]), evidence.levels[j]) for j in order]


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

    Args:
        g: The smoothed classifier, with a `MedianSelector`.
        x: Images (B,C,H,W) in [0,1].
        distance: D, the attack budget that the bounds on the selector hold for.
        every_index: Look at every sampled level between the bounds.
        n: Votes at each level.
        n0: Selection draws at each level.
        alpha: Failure probability at each level.
        n_select: Samples of h.
        alpha_select: Failure probability of the bounds on h.
        runner_up: Bound the runner-up too.
        seed: None takes fresh entropy.
        ids: Names of the images' noise streams; 0, 1, … by default.
        batch_size: Noisy images per forward pass; changes no draw.

    Returns:
        One `Certificate` per image.
    """
    check_smoothed(g, x)
    kind = certificate_method(g.selector, "paper")
    require(0 <= distance < math.inf, f"distance must be ≥ 0, not {distance}")
    ledger = certificate_ledger(kind, alpha, alpha_select, runner_up=runner_up)
    _check_draws(ledger, n, n0, n_select)
    sampler = Sampler(g, x, g.noise(len(x), seed, ids), batch_size)
    selector = sampler.selector_evidence(n_select, distance)
    plans = [evidence.levels_between(ledger, every_index) for evidence in selector]
    votes: list[list[LevelVotes]] = [[] for _ in plans]
    for visit in range(max(len(plan) for plan in plans)):
        rows = [i for i in sampler.everyone if visit < len(plans[i])]
        levels = [plans[i][visit] for i in rows]
        found = sampler.votes(rows, levels, sampler.candidates(rows, levels, n0), n)
        for i, level in zip(rows, found, strict=True):
            votes[i].append(level)
    sigma = [evidence.median_level for evidence in selector]
    drawn = [n0 * len(plan) for plan in plans]
    return _derive(kind, sampler, ledger, votes, sigma, drawn, selector)


def _derive(
    method: Method,
    sampler: Sampler,
    ledger: Ledger,
    votes: Sequence[Sequence[LevelVotes]],
    sigma: Sequence[float],
    drawn: int | Sequence[int],
    selector: Sequence[SelectorEvidence] | None = None,
    stages: Stages | None = None,
) -> Certificates:
    """The certificates that follow from each image's evidence; drawn: selection draws of f."""
    first = [drawn] * len(votes) if isinstance(drawn, int) else drawn
    facts = sampler.facts(sigma)
    return Certificates(
        tuple(
            Certificate.derive(
                method,
                ledger,
                votes[i],
                None if selector is None else selector[i],
                stages,
                samples=first[i] + sum(level.n for level in votes[i]),
                **facts[i],
            )
            for i in range(len(votes))
        )
    )


def check_method(method: str) -> None:
    """`certify` and `certify_at` know two methods."""
    require(
        method in ("sound", "conditional"),
        f"method must be 'sound' or 'conditional', not {method!r}; "
        "the paper's certificate is certify_as_paper",
    )


def certificate_method(
    selector: Selector, method: Literal["sound", "conditional", "paper"]
) -> Method:
    """The certificate to give; refuses what does not exist, and says why."""
    if isinstance(selector, CascadeSelector):
        require(
            method == "sound",
            f"a cascade has nothing to assume, so there is no {method} certificate; "
            "leave method out",
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
    if method == "paper":
        return "paper"
    require(
        isinstance(selector, MedianSelector) and selector.grid is not None,
        "the sound certificate looks at every level the selector can choose, so it needs a grid: "
        "MedianSelector(..., clip=(low, high), levels=8)",
    )
    return "sound"


def deployed_draws(selector: Selector, band: bool) -> int:
    """N_p, the draws of the deployed median that a certificate is to cover; 0: none."""
    return selector.n if band and isinstance(selector, MedianSelector) else 0


def certificate_ledger(
    method: Method,
    alpha: float,
    alpha_select: float,
    n_deploy: int = 0,
    runner_up: bool = False,
    anytime: bool = False,
) -> Ledger:
    """How α is divided, before anything is drawn."""
    if method == "paper":
        return Ledger.paper(alpha, alpha_select, runner_up)
    if method == "sound":
        return Ledger.dual(alpha, alpha_select, n_deploy, runner_up, anytime)
    require(
        method != "cascade" or not runner_up,
        "a cascade compares each class with its threshold, not with the runner-up; "
        "leave out runner_up",
    )
    return Ledger.fixed(alpha, runner_up, anytime)
