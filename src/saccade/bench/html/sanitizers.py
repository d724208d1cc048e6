"""Sanitisers that sites run over the HTML of users before they show it; those that are installed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec

Sanitizer = Callable[[str], str]
TAGS = frozenset(str.split("a b blockquote br code div em h1 i img li ol p pre q s span strong table td th tr u ul"))
ATTRIBUTES = ("title", "class", "id", "lang", "translate")


def sanitizers() -> Mapping[str, Sanitizer]:
    """Return how HTML comes to a server: as it is, and after each sanitiser."""
    found: dict[str, Sanitizer] = {"as it is": str}
    if find_spec("nh3"):
        found |= {"nh3": _nh3, "nh3, comments kept": _nh3_with_comments}
    if find_spec("bleach"):
        found |= {"bleach": _bleach}
    return found


def _nh3(html: str) -> str:
    import nh3

    return str(nh3.clean(html))


def _nh3_with_comments(html: str) -> str:
    import nh3

    return str(nh3.clean(html, attributes={"*": set(ATTRIBUTES)}, strip_comments=False))


def _bleach(html: str) -> str:
    import bleach

    return str(bleach.clean(html, tags=TAGS, attributes=list(ATTRIBUTES), strip_comments=False))
