"""Where the time of a certificate goes: `python -m benchmarks.profile [WHAT] [--network NAME]`."""

import argparse
from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.fixed import SIGMA, images, make
from benchmarks.peers import N0, Art, ReferenceLoop
from varsmooth import FixedSelector, Options, SmoothedClassifier, certify, load

N = 1000


def way(what: str, network: str) -> Callable[[], object]:
    """The certificate of one image in the way of that name."""
    x = images(1)
    if what == "dual":
        pair = load("cifar10-0.25")
        return lambda: certify(pair, x, n=N, options=Options(n0=N0))
    if what == "fixed":
        g = SmoothedClassifier(make(network), FixedSelector(SIGMA))
        return lambda: certify(g, x, n=N, options=Options(n0=N0))
    peer = (Art if what == "art" else ReferenceLoop)(make(network), SIGMA)
    return lambda: peer.certify(x, N)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profile", description=__doc__)
    parser.add_argument(
        "what", nargs="?", default="fixed", choices=("fixed", "dual", "art", "loop")
    )
    parser.add_argument("--network", default="conv4", choices=("conv4", "resnet20"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    run = way(args.what, args.network)
    run()
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for _ in range(3):
            run()
    events = profiler.key_averages()
    whole = sum(event.self_cpu_time_total for event in events)
    for event in sorted(events, key=lambda event: -event.self_cpu_time_total)[:12]:
        share = 100 * event.self_cpu_time_total / whole
        print(f"{share:5.1f} %  {event.count:6d} calls  {event.key}")


if __name__ == "__main__":
    main()
