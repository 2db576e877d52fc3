"""What one image looks like to a smoothed classifier, as quickly as a knob is turned."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from varsmooth import bounds
from varsmooth.app.knobs import Knobs
from varsmooth.app.models import Model
from varsmooth.certificates import Prediction
from varsmooth.data import Batch
from varsmooth.defaults import ALPHA, ALPHA_SELECT
from varsmooth.prediction import predict
from varsmooth.selectors import MedianSelector


@dataclass(frozen=True)
class Levels:
    """What h says of the image under noise.

    samples: h(x+ε), ascending, before clip and grid; median: theirs, chosen: after both.
    bounds: where an attacker with the budget can bring the median at most, before clip and grid;
    0 and infinity where the draws are too few to tell.
    """

    samples: tuple[float, ...]
    median: float
    chosen: float
    bounds: tuple[float, float]
    clip: tuple[float, float] | None
    grid: tuple[float, ...]
    budget: float


@dataclass(frozen=True)
class View:
    """The image, one noisy copy of it, the answer, and who chose σ (None: a fixed level)."""

    x: Tensor  # (C,H,W)
    noisy: Tensor  # (C,H,W), clipped to [0,1] for the eye
    answer: Prediction
    levels: Levels | None


def look(model: Model, image: Batch, knobs: Knobs, seed: int) -> View:
    """Predict one image, and keep what there is to see. The same seed draws the same noise."""
    g = model.deployed(knobs)
    with overheard(model.checkpoint.selector) as draws:
        (answer,) = predict(g, image.images, n=knobs.n, alpha=ALPHA, seed=seed, ids=image.ids)
    noise = g.noise(1, seed, image.ids)
    _, epsilon = next(noise.batches(image.images, "picture", 1))
    noisy = noise.perturb(image.images, torch.tensor([answer.sigma]), epsilon)
    levels = None
    if isinstance(g.selector, MedianSelector):
        samples = tuple(torch.cat(draws).sort().values.tolist())
        levels = Levels(
            samples,
            median=samples[len(samples) // 2],
            chosen=answer.sigma,
            bounds=reachable(samples, knobs.budget, g.selector.sigma_m),
            clip=g.selector.clip,
            grid=() if g.selector.grid is None else g.selector.grid.levels,
            budget=knobs.budget,
        )
    return View(image.images[0], noisy[0].clamp(0, 1), answer, levels)


@contextmanager
def overheard(network: nn.Module | None) -> Iterator[list[Tensor]]:
    """What a network answers meanwhile: so h need not be asked a second time for a picture."""
    heard: list[Tensor] = []
    if network is None:
        yield heard
        return
    hook = network.register_forward_hook(lambda network, inputs, output: heard.append(output))
    try:
        yield heard
    finally:
        hook.remove()


def reachable(samples: tuple[float, ...], budget: float, sigma_m: float) -> tuple[float, float]:
    """Between which values the median stays for every perturbation within the budget."""
    low, high = bounds.order_statistics(len(samples), budget, sigma_m, ALPHA_SELECT / 2)
    return (
        samples[low - 1] if low >= 1 else 0.0,
        samples[high - 1] if high <= len(samples) else float("inf"),
    )
