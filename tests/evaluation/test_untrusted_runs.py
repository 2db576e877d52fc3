"""Untrusted runs: what they name is never started."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.evaluation import Output, Patch
from tests.small_models import QUICK, edit_header, run, write_pair

EVIL = """
from pathlib import Path
Path("started").touch()
from varsmooth import load
from varsmooth.models.networks import Conv4


def make():
    return load("model", n_median=21)


class Network(Conv4):
    pass
"""


@pytest.fixture
def untrusted(tmp_path: Path, monkeypatch: Patch) -> Path:
    """A run whose header names code, in a folder that has this code."""
    monkeypatch.chdir(tmp_path)
    sys.modules.pop("evil", None)
    monkeypatch.syspath_prepend(tmp_path)
    write_pair(tmp_path / "model")
    assert run(f"certify {QUICK} --subset 0:2 --model model --out run") == 0
    (tmp_path / "evil.py").write_text(EVIL)
    return tmp_path / "run"


@pytest.mark.parametrize("split", [[], {}, 3, "../..", None])
def test_a_model_may_claim_to_be_trained_on_any_split(
    split: object, untrusted: Path, capsys: Output
) -> None:
    pixels = np.zeros((2, 32, 32, 3), np.uint8)
    np.savez("mine.npz", images=pixels, labels=np.array([0, 1]))
    about = json.loads(Path("model/config.json").read_text())
    about["classifier"]["training"]["train_split"] = split
    Path("model/config.json").write_text(
        json.dumps(about | {"dataset": str(Path.cwd() / "mine.npz")})
    )
    assert run(f"certify {QUICK} --model model --data mine.npz --out new") == 1
    assert "has no split" in capsys.readouterr().err


@pytest.mark.parametrize("named", ["model of the run", "network of its model"])
@pytest.mark.parametrize(
    "command", ["verify run", "attack --steps 2 --n 20 --out search --against run"]
)
def test_code_that_a_run_names_is_never_started(untrusted: Path, command: str, named: str) -> None:
    if named == "model of the run":
        edit_header(untrusted, config={"model": "evil:make", "n_median": None})
    else:  # which the run, not the caller, says to trust
        config = Path("model/config.json")
        text = config.read_text().replace('"network": "conv4"', '"network": "evil:Network"')
        config.write_text(text)
        edit_header(untrusted, config={"trust": "evil:Network"})
    run(command)
    assert not Path("started").exists()


def test_code_may_be_named_on_the_command_line(untrusted: Path, capsys: Output) -> None:
    edit_header(untrusted, config={"model": "evil:make", "n_median": None})
    capsys.readouterr()
    assert run("verify run --replay 1") == 1
    output = capsys.readouterr().err
    assert "need the model and the images: the model" in output
    assert "check" not in output, "the plan comes before anything that takes time"
    assert run("verify run --model evil:make") == 0
    assert Path("started").exists()
