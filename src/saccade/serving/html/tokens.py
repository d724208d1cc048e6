"""HTML cut into tokens as browsers cut it, each with its place in the source (WHATWG HTML, section 13.2.5)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

SPACE = r"[\t\n\f\r ]"
TAG = re.compile(r"<(/?)([a-zA-Z][^\t\n\f\r />]*)")
ATTRIBUTE = re.compile(
    rf"""{SPACE}*+(?:/(?!>){SPACE}*+)*+         # a slash that ends no tag is nothing
         ([^\t\n\f\r />][^\t\n\f\r />=]*+)   # a name; it may begin with =
         (?:{SPACE}*+={SPACE}*+("[^"]*"|'[^']*'|(?!["'])[^\t\n\f\r >]++|(?=>))
           |(?!{SPACE}*+=))                  # a quote that isn't closed swallows the rest of the source""",
    re.VERBOSE,
)
TAG_END = re.compile(rf"{SPACE}*(?:/(?!>){SPACE}*)*/?>")
COMMENT = re.compile(r"<!--(?:-?>|.*?--!?>|.*)", re.DOTALL)
BOGUS = re.compile(r"<(?:[!?]|/[^a-zA-Z>])[^>]*>?|</>", re.DOTALL)  # declarations, and comments that are none
BEGINNING = re.compile(r"<(?:[a-zA-Z!?]|/.)", re.DOTALL)
CDATA = re.compile(r"<!\[CDATA\[.*?(?:\]\]>|\Z)", re.DOTALL)
RAW = frozenset(str.split("iframe noembed noframes noscript script style textarea title xmp"))  # no tags inside
FOREIGN = frozenset({"math", "svg"})


class Attribute(NamedTuple):
    """An attribute: its name in lower case, its value with references, and how both are written."""

    name: str
    value: str
    source: str


class HtmlToken(NamedTuple):
    """A piece of the source from `start` to `stop`. A "hidden" one is no text and no tag: a comment, a declaration."""

    kind: Literal["text", "start", "end", "hidden"]
    start: int
    stop: int
    tag: str = ""
    attributes: tuple[Attribute, ...] = ()


def cut_tokens(source: str) -> Iterator[HtmlToken]:
    """Yield the tokens of HTML; half a tag at the end is none, as for a browser."""
    at, num_foreign = 0, 0
    while at < len(source):
        token = _token_at(source, at, in_foreign=num_foreign > 0)
        if token is None:
            return
        yield token
        at = token.stop
        if token.tag in FOREIGN and not source.endswith("/>", token.start, token.stop):
            num_foreign += 1 if token.kind == "start" else -1
        if token.kind == "start" and token.tag in RAW | {"plaintext"} and num_foreign <= 0:
            stop = _raw_end(source, token)
            if stop > at:
                yield HtmlToken("text", at, stop, token.tag)
            at = stop


def _token_at(source: str, at: int, *, in_foreign: bool) -> HtmlToken | None:
    if source[at] != "<":
        return _text(source, at)
    if found := TAG.match(source, at):
        return _tag(source, found)
    hidden = [COMMENT, CDATA, BOGUS] if in_foreign else [COMMENT, BOGUS]
    for pattern in hidden:
        if found := pattern.match(source, at):
            return HtmlToken("text" if pattern is CDATA else "hidden", at, found.end())
    return _text(source, at)  # a < that begins nothing


def _text(source: str, at: int) -> HtmlToken:
    """Return the text up to the next < that begins something."""
    found = BEGINNING.search(source, at + 1)
    return HtmlToken("text", at, len(source) if found is None else found.start())


def _tag(source: str, opening: re.Match[str]) -> HtmlToken | None:
    at, attributes = opening.end(), dict[str, Attribute]()
    while not (end := TAG_END.match(source, at)):
        found = ATTRIBUTE.match(source, at)
        if found is None:  # the source ends inside the tag
            return None
        name, value = found[1].lower(), found[2] or ""
        attributes.setdefault(name, Attribute(name, value, f"{found[1]}={value}" if value else f'{found[1]}=""'))
        at = found.end()
    kind: Literal["start", "end"] = "end" if opening[1] else "start"
    return HtmlToken(kind, opening.start(), end.end(), opening[2].lower(), tuple(attributes.values()))


def _raw_end(source: str, start: HtmlToken) -> int:
    """Return where the raw text after a start tag ends."""
    if start.tag == "plaintext":
        return len(source)
    found = re.compile(rf"</{start.tag}(?=[\t\n\f\r />])", re.IGNORECASE).search(source, start.stop)
    return len(source) if found is None else found.start()
