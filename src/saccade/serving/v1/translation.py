"""The route of a task that answers texts with texts: with alignment, confidence and the next best outputs."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from fastapi import APIRouter
from starlette.responses import Response

from saccade.data.text.sentences import SentenceSpan, join
from saccade.inspection.insight import Insight, TextSide
from saccade.serving.http.responses import error_responses, json_response, refuse
from saccade.serving.models import ServedModel
from saccade.serving.service import Service
from saccade.serving.translation import translate_texts
from saccade.serving.v1 import schemas
from saccade.serving.v1.access import NEEDS_KEY, decoding_options
from saccade.serving.v1.word_links import align_words
from saccade.tasks.base import Predictor


class TranslationRoute(NamedTuple):
    """A task whose runs may translate between languages, served at /v1/<name>."""

    service: Service
    name: str

    def add_to(self, router: APIRouter) -> None:
        """Add it to the routes of /v1."""

        async def call(body: schemas.TranslateRequest) -> Response:
            """Translate texts, with alignment, confidence and other outputs on request."""
            return await self._answer(body)

        call.__name__ = self.name
        known = error_responses(400, 401, 403, 408, 413, 429, 503, 504)
        router.add_api_route(
            f"/{self.name}",
            call,
            methods=["POST"],
            response_model=schemas.TranslateResponse,
            responses=known,
            dependencies=NEEDS_KEY,
        )

    async def _answer(self, body: schemas.TranslateRequest) -> Response:
        model = self._model(body)
        texts, options = self.service.texts(body.q), {**decoding_options(body, model), **body.words()}
        found = await translate_texts(
            self.service, model, texts, aligned=body.alignment, is_split=body.split, **options
        )
        shown = []
        for text in found:
            rows = [
                _sentence(model.run.predictor, one, best, body)
                for one, best in zip(text.sentences, text.results, strict=True)
            ]
            joined = {"text": join(text.sentences, [row["text"] for row in rows]), "sentences": rows}
            shown.append({**joined, **_note(model, len(rows), body)})
        source, target = model.run.pair or (None, None)
        return json_response({"model": model.run.name, "source": source, "target": target, "translations": shown})

    def _model(self, body: schemas.TranslateRequest) -> ServedModel:
        models, name = self.service.models, body.model
        source, target = (code and (models.find_language(code) or code) for code in (body.source, body.target))
        if name is not None or (source is None and target is None):
            model = models.for_task(self.name, name)
            _check_pair(model, source, target)
            return model
        able = [pair for pair in models.pairs if source in (None, pair.source) and target in (None, pair.target)]
        if not able:
            refuse("no model translates between these languages; see /v1/models")
        return models.pairs[able[0]]


def _note(model: ServedModel, num_parts: int, body: schemas.TranslateRequest) -> dict[str, str]:
    """Say that a document was split, which happens only where it is too long."""
    if body.split or model.run.texts != "documents" or num_parts == 1:
        return {}
    most = f"{model.run.limits.pieces:,} pieces"
    return {"note": f"longer than the model reads at once ({most}): answered in {num_parts} parts"}


def _check_pair(model: ServedModel, source: str | None, target: str | None) -> None:
    pair = model.run.pair
    if pair is None and (source or target):
        refuse(f"model {model.run.name} has no languages: leave out source and target")
    if pair is not None and (source or pair.source, target or pair.target) != pair:
        refuse(f"model {model.run.name} translates {pair.source} to {pair.target} only")


def _sentence(
    predictor: Predictor, sentence: SentenceSpan, found: Any, body: schemas.TranslateRequest
) -> dict[str, Any]:
    """Return a sentence as JSON; one without words is its own translation."""
    if found is None:
        return {"source": sentence.text, "text": sentence.text, "score": 0.0, "ended": True, "others": []}
    best, *others = [found.answer, *found.others] if isinstance(found, Insight) else found
    shown = {"source": sentence.text, **_output(best), "ended": best.ended}
    shown["others"] = [_output(other) for other in others]
    if isinstance(found, Insight):
        shown |= align_words(found).plain()
    for name in ("terms", "kept"):
        if own := getattr(best, name):
            shown[name] = [one._asdict() for one in own]
    if best.confidence is not None:
        shown["confidence"] = best.confidence._asdict()
    if body.tokens:
        shown |= _tokens(predictor.output_side(best), best)
    return shown


def _tokens(side: TextSide, best: Any) -> dict[str, Any]:
    """Return the words of an output, without the end, and its pieces, each with its probability and its word."""
    rows = zip(side.pieces, best.log_probabilities, side.word_of_piece, strict=True)
    tokens = [{"text": piece, "probability": round(math.exp(step), 6), "word": word} for piece, step, word in rows]
    return {"words": side.words[:-1] if best.ended else side.words, "tokens": tokens}


def _output(found: Any) -> dict[str, Any]:
    """Return an output as JSON, and why it was cut, if it was."""
    shown = {"text": found.text, "score": _finite(found.score)}
    return shown if found.cut is None else {**shown, "cut": found.cut}


def _finite(score: float) -> float:
    """Round a score; replace infinity, the score of no output, which JSON lacks."""
    return round(score, 6) if math.isfinite(score) else -1e9
