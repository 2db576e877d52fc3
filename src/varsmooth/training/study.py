"""The paper's workflow on images of your own: train f and h, sweep λ, certify, attack, report.

Every part resumes, so the same call continues a study that was interrupted.
"""

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal

from varsmooth.data import load_source
from varsmooth.data.catalog import unseen_split
from varsmooth.data.source import Source
from varsmooth.errors import VarsmoothError, check, wrap_errors
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
from varsmooth.training.state import ANEW
from varsmooth.training.tasks import train_classifier, train_selector

GRID_SIZE = 5
"""Noise levels of g_v*'s grid, geometric from σ/2 to 2σ."""


def run_study(options: StudyOptions) -> Path:
    """Do what is not there yet; returns the page of the report.

    Models in `out`: f, h (scheme of g_v*) and hv (scheme of g_v). Runs in `out/runs`: g at σ/2, σ
    and 2σ; g_v and g_v* at every λ, certified by every method that exists for them; each of them
    under attack.
    """
    f = options.out / "f"
    if (f / "config.json").exists():
        sigma = describe(f).sigma_a
        same = f"{options.out} holds a study at σ = {sigma:g}; choose another --out"
        check(sigma == options.sigma, same)
    source = {entry.name: getattr(options, entry.name) for entry in fields(Source)}
    with wrap_errors(VarsmoothError, lambda error: str(error).replace(ANEW, "")):  # it resumes
        _train(options, source)
    split = unseen_split(options)  # that neither f nor h has seen
    count = len(load_source(options, split))
    step = max(1, count // options.images)
    subset = f"0:{min(count, step * options.images)}:{step}"
    images = DataOptions(**source, split=split, subset=subset)
    attack = AttackOptions(eps=options.sigma, steps=options.steps, n=options.n, seed=options.seed)
    runs, attacked = [], {}
    for name, model, certify in _steps(options):
        runs.append(certify_dataset(model, images, certify, _run(options, "certify", name)))
        attacked[name.partition(",")[0]] = model
    for name, model in attacked.items():
        runs.append(attack_dataset(model, images, attack, _run(options, "attack", name)))
    return write_report(open_runs([run.folder for run in runs]), options.out / "report")


def _train(options: StudyOptions, source: dict[str, Any]) -> None:
    """f at σ, and h for it in both schemes."""
    out = options.out
    common: dict[str, Any] = {
        **source,
        "seed": options.seed,
        "device": options.device,
        "held_out_images": options.images,
        "flip": options.flip,
    }
    sizes: dict[str, Any] = {"epochs": options.epochs, "n": options.n}
    f = ClassifierConfig(out=out / "f", sigma=options.sigma, **sizes, **common)
    train_classifier(f, short=True)
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
        train_selector(h, short=True)


def _steps(options: StudyOptions) -> Iterator[tuple[str, ModelOptions, CertifyOptions]]:
    """Every smoothed classifier, by name, with every certificate that it can have."""
    sigma, votes = options.sigma, options.out / "votes"
    f, h, hv = (str(options.out / name) for name in ("f", "h", "hv"))
    counts: dict[str, Any] = {"n": options.n, "seed": options.seed, "vote_cache": votes}
    sound = CertifyOptions(**counts)
    paper = CertifyOptions(method="paper", distance=sigma, **counts)
    conditional = CertifyOptions(method="conditional", **counts)
    for level in (sigma / 2, sigma, 2 * sigma):
        yield f"g σ={level:g}", ModelOptions(f, selector="fixed", sigma=level), sound
    for lam in options.lams:
        yield f"g_v λ={lam:g}", ModelOptions(hv, selector="learned", lam=lam), conditional
        clip = sigma / 2, 2 * sigma
        star = ModelOptions(h, selector="median", lam=lam, clip=clip, levels=GRID_SIZE)
        yield f"g_v* λ={lam:g}", star, sound
        yield f"g_v* λ={lam:g}, the paper's certificate", star, paper


def _run(options: StudyOptions, verb: str, name: str) -> RunOptions:
    words = name.replace("*", "-star")
    folder = f"{verb}-" + "".join(c if c.isalnum() or c in ".-" else "-" for c in words)
    out = options.out / "runs" / folder.replace("λ", "lam").replace("σ", "sigma")
    return RunOptions(out=out, name=name, device=options.device)
