"""Models with different outputs never share an identity; one model always has the same."""

import json
import random
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.conftest import Tally
from tests.evaluation import Output, Patch
from tests.small_models import run
from varsmooth import CascadeSelector, FixedSelector, MedianSelector, SmoothedClassifier
from varsmooth._util.fingerprints import fingerprint
from varsmooth.cascade import Gate
from varsmooth.evaluation.headers import as_stored, different_options, header_file
from varsmooth.evaluation.runner import identity
from varsmooth.evaluation.vote_cache import CachedSmoothedClassifier
from varsmooth.models.adapters import NormalisedClassifier
from varsmooth.noise import NoiseStream
from varsmooth.probe import TOLERANCE, probe
from varsmooth.selectors import NoiseSelector

SHAPE = (3, 32, 32)


def network() -> nn.Module:
    """Ten classes; the same weights at every call."""
    with torch.random.fork_rng():
        torch.manual_seed(5)
        return nn.Sequential(nn.Conv2d(3, 8, 5, 4), nn.ReLU(), nn.Flatten(), nn.Linear(392, 10))


class Hidden(nn.Module):
    """A classifier with settings that no state dict has."""

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.network = network()
        self.settings = SimpleNamespace(**settings)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.network(x - getattr(self.settings, "shift", 0.0))
        return logits / getattr(self.settings, "temperature", 1.0)


class Describing(nn.Module):
    """A classifier whose `describe` hides what it does."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.network, self.scale = network(), scale

    def describe(self) -> dict[str, Any]:
        return {}

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.network(self.scale * x)
        return logits


class Calling(nn.Module):
    """A classifier that calls a function of its pixels first."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.network, self.function = network(), function

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.network(self.function(x))
        return logits


class Masked(nn.Module):
    """A classifier with scores that dwarf those of its other classes."""

    def __init__(self, shift: float, mask: float = 0.0, offset: float = 0.0) -> None:
        super().__init__()
        self.network, self.mask, self.offset = network(), mask, offset
        self.settings = SimpleNamespace(shift=shift)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.network(x - self.settings.shift) + self.offset
        return torch.where(torch.arange(10) % 3 > 0, logits, logits + self.mask)


class Many(Masked):
    """The same with so many classes that projections of them are kept."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([super().forward(x), torch.full((len(x), 90), -1e9)], dim=1)


class Flipped(SmoothedClassifier):
    """A class of the user's own that votes otherwise."""

    def count_votes(self, *arguments: Any, **options: Any) -> Tensor:
        return super().count_votes(*arguments, **options).flip(1)


class Choosing(NoiseSelector):
    """A selector that chooses another level than the one with which it responds."""

    def __init__(self, level: float) -> None:
        super().__init__()
        self.settings = SimpleNamespace(level=level)

    def respond(self, x: Tensor) -> Tensor:
        return x.new_full((len(x),), 0.5)

    def _level(self, x: Tensor, noise: NoiseStream, batch_size: int | None) -> Tensor:
        return x.new_full((len(x),), self.settings.level)

    def describe(self) -> dict[str, Any]:
        return {"selector": "choosing"}


def shifting(by: float) -> Callable[[Tensor], Tensor]:
    return lambda x: x - by


def loose(z: Tensor, logits: Tensor, sigma: Tensor, least: float = 0.12) -> Tensor:
    """A hard gate: one bit of its input shows."""
    return (logits.softmax(dim=1).amax(dim=1) >= least).float() - 0.5


def at_least(least: float) -> Gate:
    return lambda z, logits, sigma: loose(z, logits, sigma, least)


class ObjectGate:
    """A gate whose threshold no name, hash or state shows."""

    def __init__(self, least: float) -> None:
        self.least = least

    def __call__(self, z: Tensor, logits: Tensor, sigma: Tensor) -> Tensor:
        return loose(z, logits, sigma, self.least)


class SlotGate:
    """The same without a dictionary, and with a method for a gate."""

    __slots__ = "least"

    def __init__(self, least: float) -> None:
        self.least = least

    def gate(self, z: Tensor, logits: Tensor, sigma: Tensor) -> Tensor:
        return loose(z, logits, sigma, self.least)


def of_namespace(least: float) -> Gate:
    settings = SimpleNamespace(least=least)
    return lambda z, logits, sigma: loose(z, logits, sigma, settings.least)


def of_module(least: float) -> Gate:
    """A gate that reads a number of its module."""
    scope: dict[str, Any] = {"LEAST": least, "loose": loose}
    exec("def gate(z, logits, sigma): return loose(z, logits, sigma, LEAST)", scope)
    gate: Gate = scope["gate"]
    return gate


def fixed(f: nn.Module) -> SmoothedClassifier:
    return SmoothedClassifier(f, FixedSelector(0.5))


def gated(gate: Gate | None) -> SmoothedClassifier:
    return SmoothedClassifier(network(), CascadeSelector([0.5, 0.25], gates=gate))


def median(function: Callable[[Tensor], Tensor]) -> SmoothedClassifier:
    return SmoothedClassifier(network(), MedianSelector(function, 0.25, 21, (0.1, 1.0), 4))


def changed() -> SmoothedClassifier:
    f = Hidden(temperature=1.0)
    f.settings.shift = 0.3
    return fixed(f)


ZERO, ONE = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
PAIRS: dict[str, tuple[SmoothedClassifier, SmoothedClassifier]] = {
    "mean": (
        fixed(NormalisedClassifier(network(), ZERO, ONE)),
        fixed(NormalisedClassifier(network(), (0.5, 0.5, 0.5), ONE)),
    ),
    "std": (
        fixed(NormalisedClassifier(network(), ZERO, ONE)),
        fixed(NormalisedClassifier(network(), ZERO, (0.2, 0.2, 0.2))),
    ),
    "temperature": (fixed(Hidden(temperature=1.0)), fixed(Hidden(temperature=2.0))),
    "unregistered tensor": (
        fixed(Hidden(shift=torch.zeros(3, 1, 1))),
        fixed(Hidden(shift=torch.full((3, 1, 1), 0.3))),
    ),
    "changed attribute": (fixed(Hidden(temperature=1.0)), changed()),
    "describe": (fixed(Describing()), fixed(Describing(0.5))),
    "closure of f": (fixed(Calling(shifting(0.1))), fixed(Calling(shifting(0.4)))),
    "lambda of f": (fixed(Calling(lambda x: x - 0.1)), fixed(Calling(lambda x: x - 0.4))),
    "shift beside a masked class": (fixed(Masked(0.0, -1e9)), fixed(Masked(0.3, -1e9))),
    "shift beside an offset": (fixed(Masked(0.0, 0.0, 1e4)), fixed(Masked(0.3, 0.0, 1e4))),
    "shift beside masked classes": (fixed(Many(0.0)), fixed(Many(0.3))),
    "votes of a subclass": (fixed(network()), Flipped(network(), FixedSelector(0.5))),
    "level of a subclass": (
        SmoothedClassifier(network(), Choosing(0.25)),
        SmoothedClassifier(network(), Choosing(0.5)),
    ),
    "gate or none": (gated(at_least(0.12)), gated(None)),
    "partial gate": (gated(partial(loose, least=0.2)), gated(partial(loose, least=0.21))),
    "closure gate": (gated(at_least(0.2)), gated(at_least(0.21))),
    "object gate": (gated(ObjectGate(0.12)), gated(ObjectGate(0.3))),
    "close object gates": (gated(ObjectGate(0.507)), gated(ObjectGate(0.513))),
    "close methods": (gated(SlotGate(0.507).gate), gated(SlotGate(0.513).gate)),
    "close namespaces": (gated(of_namespace(0.507)), gated(of_namespace(0.513))),
    "close module numbers": (gated(of_module(0.507)), gated(of_module(0.513))),
    "selector": (
        median(lambda x: x.flatten(1).mean(dim=1)),
        median(lambda x: x.flatten(1).mean(dim=1) + 0.2),
    ),
}  # fmt: skip
NOT_VOTES = {"selector", "votes of a subclass", "level of a subclass"}
VOTES = [name for name in PAIRS if name not in NOT_VOTES]


def header(g: SmoothedClassifier) -> dict[str, Any]:
    """What identifies a model, as the header of a run stores it."""
    values: dict[str, Any] = as_stored({"verb": "certify", "config": {}, **identity(g, SHAPE)})
    return values


@pytest.mark.parametrize("name", PAIRS)
def test_models_that_differ_have_two_identities(name: str) -> None:
    one, other = map(header, PAIRS[name])
    assert different_options(one, one) == []
    (sentence,) = different_options(one, other)
    words = ("another network", "outputs differ", "the selector's")
    assert any(word in sentence for word in words), sentence


@pytest.mark.parametrize("name", ["mean", "std", "describe", "closure of f", "partial gate"])
def test_a_hash_covers_what_it_can_know(name: str) -> None:
    one, other = ((fingerprint(g.classifier), fingerprint(g.selector)) for g in PAIRS[name])
    assert one != other


@pytest.mark.parametrize("name", VOTES)
def test_models_that_differ_never_share_votes(name: str, tmp_path: Path) -> None:
    x = torch.rand(2, *SHAPE, generator=torch.Generator().manual_seed(1))
    sigma = torch.full((2,), 0.5)
    for g in PAIRS[name]:
        noise = g.noise(2, 5, [3, 1])
        for folder in (tmp_path, tmp_path / "alone"):
            cached = CachedSmoothedClassifier(g, folder)
            votes = cached.votes(x, 64, sigma=sigma, noise=noise)
            assert torch.equal(votes, g.votes(x, 64, sigma=sigma, noise=noise))
        again = CachedSmoothedClassifier(g, tmp_path)
        again.votes(x, 64, sigma=sigma, noise=noise)
        (store,) = again.stores.values()
        assert len(store.counts) == 2, "the same model finds its votes"
    assert len(list(tmp_path.glob("*-*"))) == 2


def test_every_model_is_itself_in_another_process() -> None:
    code = (
        "import json, torch\n"
        "torch.set_num_threads(2)\n"
        "from tests.evaluation.test_identity import PAIRS, SHAPE, identity\n"
        "print(json.dumps({name: identity(pair[0], SHAPE) for name, pair in PAIRS.items()}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for name, there in json.loads(done.stdout).items():
        here = header(PAIRS[name][0])
        assert different_options(here, here | there) == []


CHANGED = 200


def with_weight(value: float) -> nn.Module:
    f = network()
    next(f.parameters()).data[0, 0, 0, 0] = value
    return f


ALTERED: dict[str, Callable[[float], SmoothedClassifier]] = {
    "mean": lambda v: fixed(NormalisedClassifier(network(), (v, v, v), ONE)),
    "std": lambda v: fixed(NormalisedClassifier(network(), ZERO, (v, v, v))),
    "temperature": lambda v: fixed(Hidden(temperature=v)),
    "shift": lambda v: fixed(Hidden(shift=torch.full((3, 1, 1), v))),
    "closure": lambda v: fixed(Calling(shifting(v))),
    "weight": lambda v: fixed(with_weight(v)),
    "gate": lambda v: gated(at_least(v)),
    "level": lambda v: SmoothedClassifier(network(), FixedSelector(v)),
}


@pytest.mark.slow
@pytest.mark.campaign
def test_any_change_is_another_model(tally: Tally) -> None:
    """Changes of a hundredth and more, somewhere in the model."""
    tally("models with one change", CHANGED)
    for number in range(CHANGED):
        dice = random.Random(number)
        make, value = ALTERED[dice.choice(sorted(ALTERED))], dice.uniform(0.15, 0.3)
        one, other = map(header, (make(value), make(value * (1 + 10 ** dice.uniform(-2, 0)))))
        assert different_options(one, one) == []
        assert different_options(one, other), number


def test_rounding_is_no_other_model_and_a_small_change_is() -> None:
    here, rounded, other = (
        probe(fixed(Hidden(temperature=1 + change)), torch.zeros(1, *SHAPE))
        for change in (0, TOLERANCE / 3, 3 * TOLERANCE)
    )
    assert here.differences(rounded) == []
    assert here.differences(other) == ["classifier"]


def test_buffers_that_code_computes_may_differ_in_the_last_digit() -> None:
    f = NormalisedClassifier(network(), (0.4914, 0.4822, 0.4465), ONE)
    before = fingerprint(f)
    f.mean[0, 0] *= 1 + 1e-7
    assert fingerprint(f) == before
    f.mean[0, 0] *= 1 + 1e-3
    assert fingerprint(f) != before


NORMALISED = """
import torch
from tests.evaluation.test_identity import Hidden, network
from varsmooth.models.adapters import NormalisedClassifier

def zero(): return NormalisedClassifier(network(), (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
def half(): return NormalisedClassifier(network(), (0.5, 0.5, 0.5), (1.0, 1.0, 1.0))
def warm(): return Hidden(shift=0.0)
def cold(): return Hidden(shift=0.4)
"""


@pytest.mark.parametrize(("one", "other"), [("zero", "half"), ("warm", "cold")])
def test_a_run_is_neither_resumed_nor_verified_with_another_model(
    one: str, other: str, tmp_path: Path, monkeypatch: Patch, capsys: Output
) -> None:
    (tmp_path / "two_models.py").write_text(NORMALISED)
    monkeypatch.syspath_prepend(tmp_path)
    certify = "certify --sigma 0.5 --n 50 --n0 20 --alpha 0.05 --model two_models:"
    images, out = "--subset 0:4 --out", tmp_path / "run"
    assert run(f"{certify}{one} {images} {out}") == 0
    assert run(f"{certify}{one} {images} {out}") == 0
    assert run(f"verify {out} --model two_models:{one}") == 0
    capsys.readouterr()
    assert run(f"{certify}{other} {images} {out}") == 1
    assert run(f"verify {out} --model two_models:{other}") == 1
    errors = capsys.readouterr().err
    assert errors.count("another network") + errors.count("outputs differ") == 2


def test_a_run_without_a_probe_is_readable_and_says_so(
    tmp_path: Path, monkeypatch: Patch, capsys: Output
) -> None:
    """Another torch is recorded with the rows it made."""
    (tmp_path / "older_models.py").write_text(NORMALISED)
    monkeypatch.syspath_prepend(tmp_path)
    certify = (
        "certify --sigma 0.5 --n 50 --n0 20 --alpha 0.05 --model older_models:warm --batch-size 8"
    )
    assert run(f"{certify} --subset 0:12 --out {tmp_path}/run") == 0
    header = json.loads((tmp_path / "run" / "run.json").read_text())
    del header["probe"]
    header["environment"]["torch"] = "1.0"
    (tmp_path / "run" / "run.json").write_bytes(header_file(header))
    rows = tmp_path / "run" / "rows-00000.jsonl"
    rows.write_bytes(b"".join(rows.read_bytes().splitlines(keepends=True)[:4]))
    capsys.readouterr()
    assert run(f"{certify} --subset 0:12 --out {tmp_path}/run") == 0
    output = capsys.readouterr().err
    assert "outside its weights" in output
    assert f"started with torch 1.0, this is {torch.__version__}" in output
    lines = [json.loads(line) for line in rows.read_bytes().splitlines()]
    made = [line.get("environment", {}).get("torch") for line in lines]
    assert made == [None] * 4 + [torch.__version__] * 8
