"""Two processes share every batch and end with the same weights."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from varsmooth.models.checkpoints import load_checkpoint

pytest.importorskip("lightning_fabric")

SCRIPT = """
import json, sys
from varsmooth._util.fingerprints import fingerprint
from varsmooth.training import ClassifierConfig, tasks, train_classifier

def fit_and_tell(task, data, config, engine, *more, fit=tasks.fit):
    end = fit(task, data, config, engine, *more)
    name = f"rank-{engine.rank}-of-{engine.processes}"
    (config.out / name).write_text(fingerprint(task.module))
    return end

tasks.fit = fit_and_tell
if __name__ == "__main__":
    train_classifier(ClassifierConfig(**json.loads(sys.argv[1])))
"""


@pytest.mark.parametrize("launcher", ["alone", "torchrun"])
def test_two_processes_train_one_network(tmp_path: Path, launcher: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    options = {
        "out": str(tmp_path / "model"),
        "sigma": 0.25,
        "data": "cifar10-sample",
        "train_split": "test",
        "network_options": {"widths": [8, 8, 8, 8], "norm": "batch"},
        "epochs": 2,
        "images_per_epoch": 200,
        "batch_size": 50,
        "held_out_images": 10,
        "n": 16,
        "device": "cpu",
        "devices": 2,
    }
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = [sys.executable, *(torchrun if launcher == "torchrun" else []), str(script)]
    done = subprocess.run(
        [*command, json.dumps(options)], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    first, second = ((tmp_path / "model" / f"rank-{rank}-of-2").read_text() for rank in (0, 1))
    assert first == second
    part = load_checkpoint(tmp_path / "model").description.classifier
    assert part is not None
    assert part.fingerprint == first
    assert len(part.history) == 2
