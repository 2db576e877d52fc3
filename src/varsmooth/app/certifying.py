"""The certificates of one image, each with its own guarantee."""

from dataclasses import dataclass
from typing import Any

from varsmooth.app.knobs import Knobs
from varsmooth.app.models import Model
from varsmooth.certificates import Certificate
from varsmooth.certification import certify, certify_as_paper
from varsmooth.data import Batch
from varsmooth.defaults import ALPHA, ALPHA_SELECT, N0
from varsmooth.noise import NoiseStream


@dataclass(frozen=True)
class Certified:
    """One image, certified in every way there is: dual and paper need a selector."""

    fixed: Certificate
    dual: Certificate | None = None
    paper: Certificate | None = None

    @property
    def best_explained(self) -> Certificate:
        """The one whose construction is shown."""
        return self.dual or self.fixed


def certify_each_way(
    model: Model, image: Batch, knobs: Knobs, seed: int | None = None
) -> Certified:
    """Fixed σ, the sound dual certificate, and the paper's value at D = budget.

    All see the same noise, fresh unless a seed is given. Each is true by itself; to quote the
    largest of several is a choice that costs α.
    """
    seed = NoiseStream.make(1, seed).seed
    smoothed = model.smoothed(knobs)
    asked: dict[str, Any] = {
        "n0": N0,
        "n": knobs.n,
        "alpha": ALPHA,
        "seed": seed,
        "ids": image.ids,
    }
    (fixed,) = certify(smoothed["g"], image.images, **asked)
    if not model.has_selector:
        return Certified(fixed)
    asked |= {"n_select": knobs.n_select, "alpha_select": ALPHA_SELECT}
    (dual,) = certify(smoothed["g_v*"], image.images, **asked)
    (paper,) = certify_as_paper(smoothed["g_v*"], image.images, distance=knobs.budget, **asked)
    return Certified(fixed, dual, paper)


def most_images(model: Model, knobs: Knobs) -> int:
    """How many images the networks are shown at most, for the progress bar."""
    vote = N0 + knobs.n
    if not model.has_selector:
        return vote
    grid = getattr(model.deployed(knobs).selector, "grid", None)
    levels = len(grid.levels) if grid is not None else 0
    return vote + (2 * N0 + knobs.n_select + levels * knobs.n) + (knobs.n_select + 3 * vote)
