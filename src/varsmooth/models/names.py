"""Names of registered networks, the user's code and Hub addresses; needs no torch."""

import os
import sys
from collections.abc import Collection
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType
from typing import Any

from varsmooth.errors import VarsmoothError, check, nearest, reason, wrap_errors

PREFIX = "hf://"
"""Begins the address of a model on the Hugging Face Hub."""

CLASSIFIERS = {
    "conv4": "varsmooth.models.networks.classifiers:Conv4",
    "resnet20": "varsmooth.models.networks.classifiers:ResNet20",
    "resnet9": "varsmooth.models.networks.classifiers:ResNet9",
    "cifar-resnet": "varsmooth.models.adapters:CifarResNet",
    "denoised": "varsmooth.models.networks.denoiser:denoised",
}
SELECTORS = {
    "attention": "varsmooth.models.networks.selector:AttentionSelector",
    "confidence": "varsmooth.models.networks.selector:ConfidenceSelector",
}
NETWORKS = CLASSIFIERS | SELECTORS
"""Every network that a description may name without an import path."""


def check_network(name: str, known: Collection[str] = NETWORKS) -> None:
    """A network is a registered name or an import path."""
    words = [*known, "package.module:Class"]
    check(":" in name or name in known, f"there is no network {name!r}{nearest(name, words)}")


def check_code(path: str) -> None:
    """`package.module:name` names a package that is there; nothing of it runs."""
    module, colon, name = path.partition(":")
    check(bool(colon), f"{path} should be an import path package.module:name{missing_colon(path)}")
    if module.endswith(".py"):
        dotted = module.removesuffix(".py").replace("/", ".")
        dotted = ".".join(part for part in dotted.split(".") if part)
        raise VarsmoothError(f"{path} names a file; name its module: {dotted}:{name}")
    if not all(part.isidentifier() for part in module.split(".")):
        dotted = ".".join(part for part in module.replace("/", ".").split(".") if part)
        raise VarsmoothError(
            f"{path} is not an import path package.module:name"
            + f"; did you mean {dotted}:{name}?" * bool(dotted)
        )
    package = module.partition(".")[0] or "?"
    check(
        _is_importable(package),
        f"{path} cannot be imported: No module named {package!r} in {os.getcwd()} or on Python's "
        "path; change to its folder, or install it",
    )


def missing_colon(path: str) -> str:
    """The end of an error sentence where `package.module.name` or `module` lacks the colon."""
    module, _, name = path.rpartition(".")
    if all(part.isidentifier() for part in path.split(".")) and _is_file(path):
        return f"; name a function of the module too, as in {path}:make"
    likely = name.isidentifier() and all(part.isidentifier() for part in module.split("."))
    if not likely or not _is_importable(module.partition(".")[0]):
        return ""
    return f"; did you mean {module}:{name}?"


def _is_importable(package: str) -> bool:
    installed = package in sys.modules or find_spec(package)
    return bool(installed or PathFinder.find_spec(package, [os.getcwd()]))


def _is_file(module: str) -> bool:
    """Whether a module of the working directory or of Python's path is more than a folder."""
    places, spec = [os.getcwd(), *sys.path], None
    for name in module.split("."):  # nothing is imported
        if (spec := PathFinder.find_spec(name, places)) is None:
            return False
        places = list(spec.submodule_search_locations or [])
    return spec is not None and spec.origin is not None


def imported(path: str) -> Any:
    """What `package.module:name` names; the working directory is searched too.

    This runs code: the path must come from the user, never from a file of unknown origin.
    """
    check_code(path)
    if os.getcwd() not in sys.path:  # as `python -m` does
        sys.path.insert(0, os.getcwd())
    errors = (Exception, SystemExit)
    with wrap_errors(errors, lambda error: f"{path} cannot be imported: {_why(error)}"):
        return resolve_name(path)


def _why(error: BaseException) -> str:
    """What a module of the user's raised; of a name that it does not have, the nearest one."""
    module = getattr(error, "obj", None)  # of an AttributeError
    if not isinstance(module, ModuleType):
        return reason(error)
    own = [n for n, v in vars(module).items() if getattr(v, "__module__", "") == module.__name__]
    return reason(error) + (nearest(str(getattr(error, "name", "")), own) if own else "")


def maker_of(network: str) -> Any:
    """The class or function behind a registered name, or an import path of the user's own."""
    check_network(network)
    return resolve_name(NETWORKS[network]) if network in NETWORKS else imported(network)


def is_external(model: str | None) -> bool:
    """Whether only the caller may name this model: code to import, or an address to fetch."""
    return is_code(model) or str(model).startswith(PREFIX)


def is_code(model: str | None) -> bool:
    """Whether a model is named by the import path of the function that makes it."""
    if model is None or model.startswith(PREFIX):
        return False
    return ":" in model and not Path(model).exists()


def fetch(address: str) -> Path:
    """The folder of the model at `hf://owner/name`, or at `hf://owner/name@revision`.

    Only the description, the weights and the card are fetched, into the Hub's own cache. Loading
    them runs no code of the repository.
    """
    name, _, revision = address.removeprefix(PREFIX).partition("@")
    check(name.count("/") == 1, f"{address} should be hf://owner/name or hf://owner/name@revision")
    missing = f"{address} needs huggingface_hub; install it with: pip install huggingface_hub"
    with wrap_errors(ImportError, missing):
        from huggingface_hub import snapshot_download
    files = ["config.json", "model.safetensors", "README.md"]
    how = "check the name and the connection, or name the folder of a copy on this machine"
    unreachable = f"{address} cannot be fetched"
    with wrap_errors(Exception, lambda error: f"{unreachable} ({reason(error)}); {how}"):
        return Path(snapshot_download(name, revision=revision or None, allow_patterns=files))
