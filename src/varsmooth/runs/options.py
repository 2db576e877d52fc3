"""What can be asked of a run, as plain values. The command line makes its options from these."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from varsmooth.defaults import ALPHA, ALPHA_SELECT, BATCH_SIZE, N0, N_SELECT, N
from varsmooth.models.settings import Settings


@dataclass(frozen=True)
class ModelOptions(Settings):
    """The smoothed classifier: a model, and who chooses its noise level.

    Args:
        model: a released name (varsmooth models), a checkpoint folder, or module:factory of your
            own, returning an nn.Module or a SmoothedClassifier
        trust: import paths package.module:Class of networks that a checkpoint may load
    """

    model: str | None = None
    trust: str | list[str] | None = None


@dataclass(frozen=True)
class DataOptions:
    """The images.

    Args:
        data: a name from `varsmooth data list`, or the path of your own images
        split: train, val or test, where the data set has them
        subset: START:STOP:STEP, a Python slice of the split
        resize: cut each image to its central square and scale it to this many pixels a side;
            radii are then those of the scaled image
        root: the data directory (default: $VARSMOOTH_DATA, else the platform's usual place)
    """

    data: str = "cifar10-sample"
    split: str = "test"
    subset: str | None = None
    resize: int | None = None
    root: Path | None = None


@dataclass(frozen=True)
class RunOptions:
    """Where results go and where they are computed; changes no result.

    Args:
        out: the folder of the run; the same command continues an interrupted one
        name: what tables and legends call the run (default: the folder's name)
        batch_size: noisy images per forward pass
        device: where to compute
        devices: number of processes, each with its own device
    """

    out: Path
    name: str | None = None
    batch_size: int = BATCH_SIZE
    device: Literal["auto", "cpu", "cuda"] = "auto"
    devices: int = 1


@dataclass(frozen=True)
class CertifyOptions:
    """The certificates.

    Args:
        n: votes at each level
        n0: draws that choose class and level
        n_select: draws of the selector behind its bounds
        alpha: probability that one image's radius is too large, at most
        alpha_select: the part of alpha spent on the selector
        method: sound: true whatever the attacker does; conditional: if the selector is not
            attacked; paper: the paper's three levels at --distance, heuristic
        distance: D of the paper's method
        every_index: for the paper's method, every sampled level between its bounds
        band: cover the deployed prediction, whose median is empirical
        runner_up: bound the runner-up class too
        seed: of all noise; a result is a function of it and the image's id
        votes: a folder of stored votes that runs share: another λ, clip or D then costs only
            the selector
    """

    n: int = N
    n0: int = N0
    n_select: int = N_SELECT
    alpha: float = ALPHA
    alpha_select: float = ALPHA_SELECT
    method: Literal["sound", "conditional", "paper"] = "sound"
    distance: float | None = None
    every_index: bool = False
    band: bool = True
    runner_up: bool = False
    seed: int = 0
    votes: Path | None = None


@dataclass(frozen=True)
class PredictOptions:
    """The predictions.

    Args:
        n: votes
        alpha: probability of a wrong answer that is not an abstention; null: plain majority
        alpha_select: the part of alpha for the deployed median of a protected selector
        seed: of all noise (default: fresh entropy, which the guarantee needs in deployment)
    """

    n: int = N
    alpha: float | None = ALPHA
    alpha_select: float = ALPHA_SELECT
    seed: int | None = None


@dataclass(frozen=True)
class AttackOptions:
    """The attack: projected gradient descent in the ℓ2 ball.

    Args:
        eps: ℓ2 budgets, 0.25,0.5,1
        kind: strong: through selector, noise and votes; weak: on f without noise (an f that
            wants to know σ is told the level chosen for the clean image)
        steps: gradient steps
        samples: noisy copies behind each gradient step (EOT)
        restarts: starts; the first is the image itself, the others are random
        n_median_attack: draws of the selector's median inside the attack, odd
        n: votes before and after the attack
        alpha: abstain unless the votes are significant at this level; null: plain majority
        save_images: keep the adversarial images beside the rows
        seed: of all noise
    """

    eps: float | list[float] | None = None
    kind: Literal["strong", "weak"] = "strong"
    steps: int = 20
    samples: int = 16
    restarts: int = 1
    n_median_attack: int = 11
    n: int = N
    alpha: float | None = None
    save_images: bool = False
    seed: int = 0


def options_in(config: Mapping[str, Any]) -> tuple[ModelOptions, DataOptions]:
    """The model and the images that the configuration of a stored run names."""
    values = dict(config)
    if values["clip"] is not None:
        values["clip"] = tuple(values["clip"])
    if values["root"] is not None:
        values["root"] = Path(values["root"])
    model, data = (
        {field.name: values[field.name] for field in fields(kind)}
        for kind in (ModelOptions, DataOptions)
    )
    return ModelOptions(**model), DataOptions(**data)
