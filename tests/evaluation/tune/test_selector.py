"""tune scores settings offline exactly as certify would, and chooses the best of them."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.evaluation import Output
from varsmooth import (
    LearnedSelector,
    MedianSelector,
    Options,
    SmoothedClassifier,
    VarsmoothError,
    certify,
)
from varsmooth.cli import main
from varsmooth.data import ImageDataset
from varsmooth.data.cifar10 import CLASS_NAMES
from varsmooth.defaults import N_SELECT
from varsmooth.evaluation.options import TuneOptions
from varsmooth.evaluation.tune.selector import sample_selector, score_grid, tabulate_votes, tune
from varsmooth.models.cards import card, write_card
from varsmooth.models.checkpoints import save
from varsmooth.models.descriptions import Description, Part, describe, recommend
from varsmooth.models.networks import build


class Bright(nn.Module):
    """Class 0 where the image is bright; noise of level σ makes it right with Φ(margin·√d/σ)."""

    def __init__(self) -> None:
        super().__init__()
        self.zero = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        score = x.mean(dim=(1, 2, 3)) - 0.5 + self.zero
        return torch.stack([score, -score], dim=1)


class Contrast(nn.Module):
    """h grows with λ and with the distance of the mean from ½."""

    def forward(self, x: Tensor, sigma_a: Tensor, lam: Tensor) -> Tensor:
        return sigma_a * torch.exp(4 * (x.mean(dim=(1, 2, 3)) - 0.5).abs() + lam)


class Far(nn.Module):
    """h whose levels exceed every grid."""

    def forward(self, x: Tensor, sigma_a: Tensor, lam: Tensor) -> Tensor:
        return 9 * sigma_a


def images(n: int = 40) -> ImageDataset:
    means = np.random.default_rng(0).integers(90, 166, n)
    pixels = np.broadcast_to(means[:, None, None, None], (n, 4, 4, 1)).astype(np.uint8)
    labels = (means < 127.5).astype(np.int64)
    return ImageDataset("toy", "val", pixels, labels, np.arange(n), ("bright", "dark"))


@pytest.fixture
def data() -> ImageDataset:
    return images(24)


@pytest.fixture
def g() -> SmoothedClassifier:
    return SmoothedClassifier(Bright(), LearnedSelector(Contrast(), 0.25, 0.0))


def test_offline_scores_are_those_of_certify(g: SmoothedClassifier, data: ImageDataset) -> None:
    levels = (0.125, 0.25, 0.5)
    learned = g.selector
    assert isinstance(learned, LearnedSelector)
    table = tabulate_votes(g, data, levels, n=200, seed=3)
    raw = sample_selector(g, data, 0.2, 0.25, 301, seed=3)
    assert learned.lam == 0.0
    learned.lam = 0.2
    protected = SmoothedClassifier(g.classifier, MedianSelector(learned, 0.25, levels=levels))
    x, _, ids = data.batch(slice(None))
    options = Options(n0=300, n_select=301)
    certificates = certify(protected, x, n=200, seed=3, ids=ids, options=options)
    right = certificates.prediction == torch.tensor(data.known_labels)
    radii = torch.where(right, certificates.radius, 0)
    offline = score_grid(table, raw, 0.25, (0, 1, 2), "radius", 0.0)
    assert offline == pytest.approx(float(radii.mean()), rel=1e-9)
    offline = score_grid(table, raw, 0.25, (0, 1, 2), "certified", 0.1)
    assert offline == pytest.approx(float((radii >= 0.1).double().mean()))
    assert 0.2 < offline < 1


def test_the_best_setting_wins(g: SmoothedClassifier, data: ImageDataset) -> None:
    options = {"lams": (0.0, 0.5), "sigma_ms": (0.25,), "levels": 4, "n": 200}
    tuning = tune(g, data, "radius", unclipped=0, **options)  # type: ignore[arg-type]
    assert tuning.best.lam in (0.0, 0.5)
    assert tuning.best.clip == (tuning.best.levels[0], tuning.best.levels[-1])
    table = tabulate_votes(g, data, np.geomspace(0.0625, 0.5, 4).tolist(), 200, seed=0)
    learned = g.selector
    assert isinstance(learned, LearnedSelector)
    for lam in (0.0, 0.5):
        raw = sample_selector(g, data, lam, 0.25, 301, seed=0)
        for columns in [(0, 1), (0, 1, 2), (0, 1, 2, 3), (1, 2), (1, 2, 3), (2, 3), (0, 2), (1, 3)]:
            assert score_grid(table, raw, 0.25, columns, "radius", 0) <= tuning.best.score + 1e-6
    assert tuning.fixed_score > 0


def test_goals_are_different(g: SmoothedClassifier, data: ImageDataset) -> None:
    clean = tune(g, data, "clean", lams=(0.0,), sigma_ms=(0.25,), levels=4, n=100)
    assert 0.8 < clean.best.score <= 1
    far = tune(g, data, "certified", 0.25, lams=(0.0,), sigma_ms=(0.25,), levels=4, n=100)
    assert far.best.score < clean.best.score
    assert max(far.best.levels) >= 0.25  # only large σ certifies far


def test_the_selector_chooses_and_not_the_clip(g: SmoothedClassifier, data: ImageDataset) -> None:
    learned = g.selector
    assert isinstance(learned, LearnedSelector)
    tuning = tune(g, data, "radius", lams=(0.0, 0.5), sigma_ms=(0.25,), levels=6, n=100)
    raw = sample_selector(g, data, tuning.best.lam, 0.25, 301, seed=0)
    low, high = tuning.best.levels[0], tuning.best.levels[-1]
    assert ((low <= raw[:, 150]) & (raw[:, 150] <= high)).mean() >= 0.9
    free = tune(g, data, "radius", lams=(0.0, 0.5), sigma_ms=(0.25,), levels=6, n=100, unclipped=0)
    assert free.best.score >= tuning.best.score
    far = SmoothedClassifier(Bright(), LearnedSelector(Far(), 0.25, 0.0))
    with pytest.raises(VarsmoothError, match=r"no grid between 0\.0625 and 0\.5"):
        tune(far, data, "radius", lams=(0.0,), sigma_ms=(0.25,), levels=4, n=50)


def test_wrong_use_is_refused(g: SmoothedClassifier, data: ImageDataset) -> None:
    with pytest.raises(VarsmoothError, match="radius"):
        tune(g, data, "certified")
    with pytest.raises(VarsmoothError, match="radius"):
        tune(g, data, "clean", 0.5)
    fixed = SmoothedClassifier(Bright(), MedianSelector(LearnedSelector(Contrast(), 0.25, 0), 0.25))
    with pytest.raises(VarsmoothError, match="learned selector"):
        tune(fixed, data, "clean")


def test_the_command_writes_its_choice(tmp_path: Path, capsys: Output) -> None:
    torch.manual_seed(0)
    classifier = build("conv4", {"widths": [4, 4, 4, 4]})
    selector = build("attention", {"width": 8, "heads": 1})
    part = Part("conv4", {"widths": [4, 4, 4, 4]}), Part("attention", {"width": 8, "heads": 1})
    about = Description(
        "cifar10-sample", CLASS_NAMES, 0.25, classifier=part[0], selector=part[1],
        selector_sigma=0.25, sigma_t=0.5,
    )  # fmt: skip
    save(tmp_path / "pair", about, classifier, selector)
    command = [
        "tune", str(tmp_path / "pair"), "--images", "8", "--n", "20",
        "--n-select", "21", "--goal", "clean", "--lams", "0,0.3", "--levels", "3",
    ]  # fmt: skip
    assert main(command) == 0
    assert "  one σ  " in capsys.readouterr().out
    advice = describe(tmp_path / "pair").recommended
    assert set(advice) == {"lam", "sigma_m", "clip", "levels"}
    assert advice["lam"] in (0, 0.3)
    page = tmp_path / "pair" / "README.md"
    assert not page.exists()
    write_card(page.parent, recommend(page.parent, {"lam": 0.9}))
    assert main(command) == 0
    assert page.read_text() == card("pair", describe(page.parent))  # the card follows the choice
    page.write_text("mine")
    assert main(command) == 0
    assert page.read_text() == "mine"


def test_h_is_judged_at_the_draws_that_certify_takes() -> None:
    """With fewer its entry distances are smaller, and one σ would win too often."""
    assert TuneOptions().n_select == N_SELECT
