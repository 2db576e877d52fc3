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

from tests.app.conftest import write_classifier, write_image
from tests.small_models import QUICK, run, write_pair
from varsmooth.models.descriptions import describe, released_names

sync_api: Any = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run "
    "--disable-background-networking --disable-component-update --disable-sync"
)
TIMEOUT = 120_000  # milliseconds; the machine may be busy with other things
DESKTOP, PHONE = {"width": 1360, "height": 1000}, {"width": 400, "height": 800}
FRESH = ":not(.stale)"

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
        match = re.search(r"http://\S+", server.stdout.readline())
        try:
            assert match
            yield match.group()
        finally:
            server.terminate()


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    with served("--model", folder / "pair") as address:
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS.split())
        yield started
        started.close()


@contextmanager
def visited(browser: Any, address: str, viewport: dict[str, int]) -> Iterator[Any]:
    """A tab that shows the page; it loads from this machine only and violates no CSP rule."""
    tab = browser.new_page(viewport=viewport)
    tab.set_default_timeout(TIMEOUT)
    requested: list[str] = []
    complaints: list[str] = []
    tab.on("request", lambda request: requested.append(request.url))
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.on("console", lambda line: complaints.append(line.text) if line.type == "error" else None)
    tab.goto(address)
    yield tab
    tab.close()
    hosts = {urllib.parse.urlsplit(url).hostname for url in requested if url.startswith("http")}
    assert hosts == {urllib.parse.urlsplit(address).hostname}
    assert not complaints


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    """The page with its first result."""
    with visited(browser, address, DESKTOP) as tab:
        tab.wait_for_selector("#sigma")
        yield tab


@pytest.fixture
def phone(browser: Any, address: str) -> Iterator[Any]:
    with visited(browser, address, PHONE) as tab:
        tab.wait_for_selector("#sigma")
        yield tab


def shown(page: Any, selector: str) -> str:
    return str(page.locator(selector).first.inner_text())


def turn(page: Any, slider: str, value: float) -> None:
    """Type into the number beside a slider."""
    page.locator(f"input[type=number][data-option={slider}]:visible").fill(str(value))


def advanced(page: Any) -> None:
    page.click("#advanced > summary")
    page.wait_for_selector("[data-slot=votes] img")


def of_the_paper(page: Any) -> None:
    page.click("#paper > summary")
    page.wait_for_selector("[data-slot=draws] img")


def fresh(page: Any, slot: str) -> None:
    """Wait until a result belongs to the present settings."""
    page.wait_for_selector(f"[data-slot={slot}]{FRESH} > *")


# First view


def test_it_loads_and_predicts(page: Any) -> None:
    assert page.title() == "varsmooth"
    assert 0.1 <= float(shown(page, "#sigma")) <= 0.5
    assert re.fullmatch(r"\d\.\d{3}", shown(page, "#radius"))
    page.wait_for_selector("[data-slot=curve] img")
    assert page.locator(".grid li").count() == 4
    assert float(shown(page, ".grid .chosen")) == pytest.approx(
        float(shown(page, "#sigma")), abs=1e-3
    )


def test_first_paint_does_not_jump(browser: Any, address: str) -> None:
    """Whatever arrives later finds its place reserved: layout shift as browsers measure it."""
    watch = """
        window.shift = 0;
        new PerformanceObserver(list => {
          for (const entry of list.getEntries()) window.shift += entry.value;
        }).observe({type: 'layout-shift', buffered: true});
    """
    for viewport in (DESKTOP, PHONE):
        tab = browser.new_page(viewport=viewport)
        tab.set_default_timeout(TIMEOUT)
        tab.add_init_script(watch)
        tab.goto(address)
        tab.wait_for_selector("[data-slot=curve] img")
        assert tab.evaluate("() => window.shift") < 0.02
        tab.close()


def test_lambda_changes_sigma(page: Any) -> None:
    of_the_paper(page)
    before = shown(page, "[data-slot=draws] figcaption")
    turn(page, "lam", 1)
    fresh(page, "draws")
    assert shown(page, "[data-slot=draws] figcaption") != before


def test_the_slider_itself_can_be_dragged(page: Any) -> None:
    slider = page.locator("input[type=range][data-option=lam]:visible")
    box = slider.bounding_box()
    page.mouse.move(box["x"] + 0.2 * box["width"], box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.9 * box["width"], box["y"] + box["height"] / 2, steps=5)
    page.mouse.up()
    assert float(page.input_value("input[type=number][data-option=lam]:visible")) > 0.8
    fresh(page, "answer")


def test_another_sample_is_picked(page: Any) -> None:
    page.locator("#samples button").nth(8).click()
    fresh(page, "answer")
    assert shown(page, "#caption") == "label: deer"


def test_every_slider_has_a_tooltip(page: Any) -> None:
    advanced(page)
    of_the_paper(page)
    options, tips = page.locator(".slider:visible"), page.locator(".slider:visible .tip")
    assert options.count() == tips.count() >= 8
    assert all(len(tip.get_attribute("data-tip")) > 20 for tip in tips.all())
    tips.first.focus()
    display = "tip => getComputedStyle(tip, '::after').display"
    assert tips.first.evaluate(display) == "block"
    assert tips.last.evaluate(display) == "none"


def test_an_upload_is_shown_and_explained(page: Any, tmp_path: Path) -> None:
    photo = write_image(tmp_path / "my photo.jpg", (90, 60), "JPEG")
    page.set_input_files("#upload", photo)
    page.wait_for_selector("[data-slot=note] .note")
    assert "my photo.jpg, 90 × 60 pixels: cropped" in shown(page, "[data-slot=note]")
    assert shown(page, "#caption") == "your picture"
    fresh(page, "answer")


def test_a_corrupt_upload_gets_a_sentence(page: Any, tmp_path: Path) -> None:
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"\x89PNG\r\n\x1a\n and then nothing that makes sense")
    page.set_input_files("#upload", broken)
    page.get_by_text("broken.png cannot be read as an image").wait_for()
    assert shown(page, "#caption") == "label: airplane"  # nothing else changed


# Certificates, attacks, and what is stale


def test_certify_shows_radii_and_guarantees(page: Any) -> None:
    page.click("#certify")
    page.wait_for_selector(".card .radius")
    assert page.locator(".card mark").all_inner_texts() == ["sound", "sound", "sound", "heuristic"]
    radii = page.locator(".card .radius").all_inner_texts()
    assert all(re.fullmatch(r"\d\.\d{3}", text) for text in radii)


def changes(page: Any) -> Iterator[tuple[str, Any]]:
    """Everything a person can change about one image, as JavaScript that runs at once."""
    for slider in ("lam", "n", "sigma", "sigma_m", "low", "high", "n_select", "budget", "steps"):
        yield (
            slider,
            f"""() => {{
            const input = document.querySelector('input[type=range][data-option={slider}]');
            input.stepUp(1);
            input.dispatchEvent(new Event('input', {{bubbles: true}}));
        }}""",
        )
    yield "image", "() => document.querySelectorAll('#samples button')[5].click()"
    yield "noise", "() => document.querySelector('#fresh').click()"


LEFT = """() => {
    const stale = name => document.querySelector(`[data-slot=${name}]`).matches('.stale');
    return [document.querySelectorAll('.card').length, stale('answer'), stale('curve')];
}"""


def test_a_certificate_is_gone_as_soon_as_anything_changes(page: Any) -> None:
    for name, change in changes(page):
        fresh(page, "answer")
        page.click("#certify")
        page.wait_for_selector(".card")
        left = page.evaluate(f"() => {{ ({change})(); return ({LEFT})(); }}")
        assert left == [0, True, True], name


def test_changing_an_option_cancels_a_certificate_under_way(page: Any) -> None:
    advanced(page)
    turn(page, "n", 5000)
    fresh(page, "answer")
    page.click("#certify")
    page.wait_for_selector("#certify.busy")
    turn(page, "n", 100)
    page.wait_for_selector("#certify:not(.busy)")
    fresh(page, "answer")
    assert page.locator(".card").count() == 0


def test_certify_can_be_cancelled_where_it_was_started(browser: Any, address: str) -> None:
    """With a released model, whose certificate takes seconds: there is time to cancel it."""
    with visited(browser, f"{address}?model=cifar10-universal-1.00", DESKTOP) as page:
        advanced(page)
        turn(page, "n", 5000)
        fresh(page, "curve")
        page.click("#certify")
        page.get_by_text(re.compile(r"Cancel \(\d+ %\)")).click()
        page.wait_for_selector("#certify:not(.busy)")
        assert shown(page, "#certify") == "Certify with fresh noise"
        assert page.locator(".card").count() == 0
        turn(page, "n", 100)  # the server accepts other work again
        fresh(page, "answer")


def test_an_attack_shows_every_classifier(page: Any) -> None:
    advanced(page)
    turn(page, "steps", 2)
    page.click("#attack")
    page.wait_for_selector("table.replies")
    assert page.locator("table.replies tbody tr").count() == 5
    assert page.locator("[data-slot=attacked] img").count() == 3


def test_an_option_out_of_range_shows_an_error(page: Any) -> None:
    of_the_paper(page)
    turn(page, "low", 0.6)
    page.get_by_text("the smallest σ must lie below the largest").wait_for()
    assert page.locator("[data-slot=answer].stale").count() == 1
    turn(page, "low", 0.1)
    fresh(page, "answer")
    assert not page.locator("#error").is_visible()


# Several images


def test_several_images_stand_side_by_side_and_move_with_lambda(page: Any) -> None:
    page.get_by_role("tab", name="Several images").click()
    page.wait_for_selector(".many .one")
    assert page.locator(".many .one").count() == 12
    assert page.locator(".many tbody th").all_inner_texts()[:3] == [
        "cascade",
        "paper’s h",
        "one σ",
    ]
    columns = {round(one.bounding_box()["x"]) for one in page.locator(".one").all()}
    assert len(columns) >= 4
    before = shown(page, "[data-slot=several]")
    turn(page, "lam", 1)
    assert page.locator("[data-slot=several].stale").count() == 1
    fresh(page, "several")
    assert shown(page, "[data-slot=several]") != before
    page.get_by_role("tab", name="One image").click()  # the same λ
    assert page.input_value("input[type=number][data-option=lam]:visible") == "1"


def test_several_images_show_their_progress(browser: Any, address: str) -> None:
    """With a released model, whose certificates take seconds; and the tuned cascade leads."""
    with visited(browser, f"{address}?model=cifar10-universal-1.00", DESKTOP) as page:
        page.get_by_role("tab", name="Several images").click()
        page.get_by_text(re.compile(r"Certifying these images: [1-9]\d* %")).wait_for()
        page.wait_for_selector(".many .one")
        assert shown(page, "#several-progress") == ""
        page.get_by_role("tab", name="One image").click()
        fresh(page, "curve")
        page.click("#certify")
        page.wait_for_selector(".card")
        assert shown(page, ".card header").startswith("cascade")
        titles = page.locator("h3 + .certified .card header").all_inner_texts()
        assert [title.split(":")[0] for title in titles[:1]] == ["gv*"]


# Phones


def test_on_a_phone_lambda_stays_beside_the_image(phone: Any) -> None:
    fresh(phone, "curve")
    for _ in range(2):
        image, lam = phone.locator("#image"), phone.locator("input[type=range][data-option=lam]")
        left, right = image.bounding_box(), lam.first.bounding_box()
        assert right["x"] >= left["x"] + left["width"]
        assert left["y"] <= right["y"] <= left["y"] + left["height"]
        assert 0 <= right["y"] < 600  # in sight
        phone.evaluate("() => window.scrollBy(0, 600)")


@pytest.mark.parametrize("tab", ["One image", "Several images", "A run"])
def test_on_a_phone_nothing_is_wider_than_the_screen(phone: Any, tab: str) -> None:
    phone.get_by_role("tab", name=tab).click()
    if tab == "One image":
        advanced(phone)
        of_the_paper(phone)
        phone.click("#certify")
        phone.wait_for_selector(".card")
    if tab == "Several images":
        phone.wait_for_selector(".many .one")
    assert phone.evaluate("() => document.documentElement.scrollWidth") <= 400


# Runs


def test_a_run_named_on_the_command_line_is_open(browser: Any, folder: Path) -> None:
    with (
        served("--model", folder / "pair", "--run", folder / "run") as address,
        visited(browser, address, DESKTOP) as page,
    ):
        page.wait_for_selector("[data-slot=runcurve] img")
        assert page.locator("tr[data-row]").count() == 6
        page.locator("tr[data-row]").nth(2).click()
        page.wait_for_selector("[data-slot=evidence] .radius")
        assert page.locator("[data-slot=evidence] figure").count() >= 3
        kind = page.locator("#kind option").nth(1).inner_text()
        page.select_option("#kind", kind)
        page.wait_for_function(
            "(kind) => [...document.querySelectorAll('tr[data-row]')].every("
            "row => row.innerText.includes(kind))",
            arg=kind,
        )


def test_what_is_not_a_run_gets_a_sentence(page: Any, tmp_path: Path) -> None:
    page.get_by_role("tab", name="A run").click()
    page.fill("#folder", str(tmp_path))
    page.click("#open")
    page.locator("#error", has_text=str(tmp_path)).wait_for()


# Other models


def test_another_model_has_its_own_options(page: Any) -> None:
    name = released_names()[0]
    page.select_option("#model", name)
    wanted = f"{describe(name).recommended['lam']:g}"
    page.wait_for_function(
        "(lam) => document.querySelector('input[type=number][data-option=lam]')?.value === lam",
        arg=wanted,
    )
    page.wait_for_selector("#sigma")


def test_a_model_without_a_selector_turns_sigma(browser: Any, tmp_path: Path) -> None:
    write_classifier(tmp_path / "f")
    with (
        served("--model", tmp_path / "f", "--host", "::1") as address,
        visited(browser, address, DESKTOP) as page,
    ):
        page.wait_for_selector("#sigma")
        assert not page.locator("input[type=range][data-option=lam]:visible").count()
        turn(page, "sigma", 0.3)
        fresh(page, "answer")
        assert shown(page, "#sigma") == "0.3000"
        page.click("#certify")
        page.wait_for_selector(".card")
        assert page.locator(".card mark").all_inner_texts() == ["sound", "sound"]


# The report


def test_on_a_phone_a_report_scrolls_figures_and_tables(
    browser: Any, folder: Path, tmp_path: Path
) -> None:
    """They keep a legible size, inside boxes that show a shadow where they go on."""
    assert run(f"report {folder / 'run'} --out {tmp_path}") == 0
    tab = browser.new_page(viewport=PHONE)
    tab.goto((tmp_path / "report.html").as_uri())
    assert tab.evaluate("() => document.documentElement.scrollWidth") <= 400
    boxes = tab.eval_on_selector_all(
        "figure > .scroll",
        "all => all.map(f => [f.getBoundingClientRect().right, f.scrollWidth > f.clientWidth])",
    )
    assert len(boxes) >= 2
    assert all(right <= 400 for right, _ in boxes)
    assert any(scrolls for _, scrolls in boxes)
    assert tab.locator("figure > .scroll > img").first.bounding_box()["width"] >= 500
    tab.locator(".controls select").nth(0).select_option("wrong")
    assert tab.locator(".card:visible").count() == tab.locator(".card.wrong").count()
    tab.close()
