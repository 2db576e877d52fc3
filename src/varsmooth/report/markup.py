"""HTML from plain text. Whatever is not `Html` is escaped, in `element` and nowhere else."""

import base64
from collections.abc import Sequence
from html import escape
from pathlib import Path


class Html(str):
    """Text that is HTML already."""


def element(tag: str, /, *children: str | None, **attributes: object) -> Html:
    """One element; text and attribute values are escaped.

    Children that are None and attributes that are None or False are left out; an attribute that
    is True has no value.

    >>> element("td", "a < b", class_="x'y", hidden=None)
    '<td class="x&#x27;y">a &lt; b</td>'
    """
    words = (
        f" {name}" if value is True else f' {name}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None and value is not False
        for name in [key.rstrip("_").replace("_", "-")]
    )
    start = f"<{tag}{''.join(words)}>"
    return Html(start if tag in _VOID else f"{start}{join(*children)}</{tag}>")


def join(*children: str | None) -> Html:
    """Children one after the other, escaped unless they are HTML."""
    given = (child for child in children if child is not None)
    return Html("".join(c if isinstance(c, Html) else escape(c) for c in given))


def folded(summary: str, *children: str, **attributes: object) -> Html:
    """What opens by a click, without a script."""
    return element("details", element("summary", summary), *children, **attributes)


def grid(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Html:
    """A table that scrolls when it is wide."""
    head = element("tr", *(element("th", text) for text in columns))
    body = (element("tr", *(element("td", cell) for cell in row)) for row in rows)
    table = element("table", element("thead", head), element("tbody", *body))
    return element("div", table, class_="scroll")


def picture(content: bytes, kind: str, alt: str) -> Html:
    """An image inside the page; kind: `png`, `jpeg` or `svg+xml`."""
    url = f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
    return element("img", src=url, alt=alt, loading="lazy")


def document(title: str, *body: str) -> str:
    """A page that needs nothing but itself: style and script are inside, nothing is fetched."""
    files = (Path(__file__).with_name(name).read_text(encoding="utf-8") for name in _FILES)
    style, script = (Html(text) for text in files)
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        element("style", style),
    )
    main = element("body", element("main", *body), element("script", script))
    return f"<!doctype html>\n{element('html', head, main, lang='en')}\n"


_FILES = ("report.css", "report.js")
_VOID = ("img", "input", "link", "meta")
