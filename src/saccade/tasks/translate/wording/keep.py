"""Keeps placeholders: an output has each of them as often as its source, untouched."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from saccade.data.text.corpus import clean
from saccade.data.text.tokenizer import Tokenizer
from saccade.decoding import Hypothesis
from saccade.errors import UserError
from saccade.inspection.insight import Insight, TextSide
from saccade.tasks.texts import read_long_texts
from saccade.tasks.translate.result import HeadChoice, Kept, TranslationResult
from saccade.tasks.translate.wording.placeholders import Stripped, find_placeholders, take_out
from saccade.tasks.translate.wording.put_back import put_back, read_words

if TYPE_CHECKING:
    from saccade.tasks.translate.predictor import SourceText, Translator

Best = list[TranslationResult]
Search = Callable[[list["SourceText"]], list[list[Hypothesis]]]


def keep_placeholders(
    translator: Translator, texts: Sequence[SourceText], found: list[Best], search: Search, head: HeadChoice | None
) -> list[Best]:
    """Return the outputs of texts with the placeholders of each.

    Where the model copied them all, its outputs stay. Else the text is read without them, and they are put into that
    output where they belong.
    """
    kept = list(found)
    lost = dict[int, Counter[str]]()
    for row, (text, best) in enumerate(zip(texts, found, strict=True)):
        wanted = find_placeholders(text.text)
        if wanted and all(find_placeholders(one.text) == wanted for one in best):
            copied = tuple(Kept(one, "copied") for one in wanted.elements())
            kept[row] = [one._replace(kept=copied) for one in best]
        elif wanted:
            lost[row] = wanted
    again = _write_without(translator, [texts[row] for row in lost], search, head)
    for row, best in zip(lost, again, strict=True):
        kept[row] = best
    return kept


def look_keeping(
    translator: Translator,
    texts: Sequence[SourceText],
    search: Search,
    look: Callable[[Sequence[SourceText], bool], list[Insight]],
) -> list[Insight]:
    """Look at texts and their outputs, and at an output with placeholders put into it while it is read."""
    found = look(texts, False)
    lost = [
        row
        for row, (text, one) in enumerate(zip(texts, found, strict=True))
        if (wanted := find_placeholders(text.text)) and find_placeholders(one.answer.text) != wanted
    ]
    again = _write_without(translator, [texts[row] for row in lost], search, None)
    read = [
        texts[row]._replace(prefix=best[0].text, prefix_ids=translator.target.encode(best[0].text))
        for row, best in zip(lost, again, strict=True)
    ]
    for row, (best, *others), seen in zip(lost, again, look(read, True), strict=True):
        answer = seen.answer._replace(score=best.score, ended=best.ended, cut_by=best.cut_by, kept=best.kept)
        found[row] = replace(seen, answer=answer, others=others)
    return found


def _write_without(
    translator: Translator, texts: Sequence[SourceText], search: Search, head: HeadChoice | None
) -> list[Best]:
    """Write the outputs of texts without their placeholders, and put these into them."""
    stripped = [take_out(text.text) for text in texts]
    for text, (_, placeholders) in zip(texts, stripped, strict=True):
        if text.prefix:
            said = f"text {text.number + 1:,} has {placeholders[0].text}, and its output must begin with a text"
            raise UserError(f"prefixes: {said}; it can't be both: leave out the prefix, or set placeholders: translate")
    rows = [row for row, one in enumerate(stripped) if re.search(r"[^\W_]", one.text)]
    with read_long_texts():
        rest = {row: translator.replace_text(texts[row], stripped[row].text) for row in rows}
    found = [[_whole(text, one)] for text, one in zip(texts, stripped, strict=True)]
    for row, best in zip(rows, search(list(rest.values())), strict=True):
        found[row] = [_finish(translator, rest[row], stripped[row], one, head) for one in best]
    return found


def _whole(text: SourceText, stripped: Stripped) -> TranslationResult:
    """Return a text that has no words beside its placeholders: it is its own translation."""
    kept = tuple(Kept(one.text, "copied") for one in stripped.placeholders)
    return TranslationResult(clean(text.text), 0.0, [], [], kept=kept)


def _finish(
    translator: Translator, text: SourceText, stripped: Stripped, found: Hypothesis, head: HeadChoice | None
) -> TranslationResult:
    (result,) = translator.to_results(text, [found], head)
    tokenizer = cast(Tokenizer, translator.source)
    source = TextSide.of(text.text, tokenizer.pieces(text.ids), tokenizer.begins_word)
    output = TextSide.of(result.text, result.pieces, translator.target.begins_word)
    reading = read_words(source, output, translator.align_output(text, found))
    return put_back(result, stripped.placeholders, reading, translator.target)
