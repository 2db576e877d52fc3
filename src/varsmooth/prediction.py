"""predict: the deployed answer of a smoothed classifier, or ABSTAIN."""

import warnings
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from varsmooth import bounds
from varsmooth.cascade import CascadeSelector, Stages
from varsmooth.certificates import Prediction, Predictions
from varsmooth.defaults import ABSTAIN, ALPHA, ALPHA_SELECT, N
from varsmooth.errors import check_counts, require
from varsmooth.evidence import Ledger, LevelVotes
from varsmooth.sampling import Ids, Sampler, image_by_image
from varsmooth.selectors import MedianSelector
from varsmooth.smoothing import SmoothedClassifier, check_smoothed


def predict(
    g: SmoothedClassifier,
    x: Tensor,
    *,
    n: int = N,
    alpha: float | None = ALPHA,
    alpha_select: float = ALPHA_SELECT,
    seed: int | None = None,
    ids: Ids = None,
    batch_size: int | None = None,
    progress: bool = False,
) -> Predictions:
    """The class that most of n noisy votes name, or ABSTAIN without a significant majority.

    The top count is tested against top + runner-up, two-sided: with probability ≥ 1 − α the
    answer is g's most likely class or ABSTAIN. With a `MedianSelector` the test gets
    α − alpha_select; alpha_select is for the deployed median, so that inside a `sound` radius a
    wrong class is answered with probability ≤ α per query, if alpha_select is at least that of
    the certificate: `Certificate.covers` checks it, and a query that the last radii of this
    selector do not cover is a warning.

    With a `CascadeSelector` of L stages each stage gets n votes and α' = α/(2L+1). Its top class
    is the answer if CP⁻ reaches τ_j. Otherwise, if CP⁺ of no class reaches τ_j, the next stage
    votes; if CP⁺ of one class does, the next stage votes and only this class may be answered; if
    several do, the cascade abstains.

    Args:
        g: The smoothed classifier.
        x: Images (B,C,H,W) in [0,1].
        n: Votes, at each stage of a cascade.
        alpha: Probability of a wrong answer; None is the plain rule on the frequencies of the
            votes, without a guarantee. A majority vote then never abstains, and ends as soon as
            its answer is that of all n votes, but for a probability of 10⁻⁶: `counts` are the
            votes that were cast.
        alpha_select: The part of α for the deployed median.
        seed: None takes fresh entropy. A seed that an attacker can know voids the guarantee.
        ids: Names of the images' noise streams; 0, 1, … by default.
        batch_size: Noisy images per forward pass; changes no draw.
        progress: Show a bar, image by image.

    Returns:
        One `Prediction` per image.
    """
    if progress:
        return Predictions(image_by_image(predict, locals()))
    check_smoothed(g, x)
    check_counts(n=n)
    selector, ledger = g.selector, None
    if alpha is not None:
        ledger = Ledger.of("fixed", alpha)
        if isinstance(selector, MedianSelector):  # a query spends on its median, not on bounds of h
            ledger = replace(Ledger.of("sound", alpha, alpha_select, selector.n), alpha_select=0.0)
            _warn_if_uncovered(selector, ledger)
    noise = g.noise(len(x), seed, ids)
    sampler = Sampler(g, x, noise, batch_size)
    if isinstance(selector, CascadeSelector):
        found = _by_stages(sampler, selector.stages, n, ledger)
    else:
        found = _by_majority(sampler, n, ledger)
    answers = [
        Prediction(answer, level, tuple(counts), ledger, id, noise.seed, samples)
        for id, (answer, level, counts, samples) in zip(noise.ids, found, strict=True)
    ]
    return Predictions(tuple(answers))


def _warn_if_uncovered(selector: MedianSelector, ledger: Ledger) -> None:
    n, share = selector.covered or (0, 0.0)
    if ledger.n_deploy < n or ledger.alpha_deploy < share:
        warnings.warn(
            f"the radii that this selector was last certified with cover queries with n={n} draws "
            f"of the median and alpha_select={share:g}, not n={ledger.n_deploy} and "
            f"alpha_select={ledger.alpha_deploy:g}: inside them this query may err more often "
            f"than alpha={ledger.alpha:g}; predict with alpha_select={share:g}, or certify with "
            "the alpha_select of the queries",
            stacklevel=3,
        )


Found = tuple[int, float, Sequence[int], int]
"""The class or ABSTAIN, the level, the votes there, and the noisy images shown to f in all."""


def _by_majority(sampler: Sampler, n: int, ledger: Ledger | None) -> list[Found]:
    """The class with the most votes at the level of the selector, if it is significant."""
    if ledger is not None:
        fewest = bounds.fewest_votes_to_predict(ledger.alpha_class)
        require(
            n >= fewest,
            f"at alpha={ledger.alpha:g} even {n} unanimous votes abstain; use n ≥ {fewest}",
        )
    levels = sampler.chosen_levels()
    if ledger is None:
        votes = _until_decided(sampler, levels, n)
    else:
        votes = sampler.counts(sampler.everyone, levels, n, "predict")
    found: list[Found] = []
    for level, counts in zip(levels, votes.tolist(), strict=True):
        top, runner_up = sorted([*counts, 0], reverse=True)[:2]
        sure = ledger is None or bounds.majority_p_value(top, runner_up) <= ledger.alpha_class
        found.append((counts.index(top) if sure else ABSTAIN, level, counts, sum(counts)))
    return found


LUCK = 1e-6
"""Probability that a plain majority that stopped early is not that of all n votes."""


def _until_decided(sampler: Sampler, levels: Sequence[float], n: int) -> Tensor:
    """The first of n votes of each image, until the majority of all n is known: (B, classes).

    It is known if the rest cannot change it, or if that would take luck: suppose that the majority
    of all n is for c. Their order is random, so that among the votes for c and another class those
    for the other one lead by chance, P ≤ P(Bin(a + b, ½) ≥ a). LUCK is shared among the other
    classes and the looks.
    """
    looks, waiting, done, total = _looks(n), list(sampler.everyone), 0, torch.empty(0)
    for end in looks:
        cast = sampler.counts(waiting, [levels[i] for i in waiting], end, "predict", done)
        if done == 0:
            total = torch.zeros_like(cast)
        total[waiting] += cast
        top, runner_up = total[waiting].topk(2, dim=1).values.T.cpu().numpy()
        luck = bounds.lead_probability(top, runner_up)
        decided = luck <= LUCK / (len(looks) * (total.shape[1] - 1))
        decided |= top - runner_up > n - end
        waiting, done = [i for i, known in zip(waiting, decided, strict=True) if not known], end
        if not waiting:
            break
    return total


def _looks(n: int) -> list[int]:
    """After how many votes a majority of n is looked at: 32, 48, 64, 96, 128, 192, … and n.

    >>> _looks(200)
    [32, 48, 64, 96, 128, 192, 200]
    """
    ends = sorted(32 * 2**k + 16 * 2**k * half for k in range(n.bit_length()) for half in (0, 1))
    return [*(end for end in ends if end < n), n]


def _by_stages(sampler: Sampler, stages: Stages, n: int, ledger: Ledger | None) -> list[Found]:
    """Stage by stage: answer, pass on to the next one, or abstain.

    Inside R, let stage k answer A: p_k(A) ≥ τ_k, and no other class reaches its threshold before.
    Another class is answered up to stage k only if a CP⁻ errs, and k leaves A out only if its CP⁺
    errs. If k leaves A open alone, later stages answer A or nothing; if with others, g abstains.
    """
    a = None if ledger is None else ledger.alpha_class / (2 * len(stages) + 1)
    if a is not None:
        require(
            bool(bounds.clopper_pearson_lower(n, n, a) >= max(stages.thresholds)),
            f"even {n} unanimous votes do not reach the threshold {max(stages.thresholds):g} of "
            "this cascade at such a small alpha; raise n",
        )
    found: dict[int, Found] = {}
    waiting = list(sampler.everyone)
    left: dict[int, set[int]] = {i: set() for i in waiting}  # the class that a stage left open
    for j, (level, tau) in enumerate(zip(stages.levels, stages.thresholds, strict=True), start=1):
        at = dict.fromkeys(waiting, (level, 0))
        votes = sampler.votes(at, n, purpose="predict") if waiting else {}
        for i, stage in votes.items():
            answer, possible = _stage_answer(stage, tau, a)
            left[i] |= possible
            one = len(left[i]) < 2
            found[i] = (answer if one else ABSTAIN, level, stage.counts, j * n)
            if answer != ABSTAIN or not one:
                waiting.remove(i)
    return [found[i] for i in sampler.everyone]


def _stage_answer(votes: LevelVotes, tau: float, a: float | None) -> tuple[int, set[int]]:
    """The class that a stage answers or ABSTAIN, and the classes that may reach its threshold."""
    count = max(votes.counts)
    top = votes.counts.index(count)
    if a is None:
        return (top, {top}) if count >= tau * votes.n else (ABSTAIN, set())
    if bounds.clopper_pearson_lower(count, votes.n, a) >= tau:
        return top, {top}
    upper = bounds.clopper_pearson_upper(np.array(votes.counts), votes.n, a)
    return ABSTAIN, set(np.flatnonzero(upper >= tau).tolist())
