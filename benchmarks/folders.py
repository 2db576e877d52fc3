"""A folder of 50,000 photographs: how long listing it takes, and what a run needs more of it.

    python -m benchmarks.folders

Photographs of 224×224 pixels are made from the embedded images; their pages are taken out of the
page cache first, as far as Linux lets a user do that. Runs certify 10 photographs with 1,000 votes,
and a classifier that is a single sum, so that decoding weighs as much as it ever can: out of a
folder of 10, out of one of 50,000, and from memory. Processor time, since other work on the machine
hardly changes it.
"""

import io
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from varsmooth import load_dataset

PHOTOGRAPHS, FEW = 50_000, 10
WORDS = "certify --model benchmarks.folders:Brightness --sigma 0.25 --n 1000 --device cpu"


class Brightness(nn.Module):
    """Class 1 if the image is bright."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        above = self.scale * (x.sum(dim=(1, 2, 3)) - x[0].numel() / 2)
        return torch.stack([-above, above] + [torch.full_like(above, -1e9)] * 8, dim=1)


def write_photographs(folder: Path, count: int) -> None:
    """`count` JPEGs in class folders, from as many different images as are embedded."""
    data = load_dataset("cifar10-sample")
    files = [_jpeg(pixels) for pixels in np.asarray(data.images)]
    assert data.labels is not None
    for name in data.class_names:
        (folder / name).mkdir(parents=True)
    for number in range(count):
        i = number % len(files)
        path = folder / data.class_names[int(data.labels[i])] / f"{number:06d}.jpg"
        path.write_bytes(files[i])


def _jpeg(pixels: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).resize((224, 224), Image.Resampling.BICUBIC).save(file, "JPEG")
    return file.getvalue()


def forget_pages(folder: Path) -> None:
    """Take the contents of the files out of memory; the disk has them."""
    os.sync()
    for path in folder.rglob("*.jpg"):
        file = os.open(path, os.O_RDONLY)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


def cost(data: str, out: Path) -> tuple[float, float]:
    """Processor seconds and the peak of memory in MB of a run in a process of its own."""
    words = [sys.executable, "-m", "varsmooth", *WORDS.split(), *data.split(), "--out", str(out)]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(words)} failed")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_photographs(folder / "many", PHOTOGRAPHS)
        forget_pages(folder / "many")
        wall, processor = time.perf_counter(), time.process_time()
        every = load_dataset(folder / "many")
        wall, processor = time.perf_counter() - wall, time.process_time() - processor
        print(f"listed {len(every):,} photographs: {wall:.1f} s, {processor:.1f} s of a processor")
        few = every[:: PHOTOGRAPHS // FEW]
        assert few.labels is not None
        write_photographs(folder / "few", FEW)
        np.savez(folder / "few.npz", images=np.asarray(few.images), labels=few.labels)
        sources = {
            f"in memory, {FEW}": f"--data {folder}/few.npz",
            f"folder of {FEW}": f"--data {folder}/few",
            f"folder of {PHOTOGRAPHS:,}": f"--data {folder}/many --subset ::{PHOTOGRAPHS // FEW}",
        }
        for number, (source, words) in enumerate(sources.items()):
            seconds, peak = cost(words, folder / f"run-{number}")
            print(f"{source}: {seconds:.1f} s of a processor, peak {peak:,.0f} MB", flush=True)


if __name__ == "__main__":
    main()
