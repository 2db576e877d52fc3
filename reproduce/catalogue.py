"""The experiments by name, in the order of the paper."""

from importlib import import_module
from typing import Any

from reproduce.experiment import Experiment
from varsmooth.errors import require

NAMES = (
    "tradeoff",
    "percentiles",
    "selector-bounds",
    "certified",
    "clean",
    "attack-convergence",
    "weak-attack",
    "strong-attack",
    "clipping",
    "universal",
    "universal-extended",
    "ablation",
)


def find_experiment(name: str) -> Experiment[Any]:
    """The experiment of this name."""
    require(name in NAMES, f"there is no experiment {name!r}; known are {', '.join(NAMES)}")
    module = import_module(f"reproduce.{name.replace('-', '_')}")
    experiment: Experiment[Any] = module.EXPERIMENT
    return experiment


def every_experiment() -> list[Experiment[Any]]:
    """All experiments."""
    return [find_experiment(name) for name in NAMES]
