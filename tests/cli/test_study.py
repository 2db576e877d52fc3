"""The paper's workflow in one command: everything is there, and a second call adds nothing."""

from pathlib import Path

import pytest

from tests.terminal import Terminal, write_photos
from varsmooth import load_run
from varsmooth.evaluation.records import Run

SMALL = "--epochs 2 --selector-epochs 1 --selector-images 32 --images 4 --n 20 --steps 2 --lams 0.3"


def test_a_study_trains_certifies_attacks_and_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Terminal
) -> None:
    monkeypatch.chdir(tmp_path)
    write_photos(tmp_path / "photos", 20, (16, 16))
    words = f"study --data photos --sigma 0.25 {SMALL} --out mine"
    out, err = cli(words)
    assert "wrote mine/report/report.html" in out
    assert "too few" not in err
    folders = sorted(Path("mine/runs").iterdir())
    verbs = [Run.open(folder).header["verb"] for folder in folders]
    assert (verbs.count("certify"), verbs.count("attack")) == (6, 5)
    guarantees = {load_run(f).certificates.guarantee for f in folders if "certify" in f.name}
    assert guarantees == {"sound", "conditional", "heuristic"}
    errors = cli(words.replace("--epochs 2", "--epochs 4"), code=1).err
    assert "(--epochs 2 there, 4 now); choose another output folder\n" in errors  # no --resume
    assert Path("mine/report/clean-against-robust.svg").is_file()
    before = {path: path.read_bytes() for path in Path("mine/runs").rglob("rows-*.jsonl")}
    assert len(before) == 11
    cli(words)
    assert {path: path.read_bytes() for path in before} == before
    different = "holds a study at σ = 0.25; choose another --out"
    cli.refuses(words.replace("0.25", "0.5"), different)


def test_too_few_votes_are_refused_before_training(tmp_path: Path, cli: Terminal) -> None:
    photos = write_photos(tmp_path / "photos", 20, (16, 16))
    words = f"study --data {photos} --sigma 0.25 --n 9 --out {tmp_path}/mine"
    cli.refuses(words, "--n 9 votes certify nothing; at least 10 are needed")
    assert not (tmp_path / "mine").exists()
