"""Several images side by side: the level and radius of each under every way to choose σ."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from varsmooth.app.knobs import Knobs, Smoothers
from varsmooth.app.one_image import most_to_certify
from varsmooth.certificates import Certificate
from varsmooth.certification import certify
from varsmooth.data import Batch
from varsmooth.defaults import ALPHA, ALPHA_SELECT, N0
from varsmooth.smoothing import SmoothedClassifier

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


def by_each_image(model: Smoothers, images: Batch, knobs: Knobs) -> list[Way]:
    """A level for each image: by the protected selector if there is one, and by the cascade."""
    smoothed, found = model.each(knobs), []
    if model.has_selector:
        settings = {"n_select": knobs.n_select, "alpha_select": ALPHA_SELECT}
        found.append(_certified("selector", smoothed["g_v*"], images, knobs.n, **settings))
    return [_certified("cascade", smoothed["cascade"], images, knobs.n), *found]


def by_one_sigma(model: Smoothers, images: Batch, sigma: float, n: int) -> Way:
    """One level for all images: conventional smoothing."""
    return _certified(f"one σ = {sigma:g}", model.at(sigma), images, n)


def _certified(title: str, g: SmoothedClassifier, images: Batch, n: int, **more: Any) -> Way:
    settings = {"n0": N0, "n": n, "alpha": ALPHA, "seed": 0, "ids": images.ids, **more}
    return Way(title, certify(g, images.images, **settings))


def most_to_certify_several(model: Smoothers, knobs: Knobs, images: int) -> int:
    """How many images the networks are shown at most, for the progress bar."""
    return images * most_to_certify(model, knobs)
