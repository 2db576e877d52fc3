"""Paired differences, pooled over settings that share their images."""

import numpy as np
import pytest
from scipy.stats import binom

from reproduce.records import outcomes_of
from reproduce.statistics import Differences, Estimate, paired, pooled
from varsmooth.evaluation.report.outcomes import Outcomes
from varsmooth.evaluation.report.statistics import mean_interval


def test_settings_with_the_same_images_have_the_interval_of_the_image_means() -> None:
    values = np.random.default_rng(0).normal(0.1, 1.0, (5, 300))
    mean = pooled([Differences(range(300), row) for row in values])
    low, high = mean_interval(values.mean(axis=0))
    assert mean.value == pytest.approx(values.mean())
    assert mean.interval() == pytest.approx((low, high))


@pytest.mark.parametrize("shared", [0.0, 0.9])
def test_the_interval_covers_whatever_the_settings_share(shared: float) -> None:
    """4 settings, one with four times as many images; a share of the noise is the image's own."""
    rng, trials, covered = np.random.default_rng(1), 600, 0
    sizes = (100, 100, 100, 400)
    for _ in range(trials):
        own = rng.normal(0, 1, 400)
        settings = []
        for n in sizes:
            noise = shared**0.5 * own[:n] + (1 - shared) ** 0.5 * rng.normal(0, 1, n)
            settings.append(Differences(range(n), 0.3 + noise))
        low, high = pooled(settings).interval()
        covered += low < 0.3 < high
    assert binom.cdf(covered, trials, 0.95) > 1e-6
    assert binom.sf(covered - 1, trials, 0.95) > 1e-6


def test_a_small_difference_is_none_and_a_wide_interval_is_open() -> None:
    small, large, none = Estimate(0.002, 0.0005, 900), Estimate(0.03, 0.005, 900), 0.0
    assert small.interval().low > 0
    assert small.decide() == "no difference"
    assert small.decide(margin=0.001) == "holds"
    assert large.decide() == "holds"
    assert Estimate(-0.03, 0.005, 900).decide() == "does not hold"
    assert Estimate(none, 0.007, 900).decide() == "open"
    assert Estimate(0.0050, 0.003, 900).within(0.01)
    assert not Estimate(0.0051, 0.003, 900).within(0.01)  # the 90 % interval ends at 1.003 points
    assert large.text() == "+3.00 [+2.02, +3.98]"


def test_runs_are_paired_by_image() -> None:
    def run(ids: list[int], predictions: list[int]) -> Outcomes:
        rows = [
            {"id": i, "label": 1, "prediction": p} for i, p in zip(ids, predictions, strict=True)
        ]
        return outcomes_of("predict", rows)

    gaps = paired(run([3, 1, 2], [1, 1, 0]), run([1, 2, 4, 3], [0, 1, 1, 1]))
    assert gaps.ids == [3, 1, 2]
    assert gaps.values.tolist() == [0, 1, -1]
