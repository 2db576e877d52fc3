"""Training from the command line.

    python -m varsmooth.training classifier cpu/f-0.25 --epochs 3 --network_options.norm batch
    python -m varsmooth.training selector cpu/h-0.25 --output runs/mine

The word after the kind names a preset or a YAML file of your own; options override it.
"""

import sys
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from varsmooth.errors import VarsmoothError, require
from varsmooth.training.classifier import train_classifier
from varsmooth.training.configuration import (
    ClassifierConfig,
    SelectorConfig,
    nearest,
    overrides_from_arguments,
    preset_names,
    read_config,
)
from varsmooth.training.selector import train_selector

KINDS: dict[str, tuple[type[Any], Any]] = {
    "classifier": (ClassifierConfig, train_classifier),
    "selector": (SelectorConfig, train_selector),
}


def train(arguments: Sequence[str]) -> None:
    """Train as `[kind, preset, --option, value, ...]` says, and tell where the model is."""
    kind, *rest = arguments or [""]
    require(kind in KINDS, f"say what to train: {' or '.join(KINDS)}{nearest(kind, [*KINDS])}")
    preset = rest.pop(0) if rest and not rest[0].startswith("--") else None
    config_type, run = KINDS[kind]
    folder = run(read_config(config_type, preset, overrides_from_arguments(rest)))
    print(f"the finished {kind} is in {folder}")


def usage() -> str:
    """What can be said on the command line."""
    options = {
        kind: " ".join(f"--{option.name}" for option in fields(config))
        for kind, (config, _) in KINDS.items()
    }
    lines = [__doc__ or "", "presets: " + " ".join(preset_names())]
    lines += [f"options of a {kind}: {listed}" for kind, listed in options.items()]
    return "\n\n".join(line.strip() for line in lines)


def main(arguments: Sequence[str]) -> int:
    """Exit code 0 for done, 1 for failed with a sentence."""
    if not arguments or {"-h", "--help"} & set(arguments):
        print(usage())
        return 0
    try:
        train(arguments)
    except VarsmoothError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
