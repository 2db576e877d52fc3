"""Every option of every verb with every odd value: done, or one sentence and an exit code."""

import io
import os
import resource
import signal
import sys
import time
import traceback
from contextlib import redirect_stderr
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any, NamedTuple, NoReturn

import pytest

import varsmooth
from tests.cli.test_parser import FUNCTIONS
from tests.conftest import Tally
from tests.small_models import QUICK, run, write_pair
from varsmooth.cli import VERBS, main
from varsmooth.cli.parser import Option, WrongUsage, options_of, parse

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the machine cannot fork")

VALUES = (
    *("null", "", "-1", "0", "nan", "1e400", "9" * 25, "1.5,2,-inf"),
    *("ü\x1b[31m日本", "/dev/zero", "x" * 5000),
)
TRAIN = (
    "--data cifar10-sample --train-split test --held-out-split test --epochs 1 --batch-size 10 "
    "--images-per-epoch 10 --held-out-images 2 --n 8 --out OUT"
)
COMMANDS = {
    "data fetch": "no-such-data",  # the error comes before anything is fetched
    "data info": "cifar10-sample",
    "models show": "model",
    "models export": "model --out OUT",
    "adopt": "no_such_module:make --data photos --out OUT",
    "train classifier": f"--sigma 0.25 --network-options.widths 4,4,4,4 {TRAIN}",
    "train selector": f"--classifier model {TRAIN}",
    "tune": "model --data cifar10-sample --images 2 --n 20 --n-select 21 --out OUT",
    "measure": "model --data cifar10-sample --split test --images 2 --n 8 --n-select 3 --out OUT",
    "predict": "--model model --subset 0:2 --n 60 --n-median 21 --alpha 0.1 --out OUT",
    "certify": f"{QUICK} --subset 0:2 --model model --out OUT",
    "attack": "--model model --subset 0:2 --eps 0.1 --steps 1 --n 40 --n-median 21 --out OUT",
    "verify": "run",
    "report make": "run --out OUT",
    "report export": "run --out OUT",
    "report import-tsv": "run.tsv --sigma 0.25 --out OUT",
    "report recompute": "run --alpha 0.1 --out OUT",
    "demo": "--images 1",
    "app": "--model nowhere --port 0",  # which would not end
}
SECONDS, MEMORY = 1, 12 * 2**30


class Ended(NamedTuple):
    code: int
    output: str


def child(words: list[str], write: int) -> NoReturn:
    """One command in a process of its own, interrupted if it is still at work after a while."""
    code = 99
    try:
        os.dup2(write, 2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.stdout, sys.stderr = (os.fdopen(n, "w", encoding="utf-8") for n in (1, 2))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        signal.signal(signal.SIGPROF, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)  # of computing, however busy the machine is
        signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
        signal.alarm(60)  # a page that waits for visitors is stopped as by Ctrl-C
        code = main(words)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def ended(words: list[str], seconds: float = 200) -> Ended:
    """The exit code and output of a command; one that ignores an interruption hangs."""
    try:
        parse(VERBS, words)
    except WrongUsage:  # nothing will be started
        with redirect_stderr(io.StringIO()) as text:
            return Ended(main(words), text.getvalue())
    read, write = os.pipe()
    process = os.fork()
    if process == 0:
        child(words, write)
    os.close(write)
    os.set_blocking(read, False)
    output, until, done = b"", time.monotonic() + seconds, 0
    while not done:
        assert time.monotonic() < until, f"{words} hangs"
        done, status = os.waitpid(process, os.WNOHANG)
        while True:
            try:
                part = os.read(read, 1 << 16)
            except BlockingIOError:
                break
            output += part
            if not part:
                break
        time.sleep(0.002)
    os.close(read)
    return Ended(os.waitstatus_to_exitcode(status), output.decode("utf-8", "replace"))


def wrong(end: Ended) -> str:
    """What is wrong with how a command ended; empty if nothing is."""
    lines = end.output.split("\n")
    if end.code not in (0, 1, 2, 130) or "Traceback" in end.output:
        return end.output[-2000:]
    if not all(line.isprintable() for line in "".join(lines).split("\r")):
        return f"control characters: {end.output!r}"
    if end.code in (1, 2) and not lines[-2].startswith("varsmooth: "):
        return f"no sentence: {end.output!r}"
    return ""


def typed(verb: str, option: Option, value: str, out: str) -> list[str]:
    """The usual command of a verb with another value of one option."""
    words = COMMANDS.get(verb, "").replace("OUT", out).split()
    if option.plain:
        usual = [] if not words or words[0].startswith("-") else words[:1]
        return [*verb.split(), value, *words[len(usual) :]]
    if option.spelled in words:
        place = words.index(option.spelled)
        del words[place : place + 2]
    return [*verb.split(), *words, f"{option.spelled}={value}"]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("options")
    for module in walk_packages(varsmooth.__path__, "varsmooth."):
        if not module.name.endswith("__main__"):
            import_module(module.name)  # before the forks, so that they start at once
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_pair(Path("model"))
        assert run(f"certify {QUICK} --subset 0:2 --model model --out run") == 0
        assert run("report export run --to tsv --out run.tsv") == 0
    return folder


def tried(verb: str, values: Any, here: Path, patch: pytest.MonkeyPatch) -> int:
    count = 0
    for option in options_of(FUNCTIONS[verb]):
        for value in values:
            count += 1
            folder = here / verb.replace(" ", "-") / str(count)
            folder.mkdir(parents=True)
            for name in ("model", "run", "run.tsv"):
                (folder / name).symlink_to(here / name)
            patch.chdir(folder)
            words = typed(verb, option, value, "out")
            problem = wrong(ended(words))
            assert not problem, f"{words}: {problem}"
    return count


@pytest.mark.slow
@pytest.mark.campaign
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("verb", FUNCTIONS)
def test_odd_values_of_every_option(
    verb: str, here: Path, tally: Tally, monkeypatch: pytest.MonkeyPatch
) -> None:
    tally("odd values of options", len(list(options_of(FUNCTIONS[verb]))) * len(VALUES))
    tried(verb, VALUES, here, monkeypatch)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("verb", ["verify", "certify"])
def test_some_odd_values(verb: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tried(verb, ("9" * 25,), here, monkeypatch) > 5
