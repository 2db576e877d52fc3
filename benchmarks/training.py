"""One training step of h against a loop over samples, written from Algorithm 1 of the paper."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.fixed import SIGMA, make
from benchmarks.timing import Ratio, interleave
from varsmooth import load_dataset
from varsmooth.losses import variational_loss
from varsmooth.models.networks import build
from varsmooth.training.configuration import SelectorConfig
from varsmooth.training.tasks import SelectorTask

LAM = 0.3


@dataclass(frozen=True)
class Size:
    batch: int
    rounds: int


FULL = Size(batch=64, rounds=4)
QUICK = Size(batch=4, rounds=1)


def run(size: Size) -> dict[str, Any]:
    config = SelectorConfig(classifier="", out=Path("."), lam=LAM)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        h = build("attention")
    classifier = make("conv4")
    x, y, ids = load_dataset("cifar10-sample").batch(range(size.batch))
    assert y is not None
    labels, trained = y, list(h.parameters())
    task = SelectorTask(h, classifier, SIGMA, config)

    def ours() -> None:
        loss, _ = task.loss(x, labels, torch.as_tensor(ids), (0, 0, 0))
        torch.autograd.backward(loss, inputs=trained)

    def naive() -> None:
        torch.autograd.backward(_naive_loss(h, classifier, x, labels, config), inputs=trained)

    seconds = interleave({"ours": ours, "naive": naive}, size.rounds)
    return {
        **asdict(size),
        "selector_samples": config.selector_samples,
        "classifier_samples": config.classifier_samples,
        "images_per_second": {name: size.batch / min(times) for name, times in seconds.items()},
        "ratio": asdict(Ratio.of(seconds["naive"], seconds["ours"])),
    }


def _naive_loss(
    h: nn.Module, classifier: nn.Module, x: Tensor, y: Tensor, config: SelectorConfig
) -> Tensor:
    """Sample after sample: σ_s = median of h, then the mean softmax of f, then the loss."""
    sigma_a, lam = torch.full((len(x),), SIGMA), torch.full((len(x),), LAM)
    levels = [
        h(x + SIGMA * torch.randn_like(x), sigma_a, lam) for _ in range(config.selector_samples)
    ]
    sigma = torch.stack(levels).median(dim=0).values
    scale = sigma.view(-1, 1, 1, 1)
    softmax = [
        classifier(x + scale * torch.randn_like(x)).softmax(dim=1)
        for _ in range(config.classifier_samples)
    ]
    scores = torch.stack(softmax).mean(dim=0).log()
    return variational_loss(scores, y, sigma, 2 * SIGMA, LAM, d=x[0].numel()).mean()
