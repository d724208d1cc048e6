"""Carry the tags of a sentence to its translation: each output word gets the tags of the source word that it read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from saccade.data.text.placeholders import PLACEHOLDER
from saccade.data.text.sentences import SentenceSpan
from saccade.serving.html.gather import is_whole
from saccade.serving.html.inline import InlineText, Item, Path, WordlessElement, common
from saccade.serving.html.tree import VerbatimHtml, escape_text
from saccade.serving.v1.word_links import AlignedWords

PARTS = re.compile(r"([^\w\s]*)(.*?)([^\w\s]*)", re.DOTALL)  # of a word: punctuation before and after it


class Word(NamedTuple):
    """A word with the punctuation before and after it, and the elements around each of the three."""

    parts: tuple[str, str, str]
    paths: tuple[Path, Path, Path]
    all_paths: tuple[Path, ...]  # of its letters too: <b>a</b><i>b</i><u>c</u><s>d</s> is one word

    @property
    def core(self) -> Path:
        """The elements around the word itself."""
        return self.paths[1]


def carry_tags(
    inline: InlineText, start: int, sentence: SentenceSpan, output: str | None, aligned: AlignedWords | None
) -> list[Item]:
    """Return the items of a translated sentence, with the elements that were around its source words."""
    stop = start + len(sentence.text)
    end = stop + len(sentence.after)
    is_last = end == len(inline.text)
    first = start - len(sentence.before)
    anchors = [anchor for anchor in inline.anchors if first <= anchor.place < end or (is_last and anchor.place == end)]
    if output is None or aligned is None:
        items = _keep(inline, start, stop, anchors)
    else:
        items = _translate(inline, start, sentence.text, output, aligned, anchors)
    return [Item(sentence.before, None), *items, Item(sentence.after, None)]


def _keep(inline: InlineText, start: int, stop: int, anchors: Sequence[WordlessElement]) -> list[Item]:
    items = [_item(anchor) for anchor in anchors if anchor.place < start]
    for place in range(start, stop):
        items += [_item(anchor) for anchor in anchors if anchor.place == place]
        items.append(Item(escape_text(inline.text[place]), inline.paths[place]))
    return items + [_item(anchor) for anchor in anchors if anchor.place >= stop]


def _translate(
    inline: InlineText, start: int, text: str, output: str, aligned: AlignedWords, anchors: Sequence[WordlessElement]
) -> list[Item]:
    sources = [_word(inline, start, found) for found in re.finditer(r"\S+", text)]
    words = output.split()
    read = _source_words(aligned, len(words), len(sources))
    paths = _paths(sources, read, aligned)
    places = [start + found.start() for found in re.finditer(r"\S+", text)]
    lost = _find_lost(sources, places, paths)
    before = _place_anchors([*anchors, *lost], places, read)
    items: list[Item] = []
    for number, word in enumerate(words):
        items += [Item(" ", None)] if number else []
        items += [_item(anchor) for anchor in before[number]]
        ways = _punctuation_paths(_parts(word), paths[number], read[number], sources)
        items += [Item(escape_text(part), way) for part, way in zip(_parts(word), ways, strict=True) if part]
    return items + [_item(anchor) for anchor in before[len(words)]]


def _word(inline: InlineText, start: int, found: re.Match[str]) -> Word:
    parts = _parts(found[0])
    first, last = start + found.start(), start + found.end() - 1
    core = min(first + len(parts[0]), last)
    paths = (inline.paths[first], inline.paths[core], inline.paths[last])
    return Word(parts, paths, tuple(dict.fromkeys(inline.paths[first : last + 1])))


def _parts(word: str) -> tuple[str, str, str]:
    """Split a word into punctuation, the word itself, and punctuation; a placeholder is not split."""
    if PLACEHOLDER.search(word):
        return "", word, ""
    found = PARTS.fullmatch(word)
    assert found is not None
    return found[1], found[2], found[3]


def _source_words(aligned: AlignedWords, num_words: int, num_sources: int) -> list[int | None]:
    """Return the source word that each output word read; the aligner may count other words than white space does."""
    if not aligned.words or not aligned.source_words:
        return [None] * num_words
    read = aligned.read
    found = [read[number * len(aligned.words) // num_words] for number in range(num_words)]
    return [None if one is None else one * num_sources // len(aligned.source_words) for one in found]


def _paths(sources: Sequence[Word], read: list[int | None], aligned: AlignedWords) -> list[Path]:
    """Return the elements around each word of the translation."""
    cores: list[Path | None] = [None if one is None else sources[one].core for one in read]
    _adopt(sources, cores, aligned)
    base = common([word.core for word in sources])
    filled = [_fill(cores, number, base) for number in range(len(cores))]
    _bridge(filled)
    return filled


def _punctuation_paths(
    parts: tuple[str, str, str], core: Path, read: int | None, sources: Sequence[Word]
) -> tuple[Path, Path, Path]:
    """Put punctuation inside the elements of the same punctuation in the source, at the nearest word."""
    if not parts[1]:  # it is a word of its own
        return core, core, core
    here = len(sources) if read is None else read
    lead, trail = (_punctuation_path(parts[side], side, here, sources) if parts[side] else core for side in (0, 2))
    return core if lead is None else lead, core, core if trail is None else trail


def _punctuation_path(punctuation: str, side: int, here: int, sources: Sequence[Word]) -> Path | None:
    same = [number for number, word in enumerate(sources) if word.parts[side] == punctuation]
    return sources[min(same, key=lambda number: abs(number - here))].paths[side] if same else None


def _adopt(sources: Sequence[Word], cores: list[Path | None], aligned: AlignedWords) -> None:
    """Put an element whose words no output word read most around the word with the greatest weight on them."""
    kept = {element for path in cores if path is not None for element in path}
    for number, word in enumerate(sources):
        if missing := [element for element in word.core if element not in kept]:
            column = number * len(aligned.source_words) // len(sources)
            best = max(
                range(len(cores)),
                key=lambda row: aligned.weight(row * len(aligned.words) // len(cores), column),
                default=None,
            )
            if best is not None:
                cores[best] = word.core
                kept.update(missing)


def _fill(cores: Sequence[Path | None], number: int, base: Path) -> Path:
    """Return the path of a word; one that read no source word gets the elements that its neighbours share."""
    if (own := cores[number]) is not None:
        return own
    earlier = next((path for path in reversed(cores[:number]) if path is not None), base)
    later = next((path for path in cores[number + 1 :] if path is not None), base)
    return common([earlier, later])


def _find_lost(sources: Sequence[Word], places: Sequence[int], paths: Sequence[Path]) -> list[WordlessElement]:
    """Return what no output word is inside of: untranslated elements as they are, other elements without words."""
    kept = {element for path in paths for element in path}
    found: list[WordlessElement] = []
    for word, place in zip(sources, places, strict=True):
        for path in word.all_paths:
            missing = next((number for number, element in enumerate(path) if element not in kept), None)
            if missing is not None:
                found.append(_without_words(path, place))
                kept.update(path)
    return found


def _without_words(path: Path, place: int) -> WordlessElement:
    return WordlessElement(place, "", path, has_space=isinstance(path[-1], VerbatimHtml))


def _bridge(paths: list[Path]) -> None:
    """Keep links whole: put them also around the words between theirs that have no other element."""
    elements = {element for path in paths for element in path if is_whole(element)}
    for element in elements:
        rows = [row for row, path in enumerate(paths) if element in path]
        way = paths[rows[0]][: paths[rows[0]].index(element) + 1]
        for row in range(rows[0], rows[-1]):
            if common([paths[row], way]) == paths[row]:
                paths[row] = way


def _place_anchors(
    anchors: Sequence[WordlessElement], places: Sequence[int], read: Sequence[int | None]
) -> list[list[WordlessElement]]:
    """Put each anchor before the output word that read the source word after it."""
    before: list[list[WordlessElement]] = [[] for _ in range(len(read) + 1)]
    for anchor in anchors:
        source = next((number for number, place in enumerate(places) if place >= anchor.place), None)
        if source is None:
            before[len(read)].append(anchor)
        elif source == 0 or not read:
            before[0].append(anchor)
        else:
            near = [(abs(one - source), number) for number, one in enumerate(read) if one is not None]
            before[min(near)[1] if near else len(read)].append(anchor)
    return before


def _item(anchor: WordlessElement) -> Item:
    return Item(anchor.html + (" " if anchor.has_space else ""), anchor.path, may_move=True)
