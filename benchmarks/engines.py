"""Static ranks against dynamic tasks, two workers each, where the cost of images varies.

Eight blocks of 32 images; every other block is hard: its votes go on until a slight majority is
proven, while the others are decided at the first look. Process r of 2 gets blocks r, r+2, …, so
that one rank has all of the hard ones: the worst case for ranks. f only waits, 0.2 ms per noisy
image, as a process does whose GPU computes, so that other work on the machine hardly matters.

    python -m benchmarks.engines
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

BLOCK, BLOCKS, REPEATS = 32, 8, 2
SECONDS = 2e-4
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


def computing_time(command: list[str], out: Path) -> float:
    """Seconds from the start of the first block to the last row: without starting processes."""
    first, last, lines = 0.0, 0.0, 0
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        time.sleep(0.1)
        now, rows = time.perf_counter(), sum(f.read_bytes().count(b"\n") for f in _files(out))
        if rows > lines:
            first, last, lines = first or now, now, rows
    if process.returncode != 0 or lines != BLOCK * BLOCKS:
        raise RuntimeError(f"{' '.join(command)} failed")
    texts = [line for file in _files(out) for line in file.read_text().splitlines()]
    shortest: float = min(json.loads(text)["seconds"] for text in texts)  # it came first
    return last - first + BLOCK * shortest


def _files(out: Path) -> list[Path]:
    return sorted(out.glob("rows-*.jsonl"))


def main() -> None:
    times: dict[str, list[float]] = {name: [] for name in ENGINES}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_images(folder / "images.npz")
        model = "--model benchmarks.engines:Waiting"
        words = f"-m varsmooth certify {model} --data {folder}/images.npz"
        for repeat in range(REPEATS):
            for number, (engine, option) in enumerate(ENGINES.items()):
                out = folder / f"{repeat}-{number}"
                command = [sys.executable, *f"{words} {OPTIONS} {option} --out {out}".split()]
                times[engine].append(computing_time(command, out))
                print(f"{engine}: {times[engine][-1]:.0f} s", flush=True)
    static, dynamic = (sum(seconds) for seconds in times.values())
    print(f"ranks / tasks: {static / dynamic:.2f}")


if __name__ == "__main__":
    main()
