"""A model card states what was measured, on the images it names."""

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch import Tensor, nn

from tests.evaluation import Output
from tests.evaluation.tune.test_selector import Bright, images
from varsmooth import VarsmoothError
from varsmooth.cli import main
from varsmooth.data import ImageDataset, load_dataset
from varsmooth.evaluation.measure import (
    best_levels,
    measure,
    measure_classifier,
    measure_selector,
    measured_levels,
)
from varsmooth.evaluation.tune.selector import VoteTable
from varsmooth.models.cards import card, overview, plain
from varsmooth.models.checkpoints import Checkpoint, load_checkpoint, save
from varsmooth.models.descriptions import Description, Part, describe
from varsmooth.models.networks import build

LEVELS = (0.1, 0.2, 0.4)
OTHER = {"images": 7, "votes": 3, "smoothed_accuracy": {"0.25": 61.0}}


class Margin(nn.Module):
    """h: larger levels the farther the mean is from ½; the other way round if sign < 0."""

    def __init__(self, sign: float) -> None:
        super().__init__()
        self.sign = nn.Parameter(torch.tensor(sign))

    def forward(self, x: Tensor, sigma_a: Tensor, lam: Tensor) -> Tensor:
        return sigma_a * torch.exp(self.sign * (x.mean(dim=(1, 2, 3)) - 0.5).abs() + lam)


def test_best_level_is_the_one_with_the_largest_radius_of_the_label() -> None:
    counts = np.array(
        [
            [[100, 0], [100, 0], [60, 40]],  # sure up to 0.2
            [[100, 0], [100, 0], [99, 1]],  # still sure at 0.4
            [[0, 100], [0, 100], [0, 100]],  # always wrong
        ]
    )
    best = best_levels(VoteTable(LEVELS, counts, np.array([0, 0, 0])))
    assert best[:2].tolist() == [0.2, 0.4]
    assert np.isnan(best[2])


def test_accuracy_is_that_of_the_closed_form() -> None:
    """P(right) = Φ(margin √d / σ) > ½ for every image, so the vote is right wherever f is."""
    metrics, table = measure_classifier(Bright(), images(), LEVELS, votes=400)
    assert metrics["plain_accuracy"] == 100
    assert set(metrics["smoothed_accuracy"]) == {"0.1", "0.2", "0.4"}
    margin = np.abs(images().images.mean(axis=(1, 2, 3)) / 255 - 0.5)
    expected = norm.cdf(margin[:, None] * 4 / np.asarray(LEVELS))  # √d = 4
    share = np.take_along_axis(table.counts, table.labels[:, None, None], axis=2)[..., 0] / 400
    np.testing.assert_allclose(share, expected, atol=0.13)  # five standard errors


@pytest.mark.parametrize(("sign", "low", "high"), [(6.0, 0.5, 1.0), (-6.0, -1.0, -0.5)])
def test_rank_correlation_tells_a_good_selector_from_a_bad_one(
    sign: float, low: float, high: float
) -> None:
    f, data = Bright(), images()
    _, table = measure_classifier(f, data, LEVELS, votes=400)
    metrics = measure_selector(f, Margin(sign), 0.05, data, (0.0, 0.5), 101, table)
    assert low < metrics["sigma"]["0"]["rank_correlation"] <= high
    assert metrics["sigma"]["0.5"]["mean"] > metrics["sigma"]["0"]["mean"]


def test_a_constant_selector_has_no_rank_correlation() -> None:
    f, data = Bright(), images()
    _, table = measure_classifier(f, data, LEVELS, votes=50)
    metrics = measure_selector(f, Margin(0.0), 0.05, data, (0.0,), 3, table)
    assert metrics["sigma"]["0"]["rank_correlation"] is None
    assert metrics["sigma"]["0"]["std"] == 0


def test_measure_writes_description_and_card(tmp_path: Path, capsys: Output) -> None:
    torch.manual_seed(0)
    small = {"widths": (4, 4, 4, 4)}
    about = Description(
        dataset="cifar10-sample",
        class_names=load_dataset("cifar10-sample").class_names,
        sigma_a=0.25,
        selector_sigma=0.25,
        sigma_t=0.5,
        lam_range=(0.0, 1.0),
        classifier=Part(
            "conv4",
            small,
            history=[{"epoch": 1, "seconds": 2.0, "loss": 1.5}],
            metrics={"val": OTHER},
        ),
        selector=Part("attention", {"width": 8}),
    )
    folder = tmp_path / "pair"
    save(folder, about, build("conv4", small), build("attention", {"width": 8}))
    before = (folder / "model.safetensors").read_bytes()
    options = ["--split", "test", "--images", "12", "--n", "16", "--n-select", "3"]
    assert main(["measure", str(folder), *options]) == 0
    output = capsys.readouterr().out
    assert "Accuracy of f without noise" in output
    assert "Selector h" in output, "what was measured of h is shown too"
    assert "epoch" not in output
    description = describe(folder)
    assert description.classifier is not None
    assert description.selector is not None
    assert description.classifier.metrics.keys() == {"val", "test"}, "other splits are kept"
    accuracy = description.classifier.metrics["test"]["smoothed_accuracy"]
    assert [float(level) for level in accuracy] == measured_levels(0.25, universal=False)
    assert len(description.selector.metrics["test"]["sigma"]) == 10
    assert (folder / "model.safetensors").read_bytes() == before
    load_checkpoint(folder)  # the fingerprints still fit
    text = (folder / "README.md").read_text()
    for level, value in accuracy.items():
        assert level in text
        assert f"{value:g}" in text
    assert "| epoch | loss |" in text
    assert text == card("pair", description)
    certified = description.classifier.metrics["test"]["certified"]
    assert certified.keys() == accuracy.keys()
    assert all(certified[level]["0"] <= accuracy[level] for level in accuracy)
    line = next(line for line in overview([str(folder)]) if str(folder) in line).split()
    assert line[1:4] == ["0.25", "attention", "test"]
    assert [float(value) for value in line[5:8]] == [
        certified["0.25"][r] for r in ("0", "0.25", "0.5")
    ]
    assert main(["models", str(folder)]) == 0
    shown = capsys.readouterr().out
    titles = ("Intended use", "Limits", "certified at 0.5", "Licence")
    assert all(title in shown for title in titles)
    assert not any(mark in shown for mark in ("epoch", *"#|`"))
    assert main(["models", str(folder), "--log", "true"]) == 0
    assert "epoch  loss" in capsys.readouterr().out


def test_certified_accuracy_is_that_of_the_closed_form() -> None:
    """At level σ image i is certified at r if Φ(margin √d / σ) is bounded below by Φ(r / σ)."""
    metrics, _ = measure_classifier(Bright(), images(), LEVELS, votes=2000)
    margin = np.abs(images().images.mean(axis=(1, 2, 3)) / 255 - 0.5) * 4  # true radius: √d = 4
    for level, certified in metrics["certified"].items():
        most = float(level) * norm.ppf((1e-3) ** (1 / 2000))
        expected = np.minimum(margin, most).mean()
        assert 0.6 * expected < certified["average_radius"] <= expected
        assert certified["0.25"] <= 100 * ((margin >= 0.25) & (most >= 0.25)).mean() + 1e-9


def test_tables_are_aligned() -> None:
    lines = plain("# T\n\n| a | bb |\n|---|---|\n| `ccc` | d |\n").splitlines()
    assert lines == ["T", "", "  a    bb", "  ccc  d"]


def test_measure_refuses_what_it_cannot_do(tmp_path: Path, capsys: Output) -> None:
    assert main(["measure", "cifar10-0.25", "--n-select", "4"]) == 2
    assert "--n-select must be an odd number" in capsys.readouterr().err
    data = images()
    bare = ImageDataset("toy", "val", data.images, None, data.ids, data.class_names)
    with pytest.raises(VarsmoothError, match="no labels"):
        measure_classifier(Bright(), bare, LEVELS, 10)


def test_one_level_more_keeps_the_rest_of_the_card() -> None:
    about = Description(
        "toy",
        ("bright", "dark"),
        0.25,
        classifier=Part("conv4", metrics={"val": OTHER | {"certified": {"0.5": {"0": 3.0}}}}),
    )
    measured = measure(Checkpoint(about, Bright(), None), images(), votes=50, levels=(0.1,))
    assert measured.classifier is not None
    metrics = measured.classifier.metrics["val"]
    assert metrics["smoothed_accuracy"] == OTHER["smoothed_accuracy"]
    assert metrics["certified"]["0.5"] == {"0": 3.0}
    assert (metrics["certified"]["0.1"]["images"], metrics["certified"]["0.1"]["votes"]) == (40, 50)
    assert "| σ | 0.1 | 0.25 | 0.5 |" in card("toy", measured)
