"""The three readings: levels per image come from one table of votes, g from between its levels."""

from pathlib import Path

import numpy as np
import pytest

from reproduce.__main__ import main
from reproduce.comparisons import beside_mean
from reproduce.records import outcomes_of, read_records
from varsmooth.evaluation.report.outcomes import Outcomes


def run(levels: list[float], right: list[int]) -> Outcomes:
    rows = [
        {"id": i, "label": 1, "prediction": p, "sigma": s}
        for i, (s, p) in enumerate(zip(levels, right, strict=True))
    ]
    return outcomes_of("predict", rows)


def test_g_is_interpolated_at_the_mean_level() -> None:
    fixed = [run([s] * 4, p) for s, p in ((0.1, [1, 1, 1, 1]), (0.2, [1, 1, 0, 0]), (0.4, [0] * 4))]
    learned = run([0.1, 0.1, 0.2, 0.6], [1, 1, 1, 0])  # mean 0.25: a quarter of the way to 0.4
    assert beside_mean(learned, fixed).values == pytest.approx([0.25, 0.25, 1.0, 0.0])


def test_an_image_at_a_level_is_predicted_as_by_g_at_this_level(tmp_path: Path) -> None:
    sizes = "--data cifar10-sample --sigmas 0.25 --images 20 --held-out 20 --n 8 --draws 4"
    words = f"readings {sizes} --lams 0,0.4 --store {tmp_path / 'store'} --out {tmp_path / 'out'}"
    assert main(words.split()) == 0
    runs = read_records(tmp_path / "out" / "records.csv.gz")
    fixed = {float(r.sigmas[0]): r for n, r in runs.items() if n.startswith("g,")}
    learned = [r for n, r in runs.items() if n.startswith("g_v")]
    assert len(fixed) == 11
    assert len(learned) == 8
    assert len(np.unique(np.concatenate([r.sigmas for r in learned]))) > 2
    for each in learned:
        for i, sigma in enumerate(each.sigmas.tolist()):
            assert each.predictions[i] == fixed[sigma].predictions[i]
