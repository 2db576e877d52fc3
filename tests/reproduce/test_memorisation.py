"""h over many passes on few images: measured on the way, resumed, and judged."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from reproduce import memorisation
from reproduce.memorisation import RATIOS, SETS, MemorisationScale, Study, memory_claim, width
from reproduce.tabulated import TabulatedClassifier, tabulated_answers
from tests.reproduce.commands import results, run
from tests.small_models import write_pair
from varsmooth.data import load_dataset
from varsmooth.models.networks.classifiers import Conv4
from varsmooth.noise import NoiseStream
from varsmooth.selectors import FixedSelector
from varsmooth.smoothing import SmoothedClassifier, evaluation_mode
from varsmooth.training.tasks import SelectorTask

TINY = (
    "--data cifar10-sample --train-split val --subset 16 --passes 2 --images 12 --draws 4 "
    "--classifiers released,batch --classifier-passes 1 --lams 0,0.2"
)


def test_it_is_measured_on_the_way_and_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_pair(tmp_path / "models" / "h-0.25", scale=1.0, spread=0.01)
    places = ("--models", tmp_path / "models", "--store", tmp_path / "store", "--device", "cpu")
    assert run(f"memorisation {TINY}", *places, "--out", tmp_path / "one") == 0
    config, (claim,), _ = results(tmp_path / "one")
    for kind in ("released", "batch"):
        seen = config["facts"][f"memorisation, σ_a = 0.25, f {kind}, 16 × 2"]
        assert list(seen) == ["0", "1", "2"]
        first, last = (seen[done]["held-out"]["0"] for done in "02")
        assert first["low"] != last["low"]  # h was trained in between
        assert width(first) < 0.1  # an untrained h tells images apart by little
        assert last["gain"][1] <= last["gain"][0] <= last["gain"][2]
    assert set(claim["numbers"]) == {f"σ_a = 0.25, released f, λ = {lam}" for lam in ("0", "0.2")}
    assert "overfitted f with BatchNorm, λ = 0.2: " in claim["why"]

    def never(*_: object, **__: object) -> None:
        raise AssertionError("what was seen is on disk")

    monkeypatch.setattr(memorisation, "variational_loss", never)
    monkeypatch.setattr(SelectorTask, "loss", never)
    assert run(f"memorisation {TINY}", *places, "--out", tmp_path / "two") == 0
    assert results(tmp_path / "two") == results(tmp_path / "one")


def test_a_table_of_answers_stands_for_f(tmp_path: Path) -> None:
    """At a level of the table: the mean over its draws; between levels nearly what f says."""
    data = load_dataset("cifar10-sample")[:5]
    torch.manual_seed(0)
    g = SmoothedClassifier(Conv4(widths=(4, 4, 4, 4)), FixedSelector(1.0), samples=8)
    levels, (x, _, ids) = [0.2, 0.22, 0.3], data.batch(slice(None))
    answers = tabulated_answers(g, data, levels, 8, 3, tmp_path)
    table = TabulatedClassifier(g.classifier, g.selector, answers, levels, ids.tolist(), 8)
    noise = NoiseStream.make(5, 3, ids)

    def exact(sigma: float) -> Tensor:
        """The same with the draws of the pool."""
        at = torch.full((5,), sigma)
        with evaluation_mode(g), torch.no_grad():
            found = [
                g.logits(noise.perturb(x[rows], at[rows], epsilon), at[rows]).log_softmax(dim=1)
                for rows, epsilon in noise.batches(x, "answers", 8)
            ]
        return torch.cat(found).view(5, 8, -1).logsumexp(dim=1) - math.log(8)

    for level in levels:
        found = table.scores(x, torch.full((5,), level), noise)
        assert torch.allclose(found, exact(level), atol=2e-3)  # half precision
    sigma = torch.full((5,), 0.21, requires_grad=True)
    found = table.scores(x, sigma, noise)
    assert torch.allclose(found, exact(0.21), atol=2e-3)
    assert not torch.allclose(exact(0.2), exact(0.22), atol=4e-3)  # or nothing was tested
    (slope,) = torch.autograd.grad(found[:, 3].sum(), sigma)
    expected = (exact(0.22) - exact(0.2))[:, 3] / (math.log(0.22 / 0.2) * 0.21)
    assert torch.allclose(slope, expected, atol=0.03)
    few = TabulatedClassifier(g.classifier, g.selector, answers, levels, ids.tolist(), 2)
    one, other = (few.scores(x, sigma.detach(), noise.scoped(name)) for name in "ab")
    assert not torch.equal(one, other)  # draws of the pool
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    again = tabulated_answers(g, data, levels, 8, 3, tmp_path)
    assert torch.equal(again, answers)
    assert kept == {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}


def test_h_is_trained_on_a_tabulated_f(tmp_path: Path) -> None:
    write_pair(tmp_path / "models" / "h-0.25", scale=1.0, spread=0.01)
    places = ("--models", tmp_path / "models", "--store", tmp_path / "store", "--device", "cpu")
    words = f"long-run {TINY.replace('released,batch', 'released')} --pool 12"
    assert run(words, *places, "--out", tmp_path / "one") == 0
    config, _, _ = results(tmp_path / "one")
    (seen,) = config["facts"].values()
    assert seen["0"]["held-out"]["0"]["low"] != seen["2"]["held-out"]["0"]["low"]
    assert len(list(tmp_path.rglob("answers-*.npy"))) == len(RATIOS)


def seen(train: float, other: float) -> dict[str, Any]:
    """What an h looks like that gains so much on its training images and on others."""
    gains = dict(zip(SETS, (train, other), strict=True))
    return {
        "100": {
            which: {
                "0": {
                    "low": 0.16,
                    "high": 0.24,
                    "objective": 0.5,
                    "gain": [gain, gain - 0.01, gain + 0.01],
                }
            }
            for which, gain in gains.items()
        }
    }


@pytest.mark.parametrize(
    ("train", "other", "verdict"),
    [
        (0.1, -0.1, "confirmed"),
        (0.1, 0.05, "confirmed"),
        (0.1, 0.086, "undecided"),  # ± 0.01 each: ± 0.0141 together
        (0.1, 0.1, "undecided"),
        (0.0, 0.1, "refuted"),
    ],
)
def test_memory_gains_more_on_its_own_images(train: float, other: float, verdict: str) -> None:
    scale = MemorisationScale(passes=100, lams=(0.0,))
    claim = memory_claim([Study(0.25, "released", seen(train, other))], scale)
    assert claim.verdict == verdict
    assert "40 % on training images, 40 % on held-out ones, Table 2 40 %" in claim.why
