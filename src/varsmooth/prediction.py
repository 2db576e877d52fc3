"""predict: the deployed answer of a smoothed classifier, or ABSTAIN."""

from dataclasses import replace

import torch
from torch import Tensor

from varsmooth import bounds
from varsmooth.cascade import CascadeSelector, Stages
from varsmooth.certificates import ABSTAIN, Prediction, Predictions
from varsmooth.defaults import ALPHA, ALPHA_SELECT, N
from varsmooth.errors import require
from varsmooth.evidence import Ledger, LevelVotes
from varsmooth.sampling import Ids, Sampler, image_by_image
from varsmooth.selectors import MedianSelector
from varsmooth.smoothing import SmoothedClassifier, check_smoothed, evaluation_mode


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
    the certificate (`Certificate.covers` checks it).

    With a `CascadeSelector` of L stages each stage gets n votes and α' = α/(2L+1): it answers if
    CP⁻ of its top class reaches τ_j, passes on if CP⁺ stays below τ_j, and abstains otherwise.

    Args:
        g: The smoothed classifier.
        x: Images (B,C,H,W) in [0,1].
        n: Votes, at each stage of a cascade.
        alpha: Probability of a wrong answer; None is the plain rule on the frequencies of the
            votes, without a guarantee. A majority vote then never abstains.
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
    selector = g.selector
    ledger = None
    if alpha is not None:
        ledger = Ledger.fixed(alpha)
        if isinstance(selector, MedianSelector):  # a query spends on its median, not on bounds of h
            ledger = replace(Ledger.dual(alpha, alpha_select, selector.n), alpha_select=0.0)
    sampler = Sampler(g, x, g.noise(len(x), seed, ids), batch_size)
    if isinstance(selector, CascadeSelector):
        return _predict_cascade(sampler, selector.stages, n, ledger)
    a = None if ledger is None else ledger.alpha_class
    if a is not None:
        fewest = bounds.fewest_votes_to_predict(a)
        require(n >= fewest, f"at alpha={alpha:g} even {n} equal votes abstain; use n ≥ {fewest}")
    with evaluation_mode(g), torch.no_grad():
        sigma = selector(x, sampler.noise, batch_size)
    counts = g.votes(
        x, n, sigma=sigma, noise=sampler.noise, purpose="predict", batch_size=batch_size
    )
    return Predictions(
        tuple(
            _prediction(sampler, i, _majority(row, a), float(level), row, ledger)
            for i, (row, level) in enumerate(zip(counts.tolist(), sigma.tolist(), strict=True))
        )
    )


def _majority(counts: list[int], a: float | None) -> int:
    order = sorted(range(len(counts)), key=lambda c: -counts[c])
    top = counts[order[0]]
    runner_up = counts[order[1]] if len(counts) > 1 else 0
    if a is not None and bounds.majority_p_value(top, runner_up) > a:
        return ABSTAIN
    return order[0]


def _prediction(
    sampler: Sampler, i: int, answer: int, sigma: float, counts: list[int], ledger: Ledger | None
) -> Prediction:
    noise = sampler.noise
    return Prediction(answer, sigma, tuple(counts), ledger, noise.ids[i], noise.seed)


def _predict_cascade(
    sampler: Sampler, stages: Stages, n: int, ledger: Ledger | None
) -> Predictions:
    """Stage by stage: answer, pass on to the next one, or abstain."""
    a = None if ledger is None else ledger.alpha_class / (2 * len(stages) + 1)
    if a is not None:
        require(
            bool(bounds.clopper_pearson_lower(n, n, a) >= max(stages.thresholds)),
            f"even {n} equal votes do not reach the threshold {max(stages.thresholds):g} of this "
            "cascade at such a small alpha; raise n",
        )
    found: dict[int, Prediction] = {}
    waiting = list(sampler.everyone)
    for level, tau in zip(stages.levels, stages.thresholds, strict=True):
        if not waiting:
            break
        levels, nobody = [level] * len(waiting), [0] * len(waiting)
        votes = sampler.votes(waiting, levels, nobody, n, purpose="predict")
        for i, stage in zip(list(waiting), votes, strict=True):
            answer = _stage_answer(stage, tau, a)
            counts = list(stage.counts)
            found[i] = _prediction(
                sampler, i, ABSTAIN if answer is None else answer, level, counts, ledger
            )
            if answer is not None:
                waiting.remove(i)
    return Predictions(tuple(found[i] for i in sampler.everyone))


def _stage_answer(votes: LevelVotes, tau: float, a: float | None) -> int | None:
    """The class that a stage answers, ABSTAIN if its votes do not tell, None to pass on."""
    top = max(range(len(votes.counts)), key=lambda c: votes.counts[c])
    count = votes.counts[top]
    if a is None:
        return top if count >= tau * votes.n else None
    if bounds.clopper_pearson_lower(count, votes.n, a) >= tau:
        return top
    return None if bounds.clopper_pearson_upper(count, votes.n, a) < tau else ABSTAIN
