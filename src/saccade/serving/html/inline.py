"""A text with inline tags: its characters and the elements around each, and how to write them again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, final

from saccade.serving.html.tree import Element, Node, VerbatimHtml, escape_text, texts, write_node

Path = tuple[
    Element | VerbatimHtml, ...
]  # the elements around a word, the outermost first; a VerbatimHtml stands for its own words


class Item(NamedTuple):
    """HTML and the elements around it; None: it stands between two items, inside the elements that they share."""

    html: str
    path: Path | None
    may_move: bool = False  # an image, a remark, an element without words


class WordlessElement(NamedTuple):
    """HTML without words before a place in the text: an image, a comment, an empty element."""

    place: int
    html: str
    path: Path
    has_space: bool  # after it


@final
@dataclass
class InlineText:
    """A text across tags, which is split into sentences. Inside it, one space stands for any white space."""

    text: str = ""
    paths: list[Path] = field(default_factory=list)
    anchors: list[WordlessElement] = field(default_factory=list)
    before: str = ""
    after: str = ""

    @property
    def is_uniform(self) -> bool:
        """Return True if all of it is inside the same elements."""
        return not self.anchors and len(set(self.paths)) <= 1 and not any(map(_is_verbatim, self.paths[:1]))

    def add(self, node: Node, path: Path = ()) -> None:
        if isinstance(node, str):
            self._add_text(node, path)
        elif isinstance(node, VerbatimHtml) and node.content:
            self._add_text(node.content, (*path, node))
        elif isinstance(node, VerbatimHtml) or not "".join(texts(node)).strip():
            self._flush(path)
            self.anchors.append(WordlessElement(len(self.text), write_node(node), path, has_space=False))
        else:
            for child in node.children:
                self.add(child, (*path, node))

    def wrap(self, text: str) -> str:
        """Write another text inside the elements of this one, which must be uniform."""
        return self.before + write([Item(escape_text(text), self.paths[0] if self.paths else ())]) + self.after

    def _add_text(self, text: str, path: Path) -> None:
        for part in re.findall(r"\s+|\S+", text):
            if not part.isspace():
                self._flush(path)
                self.text += part
                self.paths += [path] * len(part)
            elif not self.text and not self.anchors:
                self.before += part
            else:
                self.after += part
                if self.anchors and self.anchors[-1].place == len(self.text):
                    self.anchors[-1] = self.anchors[-1]._replace(has_space=True)

    def _flush(self, path: Path) -> None:
        """Write the pending white space as one space: it is not at the end."""
        if self.after and self.text and not self.text.endswith(" "):
            self.text += " "
            self.paths.append(path)
        self.after = ""


def write(items: Iterable[Item]) -> str:
    """Write items, and open and close the elements around them: the result is well-formed for any order."""
    opened: Path = ()
    seen: set[Element | VerbatimHtml] = set()
    html: list[str] = []
    between = ""
    for item in _merge_verbatim(items):
        if item.path is None:
            between += item.html
            continue
        shared = len(common([opened, item.path]))
        html += [element.end for element in reversed(opened[shared:]) if isinstance(element, Element)]
        html.append(between)
        for element in item.path[shared:]:
            if isinstance(element, Element):
                html.append(element.copy if element in seen else element.start)
            seen.add(element)
        html.append(item.html)
        opened, between = item.path, ""
    html += [element.end for element in reversed(opened) if isinstance(element, Element)]
    return "".join([*html, between])


def common(paths: Sequence[Path]) -> Path:
    """Return the elements around all of them."""
    shared = 0
    while all(len(path) > shared and path[shared] is paths[0][shared] for path in paths):
        shared += 1
    return paths[0][:shared]


def _merge_verbatim(items: Iterable[Item]) -> Iterable[Item]:
    """Replace all words of an untranslated element by the element itself, once."""
    seen: set[Element | VerbatimHtml] = set()
    between: Item | None = None
    for item in items:
        if item.path is None:
            between = item if between is None else Item(between.html + item.html, None)
            continue
        verbatim = next((element for element in item.path if isinstance(element, VerbatimHtml)), None)
        if verbatim is not None and verbatim in seen:
            between = None
            continue
        if between is not None:
            yield between
            between = None
        if verbatim is None:
            yield item
        else:
            seen.add(verbatim)
            space = " " if item.html == " " else ""  # after one that no word is left of
            yield Item(verbatim.text + space, item.path[: item.path.index(verbatim)])
    if between is not None:
        yield between


def _is_verbatim(path: Path) -> bool:
    return any(isinstance(element, VerbatimHtml) for element in path)
