"""Certificates for another D, clip or method from stored evidence, without sampling.

`certify` draws the votes at a level and the samples of h from noise streams of their own. So one
run at each level and one run of the selector hold every draw that it would take at any λ, D or
clip on these levels, and the certificate follows by `Certificate.derive`, as it does there.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from varsmooth.certificates import Certificate
from varsmooth.errors import require
from varsmooth.evidence import Ledger, LevelVotes, Method, SelectorEvidence
from varsmooth.report.outcomes import Outcomes
from varsmooth.runs.records import Run
from varsmooth.selectors import Grid

Clip = tuple[float, float] | None
Derive = Callable[[Certificate, SelectorEvidence, Ledger], Certificate]
"""From the original, its samples of h on the levels of the replay, and the ledger."""


@dataclass(frozen=True)
class VoteTable:
    """The votes of f for every image at every level, from one run of a fixed σ for each level."""

    runs: Sequence[Run]

    @cached_property
    def votes(self) -> dict[float, dict[int, LevelVotes]]:
        """By level and image."""
        found: dict[float, dict[int, LevelVotes]] = {}
        for run in self.runs:
            certificates = [run.certificate(row) for row in run.rows()]
            found[certificates[0].sigma] = {c.id: c.votes[0] for c in certificates}
        return found

    @property
    def levels(self) -> tuple[float, ...]:
        return tuple(sorted(self.votes))


@dataclass(frozen=True)
class Replay:
    """What g_v* certifies at one λ: the votes of f, and a run of `certify` with samples of h."""

    table: VoteTable
    selector: Run

    @cached_property
    def originals(self) -> list[Certificate]:
        found = [self.selector.certificate(row) for row in self.selector.rows()]
        require(
            all(c.selector is not None and c.selector.levels == self.table.levels for c in found),
            "the selector's run is on other levels than the votes",
        )
        return found

    def paper(self, distance: float, clip: Clip = None, *, every_level: bool = False) -> Outcomes:
        """The paper's scenario (i) at D: the worst of three levels, or of every level between."""

        def derive(original: Certificate, seen: SelectorEvidence, ledger: Ledger) -> Certificate:
            seen = replace(seen, distance=distance)
            levels = seen.levels_between(ledger, every_index=False)
            if every_level and levels:
                levels = [s for s in seen.levels or () if levels[0] <= s <= levels[-1]]
            votes = [self.table.votes[level][original.id] for level in levels]
            return _derived("paper", ledger, votes, seen, seen.median_level, original)

        return self._replayed("paper", clip, derive)

    def conditional(self, clip: Clip = None) -> Outcomes:
        """Scenario (ii), no attack on h: Cohen's certificate at the median of the N_h samples."""

        def derive(original: Certificate, seen: SelectorEvidence, ledger: Ledger) -> Certificate:
            level = seen.median_level
            votes = [self.table.votes[level][original.id]]
            return _derived("conditional", ledger, votes, None, level, original)

        return self._replayed("conditional", clip, derive)

    def sound(self, clip: Clip = None, *, spent_as_paper: bool = False) -> Outcomes:
        """The exhaustive certificate: Theorem A over every level of the clipped grid.

        spent_as_paper: with the paper's spending, to compare with it: α for the votes and α_h
        besides, and no band for the deployed median.
        """

        def derive(original: Certificate, seen: SelectorEvidence, ledger: Ledger) -> Certificate:
            levels = seen.levels or ()
            level = min(max(original.sigma, levels[0]), levels[-1])
            candidate = self.table.votes[level][original.id].candidate
            votes = [replace(self.table.votes[s][original.id], candidate=candidate) for s in levels]
            if spent_as_paper:
                ledger = replace(ledger, alpha_class=ledger.alpha, alpha_deploy=0.0, n_deploy=0)
            return _derived("sound", ledger, votes, seen, level, original)

        return self._replayed("sound", clip, derive)

    def _ledger(self, method: Method) -> Ledger:
        """How `certify` divides α for this method."""
        config, drawn = self.selector.header["config"], self.selector.header["selector"]["n"]
        deployed = drawn if config["band"] else 0
        return Ledger.of(method, config["alpha"], config["alpha_select"], deployed)

    def _replayed(self, method: Method, clip: Clip, derive: Derive) -> Outcomes:
        levels = Grid.make(self.table.levels, clip).levels
        ledger = self._ledger(method)
        labels = {row["id"]: row["label"] for row in self.selector.rows()}
        found = [
            derive(original, replace(original.selector, clip=clip, levels=levels), ledger)
            for original in self.originals
            if original.selector is not None
        ]
        rows = [
            {
                "id": c.id,
                "label": labels[c.id],
                "prediction": c.prediction,
                "radius": c.radius,
                "guarantee": c.guarantee,
                "sigma": c.sigma,
            }
            for c in found
        ]
        return Outcomes.of(self.selector.header, rows)


def _derived(
    method: Method,
    ledger: Ledger,
    votes: Sequence[LevelVotes],
    seen: SelectorEvidence | None,
    sigma: float,
    original: Certificate,
) -> Certificate:
    facts: dict[str, Any] = {
        "id": original.id,
        "seed": original.seed,
        "settings": {},
        "fingerprints": {},
    }
    return Certificate.derive(method, ledger, votes, seen, sigma=sigma, **facts)
