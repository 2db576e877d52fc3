"""Where work is done: in one process, or in several that share it.

Several processes are started and connected by Lightning Fabric, by itself (`devices=2`) or under
`torchrun`. What they have to agree on is averaged in plain sight instead of inside a wrapped
module: the networks are small, and any user's module works unchanged.
"""

import atexit
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.multiprocessing.spawn import ProcessException

from varsmooth._util.files import LOCK, only_writer
from varsmooth.errors import VarsmoothError, check, wrap_errors

Result = TypeVar("Result")


class Engine:
    """The processes that share the work, as one of them sees them."""

    def __init__(self, device: torch.device, fabric: Any = None) -> None:
        """One process on `device`, or one of several that `fabric` connected."""
        self.device, self.fabric = device, fabric
        self.rank = int(fabric.global_rank) if fabric else 0
        self.processes = int(fabric.world_size) if fabric else 1

    def average(self, tensors: Iterable[Tensor]) -> None:
        """Replace each tensor by its mean over the processes."""
        several = list(tensors)
        if self.fabric is None or not several:
            return
        flat = torch.cat([tensor.flatten() for tensor in several])
        flat = self.fabric.all_reduce(flat, reduce_op="mean")
        for tensor, part in zip(several, flat.split([t.numel() for t in several]), strict=True):
            tensor.copy_(part.view_as(tensor))


def launch(
    function: Callable[[Engine], Result], accelerator: str = "auto", devices: int = 1
) -> Result:
    """Run function(engine) in every process and return what the first one returned.

    Whatever ends this process, also SIGKILL, ends the processes that it started.
    """

    under_torchrun = "TORCHELASTIC_RUN_ID" in os.environ
    if devices == 1 and not under_torchrun:
        return function(Engine(choose_device(accelerator)))
    several = "several processes (devices above 1, or torchrun)"
    check(":" not in accelerator, f"{several} have a device each; choose `device='cuda'`")
    how = "install it with: pip install lightning-fabric"
    with wrap_errors(ImportError, f"{several} need Lightning Fabric; {how}"):
        from lightning_fabric import Fabric
    if under_torchrun:
        devices = int(os.environ["LOCAL_WORLD_SIZE"])
    strategy = "ddp" if under_torchrun else "ddp_spawn"
    nodes = int(os.environ.get("GROUP_WORLD_SIZE", "1"))
    fabric = Fabric(accelerator=accelerator, devices=devices, num_nodes=nodes, strategy=strategy)
    try:
        result: Result = fabric.launch(partial(_in_process, function=function))
    except ProcessException as error:
        reason = str(error).strip().splitlines()[-1]
        raise VarsmoothError(
            f"process {error.error_index} of {devices} ended early ({reason}); "
            "rerun the same command to resume"
        ) from error
    finally:  # after an interruption no process is left behind
        for child in multiprocessing.active_children():
            child.terminate()
    return result


def _in_process(fabric: Any, function: Callable[[Engine], Result]) -> Result:
    parent: Any = multiprocessing.parent_process()

    def end_with_parent() -> None:  # its result has no reader any more
        parent.join()
        os._exit(1)

    if parent is not None:
        threading.Thread(target=end_with_parent, daemon=True).start()
    atexit.register(_leave_group)
    return function(Engine(fabric.device, fabric))


def _leave_group() -> None:
    """End the threads of the process group: a process that exits with them may abort."""
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def writing_to(folder: Path, name: str = LOCK) -> AbstractContextManager[None]:
    """Hold a folder against other runs, once for all processes of this one."""
    return only_writer(folder, name) if os.environ.get("RANK", "0") == "0" else nullcontext()


def choose_device(name: str = "auto") -> torch.device:
    """The device that one process computes on: auto, or as torch names it.

    auto is the first CUDA device if there is one, else the CPU.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    with wrap_errors(RuntimeError, f"torch knows no device {name!r}; choose `device='cpu'`"):
        device = torch.device(name)
        module = torch.get_device_module(device)
    count = module.device_count() if device.type == "cpu" or module.is_available() else 0
    label = device.type if device.type != "cuda" else "CUDA"
    here = f"torch sees no {label} device here" if count == 0 else f"torch has no device {name}"
    names = [f"{device.type}:{i}" for i in range(count) if i in (0, count - 1)]
    last = f" or {' to '.join(names)}" if names and device.type != "cpu" else ""
    check((device.index or 0) < count, f"{here}; choose `device='cpu'`{last}")
    return device
