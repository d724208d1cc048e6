"""Compares HTML before and after translation by a browser's rules: what was safe must stay safe."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from selectolax.lexbor import LexborHTMLParser

from saccade.serving.html.tokens import RAW

MAY_SPLIT = frozenset(str.split("b i em strong u s strike del ins mark small big sub sup span font cite dfn bdi bdo"))
"""Elements that may be written twice if their words move apart; of others there is always one."""
Described = tuple[str, tuple[tuple[str, str | None], ...], str]
WAYS = [(is_part, scripting) for is_part in (False, True) for scripting in (False, True)]
"""How a browser may read HTML: as a document or inside of one, with scripts or without."""


class Structure(NamedTuple):
    """The elements of a document with their attributes, and its comments: how often it has each."""

    elements: Counter[Described]
    comments: Counter[str]


def is_same_structure(source: str, output: str) -> bool:
    """Return whether a browser finds the same elements, attributes and comments in both; some may be there twice."""
    return all(_is_same(_structure(source, *way), _structure(output, *way)) for way in WAYS)


def _is_same(before: Structure, after: Structure) -> bool:
    if before.comments != after.comments or before.elements - after.elements:
        return False
    copies = {(tag, _without_id(attributes), text) for tag, attributes, text in before.elements if tag in MAY_SPLIT}
    return all(element in copies for element in after.elements - before.elements)


def _structure(html: str, is_part: bool, scripting: bool) -> Structure:
    elements, comments = Counter[Described](), Counter[str]()
    root = LexborHTMLParser(html, is_fragment=is_part, scripting=scripting).root
    raw = (RAW | {"plaintext"}) - {"title", *(() if scripting else ("noscript",))}  # of these, the text stays too
    start = root if root is None or is_part else root.parent  # comments stand beside the root of a document
    for node in start.traverse() if start is not None else ():
        if node.is_comment_node:
            comments[node.html or ""] += 1
        elif node.is_element_node:
            tag = node.tag or ""
            text = node.text(deep=False) if tag in raw else ""
            elements[tag, tuple(sorted(node.attributes.items())), text] += 1
            if tag == "template":  # its content is a document of its own
                comments[node.html or ""] += 1
    return Structure(elements, comments)


def _without_id(attributes: tuple[tuple[str, str | None], ...]) -> tuple[tuple[str, str | None], ...]:
    return tuple(one for one in attributes if one[0] != "id")
