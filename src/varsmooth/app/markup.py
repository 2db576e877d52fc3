"""The only place where text becomes HTML: whatever is no markup yet is escaped here."""

from html import escape


class Markup(str):
    """Text that is HTML already; only `tag` and `join` make it."""


VOID = {"img", "input", "meta", "link", "br"}


def tag(name: str, /, *children: object, **attributes: object) -> Markup:
    """An element. Children and attributes are escaped unless they are markup; None is left out.

    cls, for_: the attributes class and for; data_x: data-x; True: an attribute without a value.

    >>> tag("p", "a < b", tag("br"), cls="note")
    '<p class="note">a &lt; b<br></p>'
    """
    listed = []
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = {"cls": "class"}.get(key, key.rstrip("_").replace("_", "-"))
        listed.append(f" {key}" if value is True else f' {key}="{escape(str(value))}"')
    opened = f"<{name}{''.join(listed)}>"
    return Markup(opened if name in VOID else f"{opened}{join(*children)}</{name}>")


def join(*children: object) -> Markup:
    """Pieces one after the other; what is no markup is escaped."""
    return Markup(
        "".join(
            child if isinstance(child, Markup) else escape(str(child))
            for child in children
            if child is not None
        )
    )
