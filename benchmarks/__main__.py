"""All benchmarks in one run: `python -m benchmarks`, or `--quick` to see that they work."""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks import (
    cost,
    curve,
    deciding,
    dual,
    fixed,
    memory,
    precision,
    scaling,
    stopping,
    training,
)
from benchmarks.tables import Results, fill_template, tables

HERE = Path(__file__).parent
PARTS = (
    "fixed", "dual", "precision", "deciding", "stopping", "memory", "training", "processes",
    "cost", "curve",
)  # fmt: skip


def measure(quick: bool = False, only: tuple[str, ...] = PARTS) -> Results:
    """The results by name of the benchmark, each taken with one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    steps: dict[str, Callable[[], Any]] = {
        "fixed": lambda: fixed.run(fixed.QUICK if quick else fixed.FULL),
        "dual": lambda: dual.run(dual.QUICK if quick else dual.FULL),
        "precision": lambda: precision.run(precision.QUICK if quick else precision.FULL),
        "deciding": lambda: (
            deciding.run(deciding.QUICK, votes=None) if quick else deciding.run(deciding.CASES)
        ),
        "curve": lambda: _quick_curve() if quick else curve.run(curve.CASES),
        "stopping": lambda: stopping.run(20 if quick else 400),
        "memory": lambda: memory.run(memory.QUICK if quick else memory.FULL),
        "training": lambda: training.run(training.QUICK if quick else training.FULL),
        "processes": lambda: scaling.run(scaling.QUICK if quick else scaling.FULL),
        "cost": lambda: cost.run(cost.QUICK if quick else cost.FULL),
    }
    results: Results = {"processor": processor(), "threads": 1, "torch": torch.__version__}
    seconds = dict[str, float]()
    try:
        for name in only:
            started = time.perf_counter()
            results[name] = steps[name]()
            seconds[name] = time.perf_counter() - started
            print(f"{name}: {seconds[name]:.0f} s", flush=True)
    finally:
        torch.set_num_threads(threads)
    return results | {"seconds": seconds}


def _quick_curve() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        return curve.run(curve.QUICK, votes=None, store=Path(folder))


def processor() -> str:
    """The processor's own name, and how many cores there are."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]}, {len(names)} cores" if names else "unknown processor"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="tiny sizes; writes nothing")
    parser.add_argument("--only", nargs="*", choices=PARTS, help="keep the others' last results")
    args = parser.parse_args()
    stored = HERE / "results.json"
    results = measure(args.quick, tuple(args.only or PARTS))
    if args.only and not args.quick:
        before = json.loads(stored.read_text())
        seconds = {**before["seconds"], **results["seconds"]}
        results = {**before, **results, "seconds": seconds}
    if args.quick:
        return
    stored.write_text(json.dumps(results, indent=1) + "\n")
    page = HERE / "README.md"
    page.write_text(fill_template(page.read_text(), tables(results)))


if __name__ == "__main__":
    main()
