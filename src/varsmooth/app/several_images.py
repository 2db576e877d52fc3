"""Several images side by side: the level and radius of each under every way to choose σ."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from varsmooth.app.knobs import Knobs, Smoothers
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


def by_selector(model: Smoothers, images: Batch, knobs: Knobs) -> list[Way]:
    """A level for each image by the protected selector; nothing where a model has none."""
    if not model.has_selector:
        return []
    settings = {"n_select": knobs.n_select, "alpha_select": ALPHA_SELECT}
    return [_certified("selector", model.deployed(knobs), images, knobs.n, **settings)]


def by_one_sigma(model: Smoothers, images: Batch, sigma: float, n: int) -> Way:
    """One level for all images: conventional smoothing."""
    return _certified(f"one σ = {sigma:g}", model.at(sigma), images, n)


def _certified(title: str, g: SmoothedClassifier, images: Batch, n: int, **more: Any) -> Way:
    settings = {"n0": N0, "n": n, "alpha": ALPHA, "seed": 0, "ids": images.ids, **more}
    return Way(title, certify(g, images.images, **settings))


def most_to_certify_several(model: Smoothers, knobs: Knobs, images: int) -> int:
    """How many images the networks are shown at most, for the progress bar."""
    vote = N0 + knobs.n
    if not model.has_selector:
        return images * vote
    levels = len(model.levels(knobs))
    return images * (vote + 2 * N0 + knobs.n_select + levels * knobs.n)
