"""Evidence of a run compared with fresh noise: image by image, and over all images at once."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.stats import fisher_exact, ks_2samp

from varsmooth import bounds
from varsmooth._util.progress import Progress
from varsmooth.certificates import Certificate
from varsmooth.data import ImageDataset
from varsmooth.defaults import N0
from varsmooth.evaluation.records import Row, Run
from varsmooth.evaluation.replay import as_sampled, at_stated_alpha
from varsmooth.evaluation.runner import Setup, rows_of
from varsmooth.evidence import LevelVotes
from varsmooth.methods.median import selector_evidence
from varsmooth.noise import scoped_seed
from varsmooth.sampling import Sampler
from varsmooth.smoothing import SmoothedClassifier

REPEATS, PERMUTED = 5, 20_000
"""Fresh certificates of each resampled image, and permutations behind their pooled p-value."""


def resample(
    run: Run,
    g: SmoothedClassifier,
    images: ImageDataset,
    rows: Sequence[Row],
    batch_size: int,
    rng: np.random.Generator,
    seed: int,
) -> tuple[dict[str, float], float]:
    """Some rows with fresh noise: p-values by what was compared, and of all radii together.

    Each count that a radius uses is compared by Fisher's exact test, the samples of h by
    Kolmogorov–Smirnov's. The radii are compared with those of REPEATS fresh certificates each.
    """
    place = {image: position for position, image in enumerate(images.ids.tolist())}
    p_values: dict[str, float] = {}
    with Progress(len(rows), "resample") as progress:
        for row in rows:
            batch = images.batch([place[row["id"]]])
            noise = g.noise(1, scoped_seed(seed, "resample"), batch.ids)  # never the run's own
            sampler = Sampler(g, batch.images.to(g.device), noise, batch_size)
            p_values |= compared(sampler, run.certificate(row))
            progress.add(1)
    setup, evaluation = Setup(g, run, batch_size), as_sampled(run)
    radii: dict[int, list[float]] = {row["id"]: [row["radius"]] for row in rows}
    places = sorted(place[image] for image in radii)
    for repeat in range(REPEATS):
        scope = scoped_seed(seed, f"resample {repeat}")
        again = replace(evaluation, options=replace(evaluation.options, seed=scope))
        for start in range(0, len(places), 32):
            for row in rows_of(again, setup, images.batch(places[start : start + 32])):
                certificate = at_stated_alpha(run, run.certificate(row))
                radii[row["id"]].append(certificate.radius)
    return p_values, pooled_p_value(np.array(list(radii.values())), rng)


def compared(sampler: Sampler, certificate: Certificate) -> dict[str, float]:
    """p-values of one image's evidence against fresh draws."""
    test = _stopped_p_value if certificate.ledger.anytime else _fisher_p_value
    p_values: dict[str, float] = {}
    for level in certificate.votes:
        again = sampler.counts([0], [level.sigma], level.n, "votes")[0].tolist()
        for name, place in _used(sampler, certificate, level):
            stored = [*level.counts, level.passes][place]
            what = f"image {certificate.id}, {name} at {level.sigma:g}"
            p_values[what] = test(stored, again[place], level.n)
    if certificate.selector is not None:
        samples = certificate.selector.samples
        (evidence,) = selector_evidence(sampler, len(samples))
        kolmogorov = ks_2samp(samples, evidence.samples, method="asymp")
        p_values[f"image {certificate.id}, selector"] = float(kolmogorov.pvalue)
    return p_values


def _used(
    sampler: Sampler, certificate: Certificate, level: LevelVotes
) -> Iterator[tuple[str, int]]:
    """The counts of a level that its radius uses: (name, position), passes last.

    The largest other class is named by draws of its own, so that the test of its count is exact.
    """
    early = certificate.stages is not None and level is not certificate.votes[-1]
    if not early:
        yield "votes", level.candidate
    if early or certificate.ledger.runner_up:
        selection = sampler.counts([0], [level.sigma], N0, "class-selection")[
            0, : len(level.counts)
        ]
        selection[level.candidate] = -1
        if len(level.counts) > 1:
            yield "votes of the largest other class", int(selection.argmax())
    if sampler.g.gate is not None:
        yield "passes", len(level.counts)


def pooled_p_value(values: NDArray[np.float64], rng: np.random.Generator) -> float:
    """Are the first numbers of the rows (N, m) together larger than the others? A permutation test.

    If each row is exchangeable, the first could be any of its numbers: the sum over the rows of the
    first number, in units of the row's own mean and standard deviation, is compared with PERMUTED
    sums of numbers chosen at random. P(p ≤ a) ≤ a, whatever the distribution. A radius is a
    function of every count behind it, so this sees all of them, over all images at once.
    """
    spread = values.std(axis=1, keepdims=True)
    scores = (values - values.mean(axis=1, keepdims=True)) / np.where(spread > 0, spread, 1)
    sums = np.zeros(PERMUTED)
    for row in scores:
        sums += row[rng.integers(len(row), size=PERMUTED)]
    return float((1 + (sums >= scores[:, 0].sum() - 1e-9).sum()) / (1 + PERMUTED))


def _fisher_p_value(stored: int, again: int, n: int) -> float:
    table = np.array([[stored, n - stored], [again, n - again]])
    return float(fisher_exact(table).pvalue)


def _stopped_p_value(stored: int, again: int, n: int) -> float:
    """A test of two counts in n votes each, where the stored votes themselves chose n.

    The smallest a at which a confidence sequence of the stored votes and the Clopper–Pearson
    interval of the fresh ones, each of their four bounds at a/4, have no p in common.
    """

    def apart(a: float) -> bool:
        low, high = (bounds.anytime_lower(k, n, a / 4) for k in (stored, n - stored))
        above = low > bounds.clopper_pearson_upper(again, n, a / 4)
        return bool(above or high > bounds.clopper_pearson_upper(n - again, n, a / 4))

    tried = np.geomspace(1e-12, 1, 200).tolist()
    return next(iter(tried[bisect_left(tried, True, key=apart) :]), 1.0)
