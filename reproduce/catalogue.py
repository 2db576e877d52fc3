"""The experiments by name, in the order of the paper."""

from typing import Any

from reproduce.ablation import ABLATION
from reproduce.cascade import CASCADE
from reproduce.cascade_attack import CASCADE_ATTACK
from reproduce.certification import CERTIFIED, CLEAN, TRADEOFF
from reproduce.experiment import Experiment
from reproduce.memorisation import MEMORISATION
from reproduce.robustness import (
    ATTACK_CONVERGENCE,
    CLIPPING,
    STRONG_ATTACK,
    UNIVERSAL,
    UNIVERSAL_EXTENDED,
    WEAK_ATTACK,
)
from reproduce.selection import PERCENTILES, SELECTOR_BOUNDS

EXPERIMENTS: dict[str, Experiment[Any]] = {
    experiment.name: experiment
    for experiment in (
        TRADEOFF,
        PERCENTILES,
        SELECTOR_BOUNDS,
        CERTIFIED,
        MEMORISATION,
        CLEAN,
        ATTACK_CONVERGENCE,
        WEAK_ATTACK,
        STRONG_ATTACK,
        CLIPPING,
        UNIVERSAL,
        UNIVERSAL_EXTENDED,
        ABLATION,
        CASCADE,
        CASCADE_ATTACK,
    )
}
