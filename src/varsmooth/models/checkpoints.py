"""Models on disk: weights beside a readable description, safe to load from strangers.

A model is a folder with `config.json` and `model.safetensors`. It holds a classifier f, a selector
network h, or the pair. Loading runs no code from the folder: it builds registered networks by
name, and a user's own class only if the caller vouches for its import path.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from importlib import metadata, resources
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError
from safetensors.torch import load as parse_tensors
from safetensors.torch import save as serialise_tensors
from torch import Tensor, nn

from varsmooth.errors import VarsmoothError, require
from varsmooth.files import replace_file
from varsmooth.identity import digest, fingerprint
from varsmooth.models.networks import ReadsClassifier, build

FORMAT = 1
CONFIG, WEIGHTS = "config.json", "model.safetensors"


@dataclass(frozen=True)
class Part:
    """One network of a model: how to build it, where it comes from, how good it is.

    network, options: as for `varsmooth.models.networks.build`; training: the configuration of
    the run; history: what each epoch reported; metrics: what was measured on the network.
    """

    network: str
    options: dict[str, Any] = field(default_factory=dict)
    seed: int | None = None
    training: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    metrics: dict[str, Any] = field(default_factory=dict)
    fingerprint: str = ""


@dataclass(frozen=True)
class Description:
    """What a user needs to know about a model before using it.

    sigma_a: level that f was trained at, or σ_a', the upper end of its range, if `universal`;
    selector_sigma: σ_a of h, an input of its training; sigma_t: the target level of it;
    lam_range: the λ it was trained with; recommended: settings chosen on held-out images,
    any of sigma, lam, sigma_m, clip, levels.
    """

    dataset: str
    class_names: tuple[str, ...]
    sigma_a: float
    universal: bool = False
    selector_sigma: float | None = None
    sigma_t: float | None = None
    lam_range: tuple[float, float] | None = None
    recommended: dict[str, Any] = field(default_factory=dict)
    pixel_range: tuple[float, float] = (0.0, 1.0)
    classifier: Part | None = None
    selector: Part | None = None
    version: str = field(default_factory=lambda: metadata.version("varsmooth"))
    format: int = FORMAT

    @property
    def trained_sigma(self) -> float:
        """The level f was trained for: σ_a, or the middle of the range (0, σ_a']."""
        return self.sigma_a / 2 if self.universal else self.sigma_a

    @property
    def default_sigma(self) -> float:
        """The one level to smooth f with unless the caller chooses another."""
        return float(self.recommended.get("sigma", self.trained_sigma))

    @property
    def sigma_of_selector(self) -> float:
        """σ_a of h; without an entry of its own, the level f was trained for."""
        return self.selector_sigma or self.trained_sigma


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
    parts: dict[str, Any] = asdict(description)
    for name, module in (("classifier", classifier), ("selector", selector)):
        part = getattr(description, name)
        require((module is None) == (part is None), f"the {name} needs a network and a description")
        if module is None:
            continue
        kept = module.state_dict()
        stored = {key: _rounded(value, precision) for key, value in kept.items()}
        loaded = {key: value.to(kept[key].dtype) for key, value in stored.items()}
        tensors |= {f"{name}.{key}": value for key, value in stored.items()}
        parts[name]["fingerprint"] = digest(type(module).__name__, loaded)
    require(bool(tensors), "a model needs a classifier, a selector or both")
    folder = Path(folder)
    replace_file(folder / WEIGHTS, serialise_tensors(tensors))
    replace_file(folder / CONFIG, (json.dumps(parts, indent=1) + "\n").encode())
    return _description(parts, folder / CONFIG)


def recommend(folder: str | Path, settings: Mapping[str, Any]) -> Description:
    """Write settings (any of lam, sigma_m, clip, levels) into the description of a model."""
    return rewrite(folder, replace(describe(folder), recommended=dict(settings)))


def rewrite(folder: str | Path, description: Description) -> Description:
    """Replace the description of a model in one step; its weights stay as they are."""
    folder = find(folder)
    replace_file(folder / CONFIG, (json.dumps(asdict(description), indent=1) + "\n").encode())
    return describe(folder)


def load_checkpoint(name_or_path: str | Path, trusted: Collection[str] = ()) -> Checkpoint:
    """A released model by name, or any model by the path of its folder.

    trusted: import paths `package.module:Class` that the caller vouches for; networks that are
    not registered here are built only from these.
    """
    folder = find(name_or_path)
    description = describe(folder)
    tensors = load_weights(folder / WEIGHTS)
    classifier = _module(folder, "classifier", description.classifier, tensors, trusted)
    selector = _module(folder, "selector", description.selector, tensors, trusted)
    if isinstance(selector, ReadsClassifier) and classifier is not None:
        selector.attach(classifier)
    return Checkpoint(description, classifier, selector)


def load_weights(path: str | Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file by name."""
    try:
        return parse_tensors(Path(path).read_bytes())
    except FileNotFoundError as error:
        raise VarsmoothError(
            f"there is no file {path}; a model is {CONFIG} and {WEIGHTS}"
        ) from error
    except SafetensorError as error:
        raise VarsmoothError(
            f"{path} is truncated or no safetensors file; copy it again"
        ) from error


def find(name_or_path: str | Path) -> Path:
    """The folder of a model: a path that has a description, or the name of a released model."""
    path = Path(name_or_path).expanduser()
    if (path / CONFIG).is_file():
        return path
    released = Path(str(resources.files("varsmooth"))) / "models" / "released"
    if (released / str(name_or_path) / CONFIG).is_file():
        return released / str(name_or_path)
    raise VarsmoothError(
        f"{name_or_path} is neither a folder with a {CONFIG} nor a released model; "
        f"released are: {', '.join(released_names()) or 'none'}"
    )


def released_names() -> list[str]:
    """The models that come with the package."""
    released = Path(str(resources.files("varsmooth"))) / "models" / "released"
    return sorted(path.parent.name for path in released.glob(f"*/{CONFIG}"))


def describe(name_or_path: str | Path) -> Description:
    """The description of a model, without reading its weights."""
    path = find(name_or_path) / CONFIG
    try:
        values = json.loads(path.read_text())
    except ValueError as error:
        raise VarsmoothError(f"{path} is not readable as JSON; copy it again") from error
    require(isinstance(values, dict) and "format" in values, f"{path} describes no varsmooth model")
    require(
        values["format"] == FORMAT,
        f"{path} has format {values['format']}, this varsmooth reads {FORMAT}; update varsmooth",
    )
    return _description(values, path)


def _description(values: Mapping[str, Any], path: Path) -> Description:
    arguments = dict(values)
    try:
        for name in ("classifier", "selector"):
            if arguments[name] is not None:
                arguments[name] = Part(**arguments[name])
        for name in ("class_names", "lam_range", "pixel_range"):
            if arguments[name] is not None:
                arguments[name] = tuple(arguments[name])
        return Description(**arguments)
    except (TypeError, KeyError) as error:
        known = ", ".join(option.name for option in fields(Description))
        raise VarsmoothError(f"{path} does not hold exactly the entries {known}") from error


def _module(
    folder: Path,
    name: str,
    part: Part | None,
    tensors: Mapping[str, Tensor],
    trusted: Collection[str],
) -> nn.Module | None:
    """The network of one part with its weights, or None if the model has no such part."""
    if part is None:
        return None
    require(
        ":" not in part.network or part.network in trusted,
        f"{folder} asks to import {part.network}; if you trust that code, "
        f"load it with trusted=[{part.network!r}]",
    )
    module = build(part.network, part.options)
    wanted = module.state_dict()
    found = {
        key.removeprefix(f"{name}."): value
        for key, value in tensors.items()
        if key.startswith(f"{name}.")
    }
    fits = wanted.keys() == found.keys() and all(
        wanted[key].shape == found[key].shape for key in wanted
    )
    require(fits, f"the weights in {folder} do not fit the {name} that its {CONFIG} describes")
    module.load_state_dict({key: found[key].to(wanted[key].dtype) for key in wanted})
    require(
        fingerprint(module) == part.fingerprint,
        f"the {name} in {folder} is not the one its {CONFIG} describes (the fingerprints differ); "
        "copy both files from one place",
    )
    return module.to(memory_format=torch.channels_last).eval()  # type: ignore[call-overload,no-any-return]


def _rounded(value: Tensor, precision: str) -> Tensor:
    value = value.detach().to("cpu").contiguous()
    return value.half() if precision == "float16" and value.is_floating_point() else value
