"""A sound σ per image against every single σ: cascades of noise levels (beyond the paper).

Stages, thresholds, gate and selection draws are chosen on held-out images alone. On the test images
every rule is certified from one table of votes; the selectors h are certified by ordinary runs.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from itertools import combinations
from typing import Any

import numpy as np

from reproduce.cascade_votes import Certified, VoteScale, at_equal_total, certify_with, votes_of
from reproduce.figures import Curve, plot_curves
from reproduce.harness import Context, Experiment, Figure, Result, outcomes
from reproduce.scales import size
from reproduce.statistics import Estimate, pooled, radius_gap
from varsmooth.bounds import average_certified_radius
from varsmooth.cascade import Stages
from varsmooth.defaults import ALPHA, N0
from varsmooth.evaluation.options import CertifyOptions, DataOptions, ModelOptions
from varsmooth.evaluation.report.outcomes import Outcomes
from varsmooth.evaluation.report.statistics import (
    certified_accuracy,
    envelope,
    mean_interval,
    regret,
)
from varsmooth.evaluation.report.tables import Cell, Table
from varsmooth.evaluation.tune import cascade as cascades
from varsmooth.evaluation.tune.cascade import ConfidentVotes, Rule
from varsmooth.methods.cascade import Quantiles, cascade_radii
from varsmooth.models.options import TunedStages
from varsmooth.rounding import rounded

RADII = (0.0, 0.12, 0.25, 0.37, 0.5, 0.75, 1.0)
TOP, FULL, FRUGAL = "cascade, λ = 1", "cascade, λ = 1, N at every stage", "two stages, same total"
SELECTORS = {"g_v*, the paper's h": None, "g_v*, h reads f": "confidence"}
"""Rows of the selectors, and the variant of the released model that each belongs to."""


@dataclass(frozen=True, kw_only=True)
class CascadeScale(VoteScale):
    """Two tables of votes, wide and deep."""

    deep_images: int = size("test images of the deep table", 250, stated=False)
    deep_n: int = size("votes N of the deep table", 10_000, stated=False)
    selector_images: int = size("test images of the selectors", 250, stated=False)
    held_out: int = size("held-out images", 500, stated=False)
    lams: tuple[float, ...] = size("λ", (0.0, 0.5, 1.0), stated=False)
    stages: int = size("stages, at most", 4, stated=False)
    frugal_draws: tuple[int, ...] = size("selection draws to choose from", (32, 64), stated=False)


# The rules, chosen on held-out images


@dataclass(frozen=True)
class Chosen:
    """A cascade and its selection draws at each stage."""

    stages: TunedStages
    n0: int = N0

    def __str__(self) -> str:
        """`0.707 (0.6), 0.25, gate 0.4`: levels with thresholds above ½."""
        rule = self.stages
        stages = [
            f"{s:.3g}" + (f" ({tau:g})" if tau > 0.5 else "")
            for s, tau in zip(rule.levels, rule.thresholds, strict=True)
        ]
        gate = f", gate {rule.gate:g}" if rule.gate else ""
        draws = f", n0 = {self.n0}" if self.n0 != N0 else ""
        return ", ".join(stages) + gate + draws


def chosen_rules(context: Context, scale: CascadeScale) -> dict[str, Chosen]:
    """For each λ and for the least regret, without and with a gate; and for the same total."""

    def choose() -> dict[str, Any]:
        table = votes_of(context, scale, "val", scale.n, scale.held_out)
        every = list(cascades.rules(table, scale.stages))
        found: dict[str, Chosen] = {}
        plain = [rule for rule in every if rule.gate == 0]
        for some, gated in ((plain, False), (every, True)):
            picked = [
                (f"λ = {lam:g}", lam, rule) for lam, rule in cascades.choose(some, scale.lams)
            ]
            picked.append(("least regret", 0.5, least_regret(table, some, gated)))
            for label, lam, rule in picked:
                if gated == (rule.gate > 0):
                    (member,) = cascades.family([(lam, rule)], table)
                    found[f"cascade, {label}" + ", gate" * gated] = Chosen(member)
        found[FRUGAL] = frugal(table, scale)
        return {name: asdict(chosen) for name, chosen in found.items()}

    facts = context.fact("rules chosen on held-out images", choose)
    return {
        name: Chosen(TunedStages(**chosen["stages"]), chosen["n0"])
        for name, chosen in facts.items()
    }


def least_regret(
    table: ConfidentVotes, found: Sequence[Rule], gated: bool, gain: float = 1.02
) -> Rule:
    """Of the rules with `gain` times the average radius of the best σ, the one of least regret."""
    single = singles(found)
    best = max(rule.radius for rule in single)
    some = [rule for rule in found if rule.radius >= gain * best and (rule.gate > 0) == gated]
    return min(some or single, key=regret_on(table, single))


def singles(found: Sequence[Rule]) -> list[Rule]:
    return [rule for rule in found if len(rule.columns) == 1 and rule.gate == 0]


def regret_on(table: ConfidentVotes, single: Sequence[Rule]) -> Callable[[Rule], float]:
    """How far a rule is below the envelope of all single σ, at the worst of the radii."""
    fixed = envelope([reach(table, one) for one in single])
    return lambda rule: regret(reach(table, rule), fixed, RADII)


def reach(table: ConfidentVotes, rule: Rule) -> Any:
    """Certified radius of every image, −1 where wrong or abstaining: (N,)."""
    radius, answer = table.outcomes(rule.columns, rule.thresholds, rule.gate)
    return np.where((answer == table.labels) & (radius > 0), radius, -1.0)


def frugal(table: ConfidentVotes, scale: CascadeScale) -> Chosen:
    """Two stages and their selection draws: the largest average radius at the same total."""

    def radius(one: Chosen) -> float:
        draws = [at_equal_total(table, one.stages, scale.seed + k, one.n0) for k in range(3)]
        right = [np.array(found.predictions) == table.labels for found in draws]
        return float(np.mean([np.where(r, d.radii, 0) for r, d in zip(right, draws, strict=True)]))

    falling = sorted(table.levels, reverse=True)
    every = [
        Chosen(TunedStages(1.0, pair, (0.5, 0.5)), n0)
        for pair in combinations(falling, 2)
        if pair[0] in falling[:2]
        for n0 in scale.frugal_draws
    ]
    return max(every, key=radius)


# What no choice of stages could exceed


def limits(table: ConfidentVotes, top: TunedStages, stages: int) -> dict[str, float]:
    """The aims with hindsight: chosen on the very images, N votes at every stage."""
    columns = [int(np.argmin(np.abs(np.array(table.levels) - s))) for s in top.levels]
    quantiles = Quantiles(*(q[:, columns] for q in table.quantiles[0][1]))
    radii = cascade_radii(Stages(top.levels, top.thresholds), quantiles)
    radii = radii.reshape(len(table.labels), -1)  # (N, S·classes)
    right = radii.argmax(axis=1) % table.counts.shape[2] == table.labels
    every = list(cascades.rules(table, stages))
    single = singles(every)
    best = max(rule.radius for rule in single)
    regret = regret_on(table, single)
    by_votes = float(np.where(right, radii.max(axis=1).clip(0), 0).mean()) / best
    return {
        f"average radius / best σ, {TOP}, class and stage by the votes themselves": by_votes,
        "average radius / best σ, best rule": max(rule.radius for rule in every) / best,
        "regret without gate, best rule": regret(least_regret(table, every, False, gain=1)),
        "regret with gate, best rule": regret(least_regret(table, every, True, gain=1)),
    }


# All runs on one table of votes


@dataclass(frozen=True)
class Comparison:
    """Single σ, cascades by name, and how many noisy images each is shown per certificate."""

    n: int
    single: dict[float, Outcomes]
    rules: dict[str, Outcomes]
    samples: dict[str, float]

    @property
    def best(self) -> Outcomes:
        """The single σ with the largest average radius on these very images."""
        return max(self.single.values(), key=lambda run: average_certified_radius(run.reach))

    @property
    def images(self) -> int:
        return len(self.best)

    @property
    def oracle(self) -> Outcomes:
        """Each image at the σ with its largest certified radius: nobody can know it beforehand."""
        runs = list(self.single.values())
        best = np.argmax([run.reach for run in runs], axis=0)
        return replace(runs[0], rows=[runs[j].rows[i] for i, j in enumerate(best)])

    def regret(self, run: Outcomes) -> float:
        return regret(run.reach, envelope([one.reach for one in self.single.values()]), RADII)

    def ratio(self, run: Outcomes) -> float:
        """Average radius divided by that of the best σ."""
        return average_certified_radius(run.reach) / average_certified_radius(self.best.reach)

    def first(self, count: int) -> "Comparison":
        """The same on the first images alone."""

        def cut(runs: dict[Any, Outcomes]) -> dict[Any, Outcomes]:
            return {name: replace(run, rows=run.rows[:count]) for name, run in runs.items()}

        return replace(self, single=cut(self.single), rules=cut(self.rules))


def compare(
    context: Context, scale: CascadeScale, rules: dict[str, Chosen], n: int, count: int
) -> Comparison:
    """Every single σ, and the cascades at the same N and at the same total."""

    @cache
    def table() -> ConfidentVotes:
        return votes_of(context, scale, "test", n, count)

    samples: dict[str, float] = {}

    def run(name: str, make: Callable[[ConfidentVotes], Certified]) -> Outcomes:
        found: dict[str, float] = {}

        def made() -> Outcomes:
            certified = make(table())
            found["samples"] = certified.samples
            return _outcomes(table(), certified, scale)

        result = context.run(f"{name}, N = {n}", made)
        samples[name] = context.fact(f"samples of {name}, N = {n}", lambda: found["samples"])
        return result

    certified = partial(certify_with, n=n, seed=scale.seed)
    single = {
        s: run(f"σ = {s:g}", partial(certified, rule=TunedStages(1.0, (s,), (0.5,))))
        for s in scale.levels
    }
    makers: dict[str, Callable[[ConfidentVotes], Certified]] = {}
    plain = {name: chosen.stages for name, chosen in rules.items() if name != FRUGAL}
    for name, rule in plain.items():
        makers[name] = partial(certified, rule=rule)
    if TOP in plain:
        makers[FULL] = partial(certified, rule=plain[TOP], every_vote=True)
    for name, rule in plain.items():
        makers[f"{name}, same total"] = partial(at_equal_total, rule=rule, seed=scale.seed)
    one = rules[FRUGAL]
    makers[FRUGAL] = partial(at_equal_total, rule=one.stages, seed=scale.seed, n0=one.n0)
    return Comparison(n, single, {name: run(name, make) for name, make in makers.items()}, samples)


def _outcomes(table: ConfidentVotes, found: Certified, scale: CascadeScale) -> Outcomes:
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
    data = {"name": scale.data, "split": "test", "size": len(rows)}
    header = {"name": "", "verb": "certify", "config": {"alpha": ALPHA}, "dataset": data}
    return Outcomes.of(header, rows)


def selector_runs(context: Context, scale: CascadeScale) -> dict[str, Outcomes]:
    """The selectors, protected by a median and soundly certified, on the first test images."""
    data = DataOptions(data=scale.data, subset=f":{scale.selector_images}", root=context.root)
    settings = CertifyOptions(n=scale.n, seed=scale.seed)

    def make(name: str, variant: str | None) -> Outcomes:
        named = replace(context, variant=variant).model(scale.need)
        model = ModelOptions(named, selector="median")
        return outcomes(context.certify(name, model, data, settings))

    return {
        name: context.run(name, partial(make, name, variant))
        for name, variant in SELECTORS.items()
        if scale.selector_images
    }


# What is shown


def gap(run: Outcomes, other: Outcomes) -> Estimate:
    """The difference of the certified radius, paired by image."""
    return pooled([radius_gap(run, other)])


def row(name: str, run: Outcomes, found: Comparison) -> list[Cell]:
    accuracy = certified_accuracy(run.reach, RADII)
    against = gap(run, found.best)
    samples = found.samples.get(name)
    return [
        Cell.of(name),
        *(Cell(f"{share:.3f}", float(share)) for share in accuracy),
        Cell.mean_radius(
            average_certified_radius(run.reach), mean_interval(np.maximum(run.reach, 0))
        ),
        Cell(rounded(found.ratio(run), 3), found.ratio(run)),
        Cell.signed(against.value, against.interval(), 4),
        Cell(f"{found.regret(run):.3f}", found.regret(run)),
        Cell("" if samples is None else f"{samples:.0f}", samples),
    ]


def table_of(name: str, found: Comparison, runs: dict[str, Outcomes]) -> Table:
    columns = ["", *(f"r = {r:g}" for r in RADII), "average radius", "/ best σ"]
    return Table(
        name,
        f"Certified accuracy and average radius, sound at α = {ALPHA:g}, N = {found.n}, "
        f"{found.images} test images, one universal f. Regret: how far below the envelope of all "
        "single σ, at the worst of the radii. Samples: noisy images per certificate, selection "
        "draws included.",
        [*columns, "minus best σ", "regret", "samples"],
        [row(label, run, found) for label, run in runs.items()],
    )


def tables_of(found: Comparison, selectors: dict[str, Outcomes], count: int) -> list[Table]:
    """Every rule beside every single σ; and the selectors, on the images that they have."""
    single = {f"σ = {s:g}": run for s, run in found.single.items()}
    oracle = {"oracle: each image at its best σ": found.oracle}
    tables = [table_of(f"cascade-{found.n}", found, single | found.rules | oracle)]
    if selectors:
        some = found.first(count)
        beside = {f"σ = {s:g}": run for s, run in some.single.items() if run == some.best}
        beside |= {name: run for name, run in some.rules.items() if "same" not in name}
        tables.append(table_of("cascade-selectors", some, beside | selectors))
    return tables


def targets(found: Comparison) -> list[list[Cell]]:
    """What was aimed at, and what is measured."""
    deep = found.n >= 10_000
    same = {name: run for name, run in found.rules.items() if "same total" in name}
    high = {
        name: run
        for name, run in found.rules.items()
        if name not in same and found.ratio(run) >= 1 and name != FULL
    }
    regrets = {
        gate: min(
            ((found.regret(run), name) for name, run in high.items() if ("gate" in name) == gate),
            default=(np.inf, "none"),
        )
        for gate in (False, True)
    }
    total = max((found.ratio(run), name) for name, run in same.items() if "gate" not in name)
    ratio = found.ratio(found.rules[TOP])
    loss = 1 - ratio / found.ratio(found.rules[FULL])
    price = found.samples[TOP] / found.samples[f"σ = {next(iter(found.single)):g}"]
    rows = [
        ("average radius / best σ, same N", "≥", 1.12, ratio, TOP),
        ("average radius / best σ, same total", "≥", 1.10 if deep else 1.05, *total),
        ("regret without gate", "≤", 0.05 if deep else 0.07, *regrets[False]),
        ("regret with gate", "≤", 0.03 if deep else 0.05, *regrets[True]),
        ("samples / samples of one σ", "≤", 2.0, price, TOP),
        ("average radius lost by planned early votes", "≤", 0.01, loss, TOP),
    ]
    return [
        [
            Cell.of(f"{what}, N = {found.n}"),
            Cell(f"{sign} {aim:g}", aim),
            Cell(rounded(value, 3) if sign == "≥" else f"{value:.3f}", value),
            Cell.of(name),
            Cell.of("met" if (value >= aim if sign == "≥" else value <= aim) else "missed"),
        ]
        for what, sign, aim, value, name in rows
    ]


def figure_of(found: Comparison) -> Figure:
    shown = {name: run for name, run in found.rules.items() if "λ" in name and "same" not in name}
    rules = [Curve(name, [run]) for name, run in shown.items() if name != FULL]
    single = [Curve(f"σ = {s:g}", [run]) for s, run in found.single.items()]
    fixed = [
        Curve("all single σ, with hindsight", list(found.single.values()), "grey"),
        Curve("best single σ", [found.best], "black"),
    ]
    return Figure(
        f"cascade-{found.n}",
        f"Certified accuracy against radius, sound, N = {found.n}.",
        [
            partial(plot_curves, curves=single, own_legend=True),
            partial(plot_curves, curves=[*fixed, *rules], own_legend=True),
        ],
        height=4.0,
        width=10.0,
    )


def cascade(context: Context, scale: CascadeScale) -> Result:
    """Every single σ against cascades at several λ, on a wide and on a deep table of votes."""
    rules = chosen_rules(context, scale)
    sizes = [(scale.n, scale.images), (scale.deep_n, scale.deep_images)]
    found = [compare(context, scale, rules, n, count) for n, count in sizes if count]
    selectors = selector_runs(context, scale)
    tables = tables_of(found[0], selectors, scale.selector_images)
    for one in found[1:]:
        tables += tables_of(one, {}, 0)
    aims = Table(
        "cascade-targets",
        "The aims of the cascade, on test images; all choices on held-out images.",
        ["", "aim", "measured", "by", ""],
        [cells for one in found for cells in targets(one)],
    )
    notes = ["Chosen on held-out images: " + "; ".join(f"{k}: {rule}" for k, rule in rules.items())]
    tables += [aims, hindsight(context, scale, rules[TOP].stages, sizes)]
    return Result([figure_of(one) for one in found], tables, notes)


def hindsight(
    context: Context, scale: CascadeScale, top: TunedStages, sizes: list[tuple[int, int]]
) -> Table:
    """What f itself leaves to gain on these images, for each size of the table of votes."""

    def found(n: int, count: int) -> dict[str, float]:
        return limits(votes_of(context, scale, "test", n, count), top, scale.stages)

    return Table(
        "cascade-hindsight",
        "What f leaves to gain: rules chosen with hindsight on the test images themselves, "
        f"of up to {scale.stages} of the levels, with N votes at every stage. No sound rule can "
        "know these choices.",
        ["", "with hindsight"],
        [
            [Cell.of(f"{name}, N = {n}"), Cell(f"{value:.3f}", value)]
            for n, count in sizes
            if count
            for name, value in context.fact(f"hindsight, N = {n}", partial(found, n, count)).items()
        ],
    )


CASCADE: Experiment[CascadeScale] = Experiment(
    name="cascade",
    paper="beyond the paper",
    title="a sound noise level per image against every single σ",
    scales={"cpu": CascadeScale(), "paper": CascadeScale(images=10_000, deep_images=1000)},
    time={"cpu": "4 CPU hours", "paper": "a GPU day"},
    run=cascade,
    needs=lambda scale: [scale.need],
)
