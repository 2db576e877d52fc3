"""HTML from plain text. Whatever is not `Html` is escaped, in `element` and nowhere else."""

import base64
from collections.abc import Sequence
from html import escape
from pathlib import Path


class Html(str):
    """Text that is HTML already."""


def element(tag: str, *children: str, **attributes: object) -> Html:
    """One element; text and attribute values are escaped, attributes that are None left out.

    >>> element("td", "a < b", class_="x'y", hidden=None)
    '<td class="x&#x27;y">a &lt; b</td>'
    """
    words = (
        f' {name.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    start = f"<{tag}{''.join(words)}>"
    return Html(start if tag in ("img", "meta") else f"{start}{join(*children)}</{tag}>")


def join(*children: str) -> Html:
    """Children one after the other, escaped unless they are HTML."""
    return Html("".join(c if isinstance(c, Html) else escape(c) for c in children))


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
