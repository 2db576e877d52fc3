"""Does one row of a run follow from its evidence, and is the evidence what the settings ask for?"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from varsmooth.cascade import Stages
from varsmooth.certificates import Certificate
from varsmooth.evaluation.records import Row, Run
from varsmooth.evidence import Ledger

_UNREADABLE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def mistakes(
    run: Run, row: Row, labels: dict[int, int | None] | None, classes: int
) -> Iterator[str]:
    """What is wrong with one row of a run of `certify`.

    Args:
        run: The run, whose header says what the evidence must look like.
        row: One of its rows, with evidence.
        labels: The label of every image, if the images are known.
        classes: How many classes the votes are for.
    """
    certificate = run.certificate(row)
    for level in certificate.votes:
        if len(level.counts) != classes:
            yield f"its votes at {level.sigma} are for {len(level.counts)} classes, not {classes}"
    often = Counter(level.sigma for level in certificate.votes)
    yield from (f"level {sigma} occurs {n} times" for sigma, n in often.items() if n > 1)
    again = certificate.derive_again()
    try:
        expected = _expected(run.header, row, certificate)
    except _UNREADABLE as error:
        yield f"the settings of the run cannot be read ({error!r})"
        return
    for name in ("prediction", "radius", "guarantee"):
        if not row[name] == getattr(certificate, name) == getattr(again, name):
            yield f"{name} is {row[name]}, but its evidence gives {getattr(again, name)}"
    if labels is not None and row["label"] != labels.get(row["id"]):
        yield f"label {row['label']} is not that of the data set"
    for name, (wanted, seen) in expected.items():
        if wanted != seen:
            yield f"{name} of its evidence should be {wanted}, not {seen}"


def _expected(header: Mapping[str, Any], row: Row, certificate: Certificate) -> dict[str, Any]:
    """What the evidence must be by the settings of the run: (wanted, found) by name."""
    config, about = header["config"], header["selector"]
    method = {"fixed": "fixed", "cascade": "cascade"}.get(about["selector"], config["method"])
    deployed = about.get("n", 0) if config["band"] else 0
    spent = (config["alpha"], config["alpha_select"], deployed, config["runner_up"])
    n_max = config.get("n_max")
    counted = max((level.n for level in certificate.votes), default=0)
    return {
        "method": (method, certificate.method),
        "ledger": (Ledger.of(method, *spent, n_max is not None), certificate.ledger),
        "seed": (config["seed"], certificate.seed),
        "id": (row["id"], certificate.id),
        "sigma": (row["sigma"], certificate.sigma),
        "samples": (certificate.samples, row.get("samples")),
        "selection draws": (True, _draws_fit(certificate, config["n0"])),
        "votes": (config["n"], _votes_a_level(certificate, config["n"]))
        if n_max is None
        else (min(counted, n_max), counted),
        **_expected_of_selector(about, certificate, config),
    }


def _draws_fit(certificate: Certificate, n0: int) -> bool:
    """Whether the samples that are not votes can be selection draws: n0 for each choice."""
    draws = certificate.samples - sum(level.n for level in certificate.votes)
    if certificate.ledger.anytime:  # also votes after the look that proved the most
        return draws >= n0
    once = certificate.method in ("fixed", "sound", "conditional")
    fewest = 1 if once else len(certificate.votes)
    most = fewest if certificate.stages is None else len(certificate.stages)
    return draws in [n0 * k for k in range(fewest, most + 1)]


def _votes_a_level(certificate: Certificate, n: int) -> int:
    """Votes at every level; of a cascade at the last one, if earlier ones have no more."""
    counted = [level.n for level in certificate.votes] or [n]
    if certificate.method == "cascade" and max(counted) == counted[-1]:
        return counted[-1]
    return n if set(counted) == {n} else next(c for c in counted if c != n)


def _expected_of_selector(
    about: Mapping[str, Any], certificate: Certificate, config: Mapping[str, Any]
) -> dict[str, Any]:
    """What the levels and the samples of the selector must look like: (wanted, found) by name."""
    evidence, sigma = certificate.selector, certificate.sigma
    visited = [level.sigma for level in certificate.votes]
    candidates = {level.candidate for level in certificate.votes}
    if about["selector"] == "cascade":
        stages = Stages(tuple(about["levels"]), tuple(about["thresholds"]))
        last = len(visited)
        if certificate.ledger.anytime and sigma in stages.levels:  # the last stage votes first
            last = stages.levels.index(sigma) + 1
        return {
            "stages": (stages, certificate.stages),
            "levels": (list(stages.levels[last - len(visited) : last]), visited),
            "level of the last stage": (visited[-1:], [sigma]),
            "candidates": (1, len(candidates)),
        }
    if evidence is None:
        named = about["sigma"] if about["selector"] == "fixed" else sigma
        return {"levels": ([sigma], visited), "fixed level": (np.float32(named), np.float32(sigma))}
    samples = np.asarray(evidence.samples)
    clip, grid = about["clip"], about["levels"]
    found: dict[str, Any] = {
        "selector samples": (config["n_select"], len(samples)),
        "order of the selector's samples": (True, bool((np.diff(samples) >= 0).all())),
        "sigma_m": (np.float32(about["sigma_m"]), np.float32(evidence.sigma_m)),
        "clip": (clip and tuple(clip), evidence.clip),
        "distance": (config["distance"], evidence.distance),
    }
    if certificate.method == "paper":  # it must have looked at the levels that it names
        wanted = evidence.levels_between(certificate.ledger, config["every_index"])
        median = evidence.median_level
        return found | {"levels": (wanted, visited), "median level": (median, sigma)}
    return found | {
        "grid": (grid and tuple(grid), evidence.levels),
        "levels": (set(), {*visited, sigma} - set(grid)),
        "candidates": (1, len(candidates)),
    }
