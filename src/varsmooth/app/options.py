"""The options of the page, the range of each, and the smoothed classifiers of a model."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from varsmooth.errors import check, wrap_errors
from varsmooth.models.checkpoints import Checkpoint, load_checkpoint
from varsmooth.models.descriptions import Description
from varsmooth.models.loading import smoothed
from varsmooth.models.options import ModelOptions
from varsmooth.models.selection import DEFAULT_LAM, resolve_selector
from varsmooth.smoothing import SmoothedClassifier

GRID_SIZE = 12  # of the grid between the clip bounds, where a model recommends none


NAMES = {"cascade": "cascade", "median": "g_v*", "learned": "g_v", "fixed": "g"}
"""The smoothed classifiers of the page by their kind of selector."""


class Slider(NamedTuple):
    """The symbol of an option in messages, and its values: low, low + step, …, high."""

    symbol: str
    low: float
    high: float
    step: float


SLIDERS = {
    "lam": Slider("λ", 0, 1, 0.01),
    "lam_cascade": Slider("λ of the cascade", 0, 1, 0.01),
    "sigma": Slider("σ", 0.02, 2, 0.001),
    "n": Slider("N", 100, 5000, 100),
    "sigma_a": Slider("σ_a", 0.02, 2, 0.001),
    "sigma_m": Slider("σ_m", 0.02, 2, 0.001),
    "low": Slider("the smallest σ", 0, math.inf, 0.001),
    "high": Slider("the largest σ", 0, math.inf, 0.001),
    "n_select": Slider("N_h", 51, 2001, 50),  # odd, so that the median is one of them
    "budget": Slider("the budget", 0, 2, 0.05),
    "steps": Slider("the number of steps", 1, 50, 1),
}


@dataclass(frozen=True)
class PageOptions:
    """What a visitor sets on the page."""

    sigma: float  # the one level of g
    lam_cascade: float  # of the tuned cascade
    lam: float  # of the paper's selector, as are the next four
    sigma_a: float
    sigma_m: float
    low: float
    high: float
    n: int = 200  # votes of f
    n_select: int = 301  # draws of h behind its median and bounds
    budget: float = 0.25  # the attacker's; also D of the paper's certificate
    steps: int = 20  # of the attack

    @classmethod
    def read(cls, values: Any, about: Description) -> "PageOptions":
        """PageOptions from a request, missing ones as recommended; values out of range raise."""
        check(isinstance(values, Mapping), "a request needs its options")
        numbers: dict[str, Any] = vars(cls.recommended(about)).copy()
        misfits = (TypeError, ValueError, OverflowError)
        with wrap_errors(misfits, "every option must be a number; reload the page"):
            numbers |= {name: float(values[name]) for name in SLIDERS if name in values}
            numbers |= {name: int(numbers[name]) for name in ("n", "n_select", "steps")}
        numbers["n_select"] += 1 - numbers["n_select"] % 2  # a number that was typed may be even
        for name, slider in SLIDERS.items():
            check(
                slider.low <= numbers[name] <= slider.high,
                f"{slider.symbol} must lie between {slider.low:g} and {slider.high:g}, "
                f"not {numbers[name]:g}",
            )
        low, high = numbers["low"], numbers["high"]
        check(
            0 < low < high < math.inf,
            f"the smallest σ must lie below the largest, not at {low:g} and {high:g}",
        )
        return cls(**numbers)

    @classmethod
    def recommended(cls, about: Description) -> "PageOptions":
        """The first values of the options for a model."""
        stored, usual = about.recommended, about.trained_sigma
        sigma_a = float(stored.get("sigma_a", about.sigma_of_selector))
        levels = stored.get("levels")
        ends = (levels[0], levels[-1]) if isinstance(levels, list) and len(levels) > 1 else None
        low, high = stored.get("clip") or ends or (usual / 2, 2 * usual)
        return cls(
            sigma=round(about.default_sigma, 4),
            lam_cascade=DEFAULT_LAM,
            lam=float(stored.get("lam", 0.0)),
            sigma_a=sigma_a,
            sigma_m=float(stored.get("sigma_m", sigma_a)),
            low=math.floor(1000 * low) / 1000,  # outward: no level is lost
            high=math.ceil(1000 * high) / 1000,
        )


def sliders_for(about: Description) -> dict[str, Slider]:
    """The sliders for a model: λ over the training range of h, σ to well above that of f."""
    first, (_, least, most, _) = PageOptions.recommended(about), SLIDERS["sigma"]
    reach = min(most, max(about.sigma_a * (1 if about.universal else 3), 0.5))
    ends = min(least, first.low), max(reach, first.high, first.sigma_m)
    sliders = dict(SLIDERS)
    for name in ("sigma", "sigma_a", "sigma_m", "low", "high"):
        sliders[name] = sliders[name]._replace(low=ends[0], high=ends[1])
    if about.lam_range:
        sliders["lam"] = sliders["lam"]._replace(low=about.lam_range[0], high=about.lam_range[1])
    return sliders


def levels_of(g: SmoothedClassifier) -> tuple[float, ...]:
    """The noise levels that an image may get from g, ascending."""
    return g.selector.possible_levels


@dataclass(frozen=True, eq=False)
class Smoothers:
    """A model on the page: f, h if there is one, and their smoothed classifiers."""

    checkpoint: Checkpoint

    @classmethod
    def load(cls, name: str, trust: Collection[str] = ()) -> "Smoothers":
        checkpoint = load_checkpoint(name, trust)
        check(checkpoint.classifier is not None, f"{name} is a selector without its classifier")
        return cls(checkpoint)

    @property
    def about(self) -> Description:
        return self.checkpoint.description

    @property
    def has_selector(self) -> bool:
        return self.checkpoint.selector is not None

    def at(self, sigma: float) -> SmoothedClassifier:
        """g: one level for every image."""
        return smoothed(self.checkpoint, ModelOptions(sigma=sigma))

    def each(self, options: PageOptions) -> dict[str, SmoothedClassifier]:
        """The smoothed classifiers by name: g; with a selector g_v and g_v*; and the cascade."""
        classifiers = {"g": self.at(options.sigma)}
        if self.has_selector:
            of_h = ModelOptions(lam=options.lam, sigma_a=options.sigma_a)
            protected = replace(
                of_h,
                sigma_m=options.sigma_m,
                clip=(options.low, options.high),
                levels=self.about.recommended.get("levels") or GRID_SIZE,
                n_median=options.n_select,
            )
            classifiers["g_v"] = smoothed(self.checkpoint, replace(of_h, selector="learned"))
            classifiers["g_v*"] = smoothed(self.checkpoint, protected)
        if self.about.cascades:
            cascade = ModelOptions(selector="cascade", lam=options.lam_cascade)
        else:  # the levels of the grid or around σ, largest first
            levels = levels_of(classifiers["g_v*"]) if self.has_selector else (options.sigma,)
            if len(levels) == 1:
                levels = (levels[0] / 2, levels[0], 2 * levels[0])
            cascade = ModelOptions(cascade=",".join(f"{level:.9g}" for level in reversed(levels)))
        return classifiers | {"cascade": smoothed(self.checkpoint, cascade)}

    @property
    def ways(self) -> list[str]:
        """The smoothed classifiers that have a sound certificate."""
        return ["cascade", "g_v*", "g"] if self.has_selector else ["cascade", "g"]

    def read_by(self, way: str, options: PageOptions) -> PageOptions:
        """The options with λ = 0 where it has no effect, so that cached results are reused."""
        lam = options.lam if way == "g_v*" else 0.0
        return replace(options, lam=lam, lam_cascade=options.lam_cascade * (way == "cascade"))

    @property
    def in_use(self) -> str:
        """The model's default selector, by its name on the page."""
        return NAMES[resolve_selector(self.about, ModelOptions()).kind]

    def deployed(self, options: PageOptions) -> SmoothedClassifier:
        return self.each(options)[self.in_use]

    def levels(self, options: PageOptions) -> tuple[float, ...]:
        """The noise levels that an image may get."""
        return levels_of(self.deployed(options))
