"""Whole data sets through the command line: what the rows say, and that they are true."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from tests.evaluation import Output, Patch
from tests.oracles import arguments
from tests.small_models import FALSE_LEVEL, QUICK, run, table
from varsmooth import FixedSelector, SmoothedClassifier, api, certify, load, load_dataset, predict
from varsmooth._util.fingerprints import fingerprint
from varsmooth.evaluation import certify as certify_module
from varsmooth.evaluation.attack import find_adversarial
from varsmooth.evaluation.build import build
from varsmooth.evaluation.options import AttackOptions, DataOptions, ModelOptions, recorded
from varsmooth.evaluation.records import Run
from varsmooth.evaluation.verify import verify_run
from varsmooth.noise import scoped_seed


def deployed(model: Path, **options: Any) -> SmoothedClassifier:
    return load(model, n_median=21, **options)


def test_rows_are_what_certify_says(certified: Path, model: Path) -> None:
    images = load_dataset("cifar10-sample")[3:1000:115]
    g = deployed(model)
    batch = images.batch(slice(None))
    settings = {"n": 60, "n0": 20, "n_select": 61, "alpha": 0.05, "alpha_select": 0.01}
    truth = certify(g, batch.images, ids=batch.ids, seed=0, **arguments(**settings))
    record = Run.open(certified)
    rows = {row["id"]: row for row in record.rows()}
    assert sorted(rows) == sorted(images.ids.tolist())
    assert len({certificate.radius for certificate in truth}) > 3
    for certificate, label in zip(truth, batch.labels.tolist(), strict=True):  # type: ignore[union-attr]
        row = rows[certificate.id]
        expected = {"label": label, "guarantee": "sound", "selector_samples": 20 + 61}
        expected |= {"samples": 20 + 60 * len(certificate.votes)}
        expected |= {name: getattr(certificate, name) for name in ("prediction", "radius", "sigma")}
        assert row | expected == row
        assert row["seconds"] > 0
        assert "settings" not in row["evidence"]
        assert record.certificate(row) == certificate
    header = record.header
    assert (header["verb"], header["name"]) == ("certify", "sound")
    assert header["fingerprints"]["classifier"] == fingerprint(g.classifier)
    assert header["selector"] == json.loads(json.dumps(g.selector.describe()))
    assert header["dataset"]["size"] == 9
    assert {"torch", "python", "platform", "device", "varsmooth"} <= header["environment"].keys()


@pytest.mark.parametrize("batch_size", [1, 500])
def test_the_batch_size_changes_no_answer(
    certified: Path, model: Path, tmp_path: Path, batch_size: int
) -> None:
    command = f"certify {QUICK} --subset 3:1000:115 --batch-size {batch_size} --model"
    assert run(command, model, "--out", tmp_path) == 0
    for mine, other in zip(table(tmp_path), table(certified), strict=True):
        assert mine["evidence"]["votes"] == other["evidence"]["votes"]
        assert mine["radius"] == pytest.approx(other["radius"], abs=1e-4)


def test_a_finished_run_does_nothing_more(certified: Path, model: Path, capsys: Output) -> None:
    before = {path: path.read_bytes() for path in certified.iterdir()}
    command = f"certify {QUICK} --subset 3:1000:115 --batch-size 7 --model"
    assert run(command, model, "--out", certified) == 0
    assert {path: path.read_bytes() for path in certified.iterdir()} == before
    assert "9 of 9 images" in capsys.readouterr().out


def test_half_a_block_is_completed_to_the_same_table(
    certified: Path, model: Path, tmp_path: Path
) -> None:
    """Lines that a crash left, the last one torn, from the middle of a block."""
    (tmp_path / "run.json").write_bytes((certified / "run.json").read_bytes())
    lines = (certified / "rows-00000.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "rows-00003.jsonl").write_bytes(lines[5] + lines[0][:99])
    (tmp_path / "rows-00000.jsonl").write_bytes(lines[2] + lines[7][:-1])
    assert run(f"certify {QUICK} --subset 3:1000:115 --model", model, "--out", tmp_path) == 0
    assert table(tmp_path) == table(certified)


def test_a_second_certificate_costs_only_the_selector(model: Path, tmp_path: Path) -> None:
    votes = tmp_path / "votes"
    command = f"certify {QUICK} --subset 0:4 --model {model} --vote-cache {votes}"
    assert run(command, "--out", tmp_path / "first") == 0
    stored = {path: path.read_bytes() for path in votes.rglob("*.jsonl")}
    assert len(stored) == 1
    assert run(command, "--out", tmp_path / "second", "--lam", 0.2) == 0
    assert {path: path.read_bytes() for path in votes.rglob("*.jsonl")} == stored
    assert table(tmp_path / "first") == table(tmp_path / "second")
    plain = command.partition(" --vote-cache")[0]
    assert run(plain, "--out", tmp_path / "plain") == 0
    assert table(tmp_path / "first") == table(tmp_path / "plain")


@pytest.mark.parametrize(
    ("options", "guarantee", "samples", "selector_samples"),
    [
        ("--sigma 0.25", "sound", 80, 0),
        ("--selector learned --method conditional", "conditional", 80, 1),
        ("--n-median 21 --method conditional", "conditional", 80, 21),
        ("--n-median 21 --method paper --distance 0.1", "heuristic", None, 61),
    ],
)
def test_every_kind_of_certificate(
    model: Path,
    tmp_path: Path,
    options: str,
    guarantee: str,
    samples: int | None,
    selector_samples: int,
) -> None:
    command = "certify --n 60 --n0 20 --n-select 61 --alpha 0.05 --alpha-select 0.01 --subset 0:2"
    assert run(f"{command} {options} --model", model, "--out", tmp_path) == 0
    for row in table(tmp_path):
        assert row["guarantee"] == guarantee
        assert row["samples"] == (samples or 80 * len(row["evidence"]["votes"]))
        assert row["selector_samples"] == selector_samples
    assert verify_run(tmp_path, resample=2, seed=11).problems == []


def test_predictions(model: Path, tmp_path: Path, capsys: Output) -> None:
    command = "predict --n 100 --n-median 21 --subset 0:3 --model"
    assert run(command, model, "--out", tmp_path / "run") == 0
    record = Run.open(tmp_path / "run")
    seed = record.header["config"]["seed"]
    assert isinstance(seed, int)
    batch = load_dataset("cifar10-sample")[0:3].batch(slice(None))
    truth = predict(deployed(model), batch.images, n=100, seed=seed, ids=batch.ids)
    assert [row["counts"] for row in record.rows()] == [list(answer.counts) for answer in truth]
    assert [row["prediction"] for row in record.rows()] == truth.prediction.tolist()
    before = table(tmp_path / "run")
    (tmp_path / "run" / "rows-00000.jsonl").write_text("")  # continued with the seed it recorded
    assert run(command, model, "--out", tmp_path / "run") == 0
    assert table(tmp_path / "run") == before
    assert run(command, model, "--out", tmp_path / "other") == 0
    assert Run.open(tmp_path / "other").header["config"]["seed"] != seed
    assert "3 of 3 images" in capsys.readouterr().out


def test_predictions_never_take_the_seed_of_another_verb(model: Path, tmp_path: Path) -> None:
    """A published seed voids the guarantee of a prediction."""
    certify_words = f"certify {QUICK} --subset 0:1 --model {model} --out {tmp_path}"
    assert run(certify_words) == 0
    (tmp_path / "rows-00000.jsonl").unlink()  # no rows yet: safe to overwrite
    assert run(f"predict --n 50 --sigma 0.25 --subset 0:1 --model {model} --out {tmp_path}") == 0
    assert Run.open(tmp_path).header["config"]["seed"] > 2**20


def test_class_folders_get_the_numbers_of_the_model(
    model: Path, tmp_path: Path, capsys: Output
) -> None:
    pixels = load_dataset("cifar10-sample").images
    for name, place in (("dog", 0), ("bird", 1), ("truck", 2)):
        (tmp_path / "zoo" / name).mkdir(parents=True)
        Image.fromarray(pixels[place]).save(tmp_path / "zoo" / name / "a.png")
    words = f"predict --sigma 0.25 --n 20 --model {model} --data {tmp_path}/zoo --out"
    assert run(words, tmp_path / "run") == 0
    assert [row["label"] for row in table(tmp_path / "run")] == [2, 5, 9]
    (tmp_path / "zoo" / "dog").rename(tmp_path / "zoo" / "hound")
    assert run(words, tmp_path / "other") == 1
    assert "classes hound" in capsys.readouterr().err


def test_attacks(model: Path, tmp_path: Path) -> None:
    command = (
        f"attack --eps 2,0.5 --steps 4 --samples 4 --n 40 --n-median 21 --data {tmp_path}/x.npz "
        "--batch-size 16 --n-median-attack 5 --save-images true --model"
    )
    np.savez(tmp_path / "x.npz", images=load_dataset("cifar10-sample").images[:3])
    assert run(command, model, "--out", tmp_path / "strong") == 0
    rows = table(tmp_path / "strong")
    assert [(row["id"], row["eps"]) for row in rows] == [
        (image, eps) for image in range(3) for eps in (0.5, 2.0)
    ]
    batch = load_dataset("cifar10-sample")[0:3].batch(slice(None))
    kept = {
        (int(i), eps): torch.from_numpy(x)
        for eps in (0.5, 2.0)
        for path in (tmp_path / "strong" / "images").glob(f"eps-{eps:g}-*.npz")
        for i, x in zip(np.load(path)["ids"], np.load(path)["images"], strict=True)
    }
    g, seed = deployed(model), scoped_seed(0, "x test")
    for row in rows:
        x, attacked = batch.images[row["id"]], kept[row["id"], row["eps"]]
        distance = float((attacked.double() - x.double()).norm())
        assert distance < row["eps"] * 1.00001
        assert row["norm"] == pytest.approx(distance, rel=1e-9)
        (answer,) = predict(g, attacked[None], n=40, alpha=None, seed=seed, ids=[row["id"]])
        assert (list(answer.counts), answer.sigma) == (row["counts"], row["sigma"])
        assert 20 < sum(row["clean_counts"]) <= 40  # until the majority is decided
        assert row["label"] is None
        # Without labels, the attack drives images away from the clean prediction.
        predicted = row["clean_prediction"]
        if row["eps"] == 2:
            assert distance > 0.6
            assert row["counts"][predicted] < row["clean_counts"][predicted] - 10
    (tmp_path / "strong" / "rows-00000.jsonl").unlink()  # again, and one block at a time
    assert run(command, model, "--out", tmp_path / "strong") == 0
    again = table(tmp_path / "strong")
    norms = [[row.pop("norm") for row in one] for one in (again, rows)]
    assert again == rows
    assert norms[0] == pytest.approx(norms[1], rel=1e-6)  # gradients differ in the last bits
    weak = command.replace("--save-images true", "--kind weak")
    assert run(weak, model, "--out", tmp_path / "weak") == 0
    assert [row["norm"] for row in table(tmp_path / "weak")] != norms[1]


def test_only_what_is_right_is_attacked(model: Path, tmp_path: Path) -> None:
    """The others count as wrong whatever the attack does."""
    images = load_dataset("cifar10-sample").images[:3]
    command = "attack --eps 1 --steps 3 --samples 4 --n 40 --sigma 0.25 --model"
    np.savez(tmp_path / "x.npz", images=images)
    assert run(command, model, "--data", tmp_path / "x.npz", "--out", tmp_path / "own") == 0
    own = table(tmp_path / "own")  # without labels: all are right
    predicted = np.array([row["clean_prediction"] for row in own])
    assert (predicted >= 0).all()
    np.savez(tmp_path / "x.npz", images=images, labels=(predicted + np.array([0, 1, 0])) % 10)
    assert run(command, model, "--data", tmp_path / "x.npz", "--out", tmp_path / "labelled") == 0
    rows = table(tmp_path / "labelled")
    assert [row["norm"] > 0 for row in rows] == [True, False, True]
    assert rows[1]["counts"] == rows[1]["clean_counts"] == own[1]["clean_counts"]
    assert [row["counts"] for row in rows[::2]] == [row["counts"] for row in own[::2]]


def test_an_attack_on_the_lattice_stays_on_it(model: Path, tmp_path: Path) -> None:
    command = "attack --eps 1 --steps 8 --samples 8 --n 20 --sigma 0.25 --lattice true"
    command += f" --save-images true --data {tmp_path}/x.npz --model"
    np.savez(tmp_path / "x.npz", images=load_dataset("cifar10-sample").images[:2])
    assert run(command, model, "--out", tmp_path / "run") == 0
    (path,) = (tmp_path / "run" / "images").iterdir()
    pixels = 255 * np.load(path)["images"]
    assert np.abs(pixels - pixels.round()).max() < 1e-3
    assert all(0 < row["norm"] <= 1 for row in table(tmp_path / "run"))


def test_a_run_in_bfloat16_is_replayed_in_bfloat16(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    command = f"certify {QUICK} --subset 3:1000:250 --precision bfloat16 --model"
    assert run(command, model, "--out", folder) == 0
    assert run("verify --replay all", folder) == 0
    resumed = command.replace("bfloat16", "float32")
    assert run(resumed, model, "--out", folder) != 0  # the votes of two classifiers do not mix


def grey(folder: Path, count: int = 2) -> Path:
    """Images whose first pixel is ½ (as near as 8 bits allow)."""
    np.savez(folder / "grey.npz", images=np.full((count, 8, 8, 3), 128, np.uint8))
    return folder / "grey.npz"


SEARCH = "attack --steps 20 --samples 2 --n 100 --n-median-attack 101 --against"
CERTIFY = "certify --n 200 --n-select 501 --alpha 0.01 --alpha-select 0.001"


def test_a_false_certificate_is_found(in_tmp: Path, capsys: Output) -> None:
    """The paper's three levels miss the one where the classifier is wrong."""
    (in_tmp / "planted.py").write_text(FALSE_LEVEL)
    data = grey(in_tmp)
    command = f"{CERTIFY} --model planted:continuous --data {data}"
    assert run(f"{command} --method paper --distance 0.5 --out false") == 0
    radii = [row["radius"] for row in table(Path("false"))]
    assert min(radii) > 0.25
    assert (
        run(f"{SEARCH} false --model planted:continuous --out counterexamples") == 0
    )  # heuristic certificates may be false
    rows = table(Path("counterexamples"))
    assert [row["violated"] for row in rows] == [True, True]
    for row, radius in zip(rows, radii, strict=True):
        assert row["norm"] < row["radius"] == radius
        assert 0.3 < row["sigma_clean"] < 0.355 < row["sigma"] < 0.415
        assert row["prediction"] == 1
    assert "2 of 2 heuristic ones false" in capsys.readouterr().out
    # If such a row claimed to be sound, the command would fail.
    claims = [row | {"guarantee": "sound"} for row in Run.open("false").rows()]
    Path("false/rows-00000.jsonl").unlink()
    Run.open("false").append(claims)
    assert run(f"{SEARCH} false --model planted:continuous --out again") == 1
    assert "2 sound certificates are false (images 0, 1)" in capsys.readouterr().err


def test_no_violation_of_sound_certificates(in_tmp: Path, certified: Path, capsys: Output) -> None:
    """Neither of the same classifier on a grid that has the wrong level, nor of networks."""
    (in_tmp / "planted_grid.py").write_text(FALSE_LEVEL)
    command = f"{CERTIFY} --model planted_grid:on_a_grid --data {grey(in_tmp)} --out true"
    assert run(command) == 0
    assert run(f"{SEARCH} true --model planted_grid:on_a_grid --out search") == 0
    assert all(0 < row["radius"] < 0.13 for row in table(Path("search")))
    quick = SEARCH.replace("20", "5").replace("101", "11")
    assert run(f"{quick} {certified} --out more") == 0
    rows = table(Path("more"))
    positive = [row["id"] for row in table(certified) if row["radius"] > 0]
    assert [row["id"] for row in rows] == positive
    assert len(positive) > 3
    assert not any(row["violated"] for row in rows)
    assert all(row["norm"] < row["radius"] for row in rows)
    assert f"0 of {len(rows)} sound ones false" in capsys.readouterr().out


def test_a_search_quotes_the_votes_of_the_stage_that_decided(model: Path, in_tmp: Path) -> None:
    cascade = "certify --n 100 --alpha 0.05 --subset 3:1000:115 --cascade 0.5:0.999:0,0.25"
    assert run(f"{cascade} --out cascade --model", model) == 0
    assert run(f"{SEARCH.replace('20', '1')} cascade --out search") == 0
    stages = {row["id"]: row["evidence"]["votes"] for row in table(Path("cascade"))}
    rows = table(Path("search"))
    assert len(rows) > 2
    for row in rows:
        assert row["sigma_clean"] == stages[row["id"]][-1]["sigma"] == 0.25
        assert row["clean_counts"] == stages[row["id"]][-1]["counts"]


def test_options_survive_the_header(certified: Path, model: Path) -> None:
    config = Run.open(certified).header["config"]
    named, data = recorded(ModelOptions, config), recorded(DataOptions, config)
    assert named == ModelOptions(str(model), n_median=21)
    assert data == DataOptions(data="cifar10-sample", subset="3:1000:115")
    options = ModelOptions(str(model), clip=(0.2, 0.3), levels=[0.2, 0.25], n_median=11)
    assert build(options).g.selector.describe()["clip"] == [0.2, 0.3]
    assert build(ModelOptions(str(model))).g.selector.describe() == load(model).selector.describe()


def test_the_weak_attack_tells_a_conditional_f_the_clean_level() -> None:
    levels = []

    class Conditional(nn.Module):
        conditional = True

        def forward(self, x: Tensor, sigma: Tensor) -> Tensor:
            levels.append(sigma)
            score = x.flatten(1).sum(dim=1)
            return torch.stack([score, -score], dim=1)

    g = SmoothedClassifier(Conditional(), FixedSelector(0.5))
    x, sigma = torch.full((2, 1, 4, 4), 0.5), torch.tensor([0.1, 0.2], dtype=torch.float64)
    weak, y, ids = AttackOptions(kind="weak", steps=3), torch.tensor([0, 1]), torch.arange(2)
    adversarial = find_adversarial(g, x, y, 0.8, weak, ids, sigma)
    assert all(torch.equal(level, sigma.float()) for level in levels)
    expected = x + torch.tensor([-0.2, 0.2]).view(2, 1, 1, 1)  # straight along ±(1,…,1), norm 0.8
    assert torch.allclose(adversarial, expected, atol=1e-6)


def test_labels_that_the_model_does_not_know(model: Path, tmp_path: Path, capsys: Output) -> None:
    labels = np.array([3, 12])
    np.savez(tmp_path / "many.npz", images=np.zeros((2, 32, 32, 3), np.uint8), labels=labels)
    assert run(f"predict --model {model} --data {tmp_path}/many.npz") == 1
    assert "labels from 0 to 12, but the model knows 10 classes" in capsys.readouterr().err


def test_a_folder_named_like_a_data_set_is_not_mistaken_for_it(model: Path, in_tmp: Path) -> None:
    (in_tmp / "cifar10-sample").mkdir()
    assert run(f"predict --sigma 0.25 --n 20 --subset :1 --model {model} --out run") == 0
    assert Run.open("run").header["config"]["data"] == "cifar10-sample"


class Counting(nn.Module):
    """A classifier that counts the noisy images it is shown."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append(len(x))
        return torch.stack([x.flatten(1).sum(dim=1), torch.zeros(len(x))], dim=1)


class Drawn(FixedSelector):
    """A selector that counts its calls."""

    calls = 0

    def forward(self, *args: Any, **options: Any) -> torch.Tensor:
        self.calls += 1
        return super().forward(*args, **options)


@pytest.mark.parametrize("draws", [1, 4])
def test_an_attack_averages_over_draws_of_an_unprotected_selector(draws: int) -> None:
    f, selector = Counting(), Drawn(0.25)
    x = torch.full((2, 3, 4, 4), 0.5)
    settings = AttackOptions(eps=0.5, steps=3, samples=8, selector_samples=draws, seed=0)
    g, y = SmoothedClassifier(f, selector), torch.tensor([0, 1])
    find_adversarial(g, x, y, 0.5, settings, torch.arange(2), torch.full((2,), 0.25))
    assert selector.calls == 4 * draws  # three steps and the last point
    assert sum(f.seen) == 4 * 8 * 2  # as many noisy copies, divided among the draws


def test_a_log_says_after_the_first_block_what_an_image_costs_and_how_long_it_takes(
    tmp_path: Path, capfd: Output
) -> None:
    words = "certify --model cifar10-0.25 --sigma 0.25 --subset :3 --n 40 --n0 10 --batch-size 10"
    assert run(words, "--out", tmp_path / "run") == 0
    first = next(line for line in capfd.readouterr().err.splitlines() if "images/s" in line)
    assert re.search(r"\d/3 images, .* images/s, .* left; .*, 50 samples per image$", first), first


def test_an_interruption_says_what_is_saved(
    model: Path, tmp_path: Path, monkeypatch: Patch, capsys: Output
) -> None:
    """A block that votes together is recorded whole; the images of half a block are recomputed."""
    original, calls = api.certify_at, list[int]()

    def certify_at(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return original(*args, **kwargs)

    monkeypatch.setattr(certify_module, "certify_at", certify_at)
    monkeypatch.setattr(certify_module, "BLOCK_SIZE", 4)
    words = f"certify --model {model} --sigma 0.25 --at 0 --n-max 64 --subset :8 --out"
    assert run(words, tmp_path / "r") == 130
    assert "saved: 4 of 8 images; images in progress will be recomputed" in capsys.readouterr().err
    assert run(words, tmp_path / "r") == 0
    assert "resuming: 4 of 8 images are there" in capsys.readouterr().err
