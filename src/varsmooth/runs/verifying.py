"""Does a stored run follow from its evidence, and does its evidence repeat?"""

import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import fisher_exact, ks_2samp
from torch import Tensor

from varsmooth.cascade import CascadeSelector
from varsmooth.certificates import Certificate
from varsmooth.certification import certificate_ledger, certificate_method
from varsmooth.data import ImageDataset
from varsmooth.defaults import BATCH_SIZE
from varsmooth.errors import VarsmoothError, require
from varsmooth.processes import choose_device
from varsmooth.runs.building import build, stored_model
from varsmooth.runs.images import described, load_images
from varsmooth.runs.options import options_in
from varsmooth.runs.records import Row, Run, other_settings
from varsmooth.runs.runner import identity, labels_of
from varsmooth.sampling import Sampler
from varsmooth.selectors import MedianSelector
from varsmooth.smoothing import SmoothedClassifier

FALSE_ALARM = 1e-3
"""Probability that a faithful run fails `resample`, at most, over all its tests together."""


@dataclass
class Verification:
    """What was checked, and everything that is wrong; a faithful run has no problems."""

    rows: int = 0
    problems: list[str] = field(default_factory=list)
    resampled: int = 0
    p_values: dict[str, float] = field(default_factory=dict)

    @property
    def threshold(self) -> float:
        """A p-value below this is an alarm (Bonferroni over all tests)."""
        return FALSE_ALARM / max(len(self.p_values), 1)


def verify_run(
    folder: str | Path,
    resample: int = 0,
    model: str | None = None,
    trust: list[str] | None = None,
    seed: int | None = None,
    batch_size: int = BATCH_SIZE,
    device: str = "auto",
) -> Verification:
    """Check a run of `certify`: its model, its images, every row, and some rows once more.

    Every radius is derived again from its evidence, digit by digit, and the evidence must be what
    the settings ask for (numbers of draws, levels, α ledger, seed).
    resample: so many random images get fresh noise: at each level, the votes for the class,
    stored and fresh, are compared by Fisher's exact test, the samples of the selector by the
    Kolmogorov–Smirnov test. An alarm is a p-value below 0.001 / (number of tests), so a faithful
    run raises one with probability ≤ 0.001.
    model: where the run's model is now, if it was moved; a model that is code (module:factory)
    must be named here, because verifying a stranger's run must not start the stranger's code.
    trust: import paths of networks that the checkpoint may load.
    """
    run = Run.open(folder)
    verb = run.header["verb"]
    require(verb == "certify", f"{folder} is a run of {verb}; only certificates can be verified")
    config = run.header["config"]
    data, where = options_in(config)[1], choose_device(device)
    built = build(stored_model(config, model, trust), where)
    images = load_images(data, built)
    verification = Verification()
    now = identity(built.g) | {"dataset": described(images, data)}
    verification.problems += other_settings(run.header, run.header | now)
    if verification.problems:
        return verification  # another model or other images: nothing else would mean anything
    true = dict(zip(images.ids.tolist(), labels_of(images.batch(slice(None))), strict=True))
    rows = run.rows()
    for row in rows:
        verification.rows += 1
        wrong = list(_mistakes(run, built.g, row, true))
        verification.problems += [f"image {row.get('id')}: {text}" for text in wrong]
    if resample and not verification.problems:
        again = _resampled(run, built.g, images, rows, resample, seed, batch_size, where)
        verification.resampled, verification.p_values = again
        verification.problems += [
            f"{what}: p-value {p:.2g} is below {verification.threshold:.2g}"
            for what, p in verification.p_values.items()
            if p < verification.threshold
        ]
    return verification


def _mistakes(
    run: Run, g: SmoothedClassifier, row: Row, labels: dict[int, int | None]
) -> Iterator[str]:
    """What is wrong with one row."""
    config = run.header["config"]
    try:
        certificate = run.certificate(row)
        facts = {name: getattr(certificate, name) for name in _FACTS}
        again = Certificate.derive(
            certificate.method, certificate.ledger, certificate.votes, certificate.selector, **facts
        )
    except (KeyError, TypeError, ValueError, IndexError) as error:
        yield f"its evidence cannot be read ({error})"
        return
    for name in ("prediction", "radius", "guarantee"):
        if not row[name] == getattr(certificate, name) == getattr(again, name):
            yield f"{name} is {row[name]}, but its evidence gives {getattr(again, name)}"
    if row["id"] not in labels or row["label"] != labels[row["id"]]:
        yield f"label {row['label']} is not that of the data set"
    kind = certificate_method(g.selector, config["method"])
    ledger = certificate_ledger(
        g.selector,
        kind,
        config["alpha"],
        config["alpha_select"],
        config["band"],
        config["runner_up"],
    )
    expected: dict[str, Any] = {
        "method": (kind, certificate.method),
        "ledger": (ledger, certificate.ledger),
        "seed": (config["seed"], certificate.seed),
        "id": (row["id"], certificate.id),
        "sigma": (row["sigma"], certificate.sigma),
        "votes": (config["n"], _votes_a_level(certificate, config["n"])),
    } | _expected_of_selector(g, certificate, config)
    for name, (wanted, found) in expected.items():
        if wanted != found:
            yield f"{name} of its evidence should be {wanted}, not {found}"


_FACTS = ("stages", "sigma", "id", "seed", "settings", "fingerprints")


def _expected_of_selector(
    g: SmoothedClassifier, certificate: Certificate, config: dict[str, Any]
) -> dict[str, Any]:
    """What the evidence of a protected selector must look like: (wanted, found) by name."""
    evidence = certificate.selector
    visited = [level.sigma for level in certificate.votes]
    candidates = {level.candidate for level in certificate.votes}
    if isinstance(g.selector, CascadeSelector):
        stages = g.selector.stages
        return {
            "stages": (stages, certificate.stages),
            "levels": (list(stages.levels[: len(visited)]), visited),
            "sigma of the last stage": (visited[-1:], [certificate.sigma]),
            "classes": (1, len(candidates)),
        }
    if evidence is None:
        return {"levels": ([certificate.sigma], visited)}
    selector = g.selector
    assert isinstance(selector, MedianSelector)
    samples = np.asarray(evidence.samples)
    found: dict[str, Any] = {
        "selector samples": (config["n_select"], len(samples)),
        "order of the selector's samples": (True, bool((np.diff(samples) >= 0).all())),
        "sigma_m": (np.float32(selector.sigma_m), np.float32(evidence.sigma_m)),
        "clip": (selector.clip, evidence.clip),
        "distance": (config["distance"], evidence.distance),
    }
    if certificate.method == "paper":  # it must have looked at the levels that it names
        wanted = evidence.levels_between(certificate.ledger, config["every_index"])
        return found | {"levels": (wanted, visited)}
    grid = None if selector.grid is None else selector.grid.levels
    return found | {"grid": (grid, evidence.levels), "classes": (1, len(candidates))}


def _votes_a_level(certificate: Certificate, n: int) -> int:
    """Votes at every level; of a cascade at the last one, if earlier ones have no more."""
    counted = [level.n for level in certificate.votes] or [n]
    if certificate.method == "cascade" and max(counted) == counted[-1]:
        return counted[-1]
    return n if set(counted) == {n} else next(c for c in counted if c != n)


def _resampled(
    run: Run,
    g: SmoothedClassifier,
    images: ImageDataset,
    rows: list[Row],
    count: int,
    seed: int | None,
    batch_size: int,
    device: torch.device,
) -> tuple[int, dict[str, float]]:
    """How many images were repeated, and a p-value for everything that was compared."""
    seed = secrets.randbits(63) if seed is None else seed
    if seed == run.header["config"]["seed"]:
        raise VarsmoothError(f"seed {seed} is the run's own; fresh noise needs another")
    chosen = np.random.default_rng(seed).permutation(len(rows))[:count]
    place = {image: position for position, image in enumerate(images.ids.tolist())}
    p_values: dict[str, float] = {}
    for row in (rows[i] for i in sorted(chosen)):
        batch = images.batch([place[row["id"]]])
        noise = g.noise(1, seed, batch.ids)
        sampler = Sampler(g, batch.images.to(device), noise, batch_size)
        p_values |= _compared(sampler, run.certificate(row))
    return len(chosen), p_values


def _compared(sampler: Sampler, certificate: Certificate) -> dict[str, float]:
    """p-values of one image's evidence against fresh draws."""
    found = {}
    for level in certificate.votes:
        fresh: Tensor = sampler.counts([0], [level.sigma], level.n, "votes")[0]
        stored, again = level.counts[level.candidate], int(fresh[level.candidate])
        table = np.array([[stored, level.n - stored], [again, level.n - again]])
        found[f"image {certificate.id}, votes at {level.sigma:g}"] = float(fisher_exact(table)[1])
    if certificate.selector is not None:
        stored_samples = certificate.selector.samples
        (evidence,) = sampler.selector_evidence(len(stored_samples))
        test = ks_2samp(stored_samples, evidence.samples, method="asymp")
        found[f"image {certificate.id}, selector"] = float(test.pvalue)
    return found
