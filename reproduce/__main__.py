"""`python -m reproduce`: the paper's figures and tables, one command each."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from varsmooth.cli import exit_code
from varsmooth.cli.parser import Group, WrongUsage, call


def run(
    words: list[str],
    scale: Literal["cpu", "paper"] = "cpu",
    out: Path | None = None,
    sigmas: list[float] | float | None = None,
    models: Path | None = None,
    variant: str | None = None,
    store: Path = Path("runs/experiments"),
    root: Path | None = None,
    batch_size: int = 128,
    device: Literal["auto", "cpu", "cuda"] = "auto",
) -> None:
    """Run an experiment and write its figures, tables, records and claims.

    All that is computed is kept in the store, as ordinary runs and votes: interrupted, the same
    command continues, and experiments share what they have in common. Any size of the scale can
    be set as key=value.

    examples:
      python -m reproduce tradeoff
      python -m reproduce certified --sigmas 0.25
      python -m reproduce clean images=500 lams=0,0.2 --out results/clean-500
      python -m reproduce certified --scale paper --models runs/paper --device cuda

    Args:
        words: the name of an experiment, then sizes as key=value
        scale: cpu: released models and a subset of the images; paper: the paper's sizes, training
            what is missing
        out: the folder of the results (default: results/NAME, or results/VARIANT/NAME)
        sigmas: only the models of these σ_a
        models: a folder of trained models (default: the released ones; paper: runs/paper)
        variant: use other released selectors than the paper's: confidence for those that read f
        store: where runs and votes are kept between experiments
        root: the data directory (default: $VARSMOOTH_DATA, else the platform's usual place)
        batch_size: noisy images per forward pass
        device: where to compute
    """
    from reproduce.catalogue import find_experiment
    from reproduce.context import Context
    from reproduce.running import run_experiment

    if not words:
        raise WrongUsage("name an experiment; `python -m reproduce list` shows them")
    name, *sizes = words
    chosen = [sigmas] if isinstance(sigmas, float) else sigmas
    if chosen:
        sizes.append("sigmas=" + ",".join(f"{sigma:g}" for sigma in chosen))
    full = scale == "paper"
    if variant is not None and (full or models is not None):
        raise WrongUsage("--variant chooses among the released models; leave out --models, --scale")
    context = Context(
        store=store,
        models=models or (Path("runs/paper") if full else None),
        variant=variant,
        train="paper" if full else None,
        root=root,
        batch_size=batch_size,
        device=device,
    )
    folder = out or Path("results") / (variant or "") / name
    result = run_experiment(find_experiment(name), scale, sizes, context, folder)
    for claim in result.claims:
        print(f"{claim.verdict}: {claim.statement} ({claim.source})\n  {claim.measured}")
    print(f"figures, tables, records and claims are in {folder}")


def list_() -> None:
    """Show every experiment: what it reproduces, what it needs, how long it takes."""
    from reproduce.catalogue import every_experiment

    for experiment in every_experiment():
        needs = experiment.needs(experiment.scales["cpu"])
        names = [need.released + (" (pair)" if need.selector else "") for need in needs]
        print(f"{experiment.name:<20} {experiment.paper}: {experiment.title}")
        print(f"{'':<20} needs {', '.join(names) or 'no model'}")
        print(f"{'':<20} cpu: {experiment.time['cpu']}; paper: {experiment.time['paper']}")


def claims(results: Path = Path("results")) -> None:
    """Write the page of all results, with the table of claims on top.

    Args:
        results: the folder that holds one folder for each experiment
    """
    from reproduce.claims import write_page

    print(f"written: {write_page(results)}")


VERBS = Group(
    "Reproduce a figure or table of the paper: python -m reproduce NAME",
    {"run": run, "list": list_, "claims": claims},
    default="run",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = ["reproduce", *(sys.argv[1:] if argv is None else argv)]
    return exit_code(
        lambda: call({"reproduce": VERBS}, words, prog="python -m", description=VERBS.help)
    )


if __name__ == "__main__":
    sys.exit(main())
