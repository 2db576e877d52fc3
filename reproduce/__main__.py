"""`python -m reproduce`: the paper's figures and tables, one command each."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reproduce.ablation import ABLATION
from reproduce.attainable import ATTAINABLE
from reproduce.cascade_attack import CASCADE_ATTACK
from reproduce.cascade_gate import CASCADE_GATE
from reproduce.cascade_rules import CASCADE
from reproduce.certified import CERTIFIED, TRADEOFF
from reproduce.clipping import CLIPPING
from reproduce.committed import has_claims, result_in, results_in, run_experiment, write_again
from reproduce.conditioning import CONDITIONING
from reproduce.harness import Context, Experiment, shown, sizes_in_use, variant_of
from reproduce.matched import MATCHED
from reproduce.memorisation import LONG_RUN, MEMORISATION
from reproduce.pages import PAGE, is_page_of_others, write_pages
from reproduce.robustness import ATTACK_CONVERGENCE, STRONG_ATTACK, WEAK_ATTACK
from reproduce.selection import CLEAN, PERCENTILES, SELECTOR_BOUNDS
from reproduce.universal import UNIVERSAL, UNIVERSAL_EXTENDED
from varsmooth.cli import exit_code
from varsmooth.cli.parser import WrongUsage
from varsmooth.errors import check
from varsmooth.evaluation.report.figures import MISSING, have_matplotlib
from varsmooth.models.descriptions import released_names

EXPERIMENTS: dict[str, Experiment[Any]] = {
    experiment.name: experiment
    for experiment in (
        TRADEOFF,
        PERCENTILES,
        SELECTOR_BOUNDS,
        CERTIFIED,
        ATTAINABLE,
        MEMORISATION,
        LONG_RUN,
        CLEAN,
        ATTACK_CONVERGENCE,
        WEAK_ATTACK,
        STRONG_ATTACK,
        CLIPPING,
        UNIVERSAL,
        UNIVERSAL_EXTENDED,
        MATCHED,
        CONDITIONING,
        ABLATION,
        CASCADE,
        CASCADE_ATTACK,
        CASCADE_GATE,
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
  python -m reproduce claims --results results/mine

Rerun the same command to resume. `python -m reproduce NAME --help` lists the sizes of NAME."""


def build_parser() -> argparse.ArgumentParser:
    """list, claims, and every experiment with its sizes as options."""
    parser = argparse.ArgumentParser(
        "python -m reproduce",
        description="Reproduce a figure or table of the paper.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    verbs = parser.add_subparsers(dest="name", required=True, metavar="NAME")
    verbs.add_parser("list", help="show what each experiment needs and how long it takes")
    claims = verbs.add_parser(
        "claims", help="judge the committed results again and write the page of all claims"
    )
    claims.add_argument("--results", type=Path, default=Path("results"), help="(default: results)")
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
    add(
        "--scale",
        choices=("cpu", "paper"),
        default="cpu",
        help="cpu: released models, a subset of the images; paper: all images and the paper's "
        "sizes where it states them, training what is missing",
    )
    add("--out", type=Path, help="folder of the result (default: results/[VARIANT/]NAME)")
    add("--models", type=Path, help="folder of trained models (default: the released ones)")
    add("--variant", help=f"other released selectors: {', '.join(VARIANTS)}")
    add("--store", type=Path, default=Path("runs/experiments"), help="shared runs and votes")
    add("--root", type=Path, help="the data directory")
    add("--batch-size", type=int, default=128, help="noisy images per forward pass")
    add("--device", choices=("auto", "cpu", "cuda"), default="auto", help="where to compute")


def sizes_of(asked: argparse.Namespace) -> dict[str, str]:
    """The sizes that were given, by field."""
    return {
        key.removeprefix("size "): text
        for key, text in vars(asked).items()
        if key.startswith("size ") and text is not None
    }


def run(asked: argparse.Namespace) -> None:
    """Run an experiment and write its figures, tables, records and claims."""
    full = asked.scale == "paper"
    if asked.variant not in (None, *VARIANTS):
        raise WrongUsage(f"--variant must be {', '.join(VARIANTS)}, not {asked.variant!r}")
    if asked.variant is not None and (full or asked.models):
        raise WrongUsage("--variant chooses among the released models; leave out --models, --scale")
    context = Context(
        store=asked.store,
        models=asked.models or (Path("runs/paper") if full else None),
        variant=asked.variant,
        train="paper" if full else None,
        root=asked.root,
        batch_size=asked.batch_size,
        device=asked.device,
    )
    results = Path("results") if asked.out is None else asked.out.parent
    out = asked.out or results / (asked.variant or "") / asked.name
    experiment = EXPERIMENTS[asked.name]
    result = run_experiment(experiment, asked.scale, sizes_of(asked), context, out, results)
    for claim in result.claims:
        print(f"{claim.verdict}: {claim.statement} ({claim.source})\n  {claim.measured}")
    where = "" if out.parent == Path("results") else f" --results {out.parent}"
    print(f"figures, tables and claims are in {out}; next: python -m reproduce claims{where}")


def show_experiments() -> None:
    """What each experiment reproduces, what it needs, how long it takes."""
    for name, experiment in EXPERIMENTS.items():
        needs = experiment.needs(experiment.scales["cpu"])
        models = [need.released + (" (pair)" if need.selector else "") for need in needs]
        print(f"{name:<20} {experiment.paper}: {experiment.title}")
        print(f"{'':<20} needs {', '.join(models) or 'no model'}")
        print(f"{'':<20} cpu: {experiment.time['cpu']}; paper: {experiment.time['paper']}")


def write_claims(results: Path) -> None:
    """Judge every result again from its records, and write the pages, if all can be judged."""
    check(have_matplotlib(), MISSING)
    there = results_in(results)
    found = [(each, at) for name, each in EXPERIMENTS.items() for of, at in there if of == name]
    check(
        bool(found),
        f"{results} is not a folder of results; a result is in RESULTS/NAME, run: "
        "python -m reproduce NAME",
    )
    page = results / PAGE
    check(
        not is_page_of_others(page),
        f"{page} is not a page of claims; keep results in a folder of their own, with --out "
        "RESULTS/NAME",
    )
    judged = [(each, at, result_in(each, at)) for each, at in found if has_claims(at)]
    for experiment, folder, result in judged:
        write_again(experiment, folder, result)
    print(f"written: {write_pages(results, found)}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""

    def command() -> None:
        asked, others = build_parser().parse_known_args(argv)
        if others:
            raise WrongUsage(
                f"{asked.name} has no {others[0]}; see: python -m reproduce {asked.name} --help"
            )
        if asked.name == "list":
            show_experiments()
        elif asked.name == "claims":
            write_claims(asked.results)
        else:
            run(asked)

    return exit_code(command)


if __name__ == "__main__":
    sys.exit(main())
