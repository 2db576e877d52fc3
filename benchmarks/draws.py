"""What a classifier for every σ gets right on one draw of noise, and what a vote of it costs.

    python -m benchmarks.draws runs/trial [cifar10-strong …]

Accuracy on one noisy copy of each of the 5,000 images of `val` in float32; processor time of a vote
on one thread, in batches of 250; multiplications of its convolutions and matrices.
"""

import sys
from typing import Any

import torch
from torch import nn

from benchmarks.timing import interleave
from varsmooth.data import ImageDataset, load_dataset
from varsmooth.models.checkpoints import load_checkpoint
from varsmooth.noise import keyed_generator
from varsmooth.smoothing import constant_weights

LEVELS = (0.12, 0.25, 0.5, 1.0)
BATCH = 250


def one_draw(classifier: nn.Module, data: ImageDataset, sigma: float) -> float:
    """The share of the images that f names rightly on one draw of noise."""
    right = 0
    with torch.inference_mode(), constant_weights(classifier):
        for first in range(0, len(data), BATCH):
            images, labels, _ = data.batch(range(first, min(first + BATCH, len(data))))
            assert labels is not None
            generator = keyed_generator("cpu", 0, "one draw", f"{sigma}", first)
            noisy = images + sigma * torch.randn(images.shape, generator=generator)
            logits = classifier(noisy, torch.full((len(noisy),), sigma))
            right += int((logits.argmax(dim=1) == labels).sum())
    return right / len(data)


def seconds_per_vote(classifier: nn.Module, shape: tuple[int, ...], rounds: int = 9) -> float:
    """Of one image in a batch, the quickest of the rounds."""
    images, levels = torch.rand(BATCH, *shape), torch.full((BATCH,), 0.5)
    images = images.to(memory_format=torch.channels_last)
    with torch.inference_mode(), constant_weights(classifier):
        taken = interleave({"vote": lambda: classifier(images, levels)}, rounds)
    return min(taken["vote"]) / BATCH


def multiplications(classifier: nn.Module, shape: tuple[int, ...]) -> int:
    """Of the convolutions and matrices, for one image."""
    counted = 0

    def count(layer: nn.Module, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        nonlocal counted
        assert isinstance(layer, nn.Conv2d | nn.Linear)
        each = layer.weight[0].numel()
        counted += each * output[0].numel()

    hooks = [
        layer.register_forward_hook(count)
        for layer in classifier.modules()
        if isinstance(layer, nn.Conv2d | nn.Linear)
    ]
    with torch.inference_mode():
        classifier(torch.rand(1, *shape), torch.ones(1))
    for hook in hooks:
        hook.remove()
    return counted


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    data = load_dataset("cifar10", "val")
    channels, size = data.images.shape[3], data.images.shape[1:3]
    print("| model | parameters | multiplications | ms per vote | one draw, σ =", end=" ")
    print(" / ".join(f"{sigma:g}" for sigma in LEVELS), "|")
    for name in names:
        classifier = load_checkpoint(name).classifier
        assert classifier is not None
        classifier.eval()
        shape = (channels, *size)
        cells = [
            name,
            f"{sum(p.numel() for p in classifier.parameters()) / 1e6:.2f} M",
            f"{multiplications(classifier, shape) / 1e6:.0f} M",
            f"{1e3 * seconds_per_vote(classifier, shape):.2f}",
            " / ".join(f"{100 * one_draw(classifier, data, sigma):.1f}" for sigma in LEVELS),
        ]
        print("|", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1:])
