"""Noise is a function of (seed, scope, id, purpose, chunk) and of nothing else."""

import numpy as np
import pytest
import torch
from scipy.stats import kstest
from torch import Tensor, nn

from varsmooth import FixedSelector, Options, SmoothedClassifier, certify, predict
from varsmooth.errors import VarsmoothError
from varsmooth.noise import CHUNK, NoiseStream, keyed_generator

X = torch.zeros(3, 2, 4, 5)


def draws(noise: NoiseStream, n: int, purpose: str = "votes", batch_size: int = 64) -> Tensor:
    like = X[:1].expand(len(noise.ids), -1, -1, -1)
    rows, epsilon = zip(*noise.batches(like, purpose, n, batch_size), strict=True)
    assert torch.cat(rows).tolist() == [i for i in range(len(noise.ids)) for _ in range(n)]
    return torch.cat(epsilon).view(len(noise.ids), n, *X.shape[1:])


@pytest.mark.parametrize("batch_size", [1, 16, 33, 1000])
def test_batch_size_changes_nothing(batch_size: int) -> None:
    noise = NoiseStream.make(3, seed=1)
    assert torch.equal(draws(noise, 50), draws(noise, 50, batch_size=batch_size))


@pytest.mark.parametrize("n", [1, 5, 16, 40])
def test_batches_are_full_however_few_the_draws_of_an_image(n: int) -> None:
    """An attack that takes one draw of each image must not call f for eight images at a time."""
    noise, like = NoiseStream.make(300, seed=1), torch.zeros(300, 1, 4, 4)
    sizes = [len(rows) for rows, _ in noise.batches(like, "votes", n, 64)]
    assert sum(sizes) == 300 * n
    assert max(sizes) <= 64
    assert len(sizes) <= 1.4 * 300 * n / 64 + 1  # the last chunk of an image may be cut


def test_order_and_shards_change_nothing() -> None:
    whole = draws(NoiseStream.make(3, seed=1, ids=[7, 8, 9]), 20)
    assert torch.equal(draws(NoiseStream.make(3, seed=1, ids=[9, 7, 8]), 20), whole[[2, 0, 1]])
    assert torch.equal(draws(NoiseStream.make(1, seed=1, ids=torch.tensor([8])), 20), whole[1:2])
    assert torch.equal(draws(NoiseStream.make(3, seed=1, ids=[7, 8, 9]).rows([2]), 20), whole[2:])


def test_scopes_nest_and_rows_keep_them() -> None:
    noise = NoiseStream.make(2, seed=1, ids=[7, 9], lattice=True).scoped("a").scoped("b")
    assert noise.rows([1]) == NoiseStream(1, (9,), True, ("a", "b"))


def test_more_draws_extend_fewer() -> None:
    noise = NoiseStream.make(3, seed=1)
    assert torch.equal(draws(noise, 10), draws(noise, 40)[:, :10])
    like = X[:1].expand(3, -1, -1, -1)
    tail = torch.cat([e for _, e in noise.batches(like, "votes", 40, start=2 * CHUNK)])
    assert torch.equal(tail.view(3, 8, 2, 4, 5), draws(noise, 40)[:, 2 * CHUNK :])


@pytest.mark.parametrize("lattice", [False, True])
@pytest.mark.parametrize("shape", [(3, 4, 4), (3, 8, 8), (2, 4, 5), (1, 1, 1)])
def test_few_draws_are_the_first_of_their_whole_chunk(
    shape: tuple[int, int, int], lattice: bool
) -> None:
    """Also where only a part of the chunk is drawn, because it consists of whole blocks."""
    noise, like = NoiseStream.make(2, seed=1, lattice=lattice), torch.zeros(2, *shape)
    whole = torch.empty(CHUNK, *(shape[i] for i in (1, 2, 0)))  # as the memory lies
    whole = whole.to(torch.float64 if lattice else torch.float32)
    torch.randn(whole.shape, generator=keyed_generator("cpu", 1, 0, "votes", 0), out=whole)
    for n in range(1, CHUNK + 1):
        (rows, epsilon), *_ = noise.batches(like, "votes", n)
        assert torch.equal(epsilon[rows == 0], whole[:n].permute(0, 3, 1, 2))


def test_everything_in_the_key_matters() -> None:
    base = NoiseStream.make(2, seed=1)
    variants = [
        draws(base, 16),
        draws(base, 16, purpose="other"),
        draws(base.scoped("step"), 16),
        draws(NoiseStream.make(2, seed=2), 16),
        draws(NoiseStream.make(2, seed=1 + 2**32), 16),
        draws(NoiseStream.make(2, seed=1, ids=[2, 3]), 16),
        draws(base, 32)[:, CHUNK:],
    ]
    blocks = torch.cat(variants).flatten(1)
    correlation = np.corrcoef(blocks.numpy()) - np.eye(len(blocks))
    assert np.abs(correlation).max() < 0.25  # 640 numbers each: 0.25 is more than 6 standard errors


def test_fresh_entropy_by_default() -> None:
    assert NoiseStream.make(1).seed != NoiseStream.make(1).seed


def test_a_key_fills_the_whole_state_of_the_generator() -> None:
    """`manual_seed` derives all 624 words from 32 bits; a keyed generator must not."""

    def derived(generator: torch.Generator) -> float:
        """The share of words that follow from the word before."""
        words = generator.get_state().numpy()[24 : 24 + 8 * 624].view(np.uint64)
        before, index = words[:-1], np.arange(1, 624, dtype=np.uint64)
        following = (1812433253 * (before ^ (before >> np.uint64(30))) + index) % 2**32
        return float((following == words[1:]).mean())

    assert derived(torch.Generator().manual_seed(5)) == 1
    assert derived(keyed_generator("cpu", 5, "a")) < 0.01
    again = keyed_generator("cpu", 5, "a")
    first = torch.randn(4, generator=keyed_generator("cpu", 5, "a"))
    assert torch.equal(torch.randn(4, generator=again), first)
    assert not torch.equal(torch.randn(4, generator=keyed_generator("cpu", 5, "b")), first)


def test_draws_are_standard_normal() -> None:
    sample = draws(NoiseStream.make(3, seed=3), 500).flatten().numpy()
    assert kstest(sample, "norm").pvalue > 1e-6
    assert sample.std() == pytest.approx(1, abs=0.02)


def test_memory_is_channels_last() -> None:
    _, epsilon = next(NoiseStream.make(3, seed=1).batches(X, "votes", 16))
    assert epsilon.is_contiguous(memory_format=torch.channels_last)


def test_lattice_noise_is_exact_on_8_bit_images() -> None:
    noise = NoiseStream.make(3, seed=1, lattice=True)
    x = torch.randint(0, 256, X.shape, generator=torch.Generator().manual_seed(0)) / 255
    sigma = torch.tensor([0.1, 0.5, 1.0], requires_grad=True)
    x.requires_grad_()
    epsilon = torch.cat([e for _, e in noise.batches(x, "votes", 1)])
    assert epsilon.dtype == torch.float64
    z = noise.perturb(x, sigma, epsilon)
    pixels = (255 * z.detach().double()).round()
    assert torch.equal(z.detach(), (pixels / 255).float())
    steps = pixels - (255 * x.detach().double()).round()
    expected = (255 * sigma.detach().double().view(-1, 1, 1, 1) * epsilon).round()
    assert torch.equal(steps, expected)
    by_x, by_sigma = torch.autograd.grad(z.sum(), [x, sigma])
    torch.testing.assert_close(by_x, torch.ones_like(x))
    torch.testing.assert_close(by_sigma, epsilon.sum(dim=(1, 2, 3)).float())


class ReadsBits(nn.Module):
    """Class 1 if a negative value is not a multiple of 2⁻²⁴, which rounding gives away."""

    def forward(self, z: Tensor) -> Tensor:
        off_lattice = ((z < 0) & (z.double() * 2**24 % 1 != 0)).flatten(1).any(dim=1)
        return torch.stack([~off_lattice, off_lattice], dim=1).float()


def test_float32_has_a_false_certificate_and_the_lattice_shows_only_the_sum() -> None:
    x = torch.full((1, 3, 16, 16), 0.5)
    near = torch.nextafter(x, torch.zeros(()))
    plain = SmoothedClassifier(ReadsBits(), FixedSelector(0.25))
    certificate = certify(plain, x, n=200, seed=0, options=Options(n0=20))[0]
    assert certificate.prediction == 0
    assert certificate.radius > 0.4
    assert float((x.double() - near.double()).norm()) < 1e-6
    assert predict(plain, near, n=200, seed=1)[0].prediction == 1
    noise = NoiseStream.make(1, seed=1, ids=[0], lattice=True)
    ((_, epsilon),) = noise.batches(x, "votes", 8)
    one, other = (
        (255 * noise.perturb(torch.full_like(epsilon, k / 255), torch.full((8,), 0.25), epsilon))
        for k in (127, 128)
    )
    assert (other.round() - one.round() == 1).all(), "x shifts what is seen, and leaves no trace"


def test_a_batch_of_no_images_is_refused() -> None:
    with pytest.raises(VarsmoothError, match="batch_size must be at least 1, not 0"):
        next(NoiseStream.make(1, 0).batches(torch.zeros(1, 1, 2, 2), "votes", 16, batch_size=0))
