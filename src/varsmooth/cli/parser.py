"""From a table of verbs to a parser, and from arguments to a call.

A verb is a typed function. Its docstring is its help. A parameter that is a dataclass stands for
one option per field; a parameter `list[str]` takes all the words that are no options.
"""

import argparse
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, get_type_hints

from jsonargparse import ArgumentParser, DefaultHelpFormatter, Namespace

from varsmooth.errors import VarsmoothError

Verb = Callable[..., None]


class WrongUsage(VarsmoothError):
    """Options that do not go together, or one that is missing."""


@dataclass(frozen=True)
class Group:
    """Verbs that belong together: `varsmooth data fetch`, `varsmooth data list`.

    default: the verb that goes without saying: `varsmooth report RUN` is `report make RUN`.
    """

    help: str
    verbs: Mapping[str, Verb]
    default: str | None = None


Verbs = Mapping[str, Verb | Group]

_NUMBERS = re.compile(r"(--[a-z-]+=)?([-+.\de]+(?:,[-+.\de]+)+)")


class Formatter(argparse.RawDescriptionHelpFormatter, DefaultHelpFormatter):
    """Keeps the lines of the examples as they are written; says what is needed and the default."""

    def _get_help_string(self, action: argparse.Action) -> str:
        text, default = action.help or "", action.default
        if action.required and action.option_strings:
            return f"{text} (required)"
        if default in (None, argparse.SUPPRESS) or not action.option_strings:
            return text
        return f"{text} (default: {str(default).lower() if isinstance(default, bool) else default})"


def build_parser(
    verbs: Verbs,
    prog: str = "varsmooth",
    description: str = "Per-input noise levels for randomized smoothing, certificates that hold.",
) -> ArgumentParser:
    """The parser of the whole command line."""
    parser = _parser(description, prog=prog)
    _add_verbs(parser, verbs)
    return parser


def call(verbs: Verbs, argv: Sequence[str], **parser: str) -> None:
    """Run the verb that the arguments name."""
    words = _with_default(verbs, [_bracketed(word) for word in argv])
    config = build_parser(verbs, **parser).parse_args(words)
    verb = verbs[config.subcommand]
    config = config[config.subcommand]
    if isinstance(verb, Group):
        verb, config = verb.verbs[config.subcommand], config[config.subcommand]
    verb(**_arguments(verb, config))


def _with_default(verbs: Verbs, words: list[str]) -> list[str]:
    """Say the verb that goes without saying."""
    group = verbs.get(words[0]) if words else None
    if not isinstance(group, Group) or group.default is None:
        return words
    said = words[1:2] and words[1] in (*group.verbs, "-h", "--help")
    return words if said else [words[0], group.default, *words[1:]]


def _parser(description: str, **options: Any) -> ArgumentParser:
    return ArgumentParser(
        description=description, formatter_class=Formatter, allow_abbrev=False, **options
    )


def _add_verbs(parser: ArgumentParser, verbs: Verbs) -> None:
    subcommands = parser.add_subcommands()
    for name, verb in verbs.items():
        text = verb.help if isinstance(verb, Group) else _description(verb)
        inner = _parser(text)
        subcommands.add_subcommand(name, inner, help=text.partition("\n")[0])
        if isinstance(verb, Group):
            _add_verbs(inner, verb.verbs)
        else:
            _add_options(inner, verb)


def _description(verb: Verb) -> str:
    return (inspect.getdoc(verb) or "").partition("\nArgs:")[0]


def _add_options(parser: ArgumentParser, verb: Verb) -> None:
    special: set[str | int] = set()
    for name, kind in _parameters(verb).items():
        if kind == list[str]:
            parser.add_argument(name, nargs="*", help=_help_of(verb, name))
            special.add(name)
        elif is_dataclass(kind):
            parser.add_class_arguments(kind)
            special.add(name)
    parser.add_function_arguments(verb, skip=special, as_positional=True)
    for action in parser._actions:
        _hyphenate(parser, action)


def _parameters(verb: Verb) -> dict[str, Any]:
    return {name: kind for name, kind in get_type_hints(verb).items() if name != "return"}


def _help_of(verb: Verb, name: str) -> str:
    found = re.search(rf"^ +{name}: (.+)$", inspect.getdoc(verb) or "", re.MULTILINE)
    return found.group(1) if found else ""


def _hyphenate(parser: ArgumentParser, action: argparse.Action) -> None:
    """--n_select is spelled --n-select, and only so; lists have no second spelling with +."""
    for spelling in action.option_strings:
        del parser._option_string_actions[spelling]
    action.option_strings = [
        spelling.replace("_", "-")
        for spelling in action.option_strings
        if not spelling.endswith("+")
    ]
    for spelling in action.option_strings:
        parser._option_string_actions[spelling] = action


def _bracketed(word: str) -> str:
    """Numbers with commas are a list: --clip 0.12,1.0 means --clip [0.12,1.0]."""
    found = _NUMBERS.fullmatch(word)
    return f"{found[1] or ''}[{found[2]}]" if found else word


def _arguments(verb: Verb, config: Namespace) -> dict[str, Any]:
    """The verb's arguments from flat options."""
    values = config.as_dict()
    return {
        name: kind(**{field.name: values[field.name] for field in fields(kind)})
        if is_dataclass(kind) and isinstance(kind, type)
        else values[name]
        for name, kind in _parameters(verb).items()
    }
