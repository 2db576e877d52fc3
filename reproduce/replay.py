"""Certificates for another D, clip or method from stored evidence, without sampling.

`certify` draws the votes at a level and the samples of h from noise streams of their own. So the
votes at each level and one run of the selector hold every draw that it would take at any λ, D or
clip on these levels, and the certificate follows by `Certificate.derive`, as it does there.

g_v* at one λ needs votes of f only where its selector chooses. Its table of votes has the
percentiles of σ_s on held-out images as levels, so that neighbouring levels differ by a fraction
of the spread of h, however small that is, and every D, clip and method is replayed from it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from reproduce.harness import Context, Need, VotingScale, size
from varsmooth.bounds import Floats, average_certified_radius
from varsmooth.certificates import Certificate
from varsmooth.certification import certify
from varsmooth.data import ImageDataset
from varsmooth.errors import require
from varsmooth.evidence import Ledger, LevelVotes, Method, SelectorEvidence
from varsmooth.progress import Progress
from varsmooth.report.outcomes import Outcomes
from varsmooth.runs.building import load_images
from varsmooth.runs.options import CertifyOptions, DataOptions, ModelOptions
from varsmooth.runs.records import Run
from varsmooth.runs.vote_cache import RememberingClassifier
from varsmooth.selectors import FixedSelector, Grid

Clip = tuple[float, float] | None
Derive = Callable[[Certificate, SelectorEvidence, Ledger], Certificate]
"""From the original, its samples of h on the levels of the replay, and the ledger."""


@dataclass(frozen=True)
class VotesOnDemand:
    """The votes of f for an image at a level, drawn when they are asked for.

    The noise of an image does not depend on what else is computed, so these are the votes of a run
    at that level; few of a grid's levels matter to an image. They are kept in the vote cache.
    """

    g: RememberingClassifier
    images: ImageDataset
    levels: tuple[float, ...]
    settings: CertifyOptions
    batch_size: int

    def at(self, level: float, image: int) -> LevelVotes:
        """The votes for the image with this id, with the class that other draws chose."""
        if (level, image) not in self._found:
            self.g.selector = FixedSelector(level)
            (row,) = np.flatnonzero(self.images.ids == image)
            x = self.images.batch([int(row)]).images.to(next(self.g.parameters()).device)
            asked = {name: getattr(self.settings, name) for name in ("n", "n0", "alpha", "seed")}
            (found,) = certify(self.g, x, ids=[image], batch_size=self.batch_size, **asked)
            self._found[level, image] = found.votes[0]
        return self._found[level, image]

    @cached_property
    def _found(self) -> dict[tuple[float, int], LevelVotes]:
        return {}


@dataclass(frozen=True)
class Replay:
    """What g_v* certifies at one λ: the votes of f, and a run of `certify` with samples of h."""

    table: VotesOnDemand
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
            votes = [self.table.at(level, original.id) for level in levels]
            return _derived("paper", ledger, votes, seen, seen.median_level, original)

        return self._replayed("paper", clip, derive)

    def conditional(self, clip: Clip = None) -> Outcomes:
        """Scenario (ii), no attack on h: Cohen's certificate at the median of the N_h samples."""

        def derive(original: Certificate, seen: SelectorEvidence, ledger: Ledger) -> Certificate:
            level = seen.median_level
            votes = [self.table.at(level, original.id)]
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
            candidate = self.table.at(level, original.id).candidate
            if spent_as_paper:
                ledger = replace(ledger, alpha_class=ledger.alpha, alpha_deploy=0.0, n_deploy=0)
            votes, least = list[LevelVotes](), np.inf
            for distance, s in seen.levels_by_distance(ledger):
                if distance >= least:
                    break  # the rest cannot lower the minimum
                votes.append(replace(self.table.at(s, original.id), candidate=candidate))
                least = min(least, max(distance, votes[-1].radius(ledger)))
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
        found = []
        with Progress(len(self.originals), f"{method} from stored samples of h") as progress:
            for original in self.originals:
                assert original.selector is not None
                seen = replace(original.selector, clip=clip, levels=levels)
                found.append(derive(original, seen, ledger))
                progress.add(1)
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


MULTIPLES = (0.5, 0.75, 1.0, 1.25, 1.5, 2.0)
FINE_MULTIPLES = tuple(round(0.1 * k, 1) for k in range(1, 21))

CLIP_PERCENTILES = (5, 95)
"""Our rule: clip h to these percentiles of σ_s over held-out images."""


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
    )
    held_out: int = size("held-out images", 5000, stated=False)
    held_out_draws: int = size("selector draws per held-out image", 1001, stated=False)
    choice: int = size("held-out images that choose λ and σ_s", 1000, stated=False)

    @property
    def settings(self) -> CertifyOptions:
        """What every certification run has in common."""
        return CertifyOptions(
            n=self.n,
            n0=self.n0,
            n_select=self.n_select,
            alpha=self.alpha,
            alpha_select=self.alpha_select,
            seed=self.seed,
        )


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
    context: Context, need: Need, lam: float, levels: Sequence[float], draws: int = 1001
) -> ModelOptions:
    """g_v* on these levels, σ_m = σ_a, whatever its description recommends; draws=1 gives g_v.

    The bounds of the clip are wider than h's own range: they clip nothing.
    """
    about = context.about(need)
    told = about.sigma_of_selector
    return ModelOptions(
        context.model(need),
        lam=lam,
        sigma_a=told,
        sigma_m=told,
        clip=(told / 20, told * 20),
        levels=list(levels),
        n_median=draws,
    )


def samples_of_h(
    context: Context, scale: CertifyScale, model: ModelOptions, data: DataOptions, draws: int
) -> Run:
    """A run whose rows hold samples of h; votes are a formality, so they are few."""
    few = CertifyOptions(n=10, n0=1, n_select=draws, seed=scale.seed)
    return context.certify("samples of h", model, data, few)


def medians_of(context: Context, scale: CertifyScale, model: ModelOptions) -> Floats:
    """The median of h for each held-out image (n,)."""
    data = context.images(scale.data, "val", scale.held_out)
    found = samples_of_h(context, scale, model, data, scale.held_out_draws)
    medians: Floats = np.median(raw_samples(found), axis=1)
    return medians


def held_out_medians(context: Context, scale: CertifyScale, sigma_a: float, lam: float) -> Floats:
    """σ_s of the smoothed selector for each held-out image (n,), before any snapping."""
    need = Need.fixed(sigma_a, selector=True)
    return medians_of(context, scale, selector_options(context, need, lam, [sigma_a]))


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

    Only votes at each level and samples of h at each λ are drawn; the rest is replayed.
    """

    context: Context
    scale: CertifyScale
    sigma_a: float
    split: str = "test"

    @property
    def levels(self) -> tuple[float, ...]:
        """The levels of g."""
        return tuple(
            self.context.fact(
                f"levels, σ_a = {self.sigma_a:g}", lambda: list(sweep(self.scale, self.sigma_a))
            )
        )

    def g(self, level: float) -> Outcomes:
        """Conventional smoothing."""
        name = f"g, σ_a = {self.sigma_a:g}, σ_s = {level:.3g}"
        return self.context.run(
            name, lambda: outcomes(self.fixed_run(level)), lambda: self.fixed_key(level)
        )

    def paper(
        self, lam: float, distance: float, clip: Clip = None, *, every_level: bool = False
    ) -> Outcomes:
        """g_v* with attack on h: the paper's three levels at D, or every level between."""
        what = f"attack on h, D = {distance:g}" + ", every level" * every_level
        return self._replayed(
            lam, what, clip, lambda found: found.paper(distance, clip, every_level=every_level)
        )

    def conditional(self, lam: float) -> Outcomes:
        """g_v* without attack on h."""
        return self._replayed(lam, "no attack on h", None, lambda found: found.conditional())

    def sound(self, lam: float, clip: Clip = None, *, spent_as_paper: bool = False) -> Outcomes:
        """g_v* whatever the attacker does."""
        what = "sound" + ", spent as the paper's" * spent_as_paper
        return self._replayed(
            lam, what, clip, lambda found: found.sound(clip, spent_as_paper=spent_as_paper)
        )

    def _replayed(
        self, lam: float, what: str, clip: Clip, derive: Callable[[Replay], Outcomes]
    ) -> Outcomes:
        name = f"g_v*, σ_a = {self.sigma_a:g}, λ = {lam:g}, {what}" + ", clipped" * bool(clip)

        def key() -> str:
            model = self._selector_model(lam, self._levels_of_h(lam))
            return f"{self._key(model)}, {what}, {clip}"

        return self.context.run(name, lambda: derive(self.replay(lam)), key)

    def replay(self, lam: float) -> Replay:
        """The stored evidence of g_v* at one λ."""
        if lam not in self._replays:
            levels = self._levels_of_h(lam)
            self._replays[lam] = Replay(self.table(levels), self.selector_run(lam, levels))
        return self._replays[lam]

    @cached_property
    def _replays(self) -> dict[float, Replay]:
        return {}

    def table(self, levels: tuple[float, ...]) -> VotesOnDemand:
        """The votes of f on these levels."""
        context, need = self.context, Need.fixed(self.sigma_a)
        built = context.build(ModelOptions(context.model(need), sigma=levels[0]))
        g = RememberingClassifier(built.g, context.votes)
        images = load_images(self._images, built)
        return VotesOnDemand(g, images, levels, self.scale.settings, context.batch_size)

    def fixed_run(self, level: float) -> Run:
        """f certified at one level: the baseline g, and votes for every other method."""
        return self._certify(f"g, σ_s = {level:.3g}", self._fixed_model(level))

    def fixed_key(self, level: float) -> str:
        """A digest of all that this run depends on."""
        return self._key(self._fixed_model(level))

    def _fixed_model(self, level: float) -> ModelOptions:
        return ModelOptions(self.context.model(Need.fixed(self.sigma_a)), sigma=level)

    def selector_run(self, lam: float, levels: Sequence[float]) -> Run:
        """The sound certificate of g_v* on the levels; its rows hold N_h samples of h."""
        return self._certify(f"g_v*, λ = {lam:g}, sound", self._selector_model(lam, levels))

    def samples_run(self, lam: float) -> Run:
        """N_h samples of h at one λ, before any snapping."""
        model = self._selector_model(lam, [self.sigma_a])
        return samples_of_h(self.context, self.scale, model, self._images, self.scale.n_select)

    def _selector_model(self, lam: float, levels: Sequence[float]) -> ModelOptions:
        need = Need.fixed(self.sigma_a, selector=True)
        return selector_options(self.context, need, lam, levels)

    def _levels_of_h(self, lam: float) -> tuple[float, ...]:
        """Percentiles of what h chooses on held-out images."""
        medians = held_out_medians(self.context, self.scale, self.sigma_a, lam)
        return levels_between(medians, self.scale.percentiles)

    def _certify(self, name: str, model: ModelOptions) -> Run:
        return self.context.certify(name, model, self._images, self.scale.settings)

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
            held_out = replace(self, split="val")

            def average(run: Outcomes) -> float:
                return average_certified_radius(run.reach)

            lam = max(lams, key=lambda lam: average(held_out.replay(lam).conditional()))
            level = max(self.levels, key=lambda s: average(outcomes(held_out.fixed_run(s))))
            return [lam, level]

        lam, level = self.context.fact(f"chosen on val, σ_a = {self.sigma_a:g}", make)
        return lam, level


def outcomes(run: Run) -> Outcomes:
    return Outcomes.of(run.header, run.rows())
