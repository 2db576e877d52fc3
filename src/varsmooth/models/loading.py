"""From the name of a model to a smoothed classifier that is ready to use."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from varsmooth.errors import require
from varsmooth.models.checkpoints import Checkpoint, load_checkpoint
from varsmooth.selectors import FixedSelector, LearnedSelector, MedianSelector, NoiseSelector
from varsmooth.smoothing import SmoothedClassifier

MEDIAN_DRAWS = 1001
"""Draws of h for the deployed median, unless the caller says otherwise."""


def load(
    name_or_path: str | Path,
    *,
    sigma: float | None = None,
    lam: float | None = None,
    sigma_a: float | None = None,
    sigma_m: float | None = None,
    clip: tuple[float, float] | None = None,
    levels: int | Sequence[float] | None = None,
    n_median: int | None = None,
    protect: bool = True,
    lattice: bool = False,
    trusted: Collection[str] = (),
) -> SmoothedClassifier:
    """A released model by name, or a model by the path of its folder, as a smoothed classifier.

    A pair of f and h is protected by median smoothing with the settings that its description
    recommends; any of lam, sigma_a, sigma_m, clip, levels and n_median given here comes first;
    levels=0 asks for no grid.
    protect=False leaves h as it is, evaluated once on x + ε, ε ~ N(0, σ_a² I).
    A classifier alone is smoothed at the level it was trained for (the middle of its range if it
    was trained for many); sigma chooses another, and sets a selector aside if there is one.
    lattice: see `SmoothedClassifier`.
    trusted: import paths of your own networks, see `varsmooth.models.checkpoints.load_checkpoint`.
    """
    model = load_checkpoint(name_or_path, trusted)
    require(model.classifier is not None, f"{name_or_path} is a selector without its classifier")
    assert model.classifier is not None
    wishes = {
        "lam": lam,
        "sigma_a": sigma_a,
        "sigma_m": sigma_m,
        "clip": clip,
        "levels": levels,
        "n": n_median,
    }
    selector = selector_of(
        model, sigma, protect, **{k: v for k, v in wishes.items() if v is not None}
    )
    return SmoothedClassifier(model.classifier, selector, lattice=lattice).eval()


def selector_of(
    model: Checkpoint, sigma: float | None = None, protect: bool = True, **wishes: Any
) -> NoiseSelector:
    """The selector that a model's description recommends, with the caller's wishes first.

    wishes: any of lam, sigma_a, and for the protected selector sigma_m, clip, levels, n.
    """
    description = model.description
    if sigma is not None or model.selector is None:
        require(
            not wishes and protect,
            f"{', '.join(wishes) or 'protect'} steers a selector, but "
            + ("this model has none" if sigma is None else "sigma fixes the level")
            + "; leave it out",
        )
        usual = description.recommended.get(
            "sigma", description.sigma_a / (2 if description.universal else 1)
        )
        return FixedSelector(usual if sigma is None else sigma)
    usual = description.selector_sigma or description.sigma_a
    chosen = {"lam": 0.0, "sigma_a": usual, **description.recommended, **wishes}
    learned = LearnedSelector(model.selector, chosen["sigma_a"], chosen["lam"])
    if not protect:
        unused = wishes.keys() - {"lam", "sigma_a"}
        require(
            not unused,
            f"{', '.join(sorted(unused))} belongs to the protected selector; "
            "leave it out, or leave out protect=False",
        )
        return learned
    clip, levels = chosen.get("clip"), chosen.get("levels")
    return MedianSelector(
        learned,
        chosen.get("sigma_m", chosen["sigma_a"]),
        n=chosen.get("n", MEDIAN_DRAWS),
        clip=None if clip is None else (clip[0], clip[1]),
        levels=None if levels == 0 else levels,
    )
