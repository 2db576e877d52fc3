"""`python -m reproduce`: the paper's figures and tables, one command each."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reproduce.cascade import CASCADE
from reproduce.certified import CERTIFIED, CLEAN, PERCENTILES, SELECTOR_BOUNDS, TRADEOFF
from reproduce.committed import (
    FINISHED,
    result_in,
    results_in,
    run_experiment,
    write_again,
    write_finished,
)
from reproduce.harness import Context, Experiment, variant_of
from reproduce.readings import READINGS
from reproduce.robustness import (
    CLIPPING,
    MATCHED,
    STRONG_ATTACK,
    UNIVERSAL,
    UNIVERSAL_EXTENDED,
    WEAK_ATTACK,
)
from reproduce.scales import shown, sizes_in_use
from varsmooth.cli import exit_code
from varsmooth.cli.parser import WrongUsage
from varsmooth.errors import check
from varsmooth.evaluation.report.figures import MISSING, have_matplotlib
from varsmooth.models.descriptions import released_names

EXPERIMENTS: dict[str, Experiment[Any]] = {
    experiment.name: experiment
    for experiment in (
        *(TRADEOFF, PERCENTILES, SELECTOR_BOUNDS, CERTIFIED, CLEAN, WEAK_ATTACK, STRONG_ATTACK),
        *(CLIPPING, UNIVERSAL, UNIVERSAL_EXTENDED, MATCHED, READINGS, CASCADE),
    )
}
"""By name, in the order of the paper."""

VARIANTS = sorted({variant_of(name) for name in released_names()} - {""})
"""The released selectors that are not of the paper's kind."""

EXAMPLES = """\
examples:
  python -m reproduce list
  python -m reproduce tradeoff --out results/mine/tradeoff
  python -m reproduce certified --sigmas 0.25 --out results/mine/certified
  python -m reproduce certified --scale paper --models runs/paper --device cuda \\
      --out results/full/certified
  python -m reproduce pages --results results/mine

Rerun the same command to resume. `python -m reproduce NAME --help` lists the sizes of NAME."""


def build_parser() -> argparse.ArgumentParser:
    """list, pages, and every experiment with its sizes as options."""
    parser = argparse.ArgumentParser(
        "python -m reproduce",
        description="Reproduce a figure or table of the paper.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    verbs = parser.add_subparsers(dest="name", required=True, metavar="NAME")
    verbs.add_parser("list", help="show what each experiment needs and how long it takes")
    pages = verbs.add_parser(
        "pages", help="redraw the figures, tables and pages of results from their records"
    )
    pages.add_argument("--results", type=Path, default=Path("results"), help="(default: results)")
    pages.add_argument("--only", metavar="NAME", help="of this experiment alone")
    for name, experiment in EXPERIMENTS.items():
        text = f"{experiment.paper}: {experiment.title}"
        verb = verbs.add_parser(name, help=text, description=text, allow_abbrev=False)
        _add_places(verb)
        sizes = verb.add_argument_group("sizes (defaults of --scale cpu)")
        scale = experiment.scales["cpu"]
        for entry in sizes_in_use(scale):
            sizes.add_argument(
                f"--{entry.name.replace('_', '-')}",
                dest=f"size {entry.name}",
                metavar=entry.name.upper(),
                help=f"{entry.metadata['what']} (default: {shown(getattr(scale, entry.name))})",
            )
    return parser


def _add_places(verb: argparse.ArgumentParser) -> None:
    add = verb.add_argument
    scales = (
        "cpu: released models, a subset of the images; paper: all images and the paper's sizes "
        "where it states them, training what is missing"
    )
    add("--scale", choices=("cpu", "paper"), default="cpu", help=scales)
    add("--out", type=Path, help="folder of the result (default: results/[VARIANT/]NAME)")
    add("--models", type=Path, help="folder of trained models (default: the released ones)")
    add("--variant", help=f"other released selectors: {', '.join(VARIANTS)}")
    add("--store", type=Path, default=Path("runs/experiments"), help="shared runs and votes")
    add("--root", type=Path, help="the data directory")
    add("--batch-size", type=int, default=128, help="noisy images per forward pass")
    add("--device", choices=("auto", "cpu", "cuda"), default="auto", help="where to compute")


def sizes_of(options: argparse.Namespace) -> dict[str, str]:
    """The sizes that the command line sets, by field."""
    return {
        key.removeprefix("size "): text
        for key, text in vars(options).items()
        if key.startswith("size ") and text is not None
    }


def run(options: argparse.Namespace) -> None:
    """Run an experiment and write its figures, tables, records and page."""
    full = options.scale == "paper"
    if options.variant not in (None, *VARIANTS):
        raise WrongUsage(f"--variant must be {', '.join(VARIANTS)}, not {options.variant!r}")
    if options.variant is not None and (full or options.models):
        raise WrongUsage("--variant chooses among the released models; leave out --models, --scale")
    context = Context(
        store=options.store,
        models=options.models or (Path("runs/paper") if full else None),
        variant=options.variant,
        train="paper" if full else None,
        root=options.root,
        batch_size=options.batch_size,
        device=options.device,
    )
    results = Path("results") if options.out is None else options.out.parent
    out = options.out or results / (options.variant or "") / options.name
    experiment = EXPERIMENTS[options.name]
    run_experiment(experiment, options.scale, sizes_of(options), context, out, results)
    print(f"figures, tables and records are in {out}; read {out / 'README.md'}")


def show_experiments() -> None:
    """What each experiment reproduces, what it needs, how long it takes."""
    for name, experiment in EXPERIMENTS.items():
        needs = experiment.needs(experiment.scales["cpu"])
        models = [need.released + (" (pair)" if need.selector else "") for need in needs]
        print(f"{name:<20} {experiment.paper}: {experiment.title}")
        print(f"{'':<20} needs {', '.join(models) or 'no model'}")
        print(f"{'':<20} cpu: {experiment.time['cpu']}; paper: {experiment.time['paper']}")


def write_pages(results: Path, only: str | None = None) -> None:
    """Redraw every result from its records, if all of them can be."""
    check(have_matplotlib(), MISSING)
    there = [(name, at) for name, at in results_in(results) if only in (None, name)]
    check(
        bool(there),
        f"{results} is not a folder of results; a result is in RESULTS/NAME, run: "
        "python -m reproduce NAME",
    )
    known = [(EXPERIMENTS[name], at) for name, at in there if name in EXPERIMENTS]
    results_of = [result_in(*one) for one in known]
    for (experiment, folder), result in zip(known, results_of, strict=True):
        write_again(experiment, folder, result, results)
    for name, folder in there:
        if name in FINISHED:
            write_finished(folder, results)
    print(f"written: {len(there)} pages in {results}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""

    def command() -> None:
        options, others = build_parser().parse_known_args(argv)
        if others:
            raise WrongUsage(
                f"{options.name} has no {others[0]}; see: python -m reproduce {options.name} --help"
            )
        if options.name == "list":
            show_experiments()
        elif options.name == "pages":
            write_pages(options.results, options.only)
        else:
            run(options)

    return exit_code(command)


if __name__ == "__main__":
    sys.exit(main())
