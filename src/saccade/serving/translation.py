"""Answer texts of any length: split them as the model's texts are, answer the parts together, and join the outputs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import Any, NamedTuple

from saccade.data.text.corpus import clean
from saccade.data.text.sentences import SentenceSpan, join, split, split_long
from saccade.serving import work
from saccade.serving.models import ServedModel
from saccade.serving.service import Service
from saccade.serving.waiting import ModelCall


class TranslatedText(NamedTuple):
    """The parts of a text, its sentences or more, and their results (None: a part without words)."""

    sentences: list[SentenceSpan]
    results: list[Any | None]


async def translate_texts(
    service: Service,
    model: ServedModel,
    texts: Sequence[str],
    *,
    aligned: bool = False,
    is_split: bool | None = None,
    **decoding: Any,
) -> list[TranslatedText]:
    """Answer each part of each text: results are its best outputs or, with `aligned`, an Insight.

    `is_split` splits texts into sentences, or leaves them whole; None: as the model's texts are.
    """
    service.check_beam(model, texts, width=decoding.get("width"))
    parts = [_split(service, model, text, is_split) for text in texts]
    asked = [[_has_words(model, sentence.text) for sentence in sentences] for sentences in parts]
    flat = [
        sentence.text
        for sentences, is_asked in zip(parts, asked, strict=True)
        for sentence in compress(sentences, is_asked)
    ]
    call = ModelCall(work.align if aligned else work.translate, tuple(sorted(decoding.items())))
    answers = await service.ask(model, call, flat)
    outputs = (one.answer if aligned else one[0] for one in answers)
    service.metrics.tokens.labels(model.run.name).inc(sum(len(output.log_probabilities) for output in outputs))
    results = iter(answers)
    return [
        TranslatedText(sentences, [next(results) if one else None for one in is_asked])
        for sentences, is_asked in zip(parts, asked, strict=True)
    ]


def _has_words(model: ServedModel, text: str) -> bool:
    """Tell whether there is something to answer: between languages, a smile or three dots are the same in both."""
    return bool(clean(text)) and (model.run.pair is None or any(map(str.isalnum, text)))


def _split(service: Service, model: ServedModel, text: str, is_split: bool | None) -> list[SentenceSpan]:
    if clean(text) and not _has_words(
        model, text
    ):  # it comes back as it is: splitting it would only cost the event loop time
        return [SentenceSpan("", text, "")]
    if is_split or (is_split is None and model.run.texts == "sentences"):
        return split(text)
    if is_split is None and model.run.texts == "documents":
        return split_long(text, model.run.predictor.num_pieces, model.run.limits.pieces)
    service.check_whole(model, text)
    return [SentenceSpan("", text, "")]


def text_of(translated: TranslatedText, rank: int = 0) -> str:
    """Join the outputs of this rank; a sentence with fewer outputs gives its last."""
    texts = [
        sentence.text if best is None else best[min(rank, len(best) - 1)].text
        for sentence, best in zip(translated.sentences, translated.results, strict=True)
    ]
    return join(translated.sentences, texts)
