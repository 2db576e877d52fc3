"""Denoisers off the shelf: their arithmetic against closed forms."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from varsmooth import FixedSelector, Options, SmoothedClassifier, certify
from varsmooth.errors import VarsmoothError
from varsmooth.models.denoisers import DiffusionDenoiser, from_diffusers, from_ffdnet
from varsmooth.models.networks.denoiser import DenoisedClassifier

BETAS = torch.linspace(1e-4, 0.02, 1000, dtype=torch.float64)
ALPHAS = (1 - BETAS).cumprod(0)
VARIANCE = 0.09


class LinearUnet(nn.Module):
    """The optimal network for y ~ N(0, v): E[ε | noisy], E[y | noisy] or the same as v.

    With noisy = √ᾱ y + √(1−ᾱ) ε, E[y | noisy] = √ᾱ v / (ᾱ v + 1 − ᾱ) · noisy, and E[ε | noisy]
    follows from the definition of noisy.
    """

    def __init__(self, prediction: str = "epsilon") -> None:
        super().__init__()
        self.prediction = prediction

    def forward(self, noisy: Tensor, t: Tensor) -> SimpleNamespace:
        a = ALPHAS[t].to(noisy.dtype).view(-1, 1, 1, 1)
        y = a.sqrt() * VARIANCE / (a * VARIANCE + 1 - a) * noisy
        epsilon = (noisy - a.sqrt() * y) / (1 - a).sqrt()
        v = a.sqrt() * epsilon - (1 - a).sqrt() * y
        output = {"epsilon": epsilon, "sample": y, "v_prediction": v}[self.prediction]
        return SimpleNamespace(sample=torch.cat([output, torch.zeros_like(output)], dim=1))


def scheduler(**config: Any) -> SimpleNamespace:
    return SimpleNamespace(alphas_cumprod=ALPHAS.float(), config=SimpleNamespace(**config))


@pytest.mark.parametrize("prediction", ["epsilon", "sample", "v_prediction"])
def test_one_step_is_the_optimal_denoiser_of_gaussian_images(prediction: str) -> None:
    """x ~ N(½, v/4) under noise σ: E[x | z] = ½ + v/4 / (v/4 + σ²) (z − ½)."""
    denoiser = from_diffusers(
        LinearUnet(prediction), scheduler(prediction_type=prediction, clip_sample=False)
    )
    torch.manual_seed(0)
    z = 0.5 + 0.3 * torch.randn(4, 3, 5, 6, dtype=torch.float64)
    sigma = torch.tensor([0.06, 0.12, 0.25, 1.0], dtype=torch.float64)
    keep = VARIANCE / 4 / (VARIANCE / 4 + sigma**2).view(-1, 1, 1, 1)
    best = 0.5 + keep * (z - 0.5)
    torch.testing.assert_close(denoiser(z, sigma), best, rtol=0, atol=5e-3)
    exact = ((1 - ALPHAS) / ALPHAS).sqrt()[[10, 100, 300, 900]] / 2  # noise of a timestep itself
    keep = VARIANCE / 4 / (VARIANCE / 4 + exact**2).view(-1, 1, 1, 1)
    assert denoiser.timesteps(exact).tolist() == [10, 100, 300, 900]
    torch.testing.assert_close(denoiser(z, exact), 0.5 + keep * (z - 0.5), rtol=0, atol=1e-6)


def test_images_are_clipped_and_levels_outside_the_schedule_take_its_ends() -> None:
    denoiser = DiffusionDenoiser(LinearUnet(), ALPHAS)
    assert denoiser.timesteps(torch.tensor([1e-6, 1e6])).tolist() == [0, 999]
    assert float(denoiser(torch.full((1, 3, 2, 2), 9.0), torch.tensor([0.01])).max()) == 1


def test_what_cannot_be_used_is_one_sentence() -> None:
    with pytest.raises(VarsmoothError, match="no alphas_cumprod"):
        from_diffusers(LinearUnet(), SimpleNamespace())
    with pytest.raises(VarsmoothError, match="prediction_type is 'flow'"):
        from_diffusers(LinearUnet(), scheduler(prediction_type="flow"))


def test_a_unet_of_diffusers() -> None:
    diffusers = pytest.importorskip("diffusers")
    torch.manual_seed(0)
    unet = diffusers.UNet2DModel(
        sample_size=16,
        block_out_channels=(8, 8),
        down_block_types=("DownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "UpBlock2D"),
        norm_num_groups=4,
        layers_per_block=1,
    )
    ddpm = diffusers.DDPMScheduler()
    denoiser = from_diffusers(unet, ddpm)
    assert not unet.training
    z, sigma = torch.rand(2, 3, 16, 16), torch.tensor([0.1, 0.5])
    with torch.no_grad():
        t = denoiser.timesteps(sigma)
        noisy = ddpm.alphas_cumprod[t].sqrt().view(-1, 1, 1, 1) * (2 * z - 1)
        theirs = [
            ddpm.step(unet(noisy[i : i + 1], t[i]).sample, int(t[i]), noisy[i : i + 1])
            for i in range(2)
        ]
        expected = torch.cat([step.pred_original_sample for step in theirs]) / 2 + 0.5
        torch.testing.assert_close(denoiser(z, sigma), expected)
    linear = nn.Sequential(nn.Flatten(), nn.Linear(768, 2))
    g = SmoothedClassifier(DenoisedClassifier(denoiser, linear), FixedSelector(0.25)).eval()
    assert len(certify(g, z, n=50, options=Options(n0=20))) == 2


def test_ffdnet_gets_its_sigma_as_a_map() -> None:
    class Network(nn.Module):
        def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
            assert sigma.shape == (2, 1, 1, 1)
            return x - sigma

    out = from_ffdnet(Network())(torch.ones(2, 3, 4, 4), torch.tensor([0.25, 0.5]))
    assert out[:, 0, 0, 0].tolist() == [0.75, 0.5]
