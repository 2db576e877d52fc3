"""A noise level per image against every single σ, under the same bound (beyond the paper).

Stages, thresholds and gates are the model's own, which `varsmooth tune` chose on held-out images.
On the test images every rule is certified from one table of votes, as `certify` would: class, stage
and votes per stage from the selection draws, the radius from the votes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from reproduce.figures import Curve, Figure, plot_certified_gaps, plot_curves
from reproduce.harness import Context, Experiment, Result, number
from reproduce.records import outcomes_of
from reproduce.scales import Need, Scale, size
from reproduce.statistics import pooled, radius_gap
from varsmooth.bounds import Integers
from varsmooth.cascade import Stages
from varsmooth.certificates import Certificate
from varsmooth.data import load_dataset
from varsmooth.defaults import ALPHA, N0, Bound, Options
from varsmooth.errors import VarsmoothError
from varsmooth.evaluation.report.figures import colours
from varsmooth.evaluation.report.outcomes import Outcomes
from varsmooth.evaluation.report.statistics import (
    certified_accuracy,
    envelope,
    mean_interval,
    regret,
)
from varsmooth.evaluation.report.tables import Cell, Table, Value
from varsmooth.evaluation.tune.table import ConfidentVotes, TableFile, tabulate
from varsmooth.evidence import Evidence, Ledger, LevelVotes
from varsmooth.methods.base import with_share
from varsmooth.methods.cascade_plan import can_improve, make_plan
from varsmooth.models.loading import load
from varsmooth.models.options import TunedStages, stages_for
from varsmooth.rounding import rounded

RADII = (0.0, 0.12, 0.25, 0.37, 0.5, 0.75, 1.0)
LEVELS = (0.707, 0.5, 0.354, 0.25, 0.177, 0.125)
RULE = ("levels", "thresholds", "gates")


@dataclass(frozen=True, kw_only=True)
class CascadeScale(Scale):
    """One f for every noise level, on test images."""

    unused, chosen = ("sigmas",), ("model", "levels")
    model: str = size("model, cifar10-…", "universal-1.00", stated=False)
    images: int = size("test images", 1000, stated=False)
    n: int = size("votes N", 1000, stated=False)
    levels: tuple[float, ...] = size("levels", LEVELS, stated=False)
    precision: str = size("precision of f", "bfloat16", stated=False, among=("float32", "bfloat16"))
    lams: tuple[float, ...] = size("λ", (0.0, 0.25, 0.5, 0.75, 1.0), stated=False)

    @property
    def need(self) -> Need:
        """The model of f."""
        return Need(self.model)


def votes_of(context: Context, scale: CascadeScale, levels: Sequence[float]) -> ConfidentVotes:
    """Votes on the first test images; resumes."""
    name = context.model(scale.need)
    g = load(name, sigma=levels[0], precision=scale.precision)
    images = load_dataset(scale.data, "test", context.root)[: scale.images]
    sizes = f"{scale.images}-{scale.n}-{scale.seed}"
    path = context.store / "votes" / f"{Path(name).name}-test-{sizes}.npz"
    path.parent.mkdir(parents=True, exist_ok=True)
    file = TableFile(path, f"{Path(name).name} {scale.precision}")
    return tabulate(g, images, levels, (scale.n, N0), seed=scale.seed, file=file)


# Certificates from a table of votes


def mean_samples(certificates: Sequence[Certificate]) -> float:
    """How many noisy images f was shown for an image."""
    return float(np.mean([c.samples for c in certificates]))


def certify_with(
    table: ConfidentVotes, rule: TunedStages, n: int, seed: int, bound: Bound = "best"
) -> list[Certificate]:
    """Certificates of a cascade with n ≤ table.n votes at the stage that answers."""
    columns = [int(np.argmin(np.abs(np.array(table.levels) - s))) for s in rule.levels]
    gates = [table.confidences.index(c) for c in rule.gates or [0.0] * len(columns)]
    stages = Stages(tuple(float(np.float32(table.levels[j])) for j in columns), rule.thresholds)
    rng, sizes = np.random.default_rng(seed), (table.n, table.n0, n)
    return [
        _certificate(stages, votes[columns, :, gates], drawn[columns, :, gates], sizes, bound, rng)
        for votes, drawn in zip(table.counts, table.selection, strict=True)
    ]


def _certificate(
    stages: Stages,
    votes: Integers,
    selection: Integers,
    sizes: tuple[int, int, int],
    bound: Bound,
    rng: np.random.Generator,
) -> Certificate:
    """One image, from votes and selection draws (S, classes); n of the `total` votes are used."""
    total, n0, n = sizes
    seen = 1
    while seen < len(stages) and can_improve(stages, selection[:seen], n0, n, ALPHA):
        seen += 1
    plan = make_plan(stages, selection[:seen], n0, n, ALPHA, bound)
    ledger = Ledger(ALPHA, ALPHA)
    if stages.is_argmax(plan.stage):
        ledger = with_share(ledger, plan.selection, Options(n0=n0, bound=bound), n)
    evidence = [
        LevelVotes(stages.levels[j], plan.candidate, *_drawn(votes[j], total, m, rng))
        for j, m in enumerate(plan.votes)
    ]
    return Certificate.derive(
        "cascade",
        Evidence(ledger, tuple(evidence), stages=stages),
        sigma=evidence[-1].sigma,
        samples=n0 * seen + sum(level.n for level in evidence),
        id=0,
        seed=0,
        settings={},
    )


def _drawn(
    counts: Integers, n: int, wanted: int, rng: np.random.Generator
) -> tuple[tuple[int, ...], int]:
    """(votes by class, passes) of `wanted` of n votes, drawn without replacement."""
    every = np.append(counts, n - counts.sum())
    if wanted < n:
        every = rng.multivariate_hypergeometric(every, wanted)
    return tuple(int(k) for k in every[:-1]), int(every[-1])


def at_equal_total(table: ConfidentVotes, rule: TunedStages, seed: int) -> list[Certificate]:
    """The cascade with so few votes that f sees no more noisy images than at one σ with N votes."""
    budget, n = N0 + table.n, table.n
    while (samples := mean_samples(certified := certify_with(table, rule, n, seed))) > budget:
        n = int(0.995 * n * budget / samples)
    return certified


# The comparison


def chosen_rules(context: Context, scale: CascadeScale) -> dict[str, Any]:
    """The model's rule for each λ, as `load(name, lam=λ)` uses it, and its best single σ."""

    def stored() -> dict[str, Any]:
        about = context.about(scale.need)
        if about.single is None:
            why = "has no tuned cascade with its best single σ"
            raise VarsmoothError(f"{scale.model} {why}: run varsmooth tune --goal cascade on it")
        rules = {f"{lam:g}": stages_for(about.cascades, lam) for lam in scale.lams}
        return {
            "best": about.single.levels[0],
            "rules": {
                lam: {name: list(getattr(rule, name)) for name in RULE}
                for lam, rule in rules.items()
            },
        }

    return dict(context.fact("rules chosen on held-out images", stored))


def compare(
    context: Context, scale: CascadeScale
) -> tuple[dict[str, Outcomes], dict[str, float], str]:
    """Every run by name, samples per image, and the name of the best single σ of `val`."""
    rules = chosen_rules(context, scale)
    levels = sorted({*scale.levels, rules["best"]}, reverse=True)
    samples: dict[str, float] = {}

    @cache
    def table() -> ConfidentVotes:
        every = {level for rule in rules["rules"].values() for level in rule["levels"]}
        return votes_of(context, scale, sorted({*levels, *every}, reverse=True))

    def run(name: str, make: Callable[[ConfidentVotes], list[Certificate]]) -> Outcomes:
        drawn: list[float] = []

        def made() -> Outcomes:
            certified = make(table())
            drawn.append(mean_samples(certified))
            return _outcomes(table(), certified, scale)

        result = context.run(name, made)
        samples[name] = context.fact(f"samples of {name}", lambda: drawn[0])
        return result

    runs: dict[str, Outcomes] = {}
    one: Callable[..., Any] = partial(certify_with, n=scale.n, seed=scale.seed)
    for s in levels:
        single = TunedStages(1.0, (s,), (0.5,))
        runs[f"σ = {s:g}"] = run(f"σ = {s:g}", partial(one, rule=single))
        name = f"σ = {s:g}, runner-up bounded by 1 − p"
        runs[name] = run(name, partial(one, rule=single, bound="cohen"))
    for name, rule in named_rules(rules).items():
        runs[name] = run(name, partial(one, rule=rule))
        total = f"{name}, same total"
        runs[total] = run(total, partial(at_equal_total, rule=rule, seed=scale.seed))
    return runs, samples, f"σ = {rules['best']:g}"


def named_rules(chosen: dict[str, Any]) -> dict[str, TunedStages]:
    """The rule for each λ."""
    return {
        f"cascade, λ = {lam}": TunedStages(float(lam), *(tuple(rule[name]) for name in RULE))
        for lam, rule in chosen["rules"].items()
    }


def _outcomes(
    table: ConfidentVotes, certificates: list[Certificate], scale: CascadeScale
) -> Outcomes:
    columns = ("prediction", "radius", "sigma", "guarantee")
    rows = [
        {"id": i, "label": label} | {name: getattr(certificate, name) for name in columns}
        for i, (label, certificate) in enumerate(
            zip(table.labels.tolist(), certificates, strict=True)
        )
    ]
    return outcomes_of("certify", rows, data=scale.data, config={"alpha": ALPHA})


def row(
    name: str, runs: dict[str, Outcomes], best: str, samples: dict[str, float]
) -> dict[str, Value]:
    run, baseline = runs[name], runs[best]
    fixed = envelope([r.reach for label, r in runs.items() if is_single(label)])
    radius = run.average_radius
    ratio = radius / baseline.average_radius
    against = pooled([radius_gap(run, baseline)])
    shares = zip(RADII, certified_accuracy(run.reach, RADII).tolist(), strict=True)
    return {
        "": name,
        **{f"r = {r:g}": number(share, ".3f") for r, share in shares},
        "average radius": Cell.mean_radius(radius, mean_interval(np.maximum(run.reach, 0))),
        "/ best σ": Cell(rounded(ratio, 3), ratio),
        "minus best σ": Cell.signed(against.value, against.interval(), 4),
        "regret": number(regret(run.reach, fixed, RADII), ".3f"),
        "samples": number(samples[name], ".0f"),
    }


def is_single(name: str) -> bool:
    return name.startswith("σ") and "," not in name


def cascade(context: Context, scale: CascadeScale) -> Result:
    """Every single σ with both bounds, and the cascades at several λ, on one table of votes."""
    runs, samples, best = compare(context, scale)
    table = Table.of(
        f"cascade-{scale.n}",
        f"Certified accuracy and average radius, sound at α = {ALPHA:g}, N = {scale.n}, "
        f"{scale.images} test images, one f for every σ. The baseline is {best}, the single σ with "
        "the largest average radius on held-out images, under the same bound. Regret: how far "
        "below the envelope of all single σ, at the worst of the radii. Samples: noisy images per "
        "certificate, selection draws included.",
        [row(name, runs, best, samples) for name in runs],
    )
    singles = [run for name, run in runs.items() if is_single(name)]
    rules = named_rules(chosen_rules(context, scale))
    curves = [
        Curve("all single σ, with hindsight", singles, "grey"),
        Curve(best, [runs[best]], "black"),
        *(
            Curve(name.removeprefix("cascade, "), [runs[name]], colour)
            for name, colour in zip(rules, colours(len(rules)), strict=True)
        ),
    ]
    base, ylabel = curves[1], f"minus {best} (points)"
    until, cascades = float(runs[best].reach.max()), curves[2:]
    figure = Figure(
        f"cascade-{scale.n}",
        f"Left: certified accuracy against radius, sound, N = {scale.n}. Right: the cascades minus "
        f"{best}, as far as it certifies; band: paired 95 % interval of the last cascade.",
        [
            partial(plot_curves, curves=curves),
            partial(plot_certified_gaps, base=base, curves=cascades, until=until, ylabel=ylabel),
        ],
        height=3.7,
        width=9.0,
    )
    stages = "; ".join(f"{name.removeprefix('cascade, ')}: {rule}" for name, rule in rules.items())
    return Result(
        [figure], [table], [f"Chosen on held-out images, LEVEL:THRESHOLD:GATE: {stages}."]
    )


CASCADE: Experiment[CascadeScale] = Experiment(
    "cascade",
    "beyond the paper",
    "a sound noise level per image against every single σ",
    {"cpu": CascadeScale(), "paper": CascadeScale(images=10_000, n=10_000)},
    {"cpu": "50 CPU minutes", "paper": "a GPU day"},
    cascade,
    lambda scale: [scale.need],
    median=False,
)
