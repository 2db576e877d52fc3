"""What is computed: a view of one image as knobs are turned, certificates, an attack.

Beside each, how many images the networks are shown at most, for the progress bar.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from varsmooth.api import certify, certify_as_paper, predict
from varsmooth.app.knobs import Knobs, Smoothers, levels_of
from varsmooth.certificates import Certificate, Certificates, Prediction
from varsmooth.data import ImageDataset
from varsmooth.defaults import ALPHA, ALPHA_SELECT, N0
from varsmooth.evaluation.attack import distances, find_adversarial
from varsmooth.evaluation.options import AttackOptions
from varsmooth.evidence import SelectorEvidence
from varsmooth.noise import NoiseStream
from varsmooth.selectors import MedianSelector

CURVE = 9  # levels between the ends of the curve
SAMPLES = 16  # noisy copies behind each gradient of an attack
MEDIAN_DRAWS = 11  # of h behind each gradient

AttackKind = Literal["strong", "weak"]


@dataclass(frozen=True)
class View:
    """One noisy copy of the image, the answer, and h's draws."""

    noisy: Tensor  # (C,H,W), clipped to [0,1] for the eye
    answer: Prediction
    draws: SelectorEvidence | None  # at the attacker's budget; None: there is no h


def look(model: Smoothers, image: ImageDataset, knobs: Knobs, seed: int) -> View:
    """Predict one image, and keep what there is to see. The same seed draws the same noise."""
    (x, _, ids), g, h = image.batch([0]), model.deployed(knobs), model.checkpoint.selector
    heard: list[Tensor] = []  # what h says meanwhile: it need not be evaluated again
    with nullcontext() if h is None else h.register_forward_hook(lambda *c: heard.append(c[2])):
        (answer,) = predict(g, x, n=knobs.n, alpha=ALPHA, seed=seed, ids=ids)
    noise = g.noise(1, seed, ids)
    _, epsilon = next(noise.batches(x, "picture", 1))
    noisy = noise.perturb(x, torch.tensor([answer.sigma]), epsilon)
    draws, median = None, g.selector
    if isinstance(median, MedianSelector):
        samples = tuple(torch.cat(heard).sort().values.tolist())
        draws = SelectorEvidence(samples, median.sigma_m, median.clip, distance=knobs.budget)
    return View(noisy[0].clamp(0, 1), answer, draws)


# Certificates


def curve_levels(model: Smoothers, knobs: Knobs) -> tuple[float, ...]:
    """The σ of the curve: the grid's levels, the one σ, and some between them."""
    levels = {*model.levels(knobs), knobs.sigma}
    between = np.geomspace(min(knobs.low, *levels), max(knobs.high, *levels), CURVE)
    near = [s for s in between if all(abs(s / level - 1) > 0.08 for level in levels)]
    return tuple(sorted(float(np.float32(s)) for s in {*levels, *near}))


def certify_levels(
    model: Smoothers, image: ImageDataset, levels: Sequence[float], n: int, seed: int
) -> tuple[Certificate, ...]:
    """The certificate of one image at each of these fixed levels."""
    settings = _settings(image, n, seed)
    return tuple(certify(model.at(sigma), **settings)[0] for sigma in levels)


def certify_as(
    way: str, model: Smoothers, images: ImageDataset, knobs: Knobs, seed: int
) -> Certificates:
    """The sound certificates of g, g_v* or the cascade."""
    n_select = knobs.n_select if way == "g_v*" else None
    return certify(model.each(knobs)[way], **_settings(images, knobs.n, seed, n_select))


def certify_each_way(
    model: Smoothers, image: ImageDataset, knobs: Knobs, seed: int | None = None
) -> dict[str, Certificate]:
    """The sound certificate of every way to choose σ, and the paper's value at D = budget.

    All see the same noise, fresh unless a seed is given. Each holds by itself; quoting the
    largest of several is a choice that costs α.
    """
    seed = NoiseStream.make(1, seed).seed
    found = {way: certify_as(way, model, image, knobs, seed)[0] for way in model.ways}
    if model.has_selector:
        settings = _settings(image, knobs.n, seed, knobs.n_select)
        paper = certify_as_paper(model.deployed(knobs), distance=knobs.budget, **settings)
        found["paper"] = paper[0]
    return found


def _settings(images: ImageDataset, n: int, seed: int, n_select: int | None = None) -> Any:
    x, _, ids = images.batch(slice(None))
    of_h = {} if n_select is None else {"n_select": n_select, "alpha_select": ALPHA_SELECT}
    return {"x": x, "ids": ids, "n0": N0, "n": n, "alpha": ALPHA, "seed": seed, **of_h}


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


Reply = tuple[int, float | None]
"""A class (−1: abstains) and the σ it was given under; f has none."""


@dataclass(frozen=True)
class Attacked:
    """The adversarial image, and the replies of f without noise, g, g_v, g_v* before and after."""

    x: Tensor  # (C,H,W)
    adversarial: Tensor  # (C,H,W)
    target: int  # the class that the attack drives away from
    distance: float
    before: dict[str, Reply]
    after: dict[str, Reply]

    def perturbation(self) -> tuple[Tensor, float]:
        """What was added, as far as [0,1] allows around grey, and by what factor."""
        difference = self.adversarial - self.x
        factor = 0.5 / (float(difference.abs().max()) or 0.5)
        return 0.5 + factor * difference, factor


def attack(
    model: Smoothers,
    image: ImageDataset,
    knobs: Knobs,
    kind: AttackKind = "strong",
    seed: int | None = None,
) -> Attacked:
    """PGD within the budget, away from the label, or from the majority vote if there is none.

    strong: gradients through selector, noise and votes of the classifier in use;
    weak: through f alone.
    """
    seed = NoiseStream.make(1, seed).seed
    ways, (x, labels, ids) = model.each(knobs), image.batch([0])
    g = ways[model.in_use]
    (clean,) = predict(g, x, n=knobs.n, alpha=None, seed=seed, ids=ids)
    target = clean.prediction if labels is None else int(labels[0])
    settings = AttackOptions(
        kind=kind, steps=knobs.steps, samples=SAMPLES, n_median_attack=MEDIAN_DRAWS, seed=seed
    )
    y, sigma = torch.tensor([target]), torch.tensor([clean.sigma])
    found = find_adversarial(g, x, y, knobs.budget, settings, ids, sigma)

    def replies(x: Tensor) -> dict[str, Reply]:
        with torch.no_grad():  # a `conditional` f gets the level of the clean image
            said: dict[str, Reply] = {"f": (int(g.logits(x, sigma).argmax()), None)}
        for name, way in ways.items():
            (answer,) = predict(way, x, n=knobs.n, alpha=ALPHA, seed=seed, ids=ids)
            said[name] = (answer.prediction, answer.sigma)
        return said

    distance = distances(x, found)[0]
    return Attacked(x[0], found[0], target, distance, replies(x), replies(found))


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
