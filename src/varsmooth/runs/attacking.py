"""Attacks on a data set: what the smoothed classifier says before and after."""

from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor

from varsmooth.attacks import pgd
from varsmooth.certificates import Prediction, Predictions
from varsmooth.data import Batch
from varsmooth.errors import require
from varsmooth.prediction import predict
from varsmooth.runs.building import listed
from varsmooth.runs.options import AttackOptions, DataOptions, ModelOptions, RunOptions
from varsmooth.runs.records import Key, Row, Run
from varsmooth.runs.runner import Evaluation, Setup, labels_of, run
from varsmooth.selectors import MedianSelector
from varsmooth.smoothing import Selector, SmoothedClassifier, evaluation_mode


def attack_dataset(
    model: ModelOptions, data: DataOptions, settings: AttackOptions, options: RunOptions
) -> Run:
    """Attack every image of a data set at every budget into the folder of a run.

    Images without a label are driven away from what the smoothed classifier says of them. Images
    that it gets wrong, or abstains on, without any attack are left as they are: no attack can
    make them count for less.
    """
    require(settings.eps is not None, "an attack needs a budget: --eps 0.25,0.5")
    return run(Attacking(settings), model, data, options)


@dataclass(frozen=True)
class Attacking(Evaluation):
    """For each image and budget, the smoothed classifier before and after."""

    settings: AttackOptions
    verb = "attack"

    @property
    def budgets(self) -> list[float]:
        return sorted(float(eps) for eps in listed(self.settings.eps))

    def config(self) -> dict[str, Any]:
        return asdict(self.settings) | {"eps": self.budgets}

    def block(self, batch_size: int) -> int:
        """Images whose noisy copies for one gradient step fill one batch."""
        return max(1, batch_size // max(self.settings.samples, self.settings.n_median_attack))

    def keys(self, image: int) -> Iterable[Key]:
        return [(image, eps) for eps in self.budgets]

    def rows(self, setup: Setup, batch: Batch) -> list[Row]:
        x, ids = batch.images, batch.ids
        clean = self.answers(setup, x, ids)
        y = clean.counts.argmax(dim=1) if batch.labels is None else batch.labels
        right = (clean.prediction == y.cpu()).nonzero()[:, 0]
        rows = []
        for eps in self.budgets:
            found, after = x.clone(), list(clean)
            if len(right) > 0:
                found[right] = find_adversarial(
                    setup.g, x[right], y[right], eps, self.settings, ids[right], clean.sigma[right]
                )
                votes = self.answers(setup, found[right], ids[right])  # not the attack's noise
                for i, answer in zip(right.tolist(), votes, strict=True):
                    after[i] = answer
            self.keep(setup, ids, found, f"eps-{eps:g}")
            pairs = zip(labels_of(batch), clean, after, distances(x, found), strict=True)
            rows += [attack_row(label, eps, one, other, norm) for label, one, other, norm in pairs]
        return rows

    def answers(self, setup: Setup, x: Tensor, ids: Tensor, **more: Any) -> Predictions:
        """What the smoothed classifier says of these images."""
        asked = {name: getattr(self.settings, name) for name in ("n", "alpha", "seed")}
        return predict(setup.g, x, ids=ids, batch_size=setup.batch_size, **asked, **more)

    def keep(self, setup: Setup, ids: Tensor, found: Tensor, budget: str) -> None:
        """A block's adversarial images as arrays `images` (B,C,H,W) in [0,1] and `ids` (B,)."""
        if self.settings.save_images:
            folder = setup.record.folder / "images"
            folder.mkdir(exist_ok=True)
            path = folder / f"{budget}-{int(ids[0]):06d}.npz"
            np.savez_compressed(path, images=found.cpu().numpy(), ids=ids.numpy())


def attack_row(
    label: int | None, eps: float, clean: Prediction, after: Prediction, norm: float
) -> Row:
    """What an attack did to one image."""
    return {
        "id": after.id,
        "label": label,
        "eps": eps,
        "clean_prediction": clean.prediction,
        "prediction": after.prediction,
        "sigma_clean": clean.sigma,
        "sigma": after.sigma,
        "norm": norm,
        "clean_counts": list(clean.counts),
        "counts": list(after.counts),
    }


def find_adversarial(
    g: SmoothedClassifier,
    x: Tensor,
    y: Tensor,
    eps: float | Tensor,
    settings: AttackOptions,
    ids: Tensor,
    sigma_clean: Tensor,
) -> Tensor:
    """Images (B,C,H,W) within eps (ℓ2) of x that g is least likely to call y.

    strong: gradients go through votes, noise and selector, whose median takes n_median_attack
    draws in each step; they average over selector_samples evaluations of selector and f. weak: on
    f without noise; an f that takes σ as an input gets sigma_clean (B,), the level chosen for the
    clean image. On the 8-bit lattice a perturbation is rounded toward zero, which keeps it within
    its budget.
    """
    view: Callable[[Tensor], Tensor] = partial(g.logits, sigma=sigma_clean.to(x))
    evaluations = 1
    if settings.kind == "strong":
        evaluations = settings.selector_samples  # each chooses its own levels
        view = SmoothedClassifier(
            g.classifier,
            _quicker(g.selector, settings.n_median_attack),
            samples=max(1, settings.samples // evaluations),
            temperature=g.temperature,
            lattice=g.lattice,
        )
    with evaluation_mode(g):
        found = pgd(
            view,
            x,
            y.to(x.device),
            eps,
            settings.steps,
            restarts=settings.restarts,
            samples=evaluations,
            seed=settings.seed,
            ids=ids,
        )
    if g.lattice:
        found = x + (255 * (found - x)).trunc() / 255
        found = (255 * found).round() / 255
    return found


def distances(x: Tensor, other: Tensor) -> list[float]:
    """‖x − x'‖₂ of each pair of images, in double precision."""
    lengths: list[float] = (x.double() - other.double()).flatten(1).norm(dim=1).tolist()
    return lengths


def _quicker(selector: Selector, n: int) -> Selector:
    """The same selector with a median of fewer draws."""
    if isinstance(selector, MedianSelector):
        selector = copy(selector)
        selector.n = n
    return selector
