"""Peak memory of a certificate against n and the batch size, each in a process of its own."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.fixed import SIGMA, images, make
from benchmarks.peers import Art, art_is_installed
from varsmooth import FixedSelector, Options, SmoothedClassifier, certify

FULL = (
    ("ours", 4_000, 128),  # the heap takes a few dozen passes to stabilise
    ("ours", 16_000, 128),
    ("ours", 32_000, 128),
    ("ours", 4_000, 32),
    ("ours", 4_000, 512),
    ("art", 1_000, 32),
    ("art", 4_000, 32),
)
QUICK = (("ours", 20, 16), ("ours", 200, 16))


def run(cases: tuple[tuple[str, int, int], ...]) -> list[dict[str, Any]]:
    return [_in_own_process(*case) for case in cases if case[0] == "ours" or art_is_installed()]


def _in_own_process(tool: str, n: int, batch_size: int) -> dict[str, Any]:
    """The least of three processes: where buffers come to lie in the heap adds up to 15 MB."""
    words = [sys.executable, "-m", "benchmarks.memory", tool, str(n), str(batch_size)]
    outputs = [
        subprocess.run(words, check=True, capture_output=True, text=True).stdout for _ in range(3)
    ]
    megabytes = min(float(json.loads(one.splitlines()[-1])) for one in outputs)
    return {"tool": tool, "n": n, "batch_size": batch_size, "megabytes": megabytes}


def _kilobytes(field: str) -> int:
    """VmRSS, the memory in use, or VmHWM, the most that was in use since `_forget_the_peak`."""
    (line,) = [
        line
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith(field)
    ]
    return int(line.split()[1])


def _forget_the_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def _measure(tool: str, n: int, batch_size: int) -> float:
    """Megabytes in use at most while certifying, above what the loaded model uses; Linux only."""
    classifier, x = make("conv4"), images(1)
    torch.set_num_threads(1)
    if tool == "art":
        peer = Art(classifier, SIGMA, batch_size)
        run: Callable[[], object] = lambda: peer.certify(x, n)  # noqa: E731
    else:
        g = SmoothedClassifier(classifier, FixedSelector(SIGMA))
        run = lambda: certify(g, x, n=n, options=Options(batch_size=batch_size))  # noqa: E731
    before = _kilobytes("VmRSS")
    _forget_the_peak()
    run()
    return (_kilobytes("VmHWM") - before) / 1024


if __name__ == "__main__":
    print(json.dumps(_measure(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
