"""The page without a browser: what is computed, what is refused, what the handlers return."""

import asyncio
import random
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gradio as gr
import numpy as np
import pytest
import torch
from PIL import Image

from tests.small_models import QUICK, run, write_pair
from varsmooth.app import attacking, certifying, page, panel, pictures, require_gradio
from varsmooth.app.desk import Desk
from varsmooth.app.jobs import Bench, Cancelled
from varsmooth.app.knobs import Knobs
from varsmooth.app.looking import look
from varsmooth.app.models import Model
from varsmooth.app.runs import EVERYTHING, OpenRun
from varsmooth.app.server import application, is_local, listen
from varsmooth.app.uploads import MAX_BYTES, open_upload
from varsmooth.cli import main
from varsmooth.data import Batch, load_dataset
from varsmooth.data.cifar10 import CLASS_NAMES
from varsmooth.errors import VarsmoothError
from varsmooth.models.checkpoints import save
from varsmooth.models.descriptions import Description, Part
from varsmooth.models.networks import build
from varsmooth.prediction import predict


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pair(tmp_path_factory.mktemp("app") / "pair")


@pytest.fixture(scope="module")
def desk(pair: Path) -> Desk:
    return Desk(str(pair))


@pytest.fixture(scope="module")
def model(pair: Path) -> Model:
    return Model.load(str(pair))


@pytest.fixture
def image() -> Batch:
    return load_dataset("cifar10-sample").batch([3])


def few(model: Model, **changes: Any) -> Knobs:
    return replace(model.first_knobs(), **{"n": 100, "n_select": 51, **changes})


def in_a_loop(make: Callable[[], Any]) -> Any:
    """Gradio takes the running event loop, or leaves one of its own unclosed."""

    async def made() -> Any:
        return make()

    return asyncio.run(made())


# Knobs and models


def test_knobs_stand_where_the_description_recommends(model: Model) -> None:
    knobs = model.first_knobs()
    assert (knobs.lam, knobs.clip, knobs.sigma_m) == (0.2, (0.1, 0.5), 0.25)
    assert set(model.smoothed(knobs)) == {"g", "g_v", "g_v*"}


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"n": 10**6}, "N must"),
        ({"n_select": 10**6 + 1}, "N_h"),
        ({"budget": 100.0}, "budget"),
        ({"lam": 1.5}, "λ"),
        ({"sigma": 0.0}, "σ must"),
        ({"clip": (0.5, 0.1)}, "clipping"),
    ],
)
def test_work_is_bounded(desk: Desk, model: Model, changes: dict[str, Any], word: str) -> None:
    with pytest.raises(VarsmoothError, match=word):
        desk.look("me", model.name, desk.sample(0), few(model, **changes), 0)


def test_the_view_is_the_prediction(model: Model, image: Batch) -> None:
    """What is drawn of h are the very draws behind the level that `predict` chose."""
    knobs = few(model)
    view = look(model, image, knobs, seed=5)
    (answer,) = predict(model.deployed(knobs), image.images, n=100, seed=5, ids=image.ids)
    assert view.answer == answer
    assert view.levels is not None
    assert view.levels.chosen == answer.sigma
    assert len(view.levels.samples) == 51
    assert view.levels.bounds[0] <= view.levels.median <= view.levels.bounds[1]


def test_lambda_moves_the_median(model: Model, image: Batch) -> None:
    medians = []
    for lam in (0.0, 1.0):
        levels = look(model, image, few(model, lam=lam), seed=0).levels
        assert levels is not None
        medians.append(levels.median)
    assert medians[0] != medians[1]


def test_a_larger_budget_moves_the_median_further(model: Model, image: Batch) -> None:
    spans = []
    for budget in (0.0, 0.05, 0.5):
        levels = look(model, image, few(model, budget=budget), seed=0).levels
        assert levels is not None
        spans.append(levels.bounds)
    assert spans[0][0] >= spans[1][0] >= spans[2][0] == 0
    assert spans[0][1] <= spans[1][1] <= spans[2][1] == float("inf")


# Certificates and attacks


def test_each_certificate_says_what_it_is_worth(model: Model, image: Batch) -> None:
    found = certifying.certify_each_way(model, image, few(model), seed=1)
    assert found.dual is not None
    assert found.paper is not None
    assert (found.dual.guarantee, found.fixed.guarantee) == ("sound", "sound")
    assert found.paper.guarantee == "heuristic"
    levels, distances, radii = pictures.construction(found.dual)
    safe = [max(d, radii.get(s, -np.inf)) for s, d in zip(levels, distances, strict=True)]
    assert max(0.0, min(safe)) == found.dual.radius


def test_an_attack_stays_within_its_budget(model: Model, image: Batch) -> None:
    found = attacking.attack(model, image, few(model, budget=0.5), steps=2, seed=0)
    assert found.distance <= 0.5 + 1e-6
    assert set(found.before) == set(found.after) == {"f", "g", "g_v", "g_v*"}
    assert found.target == 0  # its label: an airplane


def test_without_a_label_the_attack_leaves_the_answer(model: Model, image: Batch) -> None:
    knobs = few(model)
    (clean,) = predict(
        model.deployed(knobs), image.images, n=100, alpha=None, seed=0, ids=image.ids
    )
    bare = Batch(image.images, None, image.ids)
    found = attacking.attack(model, bare, knobs, steps=1, kind="weak", seed=0)
    assert found.target == clean.prediction


def test_estimates_of_the_work_are_not_too_small(model: Model, image: Batch) -> None:
    """Progress never passes its end; if it did, the work would not be bounded as we think."""
    knobs, bench = few(model), Bench()
    networks = model.checkpoint.classifier, model.checkpoint.selector
    with bench.job("me") as job, job.watching(*networks):
        certifying.certify_each_way(model, image, knobs, seed=0)
        assert 0 < job.images <= certifying.most_images(model, knobs)
    with bench.job("me") as job, job.watching(*networks):
        attacking.attack(model, image, knobs, steps=3, seed=0)
        assert 0 < job.images <= attacking.most_images(model, knobs, 3, "strong")


# Jobs


def test_cancel_stops_the_work_and_leaves_the_networks_alone(model: Model, image: Batch) -> None:
    bench = Bench()
    classifier = model.checkpoint.classifier
    assert classifier is not None

    def stop(images: int) -> None:
        assert bench.cancel("me")

    with (
        pytest.raises(Cancelled),
        bench.job("me", stop) as job,
        job.watching(classifier),
    ):
        certifying.certify_each_way(model, image, few(model))
    assert job.images <= 128  # one batch was under way
    assert not classifier._forward_pre_hooks
    assert not bench.cancel("me")


def test_one_job_at_a_time() -> None:
    bench, order = Bench(), []
    entered = threading.Event()

    def second() -> None:
        with bench.job("other"):
            order.append("second")

    with bench.job("me"):
        thread = threading.Thread(target=second)
        thread.start()
        assert not entered.wait(0.05)
        assert not bench.cancel("other")  # it has not begun
        order.append("first")
    thread.join(5)
    assert order == ["first", "second"]


# Uploads


def write_image(path: Path, size: tuple[int, int] = (48, 40), form: str = "PNG") -> Path:
    pixels = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path, form)
    return path


@pytest.mark.parametrize("form", ["PNG", "JPEG"])
def test_an_upload_is_cut_and_scaled_and_the_user_told(tmp_path: Path, form: str) -> None:
    picture, said = open_upload(write_image(tmp_path / "my photo", form=form), 32)
    assert picture.images.shape == (1, 32, 32, 3)
    assert picture.labels is None
    for word in ("my photo", "48 × 40", "central square", "32 × 32"):
        assert word in said


def test_an_upload_of_the_right_size_is_left_alone(tmp_path: Path) -> None:
    path = write_image(tmp_path / "small.png", (32, 32))
    picture, said = open_upload(path, 32)
    assert (picture.images[0] == np.asarray(Image.open(path))).all()
    assert said.endswith("as it is.")
    assert open_upload(path, 32, channels=1)[0].images.shape == (1, 32, 32, 1)


@pytest.mark.parametrize("form", ["GIF", "BMP", "WEBP", "TIFF", "PPM", "EPS"])
def test_other_formats_are_refused_whatever_they_are_called(tmp_path: Path, form: str) -> None:
    with pytest.raises(VarsmoothError, match="none of PNG, JPEG"):
        open_upload(write_image(tmp_path / "claims-to-be.png", form=form), 32)


def test_large_files_and_large_pictures_are_refused(tmp_path: Path) -> None:
    heavy = tmp_path / "heavy.png"
    heavy.write_bytes(b"\x89PNG" + bytes(MAX_BYTES))
    with pytest.raises(VarsmoothError, match="MB"):
        open_upload(heavy, 32)
    Image.new("1", (6000, 6000)).save(tmp_path / "huge.png")
    assert (tmp_path / "huge.png").stat().st_size < 10_000
    with pytest.raises(VarsmoothError, match="million pixels"):
        open_upload(tmp_path / "huge.png", 32)


@pytest.mark.parametrize("form", ["PNG", "JPEG"])
def test_damaged_uploads_get_a_sentence(tmp_path: Path, form: str) -> None:
    whole = bytearray(write_image(tmp_path / "image", form=form).read_bytes())
    dice, path, refused = random.Random(0), tmp_path / "damaged.png", 0
    for _ in range(300):
        damaged = whole[: dice.randrange(len(whole))] if dice.random() < 0.3 else bytearray(whole)
        for _ in range(dice.randint(1, 8)):
            if damaged:
                damaged[dice.randrange(min(len(damaged), 150))] = dice.randrange(256)
        path.write_bytes(damaged)
        try:
            open_upload(path, 32)
        except VarsmoothError:
            refused += 1
    assert refused > 100


# The desk and the handlers


def test_the_desk_shows_every_part(desk: Desk, model: Model) -> None:
    view, levels, votes = desk.look("me", model.name, desk.sample(0), few(model), 0)
    assert "vs-sigma" in view
    assert "label: airplane" in view
    assert levels.count("<img") == votes.count("<img") == 1
    shares: list[float] = []
    certified = desk.certify("me", model.name, desk.sample(0), few(model), shares.append)
    assert certified.count("<mark>sound") == 2
    assert certified.count("<mark>heuristic") == 1
    assert shares == sorted(shares)
    assert 0 < shares[-1] <= 1
    attacked = desk.attack("me", model.name, desk.sample(0), few(model), 1, "strong")
    assert attacked.count("<tr>") == 5
    assert attacked.count("<img") == 3


def test_the_desk_serves_a_classifier_alone(desk: Desk, tmp_path: Path) -> None:
    options = {"widths": [4, 4, 4, 4]}
    about = Description("cifar10", CLASS_NAMES, 0.25, classifier=Part("conv4", options))
    torch.manual_seed(0)
    save(tmp_path / "f", about, build("conv4", options))
    alone = Desk(str(tmp_path / "f"))
    knobs = few(alone.model(alone.first_model))
    _, levels, _ = alone.look("me", alone.first_model, alone.sample(0), knobs, 0)
    assert "no selector" in levels
    certified = alone.certify("me", alone.first_model, alone.sample(0), knobs)
    assert "heuristic" not in certified
    assert "g<small>" in alone.attack("me", alone.first_model, alone.sample(0), knobs, 1, "weak")


def test_the_desk_offers_no_other_folder(desk: Desk, tmp_path: Path) -> None:
    with pytest.raises(VarsmoothError, match="not offered"):
        desk.model(str(write_pair(tmp_path / "other")))


def test_names_are_text_not_markup(tmp_path: Path) -> None:
    folder = write_pair(tmp_path / "pair")
    config = folder / "config.json"
    config.write_text(config.read_text().replace("airplane", "<script>x</script>"))
    desk = Desk(str(folder), data=str(write_image(tmp_path / "one.png", (32, 32))))
    knobs = few(desk.model(desk.first_model), budget=0.1)
    shown = "".join(desk.look("me", desk.first_model, desk.sample(0), knobs, 0))
    shown += desk.certify("me", desk.first_model, desk.sample(0), knobs)
    assert "<script>" not in shown


def test_handlers_answer_in_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(gr, "Warning", lambda text, **_: said.append(text))
    monkeypatch.setattr(gr, "Info", lambda text, **_: said.append(text))

    def failing(error: Exception) -> Callable[[], Any]:
        def handler() -> None:
            raise error

        return page.in_sentences(handler)

    for error in (VarsmoothError("lam must lie in [0, 1]"), Cancelled("x"), RuntimeError("boom")):
        assert failing(error)() == gr.skip()
    assert said[:2] == ["Lam must lie in [0, 1].", "Cancelled."]
    assert "boom" not in said[2]


def test_the_page_is_built_for_both_kinds_of_model(desk: Desk) -> None:
    built = in_a_loop(lambda: page.build_page(desk))
    names = {block.elem_id for block in built.blocks.values() if getattr(block, "elem_id", None)}
    assert {"vs-model", "vs-lam", "vs-certify", "vs-attack", "vs-upload", "vs-folder"} <= names
    assert len(panel.updates(desk.model(desk.first_model))) == 8
    even = panel.knobs_of(0.25, 0.2, 0.25, 0.25, 0.1, 0.5, 100.0, 100.0, 0.1)
    assert even.n_select == 101


# Run folders


@pytest.mark.parametrize("verb", ["certify", "predict", "attack"])
def test_a_run_is_browsed(verb: str, pair: Path, tmp_path: Path) -> None:
    options = {
        "certify": QUICK,
        "predict": "--n 60 --alpha 0.05 --alpha-select 0.01 --n-median 21",
        "attack": "--eps 0.25,0.5 --n 60 --steps 1 --samples 2 --n-median 21",
    }[verb]
    common = f"--model {pair} --subset :4 --seed 0"
    assert run(f"{verb} {options} {common} --out {tmp_path / 'run'}") == 0
    opened = Desk(str(pair)).open_run(str(tmp_path / "run"))
    assert opened.curve_html().count("<img") == 1
    lines = opened.table()
    assert len(lines) == (8 if verb == "attack" else 4)
    assert all(len(line) == len(opened.columns) for line in lines)
    kinds = opened.kinds()
    assert kinds[0] == EVERYTHING
    assert sum(len(opened.table(kind)) for kind in kinds[1:]) == len(lines)
    for line in lines:
        shown = opened.evidence_html(opened.find(line))
        assert "vs-pixels" in shown
        assert "vs-chart" in shown


def test_a_run_whose_images_are_gone_still_shows_its_evidence(pair: Path, tmp_path: Path) -> None:
    photo = write_image(tmp_path / "photo.png", (32, 32))
    folder = tmp_path / "photos" / "cat"
    folder.mkdir(parents=True)
    photo.rename(folder / "photo.png")
    data = folder.parent
    assert run(f"certify {QUICK} --model {pair} --data {data} --out {tmp_path / 'run'}") == 0
    (folder / "photo.png").unlink()
    opened = OpenRun.open(tmp_path / "run")
    shown = opened.evidence_html(opened.rows[0])
    assert "cannot be shown" in shown
    assert "vs-radius" in shown


def test_what_is_no_run_gets_a_sentence(desk: Desk, tmp_path: Path) -> None:
    for folder in ("", "  "):
        with pytest.raises(VarsmoothError, match="name the folder"):
            desk.open_run(folder)
    with pytest.raises(VarsmoothError, match="is no run"):
        desk.open_run(str(tmp_path))
    closed = Desk(desk.first_model, any_run=False)
    with pytest.raises(VarsmoothError, match="only the run"):
        closed.open_run(str(tmp_path))


# The server


def test_only_this_machine_is_answered_and_nothing_else_is_loaded(desk: Desk) -> None:
    from starlette.testclient import TestClient

    app = in_a_loop(lambda: application(desk, "127.0.0.1"))
    client = TestClient(app, base_url="http://127.0.0.1")
    answer = client.get("/")
    assert answer.status_code == 200
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    assert '"analytics_enabled":false' in answer.text.replace(" ", "")
    assert client.get("/", headers={"host": "elsewhere.example"}).status_code == 400


def test_addresses() -> None:
    assert is_local("127.0.0.1")
    assert is_local("localhost")
    assert is_local("::1")
    assert not is_local("0.0.0.0")
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(VarsmoothError, match=f"port {port}.*--port"):
            listen("127.0.0.1", port)
    with pytest.raises(VarsmoothError, match="65535"):
        listen("127.0.0.1", 99999)


def test_without_the_extra_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "gradio", None)
    assert main(["app"]) == 1
    assert "pip install 'varsmooth[app]'" in capsys.readouterr().err
    with pytest.raises(VarsmoothError):
        require_gradio()
