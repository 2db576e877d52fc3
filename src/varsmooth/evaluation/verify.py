"""Is a stored run complete, does it follow from its evidence, and does its evidence repeat?"""

import secrets
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import fisher_exact, ks_2samp

from varsmooth import bounds
from varsmooth._util.fingerprints import covers_architecture
from varsmooth._util.processes import choose_device
from varsmooth._util.progress import Progress
from varsmooth._util.untrusted import check_limit
from varsmooth.certificates import Certificate
from varsmooth.data import ImageDataset
from varsmooth.data.fitting import outputs_on
from varsmooth.defaults import BATCH_SIZE
from varsmooth.errors import VarsmoothError, check
from varsmooth.evaluation.audit import audit_row
from varsmooth.evaluation.build import BuiltModel, build, described, load_images, stored_model
from varsmooth.evaluation.certify import Certifying
from varsmooth.evaluation.engines.shards import unfinished_text
from varsmooth.evaluation.options import CertifyOptions, DataOptions, VerifyOptions, recorded
from varsmooth.evaluation.parts import open_as_one
from varsmooth.evaluation.records import Row, Run, key_of, other_settings
from varsmooth.evaluation.runner import NO_PROBE, Setup, labels_of, other_environment, other_model
from varsmooth.evidence import SelectorEvidence
from varsmooth.methods.median import selector_evidence
from varsmooth.noise import scoped_seed
from varsmooth.probe import TOLERANCE
from varsmooth.sampling import Sampler

MOVED, HALF_MOVED = 2e-3, 2e-2
"""Votes, as a share, that a replay on another machine may move: almost equal scores, in float32 and
in bfloat16."""

REPEATS, PERMUTED = 5, 20_000
"""Fresh certificates of each resampled image, and permutations behind their pooled p-value."""

FALSE_ALARM = 1e-3
"""Maximum probability that a faithful run fails `resample`, over all its tests together."""


@dataclass
class Verification:
    """What was checked, what could not be, and everything that is wrong.

    Attributes:
        replayed: Images whose votes were drawn again.
        resampled: Images with fresh noise.
        p_values: Of what was compared image by image.
        pooled: The p-value of all resampled radii together, see `pooled_p_value`.
    """

    rows: int = 0
    problems: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    replayed: int = 0
    resampled: int = 0
    p_values: dict[str, float] = field(default_factory=dict)
    pooled: float = 1.0

    @property
    def threshold(self) -> float:
        """A p-value of one image below this is an alarm: these tests share half of FALSE_ALARM."""
        return FALSE_ALARM / 2 / max(len(self.p_values), 1)


def verify_run(folder: str | Path, *more: str | Path, **settings: Any) -> Verification:
    """Check a run of `certify`: its model, its images, every row, and some rows once more.

    Every image must have one row. Every radius is derived again from its evidence, digit by
    digit, and the evidence must be what the settings ask for: numbers of draws, levels, classes,
    α ledger, seed. Without the model or the images the rest is checked.

    Evidence drawn again from the recorded seed (every count, passes, samples of the selector,
    shares of α) must be the same where versions, platform and device are those of the run;
    elsewhere a vote between two almost equal scores may differ, at most MOVED of all votes.
    With fresh noise, at each level the votes for the class, stored and fresh, are compared by
    Fisher's exact test, the samples of the selector by the Kolmogorov–Smirnov test; the radii of
    all of them together by `pooled_p_value`. These two kinds share 0.001, so that a faithful
    run raises one with probability ≤ 0.001.

    Args:
        folder: The run.
        more: Other folders, if it was written into several.
        settings: See `varsmooth.evaluation.options.VerifyOptions`.
    """
    asked, run = VerifyOptions(**settings), open_as_one([folder, *more])
    verb = run.header["verb"]
    check(verb == "certify", f"{folder} is a run of {verb}; only certificates can be verified")
    check(
        all(row["evidence"] is not None for row in run.rows()),
        f"{folder} was imported without evidence, so there is nothing to verify",
    )
    found = Verification()
    built = _model(run, found, asked)
    images = _images(run, found, built)
    if found.problems:
        return found  # another model or other images: nothing else would mean anything
    rows = _complete(run, found, images)
    labels = None
    if images is not None:
        _pixels(run, found, images)
        labels = dict(zip(images.ids.tolist(), labels_of(images), strict=True))
    classes = _classes(rows, built, images)
    with Progress(len(rows), "check rows", unit="rows") as progress:
        for row in rows:
            wrong = audit_row(run, row, labels, classes)
            found.problems += [f"image {row['id']}: {text}" for text in wrong]
            progress.add(1)
    if found.problems or not (asked.replay or asked.resample):
        return found
    if built is None or images is None:
        missing = "; ".join(found.unchecked)
        raise VarsmoothError(f"replay and resample need the model and the images: {missing}")
    fresh = secrets.randbits(63) if asked.seed is None else asked.seed
    again = _Again(run, built, images, rows, asked.batch_size, fresh)
    again.replay(found, len(rows) if asked.replay == "all" else asked.replay)
    if chosen := again.sample_rows(asked.resample):
        again.resample(found, chosen)
        again.pool(found, chosen)
    found.problems += [
        f"{what}: p-value {p:.2g} is below {found.threshold:.2g}"
        for what, p in found.p_values.items()
        if p < found.threshold
    ]
    if found.pooled < FALSE_ALARM / 2:
        found.problems.append(
            f"the radii of {found.resampled} images are together larger than with fresh noise: "
            f"p-value {found.pooled:.2g} is below {FALSE_ALARM / 2:g}"
        )
    return found


def _model(run: Run, found: Verification, asked: VerifyOptions) -> BuiltModel | None:
    """The run's model, if it is here and may be started."""
    device = choose_device(asked.device)
    try:
        built = build(stored_model(run.header, asked.model, asked.trust), device)
    except VarsmoothError as error:
        check(asked.model is None, str(error))
        found.unchecked.append(f"the model ({error})")
        return None
    found.problems += other_model(run.header, built.g)
    if not all(map(covers_architecture, run.header["fingerprints"].values())):
        found.unchecked.append(
            "the architecture of the model (the run is of an older varsmooth, whose fingerprints "
            "cover class and weights only)"
        )
    if "probe" not in run.header:
        found.unchecked.append(NO_PROBE)
    return built


def _images(run: Run, found: Verification, built: BuiltModel | None) -> ImageDataset | None:
    """The run's images, if they are here."""
    header = run.header
    try:
        data = recorded(DataOptions, header["config"])
        images = load_images(data, built, tuple(header["dataset"]["class_names"]))
    except (VarsmoothError, OSError) as error:
        found.unchecked.append(f"the images ({error})")
        return None
    there = header["dataset"].get("digest")
    now = {**header, "dataset": described(images, data, there)}
    found.problems += other_settings(header, now)
    return images


def _pixels(run: Run, found: Verification, images: ImageDataset) -> None:
    """The images as their rows saw them, where these recorded it: those that are files."""
    recorded = {row["id"]: row["pixels"] for row in run.rows() if "pixels" in row}
    if not recorded:
        return
    with Progress(len(images), "check images") as progress:
        for batch in images.batches(32):
            entries = images.row_entries(batch)
            for image, entry in zip(batch.ids.tolist(), entries, strict=True):
                if recorded.get(image, entry.get("pixels")) != entry.get("pixels"):
                    found.problems.append(f"image {image}: {entry['file']} is another image now")
            progress.add(len(entries))


def _complete(run: Run, found: Verification, images: ImageDataset | None) -> list[Row]:
    """The rows, one for each image of the data set; what is missing or contradicts is a problem."""
    rows = run.rows()
    found.rows = len(rows)
    kept = {key_of(row): row | {"seconds": 0} for row in rows}  # which two processes never share
    twice = {row["id"] for row in run.stored() if row | {"seconds": 0} != kept[key_of(row)]}
    found.problems += [f"image {i}: two rows contradict each other" for i in sorted(twice)]
    ids = {row["id"] for row in rows}
    wanted = ids if images is None else set(images.ids.tolist())
    size = run.header["dataset"]["size"] if images is None else len(wanted | ids)
    missing = size - len(ids)
    if missing > 0:
        lacking = f"{missing} of {len(ids) + missing} images have no row{unfinished_text(run)}"
        found.problems.append(f"{lacking}; rerun its certify command to finish it")
    found.problems += [f"image {i} is not in the data set" for i in sorted(ids - wanted)]
    return rows


def _classes(rows: list[Row], built: BuiltModel | None, images: ImageDataset | None) -> int:
    """The number of classes: that of the model, or else the one that most rows agree on."""
    if built is not None and images is not None:
        return outputs_on(images, built.g)
    votes = (row["evidence"]["votes"] for row in rows)
    sizes = Counter(len(levels[0]["counts"]) for levels in votes if levels)
    return max(sizes, key=lambda size: sizes[size], default=0)


@dataclass
class _Again:
    """Rows of a run computed once more: with the run's noise, or with fresh noise."""

    run: Run
    built: BuiltModel
    images: ImageDataset
    rows: list[Row]
    batch_size: int
    seed: int

    def __post_init__(self) -> None:
        self.chosen = np.random.default_rng(self.seed)

    def sample_rows(self, count: int) -> list[Row]:
        """So many random rows, in order."""
        return [self.rows[i] for i in sorted(self.chosen.permutation(len(self.rows))[:count])]

    def replay(self, found: Verification, count: int) -> None:
        """Compute whole blocks of images as the run did, until `count` images are done."""
        config = self.run.header["config"]
        sampled, evaluation = config.get("sampled_alpha"), self._evaluation()
        evaluation = evaluation.in_scope(self.run.header)
        size = config.get("batch_size", BATCH_SIZE)
        check_limit("SIZE", size, f"the run was computed in batches of {size:,} images")
        setup = Setup(self.built.g, self.run, size)
        block = evaluation.block(size)
        stored = {row["id"]: row for row in self.rows}
        compared = Replayed()
        starts = self.chosen.permutation(range(0, len(self.images), block))
        sizes = np.minimum(block, len(self.images) - starts)
        needed = sizes.cumsum() - sizes < count  # the blocks before them hold too few images
        with Progress(int(sizes[needed].sum()), "replay") as progress:
            for start in starts[needed]:
                batch = self.images.batch(slice(start, start + block))
                batch = batch._replace(images=batch.images.to(self.built.g.device))
                for row in evaluation.rows(setup, batch):
                    found.replayed += 1
                    now, then = (self.run.certificate(one) for one in (row, stored[row["id"]]))
                    compared.add(then, now if sampled is None else now.recompute(config["alpha"]))
                progress.add(len(batch.ids))
        elsewhere = other_environment(self.run.header, self.built.g.device)
        if not elsewhere and any(row.get("environment") for row in self.rows):
            elsewhere = ["some rows record another version or device"]
        if compared.differing and not elsewhere:
            ids = ", ".join(map(str, compared.differing[:10]))
            found.problems.append(
                f"replayed evidence differs from the stored one of the images {ids}"
            )
        elif compared.differing:
            half = config.get("precision") == "bfloat16"
            found.problems += compared.too_much(HALF_MOVED if half else MOVED)
            found.unchecked.append(
                f"the exact evidence of {len(compared.differing)} images: {'; '.join(elsewhere)}; "
                f"there {100 * compared.share:.2g} % of the replayed votes differ"
            )

    def _evaluation(self) -> Certifying:
        """The certificates of the run as they were sampled, before they were recomputed."""
        config = self.run.header["config"]
        options = replace(recorded(CertifyOptions, config), vote_cache=None)
        return Certifying(replace(options, alpha=config.get("sampled_alpha", options.alpha)))

    def pool(self, found: Verification, rows: Sequence[Row]) -> None:
        """Certify the images of these rows REPEATS times with fresh noise, and compare radii."""
        config, ids = self.run.header["config"], {row["id"] for row in rows}
        places = [i for i, image in enumerate(self.images.ids.tolist()) if image in ids]
        setup = Setup(self.built.g, self.run, self.batch_size)
        stored = {row["id"]: row["radius"] for row in rows}
        fresh: dict[int, list[float]] = {image: [] for image in stored}
        evaluation = self._evaluation()
        for repeat in range(REPEATS):
            seed = scoped_seed(self.seed, f"resample {repeat}")
            again = replace(evaluation, settings=replace(evaluation.settings, seed=seed))
            for start in range(0, len(places), 32):
                batch = self.images.batch(places[start : start + 32])
                batch = batch._replace(images=batch.images.to(self.built.g.device))
                for row in again.rows(setup, batch):
                    one = self.run.certificate(row)
                    one = one.recompute(config["alpha"]) if "sampled_alpha" in config else one
                    fresh[row["id"]].append(one.radius)
        values = np.array([[stored[image], *fresh[image]] for image in stored])
        found.pooled = pooled_p_value(values, self.chosen)

    def resample(self, found: Verification, rows: Sequence[Row]) -> None:
        """A p-value for everything that can be compared with fresh draws."""
        place = {image: position for position, image in enumerate(self.images.ids.tolist())}
        with Progress(len(rows), "resample") as progress:
            for row in rows:
                batch = self.images.batch([place[row["id"]]])
                seed = scoped_seed(self.seed, "resample")  # never the run's own noise
                noise = self.built.g.noise(1, seed, batch.ids)
                x = batch.images.to(self.built.g.device)
                sampler = Sampler(self.built.g, x, noise, self.batch_size)
                found.p_values |= _compared(sampler, self.run.certificate(row))
                found.resampled += 1
                progress.add(1)


def pooled_p_value(values: NDArray[np.float64], rng: np.random.Generator) -> float:
    """Are the first numbers of the rows (N, m) together larger than the others? A permutation test.

    If each row is exchangeable, the first could be any of its numbers: the sum over the rows of the
    first number, in units of the row's own mean and standard deviation, is compared with PERMUTED
    sums of numbers chosen at random. P(p ≤ a) ≤ a, whatever the distribution. A radius is a
    function of every count behind it, so this sees all of them, over all images at once.
    """
    spread = values.std(axis=1, keepdims=True)
    scores = (values - values.mean(axis=1, keepdims=True)) / np.where(spread > 0, spread, 1)
    sums = np.zeros(PERMUTED)
    for row in scores:
        sums += row[rng.integers(len(row), size=PERMUTED)]
    return float((1 + (sums >= scores[:, 0].sum() - 1e-9).sum()) / (1 + PERMUTED))


@dataclass
class Replayed:
    """Stored evidence beside the same evidence drawn again, image by image."""

    differing: list[int] = field(default_factory=list)
    odd: list[int] = field(default_factory=list)
    moved: float = 0.0
    votes: int = 0

    @property
    def share(self) -> float:
        """Of the votes, those that went elsewhere."""
        return self.moved / max(self.votes, 1)

    def add(self, stored: Certificate, again: Certificate) -> None:
        """Compare every count, passes too, the samples of the selector, and the shares of α."""
        then, now = ({level.sigma: level for level in one.votes} for one in (stored, again))
        for sigma, level in now.items():
            if sigma not in then or then[sigma].candidate != level.candidate:
                self.moved += level.n
                continue
            pairs = [(*one.counts, one.passes) for one in (then[sigma], level)]
            self.moved += sum(abs(a - b) for a, b in zip(*pairs, strict=True)) / 2
        self.votes += sum(level.n for level in again.votes)
        same_h = _same_samples(stored.selector, again.selector)
        if not same_h or stored.ledger != again.ledger or stored.stages != again.stages:
            self.odd.append(stored.id)
        if not same_h or replace(stored, selector=None) != replace(again, selector=None):
            self.differing.append(stored.id)

    def too_much(self, limit: float) -> list[str]:
        """What rounding on another machine does not explain."""
        problems = [
            f"image {i}: its selector samples or shares of α are not those of a replay"
            for i in self.odd[:10]
        ]
        if self.share > limit:
            problems.append(
                f"{100 * self.share:.2g} % of the replayed votes differ, more than the "
                f"{100 * limit:g} % that another machine explains"
            )
        return problems


def _same_samples(one: SelectorEvidence | None, other: SelectorEvidence | None) -> bool:
    """Whether two samples of h are the same up to rounding."""
    if one is None or other is None or len(one.samples) != len(other.samples):
        return one is other
    alike = replace(one, samples=()) == replace(other, samples=())
    return alike and bool(np.allclose(one.samples, other.samples, rtol=TOLERANCE, atol=0))


def _compared(sampler: Sampler, certificate: Certificate) -> dict[str, float]:
    """p-values of one image's evidence against fresh draws."""
    found: dict[str, float] = {}
    for level in certificate.votes:
        again = int(sampler.counts([0], [level.sigma], level.n, "votes")[0, level.candidate])
        name = f"image {certificate.id}, votes at {level.sigma:g}"
        if certificate.ledger.anytime:
            found[name] = _stopped_p_value(level.top, again, level.n)
        else:
            table = np.array([[level.top, level.n - level.top], [again, level.n - again]])
            found[name] = float(fisher_exact(table).pvalue)
    if certificate.selector is not None:
        stored_samples = certificate.selector.samples
        (evidence,) = selector_evidence(sampler, len(stored_samples))
        kolmogorov = ks_2samp(stored_samples, evidence.samples, method="asymp")
        found[f"image {certificate.id}, selector"] = float(kolmogorov.pvalue)
    return found


def _stopped_p_value(stored: int, again: int, n: int) -> float:
    """A test of two counts in n votes each, where the stored votes themselves chose n.

    The smallest a at which a confidence sequence of the stored votes and the Clopper–Pearson
    interval of the fresh ones, each of their four bounds at a/4, have no p in common.
    """

    def apart(a: float) -> bool:
        low, high = (bounds.anytime_lower(k, n, a / 4) for k in (stored, n - stored))
        above = low > bounds.clopper_pearson_upper(again, n, a / 4)
        return bool(above or high > bounds.clopper_pearson_upper(n - again, n, a / 4))

    tried = np.geomspace(1e-12, 1, 200).tolist()
    return next(iter(tried[bisect_left(tried, True, key=apart) :]), 1.0)
