"""A run's table for other programs: CSV, Parquet, and the tab-separated file of the community.

The tab-separated format is the one that the scripts of Cohen et al. and their successors write
and read: columns idx, label, predict, radius, correct, time; an abstention is predict −1 with
radius 0.0.
"""

import csv
import json
import re
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, get_args

from varsmooth.certificates import ABSTAIN, Guarantee
from varsmooth.errors import VarsmoothError, require
from varsmooth.rounding import rounded
from varsmooth.runs.records import Row, Run

Format = Literal["csv", "parquet", "tsv"]

TSV_COLUMNS = ("idx", "label", "predict", "radius", "correct", "time")
_DIGITS = 6
_TIME = re.compile(r"(?:(\d+) days?, )?(\d+):(\d\d):(\d\d(?:\.\d+)?)")


def export(folder: Path, to: Format, out: Path | None = None) -> Path:
    """Write one row per image (and ε) of a run into a file, by default beside its folder.

    CSV and Parquet hold every column but the evidence, which stays in the run, with every digit.
    """
    run = Run.open(folder)
    rows = run.rows()
    require(
        len(rows) > 0, f"run {run.header['name']} has no rows yet; let it finish an image first"
    )
    folder = folder.resolve()
    out = out or folder.with_name(f"{folder.name}.{to}")
    writers: dict[Format, Callable[[Run, Sequence[Row], Path], None]] = {
        "csv": _write_csv,
        "parquet": _write_parquet,
        "tsv": _write_tsv,
    }
    writers[to](run, rows, out)
    return out


def _columns(row: Row) -> Row:
    """A row as it is exported: with the α of its ledger, and whether it is right."""
    flat = {key: value for key, value in row.items() if key != "evidence"}
    if row["label"] is not None:
        flat["correct"] = row["prediction"] == row["label"]
    if row.get("evidence"):
        flat["alpha"] = row["evidence"]["ledger"]["alpha"]
    return flat


def _write_csv(run: Run, rows: Sequence[Row], out: Path) -> None:
    flat = [_columns(row) for row in rows]
    with out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(flat[0]), lineterminator="\n")
        writer.writeheader()
        for row in flat:
            writer.writerow(
                {k: json.dumps(v) if isinstance(v, list) else v for k, v in row.items()}
            )


def _write_parquet(run: Run, rows: Sequence[Row], out: Path) -> None:
    flat = [_columns(row) for row in rows]
    if find_spec("polars"):
        import polars

        polars.DataFrame(flat, infer_schema_length=None).write_parquet(out)
    elif find_spec("pyarrow"):
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(flat), out)
    else:
        raise VarsmoothError(
            "Parquet needs polars or pyarrow; install one with: "
            "pip install 'varsmooth[parquet]', or export to csv"
        )


def _write_tsv(run: Run, rows: Sequence[Row], out: Path) -> None:
    verb, name = run.header["verb"], run.header["name"]
    require(verb == "certify", f"the tab-separated format is for radii; {name} is a {verb} run")
    require(
        all(row["label"] is not None for row in rows),
        f"the tab-separated format needs labels, and run {name} has images without; export to csv",
    )
    lines = ["\t".join(TSV_COLUMNS)]
    for row in rows:
        right = int(row["prediction"] == row["label"])
        radius = "0.0" if row["prediction"] == ABSTAIN else rounded(row["radius"], _DIGITS)
        cells = [row["id"], row["label"], row["prediction"], radius, right]
        lines.append("\t".join(str(cell) for cell in [*cells, clock(row["seconds"] or 0.0)]))
    out.write_text("\n".join(lines) + "\n", encoding="utf-8")


def clock(seconds: float) -> str:
    """Seconds as h:mm:ss.ffffff.

    >>> clock(3725.5)
    '1:02:05.500000'
    """
    microseconds = round(seconds * 1e6)
    minutes, rest = divmod(microseconds, 60_000_000)
    return f"{minutes // 60}:{minutes % 60:02}:{rest // 1_000_000:02}.{rest % 1_000_000:06}"


def seconds_of(text: str) -> float:
    """The inverse: with or without days and fraction, or plain seconds.

    >>> seconds_of("1 day, 0:00:01"), seconds_of("0:01:00.25"), seconds_of("2.5")
    (86401.0, 60.25, 2.5)
    """
    if (found := _TIME.fullmatch(text.strip())) is None:
        return float(text)
    days, hours, minutes, seconds = found.groups()
    return 86400 * int(days or 0) + 3600 * int(hours) + 60 * int(minutes) + float(seconds)


def import_tsv(
    file: Path,
    out: Path,
    *,
    sigma: float | None = None,
    guarantee: Guarantee | None = None,
    alpha: float | None = None,
    name: str | None = None,
    dataset: str = "imported",
    split: str = "test",
) -> Run:
    """A run folder from a tab-separated file; it has no evidence.

    What its radii mean must be said: `sigma` for one fixed noise level, which is sound, or the
    guarantee itself. With `dataset` and `split` those of other runs it is compared with them
    image by image, idx being the id.
    """
    require(
        guarantee is not None or sigma is not None,
        "say what the radii mean: --sigma for one fixed noise level, or --guarantee "
        + "|".join(get_args(Guarantee)),
    )
    require(sigma is None or sigma > 0, f"sigma must be positive, not {sigma}")
    require(alpha is None or 0 < alpha < 1, f"alpha must lie between 0 and 1, not {alpha}")
    word: Guarantee = guarantee or "sound"
    rows = [
        {**row, "guarantee": word, "sigma": sigma, "samples": None, "selector_samples": None}
        | {"seconds": seconds, "evidence": None}
        for row, seconds in _read_tsv(file)
    ]
    require(len({row["id"] for row in rows}) == len(rows), f"{file} has an idx twice")
    classes = 1 + max(max(row["label"], row["prediction"]) for row in rows)
    require(not (out / "run.json").exists(), f"{out} is a run already; choose another --out")
    run = Run.create(
        out,
        {
            "verb": "certify",
            "name": name or out.resolve().name,
            "config": {"alpha": alpha, "imported": file.name},
            "environment": {},
            "fingerprints": {},
            "dataset": {
                "name": dataset,
                "split": split,
                "subset": None,
                "size": len(rows),
                "class_names": [str(c) for c in range(classes)],
            },
            "selector": {"selector": "unknown"}
            if sigma is None
            else {"selector": "fixed", "sigma": sigma},
        },
    )
    run.append(rows)
    return run


def _read_tsv(file: Path) -> list[tuple[dict[str, Any], float]]:
    """The rows of a file, each with its seconds; a line that makes no sense is named."""
    lines = file.read_text(encoding="utf-8").splitlines()
    columns = lines[0].split("\t") if lines else []
    missing = [column for column in TSV_COLUMNS if column not in columns]
    require(not missing, f"{file} has no column {', '.join(missing)}; is it tab-separated?")
    require(len(lines) > 1, f"{file} has no rows")
    rows = []
    for number, line in enumerate(lines[1:], start=2):
        try:
            cells = dict(zip(columns, line.split("\t"), strict=True))
            row = {
                "id": int(cells["idx"]),
                "label": int(cells["label"]),
                "prediction": int(cells["predict"]),
                "radius": float(cells["radius"]),
            }
            seconds = seconds_of(cells["time"])
            right = row["prediction"] == row["label"] != ABSTAIN
            possible = 0 <= row["radius"] < float("inf") and row["label"] >= 0
            if row["prediction"] == ABSTAIN:
                possible &= row["radius"] == 0
            if not possible or int(cells["correct"]) != right:
                raise ValueError
        except ValueError:
            raise VarsmoothError(f"line {number} of {file} makes no sense: {line!r}") from None
        rows.append((row, seconds))
    return rows


def recompute(folder: Path, alpha: float, out: Path | None = None) -> Run:
    """A new run with the radii that the stored evidence gives at `alpha`; nothing is sampled.

    A level that was never visited counts as unknown, so the radii stay true: see
    `Certificate.recompute`. Choose α before looking at the results, as always.
    out: by default beside the run, with α in its name.
    """
    run = Run.open(folder)
    name, verb = run.header["name"], run.header["verb"]
    require(verb == "certify", f"only certificates depend on alpha; {name} is a {verb} run")
    rows = run.rows()
    require(len(rows) > 0, f"run {name} has no rows yet; let it finish an image first")
    require(
        all(row.get("evidence") for row in rows),
        f"run {name} was imported without evidence, so its radii cannot be recomputed",
    )
    folder = folder.resolve()
    out = out or folder.with_name(f"{folder.name}-alpha-{alpha:g}")
    require(not (out / "run.json").exists(), f"{out} is a run already; choose another --out")
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
