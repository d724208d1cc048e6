"""Puts placeholders into an output, where it read what stood beside them in the source."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from saccade.data.text.placeholders import Placeholder
from saccade.data.text.tokenizer import SPACE, Tokenizer, Vocabulary
from saccade.inspection.insight import TextSide, merge_pieces
from saccade.tasks.translate.result import Kept, TranslationResult

DECAY = 0.5  # what the next word further away counts
PARTS = re.compile(r"([^\w\s]*)(.*?)([^\w\s]*)", re.DOTALL)  # of a word: punctuation before and after it


class Reading(NamedTuple):
    """An output and the source it is of, and the weights of its words on those of the source; None: there are none."""

    source: TextSide
    output: TextSide
    weight_TS: Tensor | None


class Gap(NamedTuple):
    """A place between two words of an output: the word after it, the piece after it, and the character."""

    word: int
    piece: int
    character: int


def read_words(source: TextSide, output: TextSide, weight_TS: Tensor | None) -> Reading:
    """Make a reading of the weights between pieces; </s> is not a word."""
    if weight_TS is None:
        return Reading(source, output, None)
    if not output.words or not source.words:
        return Reading(source, output, torch.zeros(len(output.words), len(source.words)))
    words_TS = merge_pieces(weight_TS[: len(output.pieces), : len(source.pieces)], output, source)
    return Reading(source, output, words_TS)


def put_back(
    result: TranslationResult, placeholders: Sequence[Placeholder], reading: Reading, tokenizer: Tokenizer
) -> TranslationResult:
    """Return the output with every placeholder in it, once, as a piece that is certain."""
    gaps = [_find_gap(reading, one) for one in placeholders]
    order = sorted(range(len(gaps)), key=lambda row: (gaps[row].word, gaps[row].character, row), reverse=True)
    way = "by length" if reading.weight_TS is None else "aligned"
    for row in order:
        result = _insert(result, placeholders[row], gaps[row], _column(reading.source, placeholders[row]), tokenizer)
    return result._replace(kept=tuple(Kept(one.text, way) for one in placeholders))


def _find_gap(reading: Reading, one: Placeholder) -> Gap:
    """Find the gap that has most of what reads the source before a placeholder before it, and of the rest behind it."""
    source, output = reading.source, reading.output
    before = _words_before(source, one.place)
    count, total = len(output.words), len(source.words)
    if reading.weight_TS is None:
        word = round(count * before / max(1, total))
    else:
        column = torch.arange(total) - before
        nearness_S = DECAY ** torch.where(column < 0, -1 - column, column).float()
        side_S = torch.where(column < 0, 1.0, -1.0) * nearness_S
        gain_T = reading.weight_TS[:count, :total] @ side_S  # of each word that is written before the gap
        score_G = torch.cat([gain_T.new_zeros(1), gain_T.cumsum(0)])
        word = int(score_G.argmax())
    return _between(output, word, one)


def _words_before(side: TextSide, place: int) -> int:
    """Count the words that begin before a place of a text."""
    return sum(start < place for start, _ in find_spans(side))


def find_spans(side: TextSide) -> list[tuple[int, int]]:
    """Return where each word of a text begins and ends; one that the text spells otherwise is empty."""
    found, at = list[tuple[int, int]](), 0
    for word in side.words:
        start = side.text.find(word, at)
        start, stop = (at, at) if start < 0 else (start, start + len(word))
        found.append((start, stop))
        at = stop
    return found


def _between(output: TextSide, word: int, one: Placeholder) -> Gap:
    """Return the gap before a word; punctuation that stood beside the placeholder stays on its side."""
    spans, firsts = find_spans(output), [output.word_of_piece.index(number) for number in range(len(output.words))]
    piece = firsts[word] if word < len(firsts) else len(output.pieces)
    character = spans[word - 1][1] if word else 0
    if word and _is_mark(one.after) and (ending := _parts(output.words[word - 1])[2]):
        character -= len(ending)
        while piece > firsts[word - 1] + 1 and not re.search(r"\w", output.pieces[piece - 1].lstrip(SPACE)):
            piece -= 1
    return Gap(word, piece, character)


def _parts(word: str) -> tuple[str, str, str]:
    found = PARTS.fullmatch(word)
    assert found is not None
    return found[1], found[2], found[3]


def _is_mark(character: str) -> bool:
    return re.fullmatch(r"[^\w\s]", character) is not None


def _column(source: TextSide, one: Placeholder) -> int:
    """Return the first piece of the source behind a placeholder."""
    before = _words_before(source, one.place)
    return source.word_of_piece.index(before) if before < len(source.words) else len(source.pieces)


def _insert(
    result: TranslationResult, one: Placeholder, gap: Gap, column: int, tokenizer: Tokenizer
) -> TranslationResult:
    left, right = result.text[: gap.character].rstrip(" "), result.text[gap.character :].lstrip(" ")
    lead = "" if not left or _touches(one.before, left[-1], one) else " "
    trail = "" if not right or _touches(one.after, right[0], one) else " "
    pieces = _pieces(one.text, lead, tokenizer)
    changed = result._replace(
        text=f"{left}{lead}{one.text}{trail}{right}",
        pieces=[*result.pieces[: gap.piece], *pieces, *result.pieces[gap.piece :]],
        log_probabilities=_spread(result.log_probabilities, gap.piece, [0.0] * len(pieces)),
    )
    if result.attention is None or result.source_pieces is None:
        return changed
    weight_TS = _widen(_widen(result.attention, gap.piece, len(pieces)).mT, column, 1).mT.contiguous()
    weight_TS[gap.piece : gap.piece + len(pieces), column] = 1.0
    return changed._replace(attention=weight_TS, source_pieces=_spread(result.source_pieces, column, [one.text]))


def _touches(before: str, now: str, one: Placeholder) -> bool:
    """Tell whether a placeholder touches a character, as it touched such a one in the source."""
    return bool(before) and (one.is_tag or _is_mark(before) == _is_mark(now))


def _pieces(text: str, lead: str, tokenizer: Tokenizer) -> list[str]:
    if isinstance(tokenizer, Vocabulary):
        return [text] if tokenizer.kind == "words" or not lead else [" ", text]
    return [f"{SPACE if lead else ''}{text}"]


def _spread(row: Sequence[Any], at: int, more: Sequence[Any]) -> list[Any]:
    return [*row[:at], *more, *row[at:]]


def _widen(weight_TS: Tensor, at: int, count: int) -> Tensor:
    return torch.cat([weight_TS[:at], weight_TS.new_zeros(count, weight_TS.shape[1]), weight_TS[at:]])
