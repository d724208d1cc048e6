"""A text with inline tags: its characters, the elements around each, and how such texts are written again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, final

from saccade.serving.html.tree import Element, Node, Verbatim, escaped, texts, written

Path = tuple[Element | Verbatim, ...]  # the elements around a word, the outermost first; a Raw stands for its own words
ID = re.compile(r"""\sid\s*=\s*("[^"]*"|'[^']*'|[^\s>]+)""", re.IGNORECASE)


class Item(NamedTuple):
    """HTML that is written, and the elements around it; None: between two items, as far as they share theirs."""

    html: str
    path: Path | None


class Wordless(NamedTuple):
    """Something without words: an image, a comment, an empty element. It stands before a place in the text."""

    place: int
    html: str
    path: Path
    has_space: bool  # behind it


@final
@dataclass
class Inline:
    """A text that sentences are found in, across tags. One space stands for any white space, but at its ends."""

    text: str = ""
    paths: list[Path] = field(default_factory=list)
    anchors: list[Wordless] = field(default_factory=list)
    before: str = ""
    after: str = ""

    @property
    def is_uniform(self) -> bool:
        """Whether there is nothing to be put in its place."""
        return not self.anchors and len(set(self.paths)) <= 1 and not any(map(_is_raw, self.paths[:1]))

    def add(self, node: Node, path: Path = ()) -> None:
        """A node behind what is there."""
        if isinstance(node, str):
            self._add_text(node, path)
        elif isinstance(node, Verbatim) and node.content:
            self._add_text(node.content, (*path, node))
        elif isinstance(node, Verbatim) or not "".join(texts(node)).strip():
            self._flush(path)
            self.anchors.append(Wordless(len(self.text), written(node), path, has_space=False))
        else:
            for child in node.children:
                self.add(child, (*path, node))

    def around(self, text: str) -> str:
        """Another text in the place of this one, where it is uniform."""
        return self.before + write([Item(escaped(text), self.paths[0] if self.paths else ())]) + self.after

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
        """White space that turned out not to be at the end."""
        if self.after and self.text and not self.text.endswith(" "):
            self.text += " "
            self.paths.append(path)
        self.after = ""


def write(items: Iterable[Item]) -> str:
    """Items with their elements opened and closed around them: well-formed, whatever their order."""
    opened: Path = ()
    seen: set[Element | Verbatim] = set()
    html: list[str] = []
    between = ""
    for item in _once(items):
        if item.path is None:
            between += item.html
            continue
        shared = len(common([opened, item.path]))
        html += [element.end for element in reversed(opened[shared:]) if isinstance(element, Element)]
        html.append(between)
        for element in item.path[shared:]:
            if isinstance(element, Element):
                html.append(ID.sub("", element.start) if element in seen else element.start)
            seen.add(element)
        html.append(item.html)
        opened, between = item.path, ""
    html += [element.end for element in reversed(opened) if isinstance(element, Element)]
    return "".join([*html, between])


def common(paths: Sequence[Path]) -> Path:
    """The elements that all have around them."""
    shared = 0
    while all(len(path) > shared and path[shared] is paths[0][shared] for path in paths):
        shared += 1
    return paths[0][:shared]


def _once(items: Iterable[Item]) -> Iterable[Item]:
    """What isn't translated is written as it was, once, for all the words that stand for it."""
    seen: set[Element | Verbatim] = set()
    between: Item | None = None
    for item in items:
        if item.path is None:
            between = item if between is None else Item(between.html + item.html, None)
            continue
        raw = next((element for element in item.path if isinstance(element, Verbatim)), None)
        if raw is not None and raw in seen:
            between = None
            continue
        if between is not None:
            yield between
            between = None
        if raw is None:
            yield item
        else:
            seen.add(raw)
            yield Item(raw.text, item.path[: item.path.index(raw)])
    if between is not None:
        yield between


def _is_raw(path: Path) -> bool:
    return any(isinstance(element, Verbatim) for element in path)
