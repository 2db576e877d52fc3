"""The paper's workflow in one command: everything is there, and a second call adds nothing."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.small_models import run
from varsmooth import load_run
from varsmooth.evaluation.records import Run

SMALL = "--epochs 2 --selector-epochs 1 --selector-images 32 --images 4 --n 20 --steps 2 --lams 0.3"


def test_a_study_trains_certifies_attacks_and_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for name, base in (("bright", 150), ("dark", 60)):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(20):
            pixels = rng.integers(base, base + 40, (16, 16, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{i}.png")
    words = f"study --data photos --sigma 0.25 {SMALL} --out mine"
    assert run(words) == 0
    text = capsys.readouterr().out
    assert "wrote mine/report/report.html" in text
    folders = sorted(Path("mine/runs").iterdir())
    verbs = [Run.open(folder).header["verb"] for folder in folders]
    assert (verbs.count("certify"), verbs.count("attack")) == (6, 5)
    guarantees = {load_run(f).certificates.guarantee for f in folders if "certify" in f.name}
    assert guarantees == {"sound", "conditional", "heuristic"}
    assert Path("mine/report/clean-against-robust.svg").is_file()
    before = {path: path.read_bytes() for path in Path("mine/runs").rglob("rows-*.jsonl")}
    assert len(before) == 11
    assert run(words) == 0
    assert {path: path.read_bytes() for path in before} == before
    assert run(words.replace("0.25", "0.5")) == 1
    assert "holds a study at σ = 0.25; choose another --out" in capsys.readouterr().err
