"""The page itself, as the server first sends it: every control in its place, results to come."""

from typing import TYPE_CHECKING

from varsmooth.app.drawings import data_url, thumbnail
from varsmooth.app.fragments import number, sentence
from varsmooth.app.knobs import BUDGET, DRAWS, STEPS, VOTES, Knobs, lam_range, sigma_range
from varsmooth.models.descriptions import Description
from varsmooth.report.markup import Html, element, join

if TYPE_CHECKING:
    from varsmooth.app.desk import Desk

TIPS = {
    "lam": "Low λ favours accuracy; high λ favours large noise levels, which certify further.",
    "sigma": "One noise level for every image: conventional randomized smoothing, to compare with.",
    "n": "Noisy copies of the image that f votes on. More votes certify further and take longer.",
    "sigma_a": "The noise level that h reads as input; for models trained over a range of levels.",
    "sigma_m": "Noise on the image before h sees it. More noise makes h’s median harder to move.",
    "low": "The smallest noise level that an image may get.",
    "high": "The largest noise level that an image may get.",
    "n_select": "Noisy copies behind the median of h. More copies bound it more tightly.",
    "budget": "How far an attacker may move the image (ℓ₂); also D of the paper’s certificate.",
    "steps": "Gradient steps of the attack (PGD).",
}


def page_html(desk: "Desk", model: str) -> str:
    """The whole page for one model."""
    about = desk.about(model)
    views = {
        "one": ("One image", _one_image(desk, model, about)),
        "several": ("Several images", _several(about)),
        "run": ("A run", _run(desk)),
    }
    first = "run" if desk.run is not None else "one"
    tabs = [
        element(
            "button", title, role="tab", data_view=name, aria_selected=str(name == first).lower()
        )
        for name, (title, _) in views.items()
    ]
    sections = [
        element("section", content, id=f"view-{name}", role="tabpanel", hidden=name != first)
        for name, (_, content) in views.items()
    ]
    choices = [element("option", name, value=name, selected=name == model) for name in desk.models]
    body = element(
        "body",
        element(
            "header",
            element("h1", "varsmooth"),
            element("p", "A noise level for each image, and the radius it certifies."),
            element("label", "model ", element("select", *choices, id="model"), class_="model"),
        ),
        element("nav", *tabs, role="tablist"),
        element("p", id="error", role="alert", hidden=True),
        element("main", *sections),
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", "varsmooth"),
        element("link", rel="stylesheet", href="page.css"),
        element("link", rel="icon", href="data:,"),
        element("script", src="page.js", defer=True),
    )
    return "<!doctype html>\n" + element("html", head, body, lang="en")


def _one_image(desk: "Desk", model: str, about: Description) -> Html:
    samples = desk.samples(model)
    names = samples.class_names
    captions = (
        [f"label: {names[label]}" for label in samples.labels]
        if samples.labels is not None
        else [f"image {i + 1}" for i in range(len(samples))]
    )
    thumbs = [
        element(
            "button",
            element("img", src=data_url(thumbnail(pixels)), alt=f"sample {i + 1}"),
            data_sample=i,
            title=label,
            aria_pressed=str(i == 0).lower(),
        )
        for i, (pixels, label) in enumerate(zip(samples.images, captions, strict=True))
    ]
    picker = element(
        "div",
        element("div", *thumbs, class_="samples", id="samples"),
        element(
            "label",
            "Use my own picture",
            element("input", type="file", accept="image/png,image/jpeg", id="upload"),
            class_="button",
        ),
        slot("said"),
        class_="picker",
    )
    turned = slider(about, turned_first(about))
    stage = element(
        "div",
        element(
            "figure",
            element("img", src=data_url(thumbnail(samples.images[0])), id="image", alt="the image"),
            element("figcaption", captions[0], id="caption"),
            class_="pixels",
        ),
        element("div", turned, slot("grid"), class_="turned"),
        class_="stage",
    )
    waiting = [
        number(title, "…", " ") for title in ("prediction", "noise level σ", "certified radius")
    ]
    results = element(
        "div",
        slot("answer", element("div", *waiting, class_="numbers")),
        slot("curve"),
        element("button", "Certify with fresh noise", id="certify", class_="work primary"),
        sentence(
            "The radius above is a preview: the noise stays the same while you turn the knobs. "
            "Certify once, with settings chosen beforehand."
        ),
        slot("certified"),
        class_="results",
    )
    return join(picker, element("div", stage, results, _advanced(about), class_="column"))


def _advanced(about: Description) -> Html:
    of_h = ["sigma_m", "low", "high", "n_select"] if about.selector else []
    of_h = ["sigma_a", *of_h] if about.selector and about.universal else of_h
    fixed = ["n"] if turned_first(about) == "sigma" else ["sigma", "n"]
    first, turned = Knobs.recommended(about), turned_first(about)
    hidden = [
        element("input", type="hidden", data_knob=name, value=getattr(first, name))
        for name in LABELS
        if name not in (*fixed, *of_h, turned, "budget", "steps")
    ]
    return element(
        "details",
        element("summary", "Advanced"),
        element("div", *(slider(about, name) for name in (*fixed, *of_h)), *hidden, class_="knobs"),
        element("button", "Draw other noise", id="fresh"),
        element("div", slot("noisy"), slot("draws"), slot("votes"), class_="charts"),
        element("h3", "Attack"),
        element("div", slider(about, "budget"), slider(about, "steps"), class_="knobs"),
        element(
            "label",
            "gradients through ",
            element(
                "select",
                element("option", "selector, noise and votes", value="strong"),
                element("option", "f alone", value="weak"),
                id="kind-of-attack",
            ),
        ),
        element("button", "Attack", id="attack", class_="work primary"),
        slot("attacked"),
        id="advanced",
    )


def _several(about: Description) -> Html:
    moved = "the one σ" if turned_first(about) == "sigma" else "the level of every image"
    said = (
        f"This moves {moved}. The selector reads the image; in the cascade f’s own votes choose, "
        "largest level first. Averages count a wrong class as radius 0."
    )
    bar = element("div", slider(about, turned_first(about)), sentence(said), class_="stage several")
    return join(bar, slot("several"))


def _run(desk: "Desk") -> Html:
    folder = element(
        "input",
        type="text",
        id="folder",
        value=str(desk.run or ""),
        placeholder="runs/first",
        aria_label="folder of a run",
        readonly=not desk.any_run,
    )
    return join(
        element(
            "div",
            element("label", "Folder of a run (what --out named)", folder),
            element("button", "Open", id="open", class_="work primary"),
            class_="open",
        ),
        slot("summary"),
        element(
            "div",
            element("div", slot("runcurve"), slot("kinds"), slot("table")),
            slot("evidence"),
            class_="beside",
        ),
    )


def turned_first(about: Description) -> str:
    """The knob of the first view: λ if it chooses anything."""
    return "lam" if about.selector or about.cascades else "sigma"


def slot(name: str, content: Html | None = None) -> Html:
    """Where the answer called `name` goes."""
    return element("div", content, data_slot=name)


def slider(about: Description, name: str) -> Html:
    """A knob: a slider, the number beside it, and what it does in plain words."""
    sigmas = sigma_range(about)
    ranges = {"lam": lam_range(about), "n": VOTES, "n_select": DRAWS}
    ranges |= {"budget": BUDGET, "steps": STEPS}
    low, high, step = ranges.get(name, sigmas)
    value = f"{getattr(Knobs.recommended(about), name):g}"
    common = {"min": f"{low:g}", "max": f"{high:g}", "value": value, "data_knob": name}
    return element(
        "div",
        element("span", LABELS[name], " ", tip(TIPS[name])),
        element("input", type="range", step=f"{step:g}", aria_label=LABELS[name], **common),
        element("input", type="number", step="any", aria_label=LABELS[name], **common),
        class_="knob",
    )


LABELS = {
    "lam": "λ: accuracy ↔ large noise",
    "sigma": "one σ for all images",
    "n": "N: votes of f",
    "sigma_a": "σ_a: level that h reads",
    "sigma_m": "σ_m: noise of the median",
    "low": "smallest σ",
    "high": "largest σ",
    "n_select": "N_h: draws of h",
    "budget": "ℓ₂ budget of the attacker",
    "steps": "steps of PGD",
}


def tip(text: str) -> Html:
    """A question mark that explains what stands before it."""
    return element("button", "?", type="button", class_="tip", data_tip=text, aria_label=text)
