"""The layers of the package and the direction of its imports."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import varsmooth

ROOT = Path(__file__).parent.parent


def test_layers_import_downward_only() -> None:
    """The contracts stand in pyproject.toml."""
    lint = Path(sys.executable).with_name("lint-imports")
    found = subprocess.run([lint, "--no-cache"], cwd=ROOT, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout


def test_bounds_know_no_torch() -> None:
    code = "import sys, varsmooth.bounds; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_every_public_name_can_be_imported() -> None:
    for name in varsmooth.__all__:
        assert getattr(varsmooth, name) is not None


def test_public_modules_exist_and_explain_themselves() -> None:
    """They are listed in one place, the docstring of the package."""
    listed = (varsmooth.__doc__ or "").partition("Public besides")[2]
    names = re.findall(r"`(\w+)`", listed)
    assert {"bounds", "data", "training"} <= set(names)
    for name in names:
        assert importlib.import_module(f"varsmooth.{name}").__doc__
