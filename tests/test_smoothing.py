"""Selectors and the one smoothed classifier: contracts, gradients, independence of batching."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from tests.oracles import Linear, LinearSelector, Spy, WrongAbove, fixed, point
from varsmooth import (
    CascadeSelector,
    FixedSelector,
    LearnedSelector,
    MedianSelector,
    NoiseSelector,
    Options,
    certify,
    certify_at,
    certify_until,
    predict,
    smoothing,
)
from varsmooth.errors import VarsmoothError
from varsmooth.models.networks.layers import StandardisedConv2d
from varsmooth.noise import NoiseStream
from varsmooth.selectors import Grid
from varsmooth.smoothing import Selector, SmoothedClassifier


class TinySelector(nn.Module):
    """A selector network whose output depends on the image, σ_a and λ."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(0.3))

    def forward(self, x: Tensor, sigma_a: Tensor, lam: Tensor) -> Tensor:
        return sigma_a * torch.exp(self.weight * x.mean(dim=(1, 2, 3)) + lam)


def small_network() -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(), nn.Flatten()
    return nn.Sequential(*layers, nn.LazyLinear(5))


@pytest.fixture
def x() -> Tensor:
    return torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def test_a_constant_selector_gives_exactly_the_fixed_counts(x: Tensor) -> None:
    one = fixed(small_network())
    constant = MedianSelector(lambda x: torch.full((len(x),), 0.25), 0.5, n=11)
    dual, noise = SmoothedClassifier(one.classifier, constant), one.noise(6, seed=3)
    assert torch.equal(one.votes(x, 100, noise=noise), dual.votes(x, 100, noise=noise))


def test_two_images_never_share_noise() -> None:
    """The same image under two ids gets different noisy copies."""
    f = Spy()
    fixed(f, 0.5).votes(point(0.5, 0.5, copies=50), 100)
    noisy = torch.cat(f.seen)
    assert len(torch.unique(noisy.flatten(1), dim=0)) == 5000


def test_median_is_the_middle_order_statistic() -> None:
    selector = MedianSelector(LinearSelector(0.4, 0.1), 0.25, n=7)
    g = SmoothedClassifier(Linear(), selector)
    x, noise = point(0.5, 0.5, copies=3), g.noise(3, seed=1)
    raw = selector.samples(x, 0.25, 7, noise)
    assert torch.equal(selector(x, noise), raw.sort(dim=1).values[:, 3])
    many = MedianSelector(LinearSelector(0.4, 0.1), 0.25, n=4001)(x, noise)
    torch.testing.assert_close(many, torch.full((3,), 0.4), atol=0.003, rtol=0)


def test_gradient_of_the_median_is_that_of_the_middle_sample() -> None:
    """Against the whole graph, for several draws per image and for parameters and pixels alike."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(12, 4), nn.SiLU(), nn.Linear(4, 1))
    x = torch.rand(5, 3, 2, 2, requires_grad=True)
    selector = MedianSelector(lambda z: 0.5 + 0.1 * network(z)[:, 0], sigma_m=0.3, n=37)
    noise = NoiseStream.make(5, seed=3)
    weights = [x, *network.parameters()]
    gradients = torch.autograd.grad(selector(x, noise, batch_size=48).square().sum(), weights)
    whole = selector.samples(x, 0.3, 37, noise).median(dim=1).values
    expected = torch.autograd.grad(whole.square().sum(), weights)
    for a, b in zip(gradients, expected, strict=True):
        torch.testing.assert_close(a, b)


def test_grid_snaps_at_geometric_means() -> None:
    grid = Grid.make(3, (0.25, 1.0))
    raw = torch.tensor([0.01, 0.35, 0.36, 0.70, 0.71, 9.0])
    assert grid.snap(raw).tolist() == [0.25, 0.25, 0.5, 0.5, 1.0, 1.0]
    edge = Grid.make([1.0, 4.0], None)  # the threshold 2 itself belongs below
    assert edge.snap(torch.tensor([2.0, 2.0000002])).tolist() == [1.0, 4.0]
    fine = Grid.make(8, (0.12, 1.0))
    assert [float(torch.tensor(s)) for s in fine.levels] == list(fine.levels)
    for j, threshold in enumerate(fine.thresholds):  # the two float32 numbers around it
        near = torch.tensor(threshold)
        other = torch.nextafter(near, torch.tensor(9.0 if float(near) <= threshold else 0.0))
        assert fine.index(torch.stack([near, other]).sort().values).tolist() == [j, j + 1]


def test_grid_keeps_only_the_levels_that_the_clip_allows() -> None:
    """What is clipped must not be counted as belonging to a level below the clip, or above it."""
    selector = MedianSelector(lambda x: x, 0.25, clip=(0.3, 1.2), levels=[0.1, 0.2, 0.4, 0.8, 4.0])
    assert selector.grid is not None
    assert selector.grid.levels == pytest.approx([0.4, 0.8])
    raw = torch.tensor([0.01, 0.29, 0.5, 0.7, 2.0, torch.inf])
    assert selector.snap_to_grid(raw).tolist() == pytest.approx([0.4, 0.4, 0.4, 0.8, 0.8, 0.8])
    whole = MedianSelector(lambda x: x, 0.25, clip=(0.12, 1.0), levels=8)
    assert whole.grid is not None
    assert len(whole.grid.levels) == 8


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64], ids=str)
def test_levels_have_the_precision_of_the_images_whatever_the_selectors(dtype: torch.dtype) -> None:
    """In half precision the snapped level would differ from the certified one by 0.2 %."""

    class Cast(LinearSelector):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).to(dtype)

    selector = MedianSelector(Cast(0.4, 0.1), 0.25, n=11, clip=(0.12, 1.0), levels=8)
    sigma = selector(point(0.5, 0.5))
    assert selector.grid is not None
    assert sigma.dtype == torch.float32
    assert float(sigma) in selector.grid.levels


def test_one_nan_of_the_selector_is_an_error() -> None:
    def sometimes(x: Tensor) -> Tensor:
        pixel = x.flatten(1)[:, 0]
        return torch.where(pixel > 0.9, torch.nan, 0.3)

    selector = MedianSelector(sometimes, 0.25, n=101, clip=(0.1, 1.0), levels=4)
    with pytest.raises(VarsmoothError, match="NaN"):
        selector(point(0.5, 0.5), NoiseStream.make(1, seed=0))


def test_a_classifier_without_usable_scores_is_an_error() -> None:
    """argmax would take NaN for the largest score and certify the first class."""
    broken, one_number = nn.Threshold(torch.inf, torch.nan), nn.Flatten(0)
    for f, words in ((nn.Sequential(nn.Flatten(), broken), "NaN"), (one_number, "classes")):
        with pytest.raises(VarsmoothError, match=words):
            fixed(f).votes(point(0.5, 0.5), 10)


def test_votes_go_on_where_they_stopped() -> None:
    g, x = fixed(Linear()), point(0.5, 0.5, copies=3)
    noise = g.noise(3, seed=1)
    parts = g.votes(x, 96, noise=noise) + g.votes(x, 200, noise=noise, start=96)
    assert torch.equal(parts, g.votes(x, 200, noise=noise))
    with pytest.raises(VarsmoothError, match="positive"):
        g.votes(x, 10, sigma=torch.tensor([0.1, 0.0, 0.1]))
    for start in (100, 208, -16):
        with pytest.raises(VarsmoothError, match="start"):
            g.votes(x, 200, noise=noise, start=start)


def test_learned_selector_follows_its_options(x: Tensor) -> None:
    selector, noise = LearnedSelector(TinySelector(), 0.25, 0.0), NoiseStream.make(6, seed=1)
    low = selector(x, noise)
    selector.lam = 0.5
    torch.testing.assert_close(selector(x, noise), low * torch.e**0.5)
    with pytest.raises(VarsmoothError, match="lam"):
        selector.lam = 1.5


def test_learned_selector_sees_the_image_under_noise_once(x: Tensor) -> None:
    selector, noise = LearnedSelector(TinySelector(), 0.25, 0.2), NoiseStream.make(6, seed=1)
    epsilon = torch.cat([e for _, e in noise.batches(x, "selector", 1)])
    torch.testing.assert_close(selector(x, noise), selector.respond(x + 0.25 * epsilon))


def test_conditional_classifier_is_told_the_noise_really_applied() -> None:
    g = SmoothedClassifier(WrongAbove(0.3), MedianSelector(LinearSelector(0.5, 1.0), 0.01, n=3))
    x = torch.cat([point(0.5, 0.2), point(0.5, 0.4)])  # levels 0.2 and 0.4
    assert g.votes(x, 20).tolist() == [[20, 0], [0, 20]]


def test_an_object_with_logits_is_a_classifier() -> None:
    class Wrapped(nn.Module):
        def forward(self, x: Tensor) -> SimpleNamespace:
            return SimpleNamespace(logits=Linear()(x))

    x = point(0.6, 0.5)
    plain, wrapped = fixed(Linear(), 0.1), fixed(Wrapped(), 0.1)
    noise = plain.noise(1, seed=1)
    assert torch.equal(plain.votes(x, 64, noise=noise), wrapped.votes(x, 64, noise=noise))


def test_soft_scores_approach_the_vote_as_the_temperature_falls() -> None:
    x = point(0.55, 0.5, copies=4)
    soft = SmoothedClassifier(Linear(), FixedSelector(0.1), samples=200, temperature=1e-6)
    noise = soft.noise(4, seed=1)
    shares = soft.votes(x, 200, noise=noise, purpose="soft") / 200
    torch.testing.assert_close(soft(x, noise).exp(), shares, atol=1e-4, rtol=0)


def test_soft_scores_are_the_log_of_the_mean_softmax() -> None:
    x = point(0.55, 0.5)
    g = SmoothedClassifier(Linear(), FixedSelector(0.1), samples=5, temperature=0.5)
    noise = g.noise(1, seed=1)
    epsilon = torch.cat([e for _, e in noise.batches(x, "soft", 5)])
    expected = (Linear()(x + 0.1 * epsilon) / 0.5).softmax(dim=1).mean(dim=0).log()
    torch.testing.assert_close(g(x, noise)[0], expected)


@pytest.mark.parametrize("protect", [False, True], ids=["gv", "gvstar"])
def test_gradients_reach_image_classifier_and_selector(protect: bool, x: Tensor) -> None:
    network = TinySelector()
    selector: NoiseSelector = LearnedSelector(network, 0.25, 0.2)
    if protect:
        selector = MedianSelector(selector, 0.25, n=11, clip=(0.01, 2), levels=50)
    f = small_network().eval()
    g = SmoothedClassifier(f, selector, samples=4)
    x.requires_grad_()
    g(x, g.noise(6, seed=1))[:, 0].sum().backward()
    for parameter in [x, network.weight, *f.parameters()]:
        assert parameter.grad is not None
        assert parameter.grad.abs().sum() > 0


def test_gradient_through_sigma_is_right() -> None:
    """d/dσ of the mean score, by finite differences under the same noise, in float64."""
    x = point(0.6, 0.5).double()
    network = TinySelector().double()
    g = SmoothedClassifier(Linear(), MedianSelector(LearnedSelector(network, 0.5, 0.0), 0.25, n=11))
    noise = g.noise(1, seed=4)
    (gradient,) = torch.autograd.grad(g(x, noise)[0, 0], network.weight)
    with torch.no_grad():
        network.weight.add_(1e-5)
        up = g(x, noise)[0, 0]
        network.weight.sub_(2e-5)
        down = g(x, noise)[0, 0]
    assert float(gradient) == pytest.approx(float(up - down) / 2e-5, rel=1e-5)


def test_lattice_votes_see_only_8_bit_images() -> None:
    f = Spy()
    g = SmoothedClassifier(f, MedianSelector(LinearSelector(0.3, 0.1), 0.2, n=5), lattice=True)
    g.votes((point(128 / 255, 3 / 255)), 32)
    pixels = 255 * torch.cat(f.seen).double()
    assert (pixels - pixels.round()).abs().max() < 1e-4
    with pytest.raises(VarsmoothError, match="8-bit"):
        g.votes(point(0.5, 0.1), 32)


@pytest.mark.parametrize("mode", ["train", "eval", "mixed"])
def test_threads_share_a_classifier_and_leave_it_as_it_was(x: Tensor, mode: str) -> None:
    """Batch statistics and standardised kernels are one thread's while another one uses them."""
    network = nn.Sequential(StandardisedConv2d(3, 3, 3, padding=1), small_network())
    network(x)  # the lazy layer takes its shape
    network.train(mode == "train")
    if mode == "mixed":
        network[1].train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    modes = [part.training for part in network.modules()]
    shared = [fixed(network, s) for s in (0.1, 0.25)]

    def call(seed: int) -> object:
        g = shared[seed % 2]
        if seed % 4 < 2:
            return predict(g, x[:2], n=32, seed=seed).counts.tolist()
        return certify(g, x[:2], n=32, seed=seed, options=Options(n0=10)).radius.tolist()

    seeds = range(160)
    expected = [call(seed) for seed in seeds]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(call, seeds)) == expected
    assert [part.training for part in network.modules()] == modes
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


@pytest.mark.parametrize("call", [certify, certify_at, certify_until, predict])
@pytest.mark.parametrize("selector", [FixedSelector(0.25), CascadeSelector([0.5, 0.25, 0.1])])
def test_images_are_validated_once_in_a_call(
    call: Callable[..., object], selector: Selector, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[int] = []
    monkeypatch.setattr(smoothing, "check_images", lambda x: checked.append(len(x)))
    radius = {"radius": [0.0, 0.1]} if call is certify_at else {}
    call(SmoothedClassifier(Linear(), selector), point(0.6, 0.5), seed=1, **radius)
    assert checked == [1]
