"""Defaults and terms that all layers share; importable without torch."""

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
"""Maximum probability, per image, that the radius is too large or the prediction wrong."""

ALPHA_SELECT = 1e-5
"""The part of ALPHA that is spent on the selector."""

BATCH_SIZE = 128
"""Noisy images per forward pass; changes no draw."""

MODEL = "cifar10-small"
"""The released model that the demo and the page begin with."""
