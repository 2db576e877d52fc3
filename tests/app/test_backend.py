"""The page without HTTP: what is computed, what is refused, what a person reads."""

import io
import json
import multiprocessing
import random
import re
import shutil
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.app.conftest import body, picture, write_classifier, write_image
from tests.small_models import QUICK, run, write_pair
from tests.terminal import Terminal, write_photos
from varsmooth.api import predict
from varsmooth.app import drawings, uploads, views, work
from varsmooth.app.backend import Backend
from varsmooth.app.options import PageOptions, Smoothers
from varsmooth.app.uploads import MAX_BYTES, decode, open_picture, open_upload
from varsmooth.app.views import EVERYTHING, LINES, OpenRun, open_run
from varsmooth.app.worker import Cancelled, Job, Worker
from varsmooth.data import ImageDataset, load_dataset
from varsmooth.data.cifar10 import CLASS_NAMES
from varsmooth.defaults import ALPHA_SELECT
from varsmooth.errors import VarsmoothError
from varsmooth.evaluation.headers import header_file
from varsmooth.methods.cascade import stage_radii
from varsmooth.models.checkpoints import load_checkpoint, save
from varsmooth.models.descriptions import describe
from varsmooth.models.options import TunedStages
from varsmooth.rounding import rounded


@pytest.fixture(scope="module")
def model(pair: Path) -> Smoothers:
    return Smoothers.load(str(pair))


@pytest.fixture
def image() -> ImageDataset:
    return load_dataset("cifar10-sample")[3:4]


def few(model: Smoothers, **changes: Any) -> PageOptions:
    changes = {"n": 100, "n_select": 51, "steps": 2, **changes}
    return replace(PageOptions.recommended(model.about), **changes)


# PageOptions


def test_options_start_at_the_recommended_values(model: Smoothers) -> None:
    options = PageOptions.recommended(model.about)
    assert (options.lam, options.low, options.high, options.sigma_m) == (0.2, 0.1, 0.5, 0.25)
    assert set(model.each(options)) == {"g", "g_v", "g_v*", "cascade"}
    assert len(model.levels(options)) == 4


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"n": 10**6}, "N must"),
        ({"n_select": 10**6 + 1}, "N_h"),
        ({"budget": 100.0}, "budget"),
        ({"lam": 1.5}, "λ"),
        ({"lam": float("nan")}, "λ"),
        ({"n": float("inf")}, "number"),
        ({"sigma": 0.0}, "σ must"),
        ({"steps": 51}, "steps"),
        ({"low": 0.5, "high": 0.1}, "smallest σ must lie below"),
        ({"lam": "much"}, "number"),
        ({"lam": None}, "number"),
    ],
)
def test_work_is_bounded(backend: Backend, changes: dict[str, Any], word: str) -> None:
    with pytest.raises(VarsmoothError, match=word):
        backend.look(body(backend, **changes), Job())


def test_a_typed_number_of_draws_becomes_odd(backend: Backend) -> None:
    about = backend.about(backend.first_model)
    assert PageOptions.read(body(backend, n_select=100)["options"], about).n_select == 101


def test_missing_options_take_the_recommended_values(backend: Backend) -> None:
    about = backend.about(backend.first_model)
    assert PageOptions.read({"lam": 0.7}, about) == replace(PageOptions.recommended(about), lam=0.7)


# One image


def test_the_view_is_the_prediction(model: Smoothers, image: ImageDataset) -> None:
    """What is drawn of h are the very draws behind the level that `predict` chose."""
    options = few(model)
    view = work.look(model, image, options, seed=5)
    x, _, ids = image.batch([0])
    (answer,) = predict(model.deployed(options), x, n=100, seed=5, ids=ids)
    assert view.result == answer
    draws, sigma = work.draws_of_selector(model, image, options, seed=5)
    assert len(draws.samples) == 51
    low, high = draws.median_range(options.budget, ALPHA_SELECT)
    assert low <= draws.median <= high
    settled = replace(draws, levels=model.levels(options)).median_level
    assert settled == sigma == answer.sigma


def test_lambda_moves_the_median(model: Smoothers, image: ImageDataset) -> None:
    low, high = (
        work.draws_of_selector(model, image, few(model, lam=lam), seed=0)[0].median
        for lam in (0.0, 1.0)
    )
    assert low != high


def test_a_larger_budget_moves_the_median_further(model: Smoothers, image: ImageDataset) -> None:
    spans = []
    for budget in (0.0, 0.05, 0.5):
        draws, _ = work.draws_of_selector(model, image, few(model, budget=budget), seed=0)
        spans.append(draws.median_range(budget, ALPHA_SELECT))
    assert spans[0][0] >= spans[1][0] >= spans[2][0] == 0
    assert spans[0][1] <= spans[1][1] <= spans[2][1] == float("inf")


def test_the_curve_holds_every_level_in_play(model: Smoothers, image: ImageDataset) -> None:
    options = few(model)
    levels = work.curve_levels(model, options)
    assert set(model.levels(options)) | {options.sigma} <= set(levels)
    assert list(levels) == sorted(levels)
    curve = work.certify_levels(model, image, levels, 100, seed=1)
    fixed = work.certify_each_way(model, image, options, seed=1)["g"]
    assert curve[levels.index(options.sigma)] == fixed
    assert [c.method for c in curve] == ["fixed"] * len(levels)


def test_each_certificate_says_what_it_means(model: Smoothers, image: ImageDataset) -> None:
    certificates = work.certify_each_way(model, image, few(model), seed=1)
    words = {way: certificate.guarantee for way, certificate in certificates.items()}
    assert words == dict.fromkeys(("g", "g_v*", "cascade"), "sound") | {"paper": "heuristic"}
    levels, distances, radii = drawings.construction(certificates["g_v*"])
    safe = [max(d, radii.get(s, -np.inf)) for s, d in zip(levels, distances, strict=True)]
    assert max(0.0, min(safe)) == certificates["g_v*"].radius


def test_the_stages_of_a_cascade_are_rows(model: Smoothers, image: ImageDataset) -> None:
    """R is the least of H at the stage that answers and X at the stages before it."""
    certificate = work.certify_each_way(model, image, few(model), seed=1)["cascade"]
    assert certificate.stages is not None
    radii = stage_radii(certificate.evidence)
    assert certificate.radius == max(0.0, min(radii))
    shown = views.parts.construction(certificate)
    assert shown.count("<tr>") == 1 + len(certificate.stages) + 1
    assert f'<td colspan="4">{rounded(certificate.radius)}</td>' in shown
    assert shown.count("▸ σ") == 1


def test_a_tuned_cascade_moves_with_lambda(pair: Path, tmp_path: Path, open_backend: Any) -> None:
    """Without a selector the tuned stages are in use, and λ chooses among them."""
    about = describe(pair)
    family = (TunedStages(0.0, (0.2, 0.1), (0.5, 0.5)), TunedStages(0.5, (0.5, 0.2), (0.6, 0.5)))
    checkpoint = load_checkpoint(pair)
    alone = replace(about, selector=None, cascades=family)
    save(tmp_path / "f", alone, checkpoint.classifier)
    model = Smoothers.load(str(tmp_path / "f"))
    assert model.in_use == "cascade"
    low, high = (model.levels(few(model, lam_cascade=lam)) for lam in (0.1, 0.9))
    assert low == pytest.approx((0.1, 0.2))
    assert high == pytest.approx((0.2, 0.5))
    backend = open_backend(tmp_path / "f")
    shown = backend.look(body(backend, advanced=True), Job())
    assert "the stage that decides" in shown["answer"]
    assert "<figure" in backend.curve(body(backend), Job())["curve"]
    assert backend.page(backend.first_model).count('type="range" step="0.01"') == 2  # λ, both views


def test_an_attack_stays_within_its_budget(model: Smoothers, image: ImageDataset) -> None:
    attacked = work.attack(model, image, few(model, budget=0.5), seed=0)
    assert attacked.distance <= 0.5 + 1e-6
    assert set(attacked.before) == set(attacked.after) == {"f", "g", "g_v", "g_v*", "cascade"}
    assert attacked.target == 0  # its label: an airplane


def test_without_a_label_the_attack_leaves_the_majority(
    model: Smoothers, image: ImageDataset
) -> None:
    options = few(model, steps=1)
    x, _, ids = image.batch([0])
    (clean,) = predict(model.deployed(options), x, n=100, alpha=None, seed=0, ids=ids)
    attacked = work.attack(model, replace(image, labels=None), options, kind="weak", seed=0)
    assert attacked.target == clean.prediction


def test_estimates_of_the_work_are_not_too_small(model: Smoothers, image: ImageDataset) -> None:
    """Progress never passes its end; if it did, the work would not be bounded as we think."""
    options = few(model)
    networks = model.checkpoint.classifier, model.checkpoint.selector
    images = load_dataset("cifar10-sample")[3:5]
    many = 2 * work.most_to_certify(model, options)
    for most, do in (
        (
            work.most_to_certify(model, options),
            lambda: work.certify_each_way(model, image, options, seed=0),
        ),
        (
            work.most_to_attack(model, options, "strong"),
            lambda: work.attack(model, image, options, seed=0),
        ),
        (many, lambda: work.certify_as("g_v*", model, images, options, seed=0)),
    ):
        job = Job()
        with job.watching(most, *networks):
            do()
        assert 0 < job.images <= most


# The worker


def test_cancel_stops_the_work_and_leaves_the_networks_alone(
    model: Smoothers, image: ImageDataset
) -> None:
    classifier = model.checkpoint.classifier
    assert classifier is not None
    job = Job()
    hook = classifier.register_forward_hook(lambda *_: setattr(job, "cancelled", True))
    with pytest.raises(Cancelled), job.watching(0, classifier):
        work.certify_each_way(model, image, few(model))
    hook.remove()
    assert 0 < job.images <= 128  # one batch was under way
    assert not classifier._forward_pre_hooks


def test_one_job_at_a_time() -> None:
    worker, order = Worker(), list[str]()
    go = threading.Event()
    worker.submit(lambda job: go.wait(10))
    _, unwanted = worker.submit(lambda job: order.append("cancelled while it waited"))
    _, second = worker.submit(lambda job: order.append("second"))
    assert not order
    assert unwanted.cancel()
    go.set()
    second.result(10)
    assert order == ["second"]
    worker.close()


# Uploads


@pytest.mark.parametrize("form", ["PNG", "JPEG"])
def test_an_upload_is_cropped_and_scaled_and_the_user_reads_so(form: str) -> None:
    image, note = open_upload(picture(form=form), "my photo", (3, 32, 32))
    assert image.images.shape == (1, 32, 32, 3)
    assert image.labels is None
    for word in ("my photo", "48 × 40", "central square", "32 × 32"):
        assert word in note


def test_an_upload_of_the_right_size_is_left_alone() -> None:
    content = picture((32, 32))
    image, note = open_upload(content, "small.png", (3, 32, 32))
    assert (image.images[0] == np.asarray(Image.open(io.BytesIO(content)))).all()
    assert note.endswith("unchanged.")
    assert open_upload(content, "small.png", (1, 32, 32))[0].images.shape == (1, 32, 32, 1)


@pytest.mark.parametrize("form", ["GIF", "BMP", "WEBP", "TIFF", "PPM", "EPS"])
def test_other_formats_are_refused_whatever_they_are_called(form: str) -> None:
    with pytest.raises(VarsmoothError, match="none of PNG, JPEG"):
        open_upload(picture(form=form), "claims-to-be.png", (3, 32, 32))


def test_large_files_and_large_pictures_are_refused() -> None:
    with pytest.raises(VarsmoothError, match="MB"):
        open_upload(b"\x89PNG" + bytes(MAX_BYTES), "heavy.png", (3, 32, 32))
    out = io.BytesIO()
    Image.new("1", (6000, 6000)).save(out, "PNG")
    assert len(out.getvalue()) < 10_000
    with pytest.raises(VarsmoothError, match="million pixels"):
        open_upload(out.getvalue(), "huge.png", (3, 32, 32))


@pytest.mark.parametrize("form", ["PNG", "JPEG"])
def test_damaged_uploads_get_a_sentence(form: str) -> None:
    whole = bytearray(picture(form=form))
    dice, refused = random.Random(0), 0
    for _ in range(300):
        damaged = whole[: dice.randrange(len(whole))] if dice.random() < 0.3 else bytearray(whole)
        for _ in range(dice.randint(1, 8)):
            if damaged:
                damaged[dice.randrange(min(len(damaged), 150))] = dice.randrange(256)
        try:
            decode(bytes(damaged), "damaged.png", (3, 32, 32))
        except VarsmoothError:
            refused += 1
    assert refused > 100


def progressive_bomb(scans: int) -> bytes:
    """A small JPEG of 20 million pixels whose last scan is repeated."""
    out = io.BytesIO()
    Image.new("L", (5000, 3990), 128).save(out, "JPEG", progressive=True)
    content = out.getvalue()
    last, end = content.rindex(b"\xff\xda"), content.rindex(b"\xff\xd9")
    return content[:last] + scans * content[last:end] + content[end:]


def test_a_picture_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "DECODING", 1.0)
    bomb, began = progressive_bomb(3000), time.monotonic()
    assert len(bomb) < 300_000
    with pytest.raises(VarsmoothError, match="takes more than 1 seconds to decode"):
        open_upload(bomb, "bomb.jpg", (3, 32, 32))
    assert time.monotonic() - began < 8
    assert not multiprocessing.active_children()


def test_a_picture_that_comes_back_is_a_small_png() -> None:
    """It is decoded where all pictures wait, so that it must be quick."""
    assert open_picture(picture((32, 32)), (3, 32, 32)).images.shape == (1, 32, 32, 3)
    with pytest.raises(VarsmoothError, match="none of PNG"):
        open_picture(progressive_bomb(1), (3, 32, 32))
    with pytest.raises(VarsmoothError, match="pixels"):
        open_picture(picture((33, 32)), (3, 32, 32))


# What a person reads


def test_the_desk_shows_every_part(backend: Backend) -> None:
    shown = backend.look(body(backend, advanced=True, paper=True), Job())
    assert 'id="sigma"' in shown["answer"]
    assert 'class="chosen"' in shown["grid"]
    assert shown["draws"].count("<img") == shown["votes"].count("<img") == 1
    assert backend.look(body(backend), Job()).keys() == {"answer", "grid"}
    curve = backend.curve(body(backend), Job())["curve"]
    assert curve.count("<img") == 1
    assert "Large dots" in curve
    assert "Orange" in curve
    assert "one level" not in curve
    certified = backend.certify(body(backend), Job())["certified"]
    assert certified.count("<mark>sound") == 3
    assert certified.count("<mark>heuristic") == 1
    attacked = backend.attack(body(backend), Job())["attacked"]
    assert attacked.count("<tr>") == 6
    assert attacked.count("<img") == 3


def test_the_level_in_use_and_what_h_says_agree(backend: Backend, model: Smoothers) -> None:
    """The grid is in sight, and σ is one of its levels."""
    shown = backend.look(body(backend), Job())
    view = work.look(model, backend.samples(backend.first_model)[:1], few(model), 0)
    assert "h’s median, on the grid" in shown["answer"]
    assert shown["grid"].count("<li") == 4
    assert f'<li class="chosen">{view.result.sigma:.3f}</li>' in shown["grid"]


def test_several_images_stand_side_by_side(backend: Backend) -> None:
    before = backend.certificates.cache_info().misses
    shown = backend.several(body(backend), Job())["several"]
    assert shown.count("<article") == 12
    for way in ("paper’s h", "cascade", "one σ"):
        assert shown.count(f"{way}</th>") == 12
    other = backend.several(body(backend, lam=1.0), Job())["several"]
    assert other != shown
    assert backend.certificates.cache_info().misses == before + 4  # λ moves the selector alone


def test_averages_count_a_wrong_class_as_zero(model: Smoothers) -> None:
    images = load_dataset("cifar10-sample")[:4]
    certificates = work.certify_as("g", model, images, few(model), seed=0)
    radii = [c.radius for c in certificates]
    assert sum(radii) > 0
    assert views.true_radii(certificates, None).tolist() == radii
    assert views.true_radii(certificates, certificates.prediction.numpy()).tolist() == radii
    assert views.true_radii(certificates, certificates.prediction.numpy() + 1).tolist() == [0] * 4
    pixels, ways = images.batch(slice(None)).images, {"g": certificates}
    shown = views.several.several(pixels, None, ways, {"g": np.array(radii)}, CLASS_NAMES)
    assert f">{rounded(sum(radii) / 4)}</strong>" in shown


def test_a_classifier_alone_is_served(tmp_path: Path, open_backend: Any) -> None:
    alone = open_backend(write_classifier(tmp_path / "f"))
    shown = alone.look(body(alone, advanced=True, paper=True), Job())
    assert "draws" not in shown
    assert "selector h" not in alone.page(alone.first_model)
    assert "the same for every image" in shown["answer"]
    curve = alone.curve(body(alone), Job())["curve"]
    assert ("Orange" in curve, "Large dots" in curve) == (True, False)  # as the chart is drawn
    assert "one level for all images" in curve
    assert "heuristic" not in alone.certify(body(alone), Job())["certified"]
    assert "<small>one fixed σ" in alone.attack(body(alone, kind="weak"), Job())["attacked"]
    assert "paper’s h</th>" not in alone.several(body(alone), Job())["several"]


def test_the_page_offers_no_other_folder(backend: Backend, tmp_path: Path) -> None:
    other = str(write_pair(tmp_path / "other"))
    with pytest.raises(VarsmoothError, match="this app does not offer"):
        backend.look(body(backend) | {"model": other}, Job())


def test_a_model_of_another_data_set_shows_its_images(tmp_path: Path, open_backend: Any) -> None:
    photos = write_photos(tmp_path / "photos", 1, (32, 32), {"cat": 0, "dog": 0})
    model = write_classifier(tmp_path / "f", str(photos), ("cat", "dog"))
    backend = open_backend(model)
    assert backend.samples(backend.first_model).class_names == ("cat", "dog")
    assert len(backend.samples("cifar10-0.25")) == 20  # the other models keep theirs
    with pytest.raises(VarsmoothError, match="classes"):
        open_backend(model, data="cifar10-sample")


def test_the_first_view_shows_a_radius(open_backend: Any) -> None:
    """Not the first sample, of which this model is unsure, but the first that it is sure of."""
    backend = open_backend()
    first = backend.first_sample(backend.first_model)
    page = backend.page(backend.first_model)
    assert re.findall(r'data-sample="(\d+)"[^>]*aria-pressed="true"', page) == [str(first)]
    radii = {}
    for sample in (0, first):
        request = body(backend, image={"sample": sample}, n=1000, n_select=1001)
        q = backend.read_request(request)
        radii[sample] = backend._preview(q.model.in_use, q).radius
    assert radii[first] > 0.1
    assert first == 0 or radii[0] < 0.5 * radii[first]


def test_images_that_the_model_cannot_read_are_refused_at_once(pair: Path, tmp_path: Path) -> None:
    Image.new("L", (32, 32)).save(tmp_path / "grey.png")
    with pytest.raises(VarsmoothError, match="on colour images, but those of grey"):
        Backend(str(pair), data=str(tmp_path / "grey.png"))


# Html


EVIL = "<img src=x onerror=alert(1)>$\\frac{$"


def test_everything_but_markup_is_escaped() -> None:
    assert "<img" not in views.parts.note(EVIL)
    assert views.subscripts(f"g_v*: {EVIL}").startswith("g<sub>v</sub>*: &lt;img")
    shown = views.parts.number(EVIL, EVIL, EVIL, '"><script>', EVIL)
    assert "<img" not in shown
    assert "<script>" not in shown


def test_names_of_a_model_are_text(tmp_path: Path, open_backend: Any) -> None:
    folder = write_pair(tmp_path / "pair")
    config = folder / "config.json"
    config.write_text(config.read_text().replace('"airplane"', '"<script>$x^{$"'))
    backend = open_backend(folder, data=str(write_image(tmp_path / "one.png", (32, 32))))
    request = body(backend, advanced=True)
    for answer in (backend.look, backend.certify, backend.attack, backend.several):
        assert "<script>" not in str(answer(request, Job()))


# Run folders


@pytest.fixture(scope="module")
def certified(pair: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    assert run(f"certify {QUICK} --model {pair} --subset :4 --seed 0 --out {folder}") == 0
    return folder


@pytest.mark.parametrize("verb", ["certify", "predict", "attack"])
def test_a_run_is_browsed(verb: str, backend: Backend, pair: Path, tmp_path: Path) -> None:
    options = {
        "certify": QUICK,
        "predict": "--n 60 --alpha 0.05 --alpha-select 0.01 --n-median 21",
        "attack": "--eps 0.25,0.5 --n 60 --steps 1 --samples 2 --n-median 21",
    }[verb]
    common = f"--model {pair} --subset :4 --seed 0"
    folder = str(tmp_path / "run")
    assert run(f"{verb} {options} {common} --out {folder}") == 0
    shown = backend.browse({"folder": folder, "all": True}, Job())
    assert shown["runcurve"].count("<img") == 1
    rows = 8 if verb == "attack" else 4
    assert shown["table"].count("data-row") == rows
    kinds = open_run(folder).kinds()
    assert kinds[0] == EVERYTHING
    tables = [backend.browse({"folder": folder, "kind": kind}, Job()) for kind in kinds[1:]]
    assert sum(table["table"].count("data-row") for table in tables) == rows
    for number in range(rows):
        evidence = backend.evidence({"folder": folder, "row": number}, Job())["evidence"]
        assert 'class="pixels"' in evidence
        charts = {
            "certify": ("entry distance", "Votes at σ", "Output of the selector h"),
            "predict": ("Votes of f on N noisy copies",),
            "attack": ("Votes before the attack", "Votes under attack"),
        }[verb]
        assert evidence.count('class="chart"') == len(charts)
        assert all(chart in evidence for chart in charts)


def test_texts_of_a_run_are_text(certified: Path, tmp_path: Path, backend: Backend) -> None:
    """Class names, the data set's name and the verbs of an untrusted run folder."""
    folder = Path(shutil.copytree(certified, tmp_path / "evil"))
    header = folder / "run.json"
    evil = EVIL.replace("\\", "\\\\")
    text = header.read_text()
    for name in (*CLASS_NAMES, "cifar10-sample"):
        text = text.replace(f'"{name}"', f'"{evil}{name}"')
    header.write_bytes(header_file(json.loads(text)))
    request: dict[str, Any] = {"folder": str(folder), "all": True}
    shown = str(backend.browse(request, Job()))
    shown += str(backend.evidence({"folder": str(folder), "row": 0}, Job()))
    assert "&lt;img src=x" in shown
    assert "<img src=x" not in shown


def test_long_tables_come_in_parts(certified: Path) -> None:
    opened = open_run(certified)
    rows = list(opened.outcomes.rows) * 60
    long = OpenRun(opened.run, replace(opened.outcomes, rows=rows))
    assert long.table_html().count("data-row") == LINES
    last = long.table_html(start=10**6)
    assert last.count("data-row") == 240 - 2 * LINES
    assert "201–240 of 240" in last


def test_a_run_that_grows_is_read_again(certified: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(certified, tmp_path / "run"))
    (rows,) = folder.glob("rows-*.jsonl")
    lines = rows.read_bytes().splitlines(keepends=True)
    rows.write_bytes(b"".join(lines[:2]))
    assert len(open_run(folder).outcomes) == 2
    rows.write_bytes(b"".join(lines))
    assert len(open_run(folder).outcomes) == 4
    assert open_run(folder) is open_run(folder)


def test_a_run_whose_images_are_gone_still_shows_its_evidence(pair: Path, tmp_path: Path) -> None:
    data = write_photos(tmp_path / "photos", 1, (32, 32), {"cat": 0})
    assert run(f"certify {QUICK} --model {pair} --data {data} --out {tmp_path / 'run'}") == 0
    shutil.rmtree(data / "cat")
    shown = open_run(tmp_path / "run").evidence_html(0)
    assert "cannot be shown" in shown
    assert 'class="radius"' in shown


def test_what_is_not_a_run_gets_a_sentence(
    backend: Backend, pair: Path, tmp_path: Path, open_backend: Any
) -> None:
    for folder in ("", "  "):
        with pytest.raises(VarsmoothError, match="name the folder"):
            backend.browse({"folder": folder}, Job())
    with pytest.raises(VarsmoothError, match="run"):
        backend.browse({"folder": str(tmp_path)}, Job())
    closed = open_backend(backend.first_model, any_run=False)
    with pytest.raises(VarsmoothError, match="only the run"):
        closed.browse({"folder": str(tmp_path)}, Job())
    with pytest.raises(VarsmoothError, match="run"):
        Backend(str(pair), run=tmp_path)  # raised when the page starts, not when the tab is opened
    (tmp_path / "run.json").symlink_to("/dev/zero")
    with pytest.raises(VarsmoothError, match="regular file"):
        backend.browse({"folder": str(tmp_path)}, Job())


def test_without_the_extra_one_sentence(monkeypatch: pytest.MonkeyPatch, cli: Terminal) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    cli.refuses("app", "pip install matplotlib starlette uvicorn")
