"""Peak memory of a certificate against n and the batch size, each in a process of its own."""

import json
import resource
import subprocess
import sys
from typing import Any

from benchmarks.fixed import SIGMA, images, make
from benchmarks.peers import Art, art_is_installed
from varsmooth import FixedSelector, SmoothedClassifier, certify

FULL = (
    ("ours", 1_000, 128),
    ("ours", 4_000, 128),
    ("ours", 16_000, 128),
    ("ours", 1_000, 32),
    ("ours", 1_000, 512),
    ("art", 1_000, 32),
    ("art", 4_000, 32),
)
QUICK = (("ours", 20, 16), ("ours", 200, 16))


def run(cases: tuple[tuple[str, int, int], ...]) -> list[dict[str, Any]]:
    return [_in_own_process(*case) for case in cases if case[0] == "ours" or art_is_installed()]


def _in_own_process(tool: str, n: int, batch_size: int) -> dict[str, Any]:
    words = [sys.executable, "-m", "benchmarks.memory", tool, str(n), str(batch_size)]
    found = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    return {
        "tool": tool,
        "n": n,
        "batch_size": batch_size,
        "megabytes": json.loads(found.splitlines()[-1]),
    }


def growth(rows: list[dict[str, Any]], tool: str) -> float:
    """Megabytes more at the largest n than at the smallest, at the tool's default batch size."""
    usual = [row for row in rows if row["tool"] == tool]
    same = [row for row in usual if row["batch_size"] == usual[0]["batch_size"]]
    ordered = sorted(same, key=lambda row: int(row["n"]))
    return float(ordered[-1]["megabytes"]) - float(ordered[0]["megabytes"])


def _peak() -> float:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


def _measure(tool: str, n: int, batch_size: int) -> float:
    """Megabytes that certifying adds to the peak of a process that has loaded everything."""
    classifier, x = make("conv4"), images(1)
    if tool == "art":
        peer = Art(classifier, SIGMA, batch_size)
        before = _peak()
        peer.certify(x, n)
    else:
        g = SmoothedClassifier(classifier, FixedSelector(SIGMA))
        before = _peak()
        certify(g, x, n=n, batch_size=batch_size)
    return _peak() - before


if __name__ == "__main__":
    print(json.dumps(_measure(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
