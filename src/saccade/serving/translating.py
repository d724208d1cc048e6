"""Texts of any length through a translator: sentence by sentence, all of them in one batch, and joined again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from saccade.data.text.corpus import clean
from saccade.serving import work
from saccade.serving.batcher import ModelCall
from saccade.serving.models import ServedModel
from saccade.serving.sentences import SentenceSpan, join, split
from saccade.serving.service import Service


class Translated(NamedTuple):
    """A text's sentences, and what was found for each of them (None: it has no words)."""

    sentences: list[SentenceSpan]
    found: list[Any | None]


async def translated(
    service: Service,
    model: ServedModel,
    texts: Sequence[str],
    *,
    aligned: bool = False,
    is_split: bool = True,
    **decoding: Any,
) -> list[Translated]:
    """For each text its sentences with their best outputs or, `aligned`, what these read (Insight)."""
    parts = [split(text) if is_split else [SentenceSpan("", text, "")] for text in texts]
    flat = [sentence.text for sentences in parts for sentence in sentences if clean(sentence.text)]
    asked = ModelCall(work.align if aligned else work.translate, tuple(sorted(decoding.items())))
    answers = await service.ask(model, asked, flat)
    outputs = (one.answer if aligned else one[0] for one in answers)
    service.metrics.tokens.labels(model.run.name).inc(sum(len(output.log_probabilities) for output in outputs))
    found = iter(answers)
    return [
        Translated(sentences, [next(found) if clean(sentence.text) else None for sentence in sentences])
        for sentences in parts
    ]


def text_of(translated: Translated, rank: int = 0) -> str:
    """The whole text; of each sentence the output of this rank, or the last there is."""
    texts = [
        sentence.text if best is None else best[min(rank, len(best) - 1)].text
        for sentence, best in zip(translated.sentences, translated.found, strict=True)
    ]
    return join(translated.sentences, texts)
