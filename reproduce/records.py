"""Records of runs, one line per run and image: what figures, tables and claims are made of."""

import csv
import gzip
import io
import sys
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from varsmooth._util.files import replace_file
from varsmooth.errors import VarsmoothError
from varsmooth.evaluation.records import Row
from varsmooth.evaluation.report.outcomes import Outcomes

RECORDS, UNFINISHED, CONFIG = "records.csv.gz", "unfinished.csv.gz", "config.json"
"""Of a result, and of an experiment that still runs."""


COLUMNS = {
    "id": "ids",
    "label": "labels",
    "prediction": "predictions",
    "radius": "radii",
    "sigma": "sigmas",
    "eps": "eps",
    "clean_prediction": "clean_predictions",
    "clean_sigma": "clean_sigmas",
}
"""Of the records, and of `Outcomes`."""


def write_records(path: Path, runs: Mapping[str, Outcomes]) -> None:
    """One line per run and image, every digit."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["run", "key", "guarantee", *COLUMNS])
    for run in runs.values():
        about = [run.name, run.header.get("key", ""), run.guarantee or ""]
        for row in zip(*(getattr(run, name).tolist() for name in COLUMNS.values()), strict=True):
            cells = ("" if cell != cell else cell for cell in row)  # NaN: not a column of this run
            writer.writerow([*about, *cells])
    replace_file(path, gzip.compress(text.getvalue().encode(), mtime=0))


def outcomes_of(
    verb: str, rows: Sequence[Row], name: str = "", data: str = "", split: str = "test", **more: Any
) -> Outcomes:
    """Rows as a run. more: entries of its header."""
    dataset = {"name": data, "split": split, "size": len(rows)}
    header = {"name": name, "verb": verb, "config": {}, "dataset": dataset}
    return Outcomes.of(header | more, rows)


def read_records(path: Path) -> dict[str, Outcomes]:
    """Compact records as runs by name."""
    try:
        lines: dict[str, list[dict[str, str]]] = {}
        for line in csv.DictReader(io.StringIO(gzip.decompress(path.read_bytes()).decode())):
            lines.setdefault(line["run"], []).append(line)
        return {name: _outcomes(name, each) for name, each in lines.items()}
    except (OSError, EOFError, LookupError, TypeError, ValueError, zlib.error) as error:
        raise VarsmoothError(f"{path} is damaged ({error}); restore it or delete it") from error


def earlier_runs(results: Path) -> dict[str, Outcomes]:
    """The runs of every result in a folder, by key; runs without a key stand for none."""
    places = [f"{depth}{name}" for name in (RECORDS, UNFINISHED) for depth in ("*/", "*/*/")]
    earlier: dict[str, Outcomes] = {}
    for path in (path for place in places for path in sorted(results.glob(place))):
        if path.name == RECORDS and not (path.parent / CONFIG).is_file():
            continue  # of no experiment
        try:
            runs = read_records(path)
        except VarsmoothError as error:
            print(f"warning: {error}; its runs are not used", file=sys.stderr)
            continue
        earlier |= {key: run for run in runs.values() if (key := run.header["key"])}
    return earlier


def _outcomes(name: str, lines: Sequence[dict[str, str]]) -> Outcomes:
    kind = {key: bool(lines[0][key]) for key in ("guarantee", "eps")}
    verb = "certify" if kind["guarantee"] else "attack" if kind["eps"] else "predict"
    rows = [
        {
            "id": int(line["id"]),
            "label": int(line["label"]),
            "prediction": int(line["prediction"]),
            "clean_prediction": int(line["clean_prediction"] or line["prediction"]),
            "guarantee": line["guarantee"],
            **{key: float(line[key]) for key in ("radius", "sigma", "eps") if line[key]},
            "sigma_clean": float(line["clean_sigma"]) if line["clean_sigma"] else None,
        }
        for line in lines
    ]
    return outcomes_of(verb, rows, name, key=lines[0].get("key", ""))
