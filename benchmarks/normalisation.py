"""What to do with BatchNorm under noise: `python -m benchmarks.normalisation [FOLDER]`.

Two small networks are trained on images without noise and then made ready for every σ ≤ ½ in
several ways. Prints a table of accuracy (%) without noise, accuracy of the vote by σ, and the
largest average certified radius of a single σ, all on held-out images.
"""

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from varsmooth import load_dataset
from varsmooth.data import ImageDataset
from varsmooth.evaluation.measure import measure_classifier
from varsmooth.models.adapters import CifarResNet
from varsmooth.models.checkpoints import load_checkpoint
from varsmooth.models.networks.layers import StandardisedConv2d
from varsmooth.training import ClassifierConfig, train_classifier

SIGMA = 0.5
LEVELS = (0.0625, 0.125, 0.25, 0.5)
NETWORKS = ("plain", "residual")


@dataclass(frozen=True)
class Size:
    images: int
    clean_epochs: int
    noise_epochs: int
    measured: int
    votes: int
    data: str = "cifar10"


FULL = Size(images=5000, clean_epochs=10, noise_epochs=4, measured=300, votes=32)
QUICK = Size(64, 1, 1, 10, 12, "cifar10-sample")


class Frozen(nn.BatchNorm2d):
    """BatchNorm that keeps the statistics it has."""

    def train(self, mode: bool = True) -> "Frozen":
        super().train(False)
        return self


def make(kind: str = "plain", norm: str = "batch") -> nn.Module:
    """A network for CIFAR-10 images with BatchNorm, frozen BatchNorm, or standardised weights."""
    if kind == "residual":
        network: nn.Module = CifarResNet(8)
    else:
        layers: list[nn.Module] = []
        for inputs, outputs in ((3, 32), (32, 64), (64, 64)):
            convolution = nn.Conv2d(inputs, outputs, 3, padding=1)
            layers += [convolution, nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)]
        network = nn.Sequential(*layers, nn.Flatten(), nn.Linear(1024, 10))
    if norm != "batch":
        for part in list(network.modules()):
            for name, child in part.named_children():
                if isinstance(child, nn.BatchNorm2d):
                    frozen = Frozen(child.num_features)
                    setattr(part, name, frozen if norm == "frozen" else nn.Identity())
                elif isinstance(child, nn.Conv2d) and norm == "weight":
                    sizes = (child.kernel_size[0], child.stride[0], int(child.padding[0]))
                    standardised = StandardisedConv2d(child.in_channels, child.out_channels, *sizes)
                    setattr(part, name, standardised)
    return network


def recalibrate(network: nn.Module, images: Tensor) -> None:
    """BatchNorm statistics of noisy images, σ ~ U(0, SIGMA) for each, without training."""
    layers = [part for part in network.modules() if isinstance(part, nn.BatchNorm2d)]
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None  # the mean over all batches
    generator = torch.Generator().manual_seed(0)
    network.train()
    with torch.no_grad():
        for batch in torch.split(images, 128):
            sigma = SIGMA * torch.rand(len(batch), 1, 1, 1, generator=generator)
            network(batch + sigma * torch.randn(batch.shape, generator=generator))
    network.eval()


def run(size: Size, kind: str, folder: Path) -> dict[str, dict[str, Any]]:
    """The measurements of one network, by what was done to it."""
    held_out = load_dataset(size.data, "val").few(size.measured)

    def train(name: str, norm: str, initial: str | None, **options: Any) -> nn.Module:
        common: dict[str, Any] = {
            "data": size.data,
            "train_split": "train" if size.data == "cifar10" else "val",
            "held_out_images": 10,
            "n": 10,
            "images": size.images,
            "network": "benchmarks.normalisation:make",
            "network_options": {"kind": kind, "norm": norm},
            "trust": ["benchmarks.normalisation:make"],
            "batch_size": 64,
            "initial": initial,
        }
        out = train_classifier(ClassifierConfig(out=folder / f"{kind}-{name}", **common, **options))
        classifier = load_checkpoint(out, common["trust"]).classifier
        assert classifier is not None
        return classifier

    clean = {"sigma": 1e-3, "epochs": size.clean_epochs}
    every = {"sigma": SIGMA, "universal": True, "epochs": size.noise_epochs, "learning_rate": 1e-3}
    one = {**every, "sigma": 0.25, "universal": False}
    start, start_weight = (str(folder / f"{kind}-clean-{norm}") for norm in ("batch", "weight"))
    networks = {"as it was": train("clean-batch", "batch", None, **clean)}
    networks["one σ = 0.25"] = train("one", "batch", start, **one)
    networks["every σ"] = train("every", "batch", start, **every)
    networks["every σ, frozen"] = train("frozen", "frozen", start, **every)
    network = load_checkpoint(start, ["benchmarks.normalisation:make"]).classifier
    assert network is not None
    pixels = load_dataset(size.data, "train" if size.data == "cifar10" else "val")
    recalibrate(network, pixels.few(min(size.images, 4000)).batch(slice(None)).images)
    networks["recalibrated, not trained"] = network
    train("clean-weight", "weight", None, **clean)
    networks["standardised weights, every σ"] = train("weight", "weight", start_weight, **every)
    return {name: _measured(network, held_out, size) for name, network in networks.items()}


def _measured(network: nn.Module, held_out: ImageDataset, size: Size) -> dict[str, Any]:
    metrics, _ = measure_classifier(network.eval(), held_out, LEVELS, size.votes)
    radii = [level["average_radius"] for level in metrics["certified"].values()]
    return {
        "clean": metrics["plain_accuracy"],
        **metrics["smoothed_accuracy"],
        "radius": max(radii),
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(temporary)
        for kind in NETWORKS:
            rows = run(FULL, kind, folder)
            print(f"| {kind} | {' | '.join(rows['as it was'])} |")
            print("|---" * (1 + len(rows["as it was"])) + "|")
            for name, row in rows.items():
                print(f"| {name} | {' | '.join(f'{value:g}' for value in row.values())} |")


if __name__ == "__main__":
    main()
