"""What the committed records say about each claim: differences by setting, image by image.

A comparison reads runs by their names and yields its cases: for each setting, one number per
image. `verdicts` pools them; the experiment's page lists them. A fact is a sentence about a result.
"""

import csv
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product
from pathlib import Path
from typing import Any, Concatenate, Literal, ParamSpec

import numpy as np
from scipy.stats import ncx2

from reproduce.records import CONFIG, RECORDS, read_records
from reproduce.statistics import Differences, Estimate, certified_at, paired, radius_gap
from varsmooth import bounds
from varsmooth.bounds import Floats, normal_quantile
from varsmooth.evaluation.report.outcomes import Outcomes
from varsmooth.evaluation.report.statistics import certified_counts
from varsmooth.rounding import rounded

SIGMAS = (0.12, 0.25, 0.5, 1.0)
LAMS = (0.0, 0.1, 0.2, 0.3, 0.4)
WEAK, STRONG = "γ = {e:g}, weak attack", "γ = {e:g}, strong attack"
SELECTED = "σ_a = {s:g}, λ = {l:g}, "
STRONG_03 = "γ = 0.3, strong attack"


@dataclass(frozen=True)
class Committed:
    """The runs and facts of one committed result."""

    folder: Path

    @cached_property
    def runs(self) -> dict[str, Outcomes]:
        return read_records(self.folder / RECORDS)

    @cached_property
    def config(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / CONFIG).read_text(encoding="utf-8")))

    @property
    def facts(self) -> dict[str, Any]:
        return dict(self.config["facts"])

    @property
    def sizes(self) -> dict[str, Any]:
        return dict(self.config["sizes"])

    def between(self, start: str, end: str = "") -> list[Outcomes]:
        """The runs whose names start and end so."""
        return [r for n, r in self.runs.items() if n.startswith(start) and n.endswith(end)]


Cases = Mapping[str, Differences]
"""By setting: `σ_a = 0.25, λ = 0.2`."""
Comparison = Callable[[Committed], Cases]
Pairs = Iterator[tuple[str, Differences]]
P = ParamSpec("P")


def comparison(pairs: Callable[Concatenate[Committed, P], Pairs]) -> Callable[P, Comparison]:
    """A comparison that takes its settings first and the evidence later."""

    def of(*settings: P.args, **more: P.kwargs) -> Comparison:
        return lambda evidence: dict(pairs(evidence, *settings, **more))

    return of


def settings_of(
    lams: Sequence[float] = LAMS, budgets: Sequence[float] = (0.3,)
) -> Iterator[tuple[str, dict[str, float]]]:
    """Each σ_a, λ and γ: in words, and for names of runs."""
    for s, lam, e in product(SIGMAS, lams, budgets):
        title = f"σ_a = {s:g}, λ = {lam:g}" + f", γ = {e:g}" * (len(budgets) > 1)
        yield title, {"s": s, "l": lam, "e": e}


@comparison
def compare(
    evidence: Committed,
    first: str,
    second: str,
    column: str = "correct",
    lams: Sequence[float] = LAMS,
    budgets: Sequence[float] = (0.3,),
) -> Pairs:
    """One run minus another for each σ_a, λ and γ of which the records have both."""
    for title, setting in settings_of(lams, budgets):
        one, other = (evidence.runs.get(text.format(**setting)) for text in (first, second))
        if one is not None and other is not None:
            yield title, paired(one, other, column)


@comparison
def both(evidence: Committed, one: Comparison, other: Comparison) -> Pairs:
    """A difference of differences, on the images that all four runs have."""
    first, second = one(evidence), other(evidence)
    for title in sorted(first.keys() & second.keys()):
        yield title, first[title].minus(second[title])


# Fig. 6b, 8 and 9: g at the mean σ_s of what it is compared with, on the same f


@comparison
def matched(
    evidence: Committed,
    method: str,
    kind: str,
    model: str = "σ_a = ",
    lams: Sequence[float] = LAMS,
    budgets: Sequence[float] = (0.3,),
) -> Pairs:
    """A learned classifier minus g at its mean σ_s, which the facts have, on the same f."""
    pattern = re.compile(rf"mean σ_s of {re.escape(method)}, ({model}.*), λ = (.*), {kind} attack")
    for (fact, level), e in product(evidence.facts.items(), budgets):
        if (named := pattern.fullmatch(fact)) and float(named[2]) in lams:
            end = f"γ = {e:g}, {kind} attack"
            one = evidence.runs.get(f"{method}, {named[1]}, λ = {named[2]}, {end}")
            other = evidence.runs.get(f"g, {named[1]}, σ_s = {level:g}, {end}")
            if one is not None and other is not None:
                about = f"{named[1]}, λ = {named[2]}" + f", γ = {e:g}" * (len(budgets) > 1)
                yield about, paired(one, other)


@comparison
def same_level(
    evidence: Committed, model: str, levels: Sequence[float], column: str = "correct"
) -> Pairs:
    """g_v* minus g on the same f under the strong attack, at nearly the same level.

    For each σ_s of g the λ whose mean σ_s is nearest, if it is within a tenth.
    model: the title of f, a format of σ_a; levels: σ_s relative to the level of the title.
    """
    titles = dict.fromkeys(model.format(s=s) for s in SIGMAS)
    for title, level in product(titles, levels):
        sigma = level * float(title.split("= ")[1])
        rival = evidence.runs.get(f"g, {title}, σ_s = {round(sigma, 4):g}, {STRONG_03}")
        if rival is None:
            continue
        mine = nearest(evidence, f"g_v*, {title}, ", STRONG_03, sigma)
        if abs(float(mine.clean_sigmas.mean()) / sigma - 1) < 0.1:
            setting = mine.name.split(", ")[2]
            yield f"{title}, σ_s = {sigma:g}, {setting}", paired(mine, rival, column)


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


def beside_mean(learned: Outcomes, fixed: Sequence[Outcomes]) -> Differences:
    """A run minus g at its mean σ_s, interpolated between the runs of g at neighbouring levels."""
    levels = [float(run.sigmas[0]) for run in fixed]
    mean = float(learned.sigmas.mean())
    right = min(max(int(np.searchsorted(levels, mean)), 1), len(levels) - 1)
    share = (mean - levels[right - 1]) / (levels[right] - levels[right - 1])
    below, above = (paired(learned, fixed[at]) for at in (right - 1, right))
    return Differences(below.ids, (1 - share) * below.values + share * above.values)


READINGS_SIGMAS = (0.03, 0.06, 0.25)


@comparison
def reading(evidence: Committed, reader: str) -> Pairs:
    """g_v minus g at its mean σ_s, for an h that reads these features."""
    for s, lam in product(READINGS_SIGMAS, LAMS):
        title = f"σ_a = {s:g}, λ = {lam:g}"
        if (learned := evidence.runs.get(f"g_v, {title}, {reader}")) is not None:
            yield title, beside_mean(learned, evidence.between(f"g, σ_a = {s:g}, "))


@comparison
def reading_at_best(evidence: Committed, reader: str) -> Pairs:
    """g_v at its best λ minus g at its best σ_s, both in hindsight."""
    for s in READINGS_SIGMAS:
        if learned := evidence.between(f"g_v, σ_a = {s:g}, ", reader):
            each = (learned, evidence.between(f"g, σ_a = {s:g}, "))
            one, other = (max(runs, key=lambda run: float(run.correct.mean())) for runs in each)
            yield f"σ_a = {s:g}", paired(one, other)


# What an attack does to σ_s


@comparison
def moved(
    evidence: Committed, method: str, kind: str = "strong", budgets: Sequence[float] = (0.3,)
) -> Pairs:
    """|σ_s under attack / σ_s before it − 1| of the attacked images: those right before it."""
    for title, setting in settings_of(budgets=budgets):
        name = f"{method}, {SELECTED}γ = {{e:g}}, {kind} attack".format(**setting)
        if (run := evidence.runs.get(name)) is not None:
            hit = run.clean_correct
            change: Floats = np.abs(run.sigmas / run.clean_sigmas - 1)[hit]
            yield title, Differences(run.ids[hit].tolist(), change)


@comparison
def level_gain(evidence: Committed) -> Pairs:
    """σ_s of g_v* in σ_a, at λ = 0.4 minus that at λ = 0."""
    for s, low, high in _ends_of_lambda(evidence):
        yield f"σ_a = {s:g}", paired(high, low, "clean_sigmas") / s


@comparison
def kurtosis_fall(evidence: Committed) -> Pairs:
    """Excess kurtosis of the noise over all images, g_v* at λ = 0 minus that at λ = 0.4."""
    for s, low, high in _ends_of_lambda(evidence):
        fall = excess_kurtosis(low.clean_sigmas) - excess_kurtosis(high.clean_sigmas)
        yield f"σ_a = {s:g}", Differences(low.ids.tolist(), fall)


def _ends_of_lambda(evidence: Committed) -> Iterator[tuple[float, Outcomes, Outcomes]]:
    """g_v* under the strong attack at λ = 0 and at λ = 0.4, for each σ_a."""
    for s in SIGMAS:
        low, high = (f"g_v*, σ_a = {s:g}, λ = {lam}, {STRONG_03}" for lam in ("0", "0.4"))
        yield s, evidence.runs[low], evidence.runs[high]


def excess_kurtosis(sigmas: Floats) -> Floats:
    """Of noise whose σ varies from image to image: one number per image (n,), to be averaged.

    A mixture of N(0, σ_i²) has kurtosis 3 m₄ / m₂², m_k the mean of σ_i^k. The mean of what is
    returned is this minus 3; its spread is that of the influence of each image (delta method).
    """
    m2, m4 = (sigmas**2).mean(), (sigmas**4).mean()
    influence = (sigmas**4 - m4) / m2**2 - 2 * m4 * (sigmas**2 - m2) / m2**3
    values: Floats = 3 * (m4 / m2**2 - 1 + influence)
    return values


# Fig. 9 and App. C: one classifier for all levels


def nearest(evidence: Committed, start: str, end: str, level: float) -> Outcomes:
    """Of the runs of g_v* at every λ, the one whose mean σ_s is nearest to a level."""
    runs = evidence.between(start, end)
    return min(runs, key=lambda run: abs(float(run.clean_sigmas.mean()) - level))


@comparison
def universal_gain(
    evidence: Committed, method: str, column: str, sigmas: Sequence[float] = SIGMAS
) -> Pairs:
    """On f_u minus on f: g at σ_s = σ_a, or g_v* at the λ whose mean σ_s is nearest to σ_a."""
    for s in sigmas:
        models = ("σ_a′ = 1, ", f"σ_a = {s:g}, ")
        if method == "g":
            one, other = (evidence.runs[f"g, {model}σ_s = {s:g}, {STRONG_03}"] for model in models)
        else:
            one, other = (nearest(evidence, f"{method}, {m}", STRONG_03, s) for m in models)
        yield f"σ_a = {s:g}", paired(one, other, column)


@comparison
def last_minus_first(evidence: Committed, cases: Comparison) -> Pairs:
    """The last case of a comparison minus its first, image by image."""
    (first, one), *_, (last, other) = cases(evidence).items()
    yield f"{last} minus {first}", other.minus(one)


MIDDLE = {0.25: 0.12, 0.5: 0.25, 1.0: 0.5}
"""The σ_a of the baseline for each σ_a′ of App. C: the middle of its range."""


@comparison
def extended_gain(
    evidence: Committed, column: str, budgets: Sequence[float] = (0.1, 0.3, 0.5)
) -> Pairs:
    """g_v* on f_u minus g on the f of the middle σ_a, at the λ whose mean σ_s is nearest to it."""
    for (wide, s), e in product(MIDDLE.items(), budgets):
        end = f"γ = {e:g}, strong attack"
        one = nearest(evidence, f"g_v*, σ_a′ = {wide:g}, ", end, s)
        other = evidence.runs[f"g, σ_a = {s:g}, σ_s = {s:g}, {end}"]
        yield f"σ_a′ = {wide:g}, γ = {e:g}", paired(one, other, column)


@comparison
def extended_pairs(evidence: Committed, first: str, second: str, column: str = "correct") -> Pairs:
    """Two runs on the f_u of each σ_a′: formats with {u} (σ_a′) and {e} (γ)."""
    for u, e in product(MIDDLE, (0.1, 0.3, 0.5)):
        one, other = (evidence.runs[text.format(u=u, e=e)] for text in (first, second))
        if one.name != other.name:
            yield f"σ_a′ = {u:g}, γ = {e:g}", paired(one, other, column)


@comparison
def conditioning(evidence: Committed) -> Pairs:
    """g on the f_u that has σ as an input minus g on one that does not."""
    for s in SIGMAS:
        seen, hidden = (f"g, σ is {what}, σ_s = {s:g}" for what in ("an input", "hidden"))
        yield f"σ_s = {s:g}", paired(evidence.runs[seen], evidence.runs[hidden])


@comparison
def converged(evidence: Committed) -> Pairs:
    """Robust accuracy with more steps or draws minus that with the chosen ones."""
    chosen: dict[tuple[str, bool], str] = {}  # the first of each method and kind of attack
    for name, run in evidence.runs.items():
        method, weak = name.split(",")[0], "weak attack" in name
        first = chosen.setdefault((method, weak), name)
        if name != first:
            changed = [each for each in name.split(", ") if each not in first.split(", ")]
            what = "every setting doubled" if len(changed) > 1 else "".join(changed)
            title = f"{method}{' under PGD on f' * weak}: {what or 'one draw of h'}"
            yield title, paired(run, evidence.runs[first])


# Fig. 5


@dataclass(frozen=True)
class CertifiedRuns:
    """The runs of Fig. 5 on the model of one σ_a."""

    sigma_a: float
    swept: Sequence[Outcomes]
    equal: Outcomes
    free: Sequence[Outcomes]
    attacked: Mapping[float, Sequence[Outcomes]]
    clipped: Mapping[float, Sequence[Outcomes]]
    sound: Sequence[Outcomes]

    @classmethod
    def of(cls, every: Mapping[str, Outcomes], sigma_a: float) -> "CertifiedRuns":
        mine = {n: r for n, r in every.items() if f"σ_a = {sigma_a:g}, " in n}

        def ended(end: str) -> list[Outcomes]:
            return [run for name, run in mine.items() if name.endswith(end)]

        distances = sorted({float(n.split("D = ")[1].split(",")[0]) for n in mine if "D = " in n})
        swept = [run for name, run in mine.items() if name.startswith("g, ")]
        return cls(
            sigma_a,
            swept,
            min(swept, key=lambda run: abs(float(run.sigmas[0]) - sigma_a)),
            ended("no attack on h"),
            {d: ended(f" attack on h, D = {d:g}") for d in distances},
            {d: ended(f"D = {d:g}, clipped") for d in distances},
            ended("sound, clipped"),
        )

    @property
    def reach(self) -> float:
        """Nine tenths of what N = 1000 votes prove at the median σ_s of the λ where it is largest.

        Beyond, what N votes can certify decides instead of the method.
        """
        level = max(float(np.median(run.sigmas)) for run in self.free)
        return 0.9 * float(bounds.class_radius(1000, 1000, level, 1e-3))

    @property
    def decided(self) -> list[float]:
        """r = 0, ½, 1, … σ_a as far as they decide."""
        return [r for r in (k * self.sigma_a / 2 for k in range(5)) if r <= self.reach]


def every_model(evidence: Committed) -> list[CertifiedRuns]:
    there = [s for s in SIGMAS if evidence.between(f"g, σ_a = {s:g},")]
    return [CertifiedRuns.of(evidence.runs, sigma_a) for sigma_a in there]


def best_at(runs: Sequence[Outcomes], radius: float) -> Outcomes:
    """The run with the highest certified accuracy at a radius, with hindsight."""
    return max(runs, key=lambda run: int(certified_counts(run.reach, radius)))


@comparison
def certified_gain(evidence: Committed, rival: str) -> Pairs:
    """g_v* without an attack on h at its best λ minus g, at every radius that decides."""
    for runs in every_model(evidence):
        others = runs.swept if rival == "envelope" else [runs.equal]
        for r in runs.decided:
            gap = certified_at(best_at(runs.free, r), best_at(others, r), r)
            yield f"σ_a = {runs.sigma_a:g}, r = {r:g}", gap


@comparison
def attacked_gap(evidence: Committed, which: int) -> Pairs:
    """g_v* with an attack on h minus g at its best σ_s, at r = D; which: of the D above 0."""
    for runs in every_model(evidence):
        d = [d for d in runs.attacked if d > 0][which]
        gap = certified_at(best_at(runs.attacked[d], d), best_at(runs.swept, d), d)
        yield f"σ_a = {runs.sigma_a:g}", gap


@comparison
def at_distance(evidence: Committed, of: Literal["attack", "clip"]) -> Pairs:
    """With an attack on h, at r = D and the same λ: what it costs, or what the clip gains."""
    for runs in every_model(evidence):
        for d, attacked in runs.attacked.items():
            free, clipped = runs.free, runs.clipped[d]
            pairs = (free, attacked) if of == "attack" else (clipped, attacked)
            for one, other, run in zip(*pairs, attacked, strict=True):
                title = run.name.removeprefix("g_v*, ").replace("attack on h, D", "r")
                yield title, certified_at(one, other, d)


@comparison
def chosen_radius(evidence: Committed) -> Pairs:
    """Average radius in σ_a, h not attacked, λ and σ_s chosen on held-out images."""
    for runs in every_model(evidence):
        lam, level = evidence.facts[f"chosen on val, σ_a = {runs.sigma_a:g}"]
        title = f"σ_a = {runs.sigma_a:g}, λ = {lam:g}"
        mine = evidence.runs[f"g_v*, {title}, no attack on h"]
        rival = evidence.runs[f"g, σ_a = {runs.sigma_a:g}, σ_s = {level:.3g}"]
        yield f"{title}, σ_s = {level:.3g}", radius_gap(mine, rival) / runs.sigma_a


@comparison
def sound_radius(evidence: Committed) -> Pairs:
    """Average radius in σ_a of sound g_v* at its best λ minus g at its best σ_s."""
    for runs in every_model(evidence):
        mine, rival = (
            max(outcomes, key=lambda run: run.average_radius)
            for outcomes in (runs.sound, runs.swept)
        )
        yield f"σ_a = {runs.sigma_a:g}", radius_gap(mine, rival) / runs.sigma_a


@comparison
def soundness_cost(evidence: Committed) -> Pairs:
    """Average radius in σ_a, h not attacked minus sound, at the same λ."""
    for runs in every_model(evidence):
        for free, sound in zip(runs.free, runs.sound, strict=True):
            title = f"σ_a = {runs.sigma_a:g}, {free.name.split(', ')[2]}"
            yield title, radius_gap(free, sound) / runs.sigma_a


# Fig. 2, the ablation and the cascades


@comparison
def traded(evidence: Committed, sigmas: Sequence[float], name: str, far: bool) -> Pairs:
    """Neighbouring levels: the smaller minus the larger at r = 0, or the larger minus the smaller
    at twice the smaller, where 1000 votes at it can still certify."""
    for small, large in pairwise(sigmas):
        one, other = (evidence.runs[name.format(s=s)] for s in (small, large))
        if far:
            title = f"r = {2 * small:g}, {large:g} − {small:g}"
            yield title, certified_at(other, one, 2 * small)
        else:
            yield f"r = 0, {small:g} − {large:g}", certified_at(one, other, 0.0)


@comparison
def near_sigma_a(evidence: Committed) -> Pairs:
    """Average radius in σ_a = 0.5 at σ_s = σ_a minus that at half and at twice of it."""
    at, *ends = (evidence.runs[f"σ_a = 0.5, σ_s = {s}"] for s in ("0.5", "0.25", "1"))
    for level, run in zip(("0.25", "1"), ends, strict=True):
        yield f"σ_s = 0.5 minus {level}", radius_gap(at, run) / 0.5


@comparison
def ablation(evidence: Committed, first: str, second: str, kind: str) -> Pairs:
    """Two selectors of the ablation: certified accuracy at r = 0, radius, or σ_s, at each λ."""
    for lam in ("0", "0.2", "0.4"):
        one, other = (evidence.runs.get(text.format(l=lam)) for text in (first, second))
        if one is None or other is None or one is other:
            continue
        if kind == "accuracy":
            yield f"λ = {lam}", certified_at(one, other, 0.0)
        else:
            gap = paired(one, other, "sigmas") if kind == "sigma" else radius_gap(one, other)
            yield f"λ = {lam}", gap


@comparison
def cascade_gain(evidence: Committed, rule: str) -> Pairs:
    """Certified radius of a cascade minus that of the single σ that held-out images chose."""
    best = evidence.facts["rules chosen on held-out images"]["best"]
    gap = radius_gap(evidence.runs[rule], evidence.runs[f"σ = {best:g}"])
    yield f"N = {evidence.sizes['n']}", gap


# Facts that are not differences between runs: arithmetic, ranges, counts

DIMENSIONS, SHELL = 3072, (0.36, 0.39)
CENTRE, SLOPE, BUDGET = 0.33, 0.25, 0.68
ATTACKED = 0.18
"""The counterexample: three levels are not a bound. f is right everywhere but on the shell
0.36 √d ≤ ‖z − x‖ ≤ 0.39 √d, which noise of level σ hits only if σ is near 0.375. h is linear:
h(x) = 0.33, and it moves by 0.25 per unit of distance. The three levels at D = 0.68 are 0.16, 0.33
and 0.5; an attacker at distance 0.18 makes h choose 0.375."""

CLIP_PERCENTILES = (5, 95)
"""The range of σ_s over images: what Table 2 clips to, as we read it, and our rule for a clip."""


def right(sigma: float, distance: float = 0.0) -> float:
    """P(f(x' + σ ε) is right) at ‖x' − x‖ = distance, exactly: ‖z − x‖² is noncentral χ²."""
    shift = max((distance / sigma) ** 2, 1e-9)
    inner, outer = (ncx2.cdf(DIMENSIONS * (r / sigma) ** 2, DIMENSIONS, shift) for r in SHELL)
    return float(1 - (outer - inner))


def three_level_radius(n: int, alpha: float) -> float:
    """The paper's radius: the smallest at the three levels with n votes, capped at D."""
    levels = (CENTRE - SLOPE * BUDGET, CENTRE, CENTRE + SLOPE * BUDGET)
    radii = [float(bounds.class_radius(np.floor(n * right(s)), n, s, alpha)) for s in levels]
    return min(*radii, BUDGET)


def counterexample(evidence: Committed) -> str:
    """Inside the three-level radius f can be wrong almost surely."""
    radius, level = three_level_radius(1000, 1e-3), CENTRE + SLOPE * ATTACKED
    return (
        f"radius {rounded(radius)}; at distance {ATTACKED:g} f is right with probability "
        f"{right(level, ATTACKED):.2g}"
    )


SHIFTS = tuple(0.25 * step for step in range(17))
"""D/σ_m of the table of percentiles."""


def largest_gap(n: int, a: float) -> float:
    """How far q_u/n lies above Φ(D/σ_m) where it exists, in percentage points, at most."""
    pairs = [(shift, bounds.order_statistics(n, shift, 1.0, a)[1]) for shift in SHIFTS]
    return max(
        100 * (upper / n - float(bounds.normal_cdf(shift))) for shift, upper in pairs if upper <= n
    )


def percentile_gaps(evidence: Committed) -> str:
    sizes, a = evidence.sizes["sample_sizes"], evidence.sizes["alpha_select"] / 2
    small, large = sizes[0], sizes[-1]
    return (
        f"largest gap {largest_gap(small, a):.2f} points at N_h = {small:,}, "
        f"{largest_gap(large, a):.2f} at {large:,}"
    )


def bounds_width(evidence: Committed) -> str:
    """How far the mean bounds lie apart, where they exist, relative to the median."""
    widths = []
    for means in evidence.facts.values():
        low, middle, high = np.array(means, dtype=float)[:, :, 0].T  # (D,) each
        widths.append(np.nanmax((high - low) / middle))
    return f"{100 * max(widths):.1f} % of the median"


def dual_cost(evidence: Committed) -> str:
    sizes = evidence.sizes
    return f"{sizes['n_select']} evaluations of h in addition to {sizes['n']} votes of f"


def relative_width(ends: Any) -> Any:
    """The width of a range of levels relative to its middle."""
    low, high = ends
    return 2 * (high - low) / (high + low)


def table_2_widths(evidence: Committed) -> str:
    """The 5–95 % range of σ_s over test images, beside the clip ranges of Table 2."""
    ours, theirs = [], []
    for (s, lam), clip in TABLE_2.items():
        attacked = evidence.runs.get(f"g_v*, σ_a = {s:g}, λ = {lam:g}, γ = 0.3, strong attack")
        if attacked is not None:
            levels = attacked.clean_sigmas
        else:
            levels = evidence.runs[f"g_v*, σ_a = {s:g}, λ = {lam:g}, no attack"].sigmas
        ours.append(100 * relative_width(np.percentile(levels, CLIP_PERCENTILES)))
        theirs.append(100 * relative_width(clip))
    return (
        f"{min(ours):.1f} to {max(ours):.0f} % wide, theirs {min(theirs):.0f} to "
        f"{max(theirs):.0f} %"
    )


def memorised(evidence: Committed) -> str:
    """What h gains on its training images minus what it gains on others, λ = 0.2, released f.

    The gain over the single level that is best on training images, in the objective. Both sets of
    images are independent, so the variances of the two means add.
    """
    (study,) = (seen for name, seen in evidence.facts.items() if "f released" in name)
    last = study[max(study, key=int)]
    z = float(normal_quantile(0.975))
    gains = [last[which]["0.2"]["gain"] for which in ("training", "held-out")]
    errors = [(high - low) / 2 / z for _, low, high in gains]
    images = 2 * int(evidence.sizes["images"])
    gap = Estimate(gains[0][0] - gains[1][0], float(np.hypot(*errors)), images)
    return f"{gap.text(1.0, 3)} in the loss"


def summed_kl(evidence: Committed) -> str:
    """σ_s with the KL summed over 3072 dimensions, relative to σ_t = 2 σ_a = 0.5."""
    means = [
        evidence.facts[f"σ_s on held-out images: KL summed over dimensions, λ = {lam}"][0] / 0.5
        for lam in ("0.2", "0.4")
    ]
    return f"{100 * means[0]:.1f} % of σ_t at λ = 0.2, {100 * means[1]:.1f} % at 0.4"


def cascade_violations(evidence: Committed) -> str:
    with (evidence.folder / "cascade-attack.csv").open(encoding="utf-8", newline="") as file:
        lines = [line for line in csv.reader(file) if len(line) > 3 and line[3].isdigit()]
    inside = sum(int(line[3]) for line in lines if float(line[1]) < 1)
    beyond = [line for line in lines if float(line[1]) > 1]
    return (
        f"{inside} of {lines[0][2]} images inside 0.95 R, "
        f"{beyond[0][3]} of {beyond[0][2]} at {float(beyond[0][1]):g} R"
    )
