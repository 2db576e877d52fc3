"""Where a run computes: one process, or several that share each batch.

Several processes are started and connected by Lightning Fabric, by itself (`devices=2`) or under
`torchrun`. Gradients and statistics are averaged here in plain sight instead of inside a wrapped
module: the networks are small, and any user's module works unchanged.
"""

import os
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn

from varsmooth.errors import VarsmoothError

Result = TypeVar("Result")


class Engine(Protocol):
    """The processes of a run, as one of them sees them."""

    rank: int
    processes: int
    device: torch.device

    def average(self, tensors: Iterable[Tensor]) -> None:
        """Replace each tensor by its mean over the processes."""


class Alone:
    """One process: nothing to average."""

    rank = 0
    processes = 1

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def average(self, tensors: Iterable[Tensor]) -> None:
        pass


class Together:
    """One of several processes that Fabric connected."""

    def __init__(self, fabric: Any) -> None:
        self.fabric = fabric
        self.rank = int(fabric.global_rank)
        self.processes = int(fabric.world_size)
        self.device: torch.device = fabric.device

    def average(self, tensors: Iterable[Tensor]) -> None:
        several = list(tensors)
        if not several:
            return
        flat = torch.cat([tensor.flatten() for tensor in several])
        flat = self.fabric.all_reduce(flat, reduce_op="mean")
        for tensor, part in zip(several, flat.split([t.numel() for t in several]), strict=True):
            tensor.copy_(part.view_as(tensor))


def launch(
    function: Callable[[Engine], Result], accelerator: str = "auto", devices: int = 1
) -> Result:
    """Run function(engine) in every process and return what the first one returned."""
    under_torchrun = "TORCHELASTIC_RUN_ID" in os.environ
    if devices == 1 and not under_torchrun:
        return function(Alone(_device(accelerator)))
    try:
        from lightning_fabric import Fabric
    except ImportError as error:
        raise VarsmoothError(
            "training with several processes needs Lightning Fabric; "
            "install it with: pip install 'varsmooth[distributed]'"
        ) from error
    strategy = "ddp" if under_torchrun else "ddp_spawn"
    nodes = int(os.environ.get("GROUP_WORLD_SIZE", "1"))
    fabric = Fabric(accelerator=accelerator, devices=devices, num_nodes=nodes, strategy=strategy)
    result: Result = fabric.launch(partial(_in_process, function=function))
    return result


def _in_process(fabric: Any, function: Callable[[Engine], Result]) -> Result:
    return function(Together(fabric))


def _device(accelerator: str) -> torch.device:
    available = torch.cuda.is_available()
    if accelerator == "cuda" and not available:
        raise VarsmoothError("accelerator is cuda, but torch sees no such device; use cpu")
    return torch.device("cuda" if available and accelerator != "cpu" else "cpu")


def average_gradients(engine: Engine, module: nn.Module) -> None:
    """The gradient of the whole batch from those of its shares."""
    engine.average(p.grad for p in module.parameters() if p.grad is not None)
