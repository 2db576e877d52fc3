"""predict and certify: image → level → votes → bound → certificate."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from varsmooth import bounds
from varsmooth.certificates import (
    ABSTAIN,
    Certificate,
    Certificates,
    Ledger,
    LevelVotes,
    Method,
    Prediction,
    Predictions,
    SelectorEvidence,
)
from varsmooth.errors import require
from varsmooth.sampling import Gathering
from varsmooth.selectors import FixedSelector, MedianSelector
from varsmooth.smoothing import SmoothedClassifier, evaluation_mode


def predict(
    g: SmoothedClassifier,
    x: Tensor,
    n: int = 1000,
    alpha: float | None = 1e-3,
    *,
    alpha_select: float = 1e-5,
    seed: int | None = None,
    ids: Sequence[int] | Tensor | None = None,
    batch_size: int | None = None,
) -> Predictions:
    """The class that most of n noisy votes name, or ABSTAIN where they do not settle it.

    x: images (B,C,H,W) in [0,1]. The top count is tested against top + runner-up, two-sided:
    with probability ≥ 1 − α the answer is g's most likely class or ABSTAIN. With a
    `MedianSelector` the test gets α − alpha_select; alpha_select is for the deployed median, so
    that inside a `sound` radius a wrong class is answered with probability ≤ α per query.
    alpha=None: plain majority vote, never abstaining, no guarantee.
    seed=None takes fresh entropy. A seed that an attacker can know voids the guarantee.
    """
    g.check(x)
    dual = isinstance(g.selector, MedianSelector)
    ledger = None
    if alpha is not None:
        alpha_class = _split(alpha, alpha_select) if dual else _probability("alpha", alpha)
        fewest = bounds.fewest_votes_to_predict(alpha_class)
        require(n >= fewest, f"at alpha={alpha:g} even {n} equal votes abstain; use n ≥ {fewest}")
        ledger = Ledger(alpha, alpha_class)
        if isinstance(g.selector, MedianSelector):
            ledger = replace(ledger, alpha_deploy=alpha_select, n_deploy=g.selector.n)
    noise = g.noise(len(x), seed, ids)
    with evaluation_mode(g), torch.no_grad():
        sigma = g.selector(x, noise, batch_size)
    counts = g.votes(x, n, sigma=sigma, noise=noise, purpose="predict", batch_size=batch_size)
    return Predictions(
        tuple(
            Prediction(
                prediction=_majority(row, None if ledger is None else ledger.alpha_class),
                sigma=float(level),
                counts=tuple(row),
                ledger=ledger,
                id=noise.ids[i],
                seed=noise.seed,
            )
            for i, (row, level) in enumerate(zip(counts.tolist(), sigma.tolist(), strict=True))
        )
    )


def _majority(counts: list[int], alpha: float | None) -> int:
    order = sorted(range(len(counts)), key=lambda c: -counts[c])
    top = counts[order[0]]
    runner_up = counts[order[1]] if len(counts) > 1 else 0
    if alpha is not None and bounds.majority_p_value(top, runner_up) > alpha:
        return ABSTAIN
    return order[0]


def certify(
    g: SmoothedClassifier,
    x: Tensor,
    n0: int = 100,
    n: int = 1000,
    alpha: float = 1e-3,
    n_select: int = 1001,
    alpha_select: float = 1e-5,
    method: Literal["sound", "paper", "conditional"] = "sound",
    distance: float | None = None,
    *,
    every_index: bool = False,
    band: bool = True,
    runner_up: bool = False,
    seed: int | None = None,
    ids: Sequence[int] | Tensor | None = None,
    batch_size: int | None = None,
) -> Certificates:
    """A class and an ℓ2 radius for every image of x (B,C,H,W), with the evidence.

    Fixed σ (Cohen et al.): ĉ from n0 votes, p̲ = CP⁻ of its count in n fresh votes at α, and
    R = σ Φ⁻¹(p̲). `sound`: P(R exceeds the true radius) ≤ α per image.

    `MedianSelector`, method="sound": with entry distances D̂_j (no x' nearer than D̂_j has level
    s_j) from n_select samples of h at alpha_select, and class radii R̂_j at α − alpha_select,
    R = min_j max(D̂_j, R̂_j) over every level of the grid, for all attacks on f and h together.
    band=True covers the deployed `predict`, whose median is empirical; band=False speaks of the
    ideal median only. Levels are visited by increasing D̂_j while they can still matter.

    method="paper": the paper's value at `distance` D: the worst radius over the selector's lower
    bound, median and upper bound (every_index=True: over every sampled level between), capped
    at D. It skips levels, so it is `heuristic`.

    method="conditional": Cohen's certificate at the chosen σ, true while the attacker does not
    move σ. The only one there is for an unprotected selector.

    runner_up=True bounds the runner-up too, which helps with many classes; choose before looking.
    """
    g.check(x)
    kind = certificate_kind(g, method, distance, every_index)
    ledger = open_ledger(g, kind, alpha, alpha_select, band, runner_up)
    half = ledger.alpha_class / 2 if runner_up else ledger.alpha_class
    fewest = bounds.fewest_votes_to_certify(half)
    require(n >= fewest, f"at alpha={alpha:g} no vote of n={n} can certify; use n ≥ {fewest}")
    require(n0 >= 1, f"n0 must be at least 1, not {n0}")
    require(n_select >= 1, f"n_select must be at least 1, not {n_select}")
    gather = Gathering(g, x, g.noise(len(x), seed, ids), batch_size)
    if kind == "sound":
        return _certify_sound(gather, ledger, n0, n, n_select)
    if kind == "paper":
        assert distance is not None
        return _certify_paper(gather, ledger, n0, n, n_select, distance, every_index)
    return _certify_level(gather, ledger, n0, n, kind)


def _certify_level(
    gather: Gathering, ledger: Ledger, n0: int, n: int, kind: Method
) -> Certificates:
    """Cohen's certificate at the level the selector chose."""
    sigma = gather.chosen_levels()
    votes = gather.votes(gather.everyone, sigma, gather.candidates(gather.everyone, sigma, n0), n)
    nothing = [None for _ in votes]
    return _derive(kind, ledger, [[level] for level in votes], nothing, gather.facts(sigma))


def _certify_sound(
    gather: Gathering, ledger: Ledger, n0: int, n: int, n_select: int
) -> Certificates:
    """Theorem A on every level that can matter: by increasing D̂_j, until D̂_j ≥ the minimum."""
    sigma = gather.nominal_levels(n0)
    candidates = gather.candidates(gather.everyone, sigma, n0)
    selector = gather.selector_evidence(n_select)
    distances = [evidence.entry_distances(ledger) for evidence in selector]
    orders = [np.argsort(d, kind="stable") for d in distances]
    votes: list[list[LevelVotes]] = [[] for _ in selector]
    radius = [np.inf for _ in selector]
    for visit in range(len(distances[0])):
        rows = [i for i in gather.everyone if distances[i][orders[i][visit]] < radius[i]]
        if not rows:
            break
        levels = [gather.levels[orders[i][visit]] for i in rows]
        found = gather.votes(rows, levels, [candidates[i] for i in rows], n)
        for i, level in zip(rows, found, strict=True):
            votes[i].append(level)
            entry = float(distances[i][orders[i][visit]])
            radius[i] = min(radius[i], max(entry, level.radius(ledger)))
    return _derive("sound", ledger, votes, selector, gather.facts(sigma))


def _certify_paper(
    gather: Gathering,
    ledger: Ledger,
    n0: int,
    n: int,
    n_select: int,
    distance: float,
    every_index: bool,
) -> Certificates:
    """The paper's Experiment A: each level looked at has its own top class and its own votes."""
    selector = gather.selector_evidence(n_select, distance)
    plans = [gather.levels_between(evidence, ledger, every_index) for evidence in selector]
    votes: list[list[LevelVotes]] = [[] for _ in plans]
    for visit in range(max(len(plan) for plan in plans)):
        rows = [i for i in gather.everyone if visit < len(plans[i])]
        levels = [plans[i][visit] for i in rows]
        found = gather.votes(rows, levels, gather.candidates(rows, levels, n0), n)
        for i, level in zip(rows, found, strict=True):
            votes[i].append(level)
    sigma = [gather.median_level(evidence) for evidence in selector]
    return _derive("paper", ledger, votes, selector, gather.facts(sigma))


def _derive(
    kind: Method,
    ledger: Ledger,
    votes: Sequence[Sequence[LevelVotes]],
    selector: Sequence[SelectorEvidence | None],
    facts: Sequence[dict[str, Any]],
) -> Certificates:
    """The certificates that follow from each image's evidence."""
    return Certificates(
        tuple(
            Certificate.derive(kind, ledger, seen, evidence, **fact)
            for seen, evidence, fact in zip(votes, selector, facts, strict=True)
        )
    )


def certificate_kind(
    g: SmoothedClassifier, method: str, distance: float | None, every_index: bool
) -> Method:
    """Which certificate is asked for; refuses what cannot be given, and says why."""
    selector = g.selector
    require(
        method in ("sound", "paper", "conditional"),
        f"method must be 'sound', 'paper' or 'conditional', not {method!r}",
    )
    require(
        (distance is not None) == (method == "paper"),
        "method='paper' needs distance=D, the attack budget it is computed for"
        if method == "paper"
        else f"distance belongs to method='paper'; method={method!r} needs none",
    )
    require(distance is None or 0 <= distance < np.inf, f"distance must be ≥ 0, not {distance}")
    require(method == "paper" or not every_index, "every_index belongs to method='paper'")
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
        "MedianSelector(..., clip=(low, high), levels=8)",
    )
    return "sound" if method == "sound" else "paper"


def open_ledger(
    g: SmoothedClassifier,
    kind: Method,
    alpha: float,
    alpha_select: float,
    band: bool,
    runner_up: bool = False,
) -> Ledger:
    """How α is divided, before anything is drawn."""
    ledger = Ledger(_probability("alpha", alpha), alpha, runner_up=runner_up)
    if kind == "sound":
        ledger = replace(ledger, alpha_class=_split(alpha, alpha_select), alpha_select=alpha_select)
        if band and isinstance(g.selector, MedianSelector):
            ledger = replace(ledger, alpha_deploy=alpha_select, n_deploy=g.selector.n)
    elif kind == "paper":
        ledger = replace(ledger, alpha_select=_probability("alpha_select", alpha_select))
    return ledger


def _probability(name: str, alpha: float) -> float:
    require(0 < alpha < 1, f"{name} must lie between 0 and 1, not {alpha}")
    return alpha


def _split(alpha: float, alpha_select: float) -> float:
    """What is left of α for the votes."""
    _probability("alpha", alpha)
    _probability("alpha_select", alpha_select)
    require(
        alpha_select < alpha,
        f"alpha_select={alpha_select:g} is part of alpha={alpha:g} and must be smaller",
    )
    return alpha - alpha_select
