"""The fixed certificate against ART, against the published loop, and against bare f."""

import itertools
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from benchmarks.peers import ALPHA, N0, Art, Limit, ReferenceLoop, art_is_installed
from benchmarks.timing import Ratio, interleave
from varsmooth import FixedSelector, Options, SmoothedClassifier, certify, load, load_dataset
from varsmooth.models.networks import build

SIGMA = 0.25
LAYOUTS = ("default", "channels-last")


@dataclass(frozen=True)
class Case:
    """One network, one N: how many images a round certifies and how many rounds there are."""

    network: str
    n: int
    images: int
    rounds: int


@dataclass(frozen=True)
class Size:
    """How much to measure."""

    cases: tuple[Case, ...]
    batch_sizes: tuple[int, ...]
    sweep_n: int


FULL = Size(
    (
        Case("conv4", 1_000, images=2, rounds=7),
        Case("conv4", 10_000, images=1, rounds=3),
        Case("resnet20", 1_000, images=1, rounds=5),
        Case("resnet20", 10_000, images=1, rounds=2),
    ),
    batch_sizes=(32, 128, 512, 1000),
    sweep_n=900,
)
QUICK = Size((Case("conv4", 40, images=1, rounds=2),), batch_sizes=(16, 32), sweep_n=20)

Setting = tuple[int, str]  # batch size, layout


def run(size: Size) -> list[dict[str, Any]]:
    """One row per case: ratios to our own seconds, and the result of the sweep."""
    rows = []
    for network, cases in itertools.groupby(size.cases, key=lambda case: case.network):
        classifier = make(network)
        swept = sweep(classifier, size)
        rows += [compare(classifier, case, swept) for case in cases]
    return rows


def make(network: str) -> nn.Module:
    """The released conv4; a ResNet-20 with fresh weights, which costs what a trained one costs."""
    if network == "conv4":
        return load("cifar10-0.25", sigma=SIGMA).classifier
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return build(network).eval()


def images(count: int) -> Tensor:
    return load_dataset("cifar10-sample").batch(range(count))[0]


def peers() -> dict[str, type[Art] | type[ReferenceLoop] | type[Limit]]:
    tools: dict[str, type[Art] | type[ReferenceLoop] | type[Limit]] = {
        "loop": ReferenceLoop,
        "limit": Limit,
    }
    return {"art": Art, **tools} if art_is_installed() else tools


def sweep(classifier: nn.Module, size: Size) -> dict[str, dict[Setting, float]]:
    """Milliseconds per sample of every peer at every setting, and ours at every batch size."""
    x = images(1)
    samples = N0 + size.sweep_n
    settings = list(itertools.product(size.batch_sizes, LAYOUTS))
    ways: dict[str, Callable[[], object]] = {}
    for name, peer in peers().items():
        for batch_size, layout in settings:
            one = peer(classifier, SIGMA, batch_size, layout)
            ways[f"{name} {batch_size} {layout}"] = lambda one=one: one.certify(x, size.sweep_n)  # type: ignore[misc]
    g = SmoothedClassifier(classifier, FixedSelector(SIGMA))
    for batch_size in size.batch_sizes:
        ways[f"ours {batch_size} default"] = partial(
            certify,
            g,
            x,
            n=size.sweep_n,
            alpha=ALPHA,
            options=Options(n0=N0, batch_size=batch_size),
        )
    seconds = interleave(ways, rounds=1, warm=False)
    times: dict[str, dict[Setting, float]] = {}
    for way, (time,) in seconds.items():
        name, size_of_batch, layout = way.split()
        times.setdefault(name, {})[int(size_of_batch), layout] = 1000 * time / samples
    return times


def compare(
    classifier: nn.Module, case: Case, swept: dict[str, dict[Setting, float]]
) -> dict[str, Any]:
    """Everybody on the same images: at the defaults, and at the best setting of the sweep."""
    best = {name: min(times, key=lambda setting: times[setting]) for name, times in swept.items()}
    x, g = images(case.images), SmoothedClassifier(classifier, FixedSelector(SIGMA))
    ways: dict[str, Callable[[], object]] = {
        "ours": lambda: certify(g, x, n=case.n, alpha=ALPHA, options=Options(n0=N0)),
    }
    for name, peer in peers().items():
        for kind, one in {
            "default": None if peer is Limit else peer(classifier, SIGMA),
            "best": peer(classifier, SIGMA, *best[name]),
        }.items():
            if one is not None:
                ways[f"{name} {kind}"] = lambda one=one: one.certify(x, case.n)  # type: ignore[misc]
    if case.network == "conv4":  # the one whose kernels are standardised
        ways["before"] = lambda: _certify_as_before(g, x, case.n)
    seconds = interleave(ways, case.rounds, warm=False)  # the sweep has run them all
    samples = case.images * (N0 + case.n)
    return {
        **asdict(case),
        "samples": samples,
        "milliseconds_per_sample": {
            name: 1000 * min(times) / samples for name, times in seconds.items()
        },
        "ratio": {
            name: asdict(Ratio.of(times, seconds["ours"])) for name, times in seconds.items()
        },
        "best": {name: list(setting) for name, setting in best.items()},
        "sweep": {
            name: [[*setting, time] for setting, time in times.items()]
            for name, times in swept.items()
        },
    }


def _certify_as_before(g: SmoothedClassifier, x: Tensor, n: int) -> None:
    """Our own certificate with kernels standardised anew in every forward pass."""
    with mock.patch("varsmooth.smoothing.constant_part", nullcontext):
        certify(g, x, n=n, alpha=ALPHA, options=Options(n0=N0))
