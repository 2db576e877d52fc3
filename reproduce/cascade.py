"""A sound σ per image against every single σ: cascades of noise levels (beyond the paper).

The votes of f are counted once for every level, class and confidence, in blocks that resume.
Stages, thresholds and gate are chosen on held-out images. Every certificate of the test images then
follows from the table as `certify` would make it: class, stage and votes per stage from the
selection draws, the radius from the votes. Where a stage gets fewer votes than the table has, they
are drawn from it without replacement, which is what fewer votes are.
"""

import io
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from reproduce.context import Context
from reproduce.experiment import Claim, Experiment, Figure, Need, Result, Scale, size
from reproduce.plots import Curve, plot_curves
from reproduce.verdicts import MARGIN, MeanDifference, judged
from varsmooth.cascade import Stages, can_improve, make_plan
from varsmooth.certificates import Certificate
from varsmooth.data import load_dataset
from varsmooth.defaults import ALPHA, N0
from varsmooth.errors import require
from varsmooth.evidence import Ledger, LevelVotes
from varsmooth.files import replace_file
from varsmooth.models.loading import load
from varsmooth.models.settings import TunedStages
from varsmooth.report.outcomes import Outcomes
from varsmooth.report.statistics import (
    PairedDifference,
    average_certified_radius,
    certified_accuracy,
    envelope,
    mean_interval,
)
from varsmooth.report.tables import Cell, Table
from varsmooth.rounding import rounded
from varsmooth.training import cascades
from varsmooth.training.cascades import ConfidentVotes, Integers

RADII = (0.0, 0.12, 0.25, 0.37, 0.5, 0.75, 1.0)
CONFIDENCES = (0.0, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
BLOCK = 20


@dataclass(frozen=True, kw_only=True)
class CascadeScale(Scale):
    """One universal f; two tables of votes, wide and deep."""

    sigmas: tuple[float, ...] = size("σ_a′", (1.0,))
    images: int = size("test images", 1000)
    n: int = size("votes N", 1000)
    deep_images: int = size("test images of the deep table", 250)
    deep_n: int = size("votes N of the deep table", 10_000)
    held_out: int = size("held-out images", 500)
    levels: tuple[float, ...] = size("levels", (0.707, 0.5, 0.354, 0.25, 0.177, 0.125))
    lams: tuple[float, ...] = size("λ", (0.0, 0.5, 1.0))
    stages: int = size("stages, at most", 3)


# The table of votes


def votes_of(
    context: Context, scale: CascadeScale, split: str, n: int, count: int
) -> ConfidentVotes:
    """The first images of a split, in blocks that are kept in the store."""
    name = context.model(_need(scale))
    g = load(name, sigma=scale.levels[0])
    data = load_dataset(scale.data, split, context.root)
    folder = context.store / "confident-votes" / Path(name).name
    blocks = []
    for start in range(0, count, BLOCK):
        stop = min(start + BLOCK, count)
        path = folder / f"{split}-{start}-{stop}-{n}.npz"
        if not path.is_file():
            levels, some = scale.levels, data[start:stop]
            made = cascades.tabulate(g, some, levels, n, N0, CONFIDENCES, scale.seed)
            keep(path, made)
        blocks.append(kept(path, scale, n))
    joined: dict[str, Any] = {
        column: np.concatenate([getattr(block, column) for block in blocks])
        for column in ("counts", "selection", "labels")
    }
    return replace(blocks[0], **joined)


def keep(path: Path, table: ConfidentVotes) -> None:
    """Write a block of the table, whole or not at all."""
    content = io.BytesIO()
    np.savez_compressed(
        content,
        levels=np.array(table.levels),
        counts=table.counts.astype(np.int32),
        selection=table.selection.astype(np.int16),
        labels=table.labels,
    )
    replace_file(path, content.getvalue())


def kept(path: Path, scale: CascadeScale, n: int) -> ConfidentVotes:
    """A block of the table."""
    with np.load(path) as block:
        require(
            np.allclose(block["levels"], scale.levels),
            f"{path} holds other levels; choose another --store, or the same levels",
        )
        counts, selection = (block[name].astype(np.int64) for name in ("counts", "selection"))
        labels = block["labels"].astype(np.int64)
    levels = tuple(float(np.float32(s)) for s in scale.levels)
    return ConfidentVotes(levels, CONFIDENCES, counts, selection, labels, n, N0)


# Certificates from the table


@dataclass(frozen=True)
class Certified:
    """What a rule certifies on every image, and how many noisy images f was shown on average."""

    predictions: list[int]
    radii: list[float]
    sigmas: list[float]
    samples: float


def certify_with(table: ConfidentVotes, rule: TunedStages, n: int, seed: int) -> Certified:
    """Certificates of a cascade with n ≤ table.n votes at the stage that answers."""
    columns = [int(np.argmin(np.abs(np.array(table.levels) - s))) for s in rule.levels]
    gate = table.confidences.index(rule.gate or 0.0)
    stages = Stages(tuple(table.levels[j] for j in columns), rule.thresholds)
    counts, selection = (
        values[..., gate][:, columns] for values in (table.counts, table.selection)
    )  # (N, S, classes)
    rng = np.random.default_rng(seed)
    found = [
        _certificate(stages, counts[i], selection[i], table, n, rng) for i in range(len(counts))
    ]
    return Certified(
        [c.prediction for c in found],
        [c.radius for c in found],
        [c.sigma for c in found],
        float(np.mean([c.samples for c in found])),
    )


def _certificate(
    stages: Stages,
    counts: Integers,
    selection: Integers,
    table: ConfidentVotes,
    n: int,
    rng: np.random.Generator,
) -> Certificate:
    """One image's: the plan of `certify`, then as many of its votes as the plan asks for."""
    seen = 1
    while seen < len(stages) and can_improve(stages, selection[:seen], N0, n, ALPHA):
        seen += 1
    plan = make_plan(stages, selection[:seen], N0, n, ALPHA)
    votes = [
        LevelVotes(stages.levels[j], plan.candidate, *_drawn(counts[j], table.n, wanted, rng))
        for j, wanted in enumerate(plan.votes)
    ]
    facts: dict[str, Any] = {"id": 0, "seed": 0, "settings": {}, "fingerprints": {}}
    return Certificate.derive(
        "cascade",
        Ledger.of("cascade", ALPHA),
        votes,
        None,
        stages,
        sigma=stages.levels[plan.stage],
        samples=N0 * seen + sum(plan.votes),
        **facts,
    )


def _drawn(
    counts: Integers, n: int, wanted: int, rng: np.random.Generator
) -> tuple[tuple[int, ...], int]:
    """(votes by class, passes) of `wanted` of n votes, drawn without replacement."""
    every = np.append(counts, n - counts.sum())
    if wanted < n:
        every = rng.multivariate_hypergeometric(every, wanted)
    return tuple(int(k) for k in every[:-1]), int(every[-1])


def at_equal_total(table: ConfidentVotes, rule: TunedStages, seed: int) -> Certified:
    """The cascade with so few votes that f is shown no more noisy images than by one σ with N."""
    budget = N0 + table.n
    low, high = 50, table.n
    while high - low > max(4, table.n // 100):
        middle = (low + high) // 2
        fits = certify_with(table, rule, middle, seed).samples <= budget
        low, high = (middle, high) if fits else (low, middle)
    return certify_with(table, rule, low, seed)


# The experiment


def _need(scale: CascadeScale) -> Need:
    return Need(f"universal-{scale.sigmas[0]:.2f}")


def _outcomes(table: ConfidentVotes, found: Certified) -> Outcomes:
    rows = [
        {
            "id": i,
            "label": int(table.labels[i]),
            "prediction": found.predictions[i],
            "radius": found.radii[i],
            "sigma": found.sigmas[i],
            "guarantee": "sound",
        }
        for i in range(len(table.labels))
    ]
    size = {"name": "cifar10", "split": "test", "size": len(rows)}
    header = {"name": "", "verb": "certify", "config": {"alpha": ALPHA}, "dataset": size}
    return Outcomes.of(header, rows)


def shown(rule: TunedStages) -> str:
    """`0.707 (0.6), 0.25, gate 0.4`: levels with thresholds above ½."""
    stages = [
        f"{s:.3g}" + (f" ({tau:g})" if tau > 0.5 else "")
        for s, tau in zip(rule.levels, rule.thresholds, strict=True)
    ]
    return ", ".join(stages) + (f", gate {rule.gate:g}" if rule.gate else "")


def chosen_rules(context: Context, scale: CascadeScale) -> dict[str, TunedStages]:
    """The cascades, from held-out images alone: for each λ, without and with a gate."""

    def choose() -> dict[str, Any]:
        table = votes_of(context, scale, "val", scale.n, scale.held_out)
        every = list(cascades.rules(table, scale.stages))
        found: dict[str, Any] = {}
        for gated in (False, True):
            some = [rule for rule in every if gated or rule.gate == 0]
            for lam, rule in cascades.choose(some, scale.lams):
                if not gated or rule.gate:
                    label = f"cascade, λ = {lam:g}" + ", gate" * gated
                    found[label] = asdict(cascades.family([(lam, rule)], table)[0])
        return found

    facts = context.fact("rules chosen on held-out images", choose)
    return {
        name: TunedStages(
            rule["lam"], tuple(rule["levels"]), tuple(rule["thresholds"]), rule["gate"]
        )
        for name, rule in facts.items()
    }


@dataclass(frozen=True)
class Comparison:
    """All runs on one table of votes."""

    n: int
    single: dict[float, Outcomes]
    rules: dict[str, Outcomes]
    equal_total: dict[str, Outcomes]
    oracle: Outcomes
    samples: dict[str, float]

    @property
    def best(self) -> Outcomes:
        """The single σ with the largest average radius on these very images."""
        return max(self.single.values(), key=lambda run: average_certified_radius(run.reach))

    def regret(self, run: Outcomes) -> float:
        fixed = envelope([one.reach for one in self.single.values()], RADII)
        return float((fixed - certified_accuracy(run.reach, RADII)).max())


def compare(
    context: Context,
    scale: CascadeScale,
    rules: dict[str, TunedStages],
    n: int,
    count: int,
) -> Comparison:
    """Every single σ, the cascades at the same N and at the same total, and the oracle."""

    @cache
    def table() -> ConfidentVotes:
        return votes_of(context, scale, "test", n, count)

    def run(name: str, make: Callable[[ConfidentVotes], Certified]) -> Outcomes:
        found: dict[str, float] = {}

        def made() -> Outcomes:
            certified = make(table())
            found["samples"] = certified.samples
            return _outcomes(table(), certified)

        outcomes = context.run(f"{name}, N = {n}", made)
        samples[name] = context.fact(f"samples of {name}, N = {n}", lambda: found["samples"])
        return outcomes

    samples: dict[str, float] = {}
    single = {
        s: run(
            f"σ = {s:g}",
            partial(certify_with, rule=TunedStages(1.0, (s,), (0.5,)), n=n, seed=scale.seed),
        )
        for s in scale.levels
    }
    cascaded = {
        name: run(name, partial(certify_with, rule=rule, n=n, seed=scale.seed))
        for name, rule in rules.items()
    }
    equal = {
        name: run(
            f"{name}, same total",
            partial(at_equal_total, rule=rule, seed=scale.seed),
        )
        for name, rule in rules.items()
    }
    oracle = context.run(f"oracle, N = {n}", lambda: _best_of(list(single.values())))
    return Comparison(n, single, cascaded, equal, oracle, samples)


def _best_of(runs: Sequence[Outcomes]) -> Outcomes:
    """Each image at the σ with its largest certified radius: nobody can know it beforehand."""
    best = np.argmax([run.reach for run in runs], axis=0)
    return replace(runs[0], rows=[runs[j].rows[i] for i, j in enumerate(best)])


def gap(run: Outcomes, other: Outcomes) -> MeanDifference:
    """The difference of the certified radius, image by image."""
    return MeanDifference((np.maximum(run.reach, 0) - np.maximum(other.reach, 0)).tolist())


def row(name: str, run: Outcomes, found: Comparison, samples: float | None) -> list[Cell]:
    accuracy = certified_accuracy(run.reach, RADII)
    radii = np.maximum(run.reach, 0)
    mean = average_certified_radius(run.reach)
    best = average_certified_radius(found.best.reach)
    against = gap(run, found.best)
    return [
        Cell.of(name),
        *(Cell(rounded(float(share), 3), float(share)) for share in accuracy),
        Cell.mean_radius(mean, mean_interval(radii)),
        Cell(rounded(mean / best, 3), mean / best),
        Cell.signed(against.value, against.interval(), 4),
        Cell(f"{found.regret(run):.3f}", found.regret(run)),
        Cell("" if samples is None else f"{samples:.0f}", samples),
    ]


def table_of(found: Comparison, images: int) -> Table:
    """Every rule beside every single σ, on the same images."""
    rows = [
        row(f"σ = {s:g}", run, found, found.samples[f"σ = {s:g}"])
        for s, run in found.single.items()
    ]
    for name, run in found.rules.items():
        rows.append(row(name, run, found, found.samples[name]))
    for name, run in found.equal_total.items():
        label = f"{name}, same total"
        rows.append(row(label, run, found, found.samples[label]))
    rows.append(row("oracle: each image at its best σ", found.oracle, found, None))
    columns = ["", *(f"r = {r:g}" for r in RADII), "average radius", "/ best σ"]
    return Table(
        f"cascade-{found.n}",
        f"Certified accuracy and average radius, sound at α = {ALPHA:g}, N = {found.n}, {images} "
        f"test images, one universal f. Regret: how far below the envelope of all single σ, at "
        f"the worst of the radii. Samples: noisy images per certificate, selection draws included.",
        [*columns, "minus best σ", "regret", "samples"],
        rows,
    )


def cascade(context: Context, scale: CascadeScale) -> Result:
    """Every single σ against cascades at several λ, on a wide and on a deep table of votes."""
    rules = chosen_rules(context, scale)
    sizes = [(scale.n, scale.images), (scale.deep_n, scale.deep_images)]
    found = [compare(context, scale, rules, n, count) for n, count in sizes if count]
    notes = [
        "Chosen on held-out images: "
        + "; ".join(f"{name}: {shown(rule)}" for name, rule in rules.items())
    ]
    figures = [
        Figure(
            f"cascade-{one.n}",
            f"Certified accuracy against radius, sound, N = {one.n}.",
            [
                partial(
                    plot_curves, curves=[Curve(f"σ = {s:g}", [r]) for s, r in one.single.items()]
                ),
                partial(
                    plot_curves,
                    curves=[
                        Curve("all single σ, with hindsight", list(one.single.values()), "grey"),
                        Curve("best single σ", [one.best], "black"),
                        *(Curve(name, [run]) for name, run in one.rules.items()),
                    ],
                ),
            ],
            height=4.2,
        )
        for one in found
    ]
    tables = [table_of(one, count) for one, (_, count) in zip(found, sizes, strict=False)]
    claims = [claim for one in found for claim in claims_of(one)]
    return Result(figures, tables, claims, notes)


def claims_of(found: Comparison) -> list[Claim]:
    """What the cascade promises, judged on paired intervals."""
    claims = []
    top = [name for name in found.rules if "λ = 1" in name and "gate" not in name]
    for name in top:
        run, equal = found.rules[name], found.equal_total[name]
        for label, one in (("the same N", run), ("the same total of samples", equal)):
            against = gap(one, found.best)
            ratio = average_certified_radius(one.reach) / average_certified_radius(found.best.reach)
            claims.append(
                judged(
                    f"A cascade has a larger sound average radius than every single σ at {label}",
                    f"ours, N = {found.n}",
                    {name: against},
                    "average radius minus that of the best σ",
                    f"{ratio:.3f} of the best σ",
                    digits=3,
                )
            )
        claims.append(
            judged(
                "It is below that σ at no radius",
                f"ours, N = {found.n}",
                {
                    f"r = {r:g}": PairedDifference.of(run.reach >= r, found.best.reach >= r)
                    for r in RADII
                },
                f"certified accuracy of {name} minus that of the best σ",
                margin=MARGIN,
            )
        )
    return claims


CASCADE: Experiment[CascadeScale] = Experiment(
    name="cascade",
    paper="beyond the paper",
    title="a sound noise level per image against every single σ",
    scales={"cpu": CascadeScale(), "paper": CascadeScale(images=10_000, deep_images=1000)},
    time={"cpu": "4 CPU hours", "paper": "a GPU day"},
    run=cascade,
    needs=lambda scale: [_need(scale)],
)
