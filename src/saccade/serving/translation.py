"""Answer texts of any length: split them as the model's texts are, answer the parts together, and join the outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from saccade.data.text.corpus import clean
from saccade.data.text.sentences import SentenceSpan, join, split, split_long
from saccade.serving import work
from saccade.serving.http.turns import run_in_thread
from saccade.serving.models import ServedModel
from saccade.serving.service import SHORT, Service
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
    service.check_room(model, len(texts))

    def divide() -> list[list[_Part]]:
        return [_divide(service, model, text, is_split) for text in texts]

    parts = divide() if sum(map(len, texts)) <= SHORT else await run_in_thread(divide)
    call = ModelCall(work.align if aligned else work.translate, tuple(sorted(decoding.items())))
    answers = await service.ask(model, call, [part.span.text for text in parts for part in text if part.has_words])
    outputs = (one.answer if aligned else one[0] for one in answers)
    service.metrics.tokens.labels(model.run.name).inc(sum(len(output.log_probabilities) for output in outputs))
    results = iter(answers)
    return [
        TranslatedText([part.span for part in text], [next(results) if part.has_words else None for part in text])
        for text in parts
    ]


class _Part(NamedTuple):
    """A part of a text; between languages, one without a letter or digit (a smile, three dots) is the same in both."""

    span: SentenceSpan
    has_words: bool


def _divide(service: Service, model: ServedModel, text: str, is_split: bool | None) -> list[_Part]:
    """Split a text; one without words comes back as it is, and splitting it would only take time."""
    if clean(text) and not _has_words(model, text):
        return [_Part(SentenceSpan("", text, ""), has_words=False)]
    return [_Part(span, _has_words(model, span.text)) for span in _split(service, model, text, is_split)]


def _has_words(model: ServedModel, text: str) -> bool:
    return bool(clean(text)) and (model.run.pair is None or any(map(str.isalnum, text)))


def _split(service: Service, model: ServedModel, text: str, is_split: bool | None) -> list[SentenceSpan]:
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
