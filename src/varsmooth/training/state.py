"""The state of a training run on disk: written whole after every epoch, read to go on."""

import io
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from varsmooth.errors import VarsmoothError, require
from varsmooth.files import replace_file
from varsmooth.training.configuration import TrainingConfig, renamed


def save_state(
    path: Path,
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    history: list[Any],
    config: TrainingConfig,
) -> None:
    """Write weights, optimiser, history and what the run was configured as."""
    content = io.BytesIO()
    torch.save(
        {
            "config": json.dumps(identity(config)),
            "module": module.state_dict(),
            "optimizer": optimizer.state_dict(),
            "history": json.dumps(history),
        },
        content,
    )
    replace_file(path, content.getvalue())


def restore_state(
    path: Path,
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    config: TrainingConfig,
    device: torch.device,
) -> list[Any]:
    """The history of the epochs that are done, with module and optimiser as they were then."""
    if not path.is_file():
        return []
    try:
        state = torch.load(path, map_location=device, weights_only=True)
        then, now = renamed(json.loads(state["config"])), identity(config)
        history: list[Any] = json.loads(state["history"])
    except Exception as error:  # torch and zip raise many kinds
        raise VarsmoothError(
            f"{path} is no training state; delete it or use resume=false"
        ) from error
    different = [key for key in now if key in then and then[key] != now[key]]
    require(
        not different,
        f"{path} belongs to a run with another {', '.join(different)}; "
        "choose another output folder, or resume=false to start anew",
    )
    module.load_state_dict(state["module"])
    optimizer.load_state_dict(state["optimizer"])
    return history


def identity(config: TrainingConfig) -> dict[str, Any]:
    """The options that decide the weights; a run may move to another folder or data root."""
    moves = ("out", "root", "resume", "tensorboard", "held_out_images", "n", "trust")
    values = {key: value for key, value in asdict(config).items() if key not in moves}
    plain: dict[str, Any] = json.loads(json.dumps(values))
    return plain
