"""Writes the outputs of texts as a call wants their words: with its placeholders, and the terms of its glossary."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, final

from saccade.data.text.placeholders import StrippedText, find_placeholders, take_out
from saccade.decoding import BeamOptions, Hypothesis, SamplingOptions
from saccade.errors import UserError
from saccade.inspection.insight import Insight, TextSide
from saccade.tasks.texts import read_long_texts
from saccade.tasks.translate.result import HeadChoice, PlacedPlaceholder, TranslationResult
from saccade.tasks.translate.wording.annotate import find_written
from saccade.tasks.translate.wording.insist import InsistedOutput, insist, tell_terms
from saccade.tasks.translate.wording.options import Wording
from saccade.tasks.translate.wording.put_back import put_back, read_words

if TYPE_CHECKING:
    from saccade.tasks.translate.predictor import SourceText, Translator

WORD = re.compile(r"\S+")
Best = list[TranslationResult]
Look = Callable[[Sequence["SourceText"], bool], list[Insight]]


@final
@dataclass(frozen=True)
class TermWriter:
    """A translator and what a call asks of it."""

    translator: Translator
    options: BeamOptions | SamplingOptions
    wording: Wording
    head: HeadChoice | None = None

    def write(self, texts: Sequence[SourceText]) -> list[Best]:
        """Return the best outputs of each text; that of a blank one is blank.

        Where the model copied all placeholders of a text, its outputs stay. Else the text is read without them, and
        they are put into that output where they belong.
        """
        self._refuse_prefixes(texts)
        found = [
            [self._finish(one) for one in best] or [TranslationResult("", 0.0, [], [])] for best in self._search(texts)
        ]
        if not self.wording.keeps:
            return found
        found = [self._tell_copied(text, best) for text, best in zip(texts, found, strict=True)]
        lost = [row for row, best in enumerate(found) if has_lost(texts[row], best)]
        for row, best in zip(lost, self._write_without([texts[row] for row in lost]), strict=True):
            found[row] = best
        return found

    def look(self, texts: Sequence[SourceText], look: Look) -> list[Insight]:
        """Look at texts and their outputs; at an output with words of ours in it, while it is read."""
        found = look(texts, False)
        changed = [
            row
            for row, (text, one) in enumerate(zip(texts, found, strict=True))
            if text.notes or (self.wording.keeps and has_lost(text, [one.answer]))
        ]
        again = self.write([texts[row] for row in changed])
        read = [
            texts[row]._replace(prefix=best[0].text, prefix_ids=texts[row].target.encode(best[0].text))
            for row, best in zip(changed, again, strict=True)
        ]
        for row, (best, *others), seen in zip(changed, again, look(read, True), strict=True):
            own = {name: getattr(best, name) for name in ("score", "ended", "cut_by", "kept", "terms")}
            put = [one.text for one in best.kept if one.way != "copied"]
            steps = _make_certain(seen.answer.log_probabilities, seen.sides["output"], put)
            answer = seen.answer._replace(**own, log_probabilities=steps if best.ended else steps[:-1])
            found[row] = replace(seen, answer=answer, others=others)
        return found

    def _search(self, texts: Sequence[SourceText]) -> list[list[InsistedOutput]]:
        """Return the outputs of each text, with the terms in them; a blank one has none."""
        filled = [text for text in texts if len(text.ids)]
        outputs = iter(self.translator.search(filled, self.options))
        found = [[InsistedOutput(text, one) for one in (next(outputs) if len(text.ids) else ())] for text in texts]
        flat = [one for best in found for one in best]
        if self.wording.constrains and any(one.text.notes for one in flat):
            assert isinstance(self.options, BeamOptions)  # samples are refused
            options = replace(self.options, num_best=1)

            def search(again: list[SourceText]) -> list[Hypothesis]:
                return [best[0] for best in self.translator.search(again, options)]

            done = iter(insist(self.translator, flat, search, takes_forms=self.wording.annotates))
            found = [[next(done) for _ in best] for best in found]
        return found

    def _finish(self, one: InsistedOutput) -> TranslationResult:
        (result,) = self.translator.to_results(one.text, [one.found], self.head)
        return result._replace(terms=tell_terms(one.text.notes, result.text))

    def _tell_copied(self, text: SourceText, best: Best) -> Best:
        copied = tuple(PlacedPlaceholder(one, "copied") for one in find_placeholders(text.text).elements())
        return [one._replace(kept=copied) for one in best]

    def _refuse_prefixes(self, texts: Sequence[SourceText]) -> None:
        """Refuse a beginning for an output that must also have words of ours."""
        for text in texts:
            words = text.notes[0].target if text.notes and self.wording.constrains else None
            if self.wording.keeps and words is None:
                words = next(iter(find_placeholders(text.text)), None)
            if text.prefix and words is not None:
                said = f"text {text.number + 1:,} has one, and its output must also have {words!r}"
                raise UserError(f"prefixes: {said}; leave out the prefix, the glossary, or set placeholders: ignore")

    def _write_without(self, texts: Sequence[SourceText]) -> list[Best]:
        """Write the outputs of texts without their placeholders, and put these into them."""
        stripped = [take_out(text.text) for text in texts]
        rows = [row for row, one in enumerate(stripped) if re.search(r"[^\W_]", one.text)]
        with read_long_texts():
            rest = [self.translator.replace_text(texts[row], stripped[row].text, self.wording) for row in rows]
        found = [[_whole(text, one)] for text, one in zip(texts, stripped, strict=True)]
        for row, best in zip(rows, self._search(rest), strict=True):
            found[row] = [self._put_back(one, stripped[row]) for one in best]
        return found

    def _put_back(self, one: InsistedOutput, stripped: StrippedText) -> TranslationResult:
        translator, result, source = self.translator, self._finish(one), self.translator.source_side(one.text)
        output = TextSide.of(result.text, result.pieces, translator.target.begins_word)
        reading = read_words(source, output, translator.align_output(*one))
        placeholders = stripped.placeholders
        if self.wording.annotates:
            placeholders = tuple(each._replace(place=find_written(each.place, one.text.notes)) for each in placeholders)
        return put_back(result, placeholders, reading, translator.target)


def _make_certain(steps: list[float], output: TextSide, put: Sequence[str]) -> list[float]:
    """Return log p of an output's pieces, 0 for those of words with a placeholder that was put there."""
    spans = [found.span() for one in put for found in re.finditer(re.escape(one), output.text)]
    certain, place = set[int](), 0
    for number, word in enumerate(output.words):
        own = re.compile(re.escape(word)).search(output.text, place) or WORD.search(output.text, place)
        if own is not None:
            place = own.end()
            if any(start < own.end() and own.start() < end for start, end in spans):
                certain.add(number)
    return [0.0 if word in certain else step for step, word in zip(steps, output.word_of_piece, strict=False)]


def has_lost(text: SourceText, best: Best) -> bool:
    """Tell whether an output has not the placeholders of its text."""
    wanted = find_placeholders(text.text)
    return bool(wanted) and any(find_placeholders(one.text) != wanted for one in best)


def _whole(text: SourceText, stripped: StrippedText) -> TranslationResult:
    """Return a text that has no words beside its placeholders: it is its own translation."""
    kept = tuple(PlacedPlaceholder(one.text, "copied") for one in stripped.placeholders)
    return TranslationResult(" ".join(text.text.split()), 0.0, [], [], kept=kept)
