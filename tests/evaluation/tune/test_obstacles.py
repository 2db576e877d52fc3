"""The message why no cascade helps, for votes constructed so that one reason is true."""

import numpy as np
import pytest

from varsmooth.evaluation.tune.cascade import singles
from varsmooth.evaluation.tune.obstacles import why_one_level
from varsmooth.evaluation.tune.table import ConfidentVotes

N, CLASSES = 1000, 3


def votes(levels: tuple[float, ...], shares: list[list[float]]) -> ConfidentVotes:
    """Images of class 0; shares[i][j] of the votes at level j name it, the others class 1."""
    right = np.array(shares)  # (N, L)
    counts = np.stack([right, 1 - right, 0 * right], axis=2)[..., None]

    def of(n: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
        return np.round(n * counts).astype(np.int64)

    labels = np.zeros(len(shares), dtype=np.int64)
    return ConfidentVotes(levels, (0.0,), of(N), of(100), labels, N, 100)


@pytest.mark.parametrize(
    ("shares", "sentence"),
    [
        (
            [[0.9, 0.3], [0.95, 0.2], [0.9, 0.9]],
            "f fits one noise level: the vote is right on 100%",
        ),
        ([[0.9, 0.95], [0.92, 0.95], [0.9, 0.94]], "the images agree on σ = 0.5"),
        (
            [[0.99, 0.995], [0.2, 0.95], [0.2, 0.96], [0.2, 0.97]],
            "at larger σ f misclassifies too many images (25% right at σ = 0.5)",
        ),
    ],
    ids=["one level", "agreement", "wrong"],
)
def test_the_reason_is_the_one_that_holds(shares: list[list[float]], sentence: str) -> None:
    table = votes((0.5, 0.25), shares)
    best = max(singles(table), key=lambda rule: rule.value.radius)
    assert sentence in why_one_level(best, table)
