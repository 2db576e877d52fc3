"""The statistics behind every certificate: numpy in, numpy out, float64, no torch.

Notation: Φ is the normal distribution function; `a` is a one-sided failure probability.
"""

import math
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincc, betainccinv, betaincinv, betaln, ndtr, ndtri
from scipy.stats import binom

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def clopper_pearson_lower(k: ArrayLike, n: ArrayLike, a: float) -> Floats:
    """CP⁻(k,n,a) = BetaInv(a; k, n−k+1), and 0 if k = 0.

    If k ~ Binomial(n, p), then P(CP⁻ > p) ≤ a.
    """
    k, n = np.asarray(k, dtype=np.float64), np.asarray(n, dtype=np.float64)
    return np.where(k > 0, betaincinv(np.maximum(k, 1), n - k + 1, a), 0.0)


def clopper_pearson_upper(k: ArrayLike, n: ArrayLike, a: float) -> Floats:
    """CP⁺(k,n,a) = BetaInv(1−a; k+1, n−k), and 1 if k = n: P(CP⁺ < p) ≤ a."""
    k, n = np.asarray(k, dtype=np.float64), np.asarray(n, dtype=np.float64)
    # The complement's inverse at a, not the inverse at 1 − a, which loses the digits of a small a.
    return np.where(k < n, betainccinv(k + 1, np.maximum(n - k, 1), a), 1.0)


def normal_quantile(p: ArrayLike) -> Floats:
    """Φ⁻¹(p), −∞ at 0 and +∞ at 1."""
    return np.asarray(ndtri(np.asarray(p, dtype=np.float64)))


def normal_cdf(z: ArrayLike) -> Floats:
    """Φ(z)."""
    return np.asarray(ndtr(np.asarray(z, dtype=np.float64)))


def class_radius(
    top: ArrayLike,
    n: ArrayLike,
    sigma: ArrayLike,
    a: float,
    threshold: ArrayLike = 0.5,
    anytime: bool = False,
) -> Floats:
    """H = σ [Φ⁻¹(CP⁻(top, n, a)) − Φ⁻¹(τ)]: closer than H the class keeps probability ≥ τ.

    At τ = ½ this is Cohen's radius, negative where p ≤ ½ cannot be excluded. With `anytime`,
    `anytime_lower` replaces CP⁻, for an n that the votes themselves decided on.
    """
    bound = anytime_lower if anytime else clopper_pearson_lower
    lower = normal_quantile(bound(top, n, a))
    return np.asarray(sigma, dtype=np.float64) * (lower - normal_quantile(threshold))


def exclusion_radius(
    other: ArrayLike,
    n: ArrayLike,
    sigma: ArrayLike,
    a: float,
    threshold: ArrayLike,
    anytime: bool = False,
) -> Floats:
    """X = σ [Φ⁻¹(τ) − Φ⁻¹(CP⁺(other, n, a))]: closer than X the class stays below τ.

    With `anytime`, 1 − `anytime_lower` of all other votes replaces CP⁺.
    """
    if anytime:
        upper = -normal_quantile(anytime_lower(np.asarray(n) - np.asarray(other), n, a))
    else:
        upper = normal_quantile(clopper_pearson_upper(other, n, a))
    return np.asarray(sigma, dtype=np.float64) * (normal_quantile(threshold) - upper)


def margin_radius(
    top: ArrayLike,
    runner_up: ArrayLike,
    n: ArrayLike,
    sigma: ArrayLike,
    a: float,
    anytime: bool = False,
) -> Floats:
    """R = σ/2 [Φ⁻¹(P) − Φ⁻¹(Q)], P = CP⁻(top, n, a/2), Q = CP⁺(runner_up, n, a/2).

    `runner_up` is the largest count of any other class. P(R exceeds the true radius) ≤ a: let c be
    the true runner-up; if P ≤ p(top) and CP⁺ of its count ≥ p(c), then Q ≥ p(c), for the largest
    other count has the largest CP⁺. So the number of classes needs no correction. Q never exceeds
    1 − P, for runner_up ≤ n − top and CP⁺(n − top) = 1 − CP⁻(top); with two classes they are equal.
    With `anytime`, `anytime_lower` replaces CP⁻, and 1 − `anytime_lower` of all other votes CP⁺.
    """
    n, runner_up = np.asarray(n, dtype=np.float64), np.asarray(runner_up, dtype=np.float64)
    if anytime:
        p, q = anytime_lower(top, n, a / 2), 1 - anytime_lower(n - runner_up, n, a / 2)
    else:
        p, q = clopper_pearson_lower(top, n, a / 2), clopper_pearson_upper(runner_up, n, a / 2)
    q = np.minimum(1 - p, q)  # with two classes equal but for rounding, which stored radii rest on
    return np.asarray(sigma, dtype=np.float64) / 2 * (normal_quantile(p) - normal_quantile(q))


def margin_is_larger(
    top: ArrayLike, runner_up: ArrayLike, n0: int, n: int, a: float
) -> NDArray[np.bool_]:
    """Whether n fresh votes should give a larger `margin_radius` than `class_radius`.

    Predicted from n0 selection draws, assuming vote shares (k + ½)/(n0 + 1).
    """
    top, other = (n * (np.asarray(k) + 0.5) / (n0 + 1) for k in (top, runner_up))
    larger: NDArray[np.bool_] = margin_radius(top, other, n, 1.0, a) > class_radius(top, n, 1.0, a)
    return larger


def average_certified_radius(reach: ArrayLike) -> float:
    """ACR: the mean over images of the radius where right and of 0 where not (≤ 0 in `reach`)."""
    return float(np.maximum(np.asarray(reach, dtype=np.float64), 0.0).mean())


def lead_p_value(top: ArrayLike, runner_up: ArrayLike) -> Floats:
    """One-sided sign-test p-value of a against b votes: P(Bin(a + b, ½) ≥ a)."""
    return np.asarray(binom.sf(np.asarray(top) - 1, np.add(top, runner_up), 0.5), dtype=np.float64)


def predicted_count(k: ArrayLike, n: ArrayLike, n_max: ArrayLike, z: float = 0.0) -> Floats:
    """Posterior predictive mean of the count among n_max votes, plus z standard deviations.

    Given k of the first n, with the Jeffreys prior (`predicted_rest`); clipped to what the votes
    that are left allow.
    """
    k, n = np.asarray(k, dtype=np.float64), np.asarray(n, dtype=np.float64)
    mean, spread = predicted_rest(k, n, n_max)
    return np.asarray(k + np.clip(mean + z * spread, 0, np.asarray(n_max) - n))


def predicted_rest(k: ArrayLike, n: ArrayLike, n_max: ArrayLike) -> tuple[Floats, Floats]:
    """Posterior predictive mean and standard deviation of the count among the votes left.

    Given k of the first n votes, with the Jeffreys prior: p ~ Beta(½ + k, ½ + n − k), and the count
    among the rest = n_max − n votes is binomial. Its mean is rest · p̂, p̂ = (½ + k)/(n + 1), its
    variance rest · p̂ (1 − p̂) (n + 1 + rest)/(n + 2).
    """
    k, n = np.asarray(k, dtype=np.float64), np.asarray(n, dtype=np.float64)
    rest, p = np.asarray(n_max) - n, (0.5 + k) / (n + 1)
    return rest * p, np.sqrt(rest * p * (1 - p) * (n + 1 + rest) / (n + 2))


def fewest_votes_to_certify(a: float) -> int:
    """The smallest n whose unanimous vote gives CP⁻ = a^{1/n} > ½."""
    n = max(1, math.floor(math.log(a) / math.log(0.5)))
    while a ** (1 / n) <= 0.5:
        n += 1
    return n


def fewest_votes_to_decide(goal: float, p0: float = 0.5) -> int:
    """The smallest n whose unanimous vote has log E ≥ goal against p ≤ p0 (`log_e_value`)."""
    n = 1
    while log_e_value(n, n, p0) < goal:
        n += 1
    return n


@cache
def order_statistics(n: int, distance: float, sigma_m: float, a: float) -> tuple[int, int]:
    """1-based indices (q_l, q_u) that bound a median under any shift of norm ≤ distance.

    With p_u = Φ(D/σ_m) and p_l = Φ(−D/σ_m), of n ascending samples of h(x+ε), ε ~ N(0, σ_m² I):
    q_u = min{q : P(Bin(n,p_u) ≥ q) ≤ a} and q_l = max{q : P(Bin(n,p_l) ≤ q−1) ≤ a}.
    For every ‖δ‖ ≤ D the median of h(x+δ+ε) lies between samples q_l and q_u, each side failing
    with probability ≤ a. Where no sample will do, q_u = n+1 (bound +∞) and q_l = 0 (bound 0).
    """
    # P(Bin(n,p_u) ≥ q) = P(Bin(n,p_l) ≤ n−q) by symmetry, so one search serves both sides.
    p_l = float(normal_cdf(-distance / sigma_m))
    q_l = int(binom.ppf(a, n, p_l))  # within one of the exact answer
    while q_l > 0 and binom.cdf(q_l - 1, n, p_l) > a:
        q_l -= 1
    while q_l < n and binom.cdf(q_l, n, p_l) <= a:
        q_l += 1
    return q_l, n + 1 - q_l


@cache
def median_band(n: int, a: float) -> float:
    """z_e = Φ⁻¹(1 − BetaInv(a/2; m, n−m+1)), m = (n+1)/2: how far an empirical median strays.

    Each side: with probability ≥ 1 − a/2 the median of n samples lies below the percentile
    Φ(z_e) of their distribution (and likewise above Φ(−z_e)).
    """
    m = (n + 1) // 2
    return float(normal_quantile(1 - betaincinv(m, n - m + 1, a / 2)))


def entry_distances(below: ArrayLike, n: int, sigma_m: float, a: float, band: float = 0) -> Floats:
    """D̂_j: no x' closer than D̂_j to x has the grid's level s_j as its median level.

    `D̂_j = σ_m · max(0, max(Φ⁻¹(F_{j−1}), Φ⁻¹(1 − F_j)) − band)`, F_0 = 0, F_L = 1, with CP⁻ for the
    first F and CP⁺ for the second, each failing with probability ≤ a.

    Args:
        below: Counts (..., L−1) of selector samples ≤ t_j, the thresholds between the levels.
        n: The number of samples.
        sigma_m: Noise level of the median smoothing.
        a: Failure probability of each bound.
        band: See `median_band`.

    Returns:
        Distances (..., L).
    """
    below = np.asarray(below)
    never = np.zeros((*below.shape[:-1], 1))
    from_above = np.concatenate([never, clopper_pearson_lower(below, n, a)], axis=-1)
    from_below = np.concatenate([1 - clopper_pearson_upper(below, n, a), never], axis=-1)
    z = np.maximum(normal_quantile(from_above), normal_quantile(from_below))
    distances: Floats = sigma_m * np.maximum(0.0, z - band)
    return distances


def log_e_value(top: ArrayLike, n: ArrayLike, p0: ArrayLike) -> Floats:
    """log E of the e-process against H0: p ≤ p0, with a Beta(½,½) prior truncated to (p0, 1).

    log E = betaln(½+A, ½+N−A) + log P(Beta(½+A, ½+N−A) > p0)
            − betaln(½,½) − log P(Beta(½,½) > p0) − A log p0 − (N−A) log(1−p0).
    Under H0, P(E ever reaches 1/α) ≤ α (Ville), so one may stop at any time.
    """
    top, n, p0 = (np.asarray(value, dtype=np.float64) for value in (top, n, p0))
    a, b = 0.5 + top, 0.5 + n - top
    with np.errstate(divide="ignore"):  # log 0 = −∞: nothing of the posterior lies above p0
        posterior = betaln(a, b) + np.log(betaincc(a, b, p0))
    prior = betaln(0.5, 0.5) + np.log(betaincc(0.5, 0.5, p0))
    log_e: Floats = posterior - prior - top * np.log(p0) - (n - top) * np.log1p(-p0)
    return log_e


def anytime_lower(k: ArrayLike, n: ArrayLike, a: float) -> Floats:
    """The smallest p0 whose e-process (`log_e_value`) is below 1/a: a lower confidence sequence.

    P(it ever exceeds p, after any number n of votes) ≤ a, so that the votes may decide when to
    stop. Wherever E ≥ e it falls strictly with p0, so the p0 that are rejected form one interval
    [0, root), and Newton steps inside a bracket find its end.
    """
    k, n = np.broadcast_arrays(np.asarray(k, dtype=np.float64), np.asarray(n, dtype=np.float64))
    goal = max(1.0, -math.log(a))
    low, high = np.zeros(k.shape), k / n
    p = clopper_pearson_lower(k, n, a)
    with np.errstate(all="ignore"):  # k = 0 has no root, and its bound stays 0
        for _ in range(60):
            log_e = log_e_value(k, n, p)
            enough = log_e >= goal
            low, high = np.where(enough, p, low), np.where(enough, high, p)
            hazard = 0.5 / (np.sqrt(p * (1 - p)) * np.arccos(np.sqrt(p)))  # of Beta(½, ½)
            slope = (n - k) / (1 - p) - k / p - hazard * np.expm1(-log_e)
            step = p + (goal - log_e) / slope - 2e-14  # on the side where p is rejected
            if not ((np.abs(step - low) > 1e-13) & (k > 0)).any():
                break
            p = np.where((step > low) & (step < high), step, (low + high) / 2)
    return np.where(k > 0, low, 0.0)
