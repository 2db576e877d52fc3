"""What is computed: a view of one image as knobs are turned, certificates, an attack.

Beside each, how many images the networks are shown at most, for the progress bar.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from varsmooth import bounds
from varsmooth.app.knobs import Knobs, Smoothers, levels_of
from varsmooth.certificates import Certificate, Certificates, Prediction
from varsmooth.certification import certify, certify_as_paper
from varsmooth.data import Batch
from varsmooth.defaults import ALPHA, ALPHA_SELECT, N0
from varsmooth.noise import NoiseStream
from varsmooth.prediction import predict
from varsmooth.runs.attacking import distances, find_adversarial
from varsmooth.runs.options import AttackOptions
from varsmooth.selectors import MedianSelector
from varsmooth.smoothing import SmoothedClassifier

CURVE = 9  # levels between the ends of the curve
SAMPLES = 16  # noisy copies behind each gradient of an attack
MEDIAN_DRAWS = 11  # of h behind each gradient

AttackKind = Literal["strong", "weak"]


@dataclass(frozen=True)
class SelectorDraws:
    """h on noisy copies of the image.

    Attributes:
        samples: h(x+ε), ascending, before clip and grid.
        chosen: Their median after both.
        bounds: How far an attacker with the budget can move the median, before clip and grid; 0 and
            infinity where the draws are too few.
    """

    samples: tuple[float, ...]
    chosen: float
    bounds: tuple[float, float]
    clip: tuple[float, float] | None
    grid: tuple[float, ...]
    budget: float

    @property
    def median(self) -> float:
        return self.samples[(len(self.samples) - 1) // 2]


@dataclass(frozen=True)
class View:
    """One noisy copy of the image, the answer, and h's draws (None: there is no h)."""

    noisy: Tensor  # (C,H,W), clipped to [0,1] for the eye
    answer: Prediction
    draws: SelectorDraws | None


def look(model: Smoothers, image: Batch, knobs: Knobs, seed: int) -> View:
    """Predict one image, and keep what there is to see. The same seed draws the same noise."""
    g = model.deployed(knobs)
    with overheard(model.checkpoint.selector) as heard:
        (answer,) = predict(g, image.images, n=knobs.n, alpha=ALPHA, seed=seed, ids=image.ids)
    noise = g.noise(1, seed, image.ids)
    _, epsilon = next(noise.batches(image.images, "picture", 1))
    noisy = noise.perturb(image.images, torch.tensor([answer.sigma]), epsilon)
    draws = None
    if isinstance(g.selector, MedianSelector):
        samples = tuple(torch.cat(heard).sort().values.tolist())
        draws = SelectorDraws(
            samples,
            chosen=answer.sigma,
            bounds=reachable(samples, knobs.budget, g.selector.sigma_m),
            clip=g.selector.clip,
            grid=levels_of(g),
            budget=knobs.budget,
        )
    return View(noisy[0].clamp(0, 1), answer, draws)


@contextmanager
def overheard(network: nn.Module | None) -> Iterator[list[Tensor]]:
    """What a network answers meanwhile, so that h need not be evaluated again for a picture."""
    heard: list[Tensor] = []
    with ExitStack() as hooks:
        if network is not None:
            hooks.enter_context(network.register_forward_hook(lambda *call: heard.append(call[2])))
        yield heard


def reachable(samples: Sequence[float], budget: float, sigma_m: float) -> tuple[float, float]:
    """Between which values the median stays for every perturbation within the budget."""
    low, high = bounds.order_statistics(len(samples), budget, sigma_m, ALPHA_SELECT / 2)
    return (
        samples[low - 1] if low >= 1 else 0.0,
        samples[high - 1] if high <= len(samples) else float("inf"),
    )


# Certificates


@dataclass(frozen=True)
class Certified:
    """One image, certified in every way there is: dual and paper need a selector."""

    fixed: Certificate
    cascade: Certificate
    dual: Certificate | None = None
    paper: Certificate | None = None


def curve_levels(model: Smoothers, knobs: Knobs) -> tuple[float, ...]:
    """The σ of the curve: the grid's levels, the one σ, and some between them."""
    levels = {*model.levels(knobs), knobs.sigma}
    between = np.geomspace(min(knobs.low, *levels), max(knobs.high, *levels), CURVE)
    near = [s for s in between if all(abs(s / level - 1) > 0.08 for level in levels)]
    return tuple(sorted(float(np.float32(s)) for s in {*levels, *near}))


def certify_levels(
    model: Smoothers, image: Batch, levels: Sequence[float], n: int, seed: int
) -> tuple[Certificate, ...]:
    """The certificate of one image at each of these fixed levels."""
    found = [certify(model.at(s), image.images, **_settings(n, seed, image)) for s in levels]
    return tuple(certificates[0] for certificates in found)


def certify_as(way: str, model: Smoothers, images: Batch, knobs: Knobs, seed: int) -> Certificates:
    """The sound certificates of g, g_v* or the cascade."""
    settings = _settings(knobs.n, seed, images, knobs.n_select if way == "g_v*" else None)
    return certify(model.each(knobs)[way], images.images, **settings)


def certify_each_way(
    model: Smoothers, image: Batch, knobs: Knobs, seed: int | None = None
) -> Certified:
    """One σ, the cascade, the sound dual certificate, and the paper's value at D = budget.

    All see the same noise, fresh unless a seed is given. Each holds by itself; quoting the
    largest of several is a choice that costs α.
    """
    seed = NoiseStream.make(1, seed).seed
    fixed, cascade = (certify_as(way, model, image, knobs, seed)[0] for way in ("g", "cascade"))
    if not model.has_selector:
        return Certified(fixed, cascade)
    settings = _settings(knobs.n, seed, image, knobs.n_select)
    g = model.deployed(knobs)
    paper = certify_as_paper(g, image.images, distance=knobs.budget, **settings)[0]
    return Certified(fixed, cascade, certify_as("g_v*", model, image, knobs, seed)[0], paper)


def _settings(n: int, seed: int, images: Batch, n_select: int | None = None) -> dict[str, Any]:
    found = {"n0": N0, "n": n, "alpha": ALPHA, "seed": seed, "ids": images.ids}
    of_h = {"n_select": n_select, "alpha_select": ALPHA_SELECT}
    return found if n_select is None else found | of_h


def most_to_look(model: Smoothers, knobs: Knobs) -> int:
    curve = len(curve_levels(model, knobs)) * (N0 + knobs.n)
    return 2 * _most_to_answer(model, knobs) + curve + most_to_certify(model, knobs)


def most_to_certify(model: Smoothers, knobs: Knobs) -> int:
    vote, smoothed = N0 + knobs.n, model.each(knobs)
    most = vote + len(levels_of(smoothed["cascade"])) * vote
    if not model.has_selector:
        return most
    dual = 2 * N0 + knobs.n_select + len(levels_of(smoothed["g_v*"])) * knobs.n
    return most + dual + (knobs.n_select + 3 * vote)


# Attacks


@dataclass(frozen=True)
class Reply:
    """A class (−1: abstains) and the σ it was given under; f has none."""

    prediction: int
    sigma: float | None


@dataclass(frozen=True)
class Attacked:
    """The adversarial image, and the replies of f, g, g_v, g_v* before and after."""

    x: Tensor  # (C,H,W)
    adversarial: Tensor  # (C,H,W)
    target: int  # the class that the attack drives away from
    distance: float
    before: dict[str, Reply]
    after: dict[str, Reply]


def attack(
    model: Smoothers,
    image: Batch,
    knobs: Knobs,
    kind: AttackKind = "strong",
    seed: int | None = None,
) -> Attacked:
    """PGD within the budget, away from the label, or from the majority vote if there is none.

    strong: gradients through selector, noise and votes of the classifier in use;
    weak: through f alone.
    """
    seed = NoiseStream.make(1, seed).seed
    g, x = model.deployed(knobs), image.images
    (clean,) = predict(g, x, n=knobs.n, alpha=None, seed=seed, ids=image.ids)
    target = clean.prediction if image.labels is None else int(image.labels[0])
    settings = AttackOptions(
        kind=kind, steps=knobs.steps, samples=SAMPLES, n_median_attack=MEDIAN_DRAWS, seed=seed
    )
    y, sigma = torch.tensor([target]), torch.tensor([clean.sigma])
    found = find_adversarial(g, x, y, knobs.budget, settings, image.ids, sigma)
    smoothed = model.each(knobs)
    before, after = (replies(smoothed, z, knobs, clean.sigma, seed, image.ids) for z in (x, found))
    return Attacked(x[0], found[0], target, distances(x, found)[0], before, after)


def replies(
    smoothed: dict[str, SmoothedClassifier],
    x: Tensor,
    knobs: Knobs,
    sigma: float,
    seed: int,
    ids: Tensor,
) -> dict[str, Reply]:
    """The prediction of f for x (1,C,H,W) without noise, and of each smoothed classifier.

    A `conditional` f gets the level `sigma`.
    """
    with torch.no_grad():
        plain = smoothed["g"].logits(x, torch.tensor([sigma])).argmax(dim=1)
    found = {"f": Reply(int(plain), None)}
    for name, g in smoothed.items():
        (answer,) = predict(g, x, n=knobs.n, alpha=ALPHA, seed=seed, ids=ids)
        found[name] = Reply(answer.prediction, answer.sigma)
    return found


def most_to_attack(model: Smoothers, knobs: Knobs, kind: AttackKind) -> int:
    stages = len(levels_of(model.deployed(knobs))) if model.in_use == "cascade" else 1
    strong = SAMPLES * stages + (MEDIAN_DRAWS + 1) * model.has_selector
    gradient = strong if kind == "strong" else 1
    return (knobs.steps + 1) * gradient + 2 + 3 * _most_to_answer(model, knobs)


def _most_to_answer(model: Smoothers, knobs: Knobs) -> int:
    """A prediction of every smoothed classifier."""
    smoothed = model.each(knobs)
    votes = (len(smoothed) - 1 + len(levels_of(smoothed["cascade"]))) * (knobs.n + 1)
    return votes + (knobs.n_select if model.has_selector else 0)
