"""HTML as a tree that can be written again: every element is closed, untranslated parts stay as they were."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from html import escape, unescape
from string import whitespace
from typing import final

from saccade.serving.html.tokens import FOREIGN, Attribute, HtmlToken, cut_tokens
from saccade.serving.http.responses import refuse

MAX_DEPTH = 100
VOID = frozenset(str.split("area base br col embed hr img input link meta param source track wbr"))
OPAQUE = frozenset(
    str.split("""
    applet canvas code frameset iframe kbd math noembed noframes noscript object plaintext pre samp script style svg
    template textarea tt var xmp
""")
)
WORDLESS = OPAQUE - {"code", "kbd", "samp", "tt", "var"}  # their text is no part of a sentence
DECLARATION = re.compile("<!doctype", re.IGNORECASE)
BLOCK = frozenset(
    str.split("""
    address article aside audio blockquote body caption center colgroup dd details dialog dir div dl dt fieldset
    figcaption figure footer form h1 h2 h3 h4 h5 h6 head header hgroup hr html iframe legend li main menu nav noscript
    ol optgroup option p picture pre script search section select style summary table tbody td template textarea tfoot
    th thead title tr ul video
""")
)
BREAKS = frozenset({"br", "hr", "meta", "link", "base", "col"})  # void tags that end a sentence
CLOSED_BY = {  # end tags that may be omitted: the new elements that close an open one
    "li": {"li"},
    "dt": {"dt", "dd"},
    "dd": {"dt", "dd"},
    "tr": {"tr", "tbody", "tfoot"},
    "td": {"td", "th", "tr", "tbody", "tfoot"},
    "th": {"td", "th", "tr", "tbody", "tfoot"},
    "option": {"option", "optgroup"},
    "p": BLOCK - {"body", "html", "head", "script", "style", "template", "noscript", "iframe", "audio", "video"},
}


@final
@dataclass(eq=False, frozen=True)
class VerbatimHtml:
    """HTML that is written as it was read: a void tag, a comment, an element that is not translated."""

    text: str
    is_break: bool
    content: str = ""  # its text, as part of a sentence


@final
@dataclass(eq=False)
class Element:
    """An element with its children; the root has no tag."""

    tag: str
    start: str
    attributes: tuple[Attribute, ...] = ()
    children: list[Node] = field(default_factory=list)

    @property
    def copy(self) -> str:
        """Its start tag once more: an id is there once."""
        others = (one.source for one in self.attributes if one.name != "id")
        return f"<{' '.join([self.tag, *others])}>"

    @property
    def end(self) -> str:
        return f"</{self.tag}>" if self.tag else ""

    @property
    def is_structure(self) -> bool:
        """Return True if it ends sentences: it is a block, or has one inside."""
        return self.tag in BLOCK or any(is_structure(child) for child in self.children)


Node = Element | VerbatimHtml | str


@final
@dataclass(frozen=True)
class HtmlSource:
    """HTML, its tree, and the tokens of its texts, for who replaces these where they stand."""

    source: str
    root: Element
    text_tokens: Sequence[HtmlToken]
    is_nested: bool  # its tags are well nested, so that browsers read the same tree

    @property
    def texts(self) -> list[str]:
        """Return its texts with their character references replaced."""
        return [unescape(self.source[token.start : token.stop]) for token in self.text_tokens]

    def write_in_place(self, texts: Iterable[str]) -> str:
        """Write it with other texts where its own stand; no tag moves. A blank text leaves its own."""
        html, at = list[str](), 0
        for token, text in zip(self.text_tokens, texts, strict=True):
            kept = self.source[token.start : token.stop]
            html += [self.source[at : token.start], escape_text(text) if text.strip() else kept]
            at = token.stop
        return "".join([*html, self.source[at:]])


def is_structure(node: Node) -> bool:
    """Return whether a sentence ends before a node."""
    return node.is_structure if isinstance(node, Element) else isinstance(node, VerbatimHtml) and node.is_break


def parse(source: str) -> Element:
    """Parse a document or a part of one into a tree."""
    return read_html(source).root


def read_html(source: str) -> HtmlSource:
    """Read a document or a part of one."""
    reader = _Reader(source)
    for token in cut_tokens(source):
        reader.read(token)
    return reader.finish()


def texts(node: Node) -> Iterator[str]:
    """Yield all texts that are translated."""
    if isinstance(node, str):
        yield node
    elif isinstance(node, Element):
        for child in node.children:
            yield from texts(child)


@final
class _Reader:
    """Builds the tree; inside an element that is not translated, it only keeps the open tags."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.open = [Element("", "")]
        self.opaque: list[str] = []  # the open tags, from the one that is not translated
        self.opaque_tag, self.opaque_start, self.end = "", 0, 0
        self.opaque_text: list[str] = []
        self.text_tokens: list[HtmlToken] = []
        self.is_nested = True

    def read(self, token: HtmlToken) -> None:
        """Add the next token of the source."""
        raw = self.source[token.start : token.stop]
        if token.kind == "start":
            self._start(token, raw)
        elif token.kind == "end":
            self._end(token)
        elif token.kind == "text":
            self._text(token, unescape(raw))
        elif not self.opaque:
            whole = raw if raw.endswith(">") else raw + ("-->" if raw.startswith("<!--") else ">")
            self._add(VerbatimHtml(whole, DECLARATION.match(raw) is not None))
        self.end = token.stop

    def _text(self, token: HtmlToken, text: str) -> None:
        if self.opaque:
            self.opaque_text.append(text)
        else:
            self._add(text)
            self.text_tokens += [token] if text.strip(f"{whitespace}\0") else []

    def finish(self) -> HtmlSource:
        """Close what is still open, and return everything."""
        is_nested = self.is_nested and not self.opaque and not self._is_inside("title")
        if self.opaque:
            closing = "".join(f"</{tag}>" for tag in reversed(self.opaque))
            text = self.source[self.opaque_start : self.end]
            if text.rfind("<") > text.rfind(">"):  # half a tag would break the next one
                text = text[: text.rfind("<")]
            self._add_verbatim(text + closing)
        return HtmlSource(self.source, self.open[0], self.text_tokens, is_nested)

    def _start(self, token: HtmlToken, raw: str) -> None:
        tag = token.tag
        if len(self.opaque) == 1 and tag in CLOSED_BY.get(self.opaque[0], ()):
            self._add_verbatim(f"{self.source[self.opaque_start : token.start]}</{self.opaque[0]}>")
        if self.opaque:
            self.opaque += [] if tag in VOID or (raw.endswith("/>") and self.opaque[0] in FOREIGN) else [tag]
        elif tag in VOID:
            self._add(VerbatimHtml(raw, tag in BREAKS))
        elif tag in OPAQUE or _is_untranslated(token) or (tag == "title" and self._is_inside("select")):
            self._close_for(tag)
            self.opaque, self.opaque_text = [tag], []
            self.opaque_tag, self.opaque_start = tag, token.start
            if tag in FOREIGN and raw.endswith("/>"):
                self.opaque = []
                self._add(VerbatimHtml(raw, is_break=False))
        else:
            self._close_for(tag)
            if len(self.open) > MAX_DEPTH:
                refuse(f"q is nested too deeply; allowed: {MAX_DEPTH} elements")
            element = Element(tag, raw, token.attributes)
            self._add(element)
            self.open.append(element)

    def _end(self, token: HtmlToken) -> None:
        if self.opaque:
            self._end_opaque(token)
            return
        depth = next((depth for depth in range(len(self.open) - 1, 0, -1) if self.open[depth].tag == token.tag), None)
        self.is_nested &= depth is not None and all(inner.tag in CLOSED_BY for inner in self.open[depth + 1 :])
        if depth is not None:  # elements inside are closed too; an end tag without a start is ignored
            del self.open[depth:]

    def _add(self, node: Node) -> None:
        self.open[-1].children.append(node)

    def _is_inside(self, tag: str) -> bool:
        return any(element.tag == tag for element in self.open)

    def _close_for(self, tag: str) -> None:
        """Close an open element whose end tag was omitted before this tag."""
        if tag in CLOSED_BY.get(self.open[-1].tag, ()):
            self.open.pop()

    def _end_opaque(self, token: HtmlToken) -> None:
        if token.tag not in self.opaque:
            return
        while self.opaque.pop() != token.tag:
            pass
        if not self.opaque:
            self._add_verbatim(self.source[self.opaque_start : token.stop])

    def _add_verbatim(self, text: str) -> None:
        has_words = self.opaque_tag not in WORDLESS
        content = " ".join("".join(self.opaque_text).split()) if has_words else ""
        self._add(VerbatimHtml(text, self.opaque_tag in BLOCK, content))
        self.opaque = []


def _is_untranslated(token: HtmlToken) -> bool:
    given = {one.name: unescape(one.value.strip("\"'")) for one in token.attributes}
    return given.get("translate", "").lower() == "no" or "notranslate" in given.get("class", "").split()


def write_node(node: Node) -> str:
    """Write a node and its children as HTML."""
    if isinstance(node, str):
        return escape_text(node)
    if isinstance(node, VerbatimHtml):
        return node.text
    return node.start + "".join(map(write_node, node.children)) + node.end


def escape_text(text: str) -> str:
    """Escape a text between tags."""
    return escape(text, quote=False)
