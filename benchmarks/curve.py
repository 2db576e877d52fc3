"""The certified-accuracy curve by `certify --at` against fixed numbers of votes.

Samples, certified accuracy, answers that differ, what an oracle would need, and speed per vote. The
curve itself is an ordinary run in runs/benchmark-curve, which resumes; `seconds` takes a minute.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import rel_entr
from scipy.stats import norm

from benchmarks.deciding import ALPHA, VOTES, seconds_per_vote
from varsmooth import Options, SmoothedClassifier, certify, certify_at
from varsmooth.bounds import Floats, clopper_pearson_lower, clopper_pearson_upper
from varsmooth.certificates import Certificate
from varsmooth.data import ImageDataset
from varsmooth.evaluation.build import build, load_images
from varsmooth.evaluation.certify import certify_dataset
from varsmooth.evaluation.options import CertifyOptions, DataOptions, ModelOptions, RunOptions
from varsmooth.evaluation.runner import BLOCK_SIZE
from varsmooth.evaluation.vote_cache import CachedSmoothedClassifier
from varsmooth.evidence import LevelVotes
from varsmooth.rounding import percent
from varsmooth.sequential import success_chance

RADII = (0.0, 0.25, 0.5, 0.75, 1.0)
STORE = Path("runs/benchmark-curve")


@dataclass(frozen=True)
class Case:
    """A released model on the first images of a data set.

    images: None for all. fixed: by N, how many of the images are certified with N votes too.
    """

    model: ModelOptions
    images: int | None = 1000
    data: str = "cifar10"
    n_max: int = 100_000
    fixed: Mapping[int, int] = field(default_factory=lambda: {1000: 1000, 10_000: 100, 100_000: 30})

    @property
    def name(self) -> str:
        kind = "tuned cascade" if self.model.cascade else f"σ = {self.model.sigma:g}"
        return f"{self.model.model}, {kind}"

    @property
    def source(self) -> DataOptions:
        return DataOptions(data=self.data, subset=f":{self.images}" if self.images else None)

    def curve(self, store: Path) -> list[Certificate]:
        """`varsmooth certify --at 0,0.25,…`, from where it stopped."""
        settings = CertifyOptions(at=list(RADII), n_max=self.n_max, alpha=ALPHA)
        folder = store / self.name.replace(", ", "-").replace(" ", "")
        run = certify_dataset(self.model, self.source, settings, RunOptions(folder))
        return [run.certificate(row) for row in run.rows()]


UNIVERSAL = ModelOptions("cifar10-universal-1.00", precision="bfloat16")
CASES = (
    Case(ModelOptions("cifar10-0.25", sigma=0.25, precision="bfloat16")),
    Case(replace(UNIVERSAL, sigma=0.5), images=None),
    Case(replace(UNIVERSAL, selector="cascade"), fixed={1000: 1000, 10_000: 100}),
)
QUICK = (
    Case(
        ModelOptions("cifar10-0.25", sigma=0.25),
        images=4,
        data="cifar10-sample",
        n_max=200,
        fixed={100: 2},
    ),
)


def run(
    cases: Sequence[Case], votes: Path | None = VOTES, store: Path = STORE
) -> list[dict[str, Any]]:
    """One row per case."""
    return [_measure(case, votes, store) for case in cases]


def _measure(case: Case, votes: Path | None, store: Path) -> dict[str, Any]:
    built = build(case.model)
    images = load_images(case.source, built)
    labels = images.labels
    assert labels is not None
    certificates = case.curve(store)
    samples = np.array([one.samples for one in certificates])
    return {
        "case": case.name,
        "precision": case.model.precision,
        "images": len(certificates),
        "n_max": case.n_max,
        "samples_mean": float(samples.mean()),
        "samples_quartiles": np.percentile(samples, [25, 50, 75]).tolist(),
        "fewer": case.n_max / float(samples.mean()),
        "busiest": float(np.sort(samples)[-max(len(samples) // 20, 1) :].sum() / samples.sum()),
        "accuracy": right(certificates, labels).mean(axis=0).tolist(),
        **({} if case.model.cascade else hindsight(certificates, labels, case.n_max)),
        "speed": _speed(built.g, images, case.n_max),
        "fixed": [
            {"n": n, **_compare(built.g, images, certificates[:count], n, votes)}
            for n, count in case.fixed.items()
        ],
    }


def right(certificates: Sequence[Certificate], labels: Any) -> NDArray[np.bool_]:
    """Whether each image is certified as its label at each radius: (images, radii)."""
    reach = [
        one.radius if one.prediction == label else -1.0
        for one, label in zip(certificates, labels, strict=False)
    ]
    return np.array(reach)[:, None] >= np.array(RADII)


def hindsight(certificates: Sequence[Certificate], labels: Any, n_max: int) -> dict[str, Any]:
    """What one fixed σ could have: by an oracle's samples, and by n_max votes for every image.

    With the observed share of the votes taken for p, an oracle that knows p decides each "no" for
    nothing and needs about ln(1/α) / KL(p ‖ p0) votes for the largest radius that is certified.
    lost: the expected share of images, at each radius, that only n_max votes would certify right.
    """
    last = [one.votes[-1] for one in certificates]
    n, top = (np.array([float(getattr(v, k)) for v in last]) for k in ("n", "top"))
    sigma = last[0].sigma
    radii = [one.radius if one.prediction >= 0 else -1.0 for one in certificates]
    is_right = np.array([v.candidate for v in last]) == np.array(labels)[: len(last)]
    cost, lost = np.zeros(len(certificates)), []
    for r in RADII:
        p0 = min(float(norm.cdf(r / sigma)), 1 - 1e-12)
        yes = np.array(radii) >= r
        cost[yes] = np.maximum(cost[yes], oracle_votes(top[yes] / n[yes], p0))
        needed = np.full(len(certificates), _needed(n_max, p0))
        chance = np.where(yes | ~is_right, 0.0, success_chance(needed, n_max, top, n))
        lost.append(float(chance.mean()))
    return {"oracle_mean": float(np.minimum(cost, n_max).mean()), "lost": lost}


def oracle_votes(p: Floats, p0: float) -> Floats:
    """ln(1/α) / KL(p ‖ p0): no test that errs with probability ≤ α needs fewer on average."""
    divergence = rel_entr(p, p0) + rel_entr(1 - p, 1 - p0)
    return -math.log(ALPHA) / np.maximum(np.where(p > p0, divergence, 0.0), 1e-12)


def _needed(n: int, p0: float) -> int:
    """The fewest of n votes that show p > p0 by Clopper–Pearson."""
    counts = np.arange(math.floor(n * p0), n + 1)
    enough = clopper_pearson_lower(counts, np.full(len(counts), n), ALPHA) > p0
    return int(counts[enough.argmax()]) if enough.any() else n + 1


def _speed(g: SmoothedClassifier, images: ImageDataset, n_max: int) -> float:
    """Votes a second of `certify_at` over those of a fixed N, on one block of images."""
    x = images.batch(range(min(BLOCK_SIZE, len(images)))).images
    began = time.process_time()
    certificates = certify_at(
        g, x, RADII, alpha=ALPHA, seed=1, options=Options(n_max=min(n_max, 5000))
    )
    seconds = (time.process_time() - began) / sum(one.samples for one in certificates)
    return seconds_per_vote(g, x) / seconds


def _compare(
    g: SmoothedClassifier,
    images: ImageDataset,
    certificates: Sequence[Certificate],
    n: int,
    votes: Path | None,
) -> dict[str, Any]:
    """Against certificates with N votes and noise of their own, on as many images."""
    voting = g if votes is None else CachedSmoothedClassifier(g, votes)
    batch = images.batch(range(len(certificates)))
    fixed = [
        certify(voting, batch.images[i : i + 1], n=n, alpha=ALPHA, seed=2, ids=[i])[0]
        for i in range(len(certificates))
    ]
    ours, theirs = right(certificates, images.labels), right(fixed, images.labels)
    return {
        "images": len(certificates),
        "samples_mean": float(np.mean([one.samples for one in certificates])),
        "samples_fixed": float(np.mean([one.samples for one in fixed])),
        "accuracy": ours.mean(axis=0).tolist(),
        "accuracy_fixed": theirs.mean(axis=0).tolist(),
        "only_sequential": (ours & ~theirs).sum(axis=0).tolist(),
        "only_fixed": (~ours & theirs).sum(axis=0).tolist(),
        "refuted": sum(refuted(f, s) for f, s in zip(fixed, certificates, strict=True)),
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
        return float("inf")  # never evaluated
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
    notes = [_summary(case) for case in results]
    return "\n".join([*("| " + " | ".join(line) + " |" for line in lines), "", "\n\n".join(notes)])


def _summary(case: Mapping[str, Any]) -> str:
    n = case["images"]
    curve = ", ".join(percent(round(a * n), n) for a in case["accuracy"])  # as reports round
    text = (
        f"{case['case']} ({case['precision']}): {case['images']:,} images, "
        f"{case['samples_mean']:,.0f} samples per image on average, {case['fewer']:.0f} times "
        f"fewer than {case['n_max']:,}; a twentieth of the images took "
        f"{100 * case['busiest']:.0f} % of them; certified accuracy {curve} % at these radii."
    )
    if "lost" not in case:
        return text
    lost = ", ".join(f"{100 * share:.2f}" for share in case["lost"])
    return (
        f"{text} {case['n_max']:,} votes for every image should certify {lost} points more, by the "
        f"votes seen. An oracle that knows p needs {case['oracle_mean']:,.0f} samples on average, "
        f"{case['n_max'] / case['oracle_mean']:.0f} times fewer."
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(table(run(CASES)))
