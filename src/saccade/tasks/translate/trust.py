"""What a test of trust asks of a translator: texts as it reads them, and the outputs that it writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast

from saccade.data.batches import pad_sources
from saccade.data.text.tokenizer import END, Tokenizer
from saccade.decoding import Hypothesis, Stepper, search
from saccade.inspection.insight import TextSide
from saccade.inspection.trust.cases import TextAndAnswer, make_case
from saccade.inspection.trust.evidence import TrustCase

if TYPE_CHECKING:
    from saccade.tasks.translate.predictor import Translator


def make_cases(translator: Translator, pairs: Sequence[TextAndAnswer]) -> Iterator[TrustCase]:
    """Make cases whose answers are outputs, decoded as the run does, or given."""
    source = cast(Tokenizer, translator.source)
    sources = [source.encode(text)[: translator.max_source_length] for text, _ in pairs]
    answers = [[*translator.target.encode(target), END] for _, target in pairs if target is not None]
    for (text, _), ids, answer in zip(pairs, sources, answers or _decode(translator, sources), strict=True):
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
