"""`load` gives a smoothed classifier that follows the model's own advice."""

from pathlib import Path
from typing import Any

import pytest
import torch

from varsmooth._util.fingerprints import fingerprint
from varsmooth.errors import VarsmoothError
from varsmooth.models.checkpoints import save
from varsmooth.models.descriptions import Description, Part
from varsmooth.models.loading import load
from varsmooth.models.networks import AttentionSelector, Conv4
from varsmooth.selectors import FixedSelector, LearnedSelector, MedianSelector


def write(
    folder: Path, selector: bool, universal: bool = False, selector_sigma: float | None = 0.25
) -> None:
    widths = [8, 8, 8, 8]
    description = Description(
        dataset="cifar10",
        class_names=tuple("abcdefghij"),
        sigma_a=0.5,
        universal=universal,
        selector_sigma=selector_sigma,
        recommended={"lam": 0.2, "sigma_m": 0.3, "clip": [0.1, 0.4], "levels": 3},
        classifier=Part("conv4", {"widths": widths}),
        selector=Part("attention") if selector else None,
    )
    network = AttentionSelector() if selector else None
    save(folder, description, classifier=Conv4(widths=widths), selector=network)


def median(*arguments: Any, **options: Any) -> tuple[MedianSelector, LearnedSelector]:
    """The selector that `load` gives, and the one inside it."""
    selector = load(*arguments, **options).selector
    assert isinstance(selector, MedianSelector)
    assert isinstance(selector.selector, LearnedSelector)
    return selector, selector.selector


def test_a_pair_follows_its_recommendations(tmp_path: Path) -> None:
    write(tmp_path, selector=True)
    selector, learned = median(tmp_path)
    assert (selector.sigma_m, selector.clip) == (0.3, (0.1, 0.4))
    assert (learned.sigma_a, learned.lam) == (0.25, 0.2)
    assert selector.grid is not None
    assert median(tmp_path, lam=0.7)[1].lam == 0.7
    assert median(tmp_path, levels=0)[0].grid is None


@pytest.mark.parametrize(("universal", "level"), [(False, 0.5), (True, 0.25)])
def test_a_classifier_alone_is_smoothed_at_its_level(
    tmp_path: Path, universal: bool, level: float
) -> None:
    write(tmp_path, selector=False, universal=universal)
    smoothed = load(tmp_path)
    assert isinstance(smoothed.selector, FixedSelector)
    assert smoothed.selector.sigma == level
    assert smoothed.votes(torch.rand(2, 3, 32, 32), 16).sum(dim=1).tolist() == [16, 16]
    with pytest.raises(VarsmoothError, match="leave it out"):
        load(tmp_path, lam=0.5)


@pytest.mark.parametrize(("universal", "level"), [(False, 0.5), (True, 0.25)])
def test_a_selector_without_a_level_of_its_own_gets_the_level_f_was_trained_for(
    tmp_path: Path, universal: bool, level: float
) -> None:
    write(tmp_path, selector=True, universal=universal, selector_sigma=None)
    learned = load(tmp_path, selector="learned").selector
    assert isinstance(learned, LearnedSelector)
    assert learned.sigma_a == level


def test_a_misspelled_option_is_named(tmp_path: Path) -> None:
    write(tmp_path, selector=True)
    with pytest.raises(VarsmoothError, match="no option 'lamda'; did you mean lam"):
        load(tmp_path, lamda=0.3)


def test_a_cascade_is_a_list_of_levels_or_text(tmp_path: Path) -> None:
    write(tmp_path, selector=False)
    listed, text = (load(tmp_path, cascade=stages) for stages in ([0.5, 0.25], "0.5,0.25"))
    assert listed.selector.describe() == text.selector.describe()
    with pytest.raises(VarsmoothError, match="cascade must be LEVEL:THRESHOLD"):
        load(tmp_path, cascade=[0.25, 0.5])


def test_every_setting_reaches_the_selector(tmp_path: Path) -> None:
    write(tmp_path, selector=True)
    options: dict[str, Any] = {"lam": 0.6, "sigma_a": 0.2, "sigma_m": 0.7, "clip": (0.2, 0.3)}
    options |= {"levels": [0.2, 0.3], "n_median": 11, "lattice": True}
    selector, learned = median(tmp_path, **options)
    assert (learned.lam, learned.sigma_a) == (0.6, 0.2)
    assert (selector.sigma_m, selector.clip, selector.n) == (0.7, (0.2, 0.3), 11)
    assert selector.grid is not None
    assert selector.grid.levels == pytest.approx((0.2, 0.3))
    assert load(tmp_path, **options).lattice
    assert isinstance(load(tmp_path, sigma=0.1).selector, FixedSelector)


def test_bfloat16_is_another_classifier_with_nearly_the_same_scores(tmp_path: Path) -> None:
    write(tmp_path, selector=True, universal=True)
    exact, rounded = (load(tmp_path, sigma=0.25, precision=p) for p in ("float32", "bfloat16"))
    x, sigma = torch.rand(8, 3, 32, 32), torch.full((8,), 0.25)
    expected, reduced = exact.logits(x, sigma), rounded.logits(x, sigma)
    assert reduced.dtype == torch.float32
    assert 0 < (reduced - expected).abs().max() < 0.1 * expected.abs().max()
    for batch in (2, 4):  # what is voted on does not depend on what is computed together
        parts = [rounded.logits(x[i : i + batch], sigma[:batch]) for i in range(0, 8, batch)]
        assert torch.equal(torch.cat(parts), reduced)
    assert fingerprint(exact.classifier) != fingerprint(rounded.classifier)
    with pytest.raises(VarsmoothError, match="precision"):
        load(tmp_path, precision="float16")
