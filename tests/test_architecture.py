"""The rooms of the house and the direction of its doors."""

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import varsmooth

PACKAGE = Path(varsmooth.__file__).parent

# A room knows the rooms above it, never below.
ROOMS = [
    "errors",
    "files",
    "typed",
    "rounding",
    "defaults",
    "limits",
    "noise",
    "bounds",
    "selectors",
    "cascade",
    "smoothing",
    "identity",
    "evidence",
    "results",
    "certificates",
    "sampling",
    "prediction",
    "certification",
    "voting",
    "sequential",
    "attacks",
    "objectives",
    "progress",
    "processes",
    "models",
    "data",
    "training",
    "runs",
    "report",
    "app",
    "cli",
]


def room_of(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    """Rooms that a file imports, at its top or inside a function."""
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path} imports relatively"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            parts = name.split(".")
            if parts[0] == "varsmooth" and len(parts) > 1 and parts[1] in ROOMS:
                rooms.add(parts[1])
    return rooms


SOURCES = [p for p in PACKAGE.rglob("*.py") if room_of(p) not in ("__init__", "__main__")]


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_upward(path: Path) -> None:
    room = room_of(path)
    assert room in ROOMS, f"{room} is not a room of the house; give it a place in the list"
    below = {other for other in imported_rooms(path) if ROOMS.index(other) > ROOMS.index(room)}
    assert not below, f"{room} imports from below: {sorted(below)}"


def test_the_table_of_rooms_is_the_folder_listing() -> None:
    here = {room_of(path) for path in SOURCES}
    assert set(ROOMS) == here
    guide = (Path(__file__).parent.parent / "CONTRIBUTING.md").read_text()
    table = guide.split("| room |")[1].split("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == ROOMS


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
    assert {"bounds", "data", "training"} <= set(names) <= set(ROOMS)
    for name in names:
        assert importlib.import_module(f"varsmooth.{name}").__doc__
