"""From options to a smoothed classifier."""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import nn

from varsmooth.errors import VarsmoothError, require
from varsmooth.models.checkpoints import load_checkpoint
from varsmooth.models.loading import smoothed
from varsmooth.runs.options import ModelOptions
from varsmooth.selectors import FixedSelector
from varsmooth.smoothing import SmoothedClassifier


@dataclass(frozen=True)
class Model:
    """A smoothed classifier and what is known of its training: class names and data set."""

    g: SmoothedClassifier
    class_names: tuple[str, ...] = ()
    dataset: str = ""


def build(options: ModelOptions, device: torch.device | str = "cpu") -> Model:
    """The smoothed classifier that the options describe.

    Whatever is not asked for is what the checkpoint recommends, see `varsmooth.load`.
    """
    if options.model is None:
        raise VarsmoothError("choose a model with --model: a released name, a folder, module:name")
    if ":" in options.model and not Path(options.model).exists():
        model = _own(options, options.model)
    else:
        checkpoint = load_checkpoint(options.model, listed(options.trust))
        about = checkpoint.description
        model = Model(smoothed(checkpoint, options), about.class_names, about.dataset)
    model.g.to(device).eval()
    return model


def listed(value: Any) -> list[Any]:
    """One value or several as a list."""
    return [] if value is None else list(value) if isinstance(value, list | tuple) else [value]


def _own(options: ModelOptions, path: str) -> Model:
    """The user's own: what module:factory returns."""
    found = _imported(path)()
    names = tuple(getattr(found, "class_names", ()))
    used = list(options.of_selector())
    if isinstance(found, SmoothedClassifier):
        used += ["sigma"] * (options.sigma is not None) + ["lattice"] * options.lattice
        require(not used, f"{path} comes with its own selector; leave out {', '.join(used)}")
        return Model(found, names)
    require(
        isinstance(found, nn.Module),
        f"{path} must return an nn.Module or a SmoothedClassifier, not {type(found).__name__}",
    )
    require(not used, f"{path} has no selector; leave out {', '.join(used)} and give --sigma")
    if options.sigma is None:
        raise VarsmoothError(f"{path} has no selector; choose a fixed noise level with --sigma")
    selector = FixedSelector(options.sigma)
    return Model(SmoothedClassifier(found, selector, lattice=options.lattice), names)


def _imported(path: str) -> Callable[[], Any]:
    """The factory; the working directory is searched too, as `python -m` does."""
    module, _, name = path.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        factory: Callable[[], Any] = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise VarsmoothError(f"{path} cannot be imported: {error}") from error
    require(callable(factory), f"{path} is no function or class that makes a model")
    return factory
