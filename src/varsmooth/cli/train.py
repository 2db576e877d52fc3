"""`varsmooth train`: a preset, and any option of its configuration as an override.

The options are the fields of the configuration, dotted where they are nested, so they are read
from it and not listed here.
"""

import inspect
from collections.abc import Sequence
from typing import Any

from varsmooth.cli.parser import WrongUsage


def classifier(preset: str | None = None) -> None:
    """Train a classifier under noise; see varsmooth train --help for every option."""
    train(["classifier", *([preset] if preset else [])])


def selector(preset: str | None = None) -> None:
    """Train a selector for a classifier; see varsmooth train --help for every option."""
    train(["selector", *([preset] if preset else [])])


def train(words: Sequence[str]) -> None:
    """Train as `[kind, preset, --option, value, ...]` says, and tell where the model is."""
    from varsmooth.training.configuration import nearest, overrides_from_arguments, read_config

    if not words or {"-h", "--help"} & set(words):
        print(usage())
        return
    kind, *rest = words
    kinds = _kinds()
    if kind not in kinds:
        raise WrongUsage(f"say what to train: {' or '.join(kinds)}{nearest(kind, [*kinds])}")
    preset = rest.pop(0) if rest and not rest[0].startswith("--") else None
    config_type, run = kinds[kind]
    folder = run(read_config(config_type, preset, overrides_from_arguments(rest)))
    print(f"the finished {kind} is in {folder}")


def usage() -> str:
    """What can be said on the command line."""
    from varsmooth.training.configuration import TrainingConfig, preset_names

    lines = [
        "usage: varsmooth train classifier|selector [PRESET] [--option VALUE ...]",
        "",
        "Train a classifier f under Gaussian noise, or a selector h for a trained classifier.",
        "A preset is one of those below or a YAML file of yours; options override it. The same",
        "command continues an interrupted run to the same weights.",
        "",
        "examples:",
        "  varsmooth train classifier cpu/f-0.25",
        "  varsmooth train selector cpu/h-0.25",
        "  varsmooth train classifier --sigma 0.25 --dataset my_photos/ --output runs/mine",
        "",
        "presets: " + " ".join(preset_names()),
    ]
    for config in (TrainingConfig, *(config for config, _ in _kinds().values())):
        about, _, options = (inspect.getdoc(config) or "").partition("\n\nArgs:\n")
        lines += ["", about, *(_as_option(line) for line in options.split("\n"))]
    return "\n".join(lines)


def _as_option(line: str) -> str:
    """A line of a docstring as help: a field's name is spelled as an option."""
    name, colon, text = line.strip().partition(": ")
    starts = line.startswith("    ") and colon and name.isidentifier()
    return f"  --{name.replace('_', '-')}: {text}" if starts else line


def _kinds() -> dict[str, tuple[type[Any], Any]]:
    from varsmooth import training

    return {
        "classifier": (training.ClassifierConfig, training.train_classifier),
        "selector": (training.SelectorConfig, training.train_selector),
    }
