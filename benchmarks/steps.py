"""How much of a classifier's training is f itself: `python -m benchmarks.steps [PRESET]`.

Whole steps of the training loop (images, noise, forward and backward pass, optimisers) against the
forward and backward pass of f on a batch that lies ready, both in the precision of the preset.
"""

import argparse
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from benchmarks.timing import Ratio, interleave
from varsmooth import load_dataset
from varsmooth._util.processes import Engine
from varsmooth.training.configuration import ClassifierConfig, read_config
from varsmooth.training.loop import Batches, _Run
from varsmooth.training.state import Position, seeded
from varsmooth.training.tasks import ClassifierTask


@dataclass(frozen=True)
class Size:
    batch: int
    steps: int
    rounds: int


FULL = Size(batch=128, steps=4, rounds=7)
QUICK = Size(batch=8, steps=1, rounds=1)


def run(size: Size, preset: str = "cpu/strong", **options: Any) -> dict[str, Any]:
    """Images per second of both, and the share of the time of a step that f itself takes."""
    changes = {"batch_size": size.batch, "images_per_epoch": size.batch * size.steps}
    values = {"out": Path("."), "network_options": options, **changes}
    config = read_config(ClassifierConfig, preset, values)
    network = {"conditional": config.universal, **config.network_options}
    module = seeded(config.network, network, config.seed)
    module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    engine = Engine(torch.device("cpu"))
    batches = Batches(load_dataset("cifar10-sample", "test"), config, engine)
    training = _Run(ClassifierTask(module, config), config, engine)
    images, labels, _ = next(batches.of_epoch(0))
    images, labels = images.repeat(config.copies, 1, 1, 1), labels.repeat(config.copies)
    levels = (torch.rand(len(images)),) if config.universal else ()

    def whole() -> None:
        training.train_epoch(batches, Position())

    def bare() -> None:
        for _ in range(size.steps):
            with torch.autocast("cpu", torch.bfloat16, config.precision == "bfloat16"):
                logits = module(images, *levels)
            module.zero_grad()
            torch.autograd.backward(functional.cross_entropy(logits.float(), labels))

    seconds = interleave({"whole": whole, "bare": bare}, size.rounds)
    shown = size.batch * size.steps
    return {
        **asdict(size),
        "preset": preset,
        "images_per_second": {name: shown / min(times) for name, times in seconds.items()},
        "share": asdict(Ratio.of(seconds["bare"], seconds["whole"])),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.steps", description=__doc__)
    parser.add_argument("preset", nargs="?", default="cpu/strong")
    args = parser.parse_args()
    torch.set_num_threads(1)
    results = run(FULL, args.preset)
    for name, rate in results["images_per_second"].items():
        print(f"{name}: {rate:.0f} images per second")
    share = results["share"]
    print(f"share of f: {share['median']:.3f} ({share['low']:.3f} to {share['high']:.3f})")


if __name__ == "__main__":
    main()
