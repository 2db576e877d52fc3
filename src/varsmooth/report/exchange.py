"""A run's table for other programs (CSV, Parquet, tab-separated), and at another α.

The tab-separated format is the one that the scripts of Cohen et al. and their successors write
and read: columns idx, label, predict, radius, correct, time; an abstention is predict −1 with
radius 0.0.
"""

import csv
import json
from collections.abc import Sequence
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from varsmooth.defaults import ABSTAIN
from varsmooth.errors import require
from varsmooth.files import shown
from varsmooth.rounding import rounded
from varsmooth.runs.records import HEADER, Row, Run

Format = Literal["csv", "parquet", "tsv"]


def export(folder: Path, to: Format, out: Path | None = None) -> Path:
    """Write one row per image (and ε) of a run into a file, by default beside its folder.

    CSV and Parquet hold every column but the evidence, which stays in the run, with every digit.
    """
    run, rows = _opened(folder)
    out = out or beside(folder, f".{to}")
    if to == "tsv":
        _write_csv(_community_rows(run, rows), out, "\t")
    elif to == "csv":
        _write_csv([_columns(row) for row in rows], out)
    else:
        require(
            find_spec("polars") is not None,
            "Parquet needs polars; install it with: pip install polars, or export to csv",
        )
        import polars

        table = polars.DataFrame([_columns(row) for row in rows], infer_schema_length=None)
        table.write_parquet(out)
    return out


def beside(folder: Path, end: str) -> Path:
    """What is made of a run lies beside it: its name with another end."""
    folder = folder.resolve()
    return Path(shown(folder.with_name(folder.name + end)))


def check_new(out: Path) -> None:
    """A run made of another must not be added to one that is there."""
    require(not (out / HEADER).exists(), f"{out} is a run already; choose another --out")


def _opened(folder: Path) -> tuple[Run, list[Row]]:
    run = Run.open(folder)
    rows, name = run.rows(), run.header["name"]
    require(len(rows) > 0, f"run {name} has no rows yet; let it finish an image first")
    return run, rows


def _columns(row: Row) -> Row:
    """A row as it is exported: with the α of its ledger, and whether it is right."""
    flat = {key: value for key, value in row.items() if key != "evidence"}
    if row["label"] is not None:
        flat["correct"] = row["prediction"] == row["label"]
    if row.get("evidence"):
        flat["alpha"] = row["evidence"]["ledger"]["alpha"]
    return flat


def _write_csv(rows: Sequence[Row], out: Path, delimiter: str = ",") -> None:
    with out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter, lineterminator="\n")
        writer.writeheader()
        writer.writerows(
            {k: json.dumps(v) if isinstance(v, list) else v for k, v in row.items()} for row in rows
        )


def _community_rows(run: Run, rows: Sequence[Row]) -> list[Row]:
    verb, name = run.header["verb"], run.header["name"]
    require(verb == "certify", f"the tab-separated format is for radii; {name} is a {verb} run")
    require(
        all(row["label"] is not None for row in rows),
        f"the tab-separated format needs labels, and run {name} has images without; export to csv",
    )
    return [
        {
            "idx": row["id"],
            "label": row["label"],
            "predict": row["prediction"],
            "radius": "0.0" if row["prediction"] == ABSTAIN else rounded(row["radius"], digits=6),
            "correct": int(row["prediction"] == row["label"]),
            "time": timedelta(seconds=row.get("seconds") or 0.0),
        }
        for row in rows
    ]


def recompute(folder: Path, alpha: float, out: Path | None = None) -> Run:
    """A new run with the radii that the stored evidence gives at `alpha`; nothing is sampled.

    A level that was never visited counts as unknown, so the radii stay true: see
    `Certificate.recompute`. Choose α before looking at the results. The new run lies in `out`, by
    default beside the old one, with α in its name.
    """
    run, rows = _opened(folder)
    name, verb = run.header["name"], run.header["verb"]
    require(verb == "certify", f"only certificates depend on alpha; {name} is a {verb} run")
    require(
        all(row.get("evidence") for row in rows),
        f"run {name} was imported without evidence, so its radii cannot be recomputed",
    )
    out = out or beside(folder, f"-alpha-{alpha:g}")
    check_new(out)
    changed = []
    for row in rows:
        again = run.certificate(row).recompute(alpha)
        evidence = {k: v for k, v in again.to_dict().items() if k in row["evidence"]}
        result = {"prediction": again.prediction, "radius": again.radius, "evidence": evidence}
        changed.append(row | result)
    config = run.header["config"] | {"alpha": alpha, "recomputed_from": name}
    header = run.header | {"name": f"{name}, α = {alpha:g}", "config": config}
    new = Run.create(out, header)
    new.append(changed)
    return new
