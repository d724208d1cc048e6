"""/v1: what LibreTranslate has no words for: alignment, confidence, attention; labels, tags, captions, glimpses."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from typing import Annotated, Any, final

from fastapi import APIRouter, Header
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response

import saccade
from saccade.data.pictures.images import Pixels
from saccade.data.text.corpus import clean
from saccade.inspection.insight import Insight
from saccade.serving import work
from saccade.serving.batcher import ModelCall
from saccade.serving.http import bodies, pictures
from saccade.serving.http.answers import answer, problems, refuse, said
from saccade.serving.http.security import bearer
from saccade.serving.models import ServedModel
from saccade.serving.sentences import SentenceSpan, join
from saccade.serving.service import Service
from saccade.serving.settings import MOST_PIECES, MOST_WHOLE
from saccade.serving.translating import translated
from saccade.serving.v1 import schemas
from saccade.serving.v1.descriptions import Description
from saccade.serving.v1.word_links import aligned_words

Key = Annotated[str | None, Header(alias="X-API-Key", description="Where the server asks for one.")]
Authorization = Annotated[str | None, Header(description="Or: Bearer, and the key.")]
PICTURE = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["image"],
                    "properties": {
                        "image": {"type": "string", "description": "Base64 of a PNG or JPEG file."},
                        "model": {"type": "string"},
                        "num_best": {"type": "integer", "minimum": 1, "maximum": 16, "default": 1},
                        "attention": {"type": "boolean", "default": False},
                    },
                }
            },
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["image"],
                    "properties": {
                        "image": {"type": "string", "format": "binary"},
                        "model": {"type": "string"},
                        "num_best": {"type": "integer"},
                        "attention": {"type": "boolean"},
                    },
                }
            },
        },
    }
}


@final
@dataclass(frozen=True)
class V1:
    """The routes, over a service; `descriptions` are of its models."""

    service: Service
    descriptions: list[Description]

    def router(self) -> APIRouter:
        """Them all."""
        router = APIRouter(prefix="/v1", tags=["saccade"])
        known = problems(400, 403, 408, 413, 429, 503, 504)
        for path, call, model, extra in (
            ("/translate", self.translate, schemas.TranslateResponse, None),
            ("/look", self.look, schemas.LookResponse, None),
            ("/classify", self.classify, schemas.Answers, None),
            ("/tag", self.tag, schemas.Answers, None),
            ("/caption", self.caption, schemas.Answers, PICTURE),
            ("/glimpse", self.glimpse, schemas.Answers, PICTURE),
        ):
            router.add_api_route(
                path, call, methods=["POST"], response_model=model, responses=known, openapi_extra=extra
            )
        router.add_api_route("/models", self.models, methods=["GET"], response_model=schemas.ModelsResponse)
        return router

    async def models(self) -> Response:
        """All models of this server, and what each can do."""
        return answer({"version": saccade.__version__, "models": [one.plain() for one in self.descriptions]})

    async def translate(
        self, body: schemas.TranslateRequest, key: Key = None, authorization: Authorization = None
    ) -> Response:
        """Translate texts, with as much of the evidence as is asked for."""
        self._check(key, authorization)
        model = self._translator(body.model, body.source, body.target)
        texts, options = self.service.texts(body.q), self._options(body, model)
        if not body.split:
            _check_whole(model, *texts)
        found = await translated(self.service, model, texts, aligned=body.alignment, is_split=body.split, **options)
        assert model.run.pair is not None
        shown = []
        for text in found:
            rows = [_sentence(one, best, body) for one, best in zip(text.sentences, text.found, strict=True)]
            shown.append({"text": join(text.sentences, [row["text"] for row in rows]), "sentences": rows})
        return answer({"model": model.run.name, **model.run.pair._asdict(), "translations": shown})

    async def look(self, body: schemas.LookRequest, key: Key = None, authorization: Authorization = None) -> Response:
        """What a model read while it answered one text or picture: every weight of the layers and heads asked for."""
        self._check(key, authorization)
        model = self.service.models.named(body.model)
        given, options = await self._looked_at(body, model), self._look_options(body, model)
        (found,) = await self.service.ask(model, ModelCall(work.look, tuple(sorted(options.items()))), [given])
        return Response(found, media_type="application/json")

    async def classify(
        self, body: schemas.ClassifyRequest, key: Key = None, authorization: Authorization = None
    ) -> Response:
        """Label texts."""
        self._check(key, authorization)
        return await self._judge(body, "classify", attention=body.attention, key_terms=body.key_terms)

    async def tag(self, body: schemas.TagRequest, key: Key = None, authorization: Authorization = None) -> Response:
        """Tag the words of texts."""
        self._check(key, authorization)
        _check_whole(self.service.models.for_task("tag", body.model), *self.service.texts(body.q))
        return await self._judge(body, "tag", probabilities=body.probabilities)

    async def caption(self, request: Request, key: Key = None, authorization: Authorization = None) -> Response:
        """Say what a picture shows."""
        self._check(key, authorization)
        body, model = await self._picture(request, "caption")
        width = max(body.num_best, model.run.predictor.options.width)
        options = (("attention", body.attention), ("num_best", body.num_best), ("width", width))
        (best,) = await self.service.ask(
            model, ModelCall(work.caption, options), [await asyncio.to_thread(_pixels, body.image, model)]
        )
        return answer({"model": model.run.name, "answers": [one.plain() for one in best]})

    async def glimpse(self, request: Request, key: Key = None, authorization: Authorization = None) -> Response:
        """Say what a picture is of, and where the model looked."""
        self._check(key, authorization)
        body, model = await self._picture(request, "glimpse")
        found = await self.service.ask(
            model, ModelCall(work.glimpse), [await asyncio.to_thread(_pixels, body.image, model)]
        )
        return answer({"model": model.run.name, "answers": found})

    def _check(self, key: str | None, authorization: str | None) -> None:
        self.service.keys.check(key or bearer(authorization))

    def _translator(self, name: str | None, source: str | None, target: str | None) -> ServedModel:
        models = self.service.models
        if name is not None or (source is None and target is None):
            model = models.for_task("translate", name)
            pair = model.run.pair
            assert pair is not None
            if (source or pair.source, target or pair.target) != pair:
                refuse(f"model {model.run.name} translates {pair.source} to {pair.target} only")
            return model
        able = [pair for pair in models.pairs if source in (None, pair.source) and target in (None, pair.target)]
        if not able:
            refuse("no model translates between these languages; see /v1/models")
        return models.pairs[able[0]]

    def _options(self, body: schemas.Decoding, model: ServedModel) -> dict[str, Any]:
        if body.beam is not None and body.num_best > body.beam:
            refuse(f"num_best: {body.num_best} given; a beam of {body.beam} holds no more than its width")
        return body.options(model.run.predictor.options.width)

    async def _looked_at(self, body: schemas.LookRequest, model: ServedModel) -> str | Pixels:
        if model.run.task in ("caption", "glimpse"):
            if body.image is None:
                refuse("missing image parameter: this model reads pictures")
            return await asyncio.to_thread(_pixels, body.image, model)
        if body.text is None:
            refuse("missing text parameter: this model reads texts")
        _check_whole(model, body.text, body.target or "")
        if not body.text.strip():
            refuse("text is blank: there is nothing to look at")
        return body.text

    def _look_options(self, body: schemas.LookRequest, model: ServedModel) -> dict[str, Any]:
        task, chosen = model.run.task, {"layers": body.layers, "heads": body.heads}
        options: dict[str, Any] = {name: tuple(given) for name, given in chosen.items() if given is not None}
        if task in ("translate", "caption"):
            options |= self._options(body, model)
        if task in ("translate", "classify", "tag"):
            options |= {"kinds": tuple(body.kinds)} if body.kinds is not None else {}
            options |= {"norms": True} if body.norms else {}
            options |= {"views": tuple(body.views), "task": task} if body.views else {}
        if task == "tag":
            options["probabilities"] = True
        if body.target is not None and task == "translate":
            options["targets"] = body.target
        return options

    async def _judge(self, body: schemas.TextsRequest, task: str, **options: Any) -> Response:
        model = self.service.models.for_task(task, body.model)
        texts = self.service.texts(body.q)
        found = await self.service.ask(model, ModelCall(work.judge, tuple(options.items())), texts)
        return answer({"model": model.run.name, "answers": found})

    async def _picture(self, request: Request, task: str) -> tuple[schemas.PictureRequest, ServedModel]:
        try:
            body = schemas.PictureRequest.model_validate(await bodies.read_fields(request))
        except ValidationError as error:
            refuse(said(error.errors()))
        return body, self.service.models.for_task(task, body.model)


def _check_whole(model: ServedModel, *texts: str) -> None:
    """What is read at once must be short: its cost grows with the square of its length."""
    for text in texts:
        if len(text) > MOST_WHOLE:
            refuse(f"request ({len(text)}) exceeds text limit ({MOST_WHOLE}) for a text that is not split")
        if (
            model.run.task == "translate"
            and (count := len(model.run.predictor.source.encode(clean(text)))) > MOST_PIECES
        ):
            refuse(f"request ({count} pieces) exceeds text limit ({MOST_PIECES} pieces) for a text that is not split")


def _pixels(picture: str | bytes, model: ServedModel) -> Pixels:
    content = pictures.from_base64(picture) if isinstance(picture, str) else picture
    predictor = model.run.predictor
    if model.run.task == "caption":
        return pictures.decode(content, channels=3, resize=predictor.reader.side)
    return pictures.decode(content, channels=predictor.channels, resize=predictor.resize)


def _sentence(sentence: SentenceSpan, found: Any, body: schemas.TranslateRequest) -> dict[str, Any]:
    """A sentence in JSON; one without words is itself."""
    if found is None:
        return {"source": sentence.text, "text": sentence.text, "score": 0.0, "ended": True, "others": []}
    best, *others = [found.answer, *found.others] if isinstance(found, Insight) else found
    shown = {"source": sentence.text, "text": best.text, "score": _finite(best.score), "ended": best.ended}
    shown["others"] = [{"text": other.text, "score": _finite(other.score)} for other in others]
    if isinstance(found, Insight):
        shown |= aligned_words(found).plain()
    if body.tokens:
        pieces = [*best.pieces, "</s>"][: len(best.log_probabilities)]
        steps = zip(pieces, best.log_probabilities, strict=True)
        shown["tokens"] = [{"text": piece, "probability": round(math.exp(step), 6)} for piece, step in steps]
    return shown


def _finite(score: float) -> float:
    """JSON has no infinity; nothing was written where it is one."""
    return round(score, 6) if math.isfinite(score) else -1e9
