"""Elements of HTML and SVG, escaped by default: a ``str`` is text, and only what ``tag`` has made is markup. Pure."""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

_VOID: Final = frozenset({"br", "col", "hr", "img", "input", "link", "meta"})
# What neither HTML nor XML takes: control characters, halves of surrogates, and non-characters; and what would turn
# round the text that stands behind it.
_ILLEGAL: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)


class Markup(str):
    """Text that is markup. ``__html__`` says so to template engines, which take it as it is."""

    __slots__ = ()

    def __html__(self) -> str:
        return self


Child: TypeAlias = "str | int | float | Iterable[Child] | None"
Attribute: TypeAlias = str | int | float | bool | None


def text(value: object) -> Markup:
    """Return a value as text of an element or an attribute; what is markup already stays as it is."""
    if isinstance(value, Markup):
        return value
    return Markup(escape(_ILLEGAL.sub("\N{REPLACEMENT CHARACTER}", str(value))))


def tag(name: str, /, *children: Child, **attributes: Attribute) -> Markup:
    """Return an element. ``class_`` stands for ``class``, ``aria_label`` for ``aria-label``.

    An attribute that is None or False is left out, and so is a child that is None; a list stands for what is in it.
    """
    opened = f"<{name}{''.join(_attribute(key, value) for key, value in attributes.items())}>"
    return Markup(opened if name in _VOID else f"{opened}{join(*children)}</{name}>")


def join(*children: Child) -> Markup:
    """Return children without an element around them."""
    return Markup("".join(map(_child, children)))


def verbatim(trusted: str) -> Markup:
    """Return text of our own as markup: a style sheet, never anything that came from outside."""
    return Markup(trusted)


def _child(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, str | int | float):
        return text(child)
    return join(*child)


def _attribute(key: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    # An attribute is text even where it was made for an element: quotes in markup would end it.
    return (
        f" {name}"
        if value is True
        else f' {name}="{text(str.__str__(value) if isinstance(value, str) else value)}"'
    )
