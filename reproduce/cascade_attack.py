"""An attack on certified cascades: inside 0.95 R nothing may be found, beyond R something must.

PGD follows the soft cascade with fresh noise at every step (EOT); points that fool one stage alone
are tried too. Each point is judged by the deployed rule, with so many votes that a wrong class is
no accident.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from reproduce.cascade_votes import BLOCK, VoteScale, certify_with, votes_of
from reproduce.harness import Context, Experiment, Result
from reproduce.scales import size
from varsmooth import ABSTAIN, CascadeSelector, FixedSelector, SmoothedClassifier, pgd, predict
from varsmooth._util.files import replace_file
from varsmooth.data import load_dataset
from varsmooth.evaluation.report.tables import Cell, Table
from varsmooth.models.loading import load
from varsmooth.models.options import stages_for

SURE = 1e-6
"""Probability that the deployed rule errs on a point that is called wrong, at most."""


@dataclass(frozen=True, kw_only=True)
class CascadeAttackScale(VoteScale):
    """Certified and right test images, under attacks from each stage and from all."""

    images: int = size("certified test images", 100, stated=False)
    lam: float = size("λ", 1.0, stated=False)
    inside: float = size("attack budget / R", 0.95, stated=False)
    beyond: tuple[float, ...] = size("attack budgets beyond R", (2.0,), stated=False)
    steps: int = size("PGD steps", 200, stated=False)
    restarts: int = size("restarts", 2, stated=False)
    samples: int = size("noisy copies of each stage and step", 4, stated=False)
    judges: int = size("votes that judge a point", 2000, stated=False)


@dataclass(frozen=True)
class Target:
    """A test image that the cascade gets right, and its certified radius."""

    image: int
    label: int
    radius: float


def targets(context: Context, scale: CascadeAttackScale) -> list[Target]:
    """The first test images that are right and certified."""
    rule = stages_for(context.about(scale.need).cascades, scale.lam)
    found: list[Target] = []
    count = 0
    while len(found) < scale.images:
        count += BLOCK
        table = votes_of(context, scale, "test", scale.n, count)
        made = certify_with(table, rule, scale.n, scale.seed)
        found = [
            Target(i, label, made.radii[i])
            for i, label in enumerate(table.labels.tolist())
            if made.radii[i] > 0 and made.predictions[i] == label
        ]
    return found[: scale.images]


def attacks(
    g: SmoothedClassifier, x: Tensor, y: Tensor, radius: Tensor, scale: CascadeAttackScale
) -> Iterator[tuple[str, float, Tensor]]:
    """(attack, budget / R, adversarial images)."""
    assert isinstance(g.selector, CascadeSelector)
    steps, seed = scale.steps, scale.seed
    near = scale.inside * radius
    yield (
        "soft cascade",
        scale.inside,
        pgd(g, x, y, near, steps, restarts=scale.restarts, seed=seed),
    )
    for s in g.selector.stages.levels:
        alone = SmoothedClassifier(g.classifier, FixedSelector(s), samples=scale.samples)
        yield f"σ = {s:.3g} alone", scale.inside, pgd(alone, x, y, near, steps, seed=seed)
    for factor in scale.beyond:
        yield "soft cascade", factor, pgd(g, x, y, factor * radius, steps, seed=seed)


def judged_wrong(
    g: SmoothedClassifier, x: Tensor, y: Tensor, scale: CascadeAttackScale
) -> list[bool]:
    """Whether the deployed rule surely answers another class; few votes suffice for most."""
    first = predict(g, x, n=200, alpha=None, seed=scale.seed).prediction
    wrong = [False] * len(x)
    doubtful = [i for i in range(len(x)) if int(first[i]) != int(y[i])]
    if doubtful:
        sure = predict(g, x[doubtful], n=scale.judges, alpha=SURE, seed=scale.seed + 1)
        for i, answer in zip(doubtful, sure.prediction.tolist(), strict=True):
            wrong[i] = answer not in (ABSTAIN, int(y[i]))
    return wrong


def attack_block(
    context: Context, scale: CascadeAttackScale, some: list[Target]
) -> list[dict[str, Any]]:
    """Every attack on some images; kept in the store."""
    name = context.model(scale.need)
    asked = json.dumps([asdict(replace(scale, images=0)), [asdict(target) for target in some]])
    digest = hashlib.sha256(asked.encode()).hexdigest()[:20]  # all that the block depends on
    path = context.store / "cascade-attack" / Path(name).name / f"{digest}.json"
    if path.is_file():
        kept: list[dict[str, Any]] = json.loads(path.read_text())
        return kept
    tuned = load(name, selector="cascade", lam=scale.lam)
    g = SmoothedClassifier(tuned.classifier, tuned.selector, samples=scale.samples)
    data = load_dataset(scale.data, "test", context.root)
    x, _, _ = data.batch([target.image for target in some])
    y = torch.tensor([target.label for target in some])
    radius = torch.tensor([target.radius for target in some], dtype=x.dtype)
    rows = []
    with torch.autocast(x.device.type, torch.bfloat16):  # gradients alone; votes are in float32
        every = list(attacks(g, x, y, radius, scale))
    for attack, factor, found in every:
        share = ((found - x).flatten(1).norm(dim=1) / radius).tolist()
        wrong = judged_wrong(g, found, y, scale)
        rows += [
            {"image": t.image, "attack": attack, "factor": factor, "share": share[i]}
            | {"wrong": wrong[i]}
            for i, t in enumerate(some)
        ]
    replace_file(path, json.dumps(rows).encode())
    return rows


def cascade_attack(context: Context, scale: CascadeAttackScale) -> Result:
    """How many certified images each attack fools, inside and beyond the radius."""

    def make() -> list[dict[str, Any]]:
        every = targets(context, scale)
        blocks = [every[i : i + 10] for i in range(0, len(every), 10)]
        return [row for some in blocks for row in attack_block(context, scale, some)]

    rows = context.fact("attacked images", make)
    groups: dict[tuple[str, float], list[bool]] = {}
    for row in rows:
        groups.setdefault((row["attack"], row["factor"]), []).append(row["wrong"])
    table = Table(
        "cascade-attack",
        "Test images that are classified correctly and certified, cascade at λ = "
        f"{scale.lam:g}: how many get a wrong class within the budget, by the deployed rule with "
        f"{scale.judges} votes a stage at α = {SURE:g}.",
        ["attack", "budget / R", "images", "wrong class"],
        [
            [Cell.of(name), Cell(f"{factor:g}", factor), Cell.of(len(w)), Cell.of(sum(w))]
            for (name, factor), w in groups.items()
        ],
    )
    return Result([], [table])


CASCADE_ATTACK: Experiment[CascadeAttackScale] = Experiment(
    name="cascade-attack",
    paper="beyond the paper",
    title="PGD through the soft cascade and from each stage, inside and beyond R",
    scales={"cpu": CascadeAttackScale(), "paper": CascadeAttackScale(images=1000)},
    time={"cpu": "1 CPU hour", "paper": "a GPU hour"},
    run=cascade_attack,
    needs=lambda scale: [replace(scale.need, selector=False)],
)
