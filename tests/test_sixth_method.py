"""A method in one file and one table row goes through certify, records, verify and report."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.oracles import point
from tests.sixth_method import WorseOfTwo, make
from tests.small_models import run, table
from varsmooth import ABSTAIN, certify, certify_at, certify_until, predict
from varsmooth.methods import METHODS


@pytest.fixture(autouse=True, params=["first", "last"])
def listed(request: pytest.FixtureRequest) -> Iterator[None]:
    """A row of the table, before or after the methods that take any selector."""
    before, row = dict(METHODS), {WorseOfTwo.name: WorseOfTwo()}
    METHODS.clear()
    METHODS.update(row | before if request.param == "first" else before | row)
    yield
    METHODS.clear()
    METHODS.update(before)


def test_certify_and_predict_use_the_method() -> None:
    g, x = make(), point(0.8, 0.5)
    (one,) = certify(g, x, n=2000, seed=0)
    assert (one.method, one.guarantee, one.prediction) == ("worse of two", "sound", 0)
    assert [level.sigma for level in one.votes] == [0.1, 0.2]
    assert one.radius == min(level.radius(one.ledger) for level in one.votes)
    assert 0.2 < one.radius < 0.3  # the margin of a linear classifier
    assert predict(g, x, seed=0)[0].prediction == 0
    answer = predict(g, point(0.5, 0.5), seed=0)[0]
    assert (answer.prediction, answer.samples) == (ABSTAIN, 2000)  # n votes at both levels
    assert certify_at(g, x, [0.1, 0.2], seed=0)[0].certified
    assert not certify_at(g, x, 0.35, seed=0)[0].certified
    assert 0.2 < certify_until(g, x, 0.1, seed=0)[0].radius < 0.3


def test_runs_are_recorded_verified_and_reported(tmp_path: Path) -> None:
    few = "--n 60 --n0 20 --alpha 0.05 --subset :6 --data cifar10-sample"
    model = "--model tests.sixth_method:make"
    assert run(f"certify {model} {few} --out {tmp_path / 'a'}") == 0
    rows = table(tmp_path / "a")
    assert {row["evidence"]["method"] for row in rows} == {"worse of two"}
    assert {row["radius"] > 0 for row in rows} == {True}
    assert run(f"verify {tmp_path / 'a'} {model} --resample 2") == 0
    assert run(f"report {tmp_path / 'a'} --out {tmp_path / 'page'}") == 0
    assert "6 images certified" in (tmp_path / "page" / "report.html").read_text()
    (file,) = (tmp_path / "a").glob("rows-*.jsonl")
    text = file.read_text()
    file.write_text(text.replace('"sigma":0.2', '"sigma":0.3'))
    assert run(f"verify {tmp_path / 'a'} {model}") != 0
