"""A translator as a test of trust needs it: texts as it reads them, and the outputs that it writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast

from saccade.data.batches import pad_sources
from saccade.data.text.corpus import Pair
from saccade.data.text.tokenizer import END, Tokenizer
from saccade.decoding import Hypothesis, Stepper, search
from saccade.inspection.insight import TextSide
from saccade.inspection.trust.cases import TextAndAnswer, make_case
from saccade.inspection.trust.evidence import TrustCase

if TYPE_CHECKING:
    from saccade.tasks.translate.predictor import Translator


def make_cases(translator: Translator, pairs: Sequence[TextAndAnswer]) -> Iterator[TrustCase]:
    """Make cases whose answers are outputs, decoded as the run does, or given."""
    encoded = [translator.encode_pair(Pair(text, target or "")) for text, target in pairs]
    sources = [ids[: translator.max_source_length] for ids, _ in encoded]
    answers = [[*ids, END] for (_, ids), (_, target) in zip(encoded, pairs, strict=True) if target is not None]
    for (text, _), ids, answer in zip(pairs, sources, answers or _decode(translator, sources), strict=True):
        source = translator.output_tokenizer(text) if translator.copies else cast(Tokenizer, translator.source)
        yield make_case(TextSide.of(text, source.pieces([*ids, END]), source.begins_word), [*ids, END], answer)


def _decode(translator: Translator, sources: Sequence[list[int]]) -> list[list[int]]:
    if not sources:
        return []
    device = next(translator.model.parameters()).device
    source_BS, length_B = (tensor.to(device) for tensor in pad_sources(sources))
    begins = [translator.target.encode("")] * len(sources)
    found = search(cast(Stepper, translator.model), source_BS, length_B, translator.options, begins)
    return [_answer(best[0]) for best in found]


def _answer(found: Hypothesis) -> list[int]:
    return [*found.ids, END] if found.ended else found.ids
