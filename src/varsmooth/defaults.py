"""Defaults, options and terms that all layers share; importable without torch."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

ABSTAIN = -1
"""The prediction where no class has a significant majority."""

Guarantee = Literal["sound", "conditional", "heuristic"]

Bound = Literal["best", "cohen"]
"""Of the runner-up: its own votes where that gives the larger radius, or always 1 − p_A."""

N = 1000
"""Votes of f behind a prediction, or at each level of a certificate."""

N_MAX = 100_000
"""Most votes at a level where the votes themselves decide when to stop."""

N0 = 100
"""Draws that choose class and level before the votes are counted."""

N_SELECT = 1001
"""Draws of h: behind its bounds, and in the median of a deployed selector. Odd."""

ALPHA = 1e-3
"""Maximum probability, per image, that the radius is too large, or that `predict` returns a class
other than the most likely one of g."""

ALPHA_SELECT = 1e-5
"""The part of ALPHA that is spent on the selector."""

BATCH_SIZE = 128
"""Noisy images per forward pass; changes no draw."""

MODEL = "cifar10-small"
"""The default model of the demo and the web app."""


@dataclass(frozen=True)
class Options:
    """What `certify`, `certify_at`, `certify_until`, `certify_as_paper` and `predict` share.

    One object serves them all, so that `predict` is the prediction that a certificate covers. What
    the selector does not need is not read; what a certificate can never use is refused.

    Attributes:
        method: "sound" holds whatever the attacker does; "conditional", Cohen's certificate at the
            chosen σ, holds while the attacker does not move σ. An unprotected selector has only
            this one.
        n0: Selection draws.
        n_select: Samples of h behind the bounds on its median.
        alpha_select: The part of α for the bounds on h; in `predict`, for the deployed median.
        n_max: Most votes at a level, where the votes decide when to stop.
        band: Cover the deployed `predict`, whose median is empirical; False holds for the ideal
            median only.
        bound: "cohen" bounds the runner-up by 1 − p_A always, as Cohen et al. do; "best" by its own
            votes where the selection draws say that this gives the larger radius.
        every_index: Of `certify_as_paper`: look at every sampled level between the bounds.
        batch_size: Noisy images per forward pass; changes no draw.
        progress: Of `certify` and `predict`: show a bar, image by image.
        undecided: Of `certify_at` and `certify_until`: called after every look with the number of
            images that are still undecided.
    """

    method: Literal["sound", "conditional"] = "sound"
    n0: int = N0
    n_select: int = N_SELECT
    alpha_select: float = ALPHA_SELECT
    n_max: int = N_MAX
    band: bool = True
    bound: Bound = "best"
    every_index: bool = False
    batch_size: int | None = None
    progress: bool = False
    undecided: Callable[[int], None] | None = None
