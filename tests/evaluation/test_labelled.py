"""Certificates of Python as runs of the command line, and back."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import TensorDataset

from tests.evaluation import Output
from tests.oracles import arguments
from tests.small_models import run, write_pair
from varsmooth import (
    CascadeSelector,
    Certificates,
    LabelledCertificates,
    SmoothedClassifier,
    VarsmoothError,
    certify,
    certify_as_paper,
    certify_at,
    certify_until,
    load,
    load_dataset,
    load_run,
    save_run,
)
from varsmooth.data.cifar10 import CLASS_NAMES
from varsmooth.evaluation.report import Outcomes
from varsmooth.evaluation.report.statistics import ErrorProbability

SMALL: dict[str, Any] = {"n0": 20, "alpha": 0.05, "seed": 4}
IMAGES = load_dataset("cifar10-sample")[5:17:3]


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    return write_pair(tmp_path / "pair")


def calls(g: SmoothedClassifier) -> dict[str, Certificates]:
    x, _, ids = IMAGES.batch(slice(None))
    few: dict[str, Any] = {**SMALL, "ids": ids, "n_select": 61, "alpha_select": 0.01}
    stopping = arguments(n_max=96, **few)
    certificates = {
        "certify": certify(g, x, n=60, **arguments(**few)),
        "cohen": certify(g, x, n=60, **arguments(bound="cohen", **few)),
        "until": certify_until(g, x, 0.3, **stopping),
        "at": certify_at(g, x, 0.01, **stopping).certificates,
    }
    if g.selector.describe()["selector"] == "median":
        certificates["without band"] = certify(g, x, n=60, **arguments(band=False, **few))
        certificates["paper"] = certify_as_paper(g, x, distance=0.1, n=60, **arguments(**few))
    return certificates


@pytest.mark.parametrize(
    "settings",
    [{"sigma": 0.3}, {"cascade": "0.5:0.6:0.3,0.25"}, {"n_median": 21}],
    ids=["fixed", "cascade", "median"],
)
def test_what_python_saves_the_command_line_verifies_and_reports(
    settings: dict[str, Any], pair: Path, tmp_path: Path, capsys: Output
) -> None:
    g = load(pair, **settings)
    for name, certificates in calls(g).items():
        folder = tmp_path / name
        saved = save_run(folder, certificates, g, IMAGES, model=pair)
        assert saved.certificates == load_run(folder).certificates == certificates
        assert saved.labels == tuple(IMAGES.known_labels)
        replay = name in (
            "certify",
            "cohen",
            "without band",
        )  # their options are all in the evidence
        assert run("verify", folder, *(["--replay", "all"] if replay else [])) == 0
        text = capsys.readouterr().out
        if name in ("until", "at"):
            assert run("verify", folder, "--replay", "all") == 1
            assert "does not record their radii" in capsys.readouterr().err
        assert "model and images are those of the run" in text
        assert ("4 images replayed" in text) is replay
        assert run("report", folder, "--out", tmp_path / f"{name}-report") == 0
        assert "certified" in capsys.readouterr().out
    with pytest.raises(VarsmoothError, match="already holds a run"):
        save_run(tmp_path / "certify", certificates, g)


def test_certificates_without_images_or_model_are_checked_as_far_as_possible(
    pair: Path, tmp_path: Path, capsys: Output
) -> None:
    cascade = CascadeSelector([0.5, 0.25], gates=lambda z, logits, sigma: logits.amax(dim=1))
    g = SmoothedClassifier(load(pair).classifier, cascade)
    x = IMAGES.batch(slice(None)).images
    saved = save_run(
        tmp_path / "run", certify(g, x, n=60, **arguments(**SMALL)), g, labels=[1, 2, 3, 4]
    )
    assert [one.id for one in saved.certificates] == [0, 1, 2, 3]
    assert run(f"verify {tmp_path / 'run'}") == 3
    text = capsys.readouterr().out
    assert "4 rows, one for each image, follow from their evidence" in text
    assert "NOT CHECKED: the model" in text
    with pytest.raises(VarsmoothError, match="not those of these images"):
        save_run(tmp_path / "other", certify(g, x, n=60, **arguments(**SMALL)), g, IMAGES)


def test_certificates_of_another_level_are_refused(pair: Path, tmp_path: Path) -> None:
    """As of a service whose model was tuned between its start and the reading of its log."""
    x = IMAGES.batch(slice(None)).images
    certificates = certify(load(pair, sigma=0.3), x, n=60, **arguments(**SMALL))
    for other in ({"sigma": 0.25}, {"cascade": "0.5,0.3"}, {"sigma": 0.3, "lattice": True}):
        with pytest.raises(VarsmoothError, match="pass the g that they were made with"):
            save_run(tmp_path / "run", certificates, load(pair, **other))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("labels", [[1.5, 2], [-1, 0], [[0, 1], [1, 0]], ["cat", "dog"]])
def test_labels_that_are_no_classes_are_refused(labels: Any, pair: Path, tmp_path: Path) -> None:
    g, x = load(pair, sigma=0.3), IMAGES[:2].batch(slice(None)).images
    certificates = certify(g, x, n=60, **arguments(**SMALL))
    with pytest.raises(VarsmoothError, match="labels must be whole numbers from 0"):
        LabelledCertificates(certificates, labels)
    with pytest.raises(VarsmoothError, match="labels must be whole numbers from 0"):
        save_run(tmp_path / "run", certificates, g, labels=labels)
    with pytest.raises(VarsmoothError, match="must be a data set; for tensors give labels"):
        save_run(tmp_path / "run", certificates, g, x)  # type: ignore[arg-type]
    with pytest.raises(VarsmoothError, match="have no labels; give labels"):
        save_run(tmp_path / "run", certificates, g, TensorDataset(x))
    own = save_run(tmp_path / "run", certificates, g, TensorDataset(x, torch.tensor([3, 1])))
    assert own.labels == (3, 1)
    assert LabelledCertificates(certificates, torch.tensor([3, 1])).labels == (3, 1)  # type: ignore[arg-type]


def test_a_table_says_what_the_report_says(pair: Path, tmp_path: Path) -> None:
    g = load("cifar10-0.25", sigma=0.25)
    images = load_dataset("cifar10-sample")[:30]
    x, labels, ids = images.batch(slice(None))
    table = LabelledCertificates(certify(g, x, n=100, ids=ids, seed=1), labels.tolist())  # type: ignore[union-attr]
    save_run(tmp_path / "run", table.certificates, g, images)
    outcomes = Outcomes.open(tmp_path / "run")
    for at in table.certified_accuracy([0, 0.1, 0.25]):
        assert at.accuracy == (outcomes.reach >= at.radius).mean()
        assert at.low < at.accuracy < at.high
        assert table.certified_accuracy(at.radius) == at
    frame = table.to_polars()
    assert frame["radius"].to_list() == outcomes.radii.tolist()
    assert frame["correct"].sum() == outcomes.correct.sum()
    assert table.to_pandas()["radius"].tolist() == outcomes.radii.tolist()
    axes = table.plot()
    assert axes.get_xlabel() == "ℓ₂ radius r"
    answer = table.error_probability(0.1)
    assert answer.value == pytest.approx(1 - (outcomes.reach > 0.1).mean())
    assert "Under any change of ‖δ‖₂ ≤ 0.1 a wrong answer has probability at most" in str(answer)


def test_the_probability_of_a_wrong_answer_counts_images_and_alpha() -> None:
    """1 − L + 2α with Clopper and Pearson's L of 8 of 10, which tables give as .4439."""
    reach = [0.5] * 8 + [0.1, -float("inf")]
    answer = ErrorProbability.of(reach, 0.1, 0.01, "sound")  # a radius of 0.1 excludes ‖δ‖ = 0.1
    assert answer.value == pytest.approx(0.2)
    assert answer.interval().high == pytest.approx(1 - 0.4439 + 0.02, abs=1e-4)
    assert answer.interval().low == pytest.approx(1 - 0.9748, abs=1e-4)
    assert ErrorProbability.of([-1.0] * 5, 0.1, 0.3, "sound").interval().high == 1
    assert "if it does not move σ" in str(ErrorProbability.of(reach, 0.1, 0.01, "conditional"))


@pytest.mark.parametrize("kind", ["folder", "arrays"])
def test_a_run_of_own_images_saved_from_python_is_verified(
    kind: str, pair: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    monkeypatch.chdir(tmp_path)
    where = "photos" if kind == "folder" else "photos.npz"
    pixels = np.random.default_rng(0).integers(0, 256, (6, 40, 40, 3), dtype=np.uint8)
    if kind == "folder":
        for number, image in enumerate(pixels):
            file = Path("photos/test") / CLASS_NAMES[1 + number % 3] / f"{number}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(file)
    else:
        np.savez(where, images=pixels, labels=np.arange(6) % 2)
    g, images = load(pair, sigma=0.3), load_dataset(where, "test", resize=32)[::2]
    x, _, ids = images.batch(slice(None))
    certificates = certify(g, x, n=60, ids=ids, **arguments(**SMALL))
    saved = save_run("run", certificates, g, images, model=pair)
    assert saved.labels == ((1, 2, 3) if kind == "folder" else (0, 0, 0))  # as the model numbers
    for more in ("", "--replay all"):
        assert run(f"verify run {more}") == 0
        out = " ".join(capsys.readouterr().out.split())
        assert "model and images are those of the run" in out
        assert "its noise depends on seed and ids alone" in out
    other = replace(images, pixels=255 - images.images)  # not what is in the folder
    save_run("other", certificates, g, other, model=pair)
    assert run("verify other") == 3
    assert "does not record where they are" in capsys.readouterr().out


def test_a_certificate_that_occurs_twice_is_refused(pair: Path, tmp_path: Path) -> None:
    g, x = load(pair, sigma=0.3), IMAGES[:2].batch(slice(None)).images
    certificates = certify(g, x, n=60, **arguments(**SMALL))
    twice = Certificates((*certificates, certificates[1]))
    with pytest.raises(VarsmoothError, match="several of these certificates have the id 1"):
        save_run(tmp_path / "run", twice, g)
    assert not (tmp_path / "run").exists()
