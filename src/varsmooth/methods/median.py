"""A median-smoothed selector, certified at every level it can choose: Theorems A and B."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from scipy.stats import hypergeom
from torch import Tensor

from varsmooth.certificates import Certificate
from varsmooth.defaults import ALPHA_SELECT, Options
from varsmooth.errors import check, check_probability
from varsmooth.evidence import Evidence, Ledger, SelectorEvidence
from varsmooth.methods.base import Expected, Method, Selection, with_share
from varsmooth.sampling import Sampler, VoteStream
from varsmooth.selectors import Grid, MedianSelector
from varsmooth.smoothing import Selector, evaluation_mode

UNLIKELY = 1e-9
"""Significance level at which a recorded level is rejected as the selector's median."""


class Median(Method):
    """**Theorem A.** R = min_j max(D_j, R_j): every x' with ‖x' − x‖ < R gets class c.

    The selector's output is snapped to a grid s_1 < … < s_L; its median chooses the level. D_j is
    the entry distance: no x' closer than D_j has s_j as its median level. R_j is Cohen's
    radius there (`methods.fixed`). Proof: at x' the level is some s_j with D_j ≤ ‖x' − x‖ < R ≤
    max(D_j, R_j), so ‖x' − x‖ < R_j, and Cohen's theorem applies at s_j.

    **Estimate.** The nominal level and ĉ from selection draws; D̂_j from n_select samples of h at
    α_h, half for each side; R̂_j from n votes at α − α_h, in the form that the selection draws at
    the nominal level chose. P(R̂ > R) ≤ α with no correction for the number of levels: only the
    bounds of the true argmin can make R̂ too large.

    **Theorem B.** The deployed median of N_p draws strays by at most z_e (`bounds.median_band`)
    with probability ≥ 1 − α_p: D_j shrinks by σ_m z_e, so that every query inside R errs with
    probability ≤ α_p + α_pred.
    """

    name = "sound"
    guarantee = "sound"
    kinds = ("sound",)
    certifies = MedianSelector
    subject = "a protected selector"
    chosen_by = "h’s median, on the grid"
    caption = (
        "No image nearer than D_k gets level k, and any image nearer than R_k gets the same class "
        "there; R_k is missing where no vote was needed. The certified radius is "
        "min_k max(D_k, R_k)."
    )

    def check(self, selector: Selector) -> None:
        check(
            isinstance(selector, MedianSelector) and selector.grid is not None,
            "the sound certificate looks at every level the selector can choose, so it needs a "
            "grid: give `clip=(0.12, 0.5)` and `levels=8`, or what varsmooth tune finds for the "
            "model",
        )

    def ledger(self, alpha: float, alpha_select: float = ALPHA_SELECT, n_deploy: int = 0) -> Ledger:
        """α − α_h for the votes, α_h for the selector, n_deploy draws in the deployed median."""
        check_probability("alpha", alpha)
        check_probability("alpha_select", alpha_select)
        check(
            alpha_select < alpha,
            f"`alpha_select={alpha_select:g}` is part of `alpha={alpha:g}` and must be smaller",
        )
        deployed = alpha_select if n_deploy else 0.0
        return Ledger(alpha, alpha - alpha_select, alpha_select, deployed, n_deploy)

    def deployed_draws(self, about: Mapping[str, Any]) -> int:
        return int(about["n"])

    def select(self, sampler: Sampler, ledger: Ledger, options: Options, n: int) -> list[Selection]:
        chosen = sampler.candidates(sampler.rows, _nominal_levels(sampler, options.n0), options.n0)
        samples = selector_evidence(sampler, options.n_select)
        selections = []
        for votes, evidence in zip(chosen, samples, strict=True):
            own = with_share(ledger, votes, options, n)
            streams = [
                VoteStream(level, votes.candidate, distance, margin=own.runner_up, planned=n)
                for distance, level in evidence.levels_by_distance(ledger)
            ]
            selections.append(Selection(votes.sigma, own, streams, options.n0, evidence, lazy=True))
        return selections

    def radius(self, evidence: Evidence) -> float:
        """A level without votes counts as R̂_j = −∞."""
        selector, ledger = evidence.selector, evidence.ledger
        assert selector is not None
        assert selector.levels is not None
        known = {level.sigma: level.radius(ledger) for level in evidence.votes}
        radii = [known.get(sigma, -np.inf) for sigma in selector.levels]
        return float(np.maximum(selector.entry_distances(ledger), radii).min())

    def complete(self, evidence: Evidence) -> bool:
        selector = evidence.selector
        return bool(evidence.votes and selector and selector.samples and selector.levels)

    def audit(self, header: Mapping[str, Any], one: Certificate) -> Expected:
        assert one.selector is not None
        grid = header["selector"]["levels"]
        visited = {level.sigma for level in one.votes}
        return audit_selector(header, one.selector) | {
            "grid": (grid and tuple(grid), one.selector.levels),
            "levels": (set(), {*visited, one.sigma} - set(grid)),
            "level": (True, _can_be_median(one.selector, one.sigma, header["config"]["n0"])),
            "candidates": (1, len({level.candidate for level in one.votes})),
        }

    def selector_draws(self, selector: Selector, evidence: Evidence, n0: int) -> int:
        assert evidence.selector is not None
        return n0 + len(evidence.selector.samples)

    def query_ledger(
        self, about: Mapping[str, Any], alpha: float, alpha_select: float = ALPHA_SELECT
    ) -> Ledger:
        """A query spends on its median, not on bounds of h."""
        ledger = self.ledger(alpha, alpha_select, self.deployed_draws(about))
        return replace(ledger, alpha_select=0.0)

    def covers(self, certified: Ledger, query: Ledger) -> bool:
        """The query must take at least the N_p draws and set aside the α_p that the radius assumes.

        With band=False the radius holds for the ideal median and covers no query.
        """
        enough = 0 < certified.n_deploy <= query.n_deploy
        return enough and certified.alpha_deploy <= query.alpha_deploy

    def levels_at(self, sampler: Sampler, n: int, a: float) -> list[float]:
        """By a confidence interval of the median from n + 1 draws of h; without a grid, one level.

        With D = 0 the bounds of median smoothing are the median's own confidence interval.
        """
        if _selector(sampler).grid is None:
            return sampler.chosen_levels()
        (evidence,) = selector_evidence(sampler, n + 1, distance=0.0)
        return evidence.levels_between(Ledger(a, a, alpha_select=a), every_index=True)

    def recomputed(self, ledger: Ledger, alpha: float, alpha_select: float | None) -> Ledger:
        select = ledger.alpha_select if alpha_select is None else alpha_select
        check(0 <= select < 1, f"`alpha_select` must lie between 0 and 1, not {select}")
        check(
            select < alpha < 1,
            f"`alpha` must lie between `alpha_select={select:g}` and 1, not {alpha}",
        )
        return replace(ledger, alpha=alpha, alpha_class=alpha - select, alpha_select=select)


def _nominal_levels(sampler: Sampler, n0: int) -> list[float]:
    """The level around which to certify, from n0 selection draws of the selector."""
    medians = _samples(sampler, n0, "level-selection").median(dim=1).values
    levels: list[float] = _selector(sampler).snap_to_grid(medians).tolist()
    return levels


def _can_be_median(evidence: SelectorEvidence, sigma: float, n0: int) -> bool:
    """Whether the median of n0 other draws of h may have the level σ, by the stored samples.

    Then half of these draws lie on σ's side of a threshold. Draws and samples are exchangeable: P
    is hypergeometric, and a faithful level fails with probability ≤ UNLIKELY.
    """
    if evidence.levels is None or sigma not in evidence.levels:
        return False
    place, n, half = evidence.levels.index(sigma), len(evidence.samples), (n0 + 1) // 2
    ends = Grid(evidence.levels).thresholds
    below = np.searchsorted(evidence.samples, ends, side="right")
    beyond = [int(n - below[place - 1])] if place > 0 else []
    beyond += [int(below[place])] if place < len(ends) else []
    return all(hypergeom.sf(half - 1, n + n0, count + half, n0) > UNLIKELY for count in beyond)


def selector_evidence(
    sampler: Sampler, n: int, distance: float | None = None
) -> tuple[SelectorEvidence, ...]:
    """n fresh samples of h(x+ε) per image, ascending."""
    selector, raw = _selector(sampler), _samples(sampler, n, "selector-bounds")
    levels = None if selector.grid is None else selector.grid.levels
    sigma_m = float(torch.tensor(selector.sigma_m, dtype=sampler.x.dtype))  # as it is applied
    return tuple(
        SelectorEvidence(tuple(row), sigma_m, selector.clip, levels, distance)
        for row in raw.sort(dim=1).values.tolist()
    )


def _samples(sampler: Sampler, n: int, purpose: str) -> Tensor:
    """h(x+ε_k), ε_k ~ N(0, σ_m² I), k < n: raw levels (B, n)."""
    selector, g = _selector(sampler), sampler.g
    with evaluation_mode(g), torch.no_grad():
        return selector.samples(
            sampler.x, selector.sigma_m, n, sampler.noise, purpose, sampler.batch_size
        )


def _selector(sampler: Sampler) -> MedianSelector:
    assert isinstance(sampler.g.selector, MedianSelector)
    return sampler.g.selector


def audit_selector(header: Mapping[str, Any], evidence: SelectorEvidence) -> Expected:
    """What the samples of a median-smoothed selector must look like."""
    about, config = header["selector"], header["config"]
    samples, clip = np.asarray(evidence.samples), about["clip"]
    return {
        "selector samples": (config["n_select"], len(samples)),
        "order of the selector's samples": (True, bool((np.diff(samples) >= 0).all())),
        "sigma_m": (np.float32(about["sigma_m"]), np.float32(evidence.sigma_m)),
        "clip": (clip and tuple(clip), evidence.clip),
        "distance": (config["distance"], evidence.distance),
    }
