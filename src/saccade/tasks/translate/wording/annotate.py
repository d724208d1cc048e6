"""Writes terms into sources, behind the words that they translate: `a ｟ cat ｜ Katze ｠ sleeps`.

A model that reads some of its training sources so learns to write what it is told (Dinu 2019, section 3). The marks are
text, so no network, tokenizer or export is other than without them.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

from saccade.data.held_out import HASHES, hash_key
from saccade.data.text.corpus import Pair
from saccade.data.text.word_pairs import WORD, Link, WordPairs

MARKS = BEGIN, BETWEEN, END = "｟", "｜", "｠"
MOST_TERMS = 3  # that are written into one training source
GROWS = 0.3  # the chance of a term to take in the next word
OTHER_FORM = 0.5  # the chance of a word to be given in its commonest form: the model learns to inflect


class Note(NamedTuple):
    """A term for a part of a source: where it begins and stops, and what it shall be called."""

    start: int
    stop: int
    source: str
    target: str

    @property
    def num_added(self) -> int:
        """The characters that it takes beside its source."""
        return len(f"{BEGIN}  {BETWEEN} {self.target} {END}")


def write_notes(text: str, notes: Iterable[Note]) -> tuple[str, tuple[Note, ...]]:
    """Return a source with its notes, which must not overlap, and where each is there."""
    written, placed, at = "", list[Note](), 0
    for note in sorted(notes):
        written += text[at : note.start]
        start = len(written)
        written += f"{BEGIN} {note.source} {BETWEEN} {note.target} {END}"
        placed.append(note._replace(start=start, stop=len(written)))
        at = note.stop
    return written + text[at:], tuple(placed)


def find_written(place: int, notes: Sequence[Note]) -> int:
    """Return where a place of a text is once its notes, given as they are there, are written into it."""
    for note in notes:
        place += note.num_added if note.start < place else 0
    return place


@final
@dataclass(frozen=True)
class Annotator:
    """Writes words of the target into a share of the sources to train on, always the same ones."""

    pairs: WordPairs
    share: float

    def __call__(self, pair: Pair) -> Pair:
        """Return the pair, perhaps with notes in its source."""
        if "" in pair or hash_key(f"terms\t{pair.source}") >= self.share * HASHES:
            return pair
        source, target = (list(WORD.finditer(side)) for side in pair)
        links = self.pairs.link([word[0] for word in source], [word[0] for word in target])
        drawn, notes = random.Random(hash_key(pair.source)), list[Note]()
        for first, last in _draw_spans(links, drawn):
            text = pair.target[target[first.target].start() : target[last.target].end()]
            if first == last and drawn.random() < OTHER_FORM:
                text = self.pairs.find_common_form(source[first.source][0], text)
            start, stop = source[first.source].start(), source[last.source].end()
            notes.append(Note(start, stop, pair.source[start:stop], text))
        return pair._replace(source=write_notes(pair.source, notes)[0])


def _draw_spans(links: Sequence[Link], drawn: random.Random) -> Iterator[tuple[Link, Link]]:
    """Yield the first and the last link of some terms: a word each, or words that stand together on both sides."""
    follow, used = set(links), set[Link]()
    for first in drawn.sample(links, min(len(links), drawn.randint(1, MOST_TERMS))):
        last = first
        while (after := Link(last.source + 1, last.target + 1)) in follow and drawn.random() < GROWS:
            last = after
        span = {Link(first.source + step, first.target + step) for step in range(last.source - first.source + 1)}
        if not span & used:
            used |= span
            yield first, last
