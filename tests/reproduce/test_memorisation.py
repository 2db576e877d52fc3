"""h over many passes on few images: measured on the way, resumed, and judged."""

from pathlib import Path
from typing import Any

import pytest

from reproduce import memorisation
from reproduce.memorisation import SETS, MemorisationScale, Study, memory_claim, width
from tests.reproduce.commands import results, run
from tests.small_models import write_pair
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
    assert set(claim["numbers"]) == {
        f"σ_a = 0.25, f {kind}, λ = {lam}" for kind in ("released", "batch") for lam in ("0", "0.2")
    }

    def never(*_: object, **__: object) -> None:
        raise AssertionError("what was seen is on disk")

    monkeypatch.setattr(memorisation, "variational_loss", never)
    monkeypatch.setattr(SelectorTask, "loss", never)
    assert run(f"memorisation {TINY}", *places, "--out", tmp_path / "two") == 0
    assert results(tmp_path / "two") == results(tmp_path / "one")


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
        (0.1, 0.05, "refuted"),
        (0.1, 0.0, "undecided"),
        (0.0, -0.1, "undecided"),
    ],
)
def test_memory_gains_on_its_own_images_only(train: float, other: float, verdict: str) -> None:
    scale = MemorisationScale(passes=100, lams=(0.0,))
    claim = memory_claim([Study(0.25, "released", seen(train, other))], scale)
    assert claim.verdict == verdict
    assert (
        "width 40.0 % on training images, 40.0 % on held-out ones, Table 2 40 %" in claim.measured
    )
