"""Compares HTML before and after translation by a browser's rules: what was safe must stay safe."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from selectolax.lexbor import LexborHTMLParser

MAY_SPLIT = frozenset(str.split("b i em strong u s strike del ins mark small big sub sup span font cite dfn bdi bdo"))
"""Elements that may be written twice if their words move apart; of others there is always one."""
Described = tuple[str, tuple[tuple[str, str | None], ...]]


class Structure(NamedTuple):
    """The elements of a document with their attributes, and its comments: how often it has each."""

    elements: Counter[Described]
    comments: Counter[str]


def is_same_structure(source: str, output: str) -> bool:
    """Return whether a browser finds the same elements, attributes and comments in both; some may be there twice."""
    before, after = _structure(source), _structure(output)
    if before.comments != after.comments or before.elements - after.elements:
        return False
    copies = {(tag, _without_id(attributes)) for tag, attributes in before.elements if tag in MAY_SPLIT}
    return all(element in copies for element in after.elements - before.elements)


def _structure(html: str) -> Structure:
    elements, comments = Counter[Described](), Counter[str]()
    root = LexborHTMLParser(html).root
    for node in root.traverse() if root is not None else ():
        if node.is_comment_node:
            comments[node.html or ""] += 1
        elif node.is_element_node:
            elements[node.tag or "", tuple(sorted(node.attributes.items()))] += 1
            if node.tag == "template":  # its content is a document of its own
                comments[node.html or ""] += 1
    return Structure(elements, comments)


def _without_id(attributes: tuple[tuple[str, str | None], ...]) -> tuple[tuple[str, str | None], ...]:
    return tuple(one for one in attributes if one[0] != "id")
