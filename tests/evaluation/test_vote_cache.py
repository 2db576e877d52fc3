"""The vote store: f works once, and nothing else changes."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.oracles import LinearSelector
from varsmooth import FixedSelector, MedianSelector, Options, SmoothedClassifier, certify
from varsmooth.cascade import CascadeSelector
from varsmooth.certificates import Certificates
from varsmooth.errors import VarsmoothError
from varsmooth.evaluation.vote_cache import CachedSmoothedClassifier


class Tally:
    """Not a number: those are part of a network's identity."""

    images = 0


class Counting(nn.Module):
    """A linear classifier that knows how many images it was shown."""

    def __init__(self, weight: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(weight))
        self.seen = Tally()

    def forward(self, x: Tensor) -> Tensor:
        self.seen.images += len(x)
        score = self.weight * (x.flatten(1)[:, 0] - 0.4)
        return torch.stack([score, -score], dim=1)


PROBE = 12
"""Images behind the check of a new g and behind its identity, see `varsmooth.probe`."""

IMAGES = torch.linspace(0.3, 1, 4).view(4, 1, 1, 1).expand(4, 1, 1, 3).contiguous()


def dual(f: nn.Module, center: float = 0.4) -> SmoothedClassifier:
    selector = MedianSelector(LinearSelector(center, 1.0), 0.25, 51, (0.12, 1.0), 8)
    return SmoothedClassifier(f, selector)


def certified(g: SmoothedClassifier, seed: int = 5) -> Certificates:
    return certify(
        g,
        IMAGES,
        n=50,
        alpha=0.05,
        seed=seed,
        ids=[3, 1, 7, 9],
        options=Options(n0=20, n_select=101),
    )


def test_the_same_certificates_with_less_work(tmp_path: Path) -> None:
    f = Counting()
    plain, other = certified(dual(f)), certified(dual(f, center=0.5))
    without = f.seen.images
    f.seen.images = 0
    assert certified(CachedSmoothedClassifier(dual(f), tmp_path)).items == plain.items
    first = f.seen.images
    again = CachedSmoothedClassifier(dual(f), tmp_path)  # another process would start like this
    assert certified(again).items == plain.items
    assert f.seen.images == first + 2 * PROBE, "f was called again"
    assert certified(CachedSmoothedClassifier(dual(f, center=0.5), tmp_path)).items == other.items
    assert f.seen.images < without, "levels in common were paid twice"


def test_votes_are_never_mistaken_for_others(tmp_path: Path) -> None:
    f = Counting()
    g = CachedSmoothedClassifier(SmoothedClassifier(f, FixedSelector(0.25)), tmp_path)
    noise, sigma = g.noise(4, 5, [3, 1, 7, 9]), torch.full((4,), 0.25)
    g.votes(IMAGES, 50, sigma=sigma, noise=noise)
    f.seen.images = 0
    for change in (
        {"noise": g.noise(4, 6, [3, 1, 7, 9])},
        {"noise": g.noise(4, 5, [0, 2, 4, 6])},
        {"noise": noise.scoped("elsewhere")},
        {"sigma": sigma + 0.01},
        {"purpose": "class-selection"},
        {"purpose": "predict"},
    ):
        before = f.seen.images
        wanted: dict[str, Any] = {"sigma": sigma, "noise": noise, **change}
        cached = g.votes(IMAGES, 50, **wanted)
        assert f.seen.images == before + 200, f"{change} was taken from the store"
        plain = SmoothedClassifier(f, FixedSelector(0.25)).votes(IMAGES, 50, **wanted)
        assert torch.equal(cached, plain)
        f.seen.images = before + 200
    before = f.seen.images
    g.votes(IMAGES * 0.99, 50, sigma=sigma, noise=noise)
    g.votes(IMAGES, 51, sigma=sigma, noise=noise)
    g.votes(IMAGES, 50, sigma=sigma, noise=noise, start=16)
    assert f.seen.images == before + 200 + 204 + 4 * 34


def test_other_weights_have_other_votes(tmp_path: Path) -> None:
    certified(CachedSmoothedClassifier(dual(Counting()), tmp_path))
    other = Counting(-1.0)
    certificates = certified(CachedSmoothedClassifier(dual(other), tmp_path))
    assert other.seen.images > 0
    assert certificates.items == certified(dual(other)).items


def test_a_torn_line_costs_one_count_and_nothing_else(tmp_path: Path) -> None:
    """Nor do lines that hold no votes, or whose counts do not sum to n."""
    f = Counting()
    plain = certified(CachedSmoothedClassifier(dual(f), tmp_path))
    (file,) = tmp_path.rglob("votes-*.jsonl")
    first, *lines = file.read_bytes().splitlines(keepends=True)
    fewer = first.replace(b"[50, 0]", b"[49, 0]").replace(b"[0, 50]", b"[0, 49]")
    odd = b'[]\n{}\n7\nnull\n[[],1]\n\xff\n["x",0,0,"votes",1,[],"",[1]]\n'
    odd += b'["x",0,0,"votes",0,1,"",["a"]]\n' + b"[" * 100_000 + b"\n"
    file.write_bytes(odd + fewer + b"".join(lines)[:-9])
    f.seen.images = 0
    assert certified(CachedSmoothedClassifier(dual(f), tmp_path)).items == plain.items
    assert f.seen.images - 50 - 2 * PROBE in (0, 20, 50)


def test_a_batch_that_is_stored_in_part(tmp_path: Path) -> None:
    f = Counting()
    g = CachedSmoothedClassifier(SmoothedClassifier(f, FixedSelector(0.25)), tmp_path)
    noise, sigma = g.noise(4, 5, [3, 1, 7, 9]), torch.full((4,), 0.25)
    g.votes(IMAGES[1:3], 50, sigma=sigma[1:3], noise=noise.rows([1, 2]))
    f.seen.images = 0
    counts = g.votes(IMAGES, 50, sigma=sigma, noise=noise)
    assert f.seen.images == 100
    plain = SmoothedClassifier(f, FixedSelector(0.25))
    assert torch.equal(counts, plain.votes(IMAGES, 50, sigma=sigma, noise=noise))


def test_gated_votes_are_kept_apart(tmp_path: Path) -> None:
    """A gate turns votes of f into "pass" votes, so its counts are others."""
    selectors = [
        CascadeSelector([0.5, 0.25], gates=gates) for gates in (None, [0.6, 0.6], [0.7, 0.7])
    ]
    for selector in selectors:
        g = SmoothedClassifier(Counting(), selector)
        assert certified(CachedSmoothedClassifier(g, tmp_path)).items == certified(g).items


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"format": 1, "probe": {"shape": [1, 1]}}'])
def test_votes_without_the_outputs_of_their_model_are_not_used(
    tmp_path: Path, damage: bytes
) -> None:
    f = Counting()
    certified(CachedSmoothedClassifier(dual(f), tmp_path))
    (file,) = tmp_path.rglob("probe.json")
    file.write_bytes(damage)
    first = f.seen.images
    certified(CachedSmoothedClassifier(dual(f), tmp_path))
    assert f.seen.images == 2 * first


def test_a_smoothed_classifier_of_ones_own_is_refused(tmp_path: Path) -> None:
    class Own(SmoothedClassifier):
        pass

    with pytest.raises(VarsmoothError, match="of your own"):
        CachedSmoothedClassifier(Own(Counting(), FixedSelector(0.25)), tmp_path)
