"""Our own: what each idea is worth, and what soundness costs.

certificates: the paper's three levels against every level and against the sound certificate, by
replaying the evidence of `certified`. training: selectors trained alike but for one idea.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from reproduce.certification import TABLE_1
from reproduce.context import Context
from reproduce.experiment import Claim, Experiment, Figure, Need, Result, Verdict, size
from reproduce.levels import CPU, Certified, CertifyScale, medians_of, outcomes
from reproduce.plots import Curve, Levels, plot_curves, plot_levels
from reproduce.verdicts import MeanDifference, shown_difference, shown_radius_gap, verdict_of
from varsmooth.models.descriptions import CONFIG, describe
from varsmooth.models.networks import AttentionSelector
from varsmooth.report.outcomes import Outcomes
from varsmooth.report.statistics import (
    PairedDifference,
    Share,
    average_certified_radius,
    mean_interval,
)
from varsmooth.report.tables import Cell, Table
from varsmooth.runs.options import ModelOptions
from varsmooth.training import SelectorConfig, train_selector


@dataclass(frozen=True, kw_only=True)
class AblationScale(CertifyScale):
    """Parts can be run alone: `parts=certificates` trains nothing."""

    parts: tuple[str, ...] = size("parts", ("certificates", "training"))
    lams: tuple[float, ...] = size("λ", (0.0, 0.1, 0.2))
    trained: float = size("σ_a of the trained variants", 0.25)
    fixed_lams: tuple[float, ...] = size("λ of training for one λ", (0.0, 0.2))
    asked_lams: tuple[float, ...] = size("λ asked of the variants", (0.0, 0.2, 0.4))
    epochs: int = size("epochs of h", 200)
    images_per_epoch: int = size("images in an epoch of h", 45_000)
    train_split: str = "train"


def needs(scale: AblationScale) -> list[Need]:
    asked = dict.fromkeys(scale.sigmas if "certificates" in scale.parts else ())
    asked |= dict.fromkeys((scale.trained,) if "training" in scale.parts else ())
    return [Need.fixed(sigma, selector=True) for sigma in asked]


def ablation(context: Context, scale: AblationScale) -> Result:
    found: list[Result] = []
    if "certificates" in scale.parts:
        found.append(certificates(context, scale))
    if "training" in scale.parts:
        found.append(training(context, scale))
    return Result(
        [figure for result in found for figure in result.figures],
        [table for result in found for table in result.tables],
        [claim for result in found for claim in result.claims],
        ["Each σ_s is snapped to the nearest level of the vote table"],
    )


@dataclass(frozen=True)
class Soundness:
    """One σ_a and λ: radii with and without attack on h, and the paper's at each D.

    supported: the exhaustive certificate with the paper's spending of α, so that where the
    three-level radius is larger, it is because of a level that was not looked at.
    beyond_every: at each D, on how many images the three-level radius is larger than that over
    every level between.
    """

    sigma_a: float
    lam: float
    sound: Outcomes
    supported: Outcomes
    unattacked: Outcomes
    three: dict[float, Outcomes]
    beyond_every: dict[float, int]

    @property
    def title(self) -> str:
        return f"σ_a = {self.sigma_a:g}, λ = {self.lam:g}"

    def beyond_exhaustive(self, distance: float) -> Share:
        """Images whose three-level radius is larger than the exhaustive certificate supports."""
        three, every = self.three[distance], self.supported
        same = np.where(three.predictions == every.predictions, every.radii, 0.0)
        return Share.of(three.radii > same)


def soundness_of(model: Certified, lam: float) -> Soundness:
    """All the certificates that one λ's evidence supports."""
    distances = [d for d in TABLE_1.get(model.sigma_a, TABLE_1[0.25])[0] if d > 0]
    sound, supported = model.sound(lam), model.sound(lam, spent_as_paper=True)
    unattacked = model.conditional(lam)
    three = {d: model.paper(lam, d) for d in distances}

    def beyond(distance: float) -> int:
        every = model.replay(lam).paper(distance, every_level=True)
        return int((three[distance].radii > every.radii).sum())

    counts = {
        d: model.context.fact(f"beyond every level: {run.name}", partial(beyond, d))
        for d, run in three.items()
    }
    return Soundness(model.sigma_a, lam, sound, supported, unattacked, three, counts)


def certificates(context: Context, scale: AblationScale) -> Result:
    """What soundness costs, and how often three levels promise too much."""
    models = [Certified(context, scale, sigma_a) for sigma_a in scale.sigmas]
    found = [soundness_of(model, lam) for model in models for lam in scale.lams]
    figure = Figure(
        "soundness",
        f"The same evidence certified in three ways, λ = {scale.lams[-1]:g}. Solid: sound, every "
        "level, all attacks. Dashed: conditional, h assumed unattacked. Dotted: the paper's three "
        "levels at each D of Table 1, best at each radius.",
        [
            partial(plot_curves, curves=_curves(one), title=f"σ_a = {one.sigma_a:g}")
            for one in found
            if one.lam == scale.lams[-1]
        ],
        columns=min(2, len(scale.sigmas)),
        height=3.7,
    )
    return Result([figure], [_soundness_table(found)], soundness_claims(found))


def _curves(one: Soundness) -> list[Curve]:
    return [
        Curve("sound", [one.sound], band=True),
        Curve("conditional", [one.unattacked]),
        Curve("three levels (heuristic)", list(one.three.values())),
    ]


def _soundness_table(found: Sequence[Soundness]) -> Table:
    rows = []
    for one in found:
        head = [Cell(f"{one.sigma_a:g}", one.sigma_a), Cell(f"{one.lam:g}", one.lam)]
        for name, run in (("no attack on h", one.unattacked), ("sound", one.sound)):
            rows.append([*head, Cell.of(name), _acr(run), Cell("–"), Cell("–")])
        for distance, three in one.three.items():
            every = Share(one.beyond_every[distance], len(three))
            beyond = (every, one.beyond_exhaustive(distance))
            shares = [Cell.share(share, up=True) for share in beyond]
            rows.append([*head, Cell.of(f"three levels, D = {distance:g}"), _acr(three), *shares])
    return Table(
        "soundness",
        "Average certified radius (0 where wrong or abstaining) of each certificate on the same "
        "evidence; and the share of images in % whose three-level radius exceeds that over every "
        "level between its bounds, and the exhaustive one with the same spending of α. 95 % "
        "intervals over images.",
        ["σ_a", "λ", "certificate", "ACR", "> every level %", "> exhaustive %"],
        rows,
    )


def _acr(run: Outcomes) -> Cell:
    radii = np.maximum(run.reach, 0)
    return Cell.mean_radius(average_certified_radius(run.reach), mean_interval(radii))


SHARE = 0.9
"""The sound certificate should keep this share of the unattacked average radius."""


def soundness_claims(found: Sequence[Soundness]) -> list[Claim]:
    """Two statements of ours."""
    exceeded = [
        (f"{one.title}, D = {d:g}", one.beyond_exhaustive(d)) for one in found for d in one.three
    ]
    total = Share(sum(s.k for _, s in exceeded), sum(s.n for _, s in exceeded))
    most = max(exceeded, key=lambda pair: pair[1].value)
    return [
        cost_claim(found),
        Claim(
            "The paper's three-level certificate promises more than the evidence supports",
            "ours",
            f"larger than the exhaustive radius in {total.k} of {total.n} cases (image × λ × D)"
            + (f"; most at {most[0]}: {most[1].k} of {most[1].n}" if total.k else ""),
            "held" if total.k else "not",
            "same votes, samples and α; larger than supported need not be false, but nothing "
            "covers it"
            if total.k
            else "h moves so little here that its bounds skip no level that matters; that they "
            "can is shown by test_paper_certifies_a_false_radius_and_sound_does_not",
            {name: share.value for name, share in exceeded},
        ),
    ]


def cost_claim(found: Sequence[Soundness]) -> Claim:
    """What soundness costs, judged by the interval of sound − SHARE · unattacked over images."""
    told, numbers, enough, short = [], {}, [], []
    for one in found:
        sound, free = (np.maximum(o.reach, 0) for o in (one.sound, one.unattacked))
        name = one.title
        interval = mean_interval(sound - SHARE * free)
        enough.append(interval.low >= 0)
        short.append(interval.high < 0)
        numbers[name] = float(sound.mean() / free.mean()) if free.any() else None
        shown = "–" if numbers[name] is None else f"{100 * float(sound.mean() / free.mean()):.1f} %"
        told.append(f"{name}: {sound.mean():.3f} of {free.mean():.3f} ({shown})")
    verdict: Verdict = "held" if all(enough) else "not" if all(short) else "partly"
    return Claim(
        "Soundness against attacks on h costs at most a tenth of the average radius",
        "ours",
        "average radius, sound of unattacked: " + "; ".join(told),
        verdict if any(value is not None for value in numbers.values()) else "untested",
        f"held where the 95 % interval of sound − {SHARE:g} · unattacked lies above 0: "
        f"{sum(enough)} of {len(enough)}; below 0: {sum(short)}",
        numbers,
    )


def training(context: Context, scale: AblationScale) -> Result:
    """Selectors that differ in one idea, trained alike, on one f."""
    found = Variants.measure(context, scale)
    return Result([found.figure()], [found.table()], found.claims())


PATH = "reproduce.ablation:UnconditionedSelector"
"""What a description names it by; whoever loads it must say that they trust this path."""


class UnconditionedSelector(AttentionSelector):
    """The paper's h with λ hidden: it sees the same middle value whatever is asked."""

    def forward(self, x: Tensor, sigma_a: Tensor, lam: Tensor) -> Tensor:
        return super().forward(x, sigma_a, torch.full_like(lam, 0.5))


UNIVERSAL, HIDDEN, LITERAL = "universal λ", "λ hidden from h", "KL summed over dimensions"
READING, REWARDED = "reads f's output", "reads f's output, rewarded for radius"


def variants_of(fixed_lams: Sequence[float]) -> dict[str, dict[str, Any]]:
    """The reference, and what each variant changes in its training."""
    only = {f"trained for λ = {lam:g}": {"lam": lam} for lam in fixed_lams}
    return {
        UNIVERSAL: {},
        **only,
        HIDDEN: {"network": PATH},
        LITERAL: {"reduction": "sum"},
        READING: {"network": "confidence"},
        REWARDED: {"network": "confidence", "objective": "radius"},
    }


def trained(context: Context, scale: AblationScale, changes: Mapping[str, Any]) -> str:
    """The folder of a selector for f that is trained with these changes, or is there already."""
    classifier = context.model(Need.fixed(scale.trained, selector=True))
    part = describe(classifier).classifier
    assert part is not None
    values = {
        "epochs": scale.epochs,
        "images_per_epoch": scale.images_per_epoch,
        "dataset": scale.data,
        "train_split": scale.train_split,
        "held_out_images": scale.held_out,
        "seed": scale.seed,
        **changes,
    }
    text = json.dumps([part.fingerprint, values], sort_keys=True)
    folder = context.store / "selectors" / hashlib.sha256(text.encode()).hexdigest()[:20]
    if not (folder / CONFIG).is_file():
        train_selector(
            SelectorConfig(
                out=folder,
                classifier=classifier,
                root=context.root,
                batch_size=min(64, scale.images_per_epoch),
                learning_rate=2e-3,
                device="cpu" if context.device == "cpu" else "auto",
                **values,
            )
        )
    return str(folder)


@dataclass(frozen=True)
class Chosen:
    """What one selector chooses at one λ: σ_s on held-out images, and how f does under it."""

    variant: str
    lam: float
    mean: float
    std: float
    outcomes: Outcomes


def chosen_by(
    context: Context, scale: AblationScale, name: str, changes: Mapping[str, Any], lam: float
) -> Chosen:
    """Ask a selector on held-out images for σ_s, and on test images for its votes."""
    model = Certified(context, scale, scale.trained)

    def options() -> ModelOptions:
        sigma_a = scale.trained
        return ModelOptions(
            trained(context, scale, changes),
            lam=lam,
            sigma_a=sigma_a,
            sigma_m=sigma_a,
            clip=(sigma_a / 20, sigma_a * 20),
            levels=list(model.levels),
            n_median=scale.held_out_draws,
            trust=[PATH],
        )

    def certified() -> Outcomes:
        data = context.images(scale.data, "test", scale.images)
        settings = replace(scale.settings, method="conditional")
        return outcomes(context.certify(f"{name}, λ = {lam:g}", options(), data, settings))

    def spread() -> list[float]:
        medians = medians_of(context, scale, replace(options(), levels=[scale.trained]))
        return [float(medians.mean()), float(medians.std())]

    found = context.run(f"{name}, λ = {lam:g}", certified)
    mean, std = context.fact(f"σ_s on held-out images: {found.name}", spread)
    return Chosen(name, lam, mean, std, found)


@dataclass(frozen=True)
class Variants:
    """Every variant at every λ that it can be asked for."""

    chosen: Sequence[Chosen]
    sigma_t: float

    @classmethod
    def measure(cls, context: Context, scale: AblationScale) -> "Variants":
        found = [
            chosen_by(context, scale, name, changes, lam)
            for name, changes in variants_of(scale.fixed_lams).items()
            for lam in ([changes["lam"]] if "lam" in changes else scale.asked_lams)
        ]
        return cls(found, 2 * scale.trained)

    def figure(self) -> Figure:
        names = list(dict.fromkeys(one.variant for one in self.chosen))
        lines = []
        for name in names:
            mine = [one for one in self.chosen if one.variant == name]
            lines.append(
                Levels(name, [c.lam for c in mine], [c.mean for c in mine], [c.std for c in mine])
            )
        return Figure(
            "variants",
            "σ_s on held-out images (mean and standard deviation over images) against the λ that "
            "is asked for, for selectors trained alike but for one idea. Dashed: the target σ_t.",
            [partial(plot_levels, lines=lines, target=self.sigma_t)],
            legend="upper left",
            height=3.8,
        )

    def table(self) -> Table:
        rows = [
            [
                Cell.of(one.variant),
                Cell(f"{one.lam:g}", one.lam),
                Cell(f"{one.mean:.4f}", one.mean),
                Cell(f"{one.std:.4f}", one.std),
                Cell.share(Share.of(one.outcomes.correct)),
                Cell(f"{np.floor(1e3 * acr) / 1e3:.3f}", acr),
            ]
            for one in self.chosen
            for acr in [average_certified_radius(one.outcomes.reach)]
        ]
        return Table(
            "variants",
            "Selectors trained alike but for one idea: σ_s on held-out images, and on test images "
            "the certified accuracy at r = 0 in % and the average radius, h unattacked. 95 % "
            "intervals over images.",
            ["selector", "λ", "mean σ_s", "sd of σ_s", "certified right", "ACR"],
            rows,
        )

    def claims(self) -> list[Claim]:
        readers = [self._reader(name) for name in (READING, REWARDED)]
        return [self._universal(), self._conditioning(), self._reduction(), *readers]

    def _find(self, variant: str, lam: float) -> Chosen | None:
        return next((c for c in self.chosen if (c.variant, c.lam) == (variant, lam)), None)

    def _universal(self) -> Claim:
        """One h for all λ against one h for each λ."""
        told, relative, gaps = [], [], []
        for one in self.chosen:
            reference = self._find(UNIVERSAL, one.lam)
            if one.variant.startswith("trained for") and reference is not None:
                gap = PairedDifference.of(reference.outcomes.correct, one.outcomes.correct)
                gaps.append(gap)
                relative.append(abs(reference.mean / one.mean - 1))
                told.append(
                    f"λ = {one.lam:g}: mean σ_s {reference.mean:.3f} against {one.mean:.3f}, "
                    f"accuracy {shown_difference(gap)} points"
                )
        same = all(r < 0.1 for r in relative) and all(g.interval().high > 0 for g in gaps)
        return Claim(
            "One selector trained with random λ serves every λ as one trained for it does",
            "§3.1, universal λ training",
            "; ".join(told) or "no λ in common",
            "untested" if not told else "held" if same else "partly",
            "same number of training steps; alike: mean σ_s within a tenth and no loss of "
            "accuracy beyond its interval",
            {"relative": relative},
        )

    def _conditioning(self) -> Claim:
        """How far λ moves σ_s with and without telling h."""
        ranges = {
            name: [one.mean for one in self.chosen if one.variant == name]
            for name in (UNIVERSAL, HIDDEN)
        }
        spans = {name: max(m) / min(m) for name, m in ranges.items() if m}
        told = "; ".join(
            f"{name}: " + ", ".join(f"{mean:.3f}" for mean in means)
            for name, means in ranges.items()
        )
        works = spans.get(UNIVERSAL, 1.0) > 1.05 and spans.get(HIDDEN, 1.0) < 1.01
        return Claim(
            "Telling h its λ makes the noise adjustable at test time without retraining",
            "§3.1, conditional meta learning",
            f"mean σ_s as λ grows: {told}",
            "held" if works else "not",
            "without λ as an input there is nothing to adjust",
            spans,
        )

    def _reduction(self) -> Claim:
        """What the factor d of the KL does."""
        mine = [one for one in self.chosen if one.variant == LITERAL and one.lam > 0]
        ratios = {f"{one.lam:g}": one.mean / self.sigma_t for one in mine}
        told = "; ".join(f"λ = {lam}: {100 * ratio:.0f} % of σ_t" for lam, ratio in ratios.items())
        forced = all(abs(ratio - 1) < 0.05 for ratio in ratios.values())
        return Claim(
            "With the KL as written, summed over 3072 dimensions, any λ > 0.01 forces σ_s = σ_t",
            "ours, on the KL term of the loss",
            f"mean σ_s: {told}",
            "untested" if not ratios else "held" if forced else "partly",
            "the paper's Table 2 has σ_s well below σ_t at λ = 0.1 and 0.2, so we take the mean "
            "over dimensions",
            ratios,
        )

    def _reader(self, variant: str) -> Claim:
        """A selector that reads f against the paper's, which sees the image alone."""
        told, gaps, numbers = [], [], {}
        for one in self.chosen:
            reference = self._find(UNIVERSAL, one.lam)
            if one.variant == variant and reference is not None:
                gap = MeanDifference((_radii(one) - _radii(reference)).tolist())
                gaps.append(gap)
                numbers[f"{one.lam:g}"] = gap.value
                told.append(
                    f"λ = {one.lam:g}: sd of σ_s {one.std:.3f} against "
                    f"{reference.std:.3f}, {shown_radius_gap(gap)}"
                )
        return Claim(
            f"A selector that {variant} certifies a larger average radius than the paper's h",
            "ours, on the network of h",
            "average radius, h unattacked: " + ("; ".join(told) or "not run"),
            verdict_of(gaps),
            "same number of training steps, but each of its samples costs a pass through f",
            numbers,
        )


def _radii(one: Chosen) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The radius of each image, 0 where wrong or abstaining."""
    found: np.ndarray[tuple[int], np.dtype[np.float64]] = np.maximum(one.outcomes.reach, 0)
    return found


ABLATION = Experiment(
    "ablation",
    "ours",
    "what each idea is worth: soundness, universal λ, conditioning, KL per dimension, reading f",
    {
        "cpu": AblationScale(**CPU, sigmas=(0.25,), epochs=6, images_per_epoch=1600),
        "paper": AblationScale(sigmas=(0.25,)),
    },
    {"cpu": "15 min after certified", "paper": "days on a GPU"},
    ablation,
    needs,
)
