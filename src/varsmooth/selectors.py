"""Noise-level selectors: a constant, a network h, or a protected h.

A selector maps images (B,C,H,W) to noise levels σ (B,). Fixed smoothing is the selector that
ignores its input. Which selector a command means is decided in `varsmooth.models.selection`.
"""

import itertools
import math
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from varsmooth.calling import call_user_model
from varsmooth.defaults import N_SELECT
from varsmooth.errors import check, check_level, check_sigma
from varsmooth.noise import NoiseStream

Scores = Callable[[Tensor], Tensor]
"""Levels σ (B,) → soft scores (B, classes) of the images at hand."""


class NoiseSelector(nn.Module, ABC):
    """Images (B,C,H,W) → σ (B,), positive, in pixel units of [0,1].

    Attributes:
        gate: Turns votes into "pass" votes; only a cascade has one.
    """

    gate = None

    @abstractmethod
    def respond(self, x: Tensor) -> Tensor:
        """h(x): the raw level at the pixels (M,C,H,W) → (M,), no noise added."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Every setting of the selector as plain JSON values, for records and checkpoints."""

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.describe().items())

    def forward(
        self, x: Tensor, noise: NoiseStream | None = None, batch_size: int | None = None
    ) -> Tensor:
        """The level used for x (B,C,H,W) → (B,), drawing what it needs from `noise`."""
        return check_levels(self._level(x, noise or NoiseStream.make(len(x)), batch_size))

    def _level(self, x: Tensor, noise: NoiseStream, batch_size: int | None) -> Tensor:
        return self.respond(x)

    def soft_scores(self, x: Tensor, noise: NoiseStream, scores: Scores) -> Tensor:
        """Soft scores (B, classes) of x under the level that this selector chooses."""
        return scores(self(x, noise))

    @property
    def possible_levels(self) -> tuple[float, ...]:
        """Every level that an image may get, ascending; empty where any level is possible."""
        return ()

    def with_draws(self, n: int) -> "NoiseSelector":
        """The same selector with n draws behind a median, where it takes one."""
        return self

    def samples(
        self,
        x: Tensor,
        sigma: float,
        n: int,
        noise: NoiseStream,
        purpose: str = "selector",
        batch_size: int | None = None,
    ) -> Tensor:
        """h(x+ε_k), ε_k ~ N(0, σ² I), k < n: (B,C,H,W) → raw levels (B,n)."""
        level = x.new_full((len(x),), sigma)
        batches = noise.batches(x, purpose, n, batch_size)
        levels = [self.respond(noise.perturb(x[rows], level[rows], e)) for rows, e in batches]
        raw = torch.cat(levels).view(len(x), n)
        # One NaN is the median of any sample, wherever the others lie: no bound would hold.
        check(not bool(raw.isnan().any()), "the selector returned NaN; check its network")
        return raw


class FixedSelector(NoiseSelector):
    """h(x) = σ: conventional randomized smoothing (the paper's g).

    Examples:
        >>> FixedSelector(0.25)(torch.zeros(2, 3, 8, 8))
        tensor([0.2500, 0.2500])
    """

    def __init__(self, sigma: float) -> None:
        super().__init__()
        self.sigma = check_sigma("sigma", sigma)

    def respond(self, x: Tensor) -> Tensor:
        return x.new_full((len(x),), self.sigma)

    def describe(self) -> dict[str, Any]:
        return {"selector": "fixed", "sigma": self.sigma}

    @property
    def possible_levels(self) -> tuple[float, ...]:
        return (self.sigma,)


class LearnedSelector(NoiseSelector):
    """h(x+ε, σ_a, λ) evaluated once, ε ~ N(0, σ_a² I) (the paper's g_v).

    network(x, sigma_a, lam) takes images (B,C,H,W) and two tensors (B,) and returns σ (B,).
    `lam` and `sigma_a` can be set at any time, without retraining. λ near 0 favours
    clean accuracy, λ near 1 pulls σ toward the target level h was trained with.
    Nothing protects h here: an attacker who perturbs x also moves σ. See `MedianSelector`.
    """

    def __init__(self, network: nn.Module, sigma_a: float, lam: float) -> None:
        super().__init__()
        self.network, self.sigma_a, self.lam = network, sigma_a, lam

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "sigma_a":
            value = check_sigma(name, value)
        if name == "lam":
            check(0 <= value <= 1, f"lam must lie in [0, 1], not {value}")
            value = float(value)
        super().__setattr__(name, value)

    def respond(self, x: Tensor) -> Tensor:
        sigma_a, lam = (x.new_full((len(x),), value) for value in (self.sigma_a, self.lam))
        return check_raw(
            call_user_model("network (x, sigma_a, lam) → σ", self.network, x, sigma_a, lam), x
        )

    def _level(self, x: Tensor, noise: NoiseStream, batch_size: int | None) -> Tensor:
        return self.samples(x, self.sigma_a, 1, noise, batch_size=batch_size)[:, 0]

    def describe(self) -> dict[str, Any]:
        return {"selector": "learned", "sigma_a": self.sigma_a, "lam": self.lam}


class FunctionSelector(NoiseSelector):
    """Any callable (M,C,H,W) → (M,) as a selector; meant to be protected by `MedianSelector`."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def respond(self, x: Tensor) -> Tensor:
        return check_raw(call_user_model("selector", self.function, x), x)

    def describe(self) -> dict[str, Any]:
        name = getattr(self.function, "__qualname__", type(self.function).__qualname__)
        return {"selector": "function", "name": name}


class MedianSelector(NoiseSelector):
    """The median of h(x+ε), ε ~ N(0, σ_m² I), over n draws (the selector of the paper's g_v*).

    For ‖δ‖ ≤ D the median at x+δ lies between the percentiles Φ(∓D/σ_m) of h(x+ε): no attacker
    moves it further (median smoothing). The gradient passes through the median sample, and straight
    through the grid.

    Args:
        selector: Any selector, or a plain callable (M,C,H,W) → (M,).
        sigma_m: Noise level of the median smoothing.
        n: Draws behind a deployed median; odd, so that the median is one of the samples.
        clip: (h_l, h_u), bounds of σ.
        levels: A grid, which the sound certificate needs: a number of levels, geometric over the
            clip range, or the levels themselves, ascending. Levels that no value in the clip range
            snaps to are left out.
    """

    def __init__(
        self,
        selector: NoiseSelector | Callable[[Tensor], Tensor],
        sigma_m: float,
        n: int = N_SELECT,
        clip: tuple[float, float] | None = None,
        levels: int | Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        check(
            not isinstance(selector, MedianSelector),
            "MedianSelector cannot wrap a MedianSelector; pass the inner selector",
        )
        check(
            callable(selector) and not isinstance(selector, type),
            "the first argument of MedianSelector is a selector or a function of images, not "
            f"{selector!r}; one σ for all images is FixedSelector(0.25)",
        )
        self.selector = (
            selector if isinstance(selector, NoiseSelector) else FunctionSelector(selector)
        )
        self.sigma_m = check_sigma("sigma_m", sigma_m)
        check(
            n >= 1 and n % 2 == 1,
            f"a median needs an odd number of samples, not n={n}; try n={n + 1}",
        )
        self.n, self.clip = n, check_clip(clip)
        self.grid = None if levels is None else Grid.make(levels, self.clip)

    def respond(self, x: Tensor) -> Tensor:
        return self.selector.respond(x)

    def snap_to_grid(self, raw: Tensor) -> Tensor:
        """Clip and snap raw levels; monotone, so it commutes with the median."""
        if self.grid is not None:  # it has no level that the clip excludes
            return self.grid.snap(raw)
        return raw if self.clip is None else raw.clamp(*self.clip)

    def _level(self, x: Tensor, noise: NoiseStream, batch_size: int | None) -> Tensor:
        with torch.no_grad():
            raw = self.samples(x, self.sigma_m, self.n, noise, batch_size=batch_size)
            level, draw = raw.median(dim=1)
        if torch.is_grad_enabled():
            level = self._respond_again(x, draw, noise, batch_size)
        return self.snap_to_grid(level)

    def _respond_again(
        self, x: Tensor, draw: Tensor, noise: NoiseStream, batch_size: int | None
    ) -> Tensor:
        """h at the draws (B,) that turned out to be the medians, with their gradient.

        The graph of the other samples would cost most of the time and pass on zeros.
        """
        chosen, done = [], 0
        level = x.new_full((len(x),), self.sigma_m)
        for rows, epsilon in noise.batches(x, "selector", self.n, batch_size):
            mine = torch.arange(done, done + len(rows), device=x.device) % self.n == draw[rows]
            chosen.append(noise.perturb(x[rows[mine]], level[rows[mine]], epsilon[mine]))
            done += len(rows)
        return self.respond(torch.cat(chosen))

    @property
    def possible_levels(self) -> tuple[float, ...]:
        return () if self.grid is None else self.grid.levels

    def with_draws(self, n: int) -> "MedianSelector":
        selector = copy(self)
        selector.n = n
        return selector

    def describe(self) -> dict[str, Any]:
        return {
            "selector": "median",
            "sigma_m": self.sigma_m,
            "n": self.n,
            "clip": None if self.clip is None else list(self.clip),
            "levels": None if self.grid is None else list(self.grid.levels),
            "inner": self.selector.describe(),
        }


@dataclass(frozen=True)
class Grid:
    """Noise levels s_1 < … < s_L, with thresholds `t_j = √(s_j s_{j+1})` between them.

    A raw level h belongs to s_j for `t_{j−1} < h ≤ t_j`. Levels are float32 numbers, so that the
    noise applied and the radius computed from it agree.

    Examples:
        >>> Grid.make(3, (0.25, 1.0)).levels
        (0.25, 0.5, 1.0)
    """

    levels: tuple[float, ...]

    @classmethod
    def make(cls, levels: int | Sequence[float], clip: tuple[float, float] | None) -> "Grid":
        if isinstance(levels, int):
            check(clip is not None, "a number of levels needs `clip=(low, high)` to spread over")
            assert clip is not None
            check(levels >= 2, f"a grid over a clip range needs at least 2 levels, not {levels}")
            levels = [float(s) for s in np.geomspace(*clip, levels)]
        rounded = tuple(map(check_level, levels))
        check(len(rounded) > 0, "the grid of levels is empty; give at least one level")
        check(
            all(a < b for a, b in itertools.pairwise(rounded)),
            f"levels must ascend, not {list(rounded)}",
        )
        grid = cls(rounded)
        if clip is None:
            return grid
        lowest, highest = (bisect_left(grid.thresholds, end) for end in clip)
        return cls(rounded[lowest : highest + 1])

    @property
    def thresholds(self) -> tuple[float, ...]:
        return tuple(math.sqrt(a * b) for a, b in itertools.pairwise(self.levels))

    def index(self, raw: Tensor) -> Tensor:
        """Which level each raw value belongs to, 0-based; compared in float64."""
        thresholds = torch.tensor(self.thresholds, dtype=torch.float64, device=raw.device)
        return torch.searchsorted(thresholds, raw.detach().double().contiguous())

    def snap(self, raw: Tensor) -> Tensor:
        levels = torch.tensor(self.levels, dtype=raw.dtype, device=raw.device)
        # This term is exactly zero and carries the gradient straight through.
        carrier = torch.where(raw.isinf(), 0, raw - raw.detach())
        return levels[self.index(raw)] + carrier


def check_clip(clip: tuple[float, float] | None) -> tuple[float, float] | None:
    """A clip range is (low, high) with 0 < low < high."""
    if clip is None:
        return None
    check(len(clip) == 2, f"clip must be a pair (low, high), not {clip}")
    low, high = (check_sigma("an end of clip", end) for end in clip)
    check(low < high, f"`clip` must be (low, high) with low < high, not {clip}")
    return low, high


def check_raw(raw: Tensor, x: Tensor) -> Tensor:
    """What h returned, one number per image, as (M,) in the precision of the images.

    In h's own precision, which may be half, the level used would not be the level certified.
    """
    check(
        isinstance(raw, Tensor) and raw.numel() == len(x),
        f"the selector must return one level per image, shape ({len(x)},), "
        f"not {tuple(raw.shape) if isinstance(raw, Tensor) else type(raw).__name__}",
    )
    return raw.reshape(len(x)).to(x.dtype)


def check_levels(sigma: Tensor) -> Tensor:
    """Levels that are to be used as noise are positive and finite."""
    check(
        bool(((sigma > 0) & sigma.isfinite()).all()),
        "the selector returned a level that is not positive and finite; "
        "check its network, or protect it with MedianSelector(..., clip=(low, high))",
    )
    return sigma
