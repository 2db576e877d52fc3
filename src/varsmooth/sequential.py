"""certify_at and certify_until: certificates with as few votes as the answer needs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from varsmooth import bounds
from varsmooth.cascade import CascadeSelector, Plan, Stages
from varsmooth.certificates import Certificate, Certificates, Decision, Decisions, Method, Reason
from varsmooth.certification import (
    cascade_plans,
    certificate_ledger,
    certificate_method,
    check_method,
    deployed_draws,
    levels_by_distance,
)
from varsmooth.defaults import ALPHA, ALPHA_SELECT, N0, N_MAX, N_SELECT
from varsmooth.errors import require
from varsmooth.evidence import Ledger, SelectorEvidence
from varsmooth.sampling import Ids, Sampler
from varsmooth.smoothing import SmoothedClassifier, check_smoothed, evaluation_mode
from varsmooth.voting import Stream, Voting


def certify_at(
    g: SmoothedClassifier,
    x: Tensor,
    radius: float | Sequence[float],
    *,
    alpha: float = ALPHA,
    n0: int = N0,
    n_max: int = N_MAX,
    n_select: int = N_SELECT,
    alpha_select: float = ALPHA_SELECT,
    method: Literal["sound", "conditional"] = "sound",
    band: bool = True,
    seed: int | None = None,
    ids: Ids = None,
    batch_size: int | None = None,
) -> Decisions:
    """Decide for every image which of the radii can be certified, with few votes.

    At level σ the hypothesis p ≤ Φ(r/σ) is tested by an e-process (`bounds.log_e_value`), which
    may be looked at after every vote: certify as soon as E ≥ 1/α. With a grid, every level with
    D̂_j < r must pass at α − alpha_select. With a cascade, stage k* must show
    p_k*(A) > Φ(r/s_k* + Φ⁻¹(τ_k*)), and every earlier one p_j(c) < Φ(Φ⁻¹(τ_j) − r/s_j) for all
    c ≠ A. Several radii are asked in ascending order on the same votes; the first that fails ends
    it.

    α covers all of an image's radii together, with no correction for their number, nor for that
    of levels: P(the largest certified one exceeds the true radius) ≤ α. It also covers
    `Decision.certificate.radius`, all that the votes prove, which is at least as large.

    A "no" comes when an upper confidence bound rules a "yes" out, when the votes left up to
    n_max, as predicted from those seen, would certify with a chance below one in a thousand, or
    after n_max votes at a level.

    Args:
        g: The smoothed classifier.
        x: Images (B,C,H,W) in [0,1].
        radius: r ≥ 0, or several; 0 asks whether anything can be certified.
        alpha: Maximum probability, per image, that a certified radius is too large.
        n0: Selection draws.
        n_max: Most votes at a level.
        n_select: Samples of h.
        alpha_select: The part of α for the bounds on h.
        method: "conditional" assumes that the attacker does not move σ.
        band: Cover the deployed `predict`, see `certify`.
        seed: None takes fresh entropy.
        ids: Names of the images' noise streams; 0, 1, … by default.
        batch_size: Noisy images per forward pass; changes no draw.

    Returns:
        One `Decision` per image.
    """
    radii = check_radii(radius)
    found = _start(
        g, x, method, alpha, alpha_select, band, n0, n_max, n_select, seed, ids, batch_size
    )
    with evaluation_mode(g):  # once for all the looks
        reached, reasons = _reach(found.voting, radii)
    rows = zip(found.certificates(), reached, reasons, strict=True)
    return Decisions(tuple(Decision(one, radii, count, why) for one, count, why in rows))


def certify_until(
    g: SmoothedClassifier,
    x: Tensor,
    tolerance: float = 0.05,
    *,
    alpha: float = ALPHA,
    n0: int = N0,
    n_max: int = N_MAX,
    n_select: int = N_SELECT,
    alpha_select: float = ALPHA_SELECT,
    method: Literal["sound", "conditional"] = "sound",
    band: bool = True,
    seed: int | None = None,
    ids: Ids = None,
    batch_size: int | None = None,
) -> Certificates:
    """A class and a radius for every image, with votes until more would not raise it by much.

    As `certify`, with a bound that holds after every vote (`bounds.anytime_lower`) in place of
    Clopper–Pearson's: P(R exceeds the true radius) ≤ α per image, whenever the votes stop. They
    stop when R is at least 1 − tolerance times the radius that n_max votes would give, as
    predicted from those seen; when a radius above 0 is out of reach; or after n_max votes at the
    level that limits R.

    Args:
        g: The smoothed classifier.
        x: Images (B,C,H,W) in [0,1].
        tolerance: The share of the radius to forgo, between 0 and 1.
        alpha: Maximum probability, per image, that the radius is too large.
        n0: Selection draws.
        n_max: Most votes at a level.
        n_select: Samples of h.
        alpha_select: The part of α for the bounds on h.
        method: "conditional" assumes that the attacker does not move σ.
        band: Cover the deployed `predict`, see `certify`.
        seed: None takes fresh entropy.
        ids: Names of the images' noise streams; 0, 1, … by default.
        batch_size: Noisy images per forward pass; never changes a result.

    Returns:
        One `Certificate` per image.
    """
    require(0 < tolerance < 1, f"tolerance must lie between 0 and 1, not {tolerance}")
    found = _start(
        g, x, method, alpha, alpha_select, band, n0, n_max, n_select, seed, ids, batch_size
    )
    with evaluation_mode(g):
        _settle(found.voting, tolerance)
    return Certificates(found.certificates())


def check_radii(radius: float | Sequence[float]) -> tuple[float, ...]:
    """The radii in ascending order, none twice."""
    listed = [radius] if isinstance(radius, int | float) else list(radius)
    require(len(listed) > 0, "give at least one radius")
    for r in listed:
        require(0 <= r < math.inf, f"radius must be ≥ 0 and finite, not {r}")
    return tuple(sorted({float(r) for r in listed}))


@dataclass(frozen=True)
class _Session:
    """A batch whose levels and classes are chosen, ready to vote."""

    kind: Method
    ledger: Ledger
    voting: Voting
    sigma: Sequence[float]
    drawn: Sequence[int]
    selector: Sequence[SelectorEvidence | None]
    stages: Stages | None

    def certificates(self) -> tuple[Certificate, ...]:
        """What follows from the votes so far, of each stream at its best look."""
        voted = [s for streams in self.voting.streams for s in streams if s.votes is not None]
        self.voting.measure(voted)
        facts = self.voting.sampler.facts(self.sigma)
        return tuple(self._certificate(row, **facts[row]) for row in range(len(self.sigma)))

    def _certificate(self, row: int, **facts: Any) -> Certificate:
        streams = [stream for stream in self.voting.streams[row] if stream.votes is not None]
        if self.stages is not None:
            streams = streams[::-1]  # in the order of the stages, the answering one last
        return Certificate.derive(
            self.kind,
            self.ledger,
            [stream.best for stream in streams if stream.best is not None],
            self.selector[row],
            self.stages,
            samples=self.drawn[row] + sum(stream.n for stream in streams),
            **facts,
        )


def _start(
    g: SmoothedClassifier,
    x: Tensor,
    method: Literal["sound", "conditional"],
    alpha: float,
    alpha_select: float,
    band: bool,
    n0: int,
    n_max: int,
    n_select: int,
    seed: int | None,
    ids: Ids,
    batch_size: int | None,
) -> _Session:
    """Selection draws: the levels and the class of every image."""
    check_smoothed(g, x)
    require(min(n0, n_max, n_select) >= 1, "n0, n_max and n_select must be at least 1")
    check_method(method)
    kind = certificate_method(g.selector, method)
    deployed = deployed_draws(g.selector, band)
    ledger = certificate_ledger(kind, alpha, alpha_select, deployed, anytime=True)
    a = ledger.alpha_class
    require(
        bool(bounds.log_e_value(n_max, n_max, 0.5) >= -math.log(a)),
        f"at alpha={alpha:g} no vote of n_max={n_max} can certify any radius; raise n_max",
    )
    sampler = Sampler(g, x, g.noise(len(x), seed, ids), batch_size)
    everyone = sampler.everyone
    selector: Sequence[SelectorEvidence | None] = [None for _ in everyone]
    stages = g.selector.stages if isinstance(g.selector, CascadeSelector) else None
    drawn = [n0 for _ in everyone]
    if stages is not None:
        plans, drawn = cascade_plans(sampler, stages, a, n0, n_max)
        streams = [_of_cascade(plan, stages) for plan in plans]
        sigma = [stages.levels[plan.stage] for plan in plans]
    else:
        dual = kind == "sound"
        sigma = sampler.nominal_levels(n0) if dual else sampler.chosen_levels()
        candidates = sampler.candidates(everyone, sigma, n0)
        levels = [[(0.0, level)] for level in sigma]
        if dual:
            selector = evidence = sampler.selector_evidence(n_select)
            levels = [levels_by_distance(seen, ledger) for seen in evidence]
        streams = [
            [Stream(level, candidate, distance) for distance, level in found]
            for candidate, found in zip(candidates, levels, strict=True)
        ]
    voting = Voting(sampler, streams, a, n_max)
    return _Session(kind, ledger, voting, sigma, drawn, selector, stages)


def _of_cascade(plan: Plan, stages: Stages) -> list[Stream]:
    """The stages up to the answering one, which comes first because it fails most often."""
    rows = list(zip(stages.levels, stages.thresholds, strict=True))[: len(plan.votes)]
    answering, *others = [
        Stream(level, plan.candidate, threshold=tau, excludes=j != plan.stage)
        for j, (level, tau) in reversed(list(enumerate(rows)))
    ]
    return [answering, *others]


def _reach(voting: Voting, radii: Sequence[float]) -> tuple[list[int], list[Reason]]:
    """Vote until it is known how many of the radii each image reaches, and why not the next."""
    reached = [0 for _ in voting.streams]
    reasons: list[Reason] = ["certified" for _ in voting.streams]

    def next_stream(row: int) -> Stream | None:
        """The first stream that the smallest radius still waits for; None: all are reached."""
        for radius in radii[reached[row] :]:
            for stream in voting.streams[row]:
                if stream.matters(radius) and stream.proven < radius:
                    return stream
            reached[row] += 1
        return None

    todo = list(range(len(reached)))
    while todo:
        drawing: dict[int, Stream] = {}
        while todo:  # the votes for one radius may suffice for the next
            chosen = {row: s for row in todo if (s := next_stream(row)) is not None}
            drawing |= {row: s for row, s in chosen.items() if s.votes is None}
            asked = {row: s for row, s in chosen.items() if s.votes is not None}
            verdicts = voting.verdicts(list(asked.values()), [radii[reached[row]] for row in asked])
            todo = []
            for (row, stream), verdict in zip(asked.items(), verdicts, strict=True):
                if verdict == "certified":
                    stream.prove(radii[reached[row]])
                    todo.append(row)
                elif verdict is None:
                    drawing[row] = stream
                else:
                    reasons[row] = verdict
        voting.draw(drawing)
        todo = list(drawing)
    return reached, reasons


def _settle(voting: Voting, tolerance: float) -> None:
    """Vote at the level that limits an image's radius until more votes would not raise it much."""
    drawing = {row: streams[0] for row, streams in enumerate(voting.streams)}
    while drawing:
        voting.draw(drawing)
        voting.measure(list(drawing.values()))
        voting.predict(list(drawing.values()))
        drawing = {
            row: stream
            for row in drawing
            if (stream := _limiting(voting.streams[row], tolerance)) is not None
            and stream.n < voting.n_max
        }
        doubtful = {
            row: s for row, s in drawing.items() if s.votes and max(s.distance, s.proven) <= 0
        }
        verdicts = voting.verdicts(list(doubtful.values()), [0.0] * len(doubtful))
        for row, verdict in zip(doubtful, verdicts, strict=True):
            if verdict is not None:
                del drawing[row]


def _limiting(streams: Sequence[Stream], tolerance: float) -> Stream | None:
    """The stream that limits the radius, unless this is near enough to what can be promised."""
    weakest = min(streams, key=lambda stream: max(stream.distance, stream.proven))
    radius = max(weakest.distance, weakest.proven)
    promise = min(max(stream.distance, stream.promise) for stream in streams)
    return None if 0 < (1 - tolerance) * promise <= radius else weakest
