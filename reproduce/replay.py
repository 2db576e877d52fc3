"""Certificates at any σ_s, λ, D or clip from one table of votes and samples of h.

`certify` draws the votes at a level and the samples of h from noise streams of their own. So the
votes at some levels and the samples at one λ hold every draw that it would take at any D or clip on
these levels, and the certificate follows by `Certificate.derive`, as it does there.

g_v* at one λ needs votes of f only where its selector chooses. Its levels are percentiles of σ_s on
held-out images, so that neighbouring levels differ by a fraction of the spread of h, however small
that is.

An image whose class, by the selection draws, is not its label gets no votes. It counts as wrong
whatever they would say, and is recorded as an abstention.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from reproduce.comparisons import CLIP_PERCENTILES
from reproduce.harness import Context
from reproduce.records import outcomes_of
from reproduce.scales import Need, VotingScale, size
from varsmooth._util.progress import Progress
from varsmooth.bounds import Floats, average_certified_radius
from varsmooth.certificates import Certificate
from varsmooth.data import ImageDataset
from varsmooth.defaults import ABSTAIN
from varsmooth.evaluation.build import load_images
from varsmooth.evaluation.options import CertifyOptions, DataOptions, ModelOptions
from varsmooth.evaluation.records import Run
from varsmooth.evaluation.report.outcomes import Outcomes
from varsmooth.evaluation.vote_cache import CachedSmoothedClassifier
from varsmooth.evidence import Evidence, Ledger, LevelVotes, SelectorEvidence
from varsmooth.methods import METHODS
from varsmooth.sampling import Sampler
from varsmooth.selectors import Grid

Clip = tuple[float, float] | None
Derived = tuple[float, Certificate | None]
"""The level in use, and what is certified there; nothing where the class is not the label."""


@dataclass(frozen=True)
class VotesOnDemand:
    """The votes of f for an image at a level, drawn on first use.

    The noise of an image does not depend on what else is computed, so these are the votes of a run
    at that level; few of a grid's levels matter to an image. They are kept in the vote cache.
    """

    g: CachedSmoothedClassifier
    images: ImageDataset
    settings: CertifyOptions
    batch_size: int
    _known: dict[tuple[float, int, float], LevelVotes | None] = field(default_factory=dict)

    def at(self, level: float, image: int, class_at: float | None = None) -> LevelVotes | None:
        """The votes for the image with this id; None if its class is not its label.

        class_at: the level whose selection draws choose the class; by default the same.
        """
        key = (level, image, class_at or level)
        if key not in self._known:
            (row,) = np.flatnonzero(self.images.ids == image)
            x, labels, _ = self.images.batch([int(row)])
            assert labels is not None
            noise = self.g.noise(1, self.settings.seed, [image])
            sampler = Sampler(self.g, x.to(self.g.device), noise, self.batch_size)
            (chosen,) = sampler.candidates([0], [class_at or level], self.settings.n0)
            votes = None
            if chosen.candidate == int(labels[0]):
                votes = sampler.votes({0: (level, chosen.candidate)}, self.settings.n)[0]
            self._known[key] = votes
        return self._known[key]

    def everywhere(self, levels: Sequence[float], image: int) -> list[LevelVotes] | None:
        """The votes at each level; None if the class of one is not the label."""
        votes = []
        for level in levels:
            if (one := self.at(level, image)) is None:
                return None
            votes.append(one)
        return votes

    def fixed(self, level: float) -> Outcomes:
        """Conventional smoothing: Cohen's certificate at one level."""
        ledger = Ledger(self.settings.alpha, self.settings.alpha)

        def derive(image: int) -> Derived:
            return level, _derived("fixed", ledger, self.everywhere([level], image), level)

        return self.outcomes("fixed", f"g at σ_s = {level:.3g}", derive)

    def outcomes(self, method: str, what: str, derive: Callable[[int], Derived]) -> Outcomes:
        """A row for every image."""
        rows, images = [], self.images
        assert images.labels is not None
        with Progress(len(images), what) as progress:
            for image, label in zip(images.ids.tolist(), images.labels.tolist(), strict=True):
                level, certificate = derive(image)
                row = {"id": image, "label": label, "sigma": level}
                row |= {"prediction": ABSTAIN, "radius": 0.0}
                row |= {"guarantee": METHODS[method].guarantee}
                if certificate is not None:
                    row |= {"prediction": certificate.prediction, "radius": certificate.radius}
                rows.append(row)
                progress.add(1)
        return outcomes_of("certify", rows, what, images.name, images.split)


@dataclass(frozen=True)
class Replay:
    """What g_v* certifies at one λ: the votes of f, and a run of `certify` with samples of h."""

    table: VotesOnDemand
    selector: Run

    @cached_property
    def originals(self) -> dict[int, Certificate]:
        return {row["id"]: self.selector.certificate(row) for row in self.selector.rows()}

    def paper(self, distance: float, clip: Clip = None) -> Outcomes:
        """The paper's scenario (i) at D: the worst of three levels."""
        ledger = self._ledger("paper")

        def derive(image: int) -> Derived:
            seen = replace(self._seen(image, clip), distance=distance)
            levels = seen.levels_between(ledger, every_index=False)
            level, votes = seen.median_level, self.table.everywhere(levels, image)
            return level, _derived("paper", ledger, votes, level, seen)

        return self.table.outcomes("paper", f"three levels at D = {distance:g}", derive)

    def conditional(self, clip: Clip = None) -> Outcomes:
        """Scenario (ii), no attack on h: Cohen's certificate at the median of the N_h samples."""
        ledger = self._ledger("conditional")

        def derive(image: int) -> Derived:
            level = self._seen(image, clip).median_level
            votes = self.table.everywhere([level], image)
            return level, _derived("conditional", ledger, votes, level)

        return self.table.outcomes("conditional", "no attack on h", derive)

    def sound(self, clip: Clip = None) -> Outcomes:
        """The exhaustive certificate: Theorem A over every level of the clipped grid."""
        ledger = self._ledger("sound")

        def derive(image: int) -> Derived:
            seen = self._seen(image, clip)
            assert seen.levels is not None
            level = min(max(self.originals[image].sigma, seen.levels[0]), seen.levels[-1])
            votes, least = list[LevelVotes](), np.inf
            for distance, s in seen.levels_by_distance(ledger):
                if distance >= least:
                    break  # the rest cannot lower the minimum
                if (one := self.table.at(s, image, class_at=level)) is None:
                    return level, None
                votes.append(one)
                least = min(least, max(distance, one.radius(ledger)))
            return level, _derived("sound", ledger, votes, level, seen)

        return self.table.outcomes("sound", "every level", derive)

    def _seen(self, image: int, clip: Clip) -> SelectorEvidence:
        """The samples of h for an image, on the levels inside the clip."""
        seen = self.originals[image].selector
        assert seen is not None
        assert seen.levels is not None
        return replace(seen, clip=clip, levels=Grid.make(seen.levels, clip).levels)

    def _ledger(self, method: str) -> Ledger:
        """How `certify` divides α for this method."""
        config, drawn = self.selector.header["config"], self.selector.header["selector"]["n"]
        deployed = drawn if config["band"] else 0
        return METHODS[method].ledger(config["alpha"], config["alpha_select"], deployed)


def _derived(
    method: str,
    ledger: Ledger,
    votes: Sequence[LevelVotes] | None,
    sigma: float,
    seen: SelectorEvidence | None = None,
) -> Certificate | None:
    """The certificate that follows from the votes, if there are any; of it class and radius."""
    if votes is None:
        return None
    evidence = Evidence(ledger, tuple(votes), seen)
    return Certificate.derive(method, evidence, sigma=sigma, settings={}, id=0, seed=0)


MULTIPLES = (0.5, 0.75, 1.0, 1.25, 1.5, 2.0)
FINE_MULTIPLES = tuple(round(0.1 * k, 1) for k in range(1, 21))


HELD_OUT = ("held_out", "held_out_draws", "choice")
"""Sizes of what is chosen on held-out images."""


@dataclass(frozen=True, kw_only=True)
class CertifyScale(VotingScale):
    """Sizes of everything that is certified. Experiments with equal sizes share all their runs."""

    n: int = size("votes N", 1000)
    n0: int = size("selection draws n0", 100, stated=False)
    n_select: int = size("selector draws N_h", 1001, stated=False)
    alpha: float = size("α", 1e-3)
    alpha_select: float = size("α_h", 1e-5)
    multiples: tuple[float, ...] = size("swept σ_s / σ_a", FINE_MULTIPLES, stated=False)
    percentiles: tuple[float, ...] = size(
        "percentiles of σ_s that are levels",
        (0.0, 1.0, *(5.0 * k for k in range(1, 20)), 99.0, 100.0),
        stated=False,
        zero=True,
    )
    held_out: int = size("held-out images", 5000, stated=False)
    held_out_draws: int = size("selector draws per held-out image", 1001, stated=False, odd=True)
    choice: int = size("held-out images that choose λ and σ_s", 1000, stated=False, zero=True)

    @property
    def settings(self) -> CertifyOptions:
        """What every certification run has in common; the bound is the paper's."""
        names = ("n", "n0", "n_select", "alpha", "alpha_select", "seed")
        return CertifyOptions(bound="cohen", **{name: getattr(self, name) for name in names})


CPU: dict[str, Any] = {
    "images": 250,
    "multiples": MULTIPLES,
    "percentiles": (0.0, 5.0, 20.0, 35.0, 50.0, 65.0, 80.0, 95.0, 100.0),
    "held_out": 200,
    "held_out_draws": 51,
    "choice": 100,
}
"""What a CPU can do in half an hour for each σ_a."""


def sweep(scale: CertifyScale, sigma_a: float) -> tuple[float, ...]:
    """The levels of the baselines."""
    return Grid.make([sigma_a * multiple for multiple in scale.multiples], None).levels


def levels_between(medians: Floats, percentiles: Sequence[float]) -> tuple[float, ...]:
    """Percentiles of what h chose, and an end on either side, for images that it has not seen.

    >>> levels_between(np.array([0.25, 0.5]), (0, 100))
    (0.22727273404598236, 0.25, 0.5, 0.550000011920929)
    """
    inside = [float(level) for level in np.percentile(medians, percentiles)]
    apart = [inside[0] / 1.1]
    for level in (*inside, inside[-1] * 1.1):
        if level > apart[-1] * (1 + 1e-6):  # a grid has no level twice
            apart.append(level)
    return Grid.make(apart, None).levels


def selector_options(
    context: Context, need: Need, lam: float, levels: Sequence[float]
) -> ModelOptions:
    """g_v* on these levels, σ_m = σ_a, whatever its description recommends.

    The bounds of the clip are wider than h's own range: they clip nothing.
    """
    about = context.about(need)
    trained = about.sigma_of_selector
    return ModelOptions(
        context.model(need),
        lam=lam,
        sigma_a=trained,
        sigma_m=trained,
        clip=(trained / 20, trained * 20),
        levels=list(levels),
        n_median=1001,
    )


FEW = 10
"""Votes of a run whose samples of h are what matters: as many as `certify` accepts."""


def held_out_medians(context: Context, scale: CertifyScale, sigma_a: float, lam: float) -> Floats:
    """σ_s of the smoothed selector for each held-out image (n,), before any snapping."""
    model = selector_options(context, Need.pair(sigma_a), lam, [sigma_a])
    data = context.images(scale.data, "val", scale.held_out)
    few = CertifyOptions(n=FEW, n0=1, n_select=scale.held_out_draws, seed=scale.seed)
    run = context.execute("certify", "h on held-out images", model, data, few)
    medians: Floats = np.median(raw_samples(run), axis=1)
    return medians


def raw_samples(run: Run) -> Floats:
    """The samples of h behind each certificate of a run, ascending: (n, N_h)."""
    return np.array([row["evidence"]["selector"]["samples"] for row in run.rows()])


def clip_of(
    context: Context, scale: CertifyScale, sigma_a: float, lam: float
) -> tuple[float, float]:
    """h_l and h_u from σ_s on held-out images."""

    def make() -> list[float]:
        medians = held_out_medians(context, scale, sigma_a, lam)
        low, high = (float(q) for q in np.percentile(medians, CLIP_PERCENTILES))
        return [low, max(high, low * (1 + 1e-6))]

    low, high = context.fact(f"clip, σ_a = {sigma_a:g}, λ = {lam:g}", make)
    return low, high


@dataclass(frozen=True)
class Certified:
    """Everything that is certified on the model of one σ_a: g at each level, g_v* at each λ.

    Only votes at each level and samples of h at each λ are drawn; the rest follows from them.
    """

    context: Context
    scale: CertifyScale
    sigma_a: float
    split: str = "test"
    _replays: dict[float, Replay] = field(default_factory=dict)

    @property
    def levels(self) -> tuple[float, ...]:
        """The levels of g."""
        name = f"levels, σ_a = {self.sigma_a:g}"
        return tuple(self.context.fact(name, lambda: list(sweep(self.scale, self.sigma_a))))

    def g(self, level: float, name: str = "") -> Outcomes:
        """Conventional smoothing. name: of the run, if it is not the usual one."""
        name = name or f"g, σ_a = {self.sigma_a:g}, σ_s = {level:.3g}"
        network, need = self.context.model, Need.fixed(self.sigma_a)

        def key() -> str:
            return self._key(ModelOptions(network(need), sigma=level))

        return self.context.run(name, lambda: self.table.fixed(level), key)

    def star(
        self, lam: float, what: str, derive: Callable[[Replay], Outcomes], clip: Clip = None
    ) -> Outcomes:
        """g_v* at one λ. what: whether h is attacked, and how."""
        name = f"g_v*, σ_a = {self.sigma_a:g}, λ = {lam:g}, {what}" + ", clipped" * bool(clip)

        def key() -> str:
            model = self._selector_model(lam, self._levels_of_h(lam))
            return f"{self._key(model)}, {what}, {clip}"

        return self.context.run(name, lambda: derive(self.replay(lam)), key)

    def replay(self, lam: float) -> Replay:
        """The evidence of g_v* at one λ."""
        if lam not in self._replays:
            self._replays[lam] = Replay(self.table, self.samples_run(lam, self._levels_of_h(lam)))
        return self._replays[lam]

    @cached_property
    def table(self) -> VotesOnDemand:
        """The votes of f."""
        context, need = self.context, Need.fixed(self.sigma_a)
        built = context.build(ModelOptions(context.model(need), sigma=self.sigma_a))
        g = CachedSmoothedClassifier(built.g, context.store / "votes")
        images = load_images(self._images, built)
        return VotesOnDemand(g, images, self.scale.settings, context.batch_size)

    def samples_run(self, lam: float, levels: Sequence[float]) -> Run:
        """N_h samples of h at one λ, before any snapping; the levels say where to certify."""
        model, few = self._selector_model(lam, levels), replace(self.scale.settings, n=FEW)
        name = f"samples of h, λ = {lam:g}"
        return self.context.execute("certify", name, model, self._images, few)

    def _selector_model(self, lam: float, levels: Sequence[float]) -> ModelOptions:
        return selector_options(self.context, Need.pair(self.sigma_a), lam, levels)

    def _levels_of_h(self, lam: float) -> tuple[float, ...]:
        """Percentiles of what h chooses on held-out images."""
        medians = held_out_medians(self.context, self.scale, self.sigma_a, lam)
        return levels_between(medians, self.scale.percentiles)

    def _key(self, model: ModelOptions) -> str:
        return self.context.key("certify", model, self._images, self.scale.settings)

    @property
    def _images(self) -> DataOptions:
        count = self.scale.images if self.split == "test" else self.scale.choice
        return self.context.images(self.scale.data, self.split, count)

    def chosen(self, lams: Sequence[float]) -> tuple[float, float] | None:
        """The λ and the σ_s with the largest average radius on held-out images, h unattacked."""
        if not self.scale.choice:
            return None

        def make() -> list[float]:
            held_out = replace(self, split="val", _replays={})

            def average(run: Outcomes) -> float:
                return average_certified_radius(run.reach)

            lam = max(lams, key=lambda lam: average(held_out.replay(lam).conditional()))
            level = max(self.levels, key=lambda s: average(held_out.table.fixed(s)))
            return [lam, level]

        lam, level = self.context.fact(f"chosen on val, σ_a = {self.sigma_a:g}", make)
        return lam, level
