"""Comparisons of certified runs: Fig. 2 and 5, the ablation and the cascades."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from reproduce.comparisons import SIGMAS, Cases, Committed, Comparison
from reproduce.statistics import Differences, certified_at, paired, radius_gap
from varsmooth import bounds
from varsmooth.evaluation.report.outcomes import Outcomes
from varsmooth.evaluation.report.statistics import certified_counts


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
    def decided(self) -> list[float]:
        """r = 0, ½, 1, … σ_a as far as they decide: below nine tenths of what N = 1000 votes prove.

        The median σ_s over images counts, at the λ where it is largest.
        """
        level = max(float(np.median(run.sigmas)) for run in self.free)
        reach = 0.9 * float(bounds.class_radius(1000, 1000, level, 1e-3))
        return [r for r in (k * self.sigma_a / 2 for k in range(5)) if r <= reach]


def best_at(runs: Sequence[Outcomes], radius: float) -> Outcomes:
    """The run with the highest certified accuracy at a radius, with hindsight."""
    return max(runs, key=lambda run: int(certified_counts(run.reach, radius)))


def certified_gain(rival: str) -> Comparison:
    """g_v* without an attack on h at its best λ minus g, at every radius that decides."""

    def cases(evidence: Committed) -> Cases:
        found = {}
        for runs in every_model(evidence):
            others = runs.swept if rival == "envelope" else [runs.equal]
            for r in runs.decided:
                gap = certified_at(best_at(runs.free, r), best_at(others, r), r)
                found[f"σ_a = {runs.sigma_a:g}, r = {r:g}"] = gap
        return found

    return cases


def attacked_gap(which: int) -> Comparison:
    """g_v* with an attack on h minus g at its best σ_s, at r = D; which: of the D above 0."""

    def gap(runs: CertifiedRuns) -> Differences:
        d = [d for d in runs.attacked if d > 0][which]
        return certified_at(best_at(runs.attacked[d], d), best_at(runs.swept, d), d)

    return lambda evidence: {f"σ_a = {r.sigma_a:g}": gap(r) for r in every_model(evidence)}


def certified_clipping(evidence: Committed) -> Cases:
    """With an attack on h, clipped minus not clipped, at r = D and the same λ."""
    return {
        at_distance(free): certified_at(clipped, free, d)
        for runs in every_model(evidence)
        for d in runs.attacked
        for free, clipped in zip(runs.attacked[d], runs.clipped[d], strict=True)
    }


def attack_on_h(evidence: Committed) -> Cases:
    """Without minus with an attack on h, at r = D and the same λ."""
    return {
        at_distance(attacked): certified_at(free, attacked, d)
        for runs in every_model(evidence)
        for d in runs.attacked
        for free, attacked in zip(runs.free, runs.attacked[d], strict=True)
    }


def at_distance(attacked: Outcomes) -> str:
    """The setting of a run with an attack on h: `σ_a = 0.25, λ = 0, r = 0.1`."""
    return attacked.name.removeprefix("g_v*, ").replace("attack on h, D", "r")


def chosen_radius(evidence: Committed) -> Cases:
    """Average radius in σ_a, h not attacked, λ and σ_s chosen on held-out images."""
    found = {}
    for runs in every_model(evidence):
        lam, level = evidence.facts[f"chosen on val, σ_a = {runs.sigma_a:g}"]
        title = f"σ_a = {runs.sigma_a:g}, λ = {lam:g}"
        mine = evidence.runs[f"g_v*, {title}, no attack on h"]
        rival = evidence.runs[f"g, σ_a = {runs.sigma_a:g}, σ_s = {level:.3g}"]
        found[f"{title}, σ_s = {level:.3g}"] = radius_gap(mine, rival, runs.sigma_a)
    return found


def sound_radius(evidence: Committed) -> Cases:
    """Average radius in σ_a of sound g_v* at its best λ minus g at its best σ_s."""
    found = {}
    for runs in every_model(evidence):
        mine, rival = (
            max(some, key=lambda run: run.average_radius) for some in (runs.sound, runs.swept)
        )
        found[f"σ_a = {runs.sigma_a:g}"] = radius_gap(mine, rival, runs.sigma_a)
    return found


def soundness_cost(evidence: Committed) -> Cases:
    """Average radius in σ_a, h not attacked minus sound, at the same λ."""
    return {
        f"σ_a = {runs.sigma_a:g}, {free.name.split(', ')[2]}": radius_gap(free, sound, runs.sigma_a)
        for runs in every_model(evidence)
        for free, sound in zip(runs.free, runs.sound, strict=True)
    }


def every_model(evidence: Committed) -> list[CertifiedRuns]:
    there = [s for s in SIGMAS if any(f"g, σ_a = {s:g}," in name for name in evidence.runs)]
    return [CertifiedRuns.of(evidence.runs, sigma_a) for sigma_a in there]


# Fig. 2


def traded(sigmas: Sequence[float], name: str, far: bool) -> Comparison:
    """Neighbouring levels: the smaller minus the larger at r = 0, or the larger minus the smaller
    at twice the smaller, where 1000 votes at it can still certify."""

    def cases(evidence: Committed) -> Cases:
        found = {}
        for small, large in pairwise(sigmas):
            one, other = (evidence.runs[name.format(s=s)] for s in (small, large))
            if far:
                found[f"r = {2 * small:g}, {large:g} − {small:g}"] = certified_at(
                    other, one, 2 * small
                )
            else:
                found[f"r = 0, {small:g} − {large:g}"] = certified_at(one, other, 0.0)
        return found

    return cases


def near_sigma_a(evidence: Committed) -> Cases:
    """Average radius in σ_a = 0.5 at σ_s = σ_a minus that at half and at twice of it."""
    at, *ends = (evidence.runs[f"σ_a = 0.5, σ_s = {s}"] for s in ("0.5", "0.25", "1"))
    return {
        f"σ_s = 0.5 minus {run.name[-4:].strip(' =')}": radius_gap(at, run, 0.5) for run in ends
    }


def ablation(first: str, second: str, kind: str) -> Comparison:
    """Two selectors of the ablation: certified accuracy at r = 0, radius, or σ_s, at each λ."""

    def cases(evidence: Committed) -> Cases:
        found = {}
        for lam in ("0", "0.2", "0.4"):
            names = [text.format(l=lam) for text in (first, second)]
            if names[0] in evidence.runs and names[1] in evidence.runs and names[0] != names[1]:
                one, other = (evidence.runs[name] for name in names)
                if kind == "accuracy":
                    found[f"λ = {lam}"] = certified_at(one, other, 0.0)
                else:
                    sigma = kind == "sigma"
                    gap = paired(one, other, "sigmas") if sigma else radius_gap(one, other)
                    found[f"λ = {lam}"] = gap
        return found

    return cases


def cascade_gain(rule: str) -> Comparison:
    """Certified radius of a cascade minus that of the single σ that held-out images chose."""

    def cases(evidence: Committed) -> Cases:
        best = evidence.facts["rules chosen on held-out images"]["best"]
        gap = radius_gap(evidence.runs[rule], evidence.runs[f"σ = {best:g}"])
        return {f"N = {evidence.sizes['n']}": gap}

    return cases
