"""The layers of the package and the direction of its imports."""

import ast
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
    done = subprocess.run([lint, "--no-cache"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_bounds_know_no_torch() -> None:
    code = "import sys, varsmooth.bounds; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_every_public_name_can_be_imported() -> None:
    for name in varsmooth.__all__:
        assert getattr(varsmooth, name) is not None


def test_no_public_function_has_more_than_eight_parameters() -> None:
    """Verbs of the command line, whose parameters are its options, aside."""
    package = ROOT / "src" / "varsmooth"
    for path in set(package.rglob("*.py")) - set((package / "cli").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                taken = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                names = [one.arg for one in taken if one.arg not in ("self", "cls")]
                assert len(names) <= 8, f"{path}: {node.name}({', '.join(names)})"


def test_public_modules_exist_and_explain_themselves() -> None:
    """They are listed in one place, the docstring of the package."""
    listed = (varsmooth.__doc__ or "").partition("Public besides")[2]
    names = re.findall(r"`(\w+)`", listed)
    assert {"bounds", "data", "training"} <= set(names)
    for name in names:
        assert importlib.import_module(f"varsmooth.{name}").__doc__


def test_the_core_loads_nothing_but_itself_torch_numpy_and_scipy() -> None:
    code = (
        "import sys, torch, numpy, scipy.stats; before = set(sys.modules)\n"
        "import varsmooth; varsmooth.certify\n"
        "new = {name.split('.')[0] for name in set(sys.modules) - before}\n"
        "layers = [m for m in sys.modules if m.startswith('varsmooth.')]\n"
        "print(sorted(new - set(sys.stdlib_module_names)), *layers)"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert loaded.startswith("['varsmooth']"), loaded
    outside = ("_util", "app", "cli", "data", "evaluation", "models", "training")
    assert not [layer for layer in outside if f"varsmooth.{layer}" in loaded], loaded
