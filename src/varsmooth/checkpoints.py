"""Models on disk: weights beside a readable description, safe to load from strangers."""

from __future__ import annotations

import hashlib

import torch
from torch import nn


def fingerprint(module: nn.Module) -> str:
    """SHA-256 over the class name and every tensor of ``state_dict``: name, dtype, shape, bytes.

    Two modules have the same fingerprint exactly when they are of the same class and hold the
    same numbers, whatever device or memory layout these live in.
    """
    digest = hashlib.sha256(type(module).__name__.encode())
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(f"\0{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        flat = tensor.detach().to("cpu").contiguous().flatten()
        digest.update(flat.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
