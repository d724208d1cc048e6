"""HTML as a tree that can be written again: every element is closed, untranslated parts stay as they were."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape
from html.parser import HTMLParser
from itertools import accumulate
from typing import final

from saccade.serving.http.responses import refuse

MAX_DEPTH = 100
VOID = frozenset(str.split("area base br col embed hr img input link meta param source track wbr"))
OPAQUE = frozenset(
    str.split("""
    applet canvas code iframe kbd math noembed object pre samp script style svg template textarea tt var
""")
)
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
class Verbatim:
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
    children: list[Node] = field(default_factory=list)

    @property
    def end(self) -> str:
        return f"</{self.tag}>" if self.tag else ""

    @property
    def is_structure(self) -> bool:
        """Whether it ends sentences: it is a block, or has one inside."""
        return self.tag in BLOCK or any(is_structure(child) for child in self.children)


Node = Element | Verbatim | str


def is_structure(node: Node) -> bool:
    """Return whether a sentence ends before a node."""
    return node.is_structure if isinstance(node, Element) else isinstance(node, Verbatim) and node.is_break


def parse(source: str) -> Element:
    """Parse a document or a part of one into a tree."""
    reader = _Reader(source)
    try:
        reader.feed(source)
        reader.close()
    except AssertionError:  # the parser raises it for a broken declaration
        refuse("q is not HTML")
    return reader.finish()


def texts(node: Node) -> Iterator[str]:
    """Yield all texts that are translated."""
    if isinstance(node, str):
        yield node
    elif isinstance(node, Element):
        for child in node.children:
            yield from texts(child)


@final
class _Reader(HTMLParser):
    """Builds the tree; inside an element that is not translated, it only keeps the open tags."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.source = source
        self.line_starts = [0, *accumulate(len(line) + 1 for line in source.split("\n"))]
        self.open = [Element("", "")]
        self.opaque: list[str] = []  # the open tags, from the one that is not translated
        self.opaque_tag, self.opaque_start = "", 0
        self.opaque_text: list[str] = []

    def finish(self) -> Element:
        """Close what is still open, and return the root."""
        if self.opaque:
            text = self.source[self.opaque_start :]
            if text.rfind("<") > text.rfind(">"):  # half a tag would break the next one
                text = text[: text.rfind("<")]
            self._add_verbatim(text + "".join(f"</{tag}>" for tag in reversed(self.opaque)))
        return self.open[0]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        raw = self.get_starttag_text() or ""
        if len(self.opaque) == 1 and tag in CLOSED_BY.get(self.opaque[0], ()):
            self._add_verbatim(f"{self.source[self.opaque_start : self._offset()]}</{self.opaque[0]}>")
        if self.opaque:
            self.opaque += [] if tag in VOID else [tag]
        elif tag in VOID:
            self._add(Verbatim(raw, tag in BREAKS))
        elif tag in OPAQUE or _is_untranslated(attrs):
            self._close_for(tag)
            self.opaque, self.opaque_text = [tag], []
            self.opaque_tag, self.opaque_start = tag, self._offset()
        else:
            self._close_for(tag)
            if len(self.open) > MAX_DEPTH:
                refuse(f"q is nested too deeply; allowed: {MAX_DEPTH} elements")
            element = Element(tag, raw)
            self._add(element)
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        del attrs
        if not self.opaque:
            self._add(Verbatim(self.get_starttag_text() or "", tag in BREAKS or tag in BLOCK))

    def handle_endtag(self, tag: str) -> None:
        if self.opaque:
            self._end_opaque(tag)
            return
        depth = next((depth for depth in range(len(self.open) - 1, 0, -1) if self.open[depth].tag == tag), None)
        if depth is not None:  # elements inside are closed too; an end tag without a start is ignored
            del self.open[depth:]

    def handle_data(self, data: str) -> None:
        if self.opaque:
            self.opaque_text.append(data)
        else:
            self._add(data)

    def handle_comment(self, data: str) -> None:
        self._add_raw(f"<!--{data}-->")

    def handle_decl(self, decl: str) -> None:
        self._add_raw(f"<!{decl}>", is_break=True)

    def handle_pi(self, data: str) -> None:
        self._add_raw(f"<?{data}>")

    def unknown_decl(self, data: str) -> None:
        self._add_raw(f"<![{data}]>")

    def _add_raw(self, text: str, *, is_break: bool = False) -> None:
        if not self.opaque:
            self._add(Verbatim(text, is_break))

    def _add(self, node: Node) -> None:
        self.open[-1].children.append(node)

    def _close_for(self, tag: str) -> None:
        """Close an open element whose end tag was omitted before this tag."""
        if tag in CLOSED_BY.get(self.open[-1].tag, ()):
            self.open.pop()

    def _end_opaque(self, tag: str) -> None:
        if tag not in self.opaque:
            return
        while self.opaque.pop() != tag:
            pass
        if not self.opaque:
            self._add_verbatim(self.source[self.opaque_start : self.source.index(">", self._offset()) + 1])

    def _add_verbatim(self, text: str) -> None:
        self._add(Verbatim(text, self.opaque_tag in BLOCK, " ".join("".join(self.opaque_text).split())))
        self.opaque = []

    def _offset(self) -> int:
        line, column = self.getpos()
        return self.line_starts[line - 1] + column


def _is_untranslated(attrs: list[tuple[str, str | None]]) -> bool:
    given = {name: value or "" for name, value in attrs}
    return given.get("translate", "").lower() == "no" or "notranslate" in given.get("class", "").split()


def write_node(node: Node) -> str:
    """Write a node and its children as HTML."""
    if isinstance(node, str):
        return escape_text(node)
    if isinstance(node, Verbatim):
        return node.text
    return node.start + "".join(map(write_node, node.children)) + node.end


def escape_text(text: str) -> str:
    """Escape a text between tags."""
    return escape(text, quote=False)
