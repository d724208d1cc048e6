"""Makes outputs hold the terms of a glossary: a term takes the place of the words that read its source.

The output up to there and the term are what a new search must begin with, so that every search can do it, with all its
caches, and the rest of the output follows from the term. The word before the term may change too, as an article does.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
from torch import Tensor

from saccade.data.text.sentences import UNSPACED
from saccade.data.text.tokenizer import END, SPACE, UNKNOWN, Tokenizer, Vocabulary
from saccade.decoding import Hypothesis
from saccade.inspection.insight import TextSide
from saccade.tasks.translate.result import GlossaryTerm, TranslationResult
from saccade.tasks.translate.wording.annotate import TermNote
from saccade.tasks.translate.wording.put_back import OutputReading, find_spans, read_words

if TYPE_CHECKING:
    from saccade.tasks.translate.predictor import SourceText, Translator

OTHERS = 8  # words that may stand before a term in the place of the one that is there
FORM = 3  # the letters by which a form of a word may be longer or shorter
STEM = 4  # the letters that two forms have in common at least, if a word has so many
SHORTEST = 3  # letters of a word that has forms


class InsistedOutput(NamedTuple):
    """A text, which may have to begin with a prefix, and an output of it."""

    text: SourceText
    found: Hypothesis


Search = Callable[[list["SourceText"]], list[Hypothesis]]  # for the best output of each text


def insist(
    translator: Translator, written: Sequence[InsistedOutput], search: Search, *, takes_forms: bool
) -> list[InsistedOutput]:
    """Search again, until every term is in its output or was forced into it; `takes_forms`: or another form of it."""
    found, forced = list(written), [frozenset[int]() for _ in written]
    while True:
        todo, texts = list[int](), list[_Forced]()
        for row, one in enumerate(found):
            place = _next_place(translator, one, forced[row], takes_forms=takes_forms)
            if place is not None:
                forced[row] |= {place.number}
                todo.append(row)
                texts.append(_Forced(_force(translator, one, place), place.replaced))
        if not todo:
            return found
        for row, one in zip(todo, _search_on(translator, texts, search), strict=True):
            found[row] = one


class _Forced(NamedTuple):
    """A text with a term in what its output must begin with, and the words whose place the term took."""

    text: SourceText
    replaced: frozenset[str]


def _search_on(translator: Translator, texts: Sequence[_Forced], search: Search) -> list[InsistedOutput]:
    """Search behind forced terms; again with another piece behind a term where an output goes on wrongly."""
    given = [one.text for one in texts]
    found = [InsistedOutput(*both) for both in zip(given, search(given), strict=True)]
    mended = {
        row: piece
        for row, one in enumerate(found)
        if (piece := find_next_piece(translator, one, texts[row].replaced)) is not None
    }
    again = [_lengthen(given[row], piece) for row, piece in mended.items()]
    for row, text, best in zip(mended, again, search(again) if again else [], strict=True):
        found[row] = InsistedOutput(text, best)
    return found


def find_next_piece(translator: Translator, one: InsistedOutput, replaced: frozenset[str]) -> int | None:
    """Return the piece that is to follow a forced term; None: the output goes on well, or ends.

    If it goes on with the term's last word (hund, hund-e), it is the likeliest that doesn't. If it says the replaced
    words after all, it is what follows these.
    """
    output, prefix, place = translator.to_result(*one).text, one.text.prefix, len(one.text.prefix_ids)
    if not output.startswith(prefix) or len(output) == len(prefix):
        return None
    both = output[len(prefix) - 1 : len(prefix) + 1]
    if re.fullmatch(r"\w\w", both) and UNSPACED.search(both) is None:
        return _find_other_word(translator, one.text)
    if output[len(prefix) :].split()[0].lower() not in replaced:
        return None
    pieces = one.text.target.pieces(one.found.ids)
    later = range(place + 1, len(pieces))
    return next((one.found.ids[at] for at in later if _begins_word(one.text.target, pieces[at])), None)


@torch.no_grad()
def _find_other_word(translator: Translator, text: SourceText) -> int | None:
    """Return the likeliest piece behind what an output must begin with that begins another word, or is a mark."""
    tokenizer, ids = text.target, text.prefix_ids
    step_V = _log_p(translator, text, [[*ids, END]])[0, len(ids)]
    ranked = (index for index in step_V.argsort(descending=True).tolist() if index > UNKNOWN)
    return next((index for index in ranked if _begins_word(tokenizer, tokenizer.pieces([index])[0])), None)


def _begins_word(tokenizer: Tokenizer, piece: str) -> bool:
    return tokenizer.begins_word(piece) or not re.search(r"\w", piece)


def _lengthen(text: SourceText, index: int) -> SourceText:
    """Return the text, its prefix longer by a piece."""
    tokenizer = text.target
    space = " " if tokenizer.begins_word(tokenizer.pieces([index])[0]) else ""
    return text._replace(
        prefix=f"{text.prefix}{space}{tokenizer.decode([index])}", prefix_ids=[*text.prefix_ids, index]
    )


def tell_terms(notes: Sequence[TermNote], output: str) -> tuple[GlossaryTerm, ...]:
    """Tell of each term of a source how it is written in the output."""
    left = count_terms((note.target for note in notes), output)
    told = list[GlossaryTerm]()
    for note in notes:
        way = "as asked" if left[note.target] else "in another form" if has_form(note.target, output) else "missing"
        left[note.target] -= way == "as asked"
        told.append(GlossaryTerm(note.source, note.target, way))
    return tuple(told)


def count_terms(terms: Iterable[str], output: str) -> Counter[str]:
    """Count how often terms are in an output, as they are asked for; one inside a longer one is not counted."""
    found = Counter[str]()
    for term in sorted(set(terms), key=len, reverse=True):
        output, found[term] = _pattern(term, output).subn("\n", output)
    return found


def _pattern(term: str, output: str) -> re.Pattern[str]:
    """Return what a term looks like in an output: whole words, of which the output's first may have a capital."""
    before, after = (edge if _is_spaced(term[side]) else "" for side, edge in ((0, r"(?<!\w)"), (-1, r"(?!\w)")))
    capital = f"|^{re.escape(term[0].upper() + term[1:])}" if output[:1].isupper() else ""
    return re.compile(f"(?:{before}{re.escape(term)}{capital}){after}")


def _is_spaced(letter: str) -> bool:
    return letter.isalnum() and UNSPACED.match(letter) is None


def has_form(term: str, output: str) -> bool:
    """Tell whether each word of a term is in an output, with another ending perhaps."""
    words = re.findall(r"\w+", output.lower())
    return all(any(one == word or _are_forms(one, word) for word in words) for one in re.findall(r"\w+", term.lower()))


def _are_forms(one: str, other: str) -> bool:
    stem = max(min(STEM, len(one)), len(one) - 2)
    return len(one) >= SHORTEST and one[:stem] == other[:stem] and abs(len(one) - len(other)) <= FORM


class _Place(NamedTuple):
    """A term's place in an output: the first of its pieces that is left out, and the text before that."""

    piece: int
    left: str
    word: int
    number: int  # of the term among those of the text
    target: str
    replaced: frozenset[str] = frozenset()  # words that read the term's source


def _next_place(
    translator: Translator, one: InsistedOutput, forced: frozenset[int], *, takes_forms: bool
) -> _Place | None:
    """Return the place of the missing term that comes first in an output, behind what it had to begin with."""
    result = translator.to_result(*one)
    missing = list(_find_missing(one.text.notes, result.text, forced, takes_forms=takes_forms))
    if not missing:
        return None
    reading, least = _read(translator, one, result), len(one.text.prefix_ids)
    places = [_find_place(reading, one.text.notes[number], number, least) for number in missing]
    return min(places, key=lambda place: (place.piece, place.number))


def _find_missing(
    notes: Sequence[TermNote], output: str, forced: frozenset[int], *, takes_forms: bool
) -> Iterator[int]:
    """Yield the numbers of the terms that an output lacks; one that was forced is there."""
    left = count_terms((note.target for note in notes), output)
    for number in forced:
        left[notes[number].target] -= 1
    for number, note in enumerate(notes):
        if number in forced:
            continue
        if left[note.target] > 0:
            left[note.target] -= 1
        elif not (takes_forms and has_form(note.target, output)):
            yield number


def _read(translator: Translator, one: InsistedOutput, result: TranslationResult) -> OutputReading:
    source = translator.source_side(one.text)
    output = TextSide.of(result.text, result.pieces, translator.target.begins_word)
    return read_words(source, output, translator.align_output(*one))


def _find_place(reading: OutputReading, note: TermNote, number: int, least: int) -> _Place:
    """Find the words that read a term's source: those beside the one that reads it most, if it is what they read most.

    Without attention it is the word at the same share of the output.
    """
    spans = enumerate(find_spans(reading.source))
    columns = [row for row, (start, stop) in spans if start < note.stop and note.start < stop]
    count, replaced = len(reading.output.words), set[str]()
    if reading.weight_TS is None or not columns or not count:
        word = round(count * min(columns, default=0) / max(1, len(reading.source.words)))
    else:
        share_T = reading.weight_TS[:, columns].sum(1)
        reads_T = torch.isin(reading.weight_TS.argmax(1), torch.tensor(columns))
        word = int(share_T.where(reads_T, share_T - 1).argmax())
        while word and bool(reads_T[word - 1]):
            word -= 1
        replaced = {reading.output.words[row].lower() for row, reads in enumerate(reads_T.tolist()) if reads}
    return _begin_at(reading.output, word, number, note.target, least)._replace(replaced=frozenset(replaced))


def _begin_at(output: TextSide, word: int, number: int, target: str, least: int) -> _Place:
    """Return the place of a word's first letter, or a later one where the output has to begin with more."""
    firsts = [output.word_of_piece.index(one) for one in range(len(output.words))] + [len(output.pieces)]
    spans = [*find_spans(output), (len(output.text), len(output.text))]
    while word < len(output.words) and firsts[word] < least:
        word += 1
    piece, start = firsts[word], spans[word][0]
    last = firsts[min(word + 1, len(output.words))] - 1
    while piece < last and not re.search(r"\w", output.pieces[piece].lstrip(SPACE)):  # a bracket, a quotation mark
        start += len(output.pieces[piece].lstrip(SPACE))
        piece += 1
    return _Place(piece, output.text[:start], word, number, target)


def _force(translator: Translator, one: InsistedOutput, place: _Place) -> SourceText:
    """Return the text with the output up to a place, and a term, as what its output must begin with."""
    target = place.target
    if not place.left.strip() and translator.to_result(*one).text[:1].isupper():
        target = target[:1].upper() + target[1:]
    is_spaced = not place.left or place.left.endswith(" ")
    own = spell(one.text.target, target, is_spaced=is_spaced, is_first=not place.left)
    ids, left = one.found.ids[: place.piece], place.left
    if (better := _change_word_before(translator, one, place, own)) is not None:
        ids, left = better
    return one.text._replace(prefix=f"{left}{target}", prefix_ids=[*ids, *own])


def spell(tokenizer: Tokenizer, term: str, *, is_spaced: bool, is_first: bool) -> list[int]:
    """Return the ids of a term inside an output."""
    if isinstance(tokenizer, Vocabulary) and tokenizer.kind == "characters":
        return tokenizer.encode(term)
    ids = tokenizer.encode(term)[len(getattr(tokenizer, "first", ())) :]
    return ids[1:] if not (is_spaced or is_first) and tokenizer.pieces(ids[:1]) == [SPACE] else ids


@torch.no_grad()
def _change_word_before(
    translator: Translator, one: InsistedOutput, place: _Place, own: list[int]
) -> tuple[list[int], str] | None:
    """Return the ids and the text before a term with another last word, if the model prefers it there; else None.

    The likeliest words of one piece are tried: articles and the like, which agree with what follows.
    """
    ids = one.found.ids[: place.piece]
    words = TextSide.of("", one.text.target.pieces(ids), translator.target.begins_word)
    if not ids or len(words.words) != place.word or not words.words[-1].isalpha():
        return None
    first = words.word_of_piece.index(len(words.words) - 1)
    if first < len(one.text.prefix_ids):
        return None
    step_V = _log_p(translator, one.text, [[*ids[:first], *own]])[0, first]
    best = step_V.topk(min(OTHERS, len(step_V))).indices.tolist()
    others = [[index] for index in best if _is_word(one.text.target, index)]
    rows = [[*ids[:first], *word, *own] for word in (ids[first:], *others)]
    step_NTV = _log_p(translator, one.text, rows)
    scores = [_score(step_TV, row, first) for step_TV, row in zip(step_NTV, rows, strict=True)]
    chosen = max(range(len(rows)), key=scores.__getitem__)
    if not chosen:
        return None
    left = place.left.rstrip()[: -len(words.words[-1])] if place.left.rstrip().endswith(words.words[-1]) else None
    word = others[chosen - 1]
    return None if left is None else ([*ids[:first], *word], f"{left}{one.text.target.decode(word)} ")


def _is_word(tokenizer: Tokenizer, index: int) -> bool:
    (piece,) = tokenizer.pieces([index])
    return tokenizer.begins_word(piece) and piece.lstrip(SPACE).isalpha()


def _log_p(translator: Translator, text: SourceText, rows: list[list[int]]) -> Tensor:
    """Return the log-probabilities [N, T, V] of each next id while a text's outputs are read."""
    model = cast(Any, translator.model)
    state = model.start(*translator.pad([text]))
    read_NT = translator.decoder_ids(rows)
    vectors, _ = model.advance(state.rows(torch.zeros(len(rows), dtype=torch.long, device=read_NT.device)), read_NT)
    step_NTV: Tensor = model.logits(vectors).float().log_softmax(-1)
    return step_NTV


def _score(step_TV: Tensor, ids: list[int], first: int) -> float:
    return sum(float(step_TV[step, index]) for step, index in enumerate(ids) if step >= first)
