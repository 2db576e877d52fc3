"""Static ranks against dynamic tasks, two workers each, where the cost of images varies.

Eight blocks of 32 images; every other block is hard: its votes go on until a slight majority is
proven, while the others are decided at the first look. Process r of 2 gets blocks r, r+2, …, so
that one rank has all of the hard ones: the worst case for ranks. f only waits, 0.4 ms per noisy
image, as a process does whose GPU computes, so that other work on the machine hardly matters.

    python -m benchmarks.engines
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

BLOCK, BLOCKS, REPEATS = 32, 8, 2
SECONDS = 4e-4
"""Of one noisy image."""

OPTIONS = "--sigma 0.25 --at 0 --n-max 4000 --batch-size 256 --device cpu"
ENGINES = {"ranks (--devices 2)": "--devices 2", "tasks (--engine ray)": "--engine ray"}


class Waiting(nn.Module):
    """Class 1 if the mean pixel is above ½; answers as slowly as a large network."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        time.sleep(SECONDS * len(x))
        above = self.scale * (x.mean(dim=(1, 2, 3)) - 0.5)
        return torch.stack([-above, above], dim=1)


def write_images(path: Path) -> None:
    """Hard: 184 of 192 values are 128 and the others 127, so that 54 % of the votes are for 1."""
    hard = np.full(192, 127, np.uint8)
    hard[:184] = 128
    blocks = [np.tile(hard if i % 2 == 0 else 200, (BLOCK, 1)) for i in range(BLOCKS)]
    images = np.concatenate([np.broadcast_to(b, (BLOCK, 192)) for b in blocks])
    labels = np.ones(len(images), np.int64)
    np.savez(path, images=images.reshape(-1, 8, 8, 3).astype(np.uint8), labels=labels)


def main() -> None:
    times: dict[str, list[float]] = {name: [] for name in ENGINES}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_images(folder / "images.npz")
        words = (
            f"-m varsmooth certify --model benchmarks.engines:Waiting --data {folder}/images.npz"
        )
        for repeat in range(REPEATS):
            for number, (engine, option) in enumerate(ENGINES.items()):
                out = f"--out {folder}/{repeat}-{number}"
                started = time.perf_counter()
                command = [sys.executable, *f"{words} {OPTIONS} {option} {out}".split()]
                subprocess.run(command, check=True, capture_output=True)
                times[engine].append(time.perf_counter() - started)
                print(f"{engine}: {times[engine][-1]:.0f} s, start included", flush=True)
    static, dynamic = (min(seconds) for seconds in times.values())
    print(f"ranks / tasks: {static / dynamic:.2f}")


if __name__ == "__main__":
    main()
