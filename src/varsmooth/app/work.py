"""What is computed: the live view of one image, certificates, an attack.

Beside each, an upper bound on the images passed through the networks, for the progress bar.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from varsmooth.api import certify, certify_as_paper, predict
from varsmooth.app.options import PageOptions, Smoothers, levels_of
from varsmooth.certificates import Certificate, Certificates, Prediction
from varsmooth.data import ImageDataset
from varsmooth.defaults import ALPHA, N0, N_SELECT, Options
from varsmooth.evaluation.attack import distances, find_adversarial
from varsmooth.evaluation.options import AttackOptions
from varsmooth.evidence import SelectorEvidence
from varsmooth.noise import NoiseStream
from varsmooth.probe import check_assumptions
from varsmooth.sampling import Sampler

CURVE = 9  # levels between the ends of the curve
SAMPLES = 16  # noisy copies behind each gradient of an attack
MEDIAN_DRAWS = 11  # of h behind each gradient

AttackKind = Literal["strong", "weak"]


@dataclass(frozen=True)
class View:
    """One noisy copy of the image, and its prediction."""

    noisy: Tensor  # (C,H,W), clipped to [0,1] for the eye
    result: Prediction


def look(model: Smoothers, image: ImageDataset, options: PageOptions, seed: int) -> View:
    """Predict one image and keep what the page shows. The same seed draws the same noise."""
    (x, _, ids), g = image.batch([0]), model.deployed(options)
    check_assumptions(g, x)
    (result,) = predict(g, x, n=options.n, alpha=ALPHA, seed=seed, ids=ids)
    noise = g.noise(1, seed, ids)
    _, epsilon = next(noise.batches(x, "picture", 1))
    noisy = noise.perturb(x, torch.tensor([result.sigma]), epsilon)
    return View(noisy[0].clamp(0, 1), result)


def draws_of_selector(
    model: Smoothers, image: ImageDataset, options: PageOptions, seed: int
) -> tuple[SelectorEvidence, float]:
    """What h returned on the noisy copies behind the median of g_v*, and the level in use."""
    (x, _, ids), g = image.batch([0]), model.each(options)["g_v*"]
    h, about = model.checkpoint.selector, g.selector.describe()
    assert h is not None
    outputs: list[Tensor] = []
    with h.register_forward_hook(lambda *call: outputs.append(call[2])):
        (sigma,) = Sampler(g, x, g.noise(1, seed, ids), None).chosen_levels()
    samples = tuple(torch.cat(outputs).sort().values.tolist())
    shown = SelectorEvidence(samples, about["sigma_m"], about["clip"], distance=options.budget)
    return shown, sigma


# Certificates


def curve_levels(model: Smoothers, options: PageOptions) -> tuple[float, ...]:
    """The σ of the curve: the grid's levels, the one σ, and some between them."""
    levels = {*model.levels(options), options.sigma}
    between = np.geomspace(min(options.low, *levels), max(options.high, *levels), CURVE)
    near = [s for s in between if all(abs(s / level - 1) > 0.08 for level in levels)]
    return tuple(sorted(float(np.float32(s)) for s in {*levels, *near}))


def certify_levels(
    model: Smoothers, image: ImageDataset, levels: Sequence[float], n: int, seed: int
) -> tuple[Certificate, ...]:
    """The certificate of one image at each of these fixed levels."""
    settings = _settings(image, n, seed)
    return tuple(certify(model.at(sigma), **settings)[0] for sigma in levels)


def certify_as(
    way: str, model: Smoothers, images: ImageDataset, options: PageOptions, seed: int
) -> Certificates:
    """The sound certificates of g, g_v* or the cascade."""
    settings = _settings(images, options.n, seed, options.n_select)
    return certify(model.each(options)[way], **settings)


def certify_each_way(
    model: Smoothers, image: ImageDataset, options: PageOptions, seed: int | None = None
) -> dict[str, Certificate]:
    """The sound certificate of each smoothed classifier, and the paper's value at D = budget.

    All use the same noise, fresh unless `seed` is set. Each holds by itself; quoting the
    largest of several needs a union bound over them.
    """
    seed = NoiseStream.make(1, seed).seed
    certificates = {way: certify_as(way, model, image, options, seed)[0] for way in model.ways}
    if model.has_selector:
        settings = _settings(image, options.n, seed, options.n_select)
        paper = certify_as_paper(model.each(options)["g_v*"], distance=options.budget, **settings)
        certificates["paper"] = paper[0]
    return certificates


def _settings(images: ImageDataset, n: int, seed: int, n_select: int = N_SELECT) -> Any:
    x, _, ids = images.batch(slice(None))
    return {"x": x, "ids": ids, "n": n, "seed": seed, "options": Options(n_select=n_select)}


def most_to_look(model: Smoothers, options: PageOptions) -> int:
    curve = len(curve_levels(model, options)) * (N0 + options.n)
    return 2 * _most_to_predict(model, options) + curve + most_to_certify(model, options)


def most_to_certify(model: Smoothers, options: PageOptions) -> int:
    vote, smoothed = N0 + options.n, model.each(options)
    most = vote + len(levels_of(smoothed["cascade"])) * vote
    if not model.has_selector:
        return most
    protected = 2 * N0 + options.n_select + len(levels_of(smoothed["g_v*"])) * options.n
    return most + protected + (options.n_select + 3 * vote)


# Attacks


Reply = tuple[int, float | None]
"""A class (−1: abstains) and the σ of its votes; None for f."""


@dataclass(frozen=True)
class Attacked:
    """The adversarial image, and the classes of f without noise, g, g_v, g_v* before and after."""

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
    options: PageOptions,
    kind: AttackKind = "strong",
    seed: int | None = None,
) -> Attacked:
    """PGD within the budget, away from the label, or from the majority vote if there is none.

    strong: gradients through selector, noise and votes of the classifier in use;
    weak: through f alone.
    """
    seed = NoiseStream.make(1, seed).seed
    ways, (x, labels, ids) = model.each(options), image.batch([0])
    g = ways[model.in_use]
    (clean,) = predict(g, x, n=options.n, alpha=None, seed=seed, ids=ids)
    target = clean.prediction if labels is None else int(labels[0])
    settings = AttackOptions(
        kind=kind, steps=options.steps, samples=SAMPLES, n_median_attack=MEDIAN_DRAWS, seed=seed
    )
    y, sigma = torch.tensor([target]), torch.tensor([clean.sigma])
    adversarial = find_adversarial(g, x, y, options.budget, settings, ids, sigma)

    def replies(x: Tensor) -> dict[str, Reply]:
        with torch.no_grad():  # a `conditional` f gets the level of the clean image
            classes: dict[str, Reply] = {"f": (int(g.logits(x, sigma).argmax()), None)}
        for name, way in ways.items():
            (result,) = predict(way, x, n=options.n, alpha=ALPHA, seed=seed, ids=ids)
            classes[name] = (result.prediction, result.sigma)
        return classes

    distance = distances(x, adversarial)[0]
    return Attacked(x[0], adversarial[0], target, distance, replies(x), replies(adversarial))


def most_to_attack(model: Smoothers, options: PageOptions, kind: AttackKind) -> int:
    stages = len(levels_of(model.deployed(options))) if model.in_use == "cascade" else 1
    strong = SAMPLES * stages + (MEDIAN_DRAWS + 1) * model.has_selector
    gradient = strong if kind == "strong" else 1
    return (options.steps + 1) * gradient + 2 + 3 * _most_to_predict(model, options)


def _most_to_predict(model: Smoothers, options: PageOptions) -> int:
    """A prediction of every smoothed classifier."""
    smoothed = model.each(options)
    votes = (len(smoothed) - 1 + len(levels_of(smoothed["cascade"]))) * (options.n + 1)
    return votes + (options.n_select if model.has_selector else 0)
