"""Several images side by side: the level and radius of each under every way to choose σ."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from varsmooth.app.fragments import class_name, number, outcome_kind, pixels
from varsmooth.app.knobs import Knobs, Smoothers
from varsmooth.app.one_image import most_to_certify
from varsmooth.certificates import Certificate
from varsmooth.certification import certify
from varsmooth.data import Batch
from varsmooth.defaults import ALPHA, ALPHA_SELECT, N0
from varsmooth.report.markup import Html, element, join
from varsmooth.rounding import rounded

MANY = 12


@dataclass(frozen=True)
class Way:
    """One way to choose σ, and its certificate for each image."""

    title: str
    certificates: Sequence[Certificate]

    def radius(self, image: int, label: int | None) -> float:
        """The radius of one image; 0 for a wrong class."""
        found = self.certificates[image]
        return found.radius if label in (None, found.prediction) else 0.0

    def average_radius(self, labels: Sequence[int] | None) -> float:
        every = range(len(self.certificates))
        return sum(self.radius(i, None if labels is None else labels[i]) for i in every) / len(
            every
        )


def certify_several(way: str, model: Smoothers, images: Batch, knobs: Knobs) -> Way:
    """Every image certified with g, g_v* or the cascade, always with the same noise."""
    title = {"g": "one σ", "g_v*": "selector"}.get(way, way)
    settings: dict[str, Any] = {"n0": N0, "n": knobs.n, "alpha": ALPHA}
    if way == "g_v*":
        settings |= {"n_select": knobs.n_select, "alpha_select": ALPHA_SELECT}
    g = model.each(knobs)[way]
    return Way(title, certify(g, images.images, seed=0, ids=images.ids, **settings))


def most_to_certify_several(model: Smoothers, knobs: Knobs, images: int) -> int:
    """How many images the networks are shown at most, for the progress bar."""
    return images * most_to_certify(model, knobs)


def several_html(images: Batch, ways: Sequence[Way], names: Sequence[str]) -> Html:
    """Each image with its σ and radius in every way, and the average radius of each way."""
    labels = None if images.labels is None else images.labels.tolist()
    cards = []
    for i, x in enumerate(images.images):
        label = None if labels is None else labels[i]
        best = max(way.radius(i, label) for way in ways)
        lines = [
            element(
                "tr",
                element("th", way.title, scope="row"),
                element("td", f"{way.certificates[i].sigma:.3f}"),
                _radius_cell(way, i, label, best, names),
            )
            for way in ways
        ]
        caption = class_name(label, names) if label is not None else f"image {i + 1}"
        head = element("tr", element("th"), element("th", "σ"), element("th", "radius"))
        table = element("table", element("thead", head), element("tbody", *lines))
        cards.append(element("article", pixels(x, caption, caption), table, class_="one"))
    averages = [
        number(way.title, rounded(way.average_radius(labels)), "average certified radius")
        for way in ways
    ]
    return join(element("div", *averages, class_="numbers"), element("div", *cards, class_="many"))


def _radius_cell(way: Way, i: int, label: int | None, best: float, names: Sequence[str]) -> Html:
    prediction, radius = way.certificates[i].prediction, way.radius(i, label)
    kind = outcome_kind(prediction, label)
    if kind != "right":
        return element("td", class_name(prediction, names), class_=kind)
    return element("td", rounded(radius), class_="right best" if 0 < radius == best else "right")
