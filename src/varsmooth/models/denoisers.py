"""Public denoisers for `DenoisedClassifier`: pixels in [0,1] and σ in, pixels out.

Nothing here downloads: a network is handed over as it is in memory.
"""

from typing import Any

import torch
from torch import Tensor, nn

from varsmooth.errors import check


class SigmaMapDenoiser(nn.Module):
    """x̂ = network(z, σ) for a network that takes σ as (B,1,1,1), as FFDNet does."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, z: Tensor, sigma: Tensor) -> Tensor:
        image: Tensor = self.network(z, sigma.view(-1, 1, 1, 1))
        return image


def from_ffdnet(network: nn.Module) -> SigmaMapDenoiser:
    """FFDNet (Zhang et al. 2018) in the layout of KAIR: `network(z, sigma (B,1,1,1))`."""
    return SigmaMapDenoiser(network).eval()


class DiffusionDenoiser(nn.Module):
    """One step of a diffusion model as a denoiser (Carlini et al. 2023, "(Certified!!)").

    A diffusion model was trained on √ᾱ_t y + √(1−ᾱ_t) ε with y = 2x − 1 in [−1,1]. A noisy image
    z = x + σε gives 2z − 1 = y + 2σε, so √ᾱ_t (2z − 1) is such an input at the timestep t with

        (1 − ᾱ_t) / ᾱ_t = (2σ)².

    The timestep nearest to this in log σ is taken, for each image its own. With ε̂ = unet(·, t),

        ŷ = (√ᾱ_t (2z − 1) − √(1−ᾱ_t) ε̂) / √ᾱ_t,  x̂ = (clip(ŷ, −1, 1) + 1) / 2.

    Args:
        unet: Images (B,C,H,W) and timesteps (B,) → an object with `.sample`, or a tensor. Of 2C
            channels, the last C are a learned variance and are dropped.
        alphas_cumprod: ᾱ_t for t = 0, 1, …
        prediction: What the network predicts: epsilon (ε), sample (y), or v_prediction
            (√ᾱ_t ε − √(1−ᾱ_t) y).
        clip: Clip ŷ to [−1,1].
    """

    alphas_cumprod: Tensor

    def __init__(
        self,
        unet: nn.Module,
        alphas_cumprod: Tensor,
        prediction: str = "epsilon",
        clip: bool = True,
    ) -> None:
        super().__init__()
        kinds = ("epsilon", "sample", "v_prediction")
        check(
            prediction in kinds,
            f"the scheduler's prediction_type is {prediction!r}; use a model of type "
            f"{', '.join(kinds)}",
        )
        self.unet, self.prediction, self.clip = unet, prediction, clip
        self.register_buffer("alphas_cumprod", alphas_cumprod.double().clone(), persistent=False)

    def timesteps(self, sigma: Tensor) -> Tensor:
        """t (B,) whose noise is nearest to sigma (B,)."""
        a = self.alphas_cumprod
        levels = ((1 - a) / a).log() / 2  # log 2σ of each t
        return (levels - (2 * sigma.double()).log()[:, None]).abs().argmin(dim=1)

    def forward(self, z: Tensor, sigma: Tensor) -> Tensor:
        t = self.timesteps(sigma)
        a = self.alphas_cumprod[t].to(z.dtype).view(-1, 1, 1, 1)
        noisy = a.sqrt() * (2 * z - 1)
        output = self.unet(noisy, t)
        output = getattr(output, "sample", output)[:, : z.shape[1]]
        if self.prediction == "epsilon":
            y = (noisy - (1 - a).sqrt() * output) / a.sqrt()
        elif self.prediction == "v_prediction":
            y = a.sqrt() * noisy - (1 - a).sqrt() * output
        else:
            y = output
        x: Tensor = ((y.clamp(-1, 1) if self.clip else y) + 1) / 2
        return x


def from_diffusers(unet: nn.Module, scheduler: Any) -> DiffusionDenoiser:
    """A diffusion model of `diffusers` as a denoiser, in evaluation mode.

    Args:
        unet: What `UNet2DModel.from_pretrained(name)` returns: unconditional, in pixel space.
        scheduler: Its `DDPMScheduler`, or any scheduler with `alphas_cumprod`.
    """
    check(
        hasattr(scheduler, "alphas_cumprod"),
        "this scheduler has no alphas_cumprod; give the DDPMScheduler of the model",
    )
    prediction = str(getattr(scheduler.config, "prediction_type", "epsilon"))
    clip = bool(getattr(scheduler.config, "clip_sample", True))
    table = torch.as_tensor(scheduler.alphas_cumprod)
    return DiffusionDenoiser(unet, table, prediction, clip).eval()
