"""Attacks on a data set, and the search for counterexamples inside the certified balls of a run."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from varsmooth.attacks import PGDOptions, pgd
from varsmooth.certificates import Prediction, Predictions
from varsmooth.data import Batch, ImageDataset
from varsmooth.defaults import ALPHA_SELECT
from varsmooth.errors import check
from varsmooth.evaluation.build import check_same_images, is_image_of, stored_model
from varsmooth.evaluation.options import (
    AttackOptions,
    DataOptions,
    ModelOptions,
    PredictOptions,
    RunOptions,
    recorded,
)
from varsmooth.evaluation.predict import predict_block
from varsmooth.evaluation.records import Key, Row, Run, read_certificate
from varsmooth.evaluation.runner import Evaluation, Setup, labels_or_none, other_model, run
from varsmooth.methods import predicting_method
from varsmooth.sampling import Sampler
from varsmooth.smoothing import SmoothedClassifier, evaluation_mode


def attack_dataset(
    model: ModelOptions, data: DataOptions, options: AttackOptions, run_options: RunOptions
) -> Run:
    """Attack every image of a data set at every budget into the folder of a run.

    Images without a label are attacked away from their predicted class. Images that are wrong,
    or abstained on, without any attack are left unchanged: they count as wrong already.
    """
    check(options.eps is not None, "an attack needs a budget: --eps 0.25,0.5")
    return run(Attacking(options), model, data, run_options)


@dataclass(frozen=True)
class Attacking(Evaluation):
    """For each image and budget, the prediction before and after the attack."""

    options: AttackOptions
    verb = "attack"

    @property
    def budgets(self) -> list[float]:
        return sorted(np.array(self.options.eps, float, ndmin=1).tolist())

    def config(self) -> dict[str, Any]:
        return asdict(self.options) | {"eps": self.budgets}

    def block(self, batch_size: int) -> int:
        """Images whose noisy copies for one gradient fill one batch; h is called batch by batch."""
        return max(1, batch_size // _copies(self.options))

    def keys(self, image: int) -> Iterable[Key]:
        return [(image, eps) for eps in self.budgets]

    def rows(self, setup: Setup, batch: Batch) -> list[Row]:
        x, ids = batch.images, batch.ids
        clean = self.predict(setup, x, ids)
        y = clean.counts.argmax(dim=1) if batch.labels is None else batch.labels
        right = (clean.prediction == y.cpu()).nonzero()[:, 0]
        rows = []
        for eps in self.budgets:
            adversarial, after = x.clone(), list(clean)
            if len(right) > 0:
                adversarial[right] = find_adversarial(
                    setup.g, x[right], y[right], eps, self.options, ids[right], clean.sigma[right]
                )
                # fresh noise, not the attack's
                votes = self.predict(setup, adversarial[right], ids[right])
                for i, prediction in zip(right.tolist(), votes, strict=True):
                    after[i] = prediction
            self.save_images(setup, ids, adversarial, f"eps-{eps:g}")
            pairs = zip(labels_or_none(batch), clean, after, distances(x, adversarial), strict=True)
            rows += [attack_row(label, eps, one, other, norm) for label, one, other, norm in pairs]
        return rows

    def predict(
        self, setup: Setup, x: Tensor, ids: Tensor, alpha_select: float = ALPHA_SELECT
    ) -> Predictions:
        """Predictions of the smoothed classifier for these images."""
        own = self.options
        votes = PredictOptions(own.n, own.alpha, alpha_select, own.seed)
        return predict_block(setup.g, x, ids, votes, setup.batch_size)

    def save_images(self, setup: Setup, ids: Tensor, adversarial: Tensor, budget: str) -> None:
        """A block's adversarial images as arrays `images` (B,C,H,W) in [0,1] and `ids` (B,)."""
        if self.options.save_images:
            folder = setup.record.folder / "images"
            folder.mkdir(exist_ok=True)
            path = folder / f"{budget}-{int(ids[0]):06d}.npz"
            np.savez_compressed(path, images=adversarial.cpu().numpy(), ids=ids.numpy())


def attack_row(
    label: int | None, eps: float, clean: Prediction, after: Prediction, norm: float
) -> Row:
    """The row of one attacked image."""
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
    options: AttackOptions,
    ids: Tensor,
    sigma_clean: Tensor,
) -> Tensor:
    """Images (B,C,H,W) within eps (ℓ2) of x at which PGD minimises the probability of class y.

    strong: gradients go through votes, noise and selector, whose median takes n_median_attack
    draws in each step; they average over selector_samples evaluations of selector and f. weak: on
    f without noise; an f that takes σ as an input gets sigma_clean (B,), the level chosen for the
    clean image. On the 8-bit lattice a perturbation is rounded toward zero, which keeps it within
    its budget.
    """
    view: Callable[[Tensor], Tensor] = partial(g.logits, sigma=sigma_clean.to(x))
    evaluations = 1
    if options.kind == "strong":
        evaluations = options.selector_samples  # each chooses its own levels
        view = SmoothedClassifier(
            g.classifier,
            g.selector.with_draws(options.n_median_attack),
            samples=_copies(options),
            temperature=g.temperature,
            lattice=g.lattice,
        )
    with evaluation_mode(g):
        adversarial = pgd(
            view,
            x,
            y.to(x.device),
            eps,
            options.steps,
            seed=options.seed,
            ids=ids,
            options=PGDOptions(restarts=options.restarts, samples=evaluations),
        )
    if g.lattice:
        adversarial = x + (255 * (adversarial - x)).trunc() / 255
        adversarial = (255 * adversarial).round() / 255
    return adversarial


def _copies(options: AttackOptions) -> int:
    """Noisy copies of an image behind one of the evaluations that a step averages."""
    return max(1, options.samples // options.selector_samples)


def distances(x: Tensor, other: Tensor) -> list[float]:
    """‖x − x'‖₂ of each pair of images, in double precision."""
    lengths: list[float] = (x.double() - other.double()).flatten(1).norm(dim=1).tolist()
    return lengths


SHRINK = 1 - 1e-6
"""The search stays this much inside the radius, because its arithmetic rounds."""

CONFIRMED = 1e-6
"""Maximum probability that a point inside a true radius is called a violation."""


def search_run(
    against: str | Path,
    options: AttackOptions,
    run_options: RunOptions,
    model: str | None = None,
    trust: list[str] | None = None,
) -> Run:
    """Attack every certified image of a run within its radius, and test each candidate.

    A violation is an x' closer than the radius where another class is more likely. The search is
    the strong attack at radius·(1 − 1e-6). A point where another class has more votes is tested
    again with fresh noise (`Method.contradicts`): only if it contradicts the certificate at a
    total error of 1e-6 is the row marked `violated`. `model` and `trust` are as for
    `verify_run`: code is never taken from the run.
    """
    certified = Run.open(against)
    balls = {row["id"]: row for row in certified.certified_rows("searched") if row["radius"] > 0}
    check(bool(balls), f"{against} has no certified image yet; certify images first")
    header = certified.header
    named, data = stored_model(header, model, trust), recorded(DataOptions, header["config"])
    search = Searching(options, str(Path(against).resolve()), header, balls)
    return run(search, named, data, run_options)


@dataclass(frozen=True)
class Searching(Attacking):
    """One row for each certified image."""

    against: str
    header: dict[str, Any]
    balls: Mapping[int, Row]

    def config(self) -> dict[str, Any]:
        return asdict(self.options) | {"against": self.against}

    def keys(self, image: int) -> Iterable[Key]:
        return [(image, self.balls[image]["radius"] * SHRINK)] if image in self.balls else []

    def check_images(self, images: ImageDataset, data: DataOptions) -> None:
        """The images must be those that were certified: of files, each as its row saw it."""
        check_same_images(self.header, images, data)
        for place, image in enumerate(images.ids.tolist()):
            row = self.balls.get(image)
            check(
                row is None or "pixels" not in row or is_image_of(row, images, place),
                f"image {image} is not the one that {self.against} certified",
            )

    def wrap_model(self, g: SmoothedClassifier, prints: Mapping[str, str]) -> SmoothedClassifier:
        different = other_model(self.header, g, prints["classifier"])
        check(not different, f"this is not the model of {self.against}: {'; '.join(different)}")
        return g

    def rows(self, setup: Setup, batch: Batch) -> list[Row]:
        chosen = [i for i, image in enumerate(batch.ids.tolist()) if image in self.balls]
        ids, x = batch.ids[chosen], batch.images[chosen]
        claims = [_claim(self.balls[i]) for i in ids.tolist()]
        radii: list[float] = [self.balls[i]["radius"] for i in ids.tolist()]
        classes = torch.tensor([claim.prediction for claim in claims])
        eps = torch.tensor([radius * SHRINK for radius in radii])
        sigma = torch.tensor([claim.sigma for claim in claims])
        adversarial = find_adversarial(setup.g, x, classes, eps.to(x), self.options, ids, sigma)
        spent = self.header["config"]["alpha_select"]  # as the radii assume it
        after = self.predict(setup, adversarial, ids, alpha_select=spent)
        self.save_images(setup, ids, adversarial, "radius")
        labels, rows, method = labels_or_none(batch), [], predicting_method(setup.g.selector)
        for i, (claim, norm) in enumerate(zip(claims, distances(x, adversarial), strict=True)):
            suspect = norm < radii[i] and method.suspect(after[i], claim.prediction)
            violated = suspect and self._confirmed(setup, adversarial[i : i + 1], claim)
            row = attack_row(labels[chosen[i]], radii[i] * SHRINK, claim, after[i], norm)
            guarantee = self.balls[claim.id]["guarantee"]
            rows.append(row | {"radius": radii[i], "guarantee": guarantee, "violated": violated})
        return rows

    def _confirmed(self, setup: Setup, x: Tensor, claim: Prediction) -> bool:
        """Does fresh noise contradict the class at x', at a total error of 1e-6?"""
        noise = setup.g.noise(1, self.options.seed, [claim.id]).scoped("confirmation")
        sampler = Sampler(setup.g, x, noise, setup.batch_size)
        method = predicting_method(setup.g.selector)
        return method.contradicts(sampler, claim.prediction, 10 * self.options.n, CONFIRMED)


def _claim(row: Row) -> Prediction:
    """The certified class of a row, and the votes at its σ."""
    counts = read_certificate(row["evidence"]).votes_at_sigma.counts
    return Prediction(
        row["prediction"], row["sigma"], counts, None, row["id"], 0, row.get("samples") or 0
    )
