"""The wheel, installed elsewhere, runs what the README shows."""

import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def run(*command: str | Path, **options: object) -> str:
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return str(done.stdout)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel built from the files that git knows, so nothing unversioned can slip in."""
    source = tmp_path_factory.mktemp("source")
    for name in run("git", "ls-files", cwd=ROOT).splitlines():
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name)
    run(sys.executable, "-m", "build", "--wheel", "--outdir", source / "dist", source)
    return next((source / "dist").glob("*.whl"))


def readme_example() -> str:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert blocks, "the README has no Python example"
    return str(blocks[0])


@pytest.mark.parametrize(
    "complete", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["borrowed", "complete"]
)
def test_readme_example_runs_from_the_wheel(complete: bool, wheel: Path, tmp_path: Path) -> None:
    """In a new environment; its dependencies are borrowed from this one, or (slow) installed."""
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / "bin" / "python"
    if complete:
        run(python, "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt", wheel)
    else:
        run(python, "-m", "pip", "install", "-q", "--no-deps", wheel)
        packages = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))")
        # Directories named in a .pth file come last and their own .pth files are not read, so
        # this environment's editable varsmooth stays out of sight.
        borrowed = Path(packages.strip()) / "borrowed.pth"
        borrowed.write_text(sysconfig.get_path("purelib"))
    where = run(python, "-c", "import varsmooth; print(varsmooth.__file__)", cwd=tmp_path)
    assert str(tmp_path) in where
    (tmp_path / "example.py").write_text(readme_example())
    assert "radius" in run(python, "example.py", cwd=tmp_path)
    code = "import varsmooth.app.views; from varsmooth.report.pages import templates; "
    code += "print(templates('varsmooth.report').get_template('report.html').name)"
    assert "report.html" in run(python, "-c", code, cwd=tmp_path)
    assert "cifar10-sample" in run(tmp_path / "env/bin/varsmooth", "data", "list", cwd=tmp_path)
