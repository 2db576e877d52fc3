"""The wheel, installed elsewhere, runs what the README shows."""

import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from urllib.request import urlopen

import pytest
from PIL import Image

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


def install(wheel: Path, folder: Path, complete: bool, extras: str = "") -> Path:
    """The programs of a new environment; its dependencies are borrowed from this one, or installed.

    In both cases varsmooth itself comes from the wheel.
    """
    venv.create(folder / "env", with_pip=True)
    programs = folder / "env" / "bin"
    python = programs / "python"
    if complete:
        constraints = ROOT / "constraints.txt"
        run(python, "-m", "pip", "install", "-q", "-c", constraints, f"{wheel}{extras}")
    else:
        run(python, "-m", "pip", "install", "-q", "--no-deps", wheel)
        packages = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))")
        # Directories named in a .pth file come last and their own .pth files are not read, so
        # this environment's editable varsmooth stays out of sight.
        borrowed = Path(packages.strip()) / "borrowed.pth"
        borrowed.write_text(sysconfig.get_path("purelib"))
    where = run(python, "-c", "import varsmooth; print(varsmooth.__file__)", cwd=folder)
    assert str(folder) in where
    return programs


@pytest.mark.parametrize(
    "complete", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["borrowed", "complete"]
)
def test_readme_example_runs_from_the_wheel(complete: bool, wheel: Path, tmp_path: Path) -> None:
    programs = install(wheel, tmp_path, complete)
    (tmp_path / "example.py").write_text(readme_example())
    assert "radius" in run(programs / "python", "example.py", cwd=tmp_path)
    code = "import varsmooth.app.views; from varsmooth.evaluation.report.pages import templates; "
    code += "print(templates('varsmooth.evaluation.report').loader.list_templates())"
    assert "report.html" in run(programs / "python", "-c", code, cwd=tmp_path)
    assert "cifar10-sample" in run(programs / "varsmooth", "data", "list", cwd=tmp_path)


OWN_MODEL = """
import torch

class Bright(torch.nn.Module):
    class_names = ("dark", "bright")

    def forward(self, x):
        score = 20 * (x.mean(dim=(1, 2, 3)) - 0.5)
        return torch.stack([-score, score], dim=1)
"""


@pytest.mark.slow
@pytest.mark.parametrize("complete", [False, True], ids=["borrowed", "complete"])
def test_the_first_contact_from_the_wheel(complete: bool, wheel: Path, tmp_path: Path) -> None:
    """The demo, the user's own model and photograph, and the first view of the page."""
    varsmooth = install(wheel, tmp_path, complete, "[app,report]") / "varsmooth"
    output = run(varsmooth, "demo", "--images", "2", "--out", "demo", cwd=tmp_path)
    assert "fixed σ" in output
    assert (tmp_path / "demo" / "report").is_dir()
    (tmp_path / "own_net.py").write_text(OWN_MODEL)
    Image.new("RGB", (8, 8), (230, 230, 230)).save(tmp_path / "photo.png")
    options = "--model own_net:Bright --sigma 0.25 --data photo.png --n 100 --out runs/own"
    output = run(varsmooth, "certify", *options.split(), cwd=tmp_path)
    assert "1 of 1 images in runs/own" in output
    assert "photo.png  bright" in output
    assert "next: varsmooth report export runs/own" in output
    command = [str(varsmooth), "app", "--port", "0"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as page:
        try:
            assert page.stdout is not None
            address = page.stdout.readline().split()[1]
            with urlopen(address, timeout=60) as response:
                assert "<!doctype html>" in response.read().decode().lower()
        finally:
            page.terminate()
