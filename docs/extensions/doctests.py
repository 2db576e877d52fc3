"""Show the doctests of docstrings as code; Markdown alone would read `>>>` as a quotation."""

import re
from typing import Any

from griffe import Extension, Object

DOCTEST = re.compile(r"(?:^>>> .*\n(?:^(?!\s*$).*\n?)*)", re.MULTILINE)


class Doctests(Extension):
    """Fence each run of lines that starts with `>>>`."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            text = obj.docstring.value + "\n"
            obj.docstring.value = DOCTEST.sub(
                lambda found: f"```pycon\n{found.group().rstrip()}\n```\n", text
            ).rstrip()
