"""The vote store: f works once, and nothing else changes."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.oracles import LinearSelector
from varsmooth import FixedSelector, MedianSelector, SmoothedClassifier, certify
from varsmooth.certificates import Certificates
from varsmooth.errors import VarsmoothError
from varsmooth.runs.vote_cache import RememberingClassifier


class Counting(nn.Module):
    """A linear classifier that knows how many images it was shown."""

    def __init__(self, weight: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(weight))
        self.shown = 0

    def forward(self, x: Tensor) -> Tensor:
        self.shown += len(x)
        score = self.weight * (x.flatten(1)[:, 0] - 0.4)
        return torch.stack([score, -score], dim=1)


IMAGES = torch.linspace(0.3, 1, 4).view(4, 1, 1, 1).expand(4, 1, 1, 3).contiguous()


def dual(f: nn.Module, center: float = 0.4) -> SmoothedClassifier:
    selector = MedianSelector(LinearSelector(center, 1.0), 0.25, 51, (0.12, 1.0), 8)
    return SmoothedClassifier(f, selector)


def certified(g: SmoothedClassifier, seed: int = 5) -> Certificates:
    return certify(g, IMAGES, n0=20, n=50, n_select=101, alpha=0.05, seed=seed, ids=[3, 1, 7, 9])


def test_the_same_certificates_with_less_work(tmp_path: Path) -> None:
    f = Counting()
    plain, other = certified(dual(f)), certified(dual(f, center=0.5))
    without = f.shown
    f.shown = 0
    assert certified(RememberingClassifier(dual(f), tmp_path)).items == plain.items
    first = f.shown
    again = RememberingClassifier(dual(f), tmp_path)  # another process would start like this
    assert certified(again).items == plain.items
    assert f.shown == first, "f was asked again"
    assert certified(RememberingClassifier(dual(f, center=0.5), tmp_path)).items == other.items
    assert f.shown < without, "levels in common were paid twice"


def test_votes_are_never_mistaken_for_others(tmp_path: Path) -> None:
    f = Counting()
    g = RememberingClassifier(SmoothedClassifier(f, FixedSelector(0.25)), tmp_path)
    noise, sigma = g.noise(4, 5, [3, 1, 7, 9]), torch.full((4,), 0.25)
    g.votes(IMAGES, 50, sigma=sigma, noise=noise)
    f.shown = 0
    for change in (
        {"noise": g.noise(4, 6, [3, 1, 7, 9])},
        {"noise": g.noise(4, 5, [0, 2, 4, 6])},
        {"noise": noise.scoped("elsewhere")},
        {"sigma": sigma + 0.01},
        {"purpose": "class-selection"},
        {"purpose": "predict"},
    ):
        before = f.shown
        wanted = {"sigma": sigma, "noise": noise, **change}
        found = g.votes(IMAGES, 50, **wanted)  # type: ignore[arg-type]
        assert f.shown == before + 200, f"{change} was taken from the store"
        plain = SmoothedClassifier(f, FixedSelector(0.25)).votes(IMAGES, 50, **wanted)  # type: ignore[arg-type]
        assert torch.equal(found, plain)
        f.shown = before + 200
    before = f.shown
    g.votes(IMAGES * 0.99, 50, sigma=sigma, noise=noise)
    g.votes(IMAGES, 51, sigma=sigma, noise=noise)
    g.votes(IMAGES, 50, sigma=sigma, noise=noise, start=16)
    assert f.shown == before + 200 + 204 + 4 * 34


def test_other_weights_have_other_votes(tmp_path: Path) -> None:
    certified(RememberingClassifier(dual(Counting()), tmp_path))
    other = Counting(-1.0)
    found = certified(RememberingClassifier(dual(other), tmp_path))
    assert other.shown > 0
    assert found.items == certified(dual(other)).items


def test_a_torn_line_costs_one_count_and_nothing_else(tmp_path: Path) -> None:
    f = Counting()
    plain = certified(RememberingClassifier(dual(f), tmp_path))
    (file,) = tmp_path.rglob("votes-*.jsonl")
    file.write_bytes(file.read_bytes()[:-9])
    f.shown = 0
    assert certified(RememberingClassifier(dual(f), tmp_path)).items == plain.items
    assert f.shown == 50


def test_a_batch_that_is_stored_in_part(tmp_path: Path) -> None:
    f = Counting()
    g = RememberingClassifier(SmoothedClassifier(f, FixedSelector(0.25)), tmp_path)
    noise, sigma = g.noise(4, 5, [3, 1, 7, 9]), torch.full((4,), 0.25)
    g.votes(IMAGES[1:3], 50, sigma=sigma[1:3], noise=noise.rows([1, 2]))
    f.shown = 0
    found = g.votes(IMAGES, 50, sigma=sigma, noise=noise)
    assert f.shown == 100
    plain = SmoothedClassifier(f, FixedSelector(0.25))
    assert torch.equal(found, plain.votes(IMAGES, 50, sigma=sigma, noise=noise))


def test_a_smoothed_classifier_of_ones_own_is_refused(tmp_path: Path) -> None:
    class Own(SmoothedClassifier):
        pass

    with pytest.raises(VarsmoothError, match="of your own"):
        RememberingClassifier(Own(Counting(), FixedSelector(0.25)), tmp_path)
