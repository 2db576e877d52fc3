"""The page in a real Chromium, as a person uses it: `make browser`."""

import re
import shutil
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.app.test_page import write_image
from tests.small_models import QUICK, run, write_pair
from varsmooth.data.cifar10 import CLASS_NAMES
from varsmooth.models.checkpoints import save
from varsmooth.models.descriptions import Description, Part, describe, released_names
from varsmooth.models.networks import build

sync_api: Any = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run "
    "--disable-background-networking --disable-component-update --disable-sync"
)
PATIENCE = 120_000  # milliseconds; the machine may be busy with other things

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="needs chromium"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model and a run of it."""
    folder = tmp_path_factory.mktemp("browser")
    write_pair(folder / "pair")
    command = f"certify {QUICK} --model {folder / 'pair'} --subset :6 --out {folder / 'run'}"
    assert run(command) == 0
    return folder


@contextmanager
def served(*options: str | Path) -> Iterator[str]:
    """The address of a page that is being served, by the command that users type."""
    command = [sys.executable, "-m", "varsmooth", "app", "--port", "0", *map(str, options)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        found = re.search(r"http://\S+", server.stdout.readline())
        try:
            assert found
            yield found.group()
        finally:
            server.terminate()


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    with served("--model", folder / "pair", "--run", folder / "run") as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS.split())
        yield started
        started.close()


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    """The page after its first picture; whatever it asked for was on this machine."""
    tab = browser.new_page(viewport={"width": 1360, "height": 1000})
    tab.set_default_timeout(PATIENCE)
    asked: list[str] = []
    complaints: list[str] = []
    tab.on("request", lambda request: asked.append(request.url))
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.goto(address)
    tab.wait_for_selector("#vs-sigma")
    yield tab
    tab.close()
    hosts = {urllib.parse.urlsplit(url).hostname for url in asked if url.startswith("http")}
    assert hosts == {"127.0.0.1"}
    assert not complaints


def shown(page: Any, selector: str) -> str:
    return str(page.locator(selector).first.inner_text())


def turn(page: Any, knob: str, value: float) -> None:
    """Type into the number beside a slider."""
    number = page.locator(f"#{knob} input[type=number]")
    number.fill(str(value))
    number.blur()


def wait_for_change(page: Any, selector: str, before: str) -> None:
    page.wait_for_function(
        "([selector, before]) => document.querySelector(selector)?.innerText !== before",
        arg=[selector, before],
    )


def test_it_loads_and_predicts(page: Any) -> None:
    assert page.title() == "varsmooth"
    assert 0.1 <= float(shown(page, "#vs-sigma")) <= 0.5
    assert page.locator("#vs-levels img").count() == page.locator("#vs-votes img").count() == 1


def test_lambda_changes_sigma(page: Any) -> None:
    before = shown(page, "#vs-levels figcaption")
    turn(page, "vs-lam", 1)
    wait_for_change(page, "#vs-levels figcaption", before)


def test_the_slider_itself_can_be_dragged(page: Any) -> None:
    before = shown(page, "#vs-levels figcaption")
    slider = page.locator("#vs-lam input[type=range]")
    box = slider.bounding_box()
    page.mouse.move(box["x"] + 0.2 * box["width"], box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.9 * box["width"], box["y"] + box["height"] / 2, steps=5)
    page.mouse.up()
    wait_for_change(page, "#vs-levels figcaption", before)


def test_another_sample_is_picked(page: Any) -> None:
    page.locator("#vs-samples button.thumbnail-item").nth(8).click()
    page.wait_for_function(
        "() => document.querySelector('#vs-view figcaption').innerText !== 'label: airplane'"
    )


def test_an_upload_is_shown_and_told(page: Any, tmp_path: Path) -> None:
    photo = write_image(tmp_path / "my photo.jpg", (90, 60), "JPEG")
    page.locator("input[type=file]").first.set_input_files(photo)
    page.wait_for_selector("#vs-told .vs-note")
    assert "central square" in shown(page, "#vs-told")
    page.wait_for_function(
        "() => document.querySelector('#vs-view figcaption').innerText === 'the image'"
    )


def test_a_corrupt_upload_gets_a_sentence(page: Any, tmp_path: Path) -> None:
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"\x89PNG\r\n\x1a\n and then nothing that makes sense")
    page.locator("input[type=file]").first.set_input_files(broken)
    page.get_by_text("broken.png cannot be read as an image").wait_for()
    assert shown(page, "#vs-view figcaption") == "label: airplane"  # nothing else changed


def test_certify_shows_radii_and_guarantees(page: Any) -> None:
    page.click("#vs-certify")
    page.wait_for_selector("#vs-certified .vs-radius")
    assert page.locator("#vs-certified mark").all_inner_texts() == ["sound", "sound", "heuristic"]
    assert all(
        re.fullmatch(r"\d\.\d{3}", text)
        for text in page.locator("#vs-certified .vs-radius").all_inner_texts()
    )


CANCEL_AT_ONCE = """() => new Promise(done => {
    document.querySelector('#vs-certify').click();
    const look = setInterval(() => {
        if (!document.querySelector('#vs-certified .progress-text, #vs-certified .eta-bar')) return;
        clearInterval(look);
        document.querySelector('#vs-stop-certify').click();
        done();
    }, 10);
})"""
"""Inside the page: from outside, a slow browser may press Cancel when all is done."""


def test_certify_can_be_cancelled(page: Any) -> None:
    turn(page, "vs-n", 5000)
    page.evaluate(CANCEL_AT_ONCE)
    page.wait_for_function(
        "() => !document.querySelector('#vs-certified .progress-text')",
    )
    assert page.locator("#vs-certified .vs-radius").count() == 0
    before = shown(page, "#vs-levels figcaption")
    turn(page, "vs-n", 100)  # there is room for other work
    turn(page, "vs-lam", 1)
    wait_for_change(page, "#vs-levels figcaption", before)


def test_an_attack_shows_every_classifier(page: Any) -> None:
    page.get_by_role("tab", name="Attack").click()
    turn(page, "vs-steps", 2)
    page.click("#vs-attack")
    page.wait_for_selector("table.vs-answers")
    assert page.locator("table.vs-answers tbody tr").count() == 4
    assert page.locator("#vs-attacked img").count() == 3


def test_an_impossible_knob_gets_a_sentence(page: Any) -> None:
    turn(page, "vs-low", 0.6)
    page.get_by_text("Clipping needs a lower end below the upper end").wait_for()


def test_a_run_is_browsed(page: Any) -> None:
    page.get_by_role("tab", name="A run folder").click()
    page.click("#vs-open")
    page.wait_for_selector("#vs-curve img")
    page.locator("#vs-table [role=gridcell]").first.click()
    page.wait_for_selector("#vs-evidence .vs-radius")
    assert page.locator("#vs-evidence figure").count() >= 3
    page.locator("#vs-kind label").nth(1).click()
    kind = shown(page, "#vs-kind label:nth-of-type(2)").strip()
    page.wait_for_function(
        "(kind) => [...document.querySelectorAll('#vs-table .virtual-row')].every("
        "row => row.innerText.includes(kind))",
        arg=kind,
    )


def test_what_is_no_run_gets_a_sentence(page: Any, tmp_path: Path) -> None:
    page.get_by_role("tab", name="A run folder").click()
    page.fill("#vs-folder textarea, #vs-folder input", str(tmp_path))
    page.click("#vs-open")
    page.get_by_text("is no run").wait_for()


def test_another_model_brings_its_own_knobs(page: Any) -> None:
    name = released_names()[0]
    page.locator("#vs-model input").click()
    page.get_by_role("option", name=name).click()
    wanted = str(describe(name).recommended["lam"])
    page.wait_for_function(
        "(lam) => document.querySelector('#vs-lam input[type=number]').value === lam", arg=wanted
    )


def test_a_model_without_a_selector_hides_its_knobs(browser: Any, tmp_path: Path) -> None:
    options = {"widths": [4, 4, 4, 4]}
    about = Description("cifar10", CLASS_NAMES, 0.25, classifier=Part("conv4", options))
    save(tmp_path / "f", about, build("conv4", options))
    with served("--model", tmp_path / "f") as address:
        page = browser.new_page()
        page.set_default_timeout(PATIENCE)
        page.goto(address)
        page.wait_for_selector("#vs-sigma")
        page.get_by_text("This model has no selector h").first.wait_for()
        assert not page.locator("#vs-lam").is_visible()
        page.click("#vs-certify")
        page.wait_for_selector("#vs-certified .vs-radius")
        assert page.locator("#vs-certified mark").all_inner_texts() == ["sound"]
        page.close()
