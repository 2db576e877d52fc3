"""A run's table for other programs (CSV, Parquet, tab-separated), at another α, and from others.

The tab-separated format is the one that the scripts of Cohen et al. and their successors write
and read: columns idx, label, predict, radius, correct, time, and σ of each image in a column
`sigma` where the method chooses it. An abstention is predict −1 with radius 0.0, or −2 in
multi-scale smoothing. Their scripts print radii with three significant digits, rounded to nearest,
so a radius may be printed above the certified one.
"""

import csv
import json
import math
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Literal

from scipy.stats import norm

from varsmooth._util.files import only_writer, shown, writing_file
from varsmooth._util.untrusted import check_regular
from varsmooth.defaults import ABSTAIN
from varsmooth.errors import check, wrap_errors
from varsmooth.evaluation.headers import HEADER, as_stored
from varsmooth.evaluation.options import ImportOptions
from varsmooth.evaluation.records import Row, Run, open_as_one
from varsmooth.evaluation.report.tables import literal
from varsmooth.rounding import rounded

ABSTENTIONS = (ABSTAIN, -2)
COLUMNS = ("idx", "label", "predict", "radius", "correct", "time")
_TIME = re.compile(r"(?:(\d+) days?, )?(\d+):(\d\d):(\d\d(?:\.\d+)?)")


def export(
    folder: Path,
    to: Literal["csv", "parquet", "tsv"],
    out: Path | None = None,
    parts: Sequence[Path] = (),
) -> Path:
    """Write one row per image (and ε) of a run into a file, by default beside its folder.

    `parts` are the other folders that its shards wrote. CSV and Parquet hold every column but the
    evidence, which stays in the run, with every digit.
    """
    run = open_as_one([folder, *parts])
    rows = run.rows()
    check(len(rows) > 0, f"run {run.header['name']} has no rows yet; let it finish an image first")
    out = out or beside(folder, f".{to}")
    if to == "tsv":
        _write_csv(_community_rows(run, rows), out, "\t")
    elif to == "csv":
        _write_csv([_columns(row) for row in rows], out)
    else:
        missing = "Parquet needs polars; install it with: pip install polars, or export to csv"
        with wrap_errors(ImportError, missing):
            import polars
        table = polars.DataFrame([_columns(row) for row in rows], infer_schema_length=None)
        table.write_parquet(out)
    return out


def beside(folder: Path, end: str) -> Path:
    """The path beside a folder: its name with a suffix."""
    folder = folder.resolve()
    return Path(shown(folder.with_name(folder.name + end)))


def _columns(row: Row) -> Row:
    """A row as it is exported: with the α of its ledger, and whether it is right."""
    flat = {key: value for key, value in row.items() if key != "evidence"}
    if row["label"] is not None:
        flat["correct"] = row["prediction"] == row["label"]
    if row.get("evidence"):
        flat["alpha"] = row["evidence"]["ledger"]["alpha"]
    return flat


def _write_csv(rows: Sequence[Row], out: Path, delimiter: str = ",") -> None:
    with writing_file(out), out.open("w", newline="", encoding="utf-8") as file:
        columns = dict.fromkeys(name for row in rows for name in row)  # some rows have more
        writer = csv.DictWriter(file, columns, delimiter=delimiter, lineterminator="\n")
        writer.writeheader()
        writer.writerows(
            {k: json.dumps(v) if isinstance(v, list | dict) else literal(v) for k, v in row.items()}
            for row in rows
        )


def _community_rows(run: Run, rows: Sequence[Row]) -> list[Row]:
    verb, name = run.header["verb"], run.header["name"]
    check(verb == "certify", f"the tab-separated format is for radii; {name} is a {verb} run")
    check(
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
    """A new run with the radii of the stored evidence at `alpha`; nothing is sampled.

    A level that was never visited counts as unknown, so the radii stay true: see
    `Certificate.recompute`. Choose α before looking at the results. The new run lies in `out`, by
    default beside the old one, with α in its name.
    """
    run = Run.open(folder)
    rows, name = run.certified_rows("recomputed"), run.header["name"]
    check(len(rows) > 0, f"run {name} has no rows yet; let it finish an image first")
    out = out or beside(folder, f"-alpha-{alpha:g}")
    changed = []
    for row in rows:
        again = run.certificate(row).recompute(alpha)
        evidence = {k: v for k, v in again.to_dict().items() if k in row["evidence"]}
        result = {"prediction": again.prediction, "radius": again.radius, "evidence": evidence}
        changed.append(row | result)
    before = run.header["config"]
    sampled = before.get("sampled_alpha", before["alpha"])  # which a replay needs
    config = before | {"alpha": alpha, "sampled_alpha": sampled, "recomputed_from": name}
    header = run.header | {"name": f"{name}, α = {alpha:g}", "config": config}
    return _write_new(out, header, changed)


def import_tsv(file: Path, out: Path | None = None, **settings: Any) -> Run:
    """A new run from a tab-separated file; it has no evidence.

    Args:
        file: The tab-separated file.
        out: The new folder, by default beside the file.
        settings: The fields of `ImportOptions`; sigma or guarantee is required.
    """
    options = ImportOptions(**settings)
    sigma, alpha, n = options.sigma, options.alpha, options.n
    plain = file.suffix.lower() in (".tsv", ".txt", ".csv")  # sigma_0.25 ends with a number
    out = out or (file.with_suffix("") if plain else file.with_name(f"{file.name}-run"))
    rows = _read(file, options.rounded)
    check(len({row["id"] for row in rows}) == len(rows), f"{file} has an idx twice")
    constant = {"guarantee": options.guarantee or "sound", "samples": n, "selector_samples": None}
    level = {} if sigma is None else {"sigma": sigma}
    rows = [{**row, **constant, "evidence": None, **level} for row in rows]
    if alpha is not None and n is not None:
        # With all n votes for one class the radius is σΦ⁻¹(α^{1/n}); no image can have more.
        slack = 1.0 if sigma is not None else 1.005  # σ of a column has three digits
        most = slack * float(norm.ppf(alpha ** (1 / n)))
        above = [row for row in rows if row["sigma"] and row["radius"] > row["sigma"] * most]
        check(
            not above,
            f"{len(above)} of {len(rows)} radii of {file} are above σΦ⁻¹(α^(1/n)), the largest "
            f"that alpha {alpha:g} and n {n} can give; state the alpha and n that were used",
        )
    fixed = {"selector": "fixed", "sigma": sigma}
    classes = 1 + max(max(row["label"], row["prediction"]) for row in rows)
    images = {"name": options.data, "split": options.split, "subset": None, "size": len(rows)}
    header = {
        "verb": "certify",
        "name": options.name or out.resolve().name,
        "config": {"alpha": alpha, "n": n, "imported": file.name, "rounded": options.rounded},
        "environment": {},
        "fingerprints": {},
        "dataset": images | {"class_names": [str(c) for c in range(classes)]},
        "selector": {"selector": "unknown"} if sigma is None else fixed,
    }
    return _write_new(out, header, rows)


def _write_new(out: Path, header: Mapping[str, Any], rows: Sequence[Row]) -> Run:
    """A new run with all its rows; a partial one that a killed command left is completed."""
    wanted = {row["id"]: as_stored(row) for row in rows}
    with only_writer(out):
        stored = {row["id"]: row for row in Run.open(out).rows()} if (out / HEADER).exists() else {}
        check(
            len(stored) < len(rows) and all(wanted.get(i) == row for i, row in stored.items()),
            f"{out} already holds a run; choose another --out",
        )
        run = Run.create(out, header)
        run.append(row for row in rows if row["id"] not in stored)
    return run


def seconds_of(text: str) -> float:
    """The time of a row: h:mm:ss with or without days and fraction, or plain seconds.

    Examples:
        >>> seconds_of("1 day, 0:00:01"), seconds_of("0:01:00.25"), seconds_of("2.5")
        (86401.0, 60.25, 2.5)
    """
    if (match := _TIME.fullmatch(text.strip())) is None:
        return float(text)
    days, hours, minutes, seconds = match.groups()
    return 86400 * int(days or 0) + 3600 * int(hours) + 60 * int(minutes) + float(seconds)


def lower_ends(printed: Sequence[Decimal]) -> list[float]:
    """The smallest numbers that round to the printed ones.

    A file prints a fixed number of decimals, or of significant digits without trailing zeros.

    Examples:
        >>> lower_ends([Decimal("0.123"), Decimal("0.5"), Decimal("1.25")])
        [0.1225, 0.4995, 1.245]
    """
    positive = [value for value in printed if value]
    exponents = {int(value.as_tuple().exponent) for value in positive}
    digits = max((len(value.as_tuple().digits) for value in positive), default=1)
    fixed = exponents.pop() if len(exponents) == 1 else None

    def lower_end(value: Decimal) -> float:
        last = value.adjusted() - (digits - 1) if fixed is None else fixed
        return float(max(Decimal(0), value - Decimal(5).scaleb(last - 1))) if value else 0.0

    return [lower_end(value) for value in printed]


def _read(file: Path, rounded: str) -> list[Row]:
    """The rows of a file; the first line that is not one is quoted."""
    unreadable = (OSError, UnicodeDecodeError)
    with wrap_errors(unreadable, lambda error: f"{file} cannot be read as text: {error}"):
        check_regular(file, "TEXT")
        lines = file.read_text(encoding="utf-8").rstrip().splitlines()
    columns = lines[0].split("\t") if lines else []
    missing = [column for column in COLUMNS if column not in columns]
    check(not missing, f"{file} has no column {', '.join(missing)}; is it tab-separated?")
    check(len(lines) > 1, f"{file} has no rows")
    rows, invalid = [], (ValueError, InvalidOperation)
    for number, line in enumerate(lines[1:], start=2):
        quoted = line if len(line) <= 80 else line[:80] + "…"
        with wrap_errors(invalid, f"line {number} of {file} is not a result: {quoted!r}"):
            rows.append(_row(dict(zip(columns, line.split("\t"), strict=True))))
    printed = [row["radius"] for row in rows]
    radii = lower_ends(printed) if rounded == "nearest" else map(float, printed)
    return [row | {"radius": radius} for row, radius in zip(rows, radii, strict=True)]


def _row(cells: dict[str, str]) -> Row:
    """One line as a row with the radius as it is printed, or ValueError."""
    prediction, label, radius = int(cells["predict"]), int(cells["label"]), cells["radius"]
    abstains = prediction in ABSTENTIONS
    level = float(cells["sigma"]) if "sigma" in cells else None
    possible = label >= 0 and (abstains or prediction >= 0) and 0 <= float(radius) < math.inf
    possible &= not (abstains and float(radius)) and (level is None or 0 < level < math.inf)
    if not possible or int(cells["correct"]) != (prediction == label):
        raise ValueError
    return {
        "id": int(cells["idx"]),
        "label": label,
        "prediction": ABSTAIN if abstains else prediction,
        "radius": Decimal(radius),
        "sigma": level,
        "seconds": seconds_of(cells["time"]),
    }
