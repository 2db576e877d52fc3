"""Run one command again and again, ending it at chosen moments, until it is done.

    python -m tests.interrupting '[["kill", 900], ["disk", 5000]]' certify --model ... --out RUN

Every attempt is a process of its own, forked after the imports. An ending ["kill", bytes] waits
until the rows have grown by so many bytes, then sends SIGKILL (likewise "term" and "int");
["late", milliseconds] sends SIGKILL after that time; ["disk", bytes] lets files grow by so many
bytes only, as a full disk does. The last attempt is left alone. Prints the exit codes (negative:
the signal).

The command `train JSON` trains a classifier as that configuration says.
"""

import json
import os
import resource
import signal
import sys
import time
from pathlib import Path

import varsmooth.evaluation.certify  # noqa: F401  before the forks, so that they start at once
from varsmooth.cli import main
from varsmooth.training import ClassifierConfig, train_classifier

SIGNALS = {"kill": signal.SIGKILL, "term": signal.SIGTERM, "int": signal.SIGINT}


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("rows-*.jsonl"))


def command(words: list[str]) -> int:
    if words[0] != "train":
        return main(words)
    train_classifier(ClassifierConfig(**json.loads(words[1])))
    return 0


def killed_after(child: int, seconds: float) -> int:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0.001)
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
    os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def attempt(words: list[str], folder: Path, ending: str, growth: int) -> int:
    """The exit code of the command, ended at the given point."""
    before = size_of(folder)
    child = os.fork()
    if child == 0:
        if ending == "disk":
            resource.setrlimit(resource.RLIMIT_FSIZE, (before + growth,) * 2)
        os._exit(command(words))
    if ending == "late":
        return killed_after(child, growth / 1000)
    while ending in SIGNALS and size_of(folder) < before + growth:
        time.sleep(0.001)
        if os.waitpid(child, os.WNOHANG) != (0, 0):
            return 0  # done before the moment came
    if ending in SIGNALS:
        os.kill(child, SIGNALS[ending])
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    endings, words = json.loads(sys.argv[1]), sys.argv[2:]
    folder = Path(words[words.index("--out") + 1])
    codes = [attempt(words, folder, *ending) for ending in endings]
    print(json.dumps([*codes, attempt(words, folder, "none", 0)]))
