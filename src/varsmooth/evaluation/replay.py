"""Evidence of a run drawn again from its recorded seed, and how far it may differ elsewhere."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.stats import binom

from varsmooth._util.progress import Progress
from varsmooth._util.untrusted import check_limit
from varsmooth.certificates import Certificate
from varsmooth.data import ImageDataset
from varsmooth.defaults import BATCH_SIZE
from varsmooth.evaluation.certify import Certifying
from varsmooth.evaluation.options import CertifyOptions, recorded
from varsmooth.evaluation.records import Row, Run
from varsmooth.evaluation.runner import Setup, other_environment, rows_of
from varsmooth.evidence import SelectorEvidence
from varsmooth.probe import TOLERANCE
from varsmooth.sampling import Sampler
from varsmooth.smoothing import SmoothedClassifier

MOVED, HALF_MOVED = 2e-3, 2e-2
"""The share of votes that may change in a replay on another machine, between almost equal scores:
in float32, in bfloat16."""

CHOICES = 5
"""How many times as often the selection (class, level, form of the bound) may change."""

UNLIKELY = 1e-9
"""Probability of more differences than allowed, if each occurs with the share that is allowed."""


@dataclass
class Replayed:
    """Stored evidence beside the same evidence drawn again, image by image.

    Attributes:
        limit: The share of votes that another machine may move.
        images: How many were compared.
        contradictions: What rounding does not explain.
        rounded: Images of another machine whose evidence is not the same to the last digit.
        chosen: Those where selection draws choose another class, level or form of the bound.
        moved: Votes that went elsewhere on such a machine, of `votes`.
    """

    limit: float
    images: int = 0
    contradictions: list[str] = field(default_factory=list)
    rounded: list[int] = field(default_factory=list)
    chosen: int = 0
    moved: float = 0.0
    votes: int = 0

    @property
    def share(self) -> float:
        """Of the votes of another machine, those that went elsewhere."""
        return self.moved / max(self.votes, 1)

    def add(self, stored: Certificate, again: Certificate, moved: float | None) -> None:
        """Compare every count, passes too, the samples of the selector, and the shares of α.

        `moved` of the votes behind evidence from another machine differ; None: it is of this one.
        """
        self.images += 1
        same_h = _same_samples(stored.selector, again.selector)
        same = same_h and replace(stored, selector=None) == replace(again, selector=None)
        if moved is None:
            if not same:
                self.contradict(stored, "replayed evidence differs from the stored one")
            return
        votes = sum(level.n for level in stored.votes)
        self.moved, self.votes = self.moved + moved, self.votes + votes
        if same:
            return
        self.rounded.append(stored.id)
        self.chosen += not _same_choices(stored, again)
        shares = [replace(one.ledger, runner_up=False) for one in (stored, again)]
        if not same_h or shares[0] != shares[1] or stored.stages != again.stages:
            self.contradict(stored, "its selector samples or shares of α are not those of a replay")
        if moved > binom.isf(UNLIKELY, votes, self.limit):
            self.contradict(stored, f"{moved:g} of its {votes} replayed votes differ")

    def contradict(self, stored: Certificate, text: str) -> None:
        """Note what is wrong with an image."""
        self.contradictions.append(f"image {stored.id}: {text}")

    @property
    def problems(self) -> list[str]:
        """The contradictions, and differences of which there are too many in all."""
        problems = []
        if self.share > self.limit:
            problems.append(
                f"{100 * self.share:.2g} % of the replayed votes differ, more than the "
                f"{100 * self.limit:g} % that another machine explains"
            )
        if self.chosen > binom.isf(UNLIKELY, self.images, CHOICES * self.limit):
            problems.append(
                "a replay chooses another class, level or bound, or other numbers of votes, for "
                f"{self.chosen} of {self.images} images, more than another machine explains"
            )
        return problems + self.contradictions


def replay(
    run: Run,
    g: SmoothedClassifier,
    images: ImageDataset,
    rows: Iterable[Row],
    count: int,
    rng: np.random.Generator,
) -> Replayed:
    """Compute whole random blocks of images as the run did, until `count` images are done.

    A row must be the same unless the run, or the row itself, names another machine than this.
    """
    header, config = run.header, run.header["config"]
    evaluation = as_sampled(run).in_scope(header)
    size = config.get("batch_size", BATCH_SIZE)
    check_limit("SIZE", size, f"the run was computed in batches of {size:,} images")
    setup, block = Setup(g, run, size), evaluation.block(size)
    stored = {row["id"]: row for row in rows}
    compared = Replayed(HALF_MOVED if config.get("precision") == "bfloat16" else MOVED)
    starts = rng.permutation(range(0, len(images), block))
    sizes = np.minimum(block, len(images) - starts)
    needed = sizes.cumsum() - sizes < count  # the blocks before them hold too few images
    with Progress(int(sizes[needed].sum()), "replay") as progress:
        for start in starts[needed]:
            batch = images.batch(slice(start, start + block))
            for i, row in enumerate(rows_of(evaluation, setup, batch)):
                then = stored[row["id"]]
                old, moved = run.certificate(then), None
                if other_environment(header | machine_of(then), g.device):
                    noise = g.noise(1, evaluation.options.seed, [row["id"]])
                    sampler = Sampler(g, batch.images[i : i + 1].to(g.device), noise, size)
                    moved = moved_votes(old, sampler)
                compared.add(old, at_stated_alpha(run, run.certificate(row)), moved)
                if then.get("selector_samples") not in (None, row["selector_samples"]):
                    compared.contradict(old, "its selector_samples are not those of a replay")
            progress.add(len(batch.ids))
    return compared


def moved_votes(stored: Certificate, sampler: Sampler) -> float:
    """How many of the stored votes a sampler with the same noise gives to other classes."""
    moved = 0.0
    for level in stored.votes:
        counts = sampler.counts([0], [level.sigma], level.n, "votes")[0].tolist()
        votes = [*level.counts, level.passes][: len(counts)]
        moved += sum(abs(a - b) for a, b in zip(votes, counts, strict=True)) / 2
    return moved


def machine_of(row: Row) -> dict[str, Any]:
    """The machine that a row names, if it is another one than the run's."""
    return {"environment": row["environment"]} if row.get("environment") else {}


def _same_choices(one: Certificate, other: Certificate) -> bool:
    """Did the selection draws choose the same classes, level, bound, and numbers of votes?"""
    classes, others = ({level.candidate for level in each.votes} for each in (one, other))
    same_level = np.isclose(one.sigma, other.sigma, rtol=TOLERANCE, atol=0)
    planned, again = ([level.n for level in each.votes if each.stages] for each in (one, other))
    same_numbers = one.ledger.anytime or planned == again
    choices = classes == others and same_level and same_numbers
    return bool(choices and one.ledger == other.ledger)


def as_sampled(run: Run) -> Certifying:
    """The certificates of the run as they were sampled, before they were recomputed."""
    config = run.header["config"]
    options = replace(recorded(CertifyOptions, config), vote_cache=None)
    return Certifying(replace(options, alpha=config.get("sampled_alpha", options.alpha)))


def at_stated_alpha(run: Run, certificate: Certificate) -> Certificate:
    """A certificate at the α that the run states, if that is not the one it was sampled at."""
    config = run.header["config"]
    return certificate.recompute(config["alpha"]) if "sampled_alpha" in config else certificate


def _same_samples(one: SelectorEvidence | None, other: SelectorEvidence | None) -> bool:
    """Whether two samples of h are the same up to rounding."""
    if one is None or other is None or len(one.samples) != len(other.samples):
        return one is other
    alike = replace(one, samples=()) == replace(other, samples=())
    return alike and bool(np.allclose(one.samples, other.samples, rtol=TOLERANCE, atol=0))
