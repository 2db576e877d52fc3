"""Small run folders for the tests of reports."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.oracles import arguments, point
from varsmooth import SmoothedClassifier, certify
from varsmooth.evaluation.records import Row, Run


def header(name: str, verb: str = "certify", size: int = 4, **changes: Any) -> dict[str, Any]:
    return {
        "verb": verb,
        "name": name,
        "config": {"alpha": 1e-3, "lattice": False},
        "environment": {"torch": "2"},
        "fingerprints": {"classifier": "f", "selector": "h"},
        "dataset": {
            "name": "zoo",
            "split": "test",
            "subset": None,
            "size": size,
            "class_names": ["cat", "dog", "cow"],
        },
        "selector": {"selector": "fixed", "sigma": 0.25},
        **changes,
    }


def write(folder: Path, rows: Sequence[Row], **changes: Any) -> Path:
    """A run folder with these rows."""
    facts = {"name": folder.name, "size": len(rows), **changes}
    Run.create(folder, header(**facts)).append(rows)
    return folder


def certified(id: int, label: int | None, prediction: int, radius: float, **changes: Any) -> Row:
    """A row of certify, without evidence."""
    constant = {"guarantee": "sound", "sigma": 0.25, "samples": 1100, "selector_samples": 0}
    row = {"id": id, "label": label, "prediction": prediction, "radius": radius, **constant}
    return row | {"seconds": 0.5, "evidence": None} | changes


def attacked(id: int, label: int, eps: float, clean: int, prediction: int) -> Row:
    """A row of attack."""
    row = {"id": id, "label": label, "eps": eps, "clean_prediction": clean}
    votes = {"clean_counts": [90, 10], "counts": [60, 40]}
    levels = {"sigma_clean": 0.25, "sigma": 0.5 if prediction != label else 0.25}
    return {**row, "prediction": prediction, **levels, "norm": eps, **votes, "seconds": 0.1}


def predicted(id: int, label: int, prediction: int, sigma: float = 0.25) -> Row:
    """A row of predict."""
    answer = {"id": id, "label": label, "prediction": prediction, "sigma": sigma}
    return {**answer, "counts": [90, 10], "samples": 100, "seconds": 0.1}


def certify_into(
    folder: Path, g: SmoothedClassifier, pixels: Sequence[float], **settings: Any
) -> Run:
    """Real certificates of one-pixel images of class 0, as evaluation writes them."""
    rows = []
    for id, pixel in enumerate(pixels):
        (certificate,) = certify(g, point(pixel, 0.5), seed=0, ids=[id], **arguments(**settings))
        evidence = certificate.to_dict()
        del evidence["settings"]
        facts = {"guarantee": certificate.guarantee, "sigma": certificate.sigma}
        answer = certified(id, 0, certificate.prediction, certificate.radius)
        rows.append({**answer, **facts, "evidence": evidence})
    write(folder, rows, selector=g.selector.describe())
    return Run.open(folder)
