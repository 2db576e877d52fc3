"""A model and its smoothed classifiers, which differ in who chooses σ."""

import math
from collections.abc import Collection
from dataclasses import dataclass, replace

from varsmooth.app.knobs import LAM, SIGMA, Knobs, Range
from varsmooth.errors import require
from varsmooth.models.checkpoints import Checkpoint, load_checkpoint
from varsmooth.models.descriptions import Description
from varsmooth.models.loading import smoothed
from varsmooth.models.settings import Settings
from varsmooth.smoothing import SmoothedClassifier

LEVELS = 12
"""Levels of the grid between the clip bounds, where a model recommends none."""


@dataclass(frozen=True)
class Model:
    """A classifier f, with its selector h if it has one."""

    name: str
    checkpoint: Checkpoint

    @classmethod
    def load(cls, name: str, trust: Collection[str] = ()) -> "Model":
        checkpoint = load_checkpoint(name, trust)
        require(checkpoint.classifier is not None, f"{name} is a selector without its classifier")
        return cls(name, checkpoint)

    @property
    def about(self) -> Description:
        return self.checkpoint.description

    @property
    def has_selector(self) -> bool:
        return self.checkpoint.selector is not None

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.about.class_names

    def smoothed(self, knobs: Knobs) -> dict[str, SmoothedClassifier]:
        """By the paper's names: g, and with a selector g_v and g_v*."""
        settings = {"g": Settings(sigma=knobs.sigma)}
        if self.has_selector:
            asked = Settings(lam=knobs.lam, sigma_a=knobs.sigma_a)
            settings["g_v"] = replace(asked, protect=False)
            settings["g_v*"] = replace(
                asked,
                sigma_m=knobs.sigma_m,
                clip=knobs.clip,
                levels=self.about.recommended.get("levels") or LEVELS,
                n_median=knobs.n_select,
            )
        return {name: smoothed(self.checkpoint, each) for name, each in settings.items()}

    def deployed(self, knobs: Knobs) -> SmoothedClassifier:
        """The one to use: with a protected selector if there is a selector."""
        return list(self.smoothed(knobs).values())[-1]

    def first_knobs(self) -> Knobs:
        """What the description recommends."""
        about, wishes = self.about, self.about.recommended
        usual = about.trained_sigma
        sigma_a = float(wishes.get("sigma_a", about.sigma_of_selector))
        levels = wishes.get("levels")
        ends = (levels[0], levels[-1]) if isinstance(levels, list) and len(levels) > 1 else None
        low, high = wishes.get("clip") or ends or (usual / 2, 2 * usual)
        return Knobs(
            sigma=round(about.default_sigma, 4),
            lam=float(wishes.get("lam", 0.0)),
            sigma_a=sigma_a,
            sigma_m=float(wishes.get("sigma_m", sigma_a)),
            clip=(math.floor(1000 * low) / 1000, math.ceil(1000 * high) / 1000),  # no level is lost
        )

    @property
    def lam_range(self) -> Range:
        """The λ that h was trained with."""
        low, high = self.about.lam_range or (LAM.low, LAM.high)
        return Range(low, high, LAM.step)

    @property
    def sigma_range(self) -> Range:
        """Levels worth trying: to well above what f was trained for."""
        high = self.about.sigma_a * (1 if self.about.universal else 3)
        return Range(SIGMA.low, min(SIGMA.high, max(high, 0.5)), SIGMA.step)
