"""certify_at and certify_until: certificates with as few votes as the answer needs."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from torch import Tensor

from varsmooth import bounds
from varsmooth.cascade import CascadeSelector, Plan, Stages
from varsmooth.certificates import Certificates, Decision, Decisions, Reason
from varsmooth.certification import begin, cascade_plans, check_method, select
from varsmooth.defaults import ALPHA, ALPHA_SELECT, N0, N_MAX, N_SELECT
from varsmooth.errors import check_counts, require
from varsmooth.evidence import Ledger, Method
from varsmooth.rounding import rounded
from varsmooth.sampling import Ids, Sampler
from varsmooth.selectors import FixedSelector
from varsmooth.smoothing import SmoothedClassifier, evaluation_mode
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
    undecided: Callable[[int], None] | None = None,
) -> Decisions:
    """Decide for every image which of the radii can be certified, with few votes.

    At level σ the hypothesis p ≤ Φ(r/σ) is tested by an e-process (`bounds.log_e_value`), which
    may be checked after every vote: certify as soon as E ≥ 1/α. With a grid, every level with
    D̂_j < r must pass at α − alpha_select. With a cascade, stage k must show
    `p_k(A) > Φ(r/s_k + Φ⁻¹(τ_k))`, and every earlier one `p_j(c) < Φ(Φ⁻¹(τ_j) − r/s_j)` for all
    c ≠ A. Several radii are tested in ascending order on the same votes until one fails.

    α covers all of an image's radii together, with no correction for their number, nor for that
    of levels: P(the largest certified one exceeds the true radius) ≤ α. It also covers
    `Decision.certificate.radius`, all that the votes prove, which is at least as large.

    A "no" comes when an upper confidence bound rules a "yes" out, when the votes left up to
    n_max, as predicted from those seen, would certify with a chance below 3 %, or after n_max
    votes at a level. Arguments not listed are those of `certify`.

    Args:
        g: The smoothed classifier.
        x: Images (B,C,H,W) in [0,1].
        radius: r ≥ 0, or several; 0 asks whether anything can be certified.
        n_max: Most votes at a level.
        undecided: Called after every look with the number of images that are still undecided.

    Returns:
        One `Decision` per image.
    """
    radii = _check_radii(radius)
    check_method(method)
    begun = begin(g, x, method, alpha, alpha_select, band, seed, ids, batch_size, anytime=True)
    voting = _choose(*begun, n0, n_max, n_select, radii[0])
    with evaluation_mode(g):  # once for all the looks
        reached, reasons = _reach(voting, radii, undecided)
    rows = zip(voting.certificates(), reached, reasons, strict=True)
    return Decisions(tuple(Decision(one, radii, count, why) for one, count, why in rows))


def certify_until(
    g: SmoothedClassifier,
    x: Tensor,
    tolerance: float = 0.05,
    *,
    at: float | Sequence[float] = 0.0,
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
    undecided: Callable[[int], None] | None = None,
) -> Certificates:
    """A class and a radius for every image, with votes until more would not raise it by much.

    As `certify`, with a bound that holds after every vote (`bounds.anytime_lower`) in place of
    Clopper–Pearson's: P(R exceeds the true radius) ≤ α per image, whenever the votes stop. They
    stop when R is at least 1 − tolerance times the radius that n_max votes would give, as
    predicted from those seen; when R is below one of the radii `at` and the next of them is out of
    reach; or after n_max votes at the level that limits R. Arguments not listed are those of
    `certify_at`.

    Args:
        g: The smoothed classifier.
        x: Images (B,C,H,W) in [0,1].
        tolerance: The share of the radius to forgo, between 0 and 1.
        at: Radii that matter; by default, whether there is one at all.

    Returns:
        One `Certificate` per image.
    """
    require(0 < tolerance < 1, f"tolerance must lie between 0 and 1, not {tolerance}")
    radii = (0.0, *_check_radii(at))
    check_method(method)
    begun = begin(g, x, method, alpha, alpha_select, band, seed, ids, batch_size, anytime=True)
    voting = _choose(*begun, n0, n_max, n_select)
    with evaluation_mode(g):
        _settle(voting, tolerance, radii, undecided)
    return voting.certificates()


def _check_radii(radius: Any) -> tuple[float, ...]:
    """The radii in ascending order, none twice."""
    several = isinstance(radius, Iterable) and not isinstance(radius, str)
    listed = list(radius) if several else [radius]
    require(len(listed) > 0, "give at least one radius")
    for r in listed:
        number = hasattr(r, "__float__")
        require(number and 0 <= r < math.inf, f"radius must be ≥ 0 and finite, not {r!r}")
    return tuple(sorted({float(r) for r in listed}))


def _choose(
    kind: Method,
    ledger: Ledger,
    sampler: Sampler,
    n0: int,
    n_max: int,
    n_select: int,
    smallest: float = 0.0,
) -> Voting:
    """Selection draws: the levels and the class of every image, if the smallest radius can be."""
    check_counts(n0=n0, n_max=n_max, n_select=n_select)
    a = ledger.alpha_class
    require(
        bool(bounds.log_e_value(n_max, n_max, 0.5) >= -math.log(a)),
        f"at alpha={ledger.alpha:g} even n_max={n_max} unanimous votes certify nothing; raise it",
    )
    selector = sampler.g.selector
    if isinstance(selector, CascadeSelector):
        stages = selector.stages
    elif isinstance(selector, FixedSelector):
        stages = Stages((selector.sigma,), (0.5,))
    if kind in ("cascade", "fixed"):
        best = bounds.class_radius(n_max, n_max, stages.levels, a, stages.thresholds, anytime=True)
        ceiling = float(best.max())
        require(
            smallest <= ceiling,
            f"at alpha={ledger.alpha:g} the largest radius that n_max={n_max} votes can certify "
            f"is {rounded(ceiling)}, not {smallest:g}; raise n_max, or ask for a smaller radius",
        )
    if kind == "cascade":
        plans, drawn = cascade_plans(sampler, stages, a, n0, n_max)
        streams = [_of_cascade(plan, stages) for plan in plans]
        sigma = [stages.levels[plan.stage] for plan in plans]
        return Voting(kind, ledger, sampler, streams, n_max, sigma, drawn, stages=stages)
    chosen = select(kind, ledger, sampler, n0, n_select)
    streams = [
        [Stream(level, candidate, distance) for distance, level in visits]
        for candidate, visits in zip(chosen.candidates, chosen.visits, strict=True)
    ]
    drawn = [n0] * len(streams)
    return Voting(kind, ledger, sampler, streams, n_max, chosen.sigma, drawn, chosen.selector)


def _of_cascade(plan: Plan, stages: Stages) -> list[Stream]:
    """The stages up to the answering one, which comes first because it fails most often."""
    levels, taus = stages.levels, stages.thresholds
    return [
        Stream(levels[j], plan.candidate, threshold=taus[j], excludes=j != plan.stage)
        for j in reversed(range(len(plan.votes)))
    ]


def _reach(
    voting: Voting, radii: Sequence[float], undecided: Callable[[int], None] | None
) -> tuple[list[int], list[Reason]]:
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
        if undecided is not None:
            undecided(len(drawing))
        voting.draw(drawing)
        todo = list(drawing)
    return reached, reasons


def _settle(
    voting: Voting,
    tolerance: float,
    radii: Sequence[float],
    undecided: Callable[[int], None] | None,
) -> None:
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
        aims = {
            row: next((r for r in radii if r >= stream.radius), None)
            for row, stream in drawing.items()
            if stream.votes is not None
        }
        asked = {row: aim for row, aim in aims.items() if aim is not None}
        verdicts = voting.verdicts([drawing[row] for row in asked], list(asked.values()))
        for row, verdict in zip(asked, verdicts, strict=True):
            if verdict == "futile":
                del drawing[row]
        if undecided is not None:
            undecided(len(drawing))


def _limiting(streams: Sequence[Stream], tolerance: float) -> Stream | None:
    """The stream that limits the radius, unless this is near enough to what can be promised."""
    weakest = min(streams, key=lambda stream: stream.radius)
    promise = min(max(stream.distance, stream.promise) for stream in streams)
    return None if 0 < (1 - tolerance) * promise <= weakest.radius else weakest
