"""Elements, attributes and comments that browsers find in HTML, by html5lib, and texts that are no words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from saccade.serving.html.guard import MAY_SPLIT

KEPT = frozenset(str.split("script style textarea xmp iframe noembed noframes plaintext"))  # with their text
WRONGLY_READ = re.compile("<template|<!--\0", re.IGNORECASE)
"""What html5lib 1.1 reads otherwise than the standard: it knows no templates, and ends comments early after a NUL."""
ROOTS = ("DOCUMENT_ROOT", "DOCUMENT_FRAGMENT", "<!DOCTYPE>")
WAYS = [{"is_part": is_part, "scripting": scripting} for is_part in (False, True) for scripting in (False, True)]
"""How a browser may read HTML: as a document or inside of one, with scripts or without."""


class MarkupCounts(NamedTuple):
    """Counts of each element and each comment that a parser finds."""

    elements: Counter[Any]
    comments: Counter[str]


class UnreadableHtml(Exception):
    """html5lib fails on this HTML, or reads it otherwise than the standard says."""


def compare(source: str, output: str) -> str | None:
    """Say what a browser finds in one and not in the other, by html5lib."""
    problems = (compare_found(find(source, way), find(output, way), str(way)) for way in WAYS)
    return next((problem for problem in problems if problem), None)


def compare_found(before: MarkupCounts, after: MarkupCounts, way: str) -> str | None:
    """Say what was found in one and not in the other; some elements may be written twice, without an id."""
    if before.comments != after.comments:
        return f"comments {before.comments - after.comments} became {after.comments - before.comments} ({way})"
    if lost := before.elements - after.elements:
        return f"lost {lost} ({way})"
    copies = {_without_id(element) for element in before.elements if element[0] in MAY_SPLIT}
    new = [element for element in after.elements - before.elements if element not in copies]
    return f"new {new} ({way})" if new else None


def find(html: str, way: Mapping[str, bool]) -> MarkupCounts:
    """Parse HTML as a browser does."""
    import html5lib

    if WRONGLY_READ.search(html):
        raise UnreadableHtml
    parser = html5lib.HTMLParser(html5lib.getTreeBuilder("etree", fullTree=True), namespaceHTMLElements=False)
    parse = parser.parseFragment if way["is_part"] else parser.parse
    try:
        tree = parse(html, scripting=way["scripting"])
    except (AssertionError, AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise UnreadableHtml from error
    kept = KEPT | ({"noscript"} if way["scripting"] else set())
    elements, comments = Counter[Any](), Counter[str]()
    for node in tree.iter():
        if not isinstance(node.tag, str):
            comments[node.text or ""] += 1
        elif node.tag not in ROOTS:
            text = "".join(node.itertext()) if node.tag in kept else ""
            elements[node.tag, tuple(sorted(node.attrib.items())), text] += 1
    return MarkupCounts(elements, comments)


def _without_id(element: Any) -> Any:
    tag, attributes, text = element
    return tag, tuple(one for one in attributes if one[0] != "id"), text
