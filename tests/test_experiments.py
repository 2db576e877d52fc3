"""Every experiment end to end at a tiny scale, and its numbers against independent ones."""

import json
from pathlib import Path

import pytest

from varsmooth.errors import VarsmoothError
from varsmooth.experiments.catalogue import every_experiment, find_experiment
from varsmooth.experiments.context import Context
from varsmooth.experiments.experiment import Need, Scale, reductions, resized

from .small_models import run


def test_sizes_are_options() -> None:
    scale = resized(Scale(), ["images=7", "sigmas=0.25", "data=cifar10-sample"])
    assert (scale.images, scale.sigmas, scale.data) == (7, (0.25,), "cifar10-sample")
    with pytest.raises(VarsmoothError, match="no size 'image'"):
        resized(Scale(), ["image=7"])
    with pytest.raises(VarsmoothError, match="cannot be read"):
        resized(Scale(), ["images=many"])


@pytest.mark.parametrize("experiment", every_experiment(), ids=lambda e: e.name)
def test_an_experiment_says_what_it_is(experiment: object) -> None:
    from varsmooth.experiments.experiment import Experiment

    assert isinstance(experiment, Experiment)
    assert set(experiment.scales) == set(experiment.time) == {"cpu", "paper"}
    assert not reductions(experiment.scales["paper"], experiment.scales["paper"])
    assert find_experiment(experiment.name) is experiment


def test_what_is_missing_is_one_sentence(tmp_path: Path) -> None:
    context = Context(tmp_path, models=tmp_path)
    text = context.lack([Need.fixed(0.5), Need("universal-1.00", selector=True)])
    assert "cifar10-0.50, cifar10-universal-1.00 with its selector" in text
    assert "varsmooth train classifier cpu/f-0.50" in text
    assert "\n" not in text


def test_the_list_names_every_experiment(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("experiment list") == 0
    told = capsys.readouterr().out
    assert all(experiment.paper in told for experiment in every_experiment())


def test_percentiles(tmp_path: Path) -> None:
    assert run("experiment percentiles --out", tmp_path / "percentiles") == 0
    (claim,) = json.loads((tmp_path / "percentiles" / "claims.json").read_text())
    gaps = list(claim["numbers"]["largest_gap"].values())
    assert gaps == sorted(gaps, reverse=True)
    assert 6 < gaps[0] < 8  # about 4.42 σ of a fair coin in 1,000 tosses: 100·4.42·0.5/√1000
    assert run("experiment claims --results", tmp_path) == 0
    page = (tmp_path / "README.md").read_text()
    assert "**held**" in page
    assert "varsmooth experiment percentiles" in page
