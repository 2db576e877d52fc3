"""From the docstrings of the house to Markdown: doctests as code, parameters as a list.

A docstring says `name: what it is`, one parameter after the other, with indented continuations.
Markdown would run these together, and read `>>>` as a quotation.
"""

import re
from typing import Any

from griffe import Class, Extension, Function, Module, Object

DOCTEST = re.compile(r"^>>> .*\n(?:^(?!\s*$).*\n?)*", re.MULTILINE)
ENTRY = re.compile(r"^(\w+(?:, \w+)*)( \([^)]*\))?: (.*)$")


class HouseDocstrings(Extension):
    """Rewrite every docstring of a package once it is loaded."""

    def on_package(self, *, pkg: Module, **kwargs: Any) -> None:
        _rewrite(pkg)


def _rewrite(thing: Object) -> None:
    if thing.docstring is not None:
        text = _listed(thing.docstring.value, _names(thing)) + "\n"
        text = DOCTEST.sub(lambda found: f"```pycon\n{found.group().rstrip()}\n```\n", text)
        thing.docstring.value = text.rstrip()
    for member in thing.members.values():
        if not member.is_alias:
            _rewrite(member)  # type: ignore[arg-type]


def _names(thing: Object) -> set[str]:
    """What a docstring may describe: parameters, and fields of a class."""
    if isinstance(thing, Function):
        return {parameter.name for parameter in thing.parameters}
    if isinstance(thing, Class):
        init = thing.members.get("__init__")
        names = _names(init) if isinstance(init, Function) else set()
        return names | {name for name, m in thing.all_members.items() if m.is_attribute}
    return set()


def _listed(text: str, names: set[str]) -> str:
    """Paragraphs of entries as bullet lists; what is no entry stays as it is."""
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        found = ENTRY.match(line)
        if found and set(found[1].split(", ")) <= names:
            if not inside:
                lines.append("")
            inside = True
            lines.append(f"- `{found[1].replace(', ', '`, `')}`{found[2] or ''}: {found[3]}")
        elif inside and line.startswith(" "):
            lines.append("  " + line.strip())
        else:
            if inside and line.strip():
                lines.append("")
            inside = False
            lines.append(line)
    return "\n".join(lines)
