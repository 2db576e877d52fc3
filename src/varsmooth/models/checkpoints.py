"""Models on disk: weights beside a readable description, safe to load from untrusted sources.

A model is a folder with `config.json` and `model.safetensors`. It holds a classifier f, a selector
network h, or the pair. Loading runs no code from the folder: it builds registered networks by
name, and a user's own class only if the caller vouches for its import path.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch
from safetensors.torch import load as parse_tensors
from safetensors.torch import save as serialise_tensors
from torch import Tensor, nn

from varsmooth._util.files import replace_file
from varsmooth._util.fingerprints import fingerprint
from varsmooth._util.untrusted import check_regular
from varsmooth.errors import check, wrap_errors
from varsmooth.models.descriptions import CONFIG, WEIGHTS, Description, Part, describe, find, write
from varsmooth.models.names import NETWORKS
from varsmooth.models.networks import ReadsClassifier, build


@dataclass(frozen=True)
class Checkpoint:
    """A model in memory: its description and the networks, in evaluation mode."""

    description: Description
    classifier: nn.Module | None
    selector: nn.Module | None


def save(
    folder: str | Path,
    description: Description,
    classifier: nn.Module | None = None,
    selector: nn.Module | None = None,
    precision: Literal["float32", "float16"] = "float32",
) -> Description:
    """Write a model; returns its description with the fingerprints of what `load` will give.

    Each file is replaced in one step, the description last. With float16 the stored weights are
    rounded, and it is the rounded network that the fingerprint names.
    """
    tensors: dict[str, Tensor] = {}
    parts: dict[str, Part] = {}
    for name, module in (("classifier", classifier), ("selector", selector)):
        part = getattr(description, name)
        check((module is None) == (part is None), f"the {name} needs a network and a description")
        if module is None:
            continue
        loaded: dict[str, Tensor] = {}
        for key, value in module.state_dict().items():
            stored = value.detach().to("cpu").contiguous()
            if precision == "float16" and value.is_floating_point():
                stored = stored.half()
            tensors[f"{name}.{key}"], loaded[key] = stored, stored.to(value.dtype)
        parts[name] = replace(part, fingerprint=fingerprint(module, loaded))
    check(bool(tensors), "a model needs a classifier, a selector or both")
    about = replace(description, **parts)  # type: ignore[arg-type]
    replace_file(Path(folder) / WEIGHTS, serialise_tensors(tensors))
    write(Path(folder), about)
    return about


def load_checkpoint(name_or_path: str | Path, trust: Collection[str] = ()) -> Checkpoint:
    """A released model by name, or any model by the path of its folder.

    Args:
        name_or_path: The name or the folder.
        trust: Import paths `package.module:Class` that the caller vouches for; networks that are
            not registered here are built only from these.
    """
    check(
        isinstance(trust, Collection) and not isinstance(trust, str),
        f"trust must be a list of import paths, trust=['package.module:Class'], not {trust!r}",
    )
    folder = find(name_or_path)
    description = describe(folder)
    tensors = load_weights(folder / WEIGHTS)
    classifier = _module(folder, "classifier", description.classifier, tensors, trust)
    selector = _module(folder, "selector", description.selector, tensors, trust)
    if isinstance(selector, ReadsClassifier) and classifier is not None:
        selector.attach(classifier)
    return Checkpoint(description, classifier, selector)


def load_weights(path: str | Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file by name; its header is checked against its size."""
    path = Path(path)
    missing = f"there is no file {path}; a model is {CONFIG} and {WEIGHTS}"
    with wrap_errors(FileNotFoundError, missing):
        check_regular(path)
        content = path.read_bytes()
    damaged = f"{path} is truncated or not a safetensors file; copy it again"
    with wrap_errors(Exception, damaged):  # torch has many kinds: an unknown dtype is a KeyError
        return parse_tensors(content)


def _module(
    folder: Path,
    name: str,
    part: Part | None,
    tensors: Mapping[str, Tensor],
    trust: Collection[str],
) -> nn.Module | None:
    """The network of one part with its weights, or None if the model has no such part."""
    if part is None:
        return None
    check(
        ":" not in part.network or part.network in trust,
        f"{folder} asks to import {part.network}; if you trust that code, "
        f"load it with `trust=[{part.network!r}]`",
    )
    mine = [key for key in tensors if key.startswith(f"{name}.")]
    stored = {key.removeprefix(f"{name}."): tensors[key] for key in mine}
    misfit = f"the weights in {folder} do not fit the {name} of its {CONFIG}; copy both files again"
    if part.network in NETWORKS:  # compare before memory is spent on what the options ask for
        with torch.device("meta"):
            planned = build(part.network, part.options).state_dict()
        check(_shapes(planned) == _shapes(stored), misfit)
    module = build(part.network, part.options)
    wanted = module.state_dict()
    check(_shapes(wanted) == _shapes(stored), misfit)
    module.load_state_dict({key: stored[key].to(wanted[key].dtype) for key in wanted})
    check(
        part.fingerprint == fingerprint(module),
        f"the {name} in {folder} is not the one its {CONFIG} describes (the fingerprints differ); "
        "copy both files from one place",
    )
    return module.to(memory_format=torch.channels_last).eval()  # type: ignore[call-overload,no-any-return]


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    return {key: value.shape for key, value in tensors.items()}
