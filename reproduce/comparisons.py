"""What the committed records say about each claim: differences by setting, image by image.

A comparison reads runs by their names and returns its cases: for each setting, one number per
image. `verdicts` pools them; the experiment's page lists them.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from reproduce.records import CONFIG, RECORDS, read_records
from reproduce.statistics import Differences, paired
from varsmooth.bounds import Floats
from varsmooth.evaluation.report.outcomes import Outcomes

SIGMAS = (0.12, 0.25, 0.5, 1.0)
LAMS = (0.0, 0.1, 0.2, 0.3, 0.4)
WEAK, STRONG = "γ = {e:g}, weak attack", "γ = {e:g}, strong attack"
SELECTED = "σ_a = {s:g}, λ = {l:g}, "

Cases = Mapping[str, Differences]
"""By setting: `σ_a = 0.25, λ = 0.2`."""


@dataclass(frozen=True)
class Committed:
    """The runs and facts of one committed result."""

    folder: Path

    @classmethod
    def of(cls, folder: Path) -> "Committed":
        """Read once: several comparisons share a result."""
        return _read(folder)

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


_read = cache(Committed)

Comparison = Callable[[Committed], Cases]


def gaps(
    evidence: Committed,
    first: str,
    second: str,
    column: str = "correct",
    sigmas: Sequence[float] = SIGMAS,
    lams: Sequence[float] = LAMS,
    budgets: Sequence[float] = (0.3,),
) -> Cases:
    """One run minus another for each σ_a, λ and γ of which the records have both."""
    runs, found = evidence.runs, dict[str, Differences]()
    for s, lam, e in product(sigmas, lams, budgets):
        names = [text.format(s=s, l=lam, e=e) for text in (first, second)]
        if all(name in runs for name in names):
            title = f"σ_a = {s:g}, λ = {lam:g}" + f", γ = {e:g}" * (len(budgets) > 1)
            found[title] = paired(runs[names[0]], runs[names[1]], column)
    return found


def compare(first: str, second: str, **options: Any) -> Comparison:
    return partial(gaps, first=first, second=second, **options)


def both(one: Comparison, other: Comparison, signs: tuple[int, int] = (1, -1)) -> Comparison:
    """A difference of differences, on the images that all four runs have."""

    def cases(evidence: Committed) -> Cases:
        first, second = one(evidence), other(evidence)
        found = {}
        for title in first.keys() & second.keys():
            values = [
                dict(zip(part.ids, part.values.tolist(), strict=True))
                for part in (first[title], second[title])
            ]
            ids = [image for image in values[0] if image in values[1]]
            each = [signs[0] * values[0][i] + signs[1] * values[1][i] for i in ids]
            found[title] = Differences(ids, np.array(each))
        return dict(sorted(found.items()))

    return cases


# Fig. 6b, 8 and 9: g at the mean σ_s of what it is compared with, on the same f


def matched(method: str, kind: str) -> Comparison:
    """A learned classifier minus g at its mean σ_s, which the facts have."""

    def cases(evidence: Committed) -> Cases:
        found, end = {}, f"γ = 0.3, {kind} attack"
        for s, lam in product(SIGMAS, LAMS):
            about = f"σ_a = {s:g}, λ = {lam:g}"
            if level := evidence.facts.get(f"mean σ_s of {method}, {about}, {kind} attack"):
                mine, rival = f"{method}, {about}, {end}", f"g, σ_a = {s:g}, σ_s = {level:g}, {end}"
                found[about] = paired(evidence.runs[mine], evidence.runs[rival])
        return found

    return cases


def same_level(model: str, levels: Sequence[float], column: str = "correct") -> Comparison:
    """g_v* minus g on the same f under the strong attack, at nearly the same level.

    For each σ_s of g the λ whose mean σ_s is nearest, if it is within a tenth.
    model: the title of f, a format of σ_a; levels: σ_s relative to the level of the title.
    """

    def cases(evidence: Committed) -> Cases:
        found, end = {}, "γ = 0.3, strong attack"
        for title in dict.fromkeys(model.format(s=s) for s in SIGMAS):
            for level in levels:
                sigma = level * float(title.split("= ")[1])
                rival = evidence.runs.get(f"g, {title}, σ_s = {round(sigma, 4):g}, {end}")
                if rival is None:
                    continue
                mine = nearest(evidence, f"g_v*, {title}, ", end, sigma)
                if abs(float(mine.clean_sigmas.mean()) / sigma - 1) < 0.1:
                    setting = mine.name.split(", ")[2]
                    found[f"{title}, σ_s = {sigma:g}, {setting}"] = paired(mine, rival, column)
        return found

    return cases


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


def reading(reader: str) -> Comparison:
    """g_v minus g at its mean σ_s, for an h that reads these features."""

    def cases(evidence: Committed) -> Cases:
        found = {}
        for s, lam in product((0.03, 0.06, 0.25), LAMS):
            learned = evidence.runs.get(f"g_v, σ_a = {s:g}, λ = {lam:g}, {reader}")
            if learned is not None:
                fixed = [r for n, r in evidence.runs.items() if n.startswith(f"g, σ_a = {s:g}, ")]
                found[f"σ_a = {s:g}, λ = {lam:g}"] = beside_mean(learned, fixed)
        return found

    return cases


def reading_at_best(reader: str) -> Comparison:
    """g_v at its best λ minus g at its best σ_s, both in hindsight."""

    def cases(evidence: Committed) -> Cases:
        found = {}
        for s in (0.03, 0.06, 0.25):
            learned, fixed = (
                [r for n, r in evidence.runs.items() if n.startswith(start) and n.endswith(end)]
                for start, end in ((f"g_v, σ_a = {s:g}, ", reader), (f"g, σ_a = {s:g}, ", ""))
            )
            if learned:
                one, other = (
                    max(some, key=lambda r: float(r.correct.mean())) for some in (learned, fixed)
                )
                found[f"σ_a = {s:g}"] = paired(one, other)
        return found

    return cases


# What an attack does to σ_s


def moved(method: str, kind: str = "strong", budgets: Sequence[float] = (0.3,)) -> Comparison:
    """|σ_s under attack / σ_s before it − 1| of the attacked images: those right before it."""

    def cases(evidence: Committed) -> Cases:
        found = {}
        for s, lam, e in product(SIGMAS, LAMS, budgets):
            run = evidence.runs.get(f"{method}, σ_a = {s:g}, λ = {lam:g}, γ = {e:g}, {kind} attack")
            if run is not None:
                hit = run.clean_correct
                change: Floats = np.abs(run.sigmas / run.clean_sigmas - 1)[hit]
                title = f"σ_a = {s:g}, λ = {lam:g}" + f", γ = {e:g}" * (len(budgets) > 1)
                found[title] = Differences(run.ids[hit].tolist(), change)
        return found

    return cases


def level_gain(evidence: Committed) -> Cases:
    """σ_s of g_v* in σ_a, at λ = 0.4 minus that at λ = 0."""
    found = {}
    for s, (low, high) in _ends_of_lambda(evidence).items():
        gap = paired(high, low, "clean_sigmas")
        found[f"σ_a = {s:g}"] = Differences(gap.ids, gap.values / s)
    return found


def kurtosis_fall(evidence: Committed) -> Cases:
    """Excess kurtosis of the noise over all images, g_v* at λ = 0 minus that at λ = 0.4."""
    found = {}
    for s, (low, high) in _ends_of_lambda(evidence).items():
        fall = excess_kurtosis(low.clean_sigmas) - excess_kurtosis(high.clean_sigmas)
        found[f"σ_a = {s:g}"] = Differences(low.ids.tolist(), fall)
    return found


def _ends_of_lambda(evidence: Committed) -> dict[float, tuple[Outcomes, Outcomes]]:
    """g_v* under the strong attack at λ = 0 and at λ = 0.4, for each σ_a."""
    name = "g_v*, σ_a = {s:g}, λ = {l}, γ = 0.3, strong attack"
    runs = evidence.runs
    return {s: (runs[name.format(s=s, l="0")], runs[name.format(s=s, l="0.4")]) for s in SIGMAS}


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
    runs = [r for n, r in evidence.runs.items() if n.startswith(start) and n.endswith(end)]
    return min(runs, key=lambda run: abs(float(run.clean_sigmas.mean()) - level))


def universal_gain(method: str, column: str, sigmas: Sequence[float] = SIGMAS) -> Comparison:
    """On f_u minus on f: g at σ_s = σ_a, or g_v* at the λ whose mean σ_s is nearest to σ_a."""

    def cases(evidence: Committed) -> Cases:
        found, end = {}, "γ = 0.3, strong attack"
        for s in sigmas:
            names = [f"{method}, σ_a′ = 1, ", f"{method}, σ_a = {s:g}, "]
            if method == "g":
                one, other = (evidence.runs[f"{name}σ_s = {s:g}, {end}"] for name in names)
            else:
                one, other = (nearest(evidence, name, end, s) for name in names)
            found[f"σ_a = {s:g}"] = paired(one, other, column)
        return found

    return cases


def last_minus_first(comparison: Comparison, what: str = "σ_a") -> Comparison:
    """The last case of a comparison minus its first, image by image."""

    def cases(evidence: Committed) -> Cases:
        every = comparison(evidence)
        (first, one), *_, (last, other) = every.items()
        renamed = both(lambda _: {"": other}, lambda _: {"": one})(evidence)
        return {f"{last} minus {first}": renamed[""]}

    return cases


MIDDLE = {0.25: 0.12, 0.5: 0.25, 1.0: 0.5}
"""The σ_a of the baseline for each σ_a′ of App. C: the middle of its range."""


def extended_gain(column: str, budgets: Sequence[float] = (0.1, 0.3, 0.5)) -> Comparison:
    """g_v* on f_u minus g on the f of the middle σ_a, at the λ whose mean σ_s is nearest to it."""

    def cases(evidence: Committed) -> Cases:
        found = {}
        for (wide, s), e in product(MIDDLE.items(), budgets):
            end = f"γ = {e:g}, strong attack"
            one = nearest(evidence, f"g_v*, σ_a′ = {wide:g}, ", end, s)
            other = evidence.runs[f"g, σ_a = {s:g}, σ_s = {s:g}, {end}"]
            found[f"σ_a′ = {wide:g}, γ = {e:g}"] = paired(one, other, column)
        return found

    return cases


def extended_pairs(first: str, second: str, column: str = "correct") -> Comparison:
    """Two runs on the f_u of each σ_a′: formats with {u} (σ_a′), {s} (its middle) and {e} (γ)."""

    def cases(evidence: Committed) -> Cases:
        found = {}
        for (u, s), e in product(MIDDLE.items(), (0.1, 0.3, 0.5)):
            one, other = (evidence.runs[text.format(u=u, s=s, e=e)] for text in (first, second))
            if one.name != other.name:
                found[f"σ_a′ = {u:g}, γ = {e:g}"] = paired(one, other, column)
        return found

    return cases


def conditioning(evidence: Committed) -> Cases:
    """g on the f_u that has σ as an input minus g on one that does not."""
    runs = evidence.runs
    return {
        f"σ_s = {s:g}": paired(
            runs[f"g, σ is an input, σ_s = {s:g}"], runs[f"g, σ is hidden, σ_s = {s:g}"]
        )
        for s in SIGMAS
    }


def converged(evidence: Committed) -> Cases:
    """Robust accuracy with more steps or draws minus that with the chosen ones."""
    chosen = {run_kind(n): n for n in reversed(list(evidence.runs))}
    found = {}
    for name, run in evidence.runs.items():
        first = chosen[run_kind(name)]
        if name != first:
            changed = [each for each in name.split(", ") if each not in first.split(", ")]
            what = "every setting doubled" if len(changed) > 1 else "".join(changed)
            kind = " under PGD on f" * ("weak attack" in name)
            found[f"{name.split(',')[0]}{kind}: {what or 'one draw of h'}"] = paired(
                run, evidence.runs[first]
            )
    return found


def run_kind(name: str) -> tuple[str, bool]:
    """Which method is attacked, and whether by the weak attack."""
    return name.split(",")[0], "weak attack" in name
