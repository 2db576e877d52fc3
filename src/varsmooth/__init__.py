"""Per-input noise levels for randomized smoothing, with certificates that hold.

image → selector (which σ?) → noise → votes → bound → certificate

Public besides the names here: `attacks`, `bounds`, `cascade`, `certificates`, `data`, `errors`,
`evaluation`, `losses`, `models`, `noise`, `rounding`, `selectors` and `training`. The rest may
change.
"""

import re
from importlib import import_module
from pathlib import Path

__version__ = "0.1.0"

# Imported on first use, so that the command line's help does not wait for torch.
_STUB = Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")
_MODULES = {name: module for module, name in re.findall(r"^from (\S+) import (\w+)", _STUB, re.M)}
__all__ = sorted(_MODULES)


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'varsmooth' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__doc__", "__version__"])
