"""The command line: every verb is a small typed function, its docstring is its help.

A verb imports what it needs when it runs, so that `--help` is quick. Exit codes: 0 done, 1 failed
with an error message, 2 wrong usage, 3 `verify` could not check everything, 130 interrupted, 141
output closed by its reader.
"""

import os
import sys
from collections.abc import Callable, Sequence

from varsmooth.cli import adopt, app, data, demo, evaluate, models, report, study, train, tune
from varsmooth.cli.feedback import say
from varsmooth.cli.parser import Group, Verbs, WrongUsage, as_typed, parse
from varsmooth.errors import VarsmoothError

VERBS: Verbs = {
    "data": Group(
        "Get, list and describe data sets.",
        {"fetch": data.fetch, "list": data.list_, "info": data.info},
    ),
    "models": Group(
        "List the released models, or show the cards of some: varsmooth models NAME...",
        {"show": models.show, "export": models.export},
        default="show",
    ),
    "adopt": adopt.adopt,
    "train": Group(
        "Train a classifier, or a selector for it: varsmooth train classifier cpu/f-0.25",
        {"classifier": train.classifier, "selector": train.selector, "presets": train.presets},
    ),
    "tune": tune.tune,
    "measure": tune.measure,
    "predict": evaluate.predict,
    "certify": evaluate.certify,
    "attack": evaluate.attack,
    "verify": evaluate.verify,
    "report": Group(
        "Make a page with tables and figures from runs: varsmooth report RUN...",
        {
            "make": report.make,
            "export": report.export,
            "import-tsv": report.import_tsv,
            "recompute": report.recompute,
        },
        default="make",
    ),
    "study": study.study,
    "demo": demo.demo,
    "app": app.app,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    return exit_code(lambda: parse(VERBS, words)())


RERUN = "rerun the same command: training, tune and runs resume, other work starts over"


def exit_code(command: Callable[[], None]) -> int:
    """Run a command; an error becomes a one-line message and an exit code."""
    try:
        command()
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read our output has seen enough, as in `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        print(f"\ninterrupted; {RERUN}", file=sys.stderr)
        return 130
    except WrongUsage as error:
        return _failed(str(error), 2)
    except (VarsmoothError, OSError) as error:
        return _failed(as_typed(str(error), VERBS), 1)
    except MemoryError:
        return _failed("not enough memory; try a smaller --batch-size", 1)
    except SystemExit as request:  # argparse: 0 after --help, 2 after wrong usage
        return request.code if isinstance(request.code, int) else 1
    return 0


def _failed(sentence: str, code: int) -> int:
    say(f"varsmooth: {' '.join(sentence.split())}", sys.stderr)
    return code
