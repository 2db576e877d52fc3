"""f_u with and without the noise level as an input."""

from pathlib import Path

import pytest
import torch

from reproduce.conditioning import BlindClassifier
from tests.reproduce.commands import results, run
from varsmooth.models.networks.classifiers import Conv4


@pytest.mark.parametrize(("network", "knows"), [(Conv4, True), (BlindClassifier, False)])
def test_only_one_knows_the_level(network: type[Conv4], knows: bool) -> None:
    torch.manual_seed(0)
    f = network(widths=(4, 4, 4, 4), conditional=True)
    x, levels = torch.rand(2, 3, 32, 32), (torch.full((2,), 0.1), torch.full((2,), 0.9))
    with torch.no_grad():
        assert torch.equal(*(f(x, level) for level in levels)) is not knows


def test_two_classifiers_that_differ_in_one_input(tmp_path: Path) -> None:
    words = "conditioning --data cifar10-sample --train-split val --epochs 1 --images 60 --n 20"
    out, store = tmp_path / "out", tmp_path / "store"
    assert run(f"{words} --sigmas 0.1,0.5 --device cpu", "--store", store, "--out", out) == 0
    _, (claim,), lines = results(out)

    def right(name: str, sigma: str) -> float:
        mine = [line for line in lines if line["run"] == f"g, {name}, σ_s = {sigma}"]
        assert len(mine) == 60
        return sum(line["prediction"] == line["label"] for line in mine) / 60

    gaps = {
        f"σ_s = {s}": right("σ is an input", s) - right("σ is hidden", s) for s in ("0.1", "0.5")
    }
    assert claim["numbers"] == pytest.approx(gaps)
    assert any(gaps.values())
    assert len(list((store / "classifiers").iterdir())) == 2
