"""An attack on one image, and what every classifier says before and after."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from varsmooth.app.knobs import STEPS, Knobs
from varsmooth.app.models import Model
from varsmooth.data import Batch
from varsmooth.defaults import ALPHA
from varsmooth.noise import NoiseStream
from varsmooth.prediction import predict
from varsmooth.runs.attacking import distances, find_adversarial
from varsmooth.runs.options import AttackOptions
from varsmooth.smoothing import SmoothedClassifier

SAMPLES = 16  # noisy copies behind each gradient
MEDIAN_DRAWS = 11  # of h behind each gradient

Kind = Literal["strong", "weak"]


@dataclass(frozen=True)
class Answer:
    """A class (−1: abstains) and the σ it was given under; f has none."""

    prediction: int
    sigma: float | None


@dataclass(frozen=True)
class Attacked:
    """The adversarial image, and the answers of f, g, g_v, g_v* before and after."""

    x: Tensor  # (C,H,W)
    adversarial: Tensor  # (C,H,W)
    target: int  # the class that the attack drives away from
    distance: float
    before: dict[str, Answer]
    after: dict[str, Answer]


def attack(
    model: Model,
    image: Batch,
    knobs: Knobs,
    steps: int = 20,
    kind: Kind = "strong",
    seed: int | None = None,
) -> Attacked:
    """PGD within the budget, away from the label, or from what the votes say if there is none.

    strong: gradients through selector, noise and votes of the best protected classifier;
    weak: through f alone.
    """
    STEPS.check("the number of steps", steps)
    seed = NoiseStream.make(1, seed).seed
    smoothed, x = model.smoothed(knobs), image.images
    (clean,) = predict(model.deployed(knobs), x, n=knobs.n, alpha=None, seed=seed, ids=image.ids)
    target = clean.prediction if image.labels is None else int(image.labels[0])
    settings = AttackOptions(
        kind=kind, steps=steps, samples=SAMPLES, n_median_attack=MEDIAN_DRAWS, seed=seed
    )
    found = find_adversarial(
        model.deployed(knobs),
        x,
        torch.tensor([target]),
        knobs.budget,
        settings,
        image.ids,
        torch.tensor([clean.sigma]),
    )
    return Attacked(
        x[0],
        found[0],
        target,
        distances(x, found)[0],
        answers(smoothed, x, knobs, clean.sigma, seed, image.ids),
        answers(smoothed, found, knobs, clean.sigma, seed, image.ids),
    )


def answers(
    smoothed: dict[str, SmoothedClassifier],
    x: Tensor,
    knobs: Knobs,
    sigma: float,
    seed: int,
    ids: Tensor,
) -> dict[str, Answer]:
    """What f says of x (1,C,H,W) without noise, and what each smoothed classifier says.

    sigma: the level that an f which wants to know one is told.
    """
    with torch.no_grad():
        plain = smoothed["g"].logits(x, torch.tensor([sigma])).argmax(dim=1)
    said = {"f": Answer(int(plain), None)}
    for name, g in smoothed.items():
        (answer,) = predict(g, x, n=knobs.n, alpha=ALPHA, seed=seed, ids=ids)
        said[name] = Answer(answer.prediction, answer.sigma)
    return said


def most_images(model: Model, knobs: Knobs, steps: int, kind: Kind) -> int:
    """How many images the networks are shown at most, for the progress bar."""
    draws = knobs.n_select if model.has_selector else 0
    vote = knobs.n + draws
    ways = 3 if model.has_selector else 1
    gradient = SAMPLES + (MEDIAN_DRAWS + 1) * model.has_selector if kind == "strong" else 1
    return vote + (steps + 1) * gradient + 2 * (1 + ways * (knobs.n + 1) + draws)
