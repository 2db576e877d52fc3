"""The paper's workflow on images of your own: train f and h, sweep λ, certify, attack, report.

Every part resumes, so the same call continues a study that was interrupted.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from varsmooth.data import load_source
from varsmooth.data.catalog import unseen_split
from varsmooth.data.source import Source
from varsmooth.errors import check
from varsmooth.evaluation.attack import attack_dataset
from varsmooth.evaluation.certify import certify_dataset
from varsmooth.evaluation.options import (
    AttackOptions,
    CertifyOptions,
    DataOptions,
    ModelOptions,
    RunOptions,
)
from varsmooth.evaluation.report import open_runs, write_report
from varsmooth.models.descriptions import describe
from varsmooth.training.configuration import ClassifierConfig, SelectorConfig, StudyOptions
from varsmooth.training.tasks import train_classifier, train_selector

LEVELS = 5
"""Noise levels of g_v*'s grid, geometric from σ/2 to 2σ."""


@dataclass(frozen=True)
class Step:
    """One run of the study."""

    name: str
    model: ModelOptions
    certify: CertifyOptions


@dataclass(frozen=True)
class Study:
    """What a study consists of, and where it stands.

    Models in `out`: f, h (scheme of g_v*) and hv (scheme of g_v). Runs in `out/runs`: g at σ/2, σ
    and 2σ; g_v and g_v* at every λ, certified by every method that exists for them; each of them
    under attack.
    """

    options: StudyOptions

    def run(self) -> Path:
        """Do what is not there yet; returns the page of the report."""
        self.train()
        runs = [*self.certified(), *self.attacked()]
        return write_report(open_runs(runs), self.options.out / "report")

    def train(self) -> None:
        """f at σ, and h for it in both schemes."""
        options, out = self.options, self.options.out
        common: dict[str, Any] = {
            **self.source,
            "seed": options.seed,
            "device": options.device,
            "held_out_images": options.images,
            "flip": options.flip,
        }
        f = ClassifierConfig(
            out=out / "f", sigma=options.sigma, epochs=options.epochs, n=options.n, **common
        )
        train_classifier(f)
        schemes: dict[str, Literal["gv", "gvstar"]] = {"h": "gvstar", "hv": "gv"}
        for name, scheme in schemes.items():
            h = SelectorConfig(
                out=out / name,
                classifier=str(out / "f"),
                scheme=scheme,
                epochs=options.selector_epochs,
                images_per_epoch=min(options.selector_images, len(load_source(f, "train"))),
                **common,
            )
            train_selector(h)

    @property
    def source(self) -> dict[str, Any]:
        """Where the images come from."""
        return {entry.name: getattr(self.options, entry.name) for entry in fields(Source)}

    @cached_property
    def images(self) -> DataOptions:
        """Some images of the split that neither f nor h has seen, evenly from all."""
        split = unseen_split(self.options)
        count = len(load_source(self.options, split))
        step = max(1, count // self.options.images)
        subset = f"0:{min(count, step * self.options.images)}:{step}"
        return DataOptions(**self.source, split=split, subset=subset)

    def steps(self) -> Iterator[Step]:
        """Every smoothed classifier with every certificate that it can have."""
        options, sigma, out = self.options, self.options.sigma, self.options.out
        counts: dict[str, Any] = {"n": options.n, "seed": options.seed, "vote_cache": out / "votes"}
        sound = CertifyOptions(**counts)
        paper = CertifyOptions(method="paper", distance=sigma, **counts)
        conditional = CertifyOptions(method="conditional", **counts)
        for level in (sigma / 2, sigma, 2 * sigma):
            model = ModelOptions(model=str(out / "f"), selector="fixed", sigma=level)
            yield Step(f"g σ={level:g}", model, sound)
        for lam in options.lams:
            unprotected = ModelOptions(model=str(out / "hv"), selector="learned", lam=lam)
            yield Step(f"g_v λ={lam:g}", unprotected, conditional)
            star = ModelOptions(
                model=str(out / "h"),
                selector="median",
                lam=lam,
                clip=(sigma / 2, 2 * sigma),
                levels=LEVELS,
            )
            yield Step(f"g_v* λ={lam:g}", star, sound)
            yield Step(f"g_v* λ={lam:g}, the paper's certificate", star, paper)

    def certified(self) -> list[Path]:
        """The runs of certificates."""
        folders = []
        for step in self.steps():
            place = self._place("certify", step.name)
            certify_dataset(step.model, self.images, step.certify, place)
            folders.append(place.out)
        return folders

    def attacked(self) -> list[Path]:
        """The runs of attacks, one for each smoothed classifier."""
        options = self.options
        attack = AttackOptions(
            eps=options.sigma, steps=options.steps, n=options.n, seed=options.seed
        )
        folders = []
        for name, step in {step.name.partition(",")[0]: step for step in self.steps()}.items():
            place = self._place("attack", name)
            attack_dataset(step.model, self.images, attack, place)
            folders.append(place.out)
        return folders

    def _place(self, verb: str, name: str) -> RunOptions:
        words = name.replace("*", "-star")
        folder = f"{verb}-" + "".join(c if c.isalnum() or c in ".-" else "-" for c in words)
        out = self.options.out / "runs" / folder.replace("λ", "lam").replace("σ", "sigma")
        return RunOptions(out=out, name=name, device=self.options.device)


def check_study(options: StudyOptions) -> None:
    """The folder is new, or holds this study."""
    model = options.out / "f"
    if (model / "config.json").exists():
        sigma = describe(model).sigma_a
        check(
            sigma == options.sigma,
            f"{options.out} holds a study at σ = {sigma:g}; choose another --out",
        )
