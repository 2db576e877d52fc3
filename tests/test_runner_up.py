"""The runner-up's own bound: known shares of votes, thousands of certificates, planted bugs.

Votes are drawn from the multinomial distribution itself, so that 20,000 certificates take a second.
"""

from typing import NamedTuple

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.stats import norm

from tests.oracles import Shares, at_most, fixed, point
from varsmooth import Options, bounds, certify

TRIALS, ALPHA = 20_000, 0.1
Counts = NDArray[np.int64]

SHARES = {
    "two classes": [0.7, 0.3],
    "winner below ½": [0.4, 0.2, 0.2, 0.2],
    "close runners-up": [0.4, 0.2, 0.18, 0.12, 0.1],
    "100 classes": [0.3, 0.1, *[0.6 / 98] * 98],
    "1000 classes": [0.3, 0.1, *[0.6 / 998] * 998],
}


class Drawn(NamedTuple):
    """Selection draws and votes (T, classes), the class that the former chose (T,), the truth."""

    selection: Counts
    votes: Counts
    chosen: Counts
    truth: NDArray[np.float64]


def draw(shares: list[float], n0: int, n: int, seed: int = 0) -> Drawn:
    rng, p = np.random.default_rng(seed), np.array(shares) / sum(shares)
    selection, votes = (rng.multinomial(count, p, TRIALS) for count in (n0, n))
    others = np.array([np.delete(p, c).max() for c in range(len(p))])
    truth = (norm.ppf(p) - norm.ppf(others)) / 2  # of each class at σ = 1
    chosen = selection.argmax(axis=1)
    return Drawn(selection, votes, chosen, truth[chosen])


def top_and_other(counts: Counts, chosen: Counts) -> tuple[Counts, Counts]:
    rows = np.arange(len(counts))
    rest = counts.copy()
    rest[rows, chosen] = -1
    return counts[rows, chosen], rest.max(axis=1)


def radii(drawn: Drawn, n0: int, n: int) -> NDArray[np.float64]:
    """As `certify` derives them."""
    larger = bounds.margin_is_larger(*top_and_other(drawn.selection, drawn.chosen), n0, n, ALPHA)
    top, other = top_and_other(drawn.votes, drawn.chosen)
    with_other = bounds.margin_radius(top, other, n, 1.0, ALPHA)
    return np.where(larger, with_other, bounds.class_radius(top, n, 1.0, ALPHA))


def too_many(false: NDArray[np.bool_]) -> bool:
    return not at_most(int(false.sum()), ALPHA, len(false))


@pytest.mark.parametrize("name", SHARES)
@pytest.mark.parametrize(("n0", "n"), [(20, 150), (100, 1000), (20, 20_000)])
def test_at_most_alpha_are_false(name: str, n0: int, n: int) -> None:
    drawn = draw(SHARES[name], n0, n)
    assert not too_many((made := radii(drawn, n0, n)) > np.maximum(drawn.truth, 0))
    assert (made > 0).mean() > 0.02  # and many are certified


def test_a_runner_up_named_by_the_selection_draws_is_caught() -> None:
    """Its count is not the largest: another class is nearer than it."""
    n0, n = 20, 20_000
    drawn = draw(SHARES["close runners-up"], n0, n)
    rows, rest = np.arange(TRIALS), drawn.selection.copy()
    rest[rows, drawn.chosen] = -1
    top, other = drawn.votes[rows, drawn.chosen], drawn.votes[rows, rest.argmax(axis=1)]
    planted = bounds.margin_radius(top, other, n, 1.0, ALPHA)
    assert too_many(planted > np.maximum(drawn.truth, 0))


def test_a_class_chosen_by_the_votes_themselves_is_caught() -> None:
    """At a tie either class may win by chance: twice the error."""
    n0, n = 20, 1000
    drawn = draw([0.5, 0.5], n0, n)
    assert not too_many(radii(drawn, n0, n) > 0)
    planted = drawn._replace(chosen=drawn.votes.argmax(axis=1), selection=drawn.votes)
    assert too_many(radii(planted, n, n) > 0)


def test_the_share_of_alpha_follows_from_the_selection_draws_alone() -> None:
    """Whichever form the votes would favour: the choice is that of the selection draws."""
    g = fixed(Shares([0.55, 0.33, 0.12]))
    x, n0, n = point(0.5, 0.5, copies=300), 20, 100
    certificates = certify(g, x, n=n, alpha=0.1, seed=3, options=Options(n0=n0))
    sigma = torch.full((300,), 0.25)
    draws = g.votes(x, n0, sigma=sigma, noise=g.noise(300, 3), purpose="class-selection").numpy()
    votes = g.votes(x, n, sigma=sigma, noise=g.noise(300, 3)).numpy()
    by_draws, by_votes = (
        bounds.margin_is_larger(
            *top_and_other(counts, draws.argmax(axis=1)), count, n, 0.1
        ).tolist()
        for counts, count in ((draws, n0), (votes, n))
    )
    assert [one.ledger.runner_up for one in certificates] == by_draws
    assert by_draws != by_votes  # a choice by the votes would be seen
    for one, row in zip(certificates, votes.tolist(), strict=True):
        (level,) = one.votes
        assert level.counts == tuple(row)
        assert level.runner_up == max(k for c, k in enumerate(row) if c != level.candidate)


def test_neither_form_is_smaller_where_it_is_chosen() -> None:
    """On average over images the chosen form is not below Cohen's."""
    for shares in SHARES.values():
        drawn = draw(shares, 100, 1000, seed=5)
        top, _ = top_and_other(drawn.votes, drawn.chosen)
        cohen = bounds.class_radius(top, 1000, 1.0, ALPHA)
        chosen = radii(drawn, 100, 1000)
        assert np.maximum(chosen, 0).mean() >= 0.998 * np.maximum(cohen, 0).mean()
