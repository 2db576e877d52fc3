"""Where the time of a certificate goes: `python -m benchmarks.profile [--dual]`."""

import sys

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.fixed import images
from varsmooth import certify, load


def main() -> None:
    torch.set_num_threads(1)
    g = load("cifar10-0.25") if "--dual" in sys.argv else load("cifar10-0.25", sigma=0.25)
    x = images(2)
    certify(g, x, n=200)
    with profile(activities=[ProfilerActivity.CPU]) as found:
        certify(g, x, n=1000, seed=1)
    events = found.key_averages()
    whole = sum(event.self_cpu_time_total for event in events)
    for event in sorted(events, key=lambda event: -event.self_cpu_time_total)[:12]:
        share = 100 * event.self_cpu_time_total / whole
        print(f"{share:5.1f} %  {event.count:6d} calls  {event.key}")


if __name__ == "__main__":
    main()
