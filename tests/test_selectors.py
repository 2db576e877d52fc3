"""The contract of a noise-level selector: one table, and every selector passes all of it."""

import json
from collections.abc import Callable, Iterator
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.oracles import arguments
from varsmooth import (
    CascadeSelector,
    Certificate,
    FixedSelector,
    LearnedSelector,
    MedianSelector,
    NoiseSelector,
    SmoothedClassifier,
    certify,
    certify_as_paper,
    certify_at,
    pgd,
    predict,
)
from varsmooth.evaluation.records import read_certificate
from varsmooth.smoothing import Selector


class Network(nn.Module):
    """h whose level depends on the image, σ_a and λ; batch statistics and dropout as in f."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.drop = nn.BatchNorm2d(3), nn.Dropout()
        self.weight = nn.Parameter(torch.tensor(0.3))

    def forward(self, x: Tensor, sigma_a: Tensor, lam: Tensor) -> Tensor:
        mean = self.drop(self.norm(x)).mean(dim=(1, 2, 3))
        return sigma_a * torch.exp(self.weight * mean + lam)


def brightness(x: Tensor) -> Tensor:
    return x.mean(dim=(1, 2, 3))


def learned() -> LearnedSelector:
    return LearnedSelector(Network(), 0.25, 0.2)


SELECTORS: dict[str, Callable[[], Selector]] = {
    "fixed": lambda: FixedSelector(0.25),
    "learned": learned,
    "median": lambda: MedianSelector(learned(), 0.25, n=51),
    "callable": lambda: MedianSelector(brightness, 0.25, n=51),
    "clipped": lambda: MedianSelector(brightness, 0.25, n=51, clip=(0.2, 0.3)),
    "grid": lambda: MedianSelector(learned(), 0.25, n=51, clip=(0.1, 1), levels=8),
    "cascade": lambda: CascadeSelector([0.5, 0.25, 0.12], [0.7, 0.6, 0.5]),
    "gated": lambda: CascadeSelector([0.5, 0.25], gates=[0.3, 0.3]),
}


@pytest.fixture(params=SELECTORS)
def g(request: pytest.FixtureRequest) -> SmoothedClassifier:
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(), nn.Flatten()
    last = nn.Linear(144, 5)
    with torch.no_grad():  # class 0 for bright images, class 1 for dark ones
        layers[0].weight.abs_()
        last.weight.zero_()[0].fill_(0.05)
        last.bias.copy_(torch.tensor([-2.5, 0, -9, -9, -9]))
    f = nn.Sequential(*layers, last)
    return SmoothedClassifier(f, SELECTORS[request.param]()).eval()


@pytest.fixture
def x() -> Tensor:
    """Dark and less dark, so that votes stop early for some images and not for others."""
    images = torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    return images * torch.tensor([0.1, 0.3, 0.2, 0.25, 0.4, 0.35]).view(-1, 1, 1, 1)


FEW: dict[str, Any] = {"n": 64, "n0": 32, "n_select": 101, "seed": 9}


def certified(g: SmoothedClassifier, x: Tensor, **more: Any) -> list[Certificate]:
    """The certificate that g has: sound where there is one."""
    grid = isinstance(g.selector, MedianSelector) and g.selector.grid is not None
    sound = grid or isinstance(g.selector, FixedSelector | CascadeSelector)
    return list(
        certify(g, x, **arguments(**FEW | {"method": "sound" if sound else "conditional"} | more))
    )


def subclasses(kind: type[Any]) -> Iterator[type[Any]]:
    for one in kind.__subclasses__():
        yield from (one, *subclasses(one))


def test_the_table_names_every_selector() -> None:
    made = [make() for make in SELECTORS.values()]
    inner = [s.selector for s in made if isinstance(s, MedianSelector)]
    ours = {k for k in subclasses(NoiseSelector) if k.__module__.startswith("varsmooth")}
    assert {type(s) for s in [*made, *inner]} == {*ours, CascadeSelector}


def test_it_describes_itself_in_json(g: SmoothedClassifier) -> None:
    about = g.selector.describe()
    assert json.loads(json.dumps(about)) == about
    assert about["selector"] in ("fixed", "learned", "median", "cascade")


def test_levels_are_positive_and_depend_on_seed_and_id_alone(
    g: SmoothedClassifier, x: Tensor
) -> None:
    if isinstance(g.selector, CascadeSelector):
        pytest.skip("the votes of f choose its level")
    with torch.no_grad():
        sigma = g.selector(x, g.noise(6, seed=1))
        assert sigma.shape == (6,)
        assert sigma.dtype == x.dtype
        assert (sigma > 0).all()
        shuffled = g.selector(x[[3, 1]], g.noise(2, seed=1, ids=[3, 1]), batch_size=16)
    torch.testing.assert_close(shuffled, sigma[[3, 1]])


@pytest.mark.parametrize("batch_size", [1, 48, 4096])
def test_results_do_not_depend_on_batching_or_order(
    g: SmoothedClassifier, x: Tensor, batch_size: int
) -> None:
    ids = [10, 11, 12, 13, 14, 15]
    votes, whole = predict(g, x, n=64, seed=2, ids=ids), certified(g, x, ids=ids)
    order = [5, 0, 2]
    options: dict[str, Any] = {"ids": [ids[i] for i in order], "batch_size": batch_size}
    assert list(predict(g, x[order], n=64, seed=2, **arguments(**options))) == [
        votes[i] for i in order
    ]
    assert certified(g, x[order], **options) == [whole[i] for i in order]


def test_evidence_survives_json_and_gives_the_radius_again(
    g: SmoothedClassifier, x: Tensor
) -> None:
    certificates = certified(g, x)
    if isinstance(g.selector, MedianSelector):
        certificates += certify_as_paper(g, x, distance=0.01, **arguments(**FEW))
    assert max(certificate.radius for certificate in certificates) > 0
    for certificate in certificates:
        stored = read_certificate(json.loads(json.dumps(certificate.to_dict())))
        assert stored == certificate
        assert stored.recompute(1e-3) == certificate
        assert stored.recompute(1e-2).radius >= certificate.radius
        assert stored.recompute(1e-4).radius <= certificate.radius
    with pytest.raises(FrozenInstanceError):
        certificates[0].radius = 1.0  # type: ignore[misc]


def test_training_mode_changes_nothing_and_the_model_is_left_as_it_was(
    g: SmoothedClassifier, x: Tensor
) -> None:
    """Batch statistics and dropout, in f and in h, are those of evaluation everywhere."""
    before = {name: value.clone() for name, value in g.state_dict().items()}
    f: Any = g.classifier
    frozen = f[0].weight.requires_grad_(False)
    y = torch.zeros(6, dtype=torch.long)
    sound = certified(g, x[:1])[0].guarantee
    at: dict[str, Any] = {"n_max": 96, "n0": 32, "n_select": 101, "method": sound, "seed": 1}
    calls: list[Callable[[], object]] = [
        lambda: predict(g, x, n=64, seed=1),
        lambda: certified(g, x),
        lambda: certify_at(g, x, 0.01, **arguments(**at)),
        lambda: pgd(g, x, y, 0.1, 2, seed=1).tolist(),
    ]
    for call in calls:
        g.eval()
        expected = call()
        g.train()
        f[3].eval()  # a part that was in evaluation stays there
        assert call() == expected
        asleep = [name for name, part in g.named_modules() if not part.training]
        assert asleep == ["classifier.3"]
    assert all(torch.equal(value, before[name]) for name, value in g.state_dict().items())
    assert all(p.grad is None for p in g.parameters())
    assert [id(p) for p in g.parameters() if not p.requires_grad] == [id(frozen)]


def test_soft_scores_are_log_probabilities_with_a_gradient(
    g: SmoothedClassifier, x: Tensor
) -> None:
    scores = g(x.requires_grad_(), g.noise(6, seed=1))
    gated = g.gate is not None  # a gate takes votes away
    total = scores.exp().sum(dim=1)
    assert (total <= 1 + 1e-5).all()
    assert gated or total.tolist() == pytest.approx([1.0] * 6, abs=1e-5)
    (gradient,) = torch.autograd.grad(scores[:, 0].sum(), x)
    assert gradient.isfinite().all()
    assert (gradient.flatten(1).abs().sum(dim=1) > 0).all()
