"""What a certificate method is: how it selects, what it samples, how the radius follows."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal

from varsmooth import bounds
from varsmooth.cascade import Stages
from varsmooth.certificates import Certificate, Prediction
from varsmooth.defaults import ABSTAIN, ALPHA_SELECT, Guarantee, Options
from varsmooth.errors import check, check_probability
from varsmooth.evidence import Evidence, Ledger, LevelVotes, SelectorEvidence
from varsmooth.sampling import Sampler, VoteStream, looks_until
from varsmooth.smoothing import Selector

Kind = Literal["sound", "conditional", "paper"]
"""The certificate that a caller asks for."""

Expected = dict[str, tuple[Any, Any]]
"""What is wanted and what is stored, by name."""

ABSTAIN_EARLY = 0.15
"""The chance of an answer below which `predict` abstains before n votes. Abstaining is never wrong,
so it costs answers, not the guarantee; what it saves is in benchmarks/README.md."""

ABSTAIN_EARLY_Z = float(bounds.normal_quantile(1 - ABSTAIN_EARLY))
"""Standard deviations above their prediction that votes exceed with probability ABSTAIN_EARLY."""


@dataclass(frozen=True)
class Selection:
    """What the selection draws fix for an image, before any of its votes is counted.

    Attributes:
        sigma: The level chosen.
        ledger: How α is spent.
        streams: The levels at which votes are needed.
        draws: Noisy copies classified by f for the selection.
        selector: The samples of the selector.
        stages: The cascade, whose streams are in the order of its stages.
        lazy: The streams are in the order of their entry distances, and those whose distance is
            not below the radius so far need no votes.
    """

    sigma: float
    ledger: Ledger
    streams: Sequence[VoteStream]
    draws: int
    selector: SelectorEvidence | None = None
    stages: Stages | None = None
    lazy: bool = False


class Method(ABC):
    """One certificate: a theorem, and everything that follows from it.

    Attributes:
        name: As records store it.
        guarantee: What its radii mean.
        kinds: The requested certificates for which this method is used.
        certifies: The selectors that it is for.
        subject: What it certifies, as the subject of an error message.
        chosen_by: What chooses the level of an image, in a few words.
        caption: How the radius follows from D_k and R_k of a drawing, the entry distance and the
            class radius of each level.
    """

    name: ClassVar[str]
    guarantee: ClassVar[Guarantee]
    kinds: ClassVar[tuple[Kind, ...]]
    certifies: ClassVar[type[Selector]]
    subject: ClassVar[str]
    chosen_by: ClassVar[str] = "the selector"
    caption: ClassVar[str] = ""

    def check(self, selector: Selector) -> None:
        """Refuse a selector whose settings this method cannot certify; any is fine here."""
        return None

    def ledger(self, alpha: float, alpha_select: float = ALPHA_SELECT, n_deploy: int = 0) -> Ledger:
        """How α is divided, before anything is drawn: all of it for the votes."""
        check_probability("alpha", alpha)
        return Ledger(alpha, alpha)

    def deployed_draws(self, about: Mapping[str, Any]) -> int:
        """N_p, the draws of the described selector behind a prediction that the radius covers."""
        return 0

    def certify(
        self, sampler: Sampler, ledger: Ledger, options: Options, n: int
    ) -> list[Certificate]:
        """Select, vote, and derive each image's certificate from its evidence."""
        selections = self.select(sampler, ledger, options, n)
        _count_planned(sampler, selections)
        return self.derive(sampler, selections)

    def derive(self, sampler: Sampler, selections: Sequence[Selection]) -> list[Certificate]:
        """The certificates of a batch from the votes of its streams, of each at its best look."""
        settings = {**sampler.g.selector.describe(), "lattice": sampler.g.lattice}
        certificates = []
        for i, one in zip(sampler.noise.ids, selections, strict=True):
            votes = tuple(stream.best for stream in one.streams if stream.best is not None)
            certificate = Certificate.derive(
                self.name,
                Evidence(one.ledger, votes, one.selector, one.stages),
                sigma=one.sigma,
                id=i,
                seed=sampler.noise.seed,
                settings=settings,
                samples=one.draws + sum(stream.n for stream in one.streams),
            )
            certificates.append(certificate)
        return certificates

    @abstractmethod
    def select(self, sampler: Sampler, ledger: Ledger, options: Options, n: int) -> list[Selection]:
        """Choose class, level and votes of every image on the selection draws."""

    @abstractmethod
    def radius(self, evidence: Evidence) -> float:
        """The radius that follows from the evidence; ≤ 0: abstain."""

    def certified(self, radius: float) -> bool:
        """Whether a radius certifies the class."""
        return radius > 0

    def complete(self, evidence: Evidence) -> bool:
        """Whether a stored record has every part from which the radius follows."""
        return len(evidence.votes) > 0

    @abstractmethod
    def audit(self, header: Mapping[str, Any], one: Certificate) -> Expected:
        """What a stored certificate must contain by the header of its run."""

    def selection_rounds(self, evidence: Evidence) -> range:
        """How often the selection may have drawn n0 noisy images."""
        return range(1, 2)

    def votes_fit(self, evidence: Evidence, n: int) -> bool:
        """Whether every level has n votes."""
        return {level.n for level in evidence.votes} <= {n}

    def selector_draws(self, selector: Selector, evidence: Evidence, n0: int) -> int:
        """Noisy images that h was shown."""
        return 0

    def query_ledger(
        self, about: Mapping[str, Any], alpha: float, alpha_select: float = ALPHA_SELECT
    ) -> Ledger:
        """How a deployed prediction with the described selector divides its own α."""
        return self.ledger(alpha)

    def covers(self, certified: Ledger, query: Ledger) -> bool:
        """Whether a query inside the radius errs with probability ≤ its own α."""
        return True

    def predict(self, sampler: Sampler, n: int, ledger: Ledger | None) -> list[Prediction]:
        """The deployed prediction: the most likely class at the level of the selector.

        For a pair of classes look only at the votes for A or c: if p_A ≤ p_c, each of them names A
        with probability ≤ ½, and the e-process against that reaches 1/a with probability ≤ a,
        however long one looks. A is the answer as soon as every E_c ≥ 1/a, that of the runner-up
        being the smallest. With a = α/(C − 1), P(another class than g's) ≤ α: each of the C − 1
        wrong classes has to pass the test against the right one. Votes that are unlikely to
        decide it within n abstain at once.
        """
        levels = dict(enumerate(sampler.chosen_levels()))
        if ledger is None:
            voted = sampler.majority(levels, n)
            return [as_prediction(sampler, row, ledger, voted[row]) for row in sampler.rows]
        a = ledger.alpha_class
        voted = sampler.vote_until(levels, looks_until(n), partial(lead_is_decided, n=n, a=a))
        check_votes_suffice(voted[0], n, 0.5, a)
        sure = {row: leads(votes, a) for row, votes in voted.items()}
        return [as_prediction(sampler, row, ledger, voted[row], sure[row]) for row in sampler.rows]

    def levels_at(self, sampler: Sampler, n: int, a: float) -> list[float]:
        """A (1 − a) confidence set for the level of the sampler's only image."""
        return sampler.chosen_levels()

    def suspect(self, answer: Prediction, candidate: int) -> bool:
        """Whether a deployed prediction makes another class look more likely than this one."""
        counts = list(answer.counts)
        return counts.pop(candidate) < max(counts)

    def contradicts(self, sampler: Sampler, candidate: int, n: int, a: float) -> bool:
        """Whether fresh noise shows that g does not give the sampler's one image this class.

        At every level that the image may get, another class must be more likely: the rival comes
        from selection draws, and of n fresh votes those for either of the two are tested.
        """
        for level in self.levels_at(sampler, n, a / 2):
            selection = sampler.counts([0], [level], n, "class-selection")[0]
            selection[candidate] = -1
            counts = sampler.counts([0], [level], n, "votes")[0]
            own, rival = int(counts[candidate]), int(counts[int(selection.argmax())])
            if bounds.lead_p_value(rival, own) > a / 2:
                return False
        return True

    def recomputed(self, ledger: Ledger, alpha: float, alpha_select: float | None) -> Ledger:
        """The ledger of the same evidence at another α."""
        check(
            alpha_select is None,
            "`alpha_select` can be changed afterwards only for `method='sound'`; certify again",
        )
        check(0 < alpha < 1, f"`alpha` must lie between `alpha_select=0` and 1, not {alpha}")
        return replace(ledger, alpha=alpha, alpha_class=alpha)

    def largest_radius(self, selector: Selector, ledger: Ledger, n: int) -> float:
        """The largest radius that n votes can certify, where that is known beforehand."""
        return float("inf")


def _count_planned(sampler: Sampler, selections: Sequence[Selection]) -> None:
    """Count the planned votes at every level that can matter."""
    radius = [math.inf for _ in selections]
    for position in range(max(len(one.streams) for one in selections)):
        streams = {
            i: one.streams[position]
            for i, one in enumerate(selections)
            if position < len(one.streams) and one.streams[position].distance < radius[i]
        }
        for planned in sorted({stream.planned for stream in streams.values()}):
            at = {i: (s.level, s.candidate) for i, s in streams.items() if s.planned == planned}
            for i, votes in sampler.votes(at, planned).items():
                streams[i].votes = streams[i].best = votes
                if selections[i].lazy:
                    streams[i].proven = votes.radius(selections[i].ledger)
                    radius[i] = min(radius[i], streams[i].radius)


def with_share(ledger: Ledger, selection: LevelVotes, options: Options, n: int) -> Ledger:
    """The ledger with the share w of α_c that the bound of the winner gets: 1 or ½.

    w is whichever should give the larger radius, judged by selection draws alone, so that the
    choice is independent of the votes that are counted. Sequential votes usually stop long before
    n_max, so for them the choice is made as if there were 10 n0. Cohen's bound is w = 1.
    """
    if options.bound == "cohen":
        return ledger
    n = min(n, 10 * selection.n) if ledger.anytime else n
    top, other, n0 = selection.top, selection.runner_up, selection.n
    larger = bounds.margin_is_larger(top, other, n0, n, ledger.alpha_class)
    return replace(ledger, runner_up=bool(larger))


def as_prediction(
    sampler: Sampler,
    row: int,
    ledger: Ledger | None,
    votes: LevelVotes,
    sure: bool = True,
    samples: int | None = None,
) -> Prediction:
    """One image's prediction: the candidate of its votes, or ABSTAIN unless that is sure."""
    return Prediction(
        prediction=votes.candidate if sure else ABSTAIN,
        sigma=votes.sigma,
        counts=votes.counts,
        ledger=ledger,
        id=sampler.noise.ids[row],
        seed=sampler.noise.seed,
        samples=votes.n if samples is None else samples,
    )


def leads(votes: LevelVotes, a: float) -> bool:
    """Whether the class that leads is the most likely one, at an error a whenever one looks."""
    between = votes.top + votes.runner_up
    return bool(bounds.log_e_value(votes.top, between, 0.5) >= log_goal(votes, a))


def lead_is_decided(votes: LevelVotes, n: int, a: float) -> bool:
    """Whether a class leads, or votes up to n would show it with a chance below ABSTAIN_EARLY."""
    between = votes.top + votes.runner_up
    total = bounds.predicted_count(between, votes.n, n)
    optimistic = bounds.predicted_count(votes.top, between, total, ABSTAIN_EARLY_Z)
    futile = bounds.log_e_value(optimistic, total, 0.5) < log_goal(votes, a)
    return leads(votes, a) or bool(futile)


def check_votes_suffice(votes: LevelVotes, n: int, p0: float, a: float) -> None:
    """Refuse n votes of which even unanimous ones do not show p > p0 at an error a.

    That depends on the number of classes, which the first votes tell.
    """
    goal = log_goal(votes, a)
    check(
        bool(bounds.log_e_value(n, n, p0) >= goal),
        f"even {n} unanimous votes of {len(votes.counts)} classes abstain at such a small alpha; "
        f"use `n ≥ {bounds.fewest_votes_to_decide(goal, p0)}`",
    )


def log_goal(votes: LevelVotes, a: float) -> float:
    """The log E that a class must reach: log((C − 1)/a), so that the C − 1 wrong ones share a."""
    return -math.log(a / max(len(votes.counts) - 1, 1))
