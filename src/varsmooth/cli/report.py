"""`varsmooth report`: records to tables, figures and pages, and to other programs' formats."""

import sys
from pathlib import Path
from typing import Literal

from varsmooth._util.files import check_unused, make_folder
from varsmooth.cli.feedback import announce, command, conclude, say
from varsmooth.cli.parser import WrongUsage
from varsmooth.errors import check
from varsmooth.evaluation.options import ImportOptions
from varsmooth.evaluation.records import Run
from varsmooth.types import Probability, Weight


def make(
    runs: list[str],
    /,
    *,
    out: Path | None = None,
    radii: list[Weight] | None = None,
    envelope: str | None = None,
    common: bool = False,
) -> None:
    """Make one page with figures and tables from certify, predict and attack runs.

    Runs that share images are compared image by image, each with the best single-σ run
    (certify --sigma) or, if there is none, with the first run. Folders with shards of one run
    are taken as that run.

    examples:
      varsmooth report runs/dual
      varsmooth report runs/dual runs/fixed-0.25 --radii 0,0.25,0.5 --out comparison
      varsmooth report runs/dual --envelope "fixed σ=runs/fixed-*"

    Args:
        runs: folders of runs
        out: the folder of the report (default: report/NAME, named after the runs); its files are
            replaced
        radii: radii at which headline and tables show certified accuracy (default: round numbers)
        envelope: "label=run1,run2,...": the best of a sweep at each radius as one curve, chosen
            with hindsight; a run may be a pattern; separate several envelopes by ;
        common: keep only the images that all certify runs share
    """
    if not runs:
        raise WrongUsage("name at least one run: varsmooth report RUN...")
    if twice := [run for i, run in enumerate(runs) if run in runs[:i]]:
        raise WrongUsage(f"{twice[0]} is given twice; name each run once")
    for run in runs:
        Run.open(run)
    names = list(map(_report_name, runs))
    if len(names) > 3:
        names = [*names[:2], f"{len(names) - 2}-more"]
    folder = out or Path("report", "-and-".join(names))
    if not (folder / "report.html").exists():
        check_unused(folder)
    announce(f"report on {', '.join(runs)}", out=folder)
    from varsmooth.evaluation.report import Envelope, open_runs, write_report
    from varsmooth.evaluation.report.figures import MISSING, have_matplotlib
    from varsmooth.evaluation.report.outcomes import on_common_images
    from varsmooth.evaluation.report.summary_text import cautions, verdict

    if not have_matplotlib():
        say(f"note: {MISSING}", sys.stderr)
    opened = open_runs([Path(run) for run in runs])
    envelopes = [Envelope.parse(text) for text in envelope.split(";")] if envelope else []
    if common:
        opened, envelopes = on_common_images(opened, envelopes)
    page = write_report(opened, folder, envelopes, radii)
    for caution in cautions(opened, envelopes):
        say(f"note: {caution}", sys.stderr)
    exported = runs if len(opened) == 1 else runs[:1]  # several folders: the parts of one run
    conclude([*verdict(opened, radii), f"wrote {page}"], command("report export", *exported))


def _report_name(run: str) -> str:
    """The part of a report's name that names a run: its path from here, without `runs`.

    Runs of the same name in different folders get reports of their own.
    """
    path, here = Path(run).resolve(), Path.cwd()
    parts = path.relative_to(here).parts if path.is_relative_to(here) else path.parts[-2:]
    return "-".join(parts[1:] if len(parts) > 1 and parts[0] == "runs" else parts) or path.name


def export(
    runs: list[str], /, *, to: Literal["csv", "parquet", "tsv"] = "csv", out: Path | None = None
) -> None:
    """Write the table of a run for other programs, one row per image.

    csv and parquet keep every digit and omit the evidence. tsv is the file that
    Cohen's scripts read: idx, label, predict, radius (rounded down), correct, time.

    examples:
      varsmooth report export runs/dual --to csv
      varsmooth report export runs/dual --to tsv --out dual.tsv
      varsmooth report export runs/x-1 runs/x-2 runs/x-3 --out x.csv

    Args:
        runs: the folder of a run, or the folders that its shards wrote
        to: the format
        out: the file (default: beside the first folder, with its name); an existing one is replaced
    """
    if not runs:
        raise WrongUsage("name a run: varsmooth report export RUN")
    for folder in runs:
        Run.open(folder)
    if out is not None:
        make_folder(out.parent)
    from varsmooth.evaluation.report import export
    from varsmooth.evaluation.report.exchange import beside

    first, *parts = map(Path, runs)
    out = out or beside(first, f".{to}")
    replaced = ", in place of the file that was there" if out.exists() else ""
    say(f"wrote {export(first, to, out, parts)}{replaced}")


def import_tsv(file: Path, /, *, out: Path | None = None, options: ImportOptions) -> None:
    """Turn a tab-separated file from other scripts into a run, to compare with your own.

    Columns: idx, label, predict, radius, correct, time, and sigma where each image has its own.
    The run has no evidence, so it can be reported but not verified or recomputed.

    examples:
      varsmooth report import-tsv cohen.tsv --out runs/cohen --sigma 0.25 --alpha 0.001 --n 100000
      varsmooth report import-tsv dual.tsv --guarantee conditional --data cifar10

    Args:
        file: the tab-separated file
        out: the folder of the new run (default: beside the file)
    """
    check(file.is_file(), f"there is no file {file}")
    from varsmooth.evaluation.report import import_tsv

    made = import_tsv(file, out, **vars(options))
    size = made.header["dataset"]["size"]
    conclude([f"{size} images in {made.folder}"], command("report", made.folder))


def recompute(run: Path, /, *, alpha: Probability, out: Path | None = None) -> None:
    """Compute the radii of a run at another alpha from its evidence, without sampling.

    Noise levels that were not visited count as unknown, so the radii stay valid.

    examples:
      varsmooth report recompute runs/dual --alpha 0.01
      varsmooth report recompute runs/dual --alpha 1e-4 --out runs/strict

    Args:
        run: the folder of a certify run
        alpha: the failure probability allowed per image
        out: the folder of the new run (default: beside the run, with alpha in its name)
    """
    Run.open(run)
    from varsmooth.evaluation.report import recompute
    from varsmooth.evaluation.report.summary_text import next_command

    made = recompute(run, alpha, out)
    rows = made.rows()
    conclude([f"{len(rows)} radii at alpha {alpha:g} in {made.folder}"], next_command(made, rows))
