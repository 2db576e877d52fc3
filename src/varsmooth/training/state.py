"""The state of a training run: how it is started, saved and resumed."""

import io
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from varsmooth._util.files import check_unused, replace_file
from varsmooth.errors import check, wrap_errors
from varsmooth.evaluation.measure import Metrics
from varsmooth.models.descriptions import CONFIG, Part, describe
from varsmooth.models.networks import build
from varsmooth.training.configuration import AnyConfig, TrainingConfig

STATE = "state.pt"

ANEW = ", or start anew with `resume=False`"


@dataclass
class Position:
    """How far a run is: the epochs that are done, and the beginning of the next one.

    Attributes:
        step: Steps done of that epoch.
        seconds: Time they took.
        reported: What each of them reported.
        before: What was measured on the weights that training started from.
    """

    history: list[dict[str, float]] = field(default_factory=list)
    step: int = 0
    seconds: float = 0.0
    reported: dict[str, list[float]] = field(default_factory=dict)
    before: Metrics | None = None


def save_state(
    path: Path, parts: Mapping[str, Any], position: Position, config: TrainingConfig
) -> None:
    """Write the parts (anything with a state_dict), the position and the run's configuration."""
    state = {
        "config": json.dumps(identity(config)),
        "progress": json.dumps(asdict(position)),
        "parts": {name: part.state_dict() for name, part in parts.items()},
    }
    content = io.BytesIO()
    torch.save(state, content)
    replace_file(path, content.getvalue())


def already_trained(config: TrainingConfig, network: Literal["classifier", "selector"]) -> bool:
    """Whether this run has already saved its model here; raises if the model is of another run."""
    if not (config.out / CONFIG).is_file():
        if not (config.out / STATE).is_file():
            check_unused(config.out, STATE, "events.")  # of TensorBoard
        return False
    part: Part | None = getattr(describe(config.out), network)
    if config.resume and part is not None and part.training == identity(config):
        return True
    check(
        (config.out / STATE).is_file(),
        f"{config.out} holds a model that this command did not train; choose another output folder",
    )
    return False


def resumable(config: TrainingConfig) -> bool:
    """Whether the folder has a state to continue from."""
    return config.resume and (config.out / STATE).is_file()


def restore_state(
    path: Path, parts: Mapping[str, Any], config: TrainingConfig, device: torch.device
) -> Position:
    """How far the run is, with its parts as they were then."""
    unreadable = f"{path} is not a training state; delete it{ANEW}"
    with wrap_errors(Exception, unreadable):  # torch and zip raise many kinds
        state = torch.load(path, map_location=device, weights_only=True)
        then, now = json.loads(state["config"]), identity(config)
        position, saved = Position(**json.loads(state["progress"])), state["parts"]
    different = [
        f"`{key}={then[key]}` there, {value} now"
        for key, value in now.items()
        if then.get(key, value) != value
    ]
    check(
        not different,
        f"{path} belongs to a run with other settings ({'; '.join(different)}); "
        f"choose another output folder{ANEW}",
    )
    for name, part in parts.items():
        part.load_state_dict(saved[name])
    return position


def identity(config: TrainingConfig) -> dict[str, Any]:
    """The options that decide the weights; a run may move to another folder or data root."""
    moves = ("out", "root", "resume", "tensorboard", "held_out_images", "n", "trust")
    values = {key: value for key, value in asdict(config).items() if key not in moves}
    plain: dict[str, Any] = json.loads(json.dumps(values))
    return plain


def seeded(network: str, options: Mapping[str, Any], seed: int) -> nn.Module:
    """A fresh network; modules initialise themselves from torch's global generator."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build(network, options)


def finished(
    config: AnyConfig, options: dict[str, Any], history: list[dict[str, float]], metrics: Metrics
) -> Part:
    """What the description of a model says about the network that this run trained."""
    return Part(
        network=config.network,
        options=options,
        seed=config.seed,
        training=identity(config),
        history=history,
        metrics={config.held_out_split: metrics},
    )
