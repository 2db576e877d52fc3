"""Certified and clean accuracy: Fig. 2, Fig. 5 with Tables 1 and 2, Fig. 6a."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import numpy as np

from reproduce.context import Context
from reproduce.experiment import Claim, Experiment, Figure, Need, Result, Verdict, size
from reproduce.levels import (
    ALL_LAMS,
    CLIP_PERCENTILES,
    CPU,
    Certified,
    CertifyScale,
    clip_of,
    outcomes,
    selector_options,
    sweep,
)
from reproduce.plots import Curve, Points, plot_curves, plot_points
from reproduce.verdicts import MeanDifference, shown_difference, shown_radius_gap, verdict_of
from varsmooth.bounds import Floats
from varsmooth.report.figures import colours
from varsmooth.report.outcomes import Outcomes
from varsmooth.report.statistics import (
    PairedDifference,
    Share,
    average_certified_radius,
    certified_counts,
)
from varsmooth.report.summaries import certified_accuracy_table, round_radii
from varsmooth.report.tables import Cell, Table
from varsmooth.rounding import percent
from varsmooth.runs.records import Run
from varsmooth.selectors import Grid

TABLE_1: dict[float, tuple[tuple[float, ...], tuple[float, ...]]] = {
    0.12: ((0.0, 0.05, 0.1, 0.2), (0.0, 0.1, 0.2)),
    0.25: ((0.0, 0.05, 0.1, 0.2, 0.3), (0.0, 0.1, 0.2)),
    0.5: ((0.0, 0.05, 0.1, 0.2, 0.3), (0.0,)),
    1.0: ((0.0, 0.05, 0.1, 0.2, 0.3, 0.4), (0.0,)),
}
"""D and λ for each σ_a, as in the paper."""

TABLE_2: dict[tuple[float, float], tuple[float, float]] = {
    (0.12, 0.0): (0.06, 0.10),
    (0.12, 0.1): (0.08, 0.11),
    (0.12, 0.2): (0.09, 0.12),
    (0.25, 0.0): (0.16, 0.24),
    (0.25, 0.1): (0.18, 0.25),
    (0.25, 0.2): (0.20, 0.27),
    (0.5, 0.0): (0.34, 0.48),
    (1.0, 0.0): (0.68, 1.10),
}
"""h_l and h_u for each σ_a and λ, as in the paper; they belong to the authors' models."""


def best_at(runs: Sequence[Outcomes], radius: float) -> Outcomes:
    """The run with the highest certified accuracy at a radius; the first of equals."""
    return max(runs, key=lambda run: int(certified_counts(run.reach, radius)))


def gap_at(first: Sequence[Outcomes], second: Sequence[Outcomes], r: float) -> PairedDifference:
    """Certified accuracy at r of the best of some runs minus that of the best of others."""
    one, other = best_at(first, r), best_at(second, r)
    assert np.array_equal(one.ids, other.ids)
    return PairedDifference.of(one.reach >= r, other.reach >= r)


def shares_at(runs: Sequence[Outcomes], radii: Sequence[float]) -> Floats:
    """The best certified accuracy at each radius, (m,)."""
    return np.array([certified_counts(best_at(runs, r).reach, r) / len(runs[0]) for r in radii])


# Fig. 2: the trade-off


@dataclass(frozen=True, kw_only=True)
class TradeoffScale(CertifyScale):
    """Fig. 2 has every σ_a at σ_s = σ_a, and one σ_a under the whole sweep."""

    swept: float = size("σ_a of the sweep", 0.5)


def tradeoff(context: Context, scale: TradeoffScale) -> Result:
    """Certified accuracy against radius for σ_s = σ_a, and for one σ_a under many σ_s."""

    def at(name: str, sigma_a: float, level: float) -> Outcomes:
        model = Certified(context, scale, sigma_a)
        return context.run(name, lambda: outcomes(model.fixed_run(level)))

    equal = [at(f"σ_s = σ_a = {sigma:g}", sigma, sigma) for sigma in scale.sigmas]
    title, levels = f"σ_a = {scale.swept:g}", sweep(scale, scale.swept)
    swept = [at(f"{title}, σ_s = {level:.3g}", scale.swept, level) for level in levels]
    shaded = [
        Curve(f"σ_s = {level:.3g}", [run], shade)
        for run, level, shade in zip(swept, levels, colours(max(len(swept), 8)), strict=False)
    ]
    figure = Figure(
        "tradeoff",
        f"Certified accuracy against radius. Left: σ_s = σ_a. Right: {title} under "
        "various σ_s. Bands: pointwise 95 % intervals over images.",
        [
            partial(plot_curves, curves=[Curve(r.name, [r], band=True) for r in equal]),
            partial(plot_curves, curves=shaded, title=title),
        ],
        height=3.9,
    )
    every = [*equal, *swept]
    table = certified_accuracy_table(every, (), round_radii(every))
    return Result([figure], [table], [sizes_claim(equal), sweep_claim(swept, levels)])


def sizes_claim(runs: Sequence[Outcomes]) -> Claim:
    """Smaller σ: higher accuracy, smaller radius."""
    gaps = [
        PairedDifference.of(small.reach >= 0, large.reach >= 0) for small, large in pairwise(runs)
    ]
    furthest = [max(0.0, float(run.reach.max())) for run in runs]
    accuracy = [float((run.reach >= 0).mean()) for run in runs]
    verdict = verdict_of(gaps)
    if verdict == "held" and furthest != sorted(furthest):
        verdict = "partly"
    told = "; ".join(
        f"{run.name}: {100 * share:.1f} % at r = 0, furthest radius {far:.2f}"
        for run, share, far in zip(runs, accuracy, furthest, strict=True)
    )
    steps = ", ".join(shown_difference(gap) for gap in gaps)
    return Claim(
        "Smaller σ gives higher certified accuracy and smaller certified radius",
        "Fig. 2a",
        told + (f". Accuracy lost from each σ to the next: {steps}" if steps else ""),
        verdict,
        "paired by image at r = 0" if gaps else "one σ_a only; run it with more models",
        {"accuracy": accuracy, "furthest": furthest},
    )


def sweep_claim(runs: Sequence[Outcomes], levels: Sequence[float]) -> Claim:
    """One f under many σ_s: small levels win near r = 0, large ones far out."""
    top = max(0.0, *(float(run.reach.max()) for run in runs))
    radii = [float(r) for r in np.linspace(0, top, 6)[:-1]]
    best = [levels[runs.index(best_at(runs, r))] for r in radii]
    rising = best == sorted(best) and best[0] < best[-1]
    told = "; ".join(f"r = {r:.2f}: {level:.3g}" for r, level in zip(radii, best, strict=True))
    return Claim(
        "For one f, σ_s trades certified accuracy against radius",
        "Fig. 2b",
        f"best σ_s at each radius: {told}",
        "held" if rising else "partly" if best[0] < best[-1] else "not",
        "the best σ_s grows with the radius" if rising else "the best σ_s does not only grow",
        {"radii": radii, "best": best},
    )


TRADEOFF = Experiment(
    "tradeoff",
    "Fig. 2",
    "certified accuracy against radius for different noise levels",
    {"cpu": TradeoffScale(**CPU), "paper": TradeoffScale()},
    {"cpu": "10 min", "paper": "1 h on a GPU after training"},
    tradeoff,
    lambda scale: [Need.fixed(sigma) for sigma in dict.fromkeys((*scale.sigmas, scale.swept))],
)


# Fig. 5, Tables 1 and 2: g_v* with and without attack on h


@dataclass(frozen=True, kw_only=True)
class CertifiedScale(CertifyScale):
    """D and λ are those of Table 1 for each σ_a; for another σ_a, these."""

    distances: tuple[float, ...] = size("D of a σ_a not in Table 1", (0.0, 0.05, 0.1, 0.2, 0.3))
    lams: tuple[float, ...] = size("λ of a σ_a not in Table 1", (0.0,))

    def table_1(self, sigma_a: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return TABLE_1.get(sigma_a, (self.distances, self.lams))


@dataclass(frozen=True)
class Methods:
    """Every method of Fig. 5 on the model of one σ_a: runs to take the best of at each radius."""

    sigma_a: float
    clips: dict[float, tuple[float, float]]
    levels: tuple[float, ...]
    swept: Sequence[Outcomes]
    equal: Sequence[Outcomes]
    attacked: Sequence[Outcomes]
    clipped: Sequence[Outcomes]
    unattacked: Sequence[Outcomes]
    sound: Sequence[Outcomes]

    @property
    def curves(self) -> list[Curve]:
        return [
            Curve("g, envelope over σ_s", self.swept, "#888888"),
            Curve("g, σ_s = σ_a", self.equal, "#000000", band=True),
            Curve("g_v*, no attack on h (conditional)", self.unattacked),
            Curve("g_v*, attack on h (heuristic)", self.attacked),
            Curve("g_v*, attack on h, clipped (heuristic)", self.clipped),
            Curve("g_v*, ours, clipped (sound)", self.sound),
        ]

    @property
    def radii(self) -> list[float]:
        """Where methods are compared: from 0 to twice σ_a."""
        return [k * self.sigma_a / 2 for k in range(5)]


def certified(context: Context, scale: CertifiedScale) -> Result:
    """Certified accuracy of g_v* with and without attack on h, and of the baselines."""
    methods = [methods_of(Certified(context, scale, sigma), scale) for sigma in scale.sigmas]
    figure = Figure(
        "certified",
        "Certified accuracy of g_v* and of the baselines. Each line is the best of its runs at "
        "each radius: over σ_s for the envelope, over the D and λ of Table 1 for g_v*. Solid: "
        "sound; dashed: conditional (h assumed unattacked); dotted: heuristic (three levels, "
        "capped at D). Band: pointwise 95 % interval over images.",
        [
            partial(plot_curves, curves=found.curves, title=f"σ_a = {found.sigma_a:g}")
            for found in methods
        ],
        columns=min(2, len(methods)),
        legend="upper right",
        height=3.7,
    )
    low, high = CLIP_PERCENTILES
    notes = [
        "Each σ_s is snapped to the nearest level of the vote table",
        f"clip: percentiles {low} and {high} of σ_s on held-out images, for each λ",
    ]
    tables = [_accuracy_table(methods), _clip_table(methods)]
    return Result([figure], tables, claims_of(methods, scale), notes)


def methods_of(model: Certified, scale: CertifiedScale) -> Methods:
    """All runs of one σ_a."""
    distances, lams = scale.table_1(model.sigma_a)
    clips = {lam: clip_of(model.context, scale, model.sigma_a, lam) for lam in lams}
    swept = [model.g(level) for level in model.levels]
    return Methods(
        model.sigma_a,
        clips,
        model.levels,
        swept,
        equal=[swept[int(np.abs(np.array(model.levels) - model.sigma_a).argmin())]],
        unattacked=[model.conditional(lam) for lam in lams],
        attacked=[model.paper(lam, d) for lam in lams for d in distances],
        clipped=[model.paper(lam, d, clips[lam]) for lam in lams for d in distances],
        sound=[model.sound(lam, clips[lam]) for lam in lams],
    )


def _accuracy_table(methods: Sequence[Methods]) -> Table:
    rows = []
    for found in methods:
        fine = np.linspace(0, found.radii[-1], 81)
        ideal = found.curves[0].accuracy(fine)
        for curve in found.curves:
            n = len(curve.runs[0])
            regret = 100 * float(np.max(ideal - curve.accuracy(fine)))
            shares = shares_at(curve.runs, found.radii)
            best = max(average_certified_radius(run.reach) for run in curve.runs)
            cells = [Cell(percent(round(s * n), n), float(s)) for s in shares]
            head = [Cell(f"{found.sigma_a:g}", found.sigma_a), Cell.of(curve.label)]
            tail = [
                Cell(f"{np.floor(1000 * best) / 1000:.3f}", best),
                Cell(f"{regret:.1f}", regret),
            ]
            rows.append([*head, *cells, *tail])
    return Table(
        "certified-accuracy",
        "Certified accuracy in % at multiples of σ_a, the best of each method's runs at each "
        "radius; the best average certified radius (ACR) of one run; and the regret: percentage "
        "points below the envelope over σ_s where the method is furthest below it, up to 2 σ_a.",
        ["σ_a", "method", *(f"r = {k / 2:g} σ_a" for k in range(5)), "best ACR", "regret"],
        rows,
    )


def _clip_table(methods: Sequence[Methods]) -> Table:
    rows = []
    for found in methods:
        for lam, clip in found.clips.items():
            theirs = TABLE_2.get((found.sigma_a, lam))
            left = Grid.make(found.levels, clip).levels
            rows.append(
                [
                    Cell(f"{found.sigma_a:g}", found.sigma_a),
                    Cell(f"{lam:g}", lam),
                    Cell("–" if theirs is None else f"{theirs[0]:.2f}, {theirs[1]:.2f}"),
                    Cell(f"{clip[0]:.3f}, {clip[1]:.3f}"),
                    Cell(", ".join(f"{level:.3f}" for level in left)),
                ]
            )
    return Table(
        "clip-thresholds",
        "h_l and h_u: those of the paper's Table 2, which belong to its models, and ours, by the "
        f"rule: percentiles {CLIP_PERCENTILES[0]} and {CLIP_PERCENTILES[1]} of σ_s on held-out "
        "images; and the levels of the vote table that our thresholds leave.",
        ["σ_a", "λ", "Table 2", "ours", "levels left"],
        rows,
    )


def claims_of(methods: Sequence[Methods], scale: CertifiedScale) -> list[Claim]:
    """The sentences of the paper's Experiment A, and what one setting for all radii gains."""
    return [
        compared(
            methods,
            "g_v* without attack on h beats the baseline σ_s = σ_a in certified accuracy",
            lambda m: [gap_at(m.unattacked, m.equal, r) for r in m.radii],
            "at r = 0, ½, 1, 1½ and 2 times σ_a",
            "best λ at each radius, with hindsight, as in the paper; what a single σ_s can do "
            "likewise is in the next line",
        ),
        compared(
            methods,
            "g_v* without attack on h beats the envelope of the σ_s sweep",
            lambda m: [gap_at(m.unattacked, m.swept, r) for r in m.radii],
            "at r = 0, ½, 1, 1½ and 2 times σ_a",
            "both sides take their best run at each radius",
        ),
        near_and_far(methods, scale),
        compared(
            methods,
            "Clipping alleviates what the attack on h costs",
            lambda m: [gap_at(m.clipped, m.attacked, d) for d in scale.table_1(m.sigma_a)[0]],
            "clipped less not clipped, at r = D for each D of Table 1",
            "paired by image",
        ),
        larger_average(
            methods,
            "With one λ, g_v* without attack on h has a larger average radius than any one σ_s",
            lambda m: m.unattacked,
        ),
        larger_average(
            methods,
            "With one λ, g_v* certified soundly has a larger average radius than any one σ_s",
            lambda m: m.sound,
        ),
    ]


def larger_average(
    methods: Sequence[Methods],
    statement: str,
    runs_of: Callable[[Methods], Sequence[Outcomes]],
) -> Claim:
    """The best λ against the best σ_s of the table, by the average certified radius of one run."""
    told, gaps = [], {}
    for found in methods:
        ours, theirs = (_largest_average(runs) for runs in (runs_of(found), found.swept))
        radii, others = (np.maximum(run.reach, 0) for run in (ours, theirs))
        gap = gaps[f"{found.sigma_a:g}"] = MeanDifference((radii - others).tolist())
        told.append(
            f"σ_a = {found.sigma_a:g}: {radii.mean():.3f} with {100 * ours.correct.mean():.1f} % "
            f"right against {others.mean():.3f} with {100 * theirs.correct.mean():.1f} %, "
            f"{shown_radius_gap(gap)}"
        )
    return Claim(
        statement,
        "ours, on Fig. 5",
        "average radius, wrong images 0: " + "; ".join(told),
        verdict_of(list(gaps.values())),
        "λ (of Table 1) and σ_s chosen with hindsight, paired by image",
        {sigma: gap.value for sigma, gap in gaps.items()},
    )


def _largest_average(runs: Sequence[Outcomes]) -> Outcomes:
    return max(runs, key=lambda run: average_certified_radius(run.reach))


def compared(
    methods: Sequence[Methods],
    statement: str,
    gaps_of: Callable[[Methods], list[PairedDifference]],
    where: str,
    why: str,
) -> Claim:
    """A claim that one method is better than another, from paired gaps for each σ_a."""
    gaps = {f"{found.sigma_a:g}": gaps_of(found) for found in methods}
    told = "; ".join(
        f"σ_a = {sigma}: " + ", ".join(shown_difference(gap) for gap in each)
        for sigma, each in gaps.items()
    )
    every = [gap for each in gaps.values() for gap in each]
    equal = not any(gap.only_first or gap.only_second for gap in every)
    return Claim(
        statement,
        "Fig. 5",
        f"points {where}: {told}",
        "untested" if equal else verdict_of(every),
        "equal on every image: there is no difference to judge" if equal else why,
        {sigma: [gap.value for gap in each] for sigma, each in gaps.items()},
    )


def near_and_far(methods: Sequence[Methods], scale: CertifiedScale) -> Claim:
    """With attack on h: close to the baseline for small D, worse for large D."""
    told, near, far = [], [], []
    numbers = {}
    for found in methods:
        budgets = [d for d in scale.table_1(found.sigma_a)[0] if d > 0]
        gaps = [gap_at(found.attacked, found.equal, d) for d in budgets]
        near.append(gaps[0])
        far.append(gaps[-1])
        numbers[f"{found.sigma_a:g}"] = [gap.value for gap in gaps]
        told.append(
            f"σ_a = {found.sigma_a:g}: "
            + ", ".join(
                f"{shown_difference(gap)} at r = D = {d:g}"
                for gap, d in zip(gaps, budgets, strict=True)
            )
        )
    close = all(gap.value >= -0.05 for gap in near)
    worse = any(gap.interval().high < 0 for gap in far)
    verdict: Verdict = "held" if close and worse else "partly" if close or worse else "not"
    return Claim(
        "With attack on h, g_v* is close to the baseline for small D and worse for large D",
        "Fig. 5",
        "g_v* (i) less g at σ_s = σ_a, points: " + "; ".join(told),
        verdict,
        "close: within 5 points at the smallest D; worse: an interval below 0 at the largest D. "
        "A radius is capped at D, so beyond the largest D nothing is certified, by definition",
        numbers,
    )


CERTIFIED = Experiment(
    "certified",
    "Fig. 5, Tables 1 and 2",
    "certified accuracy of g_v* with and without attack on h, and of the baselines",
    {"cpu": CertifiedScale(**CPU), "paper": CertifiedScale()},
    {"cpu": "15 min for each σ_a", "paper": "hours on a GPU after training"},
    certified,
)


# Fig. 6a: clean accuracy


@dataclass(frozen=True, kw_only=True)
class CleanScale(CertifyScale):
    """Fig. 6a: λ steers g_v, σ_s steers g."""

    lams: tuple[float, ...] = size("λ", ALL_LAMS)


@dataclass(frozen=True)
class Pair:
    """g_v at one λ beside g at the level of the table next to its mean σ_s."""

    sigma_a: float
    lam: float
    learned: Outcomes
    fixed: Outcomes

    @property
    def gap(self) -> PairedDifference:
        return PairedDifference.of(self.learned.correct, self.fixed.correct)


def clean(context: Context, scale: CleanScale) -> Result:
    """Clean accuracy against the noise level, for g and for g_v with its mean σ_s."""
    series, pairs = [], []
    for sigma_a, colour in zip(scale.sigmas, colours(len(scale.sigmas)), strict=True):
        model = Certified(context, scale, sigma_a)
        fixed = [voted(model, level) for level in model.levels]
        learned = [learned_run(model, lam) for lam in scale.lams]
        for lam, one in zip(scale.lams, learned, strict=True):
            nearest = int(np.abs(np.log(model.levels) - np.log(one.sigmas.mean())).argmin())
            pairs.append(Pair(sigma_a, lam, one, fixed[nearest]))
        series += [
            _points(f"g, σ_a = {sigma_a:g}", fixed, colour, filled=False),
            _points(f"g_v, σ_a = {sigma_a:g}", learned, colour, filled=True),
        ]
    figure = Figure(
        "clean",
        "Clean accuracy against the noise level: σ_s for g (dashed), the mean of all selected σ_s "
        "for g_v (solid, λ from left to right as listed). Bars: 95 % intervals over images; g and "
        "g_v share images and votes, so their differences are far more certain than the bars.",
        [partial(plot_points, series=series, xlabel="(mean) σ_s", ylabel="clean accuracy (%)")],
        legend="lower left",
        height=4.4,
    )
    notes = ["Each selected σ_s is snapped to the nearest level of the vote table"]
    return Result([figure], [_clean_table(pairs)], [clean_claim(pairs)], notes)


def voted(model: Certified, level: float) -> Outcomes:
    """g at one level, by plain majority."""
    name = f"g, σ_a = {model.sigma_a:g}, σ_s = {level:.3g}"
    return model.context.run(name, lambda: majority(model.fixed_run(level)))


def learned_run(model: Certified, lam: float) -> Outcomes:
    """g_v: h evaluated once on x + ε, ε ~ N(0, σ_a² I), snapped to the table's levels."""
    context, scale = model.context, model.scale

    def make() -> Outcomes:
        need = Need.fixed(model.sigma_a, selector=True)
        options = selector_options(context, need, lam, model.levels, draws=1)
        data = context.images(scale.data, "test", scale.images)
        settings = replace(scale.settings, method="conditional")
        return majority(context.certify(f"g_v, λ = {lam:g}", options, data, settings))

    return context.run(f"g_v, σ_a = {model.sigma_a:g}, λ = {lam:g}", make)


def majority(run: Run) -> Outcomes:
    """What the plain majority of a certify run's votes at its level answers, never abstaining."""
    rows = []
    for row in run.rows():
        (level,) = row["evidence"]["votes"]
        rows.append(row | {"prediction": int(np.argmax(level["counts"])), "evidence": None})
    config = {**run.header["config"], "alpha": None}
    return Outcomes.of({**run.header, "verb": "predict", "config": config}, rows)


def _points(label: str, runs: Sequence[Outcomes], colour: str, filled: bool) -> Points:
    means = [float(run.sigmas.mean()) for run in runs]
    return Points(
        label, means, [Share.of(run.correct) for run in runs], colour=colour, filled=filled
    )


def _clean_table(pairs: Sequence[Pair]) -> Table:
    rows = []
    for pair in pairs:
        sigmas = pair.learned.sigmas
        rows.append(
            [
                Cell(f"{pair.sigma_a:g}", pair.sigma_a),
                Cell(f"{pair.lam:g}", pair.lam),
                Cell(f"{sigmas.mean():.4f}", float(sigmas.mean())),
                Cell(f"{sigmas.std():.4f}", float(sigmas.std())),
                Cell.share(Share.of(pair.learned.correct)),
                Cell(f"{pair.fixed.sigmas[0]:.4f}", float(pair.fixed.sigmas[0])),
                Cell.share(Share.of(pair.fixed.correct)),
                Cell.difference(pair.gap),
            ]
        )
    return Table(
        "clean",
        "Clean accuracy in % of g_v, and of g at the level next to g_v's mean σ_s; the difference "
        "in percentage points, paired by image, with 95 % intervals.",
        ["σ_a", "λ", "mean σ_s", "sd of σ_s", "g_v", "σ_s of g", "g", "g_v − g"],
        rows,
    )


def clean_claim(pairs: Sequence[Pair]) -> Claim:
    """At equal mean σ, g_v is more often right than g."""
    gaps = [pair.gap for pair in pairs]
    told = "; ".join(
        f"σ_a = {pair.sigma_a:g}, λ = {pair.lam:g}: {shown_difference(gap)}"
        for pair, gap in zip(pairs, gaps, strict=True)
    )
    spread = max(float(pair.learned.sigmas.std() / pair.learned.sigmas.mean()) for pair in pairs)
    verdict = verdict_of(gaps)
    if verdict == "partly" and max(abs(gap.value) for gap in gaps) < 0.02:
        verdict = "not"
    return Claim(
        "g_v has better clean accuracy than g at equal mean σ",
        "Fig. 6a",
        f"g_v − g in points: {told}",
        verdict,
        f"selected σ_s differ between images by {100 * spread:.0f} % at most (sd/mean): there is "
        "little that g_v does differently",
        {"gaps": [gap.value for gap in gaps]},
    )


CLEAN = Experiment(
    "clean",
    "Fig. 6a",
    "clean accuracy of g_v and g against the noise level",
    {"cpu": CleanScale(**CPU), "paper": CleanScale()},
    {"cpu": "1 min after certified", "paper": "minutes after certified"},
    clean,
)
