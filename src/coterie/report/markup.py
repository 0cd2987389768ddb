"""HTML that escapes what it is given: names of clients, folders and classes come from anywhere."""

from __future__ import annotations

import html
from collections.abc import Iterable

VOID = frozenset({"col", "img", "input", "link", "meta"})


class Safe(str):
    """Text that is HTML already."""

    __slots__ = ()


def el(tag: str, *children: object, **attributes: object) -> Safe:
    """An element.

    Children are escaped unless they are `Safe`; None is left out. An attribute that is None or
    False is left out, True is bare, and underscores in its name become hyphens: ``class_``,
    ``aria_label``.
    """
    said = "".join(_attribute(name, value) for name, value in attributes.items())
    if tag in VOID:
        return Safe(f"<{tag}{said}>")
    return Safe(f"<{tag}{said}>{join(children)}</{tag}>")


def join(parts: Iterable[object], between: str = "") -> Safe:
    """Parts after one another."""
    return Safe(between.join(_escaped(part) for part in parts if part is not None))


def _escaped(part: object) -> str:
    return part if isinstance(part, Safe) else html.escape(str(part))


def _attribute(name: str, value: object) -> str:
    name = name.rstrip("_").replace("_", "-")
    if value is None or value is False:
        return ""
    return f" {name}" if value is True else f' {name}="{html.escape(str(value))}"'
