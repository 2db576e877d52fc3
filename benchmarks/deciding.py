"""certify_at against a fixed N: samples and time per decision, and whether the decisions agree."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import norm
from torch import Tensor

from varsmooth import Options, SmoothedClassifier, certify, certify_at, load, load_dataset
from varsmooth.bounds import clopper_pearson_upper
from varsmooth.certificates import Certificate
from varsmooth.evaluation.vote_cache import CachedSmoothedClassifier

VOTES = Path(__file__).parent / "votes"
"""Votes of the released models at a fixed N, which take an hour to draw and never change."""

RADII = (0.25, 0.5)
ALPHA = 1e-3


@dataclass(frozen=True)
class Case:
    """A released model at one level, on the first embedded images.

    images: those certified with the fixed N too, to compare the answers. decided: those decided
        by certify_at, at least as many; a few images close to r take most of the samples, so that
        their mean needs many images.
    """

    model: str
    sigma: float
    images: int
    n: int
    decided: int = 0

    def smoothed(self) -> SmoothedClassifier:
        return load(self.model, sigma=self.sigma)

    def batch(self) -> Tensor:
        count = max(self.decided, self.images)
        return load_dataset("cifar10-sample").batch(range(count))[0]


CASES = (
    Case("cifar10-0.25", 0.25, images=30, n=100_000, decided=100),
    Case("cifar10-0.25", 0.25, images=60, n=10_000),
    Case("cifar10-universal-1.00", 0.5, images=40, n=10_000),
)
QUICK = (Case("cifar10-0.25", 0.25, images=3, n=400),)


def run(cases: Sequence[Case], votes: Path | None = VOTES) -> list[dict[str, Any]]:
    """One row per case and radius."""
    return [_compare(case, radius, votes) for case in cases for radius in RADII]


def _compare(case: Case, radius: float, votes: Path | None) -> dict[str, Any]:
    g, x = case.smoothed(), case.batch()
    fixed = certificates(case, g, x[: case.images], votes)
    began = time.process_time()
    decisions = certify_at(g, x, radius, alpha=ALPHA, seed=1, options=Options(n_max=case.n))
    seconds = time.process_time() - began
    samples = np.array(decisions.samples)
    both = list(zip(decisions, fixed, strict=False))  # the images that have both
    return {
        "model": case.model,
        "sigma": case.sigma,
        "radius": radius,
        "images": case.images,
        "decided": len(x),
        "n": case.n,
        "samples_mean": float(samples.mean()),
        "samples_quartiles": np.percentile(samples, [25, 50, 75]).tolist(),
        "samples_max": int(samples.max()),
        "undecided": sum(decision.reason == "undecided" for decision in decisions),
        "fewer": case.n / float(samples.mean()),
        "seconds_per_decision": seconds / len(x),
        "seconds_fixed": case.n * seconds_per_vote(g, x),
        "yes": sum(decision.certified for decision, _ in both),
        "yes_fixed": sum(one.radius >= radius for one in fixed),
        "only_certify_at": sum(d.certified and f.radius < radius for d, f in both),
        "only_fixed": sum(not d.certified and f.radius >= radius for d, f in both),
        "refuted": sum(d.certified and _refuted(f, d.prediction, radius) for d, f in both),
    }


def seconds_per_vote(g: SmoothedClassifier, x: Tensor, n: int = 1000) -> float:
    """Of a fixed N, on the first images."""
    certify(g, x[:1], n=100, seed=3)
    began = time.process_time()
    certificates = certify(g, x[:8], n=n, alpha=ALPHA, seed=3)
    return (time.process_time() - began) / sum(one.samples for one in certificates)


def certificates(
    case: Case, g: SmoothedClassifier, x: Tensor, votes: Path | None
) -> list[Certificate]:
    """The certificates of the fixed N, with noise of their own; image by image into the store."""
    remembering = g if votes is None else CachedSmoothedClassifier(g, votes)
    return [
        certify(remembering, x[i : i + 1], n=case.n, alpha=ALPHA, seed=2, ids=[i])[0]
        for i in range(len(x))
    ]


def _refuted(fixed: Certificate, prediction: int, radius: float) -> bool:
    """Do the N votes show, at level α, that the radius of this class is below the one granted?"""
    (level,) = fixed.votes
    upper = clopper_pearson_upper(level.counts[prediction], level.n, ALPHA)
    return bool(level.sigma * norm.ppf(upper) < radius)
