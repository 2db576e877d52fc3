"""What a researcher calls: certify, certify_at, certify_until, certify_as_paper and predict.

image → selector (which σ?) → noise → votes → bound → certificate
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from varsmooth import bounds
from varsmooth.batching import Images, over_batches
from varsmooth.certificates import (
    Certificate,
    Certificates,
    Decision,
    Decisions,
    Predictions,
)
from varsmooth.defaults import ABSTAIN, ALPHA, N, Options
from varsmooth.errors import check, check_counts, check_radius
from varsmooth.evidence import Ledger
from varsmooth.methods import Method, method_for, predicting_method
from varsmooth.methods.paper import PaperOptions
from varsmooth.probe import check_assumptions
from varsmooth.sampling import Sampler
from varsmooth.sequential import Voting, reach_radii, vote_until_close
from varsmooth.smoothing import SmoothedClassifier, check_smoothed, evaluation_mode

Ids = Sequence[int] | Tensor | None
"""Image ids, which key the noise (default 0, 1, …)."""

DEFAULT = Options()

NO_EFFECT = {
    "certify": ("n_max", "every_index", "undecided"),
    "certify_as_paper": ("method", "n_max", "undecided"),
    "certify_at": ("every_index", "progress"),
    "certify_until": ("every_index", "progress"),
}
"""Options that a call refuses; `predict` takes those of any certificate."""


@over_batches
def certify(
    g: SmoothedClassifier,
    x: Images,
    *,
    n: int = N,
    alpha: float = ALPHA,
    seed: int | None = None,
    ids: Ids = None,
    options: Options = DEFAULT,
) -> Certificates:
    """A class and an ℓ2 radius for every image, with the evidence.

    What is sampled and how the radius follows depends on the selector: `FixedSelector`
    (`varsmooth.methods.fixed`, Cohen's theorem), `CascadeSelector` (`methods.cascade`, Theorem C),
    `MedianSelector` with a grid (`methods.median`, Theorem A). For these, P(R exceeds the true
    radius) ≤ α per image, whatever the attacker does.

    Args:
        g: The smoothed classifier.
        x: Images (B,C,H,W) in [0,1], or a torch `Dataset` or `DataLoader` of such.
        n: Votes at the level that decides.
        alpha: Maximum probability, per image, that the radius is too large.
        seed: None takes fresh entropy.
        ids: Image ids, which key the noise (default 0, 1, …).
        options: The rest, as in `Options(n0=200, method="conditional")`.

    Returns:
        One `Certificate` per image.
    """
    sampler = _sampler("certify", g, x, seed, ids, options)
    return _certify(method_for(g.selector, options.method), sampler, n, alpha, options)


@over_batches
def certify_as_paper(
    g: SmoothedClassifier,
    x: Images,
    distance: float,
    *,
    n: int = N,
    alpha: float = ALPHA,
    seed: int | None = None,
    ids: Ids = None,
    options: Options = DEFAULT,
) -> Certificates:
    """The paper's certificate of a median-protected selector (Experiment A), for comparison.

    The worst radius over the selector's lower bound, median and upper bound at `distance` D, each
    level with its own top class and votes, capped at D. It skips levels, so it is `heuristic`
    (`varsmooth.methods.paper`). The runner-up is bounded by 1 − p_A, and the bounds on h hold
    for the ideal median, whatever the options say. Arguments not listed are those of `certify`.

    Args:
        g: The smoothed classifier, with a `MedianSelector`.
        distance: D, the attack budget that the bounds on the selector hold for.
        n: Votes at each level.
        alpha: Failure probability at each level; `alpha_select` of the bounds on h is added to it.
    """
    check(0 <= distance < math.inf, f"distance must be ≥ 0, not {distance}")
    sampler = _sampler("certify_as_paper", g, x, seed, ids, options)
    settings = {**vars(options), "band": False, "bound": "cohen", "distance": distance}
    method = method_for(g.selector, "paper", "call certify")
    return _certify(method, sampler, n, alpha, PaperOptions(**settings))


@over_batches
def certify_at(
    g: SmoothedClassifier,
    x: Images,
    radius: float | Sequence[float],
    *,
    alpha: float = ALPHA,
    seed: int | None = None,
    ids: Ids = None,
    options: Options = DEFAULT,
) -> Decisions:
    """Decide for every image which of the radii can be certified, with few votes.

    At level σ the hypothesis p ≤ Φ(r/σ) is tested by an e-process (`bounds.log_e_value`), which
    may be checked after every vote: certify as soon as E ≥ 1/α. Where the runner-up has its own
    bound (`Ledger.runner_up`), confidence sequences p_A > a and max_{c≠A} p_c < b, each at α/2,
    certify as soon as `(Φ⁻¹(a) − Φ⁻¹(b))/2 ≥ r/σ`. With a grid, every level with
    D̂_j < r must pass at α − alpha_select. With a cascade, stage k must show
    `p_k(A) > Φ(r/s_k + Φ⁻¹(τ_k))`, and every earlier one `p_j(c) < Φ(Φ⁻¹(τ_j) − r/s_j)` for all
    c ≠ A. Several radii are tested in ascending order on the same votes until one fails.

    α covers all of an image's radii together, with no correction for their number, nor for that
    of levels: P(the largest certified one exceeds the true radius) ≤ α. It also covers
    `Decision.certificate.radius`, all that the votes prove, which is at least as large.

    A "no" comes when an upper confidence bound rules a "yes" out, when the votes left up to
    n_max, as predicted from those seen, would certify with a chance below 3 %, or after n_max
    votes at a level. Arguments not listed are those of `certify`.

    Args:
        radius: r ≥ 0, or several; 0 asks whether anything can be certified.
        options: `n_max` is the most votes at a level.

    Returns:
        One `Decision` per image.
    """
    radii = _check_radii(radius)
    sampler = _sampler("certify_at", g, x, seed, ids, options)
    voting = _prepare_voting(sampler, alpha, options, radii[0])
    with evaluation_mode(g):  # once for all the looks
        reached, reasons = reach_radii(voting, radii, options.undecided)
    decisions = []
    for certificate, count, reason in zip(voting.certificates(), reached, reasons, strict=True):
        if certificate.prediction == ABSTAIN and count > 0:  # the e-process alone: α > 1/e
            count, reason = 0, "undecided"
        decisions.append(Decision(certificate, radii, count, reason))
    return Decisions(tuple(decisions))


@over_batches
def certify_until(
    g: SmoothedClassifier,
    x: Images,
    tolerance: float = 0.05,
    *,
    at: float | Sequence[float] = 0.0,
    alpha: float = ALPHA,
    seed: int | None = None,
    ids: Ids = None,
    options: Options = DEFAULT,
) -> Certificates:
    """A class and a radius for every image, with votes until more would not raise it by much.

    As `certify`, with a bound that holds after every vote (`bounds.anytime_lower`) in place of
    Clopper–Pearson's: P(R exceeds the true radius) ≤ α per image, whenever the votes stop. They
    stop when R is at least 1 − tolerance times the radius that n_max votes would give, as
    predicted from those seen; when R is below one of the radii `at` and the next of them is out of
    reach; or after n_max votes at the level that limits R. Arguments not listed are those of
    `certify_at`.

    Args:
        tolerance: The share of the radius that may be lost, between 0 and 1.
        at: Radii that matter; by default, whether there is one at all.

    Returns:
        One `Certificate` per image.
    """
    check(0 < tolerance < 1, f"tolerance must lie between 0 and 1, not {tolerance}")
    radii = (0.0, *_check_radii(at))
    sampler = _sampler("certify_until", g, x, seed, ids, options)
    voting = _prepare_voting(sampler, alpha, options)
    with evaluation_mode(g):
        vote_until_close(voting, tolerance, radii, options.undecided)
    return Certificates(tuple(voting.certificates()))


@over_batches
def predict(
    g: SmoothedClassifier,
    x: Images,
    *,
    n: int = N,
    alpha: float | None = ALPHA,
    seed: int | None = None,
    ids: Ids = None,
    options: Options = DEFAULT,
) -> Predictions:
    """The most likely class of g, or ABSTAIN where n votes do not show which it is.

    With probability ≥ 1 − α the answer is g's most likely class or ABSTAIN. Votes stop as soon as
    the answer is decided (`methods.base.Method.predict`). With a `MedianSelector` the votes get
    α − alpha_select; alpha_select is for the deployed median, so that inside a `sound` radius a
    class other than the certified one is returned with probability ≤ α per query, if alpha_select
    is at least that of the certificate (`Certificate.covers` checks it). With a `CascadeSelector`
    the stages share α (`varsmooth.methods.cascade`).

    Args:
        g: The smoothed classifier.
        x: Images (B,C,H,W) in [0,1], or a torch `Dataset` or `DataLoader` of such.
        n: The most votes, at each stage of a cascade.
        alpha: Maximum probability that the answer is neither g's most likely class nor ABSTAIN; it
            does not bound misclassification. None is the plain rule on the frequencies of the
            votes, without a guarantee. A majority vote then never abstains, and stops once its
            winner is that of all n votes, except with probability 10⁻⁶: `counts` are the votes
            that were cast.
        seed: None takes fresh entropy. A seed that an attacker can know voids the guarantee.
        ids: Image ids, which key the noise (default 0, 1, …).
        options: Those of the certificates; `alpha_select`, `batch_size` and `progress` are read.

    Returns:
        One `Prediction` per image.
    """
    sampler = _sampler("predict", g, x, seed, ids, options)
    check_counts(n=n)
    method, about = predicting_method(g.selector), g.selector.describe()
    ledger = None if alpha is None else method.query_ledger(about, alpha, options.alpha_select)
    parts = _parts(sampler, "predict", options.progress)
    return Predictions(tuple(one for part in parts for one in method.predict(part, n, ledger)))


def _sampler(
    call: str, g: SmoothedClassifier, x: Any, seed: int | None, ids: Ids, options: Options
) -> Sampler:
    """The sampler of one call. g, x and the options are checked here, once."""
    check(isinstance(options, Options), f"options must be Options(…), not {options!r}")
    for name in NO_EFFECT.get(call, ()):
        unset = getattr(options, name) == getattr(DEFAULT, name)
        check(unset, f"`{name}` has no effect on {call}; leave it out of the options")
    check_counts(n0=options.n0, n_select=options.n_select, n_max=options.n_max)
    method, bound = options.method, options.bound
    check(
        method in ("sound", "conditional"),
        f"method must be 'sound' or 'conditional', not {method!r}; "
        "the paper's certificate is certify_as_paper",
    )
    check(bound in ("best", "cohen"), f"bound must be 'best' or 'cohen', not {bound!r}")
    check_smoothed(g)
    g.check(x)
    check_assumptions(g, x)
    return Sampler(g, x, g.noise(len(x), seed, ids), options.batch_size)


def _parts(sampler: Sampler, label: str, progress: bool) -> Iterable[Sampler]:
    """The batch, or with a progress bar one image after the other.

    Noise depends on seed and id alone, so the results are those of one call.
    """
    if not progress:
        return [sampler]
    from tqdm import tqdm

    images = [
        replace(sampler, x=sampler.x[i : i + 1], noise=sampler.noise.rows([i]))
        for i in sampler.rows
    ]
    bar: Iterable[Sampler] = tqdm(images, desc=label, unit="image")
    return bar


def _divide_alpha(method: Method, sampler: Sampler, alpha: float, options: Options) -> Ledger:
    """The ledger of a certificate: α divided among its bounds."""
    deployed = method.deployed_draws(sampler.g.selector.describe()) if options.band else 0
    return method.ledger(alpha, options.alpha_select, deployed)


def _certify(
    method: Method, sampler: Sampler, n: int, alpha: float, options: Options
) -> Certificates:
    """The certificates by n votes, a number that is enough for some radius."""
    ledger = _divide_alpha(method, sampler, alpha, options)
    check_counts(n=n)
    fewest = bounds.fewest_votes_to_certify(ledger.alpha_class)
    check(
        n >= fewest,
        f"at `alpha={ledger.alpha:g}` even `n={n}` unanimous votes certify nothing; "
        f"use `n ≥ {fewest}`",
    )
    certificates: list[Certificate] = []
    for part in _parts(sampler, "certify", options.progress):
        certificates += method.certify(part, ledger, options, n)
    return Certificates(tuple(certificates))


def _prepare_voting(
    sampler: Sampler, alpha: float, options: Options, smallest: float = 0.0
) -> Voting:
    """Selection draws for votes that decide when to stop."""
    method = method_for(sampler.g.selector, options.method)
    ledger = replace(_divide_alpha(method, sampler, alpha, options), anytime=True)
    return Voting.prepare(method, ledger, sampler, options, smallest)


def _check_radii(radius: Any) -> tuple[float, ...]:
    """The radii in ascending order, none twice."""
    several = isinstance(radius, Iterable) and not isinstance(radius, str)
    listed = list(radius) if several else [radius]
    check(len(listed) > 0, "give at least one radius")
    return tuple(sorted(set(map(check_radius, listed))))
