"""One parser for every verb: from typed functions to options, and from words to a call.

A verb is a typed function and its docstring is its help. Parameters before `/` are plain words,
the others are options; a dataclass stands for one option per field.
"""

import argparse
import inspect
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import partial
from typing import Any, Literal, NoReturn, get_args, get_origin, get_type_hints

from varsmooth import __version__
from varsmooth._util.typed import OptionError, as_option, read, words
from varsmooth.errors import VarsmoothError, nearest
from varsmooth.training.configuration import read_config

PROG = "varsmooth"
Verb = Callable[..., None]

COMMON = {
    "root": "the data directory (default: $VARSMOOTH_DATA, else the platform's usual place)",
    "resize": "crop each image to its central square and scale it to this many pixels per side; "
    "with --center-crop, scale its shorter side; radii are then those of the scaled image",
    "center_crop": "side in pixels of the central square to keep after --resize: "
    "--resize 256 --center-crop 224 is usual for ImageNet",
    "interpolation": "how --resize computes pixels (default: lanczos)",
    "trust": "import paths of your own networks that the model may load: package.module:Class,...",
    "device": "where to compute: auto, cpu, cuda, cuda:1, mps or another device of torch",
    "batch_size": "noisy images per forward pass; never changes the result",
    "name": "the name of the run in tables and legends (default: the folder's name)",
    "seed": "seed of the noise",
}
"""What options mean that are the same for every verb, unless its docstring says more."""


LATER = {
    "The model's selector network and its median": (
        *("sigma_a", "sigma_m", "clip", "levels", "n_median", "n_select", "alpha_select", "band"),
    ),
    "The paper's certificate": ("distance", "every_index"),
    "Seldom needed": (
        *("trust", "lattice", "precision", "root", "resize", "center_crop", "interpolation"),
        *("n0", "bound", "vote_cache", "name", "batch_size", "device", "devices", "shard"),
        *("engine", "ray_address", "worker_cpus", "worker_gpus"),
    ),
}
"""Sections of the help that follow the others, where a verb samples noise."""


class WrongUsage(VarsmoothError):
    """Arguments that are invalid, or conflict."""


@dataclass(frozen=True)
class Group:
    """Verbs that belong together: `varsmooth data fetch`, `varsmooth data list`.

    `default` names the verb that may be left out: `varsmooth report RUN` is `report make RUN`.
    """

    help: str
    verbs: Mapping[str, Verb]
    default: str | None = None


Verbs = Mapping[str, Verb | Group]


@dataclass(frozen=True)
class Option:
    """An option: a parameter of a verb, or a field of one of its dataclasses."""

    name: str
    hint: Any
    default: Any
    help: str
    plain: bool = False
    title: str = ""

    @property
    def spelled(self) -> str:
        return self.name.upper() if self.plain else as_option(self.name)

    def value(self, entered: Mapping[str, Any]) -> Any:
        """The text that was typed, read as the type of the option."""
        text = entered[self.name]
        if get_origin(self.hint) is dict:
            text = dict(map(_entry, text))
        return read(self.name, self.hint, text)

    def add_to(self, parser: argparse._ActionsContainer) -> None:
        """To argparse every option is text that may be missing; `value` reads it."""
        choices = ("true", "false") if self.hint is bool else get_args(self.hint)
        flags: dict[str, Any] = {"default": argparse.SUPPRESS}
        if self.plain:
            flags["nargs"] = "*" if self.hint == list[str] else "?"
        elif get_origin(self.hint) is dict:
            flags |= {"action": "append", "metavar": "NAME=VALUE"}
        elif self.hint is bool or get_origin(self.hint) is Literal:
            flags["metavar"] = "{" + ",".join(choices) + "}"
        text = self.help.replace("%", "%%")
        if self.default is MISSING and not self.plain:
            text += " (required)"
        elif self.default not in (None, MISSING, [], {}):
            text += f" (default: {str(self.default).lower()})"
        name = self.name if self.plain else self.spelled
        action = parser.add_argument(name, help=text, **flags)
        if "{" in flags.get("metavar", ""):
            action.completer = lambda **_: choices  # type: ignore[attr-defined]


class Parser(argparse.ArgumentParser):
    """Argparse with errors of one sentence each."""

    def error(self, message: str) -> NoReturn:
        raise WrongUsage(f"{message}; see {self.prog} --help")


def build_parser(verbs: Verbs) -> Parser:
    """The parser of the whole command line."""
    about = "Per-input noise levels for randomized smoothing, with certificates that hold."
    parser = Parser(prog=PROG, usage=f"{PROG} VERB [--option VALUE ...]", description=about)
    parser.add_argument("--version", action="version", version=f"varsmooth {__version__}")
    _add_verbs(parser, verbs)
    return parser


def _add_verbs(parser: argparse.ArgumentParser, verbs: Verbs, default: str | None = None) -> None:
    parser.set_defaults(_prog=parser.prog, _verb=verbs)
    inner = parser.add_subparsers(title="verbs", prog=parser.prog, metavar="VERB")
    for name, verb in verbs.items():
        options = [] if isinstance(verb, Group) else list(options_of(verb))
        text = verb.help if isinstance(verb, Group) else _doc(verb).partition("\nArgs:")[0]
        words = [] if name == default else [name]
        words += [option.spelled for option in options if option.plain]
        words += ["VERB"] if isinstance(verb, Group) else []
        others = [f"  {parser.prog} {other} --help" for other in verbs if name == default != other]
        child = inner.add_parser(
            name,
            help=text.partition("\n")[0],
            description=text,
            epilog="\n".join(["see also:", *others]) if others else None,
            usage=" ".join([parser.prog, *words, "[--option VALUE ...]"]),
            formatter_class=argparse.RawDescriptionHelpFormatter,  # examples keep their lines
            allow_abbrev=False,
        )
        child.set_defaults(_prog=child.prog, _verb=verb)
        if isinstance(verb, Group):
            _add_verbs(child, verb.verbs, verb.default)
        sections: dict[str, Any] = {"": child}
        for title, option in _sections(options):
            if title not in sections:
                sections[title] = child.add_argument_group(title)
            option.add_to(sections[title])


def _sections(options: Sequence[Option]) -> list[tuple[str, Option]]:
    """Each option under its title; what few people need follows the rest of a verb that samples."""
    late = {name: title for title, names in LATER.items() for name in names}
    sampled = {"model", "n"} <= {option.name for option in options}
    order, sections = list(LATER), []
    for option in options:
        title = late.get(option.name, option.title) if sampled and option.title else option.title
        sections.append((title, option))
    return sorted(sections, key=lambda pair: order.index(pair[0]) + 1 if pair[0] in LATER else 0)


def options_of(verb: Any, title: str = "") -> Iterator[Option]:
    """The options of a verb: its parameters, and the fields of those that are dataclasses."""
    texts = dict(COMMON)
    for base in reversed(getattr(verb, "__mro__", [verb])):
        texts |= _texts(base)
    hints = get_type_hints(verb, include_extras=True)
    for name, parameter in inspect.signature(verb).parameters.items():
        hint, default = hints[name], parameter.default
        if is_dataclass(hint):
            yield from options_of(hint, _doc(hint).partition("\n")[0].rstrip("."))
            continue
        if default is parameter.empty:
            default = [] if hint == list[str] else MISSING
        elif is_dataclass(verb):
            default = getattr(verb, name, None)  # None where a factory makes it
        plain = parameter.kind is parameter.POSITIONAL_ONLY
        yield Option(name, hint, default, texts.get(name, ""), plain, title)


def _doc(thing: Any) -> str:
    return inspect.cleandoc(thing.__doc__ or "")


def _texts(thing: Any) -> dict[str, str]:
    """What the docstring says about each name under `Args:`."""
    texts: dict[str, str] = {}
    name = ""
    for line in _doc(thing).partition("\nArgs:\n")[2].partition("\n\n")[0].splitlines():
        if entry := re.match(r" {4}(\w+): (.*)", line):
            name, texts[entry[1]] = entry[1], entry[2]
        else:
            texts[name] += " " + line.strip()
    return texts


def parse(verbs: Verbs, argv: Sequence[str]) -> partial[None]:
    """The call of the verb that the words name, with every option read and checked."""
    parser = build_parser(verbs)
    if "_ARGCOMPLETE" in os.environ:
        import argcomplete

        argcomplete.autocomplete(parser)
    typed = list(argv)
    _check_verb(typed, verbs)
    verb: Any = verbs.get(typed[0]) if typed else None
    if isinstance(verb, Group):
        if verb.default and not verb.verbs.keys() & typed[1:2]:
            typed.insert(1, verb.default)  # the verb that was left out
        _check_verb(typed[1:], verb.verbs)
        verb = verb.verbs.get(typed[1]) if len(typed) > 1 else None
    if verb is not None:
        _check_values(typed, [option.spelled for option in options_of(verb)])
    known, unknown = parser.parse_known_args(_joined(typed))
    entered, prog, verb = vars(known), known._prog, known._verb
    if isinstance(verb, Mapping):
        if unknown:
            near = nearest(unknown[0], ["--help", "--version"])
            raise WrongUsage(f"there is no option {unknown[0]}{near}")
        raise WrongUsage(f"give a verb: {', '.join(verb)}; see {prog} --help")
    spelled = {option.name: option.spelled for option in options_of(verb)}
    if unknown:
        word = next((word for word in unknown if word.startswith("-")), unknown[0])
        if word.startswith("-"):
            near = _nearest_option(word.partition("=")[0], verb)
            near = near if "did you mean" in near else f"; see {prog} --help"
            raise WrongUsage(f"there is no option {word}{near}")
        free = [name for name in ("model", "data") if name in spelled and name not in entered]
        near = f"did you mean {spelled[free[0]]} {word}?" if free else ""
        raise WrongUsage(f"unexpected argument {word}; {near or f'see {prog} --help'}")
    try:
        return _bound(verb, entered)
    except OptionError as error:
        problem = as_typed(error.problem, {prog: verb})
        raise WrongUsage(f"{spelled.get(error.name, error.name)} {problem}") from error
    except VarsmoothError as error:
        raise WrongUsage(as_typed(str(error), {prog: verb})) from error


def _nearest_option(word: str, verb: Verb) -> str:
    """The end of an error sentence: the option of the verb that was probably meant."""
    options = {option.spelled: option for option in options_of(verb)}
    levels = options.get("--levels")
    if word == "--sigma" and levels is not None and "several" in words(levels.hint):
        return "; did you mean --levels?"
    return nearest(word, list(options))


def _check_verb(typed: Sequence[str], verbs: Mapping[str, Any]) -> None:
    """The first word is a verb, and no option with a value stands before it."""
    if len(typed) > 1 and typed[0].startswith("--") and not typed[1].startswith("-"):
        raise WrongUsage(f"{typed[0]} comes after a verb: {', '.join(verbs)}")
    if typed and not typed[0].startswith("-") and typed[0] not in verbs:
        raise WrongUsage(f"there is no verb {typed[0]!r}{nearest(typed[0], list(verbs))}")


def _check_values(typed: Sequence[str], options: Sequence[str]) -> None:
    """Every option has a value."""
    for word, after in zip(typed, [*typed[1:], "--"], strict=True):
        if word in options and after.startswith("--"):
            raise WrongUsage(f"{word} needs a value")


def _bound(verb: Verb, entered: Mapping[str, Any]) -> partial[None]:
    """The verb with its arguments read from the text of its options."""
    options, hints = list(options_of(verb)), get_type_hints(verb, include_extras=True)
    values = {option.name: option.value(entered) for option in options if option.name in entered}
    preset = "preset" in hints
    for option in options:
        if option.default is MISSING and option.name not in entered and not preset:
            unnamed = not {"model", "against"} & entered.keys()
            if unnamed and any(other.name == "model" and not other.default for other in options):
                raise OptionError("model", f"and `{option.name}` must be given")
            raise OptionError(option.name, "must be given")
    arguments = {option.name: values.get(option.name, option.default) for option in options}
    for name, kind in hints.items():
        if is_dataclass(kind):
            own = {f.name: values[f.name] for f in fields(kind) if f.name in values}
            cls: Any = kind
            arguments[name] = read_config(cls, values.get("preset"), own) if preset else cls(**own)
    plain = [arguments[option.name] for option in options if option.plain]
    names = list(inspect.signature(verb).parameters)[len(plain) :]
    return partial(verb, *plain, **{name: arguments[name] for name in names})


def as_typed(sentence: str, verbs: Verbs) -> str:
    """Options that an error names in backticks as they are typed: `` `n=8` `` becomes --n 8."""
    groups = (v.verbs.values() if isinstance(v, Group) else [v] for v in verbs.values())
    each = (option for group in groups for verb in group for option in options_of(verb))
    spelled = {option.name: option.spelled for option in each}

    def option(match: re.Match[str]) -> str:
        name, equals, value = match.groups(default="")
        if name not in spelled:
            return match[0]
        value = value.strip("()[]'").replace(", ", ",")
        value = value.lower() if value in ("True", "False") else value
        return f"{spelled[name]}{equals.replace('=', ' ')}{value}"

    return re.sub(r"`(\w+)(?:(=| ≥ )([^`]+))?`", option, sentence)


def _entry(text: str) -> tuple[str, Any]:
    """`width=64` of a group of options, as YAML means it; numbers with commas are a list."""
    import yaml  # type: ignore[import-untyped]

    name, equals, value = text.partition("=")
    if not equals:
        raise WrongUsage(f"{text} needs a value: NAME=VALUE")
    several = "," in value and value[0] not in "[{"
    return name, yaml.safe_load(f"[{value}]" if several else value)


def _joined(words: list[str]) -> list[str]:
    """`--n -3` as `--n=-3`, which argparse takes for a value, and `--group.name 3` likewise."""
    joined: list[str] = []
    for word in words:
        last = joined[-1] if joined else ""
        waits = last.startswith("--") and "=" not in last
        if waits and (re.match(r"-[\d.]", word) or ("." in last and word[:2] != "--")):
            joined[-1] = f"{last}={word}"
        else:
            joined.append(word)
    return [re.sub(r"^(--[\w-]+)\.([\w]+)=", r"\1=\2=", word) for word in joined]
