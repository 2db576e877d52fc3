"""The folder of a run: nothing lost, nothing doubled, nothing mixed."""

import json
import shutil
import threading
import zlib
from pathlib import Path
from typing import Any

import pytest

from tests.evaluation import Patch
from varsmooth._util.untrusted import LIMITS
from varsmooth.errors import VarsmoothError
from varsmooth.evaluation.headers import HEADER, different_options
from varsmooth.evaluation.records import Run

HEAD: dict[str, Any] = {
    "verb": "certify",
    "name": "a run",
    "config": {"n": 100, "alpha": 0.001, "batch_size": 128, "device": "cpu"},
    "environment": {"torch": "2"},
    "fingerprints": {"classifier": "2-abc", "selector": "2-def"},
    "dataset": {"name": "zoo", "split": "test", "size": 5, "class_names": []},
    "selector": {"selector": "fixed", "sigma": 0.25},
}


def row(number: int) -> dict[str, Any]:
    values = {"prediction": 3, "sigma": 0.25, "guarantee": "sound", "evidence": None}
    return {"id": number, "label": None, "radius": number / 3, **values}


def test_rows_come_back_sorted_and_exact(tmp_path: Path) -> None:
    first, second = Run.create(tmp_path / "run", HEAD), Run.create(tmp_path / "run", HEAD, "00001")
    assert first.header["format"] == 1
    first.append([row(4), row(1)])
    second.append([row(3)])
    first.append([row(0)])
    assert Run.open(tmp_path / "run").rows() == [row(0), row(1), row(3), row(4)]
    assert second.done() == {0, 1, 3, 4}
    names = sorted(path.name for path in (tmp_path / "run").iterdir())
    assert names == ["rows-00000.jsonl", "rows-00001.jsonl", HEADER]


@pytest.mark.parametrize("kept", [0, 1, 5, -1])
def test_a_torn_line_is_cut_and_the_row_written_again(tmp_path: Path, kept: int) -> None:
    run = Run.create(tmp_path, HEAD)
    run.append([row(0), row(1)])
    file = tmp_path / "rows-00000.jsonl"
    first, second = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(first + second[:kept])
    run = Run.open(tmp_path)
    assert run.rows() == [row(0)]
    run.append([row(1), row(2)])
    assert run.rows() == [row(0), row(1), row(2)]
    assert file.read_bytes().count(b"\n") == 3


def test_a_torn_line_longer_than_one_look_back(tmp_path: Path) -> None:
    run = Run.create(tmp_path, HEAD)
    run.append([row(0)])
    with (tmp_path / "rows-00000.jsonl").open("ab") as file:
        file.write(b'{"id":1,"samples":"' + b"x" * 200_000)
    run.append([row(2)])
    assert run.rows() == [row(0), row(2)]


def test_a_first_line_that_is_torn(tmp_path: Path) -> None:
    run = Run.create(tmp_path, HEAD)
    (tmp_path / "rows-00000.jsonl").write_bytes(b'{"id":7')
    run.append([row(0)])
    assert run.rows() == [row(0)]


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    run = Run.create(tmp_path, HEAD)
    run.append([row(0), row(1)])
    file = tmp_path / "rows-00000.jsonl"
    file.write_bytes(file.read_bytes().replace(b'"id":1', b'"id":7'))
    damaged = (
        r"line 2 of .*rows-00000\.jsonl .*checksum is wrong; .* rerun the \w+ command of this run"
    )
    with pytest.raises(VarsmoothError, match=damaged):
        run.rows()


@pytest.mark.parametrize(
    "line",
    [
        "7",
        "null",
        "[]",
        "{}",
        '{"id": "x"}',
        '{"id": true, "label": null}',
        json.dumps(row(0) | {"id": 1.5}),
        json.dumps(row(0) | {"evidence": []}),
        json.dumps(row(0) | {"radius": "0.5"}),
        '{"id": ',
        "[" * 100_000,
    ],
)
def test_a_line_that_is_not_a_row_is_named(tmp_path: Path, line: str) -> None:
    """Anyone can compute a checksum, so that any object of JSON may turn up."""
    run = Run.create(tmp_path, HEAD)
    run.append([row(1)])
    if line.endswith("}"):
        line = f'{line[:-1]},"check":"{zlib.crc32(line.encode()):08x}"}}'
    with (tmp_path / "rows-00000.jsonl").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(VarsmoothError, match=r"line 2 of .*rows-00000\.jsonl .*remove that line"):
        run.rows()


@pytest.mark.parametrize(
    "change", [{"config": []}, {"config": {"data": 5}}, {"verb": None}, {"dataset": "cifar10"}]
)
def test_a_header_of_odd_types_is_a_sentence(tmp_path: Path, change: dict[str, Any]) -> None:
    (tmp_path / HEADER).write_text(json.dumps({"format": 1, **HEAD, **change}))
    with pytest.raises(VarsmoothError, match=rf"{next(iter(change))}\S* has a wrong value"):
        Run.open(tmp_path)


@pytest.mark.parametrize("radius", [10**400, float("inf"), float("nan")])
def test_a_number_that_is_none_is_refused(tmp_path: Path, radius: float) -> None:
    run = Run.create(tmp_path, HEAD)
    run.append([row(0) | {"radius": radius}])
    with pytest.raises(VarsmoothError, match="not a row of this run: radius"):
        run.rows()


def test_long_lines_and_headers_are_refused_before_they_are_read(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    run = Run.create(tmp_path, HEAD)
    run.append([row(0), row(1) | {"note": "x" * 5000}])
    monkeypatch.setitem(LIMITS, "TEXT", 2000)
    with pytest.raises(VarsmoothError, match=r"line 2 of .* 2,001 bytes, above the limit"):
        run.rows()
    monkeypatch.setitem(LIMITS, "TEXT", 100)
    with pytest.raises(VarsmoothError, match=r"run\.json has .* bytes, above the limit of 100"):
        Run.open(tmp_path)


def test_a_folder_that_vanished_is_a_sentence(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", HEAD)
    shutil.rmtree(tmp_path / "run")
    with pytest.raises(VarsmoothError, match=r"rows-00000\.jsonl cannot be written \(No such file"):
        run.append([row(0)])


def test_a_row_that_two_processes_computed_counts_once(tmp_path: Path) -> None:
    for number in (0, 1):
        Run.create(tmp_path, HEAD, f"{number:05d}").append([row(2) | {"seconds": float(number)}])
    assert Run.open(tmp_path).rows() == [row(2) | {"seconds": 0.0}]


def test_rows_of_an_attack_have_a_budget_in_their_key(tmp_path: Path) -> None:
    run = Run.create(tmp_path, HEAD | {"verb": "attack"})
    counts = {"counts": [1, 2], "clean_counts": [0, 3], "clean_prediction": 1}
    attacked = {"id": 1, "label": 1, "prediction": 1, "sigma": 0.2, "sigma_clean": 0.2, **counts}
    run.append([attacked | {"eps": eps, "norm": 0.1} for eps in (0.5, 0.1)])
    assert run.done() == {(1, 0.1), (1, 0.5)}
    assert [r["eps"] for r in run.rows()] == [0.1, 0.5]


def _append_many(folder: str, offset: int) -> None:
    run = Run.open(folder)
    for number in range(40):
        run.append([row(offset + number) | {"guarantee": "x" * 5000}])


def test_two_writers_of_one_file_do_not_mix_their_lines(tmp_path: Path) -> None:
    run = Run.create(tmp_path, HEAD)
    both = [threading.Thread(target=_append_many, args=(str(tmp_path), o)) for o in (0, 1000)]
    for writer in both:
        writer.start()
    for writer in both:
        writer.join()
    assert len(run.rows()) == 80


def test_other_settings_are_refused_and_the_difference_named(tmp_path: Path) -> None:
    Run.create(tmp_path, HEAD).append([row(0)])
    changed = json.loads(json.dumps(HEAD))
    changed["config"]["alpha"] = 0.01
    changed["fingerprints"]["classifier"] = "2-xyz"
    with pytest.raises(VarsmoothError) as refusal:
        Run.create(tmp_path, changed)
    assert "--alpha 0.001 there, 0.01 now" in str(refusal.value)
    assert "the model is another network or has other weights" in str(refusal.value)
    assert "batch-size" not in str(refusal.value)
    assert "2-xyz" not in str(refusal.value), "a hash does not help the reader"


def test_where_and_how_fast_may_change(tmp_path: Path) -> None:
    Run.create(tmp_path, HEAD).append([row(0)])
    config = HEAD["config"] | {"batch_size": 16, "device": "cuda"}
    other = HEAD | {"config": config, "environment": {"torch": "3"}, "name": "b"}
    assert Run.create(tmp_path, other).rows() == [row(0)]


def test_a_run_without_rows_is_only_an_intention(tmp_path: Path) -> None:
    Run.create(tmp_path, HEAD)
    other = Run.create(tmp_path, HEAD | {"verb": "predict"})
    assert Run.open(tmp_path).header == other.header
    assert other.header["verb"] == "predict"


def test_folders_that_are_no_runs(tmp_path: Path) -> None:
    with pytest.raises(VarsmoothError, match=r"does not hold a run: it has no run\.json"):
        Run.open(tmp_path)
    (tmp_path / "rows-00000.jsonl").write_text("{}\n")
    with pytest.raises(VarsmoothError, match="rows but no"):
        Run.create(tmp_path, HEAD)
    (tmp_path / HEADER).write_text("{")
    with pytest.raises(VarsmoothError, match="not readable"):
        Run.open(tmp_path)
    (tmp_path / HEADER).write_text('{"format": 99}')
    with pytest.raises(VarsmoothError, match="has format 99"):
        Run.open(tmp_path)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"verb": "predict", "config": {"n": 7}}, "certify there, predict now"),
        ({"config": HEAD["config"] | {"n_select": 5}}, "--n-select unset there, 5 now"),
        (
            {"selector": {"selector": "fixed", "sigma": 0.5}},
            "the selector's sigma 0.25 there, 0.5 now",
        ),
        ({"dataset": {"name": "zoo", "size": 6}}, "--data holds other images or labels"),
    ],
)
def test_other_settings_are_named_as_options(change: dict[str, Any], sentence: str) -> None:
    assert different_options(HEAD, HEAD) == []
    assert different_options(HEAD, HEAD | change) == [sentence]
