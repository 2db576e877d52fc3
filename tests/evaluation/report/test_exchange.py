"""Runs to and from other programs' files, and at another α."""

import csv
import sys
from pathlib import Path

import numpy as np
import polars
import pytest

from tests.evaluation import Output, Patch
from tests.oracles import Linear, LinearSelector
from tests.report_runs import attacked, certified, certify_into, predicted, write
from varsmooth import FixedSelector, MedianSelector, SmoothedClassifier, VarsmoothError
from varsmooth.bounds import class_radius
from varsmooth.cli import main
from varsmooth.evaluation.records import Run
from varsmooth.evaluation.report.exchange import export, import_tsv, recompute
from varsmooth.evaluation.report.outcomes import Outcomes
from varsmooth.evaluation.verify import verify_run

RADII = (0.1 + 0.2, 0.0, 1.9999999)  # 0.30000000000000004: a digit more than six


@pytest.fixture
def run(tmp_path: Path) -> Path:
    rows = [
        certified(0, 1, 1, RADII[0]),
        certified(20, 1, -1, RADII[1], seconds=90_061.0),
        certified(40, 1, 2, RADII[2], environment={"torch": "0"}),  # of another machine
    ]
    return write(tmp_path / "f-0.25", rows)


def test_csv_keeps_every_digit(run: Path) -> None:
    path = export(run, "csv")
    assert path == run.with_name("f-0.25.csv")
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert [float(row["radius"]) for row in rows] == list(RADII)
    assert [row["correct"] for row in rows] == ["True", "False", "False"]
    assert [row["id"] for row in rows] == ["0", "20", "40"]
    assert [row["environment"] for row in rows] == ["", "", '{"torch": "0"}']
    assert "evidence" not in rows[0]


def test_csv_of_attacks_has_a_row_for_each_budget(tmp_path: Path) -> None:
    rows = [attacked(0, 0, 0.25, 0, 0), attacked(0, 0, 0.5, 0, 1)]
    path = export(write(tmp_path / "a", rows, verb="attack"), "csv")
    assert [
        (row["eps"], row["counts"]) for row in csv.DictReader(path.read_text().splitlines())
    ] == [("0.25", "[60, 40]"), ("0.5", "[60, 40]")]


def test_parquet_reads_back(run: Path, tmp_path: Path) -> None:
    table = polars.read_parquet(export(run, "parquet", tmp_path / "x.parquet"))
    assert table["radius"].to_list() == list(RADII)
    assert table["id"].to_list() == [0, 20, 40]


def test_parquet_without_a_library_is_one_sentence(run: Path, monkeypatch: Patch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(VarsmoothError, match="pip install polars"):
        export(run, "parquet")


def test_tsv_is_the_format_of_the_community(run: Path) -> None:
    assert export(run, "tsv").read_text() == (
        "idx\tlabel\tpredict\tradius\tcorrect\ttime\n"
        "0\t1\t1\t0.300000\t1\t0:00:00.500000\n"
        "20\t1\t-1\t0.0\t0\t1 day, 1:01:01\n"
        "40\t1\t2\t1.999999\t0\t0:00:00.500000\n"
    )


def test_tsv_round_trip(run: Path, tmp_path: Path) -> None:
    made = import_tsv(export(run, "tsv"), tmp_path / "back", sigma=0.25, alpha=1e-3, rounded="down")
    with pytest.raises(VarsmoothError, match="imported without evidence, so it cannot be verified"):
        verify_run(made.folder)
    before, after = Outcomes.open(run), Outcomes.open(made.folder)
    assert after.ids.tolist() == before.ids.tolist()
    assert after.predictions.tolist() == before.predictions.tolist()
    assert (after.radii <= before.radii).all()
    assert (before.radii - after.radii < 1e-6).all()
    assert after.seconds.tolist() == before.seconds.tolist()
    assert (after.guarantee, after.alpha, after.expected) == ("sound", 1e-3, 3)


HEAD = "idx\tlabel\tpredict\tradius\tcorrect\ttime\n"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("idx\tlabel,predict\n", "no column label, predict"),
        (HEAD, "no rows"),
        (HEAD + "0\t1\t1\t0.3\t0\t0:00:01\n", "line 2"),  # it is right, but says it is not
        (HEAD + "0\t1\t-1\t0.3\t0\t0:00:01\n", "line 2"),  # abstains with a radius
        (HEAD + "0\t1\t1\tnan\t1\t0:00:01\n", "line 2"),
        (HEAD + "0\t1\t1\t0.3\t1\tsoon\n", "line 2"),
        (HEAD + "0\t1\t1\t0.3\n", "line 2"),
        (HEAD + "0\t1\t1\t0.3\t1\t1\n" * 2, "idx twice"),
        (HEAD + "0\t1\t-3\t0.0\t0\t1\n", "line 2"),  # no abstention, and no class
        (HEAD + "0\t1\t1\t" + "9" * 100_000 + "x\t1\t1\n", "line 2"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, content: str, sentence: str) -> None:
    (tmp_path / "x.tsv").write_text(content)
    with pytest.raises(VarsmoothError, match=sentence):
        import_tsv(tmp_path / "x.tsv", tmp_path / "run", sigma=0.5)
    assert not (tmp_path / "run").exists()


def test_errors_quote_little_of_a_long_line(tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text(HEAD + "x" * 1_000_000)
    with pytest.raises(VarsmoothError) as error:
        import_tsv(tmp_path / "x.tsv", sigma=0.5)
    assert len(str(error.value)) < 300


@pytest.mark.parametrize("content", [b"idx\t\xff\xfe", None])
def test_what_is_not_text_is_one_sentence(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "x.tsv").write_bytes(content)
    with pytest.raises(VarsmoothError, match="cannot be read as text"):
        import_tsv(tmp_path / "x.tsv", sigma=0.5)


@pytest.mark.parametrize(
    ("file", "folder"), [("sigma_0.25", "sigma_0.25-run"), ("cohen.tsv", "cohen")]
)
def test_the_folder_of_an_import(tmp_path: Path, file: str, folder: str) -> None:
    (tmp_path / file).write_text(HEAD + "0\t1\t1\t0.3\t1\t0:00:01\n\n \n")  # blank lines, too
    assert import_tsv(tmp_path / file, sigma=0.25).folder == tmp_path / folder


def test_each_image_keeps_its_sigma(tmp_path: Path) -> None:
    text = "idx\tlabel\tpredict\tradius\tcorrect\tsigma\ttime\n"
    text += "0\t1\t1\t0.321\t1\t0.25\t0:00:01\n1\t1\t-1\t0.0\t0\t0.5\t0:00:01\n"
    (tmp_path / "x.tsv").write_text(text)
    run = Outcomes.open(import_tsv(tmp_path / "x.tsv", guarantee="conditional").folder)
    assert run.sigmas.tolist() == [0.25, 0.5]
    assert run.fixed_sigma is None


def test_the_abstention_of_multi_scale_smoothing_is_no_class(tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text(HEAD + "0\t1\t-2\t0.0\t0\t1\n1\t0\t0\t0.5\t1\t1\n")
    made = import_tsv(tmp_path / "x.tsv", guarantee="heuristic")
    assert Outcomes.open(made.folder).abstained.tolist() == [True, False]
    assert made.header["dataset"]["class_names"] == ["0", "1"]


def test_radii_rounded_to_nearest_are_lowered(tmp_path: Path) -> None:
    """Three significant digits, as `{:.3}` prints them: 0.49951 and 0.50049 are both 0.5."""
    true = [0.49951, 0.1236, 1.2351, 0.09995, 2.0, 0.00123456]
    lines = [f"{i}\t0\t0\t{r:.3}\t1\t1\n" for i, r in enumerate(true)]
    (tmp_path / "x.tsv").write_text(HEAD + "".join(lines))
    radii = Outcomes.open(import_tsv(tmp_path / "x.tsv", sigma=1.0).folder).radii
    assert (radii <= true).all()
    assert (np.array(true) - radii <= 0.011 * np.array(true)).all()
    kept = import_tsv(tmp_path / "x.tsv", tmp_path / "kept", sigma=1.0, rounded="down")
    assert Outcomes.open(kept.folder).radii.tolist() == [float(f"{r:.3}") for r in true]


def test_radii_that_no_vote_can_give_are_refused(tmp_path: Path) -> None:
    """All of n = 1000 votes: σΦ⁻¹(α^{1/1000}) is 0.616 at α = 10⁻³ and 0.651 at 10⁻²."""
    (tmp_path / "x.tsv").write_text(HEAD + "0\t0\t0\t0.6175\t1\t1\n1\t0\t0\t0.6112\t1\t1\n")
    with pytest.raises(VarsmoothError, match="1 of 2 radii"):
        import_tsv(tmp_path / "x.tsv", sigma=0.25, alpha=1e-3, n=1000)
    assert (
        import_tsv(tmp_path / "x.tsv", sigma=0.25, alpha=1e-2, n=1000).header["config"]["n"] == 1000
    )


def test_imports_over_other_images_can_share_an_envelope(tmp_path: Path, capsys: Output) -> None:
    folders = []
    for name, ids in (("a", (0, 1, 2)), ("b", (1, 2, 3))):
        rows = "".join(f"{i}\t0\t0\t0.3\t1\t1\n" for i in ids)
        (tmp_path / f"{name}.tsv").write_text(HEAD + rows)
        folders.append(str(import_tsv(tmp_path / f"{name}.tsv", sigma=0.25).folder))
    words = ["report", folders[0], "--envelope", f"all={','.join(folders)}", "--out"]
    assert main([*words, str(tmp_path / "no")]) == 1
    assert main([*words, str(tmp_path / "out"), "--common", "true"]) == 0
    assert "not finished" not in capsys.readouterr().err
    table = (tmp_path / "out" / "summary.csv").read_text().splitlines()
    assert table[1].split(",")[-3] == "2"  # images


def test_import_must_know_what_the_radii_mean(tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text(HEAD + "0\t1\t1\t0.3\t1\t0:00:01\n")
    with pytest.raises(VarsmoothError, match="guarantee"):
        import_tsv(tmp_path / "x.tsv", tmp_path / "run")
    run = import_tsv(tmp_path / "x.tsv", tmp_path / "run", guarantee="heuristic")
    assert Outcomes.open(run.folder).guarantee == "heuristic"
    with pytest.raises(VarsmoothError, match="already"):
        import_tsv(tmp_path / "x.tsv", tmp_path / "run", sigma=1.0)


def test_tsv_needs_radii_and_labels(tmp_path: Path) -> None:
    with pytest.raises(VarsmoothError, match="predict run"):
        export(write(tmp_path / "p", [predicted(0, 1, 1)], verb="predict"), "tsv")
    with pytest.raises(VarsmoothError, match="labels"):
        export(write(tmp_path / "u", [certified(0, None, 1, 0.5)]), "tsv")
    with pytest.raises(VarsmoothError, match="no row"):
        export(write(tmp_path / "e", []), "csv")


def test_recompute_fixed_level(tmp_path: Path) -> None:
    g = SmoothedClassifier(Linear(), FixedSelector(0.25))
    run = certify_into(tmp_path / "run", g, [0.6, 0.9], n=200, n0=20)
    again = recompute(run.folder, 0.05)
    assert again.folder == (tmp_path / "run-alpha-0.05").resolve()
    for before, after in zip(run.rows(), again.rows(), strict=True):
        top = after["evidence"]["votes"][0]["counts"][0]
        assert after["radius"] == class_radius(top, 200, 0.25, 0.05) > before["radius"]
        assert after["evidence"]["ledger"]["alpha"] == 0.05
        assert run.certificate(before).recompute(0.05) == again.certificate(after)
    assert again.header["config"]["alpha"] == 0.05
    outcomes = Outcomes.open(again.folder)
    assert (outcomes.alpha, outcomes.name) == (0.05, "run, α = 0.05")


def test_recompute_at_the_same_alpha_changes_no_row(tmp_path: Path) -> None:
    selector = MedianSelector(LinearSelector(0.3, 1.0), 0.25, 101, (0.12, 0.5), 4)
    g = SmoothedClassifier(Linear(), selector)
    run = certify_into(tmp_path / "run", g, [0.6, 0.9], n=200, n0=21, n_select=201)
    assert recompute(run.folder, 1e-3).rows() == run.rows()
    assert any(row["radius"] > 0 for row in run.rows())


def test_recompute_counts_levels_never_visited_as_unknown(tmp_path: Path) -> None:
    """With 20 votes the radius is small, so distant levels are not visited. At a loose α the
    votes would give far more, and the entry distance of the nearest unknown level is the limit."""
    selector = MedianSelector(LinearSelector(0.3, 0.2), 0.25, 101, (0.12, 0.5), 4)
    g = SmoothedClassifier(Linear(), selector)
    run = certify_into(tmp_path / "run", g, [0.99], n=20, n0=21, n_select=1001)
    (row,) = recompute(run.folder, 0.9).rows()
    certificate = Run.open(tmp_path / "run-alpha-0.9").certificate(row)
    evidence = certificate.selector
    assert evidence is not None
    assert evidence.levels is not None
    visited = {level.sigma: level.radius(certificate.ledger) for level in certificate.votes}
    distances = evidence.entry_distances(certificate.ledger)
    unknown = [d for s, d in zip(evidence.levels, distances, strict=True) if s not in visited]
    assert row["radius"] == min(unknown) < min(visited.values())
    assert row["radius"] > run.rows()[0]["radius"] > 0


def test_recompute_needs_evidence(tmp_path: Path) -> None:
    with pytest.raises(VarsmoothError, match="without evidence"):
        recompute(write(tmp_path / "i", [certified(0, 1, 1, 0.5)]), 0.01)
    with pytest.raises(VarsmoothError, match="run of attack"):
        recompute(write(tmp_path / "a", [attacked(0, 0, 0.5, 0, 0)], verb="attack"), 0.01)
