"""The contract of a network, through which every registered one passes; then what each adds."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from varsmooth._util.fingerprints import fingerprint
from varsmooth.errors import VarsmoothError
from varsmooth.models.checkpoints import load_checkpoint, save
from varsmooth.models.descriptions import Description, Part
from varsmooth.models.names import NETWORKS
from varsmooth.models.networks import (
    AttentionSelector,
    ConfidenceSelector,
    Conv4,
    DenoisedClassifier,
    Denoiser,
    ResNet9,
    build,
)
from varsmooth.models.networks.layers import (
    NORMS,
    ScaleAndShift,
    SinusoidalEncoding,
    StandardisedConv2d,
    halved,
)
from varsmooth.models.networks.selector import RANGE
from varsmooth.smoothing import constant_weights

SMALL: dict[str, dict[str, Any]] = {
    "conv4": {"widths": [8, 8, 8, 8]},
    "resnet20": {"width": 8, "blocks": 1},
    "resnet9": {"widths": [8, 8, 16], "blocks": 2},
}
CONTRACT: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, options) for name, options in SMALL.items()},
    **{f"{name}, σ": (name, {**o, "conditional": True}) for name, o in SMALL.items()},
    "cifar-resnet": ("cifar-resnet", {"depth": 8}),
    "denoised": ("denoised", {"classifier_options": SMALL["conv4"], "width": 8, "blocks": 1}),
    "attention": ("attention", {"width": 16, "heads": 2}),
    "confidence": ("confidence", {"width": 16, "highest": 2}),
}
"""A registered name and options as JSON has them."""


def images(batch: int = 4, seed: int = 0) -> Tensor:
    return torch.rand(batch, 3, 32, 32, generator=torch.Generator().manual_seed(seed))


def make(name: str, options: dict[str, Any] | None = None) -> nn.Module:
    torch.manual_seed(0)
    network = build(name, options)
    if isinstance(network, ConfidenceSelector):
        network.attach(Conv4(widths=(8, 8, 8, 8)).eval())
    return network


def answer(network: nn.Module, x: Tensor) -> Tensor:
    """The logits of a network, whichever arguments it takes."""
    sigma = torch.linspace(0.1, 0.9, 4)[: len(x)]
    if isinstance(network, AttentionSelector | ConfidenceSelector):
        output = network(x, sigma, sigma)
    else:
        output = network(x, sigma) if getattr(network, "conditional", False) else network(x)
    assert isinstance(output, Tensor)
    return output


@pytest.fixture(params=CONTRACT)
def network(request: pytest.FixtureRequest) -> nn.Module:
    return disturb(make(*CONTRACT[request.param]), 0.05).eval()


def disturb(network: nn.Module, scale: float) -> nn.Module:
    """Scales and shifts start at zero and would hide what they see."""
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(scale * torch.randn(parameter.shape))
    return network


def test_the_contract_names_every_registered_network() -> None:
    assert {name for name, _ in CONTRACT.values()} == {*NETWORKS}


def test_an_image_does_not_depend_on_those_beside_it(network: nn.Module) -> None:
    together = answer(network, images())
    assert len(together) == 4
    assert together.isfinite().all()
    torch.testing.assert_close(answer(network, images()[:2]), together[:2], rtol=1e-4, atol=1e-5)
    assert not torch.allclose(together[0], together[1])


def test_gradients_reach_every_pixel_of_every_image(network: nn.Module) -> None:
    x = images().requires_grad_()
    (gradient,) = torch.autograd.grad(answer(network, x).square().sum(), x)
    assert gradient.isfinite().all()
    assert ((gradient != 0).flatten(1).float().mean(dim=1) > 0.9).all()


def test_the_layout_in_memory_changes_nothing(network: nn.Module) -> None:
    x = images().to(memory_format=torch.channels_last)
    torch.testing.assert_close(answer(network, x), answer(network, images()), rtol=1e-4, atol=1e-5)


def test_saved_and_loaded_it_is_the_same(
    network: nn.Module, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    part = Part(*CONTRACT[request.node.callspec.params["network"]])
    role = "selector" if part.network in ("attention", "confidence") else "classifier"
    about = Description("toy", ("a", "b"), 0.25, **{role: part})  # type: ignore[arg-type]
    save(tmp_path, about, **{role: network})  # type: ignore[arg-type]
    loaded = getattr(load_checkpoint(tmp_path), role)
    assert fingerprint(loaded) == fingerprint(network)
    if isinstance(loaded, ConfidenceSelector):
        loaded.attach(network._classifier)  # type: ignore[arg-type]
    torch.testing.assert_close(answer(loaded, images()), answer(network, images()))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", SMALL)
def test_classifier_maps_images_to_logits(name: str, norm: str) -> None:
    network = build(name, {**SMALL[name], "norm": norm, "classes": 7})
    logits = network(images())
    assert logits.shape == (4, 7)
    assert not network.conditional
    logits.sum().backward()
    assert all(p.grad is not None for p in network.parameters())


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", SMALL)
def test_conditional_classifier_listens_to_sigma(name: str, norm: str) -> None:
    network = build(name, {**SMALL[name], "norm": norm, "conditional": True}).eval()
    assert network.conditional
    disturb(network, 0.1)
    x = images()
    quiet, loud = (network(x, torch.full((4,), sigma)) for sigma in (0.1, 0.9))
    assert not torch.allclose(quiet, loud)


def test_classifier_reads_images_of_another_size_and_colour() -> None:
    assert build("conv4", {"channels": 1, "classes": 3})(torch.rand(2, 1, 48, 40)).shape == (2, 3)


def test_a_deepened_resnet9_computes_what_the_shallow_one_did() -> None:
    widths, x, sigma = (8, 24, 16), torch.rand(3, 3, 32, 32), torch.tensor([0.1, 0.5, 1.0])
    shallow = ResNet9(widths=widths, conditional=True).eval()
    deep = ResNet9(widths=widths, conditional=True, blocks=3).eval()
    assert not torch.allclose(deep(x, sigma), shallow(x, sigma))
    grown = deep.deepened(shallow.state_dict())
    deep.load_state_dict(grown)
    torch.testing.assert_close(deep(x, sigma), shallow(x, sigma))
    again = deep.deepened(grown)  # weights that fit are left as they are
    assert all(torch.equal(again[name], grown[name]) for name in grown)


@pytest.mark.parametrize("blocks", [1, 2])
def test_resnet9_has_blocks_of_every_size(blocks: int) -> None:
    network, shapes = ResNet9(widths=(8, 24, 16), blocks=blocks), []
    for block in network.blocks:
        block.register_forward_hook(lambda _, x, y: shapes.append(tuple(y.shape[1:])))
    network(images()).sum().backward()
    assert shapes == [s for s in ((8, 16, 16), (24, 8, 8), (16, 4, 4)) for _ in range(blocks)]
    kernels = [p for p in network.parameters() if p.ndim == 4]
    assert len(kernels) == 3 + 6 * blocks
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in kernels)


def test_denoised_classifier_shows_the_classifier_what_the_denoiser_makes_of_each_level() -> None:
    class Shrink(nn.Module):
        def forward(self, z: Tensor, sigma: Tensor) -> Tensor:
            return z / (1 + sigma.view(-1, 1, 1, 1))

    class Brightness(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.mean(dim=(2, 3))

    z, sigma = images(), torch.tensor([0.0, 0.5, 1.0, 3.0])
    f = DenoisedClassifier(Shrink(), Brightness())
    assert f.conditional
    torch.testing.assert_close(f(z, sigma), z.mean(dim=(2, 3)) / (1 + sigma)[:, None])
    conditional = Conv4(widths=(8, 8, 8, 8), conditional=True).eval()
    clean = conditional(Shrink()(z, sigma), torch.zeros(4))
    torch.testing.assert_close(DenoisedClassifier(Shrink(), conditional)(z, sigma), clean)


def test_a_denoiser_begins_near_the_best_linear_estimate_and_leaves_clean_images_alone() -> None:
    torch.manual_seed(0)
    z, sigma = images(), torch.tensor([0.0, 0.1, 0.5, 1.0])
    x = Denoiser()(z, sigma)
    linear = 0.5 + (z - 0.5) / (1 + 16 * sigma.square()).view(-1, 1, 1, 1)
    assert torch.equal(x[0], z[0])
    assert 0 < (x - linear).abs().mean() < 0.1


def test_only_batch_statistics_let_images_influence_each_other() -> None:
    for norm in NORMS:
        network = Conv4(widths=(8, 8, 8, 8), norm=norm).train()
        alone, together = network(images()[:2])[0], network(images())[0]
        assert torch.allclose(alone, together, atol=1e-5) == (norm != "batch")


def test_standardised_kernels_do_not_see_the_scale_of_their_weights() -> None:
    layer = StandardisedConv2d(3, 4, 3, padding=1)
    before = layer(images())
    with torch.no_grad():
        layer.weight.mul_(5).add_(2)
    torch.testing.assert_close(layer(images()), before, rtol=1e-3, atol=1e-3)


def test_kept_kernels_change_no_bit_and_are_forgotten() -> None:
    network, x = Conv4(widths=(8, 8, 8, 8)), images().requires_grad_()
    layers = [part for part in network.modules() if isinstance(part, StandardisedConv2d)]
    before = network(x)
    (gradient,) = torch.autograd.grad(before.sum(), x)
    with constant_weights(network):
        with constant_weights(network):  # the inner one leaves the outer one's kernels
            pass
        assert all(layer.kept is not None and not layer.kept.requires_grad for layer in layers)
        kept = network(x)
        assert torch.equal(kept, before)
        assert torch.equal(torch.autograd.grad(kept.sum(), x)[0], gradient)
        assert network.state_dict().keys() == Conv4(widths=(8, 8, 8, 8)).state_dict().keys()
    with torch.no_grad():
        layers[0].gain.mul_(2)
    assert not torch.equal(network(x), before)
    (learned,) = torch.autograd.grad(network(x).sum(), layers[0].gain)
    assert learned.abs().sum() > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("lowest", [0.1, -1.0])
def test_halving_before_scale_and_shift_changes_no_bit(lowest: float, dtype: torch.dtype) -> None:
    layer = ScaleAndShift(nn.Identity(), 8, 4).to(dtype)
    values = torch.empty(8, 4).uniform_(lowest - 1, 1)
    nn.init.normal_(layer.linear.weight, std=0.5)
    with torch.no_grad():
        layer.linear.weight[:8] = values  # for the first embedding 1 + a ≥ lowest
    embedding = torch.eye(4, dtype=dtype)
    x = torch.randn(4, 8, 5, 7).to(dtype)
    expected = functional.max_pool2d(layer(x, embedding), 2)
    assert torch.equal(layer(x, embedding, halve=True), expected)  # with gradients
    with torch.no_grad():
        assert torch.equal(layer(x, embedding, halve=True), expected)
        assert torch.equal(halved(x), functional.max_pool2d(x, 2))
        x[0, 0, 0, 0] = torch.nan
        assert halved(x)[0, 0, 0, 0].isnan()
        with pytest.raises(RuntimeError, match="too small"):
            halved(x[:, :, :1])


def test_attention_is_that_of_the_module_that_holds_its_weights() -> None:
    h = AttentionSelector()
    tokens = torch.randn(3, 16, 32, generator=torch.Generator().manual_seed(0), requires_grad=True)
    wanted, _ = h.attention(tokens, tokens, tokens, need_weights=False)
    output = h._attend(tokens)
    torch.testing.assert_close(output, wanted, rtol=1e-5, atol=1e-6)
    gradients = [torch.autograd.grad(out.square().sum(), tokens)[0] for out in (output, wanted)]
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["attention", "confidence"])
class TestSelectors:
    def test_levels_start_near_sigma_a(self, name: str) -> None:
        sigma_a = torch.tensor([0.12, 0.25, 0.5, 1.0])
        levels = make(name)(images(), sigma_a, torch.zeros(4))
        torch.testing.assert_close(levels, sigma_a, rtol=0.2, atol=0)

    def test_levels_stay_positive_and_bounded(self, name: str) -> None:
        network = make(name)
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.mul_(50)
        levels = network(images(), torch.full((4,), 0.25), torch.rand(4))
        assert bool((levels >= 0.25 * math.exp(-RANGE) * 0.999).all())
        assert bool((levels <= 0.25 * math.exp(RANGE) * 1.001).all())

    def test_both_conditions_change_the_level(self, name: str) -> None:
        network, x, sigma_a, lam = make(name), images(), torch.full((4,), 0.25), torch.zeros(4)
        base = network(x, sigma_a, lam)
        assert (network(x, sigma_a, lam + 0.5) - base).abs().min() > 0
        relative = network(x, 2 * sigma_a, lam) / (2 * sigma_a) - base / sigma_a
        assert relative.abs().min() > 0

    def test_gradients_reach_every_parameter_and_the_image(self, name: str) -> None:
        network, x = make(name), images().requires_grad_()
        network(x, torch.full((4,), 0.25), torch.rand(4)).log().sum().backward()
        for label, parameter in network.named_parameters():
            assert parameter.grad is not None, label
            # softmax attention ignores a constant added to all keys: that bias has no effect
            keys = slice(32, 64) if label == "attention.in_proj_bias" else slice(0, 0)
            gradient = parameter.grad.clone()
            gradient[keys] = 1
            assert gradient.abs().sum() > 0, label
        assert x.grad is not None
        assert x.grad.abs().sum() > 0


def test_confidence_selector_neither_owns_nor_changes_the_classifier() -> None:
    classifier = Conv4(widths=(8, 8, 8, 8)).eval()
    network = ConfidenceSelector()
    network.attach(classifier)
    assert not any("classifier" in name for name in network.state_dict())
    network.train()
    assert not classifier.training
    network(images(), torch.full((4,), 0.25), torch.rand(4)).sum().backward()
    assert all(p.grad is None and p.requires_grad for p in classifier.parameters())


def test_confidence_selector_stays_below_its_highest_level() -> None:
    network, free = ConfidenceSelector(highest=2), ConfidenceSelector()
    for one in (network, free):
        one.attach(Conv4())
    sigma = torch.full((4,), 0.25)
    low, high = 0.25 * math.exp(-RANGE), 0.25 * math.exp(RANGE)
    for push, limits in ((50.0, (0.5, high)), (-50.0, (low, low))):
        for one, limit in zip((network, free), limits, strict=True):
            nn.init.constant_(one.output.bias, push)
            torch.testing.assert_close(
                one(images(), sigma, sigma), torch.full((4,), limit), rtol=1e-4, atol=0
            )
    with pytest.raises(VarsmoothError, match="attach"):
        ConfidenceSelector()(images(), torch.ones(4), torch.ones(4))


def test_encoding_tells_neighbours_apart_smoothly() -> None:
    values = torch.linspace(0, 1, 101)
    codes = SinusoidalEncoding(32)(values)
    step = (codes[1:] - codes[:-1]).norm(dim=1)
    assert 0.005 < step.min() <= step.max() < 0.3


@pytest.mark.parametrize(
    ("network", "options", "message"),
    [
        ("conv44", {}, "did you mean conv4"),
        ("conv4", {"width": (1, 2, 3, 4)}, "no option 'width'; did you mean widths"),
        ("conv4", {"widths": (8, 8)}, "four widths"),
        ("conv4", {"norm": "bach"}, "norm must be one of"),
        ("resnet9", {"blocks": 0}, "blocks must lie between 1 and 200, not 0"),
        ("conv4", {"classes": "ten"}, "cannot be built"),
        ("attention", {"width": 30}, "multiple of"),
        ("no.such:Thing", {}, "cannot be imported"),
        ("math:sqrt", {}, "needs the argument x; it must be a function that takes no"),
        ("math:pi", {}, "not a class or function"),
        ("confidence", {"highest": 1}, "above 1"),
        *(  # a description names it, which is untrusted input
            ("denoised", {"classifier": name}, "behind a denoiser must be one of conv4")
            for name in ("os:system", "denoised", "attention")
        ),
    ],
)
def test_what_cannot_be_built_is_explained(
    network: str, options: dict[str, object], message: str
) -> None:
    with pytest.raises(VarsmoothError, match=message):
        build(network, options)
    assert isinstance(build("torch.nn:Linear", {"in_features": 2, "out_features": 3}), nn.Linear)
