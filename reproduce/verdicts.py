"""The numbers that the verdicts of results/README.md rest on, and the rule that decides each.

The page is written by a person. Every row links to `EXPERIMENT/README.md#NAME`; NAME is a measure
here, which recomputes the row's number, and its decision, from the committed records.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

from reproduce import comparisons as c
from reproduce.comparisons import SELECTED, SIGMAS, STRONG, WEAK, Cases, Committed, Comparison
from reproduce.statistics import MARGIN, Decision, Estimate, pooled

committed = cache(Committed)
"""Each result is read once: several measures share it."""

Rule = Literal["larger", "close", "not worse", "above"]
"""larger: the 95 % interval lies above 0, and the 90 % interval not within ±margin, which is no
difference; close: the 90 % interval lies within ±margin; not worse: it lies above −margin; above:
the 95 % interval lies above the margin."""


@dataclass(frozen=True)
class Measure:
    """A pooled difference in a committed result, or a plain fact about it.

    unit, scale, digits: how it is written; by default in percentage points.
    """

    experiment: str
    cases: Comparison | None = None
    rule: Rule = "larger"
    margin: float = MARGIN
    unit: str = "points"
    scale: float = 100.0
    digits: int = 2
    fact: Callable[[Committed], str] | None = None

    def evidence(self, results: Path) -> Committed:
        return committed(results / self.experiment)

    def by_case(self, results: Path) -> Cases:
        return {} if self.cases is None else self.cases(self.evidence(results))

    def estimate(self, results: Path) -> Estimate:
        return pooled(self.by_case(results))

    def number(self, results: Path) -> str:
        """As the page writes it: `+0.20 [+0.09, +0.31] points`."""
        if self.fact is not None:
            return self.fact(self.evidence(results))
        return f"{self.estimate(results).text(self.scale, self.digits)} {self.unit}".strip()

    def decide(self, estimate: Estimate) -> Decision:
        if self.rule == "larger":
            return estimate.decide(self.margin)
        low, high = estimate.interval(0.95 if self.rule == "above" else 0.9)
        holds, fails = {
            "close": (estimate.within(self.margin), high < -self.margin or low > self.margin),
            "not worse": (low > -self.margin, high < -self.margin),
            "above": (low > self.margin, high < self.margin),
        }[self.rule]
        return "holds" if holds else "does not hold" if fails else "open"


class Row(NamedTuple):
    """A line of the page and the measure that it links to."""

    sentence: str
    decision: str
    number: str
    experiment: str
    name: str


LINK = re.compile(r"\[[^]]*\]\(([\w/.-]+)/README\.md#([\w-]+)\)")


def rows_of(page: str) -> list[Row]:
    """The lines of a page that link to a measure."""
    rows = []
    for line in page.splitlines():
        if match := LINK.search(line):
            cells = [cell.strip() for cell in line.strip("|- ").split("|")]
            at = next(i for i, cell in enumerate(cells) if cell.startswith("**"))  # the verdict
            sentence, decision, number = cells[0], cells[at].strip("*"), cells[at + 1]
            rows.append(Row(sentence, decision, number, match[1], match[2]))
    return rows


def radii(experiment: str, cases: Comparison, unit: str = "σ_a", digits: int = 3) -> Measure:
    """A difference of average radii, or of σ_s, in units of σ_a or as they are."""
    return Measure(experiment, cases, unit=unit, scale=1.0, digits=digits)


def shifts(experiment: str, cases: Comparison, rule: Rule = "larger") -> Measure:
    """How far an attack moves σ_s."""
    return Measure(experiment, cases, rule, unit="%", digits=3)


G, V, S = "g, σ_a = {s:g}, σ_s = {s:g}, ", "g_v, " + SELECTED, "g_v*, " + SELECTED
CLIPPED = "g_v*, clipped, " + SELECTED
CLEAN = "clean_correct"
MULTIPLES, UNIVERSAL_LEVELS = (0.75, 1.0, 1.25), (0.12, 0.25, 0.37, 0.5, 1.0)
SWEPT = (0.25, 0.375, 0.5, 0.625, 0.75, 1.0)
LOW, HIGH = "g_v*, σ_a = {s:g}, λ = 0, " + STRONG, "g_v*, σ_a = {s:g}, λ = 0.4, " + STRONG
BESIDE = c.compare("g_v, σ_a = {s:g}, λ = {l:g}", "g beside g_v, σ_a = {s:g}, λ = {l:g}")
WEAK_GAIN = c.compare(V + WEAK, G + WEAK, lams=(0.2,))
ROBUST_GAIN = c.compare(S + STRONG, G + STRONG, lams=(0.2,))
DUAL_GAIN = c.compare(S + STRONG, V + STRONG)
CLIPPING_GAIN = c.compare(CLIPPED + STRONG, S + STRONG)
DEFENDED = c.both(c.moved("g_v"), c.moved("g_v*"))
EXTENDED = "g_v*, σ_a′ = {u:g}, λ = "


def drop(run: str, budget: float = 0.3) -> Comparison:
    """What the strong attack takes beyond the weak one."""
    ends = (f"γ = {budget:g}, weak attack", f"γ = {budget:g}, strong attack")
    return c.compare(run + ends[0], run + ends[1])


def extended(first: str, second: str, column: str = "correct") -> Measure:
    return Measure("universal-extended", c.extended_pairs(first, second, column))


MEASURES: dict[str, Measure] = {
    # Fig. 2, §3.1
    "smaller-sigma": Measure("tradeoff", c.traded(SIGMAS, "σ_s = σ_a = {s:g}", far=False)),
    "larger-sigma": Measure("tradeoff", c.traded(SIGMAS, "σ_s = σ_a = {s:g}", far=True)),
    "smaller-sigma-s": Measure("tradeoff", c.traded(SWEPT, "σ_a = 0.5, σ_s = {s:.3g}", far=False)),
    "larger-sigma-s": Measure("tradeoff", c.traded(SWEPT, "σ_a = 0.5, σ_s = {s:.3g}", far=True)),
    "close-to-sigma-a": radii("tradeoff", c.near_sigma_a()),
    "level-by-lambda": radii("strong-attack", c.level_gain()),
    "clean-by-lambda": Measure("strong-attack", c.compare(LOW, HIGH, column=CLEAN, lams=(0.0,))),
    "robust-by-lambda": Measure("strong-attack", c.compare(HIGH, LOW, lams=(0.0,))),
    "gaussianity": Measure(
        "strong-attack", c.kurtosis_fall(), margin=0.1, unit="in kurtosis", scale=1.0, digits=4
    ),
    "universal-lambda": Measure(
        "ablation",
        c.ablation("universal λ, λ = {l}", "trained for λ = {l}, λ = {l}", "accuracy"),
        "not worse",
    ),
    "adjustable": radii(
        "ablation", c.ablation("universal λ, λ = {l}", "universal λ, λ = 0", "sigma"), "in σ_s", 4
    ),
    # Fig. 4 and 5, App. A and B
    "percentile-gaps": Measure("percentiles", fact=c.percentile_gaps),
    "bounds-width": Measure("selector-bounds", fact=c.bounds_width),
    "three-levels": Measure("certified", fact=c.counterexample),
    "certified-equal": Measure("certified", c.certified_gain("equal")),
    "certified-envelope": Measure("certified", c.certified_gain("envelope")),
    "attacked-small": Measure("certified", c.attacked_gap(0), "close"),
    "attacked-large": Measure("certified", c.both(c.attacked_gap(0), c.attacked_gap(-1))),
    "attack-on-h": Measure("certified", c.at_distance("attack")),
    "certified-clipping": Measure("certified", c.at_distance("clip")),
    "cost": Measure("certified", fact=c.dual_cost),
    "chosen-radius": radii("certified", c.chosen_radius()),
    "sound-radius": radii("certified", c.sound_radius()),
    "soundness-cost": radii("certified", c.soundness_cost()),
    # Fig. 6
    "clean-gain": Measure("clean", BESIDE),
    "weak-gain": Measure("weak-attack", WEAK_GAIN),
    "weak-gain-grows": Measure("weak-attack", c.last_minus_first(WEAK_GAIN)),
    "weak-shift": shifts("weak-attack", c.moved("g_v", "weak"), "close"),
    # Fig. 7
    "strong-is-stronger": Measure("strong-attack", c.compare(G + WEAK, G + STRONG, lams=(0.0,))),
    "drop": Measure("strong-attack", drop(V)),
    "drop-beyond-g": Measure("strong-attack", c.both(drop(V), drop(G))),
    "strong-shift": shifts("strong-attack", c.moved("g_v"), "above"),
    "dual-drops-less": Measure("strong-attack", c.both(drop(V), drop(S))),
    "dual-drops-less-by-budget": Measure(
        "strong-attack", c.both(c.both(drop(V), drop(S)), c.both(drop(V, 0.1), drop(S, 0.1)))
    ),
    "dual-gain": Measure("strong-attack", DUAL_GAIN),
    "median-cost": Measure("strong-attack", c.compare(V + STRONG, S + STRONG, column=CLEAN)),
    "median-defends": shifts("strong-attack", DEFENDED),
    "shift-by-budget": shifts(
        "strong-attack", c.both(c.moved("g_v*"), c.moved("g_v*", budgets=(0.1,)))
    ),
    "converged": Measure("attack-convergence", c.converged(), "close"),
    # Fig. 8
    "robust-gain": Measure("clipping", ROBUST_GAIN),
    "robust-gain-clean": Measure(
        "clipping", c.compare(S + STRONG, G + STRONG, column=CLEAN, lams=(0.2,))
    ),
    "clipping-gain": Measure("clipping", CLIPPING_GAIN),
    "clipping-defends": shifts("clipping", c.both(c.moved("g_v*"), c.moved("g_v*, clipped"))),
    "table-2-width": Measure("clipping", fact=c.table_2_widths),
    # Fig. 9, App. C
    "universal-robust": Measure("universal", c.universal_gain("g", "correct")),
    "universal-clean": Measure("universal", c.universal_gain("g", CLEAN)),
    "universal-robust-grows": Measure(
        "universal", c.last_minus_first(c.universal_gain("g", "correct"))
    ),
    "universal-clean-grows": Measure("universal", c.last_minus_first(c.universal_gain("g", CLEAN))),
    "universal-dual": Measure("universal", c.universal_gain("g_v*", "correct")),
    "universal-dual-grows": Measure(
        "universal", c.last_minus_first(c.universal_gain("g_v*", "correct"))
    ),
    "replaces": Measure("universal", c.universal_gain("g", "correct", (0.5, 1.0)), "not worse"),
    "extended-robust": Measure("universal-extended", c.extended_gain("correct")),
    "extended-clean": Measure("universal-extended", c.extended_gain(CLEAN, (0.3,))),
    "extended-far": Measure("universal-extended", c.extended_gain("correct", (0.5,))),
    "extended-drop": extended(
        EXTENDED + "0.2, γ = 0.1, strong attack", EXTENDED + "0.2, γ = 0.5, strong attack"
    ),
    "extended-range": extended(
        "g_v*, σ_a′ = 0.25, λ = 0.2, " + STRONG, EXTENDED + "0.2, " + STRONG, CLEAN
    ),
    "extended-clean-by-lambda": extended(
        EXTENDED + "0, " + STRONG, EXTENDED + "0.5, " + STRONG, CLEAN
    ),
    "extended-robust-by-lambda": extended(EXTENDED + "0.5, " + STRONG, EXTENDED + "0, " + STRONG),
    # The level or the choice per image?
    "weak-matched": Measure("matched", c.matched("g_v", "weak")),
    "strong-at-mean": Measure("matched", c.matched("g_v*", "strong")),
    "universal-at-mean": Measure("matched", c.matched("g_v*", "strong", "σ_a′ = 1")),
    "strong-matched": Measure("clipping", c.same_level("σ_a = {s:g}", MULTIPLES)),
    "strong-matched-clean": Measure("clipping", c.same_level("σ_a = {s:g}", MULTIPLES, CLEAN)),
    "universal-matched": Measure("universal", c.same_level("σ_a′ = 1", UNIVERSAL_LEVELS)),
    "universal-matched-clean": Measure(
        "universal", c.same_level("σ_a′ = 1", UNIVERSAL_LEVELS, CLEAN)
    ),
    # Three readings of the paper
    "knows-more": Measure("readings", c.reading("h knows more than f, with noise")),
    "knows-more-quiet": Measure("readings", c.reading("h knows more than f, without noise")),
    "knows-more-best": Measure("readings", c.reading_at_best("h knows more than f, without noise")),
    "knows-as-much": Measure("readings", c.reading("h knows as much as f, with noise")),
    "without-noise": Measure(
        "readings",
        c.both(
            c.reading("h knows as much as f, without noise"),
            c.reading("h knows as much as f, with noise"),
        ),
    ),
    # Wider selectors
    "wide-clean": Measure("wide/clean", BESIDE),
    "wide-weak": Measure("wide/weak-attack", WEAK_GAIN),
    "wide-dual": Measure("wide/strong-attack", DUAL_GAIN),
    "wide-robust": Measure("wide/clipping", ROBUST_GAIN),
    "wide-clipping": Measure("wide/clipping", CLIPPING_GAIN),
    "wide-certified": Measure("wide/certified", c.certified_gain("envelope")),
    "wide-converged": Measure("wide/attack-convergence", c.converged(), "close"),
    "long-clean": Measure("long/clean", BESIDE),
    "long-weak": Measure("long/weak-attack", WEAK_GAIN),
    "long-shift": shifts("long/weak-attack", c.moved("g_v", "weak"), "close"),
    "long-strong-shift": shifts("long/strong-attack", c.moved("g_v"), "above"),
    "long-drop-beyond-g": Measure("long/strong-attack", c.both(drop(V), drop(G))),
    "long-strong-beyond-g": Measure(
        "long/strong-attack", c.compare(V + STRONG, G + STRONG, lams=(0.2,))
    ),
    "long-memorised": Measure("long-run", fact=c.memorised),
    "memorised": Measure("memorisation", fact=c.memorised),
    "confidence-shift": shifts("confidence/strong-attack", c.moved("g_v"), "above"),
    "confidence-defends": shifts("confidence/strong-attack", DEFENDED),
    "confidence-dual": Measure("confidence/strong-attack", DUAL_GAIN),
    # What each idea is worth
    "conditioning": Measure("conditioning", c.conditioning()),
    "summed-kl": Measure("ablation", fact=c.summed_kl),
    "reads-f": radii(
        "ablation",
        c.ablation("reads f's output, λ = {l}", "universal λ, λ = {l}", "radius"),
        "in radius",
        4,
    ),
    "reads-f-radius": radii(
        "ablation",
        c.ablation(
            "reads f's output, rewarded for radius, λ = {l}", "universal λ, λ = {l}", "radius"
        ),
        "in radius",
        4,
    ),
    # Cascades
    "cascade": radii("cascade", c.cascade_gain("cascade, λ = 1"), "in radius", 4),
    "cascade-same-total": radii(
        "cascade", c.cascade_gain("cascade, λ = 1, same total"), "in radius", 4
    ),
    "cascade-attack": Measure("cascade-attack", fact=c.cascade_violations),
}
