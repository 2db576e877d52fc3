"""Shards: workers without a connection write one run, into one folder or into several."""

import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from tests.evaluation import Output, Patch
from tests.evaluation.test_records import HEAD, row
from tests.small_models import QUICK, run, table, write_pair
from varsmooth._util.files import LOCK, only_writer
from varsmooth.cli import VERBS
from varsmooth.cli.parser import parse
from varsmooth.errors import VarsmoothError
from varsmooth.evaluation.engines.shards import Shard, blocks, unfinished
from varsmooth.evaluation.headers import HEADER
from varsmooth.evaluation.records import Run, open_as_one, open_joined

WORDS = f"certify {QUICK} --subset 0:30 --batch-size 16 --model model"  # blocks of 3 images


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model and a run of one process."""
    folder = tmp_path_factory.mktemp("shards")
    write_pair(folder / "model")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert run(f"{WORDS} --out whole") == 0
    return folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path, monkeypatch: Patch) -> Path:
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("images", "size", "count"), [(30, 3, 4), (1, 7, 3), (100, 7, 5)])
def test_every_image_is_in_exactly_one_shard(images: int, size: int, count: int) -> None:
    every = blocks(images, size)
    shards = [Shard(i, count).of(every) for i in range(1, count + 1)]
    positions = [p for shard in shards for block in shard for p in range(images)[block]]
    assert sorted(positions) == list(range(images))


def test_shards_in_one_folder_write_the_table_of_one_process(folder: Path, capsys: Output) -> None:
    assert run(f"{WORDS} --shard 1/3 --out shards") == 0
    assert "12 of 30 images in shards" in capsys.readouterr().out
    assert run(f"{WORDS} --shard 3/3 --out shards") == 0
    assert unfinished(Run.open("shards")) == ["2/3 (0 of 9 images)"]
    missing = "9 of 30 images have no row (unfinished shards: 2/3 (0 of 9 images))"
    assert run("verify shards") == 1
    assert missing in capsys.readouterr().err
    assert run("report shards") == 0
    assert "21 of 30 images (unfinished shards: 2/3 (0 of 9 images))" in capsys.readouterr().err
    assert run(f"{WORDS} --shard 2/3 --out shards") == 0
    assert table(folder / "shards") == table(folder / "whole")
    assert unfinished(Run.open("shards")) == []
    assert run("verify shards --replay 3") == 0
    assert run("report shards") == 0
    assert "not finished" not in capsys.readouterr().err
    names = sorted(path.name for path in Path("shards").iterdir())
    assert names[-1] == HEADER
    assert [name[:19] for name in names[:-1]] == [f"rows-0000{i}-of-00003" for i in (1, 2, 3)]
    lines = sum(file.read_bytes().count(b"\n") for file in Run.open("shards").files)
    assert lines == 30


def test_any_shard_resumes_and_its_other_batch_size_moves_no_block(
    folder: Path, capsys: Output
) -> None:
    for shard in ("1/2", "2/2"):
        assert run(f"{WORDS} --shard {shard} --out shards") == 0
    first, _ = Run.open("shards").files
    first.write_bytes(first.read_bytes()[:-20])  # its last line is torn
    assert unfinished(Run.open("shards")) == ["1/2 (14 of 15 images)"]
    capsys.readouterr()
    assert run(f"{WORDS} --shard 1/2 --batch-size 32 --out shards") == 0
    assert "resuming: 12 of 15 images are there" in capsys.readouterr().err
    assert table(folder / "shards") == table(folder / "whole")


def test_a_shard_without_images_says_so(folder: Path, capsys: Output) -> None:
    assert run(f"{WORDS} --shard 11/11 --out shards") == 0
    shown = capsys.readouterr()
    assert "shard 11/11 has no images: all 30 are in 10 blocks of at most 3" in shown.err
    assert "0 of 30 images in shards\n" in shown.out


def test_another_number_of_shards_or_none_continues(folder: Path) -> None:
    assert run(f"{WORDS} --shard 2/5 --out shards") == 0
    assert run(f"{WORDS} --shard 1/2 --out shards") == 0
    assert unfinished(Run.open("shards")) == [], "files of 5 and of 2 shards cannot be told apart"
    assert run(f"{WORDS} --out shards") == 0
    assert table(folder / "shards") == table(folder / "whole")


def test_shards_in_several_folders_are_one_run(folder: Path, capsys: Output) -> None:
    for i in (1, 2, 3):
        assert run(f"{WORDS} --shard {i}/3 --out part-{i}") == 0
    (joined,) = open_joined(["part-1", "part-2", "part-3"])
    rows = [{k: v for k, v in row.items() if k != "seconds"} for row in joined.rows()]
    assert rows == table(folder / "whole")
    capsys.readouterr()
    assert run("verify part-1 part-2 part-3 --replay 3") == 0
    shown = capsys.readouterr()
    assert "30 rows, one for each image" in shown.out
    assert "next: varsmooth report part-1 part-2 part-3" in shown.out
    assert run("report part-1 part-2 part-3 --out page") == 0
    shown = capsys.readouterr()
    assert "of 30 images certified" in shown.out
    assert "next: varsmooth report export part-1 part-2 part-3\n" in shown.out
    assert run("report export part-1 part-2 part-3 --out all.csv") == 0
    assert len(Path("all.csv").read_text().splitlines()) == 31, "a heading and 30 images"
    assert "share" not in shown.out + shown.err, "parts of one run are not compared"
    assert run("verify part-1 part-3") == 1
    errors = capsys.readouterr().err
    assert "9 of 30 images have no row (unfinished shards: 2/3 (0 of 9 images))" in errors


def test_folders_of_different_runs_are_not_joined(folder: Path, capsys: Output) -> None:
    assert run(f"{WORDS} --shard 1/2 --out part-1") == 0
    assert run(f"{WORDS} --shard 2/2 --seed 7 --out part-2") == 0
    assert len(open_joined(["part-1", "part-2", "whole"])) == 3
    with pytest.raises(VarsmoothError, match=r"not parts of one run \(--seed 0 there, 7 now\)"):
        open_as_one(["part-1", "part-2"])
    shutil.copytree("whole", "copy")
    with pytest.raises(VarsmoothError, match=r"not parts of one run \(each is complete"):
        open_as_one(["whole", "copy"])


def test_a_shard_with_other_settings_is_refused(folder: Path, capsys: Output) -> None:
    assert run(f"{WORDS} --shard 1/2 --out shards") == 0
    assert run(f"{WORDS} --shard 2/2 --seed 3 --out shards") == 1
    assert "--seed 0 there, 3 now" in capsys.readouterr().err
    for wrong in ("0/3", "4/3", "3", "a/b", "1/0"):
        assert run(f"{WORDS} --shard {wrong} --out shards") == 2
        assert f"--shard must be I/N with 1 ≤ I ≤ N, as in 3/32, not '{wrong}'" in (
            capsys.readouterr().err
        )
    assert run("predict --model model --n 20 --subset 0:9 --shard 1/2 --out answers") == 1
    assert "must agree on their noise; choose it with --seed" in capsys.readouterr().err
    predict = "predict --model model --n 20 --subset 0:9 --seed 1 --out answers"
    assert run(f"{predict} --shard 1/2") == 0
    assert run(f"{predict} --shard 2/2") == 0


def test_of_workers_that_start_at_once_one_decides_the_settings(tmp_path: Path) -> None:
    """A worker that gets its record has its own settings in the header, and no other worker's."""
    refused: list[str] = []
    barrier = threading.Barrier(8)

    def work(folder: Path, index: int) -> None:
        shard = Shard(index + 1, 8, own_file=True)
        header = HEAD | {"config": HEAD["config"] | {"alpha": 0.001 * (1 + index % 2)}}
        barrier.wait()
        with only_writer(folder, shard.lock):
            try:
                barrier.wait()
                record = Run.create(folder, header, shard.writer())
                barrier.wait()  # no process has written a row yet
                record.append([row(index)])
                assert Run.open(folder).header["config"] == header["config"]
            except VarsmoothError as error:
                barrier.wait()
                refused.append(str(error))

    for attempt in range(20):
        folder = tmp_path / f"run-{attempt}"
        workers = [threading.Thread(target=work, args=(folder, i)) for i in range(8)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert len(Run.open(folder).rows()) == 4
    assert len(refused) == 80
    assert all("holds a run with other settings (--alpha" in text for text in refused)


HOLDER = """
import pathlib, sys
from varsmooth._util.files import only_writer
with only_writer(pathlib.Path("run"), sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("first", "second", "refused"),
    [
        (None, Shard(1, 2, True), True),
        (Shard(1, 2, True), None, True),
        (Shard(1, 2, True), Shard(1, 2, True), True),
        (Shard(1, 2, True), Shard(2, 2, True), False),
    ],
)
def test_a_shard_is_written_once_and_never_beside_the_whole_run(
    tmp_path: Path, monkeypatch: Patch, first: Shard, second: Shard, refused: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    one, other = ((shard or Shard()).lock for shard in (first, second))
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, one], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    if refused:
        with (
            pytest.raises(VarsmoothError, match=f"written by process {holder.pid}"),
            only_writer(tmp_path / "run", other),
        ):
            pass
    else:
        with only_writer(tmp_path / "run", other):
            pass
    holder.kill()
    holder.communicate()
    with only_writer(tmp_path / "run", other):
        assert (tmp_path / "run" / other).exists()
    left = {path.name for path in (tmp_path / "run").glob(f"{LOCK}*")}
    assert left == {one} - {other}, "only the lock of the killed process is left"


@pytest.mark.skipif(shutil.which("xargs") is None, reason="needs xargs")
def test_the_recipe_with_xargs(folder: Path) -> None:
    """As docs/guides/many-machines.md prints it, two workers at a time."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    certify = f"{sys.executable} -m varsmooth {WORDS} --out shards --shard"
    recipe = f"seq 3 | xargs -P 2 -I @ {certify} @/3"
    done = subprocess.run(["sh", "-c", recipe], env=environment, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert table(folder / "shards") == table(folder / "whole")


def recipes() -> dict[str, str]:
    """The shell commands of the guide that name a shard, by who runs them."""
    page = (Path(__file__).parents[3] / "docs" / "guides" / "many-machines.md").read_text()
    scripts = re.findall(r"```bash\n(.*?)```", page, flags=re.DOTALL)
    (slurm,) = [script for script in scripts if "#SBATCH --array" in script]
    (job,) = re.findall(r"```yaml\n(.*?)```", page, flags=re.DOTALL)
    (container,) = yaml.safe_load(job)["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["sh", "-c"]
    return {"slurm": slurm, "kubernetes": container["args"][0]}


@pytest.mark.parametrize(
    ("who", "variables", "shard"),
    [
        ("slurm", {"SLURM_ARRAY_TASK_ID": "3", "SLURM_ARRAY_TASK_COUNT": "32"}, "3/32"),
        ("kubernetes", {"JOB_COMPLETION_INDEX": "0"}, "1/8"),
        ("kubernetes", {"JOB_COMPLETION_INDEX": "7"}, "8/8"),
    ],
)
def test_the_recipes_for_clusters(
    tmp_path: Path, who: str, variables: dict[str, str], shard: str
) -> None:
    """Their shell runs as a node would run it, up to the command, which is then parsed."""
    program = tmp_path / "varsmooth"
    program.write_text('#!/bin/sh\nfor word in "$@"; do echo "$word"; done\n')
    program.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-c", recipes()[who]],
        env=variables | {"PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    call = parse(VERBS, done.stdout.splitlines())
    assert call.keywords["run"].shard == shard
