"""Check one row of a run: it follows from its evidence, which is what the settings ask for."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from varsmooth.certificates import Certificate
from varsmooth.evaluation.records import Row, Run
from varsmooth.evidence import Ledger
from varsmooth.methods import METHODS, Method
from varsmooth.noise import scoped_seed

_UNREADABLE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def audit_row(
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
    again = certificate.rederive()
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
    """What the evidence must be by the settings of the run: (wanted, stored) by name."""
    config, about = header["config"], header["selector"]
    evidence = certificate.evidence
    kinds = {name for name, method in METHODS.items() if config["method"] in method.kinds}
    method = METHODS[certificate.method]
    n_max = config.get("n_max")
    counted = max((level.n for level in certificate.votes), default=0)
    return {
        "method": (True, certificate.method in kinds),
        "ledger": (_ledger(method, config, about, certificate.ledger), certificate.ledger),
        "seed": (scoped_seed(config["seed"], header.get("noise_scope", "")), certificate.seed),
        "id": (row["id"], certificate.id),
        "sigma": (row["sigma"], certificate.sigma),
        "samples": (certificate.samples, row.get("samples")),
        "selection draws": (True, _draws_fit(method, certificate, config)),
        "votes": (True, method.votes_fit(evidence, config["n"]))
        if n_max is None
        else (min(counted, n_max), counted),
        **method.audit(header, certificate),
    }


def _ledger(
    method: Method, config: Mapping[str, Any], about: Mapping[str, Any], stored: Ledger
) -> Ledger:
    """How the run divides α; the form of the bound is the selection draws' choice, as stored."""
    deployed = method.deployed_draws(about) if config["band"] else 0
    ledger = method.ledger(config["alpha"], config["alpha_select"], deployed)
    anytime = config.get("n_max") is not None
    runner_up = stored.runner_up and config.get("bound") != "cohen"
    return replace(ledger, runner_up=runner_up, anytime=anytime)


def _draws_fit(method: Method, certificate: Certificate, config: Mapping[str, Any]) -> bool:
    """Whether the samples that are not votes can be selection draws: n0 for each choice."""
    n0, n_max = config["n0"], config.get("n_max")
    draws = certificate.samples - sum(level.n for level in certificate.votes)
    if n_max is not None:  # also votes after the look that proved the most, and at other levels
        levels = len(certificate.settings.get("levels") or [0])
        return bool(n0 <= draws and certificate.samples <= levels * (n0 + n_max))
    return draws in [n0 * k for k in method.selection_rounds(certificate.evidence)]
