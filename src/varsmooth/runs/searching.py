"""Looking for a counterexample inside every certified ball of a run."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from scipy.stats import binom
from torch import Tensor

from varsmooth.cascade import CascadeSelector
from varsmooth.certificates import Prediction
from varsmooth.data import Batch
from varsmooth.defaults import ABSTAIN
from varsmooth.errors import require
from varsmooth.evidence import Ledger
from varsmooth.prediction import predict
from varsmooth.runs.attacking import Attacking, attack_row, distances, find_adversarial
from varsmooth.runs.building import stored_model
from varsmooth.runs.options import AttackOptions, RunOptions, options_in
from varsmooth.runs.records import Key, Row, Run
from varsmooth.runs.runner import Setup, labels_of, other_model, run
from varsmooth.sampling import Sampler
from varsmooth.selectors import MedianSelector
from varsmooth.smoothing import SmoothedClassifier

SHRINK = 1 - 1e-6
"""The search stays this much inside the radius, because its arithmetic rounds."""

CONFIRMED = 1e-6
"""Maximum probability that a point inside a true radius is called a violation."""


def search_run(
    against: str | Path,
    settings: AttackOptions,
    options: RunOptions,
    model: str | None = None,
    trust: list[str] | None = None,
) -> Run:
    """Attack every certified image of a run within its radius, and test what was found.

    A violation is an x' closer than the radius with p(class | x') < ½. The search is the strong
    attack at radius·(1 − 1e-6). A point where fewer than half of n votes name the class is
    looked at again with fresh noise: first, the levels that the true median can have there, by its
    confidence interval from 10n + 1 draws of h (a selector without a grid: the level it chooses);
    then, 10n votes at each of them. Only if all of these speak against p ≥ ½ at a total of 1e-6 is
    the row marked `violated`. `model` and `trust` are as for `verify_run`: code is never taken from
    the run.
    """
    require(settings.eps is None, "the search takes its budgets from the radii; leave out --eps")
    certified = Run.open(against)
    require(
        certified.header["verb"] == "certify",
        f"{against} is a run of {certified.header['verb']}, not of certify; it has no radii",
    )
    config = certified.header["config"]
    named, data = stored_model(config, model, trust), options_in(config)[1]
    balls = {row["id"]: row for row in certified.rows() if row["radius"] > 0}
    require(bool(balls), f"{against} has no certified image yet; there is nothing to search")
    require(
        all(row["evidence"] for row in balls.values()),
        f"{against} has rows without evidence, so its certificates cannot be searched",
    )
    evaluation = Searching(settings, str(Path(against).resolve()), certified.header, balls)
    return run(evaluation, named, data, options)


def violations(found: Run) -> list[Row]:
    """The rows whose certificate is false."""
    return [row for row in found.rows() if row["violated"]]


@dataclass(frozen=True)
class Searching(Attacking):
    """One row for each certified image."""

    against: str
    header: dict[str, Any]
    balls: Mapping[int, Row]

    def config(self) -> dict[str, Any]:
        return asdict(self.settings) | {"against": self.against}

    def keys(self, image: int) -> Iterable[Key]:
        return [(image, self.balls[image]["radius"] * SHRINK)] if image in self.balls else []

    def equip(self, g: SmoothedClassifier) -> SmoothedClassifier:
        different = other_model(self.header, g)
        require(not different, f"this is not the model of {self.against}: {'; '.join(different)}")
        return g

    def rows(self, setup: Setup, batch: Batch) -> list[Row]:
        chosen = [i for i, image in enumerate(batch.ids.tolist()) if image in self.balls]
        ids, x = batch.ids[chosen], batch.images[chosen]
        claims = [_claim(self.balls[i]) for i in ids.tolist()]
        radii: list[float] = [self.balls[i]["radius"] for i in ids.tolist()]
        classes = torch.tensor([claim.prediction for claim in claims])
        eps = torch.tensor([radius * SHRINK for radius in radii])
        sigma = torch.tensor([claim.sigma for claim in claims])
        found = find_adversarial(setup.g, x, classes, eps.to(x), self.settings, ids, sigma)
        spent = self.header["config"]["alpha_select"]  # as the radii assume it
        after = self.answers(setup, found, ids, alpha_select=spent)
        self.keep(setup, ids, found, "radius")
        labels, rows = labels_of(batch), []
        for i, (claim, norm) in enumerate(zip(claims, distances(x, found), strict=True)):
            suspect = norm < radii[i] and self._suspect(setup.g, after[i], claim.prediction)
            violated = suspect and self._confirmed(setup, found[i : i + 1], claim)
            row = attack_row(labels[chosen[i]], radii[i] * SHRINK, claim, after[i], norm)
            guarantee = self.balls[claim.id]["guarantee"]
            rows.append(row | {"radius": radii[i], "guarantee": guarantee, "violated": violated})
        return rows

    def _suspect(self, g: SmoothedClassifier, after: Prediction, claimed: int) -> bool:
        """Whether x' looks like a counterexample; a cascade must answer another class there."""
        if isinstance(g.selector, CascadeSelector):
            return after.prediction not in (claimed, ABSTAIN)
        return 2 * after.counts[claimed] < self.settings.n

    def _confirmed(self, setup: Setup, x: Tensor, claim: Prediction) -> bool:
        """Does fresh noise show p(class | x') < ½ at every level the median can have at x'?

        Of a cascade: does its deployed rule, at 1e-6, answer another class?
        """
        n, ids = 10 * self.settings.n, [claim.id]
        if isinstance(setup.g.selector, CascadeSelector):
            size = setup.batch_size
            (again,) = predict(setup.g, x, n=n, alpha=CONFIRMED, ids=ids, batch_size=size)
            return again.prediction not in (claim.prediction, ABSTAIN)
        noise = setup.g.noise(1, self.settings.seed, ids).scoped("confirmation")
        sampler = Sampler(setup.g, x, noise, setup.batch_size)
        levels = plausible_levels(sampler, n + 1, CONFIRMED / 2)
        counts = [sampler.counts([0], [level], n, "votes")[0, claim.prediction] for level in levels]
        return all(binom.cdf(int(k), n, 0.5) <= CONFIRMED / 2 for k in counts)


def _claim(row: Row) -> Prediction:
    """What a certified row says of its image, and the votes it rests on."""
    counts = tuple(row["evidence"]["votes"][0]["counts"])
    return Prediction(row["prediction"], row["sigma"], counts, None, row["id"], 0)


def plausible_levels(sampler: Sampler, n: int, a: float) -> list[float]:
    """Levels that contain the ideal median's one with probability ≥ 1 − a (one image).

    With D = 0 the bounds of median smoothing are the median's own confidence interval.
    """
    selector = sampler.g.selector
    if not (isinstance(selector, MedianSelector) and selector.grid is not None):
        return sampler.chosen_levels()
    (evidence,) = sampler.selector_evidence(n, distance=0.0)
    return evidence.levels_between(Ledger(a, a, alpha_select=a), every_index=True)
