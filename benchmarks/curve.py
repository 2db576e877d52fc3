"""The certified-accuracy curve by certify_at against fixed numbers of votes.

Samples, certified accuracy, answers that differ, and speed per vote.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import norm

from benchmarks.deciding import ALPHA, VOTES, seconds_per_vote
from varsmooth import SmoothedClassifier, certify, certify_at, load, load_dataset
from varsmooth.bounds import clopper_pearson_lower, clopper_pearson_upper
from varsmooth.certificates import Certificate, Certificates
from varsmooth.data import Batch
from varsmooth.evidence import LevelVotes
from varsmooth.runs.certifying import TOGETHER
from varsmooth.runs.vote_cache import RememberingClassifier

RADII = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class Case:
    """A released model on the first embedded images.

    settings: of `load`. fixed: by N, how many of the images are certified with N votes too.
    """

    model: str
    settings: Mapping[str, Any]
    images: int = 1000
    n_max: int = 100_000
    fixed: Mapping[int, int] = field(default_factory=lambda: {1000: 1000, 10_000: 100, 100_000: 30})

    def name(self) -> str:
        return ", ".join([self.model, *(f"{k} {v}" for k, v in self.settings.items())])


CASES = (
    Case("cifar10-0.25", {"sigma": 0.25}),
    Case("cifar10-universal-1.00", {"sigma": 0.5}),
    Case("cifar10-universal-1.00", {"cascade": "tuned"}, fixed={1000: 1000, 10_000: 100}),
)
QUICK = (Case("cifar10-0.25", {"sigma": 0.25}, images=4, n_max=200, fixed={100: 2}),)


def run(cases: Sequence[Case], votes: Path | None = VOTES) -> list[dict[str, Any]]:
    """One row per case."""
    return [_measure(case, votes) for case in cases]


def _measure(case: Case, votes: Path | None) -> dict[str, Any]:
    g = load(case.model, **case.settings)
    everyone = load_dataset("cifar10-sample").batch(range(case.images))
    began = time.process_time()
    found = [one for batch in _blocks(everyone) for one in _sequential(g, batch, case.n_max)]
    seconds = time.process_time() - began
    samples = np.array([one.samples for one in found])
    assert everyone.labels is not None
    labels = everyone.labels.tolist()
    speed = seconds_per_vote(g, everyone.images) / (seconds / samples.sum())
    return {
        "case": case.name(),
        "images": case.images,
        "n_max": case.n_max,
        "samples_mean": float(samples.mean()),
        "samples_quartiles": np.percentile(samples, [25, 50, 75]).tolist(),
        "fewer": case.n_max / float(samples.mean()),
        "seconds_per_image": seconds / case.images,
        "accuracy": _right(found, labels).mean(axis=0).tolist(),
        "speed": speed,
        "fixed": [
            {"n": n, **_compare(g, everyone, found[:count], n, votes)}
            for n, count in case.fixed.items()
        ],
    }


def _blocks(batch: Batch) -> Iterator[Batch]:
    """As `varsmooth certify --at` cuts a data set."""
    for start in range(0, len(batch.ids), TOGETHER):
        block = slice(start, start + TOGETHER)
        yield Batch(batch.images[block], None, batch.ids[block])


def _sequential(g: SmoothedClassifier, batch: Batch, n_max: int) -> Certificates:
    decided = certify_at(g, batch.images, RADII, alpha=ALPHA, n_max=n_max, seed=1, ids=batch.ids)
    return decided.certificates


def _right(found: Sequence[Certificate], labels: Sequence[int]) -> NDArray[np.bool_]:
    """Whether each image is certified as its label at each radius: (images, radii)."""
    reach = [
        one.radius if one.prediction == label else -1.0
        for one, label in zip(found, labels, strict=False)
    ]
    return np.array(reach)[:, None] >= np.array(RADII)


def _compare(
    g: SmoothedClassifier, batch: Batch, found: Sequence[Certificate], n: int, votes: Path | None
) -> dict[str, Any]:
    """Against certificates with N votes and noise of their own, on as many images."""
    assert batch.labels is not None
    labels = batch.labels.tolist()[: len(found)]
    voting = g if votes is None else RememberingClassifier(g, votes)
    fixed = [
        certify(voting, batch.images[i : i + 1], n=n, alpha=ALPHA, seed=2, ids=[i])[0]
        for i in range(len(found))
    ]
    ours, theirs = _right(found, labels), _right(fixed, labels)
    return {
        "images": len(found),
        "samples_mean": float(np.mean([one.samples for one in found])),
        "samples_fixed": float(np.mean([one.samples for one in fixed])),
        "accuracy": ours.mean(axis=0).tolist(),
        "accuracy_fixed": theirs.mean(axis=0).tolist(),
        "only_sequential": (ours & ~theirs).sum(axis=0).tolist(),
        "only_fixed": (~ours & theirs).sum(axis=0).tolist(),
        "refuted": sum(refuted(f, s) for f, s in zip(fixed, found, strict=True)),
    }


def refuted(fixed: Certificate, ours: Certificate) -> bool:
    """Do the N votes show, at level α, that our radius exceeds what one of its levels allows?"""
    assert ours.selector is None, "the entry distances of a grid are not judged here"
    return ours.prediction >= 0 and any(
        _largest_radius(level, ours) < ours.radius for level in fixed.votes
    )


def _largest_radius(level: LevelVotes, ours: Certificate) -> float:
    """An upper bound on the radius that one level, or stage of a cascade, allows our class."""
    upper = norm.ppf(clopper_pearson_upper(level.counts[ours.prediction], level.n, ALPHA))
    if ours.stages is None:
        return float(level.sigma * upper)
    levels = ours.stages.levels
    threshold = norm.ppf(ours.stages.thresholds[levels.index(level.sigma)])
    if level.sigma == ours.sigma:  # the stage that answers
        return float(level.sigma * (upper - threshold))
    if levels.index(level.sigma) > levels.index(ours.sigma):
        return float("inf")  # it is never asked
    others = np.delete(level.counts, ours.prediction)
    lower = norm.ppf(clopper_pearson_lower(others.max(), level.n, ALPHA / len(others)))
    return float(level.sigma * (threshold - lower))


def table(results: Sequence[Mapping[str, Any]]) -> str:
    """One line per case and fixed N, in Markdown."""
    if not results:
        return "Not measured yet: `python -m benchmarks --only curve`, on an idle machine."
    head = [
        "model",
        "against N",
        "images",
        "samples",
        "fewer",
        "speed per vote",
        *(f"r = {r:g}: ours / N" for r in RADII),
        "only ours / only N",
        "refuted",
    ]
    lines = [head, ["---"] * len(head)]
    for case in results:
        for row in case["fixed"]:
            pairs = zip(row["accuracy"], row["accuracy_fixed"], strict=True)
            lines.append(
                [
                    case["case"],
                    f"{row['n']:,}",
                    str(row["images"]),
                    f"{row['samples_mean']:,.0f}",
                    f"{row['samples_fixed'] / row['samples_mean']:.1f}×",
                    f"{case['speed']:.2f}",
                    *(f"{100 * ours:.1f} / {100 * n:.1f}" for ours, n in pairs),
                    f"{sum(row['only_sequential'])} / {sum(row['only_fixed'])}",
                    str(row["refuted"]),
                ]
            )
    said = [
        f"{case['case']}: {case['images']} images, {case['samples_mean']:,.0f} samples an image on "
        f"average ({case['fewer']:.0f} times fewer than {case['n_max']:,}), "
        f"{case['seconds_per_image']:.2f} s an image."
        for case in results
    ]
    return "\n".join([*("| " + " | ".join(line) + " |" for line in lines), "", *said])


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(table(run(CASES)))
