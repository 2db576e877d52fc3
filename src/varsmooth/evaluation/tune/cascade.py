"""Choosing the stages of a cascade on held-out images, as a function of λ.

Levels, thresholds and gates are chosen together, from one table of votes (`tune.table`). A rule is
scored by the arithmetic that `certify` uses: class and stage from the selection draws, radius from
the votes. How many stages are worth having, and what to expect on new images, is estimated by rules
that were chosen on one half of the images and scored on the other.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from varsmooth import bounds
from varsmooth.bounds import Floats, Integers, average_certified_radius
from varsmooth.errors import check
from varsmooth.evaluation.tune.table import ConfidentVotes
from varsmooth.models.descriptions import Description
from varsmooth.models.options import TunedStages
from varsmooth.rounding import rounded

THRESHOLDS = (0.5, 0.55, 0.6, 0.7, 0.8)
LAMBDAS = tuple(round(0.1 * k, 1) for k in range(11))
SEARCHED = (0.0, 0.3, 0.6, 1.0)
"""The λ for which rules are searched; those for the others are among what these look at."""

STAGES, BEAM = 5, 12
"""The most stages, and how many beginnings of a cascade the search keeps."""

EQUAL = 0.002
"""Fewer stages are preferred to a gain of this share of the score."""


class Value(NamedTuple):
    """Certified accuracy at 0 and average certified radius."""

    accuracy: float
    radius: float

    @classmethod
    def of(cls, earned: Floats) -> "Value":
        """From the radius of every image that is certified as its label, else 0: (N,)."""
        return cls(float((earned > 0).mean()), average_certified_radius(earned))

    def score(self, unit: "Value", lam: float) -> float:
        """(1 − λ) · accuracy + λ · radius, in these units."""
        return (1 - lam) * self.accuracy / unit.accuracy + lam * self.radius / unit.radius


@dataclass(frozen=True)
class Rule:
    """Stages and gates, as columns of a table, and what they earn there."""

    columns: tuple[int, ...]
    thresholds: tuple[float, ...]
    gates: tuple[int, ...]
    value: Value


@dataclass(frozen=True)
class Prefix:
    """The first stages of a cascade, and what is known of every image after them.

    Attributes:
        floors: min_j X_j for every class, expected and by the votes, each (N, classes).
        expected: The largest radius that the selection draws predict so far (N,).
        radius: The radius by the votes, at the stage and class of `expected` (N,).
        answer: That class (N,).
    """

    columns: tuple[int, ...]
    thresholds: tuple[float, ...]
    gates: tuple[int, ...]
    floors: tuple[Floats, Floats]
    expected: Floats
    radius: Floats
    answer: Integers

    @classmethod
    def empty(cls, table: ConfidentVotes) -> "Prefix":
        images, classes = table.counts.shape[0], table.counts.shape[2]
        floor, none = np.full((images, classes), np.inf), np.full(images, -np.inf)
        return cls((), (), (), (floor, floor), none, none, np.zeros(images, dtype=np.int64))

    def extend(
        self, table: ConfidentVotes, column: int, tau: float, gate: int, last: bool = False
    ) -> "Prefix":
        """One more stage (Theorem C, `varsmooth.methods.cascade`); the last answers argmax."""
        level, z = table.levels[column], float(bounds.normal_quantile(tau))
        reached, floors = [], []
        for floor, quantiles in zip(self.floors, table.quantiles[gate], strict=True):
            lower, upper, lead = (q[:, column] for q in quantiles)  # (N, classes)
            holds = level * (lead if last else lower - z)  # H
            reached.append(np.minimum(holds, floor))
            floors.append(np.minimum(floor, level * (z - upper)))  # X
        rows, best = np.arange(len(self.radius)), reached[0].argmax(axis=1)
        better = reached[0][rows, best] > self.expected
        return Prefix(
            (*self.columns, column),
            (*self.thresholds, tau),
            (*self.gates, gate),
            (floors[0], floors[1]),
            np.where(better, reached[0][rows, best], self.expected),
            np.where(better, reached[1][rows, best], self.radius),
            np.where(better, best, self.answer),
        )

    def earned(self, table: ConfidentVotes) -> Floats:
        """The radius of every image that is certified as its label, else 0: (N,)."""
        return np.where(self.answer == table.labels, np.maximum(self.radius, 0.0), 0.0)

    def rule(self, table: ConfidentVotes) -> Rule:
        return Rule(self.columns, self.thresholds, self.gates, Value.of(self.earned(table)))


def follow(table: ConfidentVotes, rule: Rule) -> Prefix:
    """The outcome of a rule on the images of a table."""
    prefix, stages = Prefix.empty(table), len(rule.columns)
    parts = zip(rule.columns, rule.thresholds, rule.gates, strict=True)
    for stage, (column, tau, gate) in enumerate(parts, 1):
        prefix = prefix.extend(table, column, tau, gate, stage == stages and tau == 0.5)
    return prefix


def ladder(about: Description) -> tuple[float, ...]:
    """Levels to choose from, in steps of √2 down from the largest that f was trained for.

    An f for one level is tried above it too: from 2 σ_a.
    """
    top = about.sigma_a if about.universal else 2 * about.sigma_a
    return tuple(round(top * 2 ** (-k / 2), 3) for k in range(7))


def singles(table: ConfidentVotes) -> list[Rule]:
    """Every single σ, without a gate: the baseline of a cascade."""
    return list(_completions(table, Prefix.empty(table)))


def best_single(table: ConfidentVotes) -> Value:
    """The best accuracy and the best radius of any single σ: the units of scores."""
    values = [rule.value for rule in singles(table)]
    unit = Value(max(v.accuracy for v in values), max(v.radius for v in values))
    check(
        unit.radius > 0,
        "no image can be certified with these votes at any level; raise n, or train the "
        "classifier under noise first",
    )
    return unit


def rules(table: ConfidentVotes, unit: Value, stages: int = STAGES) -> list[Rule]:
    """The rules that a beam search visits for several λ: levels fall, the last stage is argmax.

    A beginning is judged by its best completion; thresholds, gates and levels are free at every
    stage but the last, which has no gate.
    """
    seen = dict.fromkeys(singles(table))
    for lam in SEARCHED:
        beam = [Prefix.empty(table)]
        for _ in range(stages - 1):
            ranked: list[tuple[float, Prefix]] = []
            for prefix in itertools.chain.from_iterable(_longer(table, start) for start in beam):
                complete = list(_completions(table, prefix))
                seen |= dict.fromkeys(complete)
                ranked.append((max(rule.value.score(unit, lam) for rule in complete), prefix))
            ranked.sort(key=lambda pair: -pair[0])
            beam = [prefix for _, prefix in ranked[:BEAM]]
    return list(seen)


def _lower(table: ConfidentVotes, prefix: Prefix) -> list[int]:
    """Columns of the levels below those of a beginning."""
    least = min((table.levels[j] for j in prefix.columns), default=np.inf)
    return [j for j, level in enumerate(table.levels) if level < least]


def _longer(table: ConfidentVotes, prefix: Prefix) -> Iterator[Prefix]:
    """A beginning with one more stage, which is not the last: a smaller level must be left."""
    for column in _lower(table, prefix):
        if table.levels[column] > min(table.levels):
            for tau, gate in itertools.product(THRESHOLDS, range(len(table.confidences))):
                yield prefix.extend(table, column, tau, gate)


def _completions(table: ConfidentVotes, prefix: Prefix) -> Iterator[Rule]:
    """A beginning with a last stage, at each smaller level."""
    for column in _lower(table, prefix):
        yield prefix.extend(table, column, 0.5, 0, last=True).rule(table)


@dataclass(frozen=True)
class Choice:
    """The rule for each λ and the best single σ, with what to expect of them on new images."""

    rules: tuple[tuple[float, Rule], ...]
    expected: tuple[Value, ...]
    single: Rule
    single_expected: Value


def choose(table: ConfidentVotes, stages: int = STAGES, lams: Sequence[float] = LAMBDAS) -> Choice:
    """The best rule for each λ, λ = 1: the largest average radius, λ = 0: the most accurate.

    The two halves of the images, each scored by rules chosen on the other, say how many stages are
    worth having (`EQUAL`) and what to expect on new images.
    """
    even = np.arange(len(table.labels)) % 2 == 0
    halves = [table.rows(even), table.rows(~even)]
    unit = best_single(table)
    pools = [rules(half, unit, stages) for half in halves]

    def crossed(chosen: Iterable[Rule]) -> Value:
        """Of two rules, each chosen on one half and scored on the other."""
        pairs = zip(chosen, halves[::-1], strict=True)
        return Value.of(np.concatenate([follow(half, rule).earned(half) for rule, half in pairs]))

    by_stages = {
        most: [crossed(_best(pool, unit, lam, most) for pool in pools) for lam in lams]
        for most in range(1, stages + 1)
    }
    score = {
        most: np.mean([value.score(unit, lam) for value, lam in zip(values, lams, strict=True)])
        for most, values in by_stages.items()
    }
    most = min(m for m in score if score[m] >= max(score.values()) * (1 - EQUAL))
    pool = rules(table, unit, stages)
    return Choice(
        tuple((lam, _best(pool, unit, lam, most)) for lam in lams),
        tuple(by_stages[most]),
        _largest(singles(table)),
        crossed(_largest(singles(half)) for half in halves),
    )


def _largest(rules: Iterable[Rule]) -> Rule:
    return max(rules, key=lambda rule: rule.value.radius)


def _best(pool: Iterable[Rule], unit: Value, lam: float, most: int) -> Rule:
    """The largest score with at most so many stages; of equals the fewest, then the radius."""
    return max(
        (rule for rule in pool if len(rule.columns) <= most),
        key=lambda r: (r.value.score(unit, lam), -len(r.columns), r.value.radius),
    )


def family(choice: Choice, table: ConfidentVotes) -> tuple[TunedStages, ...]:
    """The chosen rules in the form of a model's description, each rule once."""
    members = []
    for rule, pairs in _alike(choice):
        ((lam, _), _), (_, expected) = pairs[0], pairs[-1]
        members.append(_stages(table, rule, lam, expected))
    return tuple(members)


def single(choice: Choice, table: ConfidentVotes) -> TunedStages:
    """The best single σ in the form of a model's description."""
    return _stages(table, choice.single, 1.0, choice.single_expected)


def _alike(choice: Choice) -> list[tuple[Rule, list[tuple[tuple[float, Rule], Value]]]]:
    """Each rule with the λ that chose it, and what to expect there."""
    pairs = zip(choice.rules, choice.expected, strict=True)
    return [(r, list(rows)) for r, rows in itertools.groupby(pairs, key=lambda pair: pair[0][1])]


def _stages(table: ConfidentVotes, rule: Rule, lam: float, expected: Value) -> TunedStages:
    return TunedStages(
        lam=lam,
        levels=tuple(table.levels[j] for j in rule.columns),
        thresholds=rule.thresholds,
        gates=tuple(table.confidences[c] for c in rule.gates),
        expected=expected,
    )


def summary(choice: Choice, table: ConfidentVotes) -> list[str]:
    """The best single σ and the chosen cascades, a line each: here and expected on new images."""

    def line(label: str, rule: Rule, expected: Value, text: str) -> str:
        here, new = (
            f"{100 * value.accuracy:.1f} %, {rounded(value.radius, 4)}"
            for value in (rule.value, expected)
        )
        return f"{label}: {here} (expected on new images: {new}){text}"

    level = table.levels[choice.single.columns[0]]
    edge = " (the largest level tried)" * (level == max(table.levels))
    lines = [line(f"one σ = {level:g}", choice.single, choice.single_expected, edge)]
    members = family(choice, table)
    for stages, (rule, rows) in zip(members, _alike(choice), strict=True):
        lams = dict.fromkeys(f"{lam:g}" for (lam, _), _ in (rows[0], rows[-1]))
        lines.append(line(f"λ = {' to '.join(lams)}", rule, rows[-1][1], f"  {stages}"))
    if len(choice.rules[-1][1].columns) == 1:
        lines.append("no cascade has a larger average radius here than one σ")
    return lines
