"""Errors: one sentence that states what to do or type, without printing the user's network."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import nn

import varsmooth
from tests.small_models import run
from varsmooth import VarsmoothError
from varsmooth.errors import check_images, reason
from varsmooth.evaluation.records import read_certificate
from varsmooth.models import adapters

API: Any = varsmooth  # mypy would notice most of these mistakes
NETWORK: Any = nn.Sequential(nn.Flatten(), nn.Linear(48, 2))
G, X = API.SmoothedClassifier(NETWORK, API.FixedSelector(0.25)), torch.full((1, 3, 4, 4), 0.5)
SIGMA, SAMPLE = API.FixedSelector(0.25), API.load_dataset("cifar10-sample")
CHANNELS = API.SmoothedClassifier(nn.Sequential(nn.Conv2d(3, 2, 4), nn.Flatten()), SIGMA)
CONDITIONAL = API.load("cifar10-universal-0.25", sigma=0.25).classifier


JUST_ABOVE = torch.tensor([0.5, 1 + 1e-6]).view(1, 1, 1, 2)
LEARNED = API.LearnedSelector(NETWORK, 0.25, 0.5)


def smooth(selector: Any) -> Any:
    return API.SmoothedClassifier(NETWORK, selector)


def certified() -> Any:
    return API.certify(G, X, n=60, alpha=0.05, seed=1)


def at() -> Any:
    return API.certify_at(G, X, 0.1, alpha=0.05, seed=1, options=API.Options(n_max=60))


def labelled() -> Any:
    return API.LabelledCertificates(certified(), [0])


MISUSES: list[tuple[Callable[[], Any], str]] = [
    (lambda: check_images(JUST_ABOVE), "from 0.5 to 1.00000095; clamp them with"),
    (lambda: API.predict(G, 255 * X), "from 127.5 to 127.5; scale the images"),
    (lambda: API.certify(G, X, alpha="0.05"), "between 0 and 1, not '0.05'"),
    (lambda: API.certify_as_paper(G, X, 0.1), "no paper one; call certify"),
    (lambda: API.certify(G, X, seed="a"), "seed must be a whole number, not 'a'"),
    (lambda: API.predict(G, X, seed=1.5), "seed must be a whole number, not 1.5"),
    (lambda: API.certify(G, X.double()), "most need float32, which x.float() gives"),
    (lambda: API.SmoothedClassifier(SIGMA, NETWORK), "CascadeSelector, not Sequential;"),
    (
        lambda: smooth(lambda x: x),
        "a function of yours goes into MedianSelector(function, sigma_m)",
    ),
    (lambda: API.SmoothedClassifier(len, SIGMA), "call a function in the forward of one"),
    (lambda: API.SmoothedClassifier(nn.Linear, SIGMA), "an nn.Module, so that its weights"),
    (lambda: API.SmoothedClassifier(G, SIGMA), "give the network inside it, g.classifier"),
    (
        lambda: API.certify(smooth(API.CascadeSelector([0.5], gates=NETWORK)), X),
        "the gate (z, logits, sigma) → scores fails on torch.float32 images of 4×4 pixels",
    ),
    (lambda: API.CascadeSelector([0.5], gates=int), "gates must be a list of numbers"),
    (lambda: API.MedianSelector(0.25, 0.25), "the first argument of MedianSelector"),
    (
        lambda: API.predict(smooth(API.MedianSelector(API.CascadeSelector([1]), 0.25)), X),
        "the σ of a cascade is known only after voting; pass the cascade to SmoothedClassifier",
    ),
    (lambda: API.predict(smooth(LEARNED), X), "the network (x, sigma_a, lam) → σ fails on"),
    (lambda: API.FixedSelector(torch.tensor([0.1, 0.2])), "sigma must be one positive number"),
    (lambda: API.certify(G, X, options=API.Options(n_max=5)), "`n_max` has no effect on certify;"),
    (
        lambda: API.certify_until(G, X, options=API.Options(every_index=True)),
        "`every_index` has no effect on certify_until; leave it out of the options",
    ),
    (lambda: API.certify_at(G, X, "0.5"), "radius must be ≥ 0 and finite, not '0.5'"),
    (lambda: API.certify_at(G, X, None), "radius must be ≥ 0 and finite, not None"),
    (lambda: API.predict(G, SAMPLE.batch([0])), "not Batch; give the .images of a batch, as in"),
    (lambda: API.predict(G, X, ids=torch.tensor([0.5])), "ids must be whole numbers"),
    (lambda: API.predict(G, X, ids=7), "ids must be whole numbers"),
    (lambda: API.predict(CHANNELS, torch.rand(1, 8, 8, 3)), "x.permute(0, 3, 1, 2)"),
    (
        lambda: API.pgd(CONDITIONAL, X, torch.zeros(len(X), dtype=torch.long), 0.1),
        "takes σ as an input; attack the SmoothedClassifier around it, or fix a level",
    ),
    (lambda: SAMPLE.batches(0), "size must be a whole number of at least 1, not 0"),
    (lambda: API.save_run("x", API.predict(G, X), G), "a run holds certificates, not Predictions"),
    (lambda: API.save_run("x", at(), G), "the .certificates of what certify_at did"),
    (lambda: API.save_run("x", certified(), G, labels=[77]), "up to 77, but the model has 2"),
    (lambda: API.save_run("tests", certified(), G), "tests holds other files"),
    (lambda: labelled().certified_accuracy("0.25"), "radius must be ≥ 0 and finite, not '0.25'"),
    (lambda: labelled().certified_accuracy([0, -1]), "radius must be ≥ 0 and finite, not -1"),
    (lambda: labelled().error_probability(float("nan")), "≥ 0 and finite, not nan"),
    (lambda: labelled().error_probability("a"), "radius must be ≥ 0 and finite, not 'a'"),
    (
        lambda: API.certify(G, X, n0=10),
        "n0 is a field of the options; write options=Options(n0=10)",
    ),
    (lambda: read_certificate({}), "prediction is missing; give one certificate whole, as its"),
    (lambda: API.load(5), "name_or_path must be text, or a path, not 5"),
    (lambda: API.load_dataset(["a"]), "name_or_path must be text, or a path, not ['a']"),
    (lambda: API.load_dataset("cifar10-sample", resize="big"), "a whole number from 1"),
    (lambda: adapters.from_transformers(NETWORK, NETWORK), "from_transformers(model, processor)"),
]


@pytest.mark.parametrize(("call", "sentence"), MISUSES)
def test_misuse_is_one_sentence(call: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(VarsmoothError) as caught:
        call()
    assert sentence in str(caught.value)
    assert "Linear(" not in str(caught.value)
    assert "--" not in str(caught.value)  # options are those of Python


def test_the_reason_is_what_came_first() -> None:
    error = ImportError("see the log")
    error.__cause__ = RuntimeError("the cause\nand more")
    assert reason(error) == "the cause"


def test_the_package_lists_its_own_names_only() -> None:
    assert {"certify", "load", "__version__"} <= set(dir(varsmooth))
    assert not {"Path", "re", "import_module"} & set(dir(varsmooth))


def test_images_are_chosen_by_a_slice_or_a_list() -> None:
    data: Any = API.load_dataset("cifar10-sample")
    for choose, wrong_ones in (
        (data.batch, (3, range(2000, 2003), None, "cat")),
        (data.__getitem__, (range(2000, 2003), None, "cat")),  # data[3] is one image
    ):
        for wrong in wrong_ones:
            with pytest.raises(VarsmoothError, match=r"a slice or a list such as \[0, 1\]"):
                choose(wrong)


def test_a_mistyped_split_is_corrected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for split in ("train", "val", "test"):
        (tmp_path / "mine" / split / "a").mkdir(parents=True)
        Image.new("RGB", (32, 32)).save(tmp_path / "mine" / split / "a" / "0.png")
    words = (
        "certify --model cifar10-0.25 --sigma 0.25 --data mine --split tset --n 60 --n0 20 --out x"
    )
    assert run(words) == 1
    assert "has no 'tset' beside test, train, val; did you mean test?" in capsys.readouterr().err


def test_the_papers_method_for_one_sigma_is_refused_by_its_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "certify --model cifar10-0.25 --sigma 0.25 --subset 0:1 --method paper --distance 0.1"
    assert run(f"{words} --out {tmp_path}/run") == 1
    assert "no paper one; leave out --method paper\n" in capsys.readouterr().err


def test_load_warns_of_levels_far_from_training() -> None:
    said = "trained at σ = 0.25; expect low accuracy at σ = 2"
    with pytest.warns(UserWarning, match=said):
        API.load("cifar10-0.25", sigma=2)
    with pytest.warns(UserWarning, match=said):
        API.load("cifar10-0.25", cascade=[2, 0.5])
    API.load("cifar10-0.25", sigma=0.5)  # no warning: it would be an error of the tests


def test_a_level_far_from_training_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = "certify --model cifar10-0.25 --data cifar10-sample --subset 0:1 --n 60 --n0 20"
    note = "note: the classifier was trained at σ = 0.25; expect low accuracy at σ = 2"
    assert run(f"{words} --sigma 2 --out far") == 0
    assert note in capsys.readouterr().err
    assert run(f"{words} --sigma 0.5 --out near") == 0
    assert "note: the classifier" not in capsys.readouterr().err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = "certify --model cifar10-0.25 --sigma 0.25 --subset 0:2 --n 60 --n0 20 --out runs/few"
    assert run(words) == 0
    assert run("report runs/few --out page") == 0
    (tmp_path / "page" / "report.html").unlink()
    os.symlink("/dev/full", tmp_path / "page" / "report.html")
    capsys.readouterr()
    assert run("report runs/few --out page") == 1
    assert "page/report.html cannot be written (No space left on device)" in capsys.readouterr().err
