"""LibreTranslate's interface, so that its clients just work: JSON, form or query string; errors as {"error": ...}."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from saccade.serving.html import markup
from saccade.serving.http import bodies
from saccade.serving.http.answers import Refusal, answer, problems, refuse
from saccade.serving.http.openapi import described, listed
from saccade.serving.libretranslate.detection import DetectedLanguage
from saccade.serving.libretranslate.languages import name_of
from saccade.serving.libretranslate.suggestions import Suggestions
from saccade.serving.models import LanguagePair, ServedModel
from saccade.serving.service import Service
from saccade.serving.translating import text_of, translated
from saccade.serving.v1 import schemas
from saccade.tasks.base import MOST_BEAM

FORMATS = ("text", "html")
MOST_ALTERNATIVES = MOST_BEAM - 1


class Question(NamedTuple):
    """What /translate was asked."""

    texts: list[str]
    is_list: bool
    source: str
    target: str
    format: str
    alternatives: int


@final
@dataclass(frozen=True)
class LibreTranslate:
    """The routes, over a service."""

    service: Service
    suggestions: Suggestions | None

    def router(self) -> APIRouter:
        """Them all."""
        router = APIRouter(tags=["LibreTranslate"])
        known = problems(400, 403, 408, 413, 429, 503, 504)
        posts = (
            ("/translate", self.translate, schemas.LibreTranslation, described(self._translate_fields())),
            ("/detect", self.detect, list[schemas.LibreDetection], described(self._fields("q"))),
            ("/suggest", self.suggest, schemas.LibreSuccess, described(self._fields("q", "s", "source", "target"))),
        )
        for path, call, model, extra in posts:
            router.add_api_route(
                path, call, methods=["POST"], response_model=model, responses=known, openapi_extra=extra
            )
        router.add_api_route("/languages", self.languages, methods=["GET"], response_model=list[schemas.LibreLanguage])
        router.add_api_route("/frontend/settings", self.settings, methods=["GET"], response_model=schemas.LibreSettings)
        router.add_api_route("/spec", self.spec, methods=["GET"], include_in_schema=False)
        return router

    async def translate(self, request: Request) -> Response:
        """Translate texts from one language to another."""
        given = await bodies.read_fields(request)
        self.service.keys.check(given.get("api_key"))
        question = self._question(given)
        detected = await self._detected(question)
        source = question.source if detected is None else detected.language
        found = await self._translated(question, self._model(source, question.target))
        columns: dict[str, list[Any]] = {"translatedText": [best[0] for best in found]}
        if question.alternatives:
            columns["alternatives"] = [best[1:] for best in found]
        if detected is not None:
            shown = {"confidence": detected.confidence, "language": detected.language}
            columns["detectedLanguage"] = [shown] * len(found)
        if question.is_list:
            return answer(columns)
        return answer({name: column[0] for name, column in columns.items()})

    async def detect(self, request: Request) -> Response:
        """Say which of the languages here a text is written in, the likeliest first."""
        given = await bodies.read_fields(request)
        self.service.keys.check(given.get("api_key"))
        (text,) = self.service.texts([_string(given, "q")])
        found = self.service.detector.detect(text)
        return answer([{"confidence": one.confidence, "language": one.language} for one in found])

    async def suggest(self, request: Request) -> Response:
        """Send a better translation, where the server collects them."""
        given = await bodies.read_fields(request)
        self.service.keys.check(given.get("api_key"))
        if self.suggestions is None:
            raise Refusal(403, "Suggestions are disabled on this server.")
        texts = {name: _string(given, name) for name in ("q", "s", "source", "target")}
        self.service.texts([texts["q"], texts["s"]])
        for name in ("source", "target"):
            self._known(texts[name])
        self.suggestions.add(texts)
        return answer({"success": True})

    async def languages(self) -> Response:
        """The languages that are read, and what each is translated into."""
        models = self.service.models
        rows = [{"code": code, "name": name_of(code), "targets": models.targets(code)} for code in models.languages]
        return answer([row for row in rows if row["code"] in models.sources])

    async def settings(self) -> Response:
        """What a front end should know."""
        pair = next(iter(self.service.models.pairs), None)
        shown = {
            side: {"code": code, "name": name_of(code)}
            for side, code in (pair._asdict() if pair is not None else {}).items()
        }
        return answer(
            {
                "apiKeys": self.service.keys.are_required,
                "charLimit": self.service.settings.max_characters,
                "filesTranslation": False,
                "frontendTimeout": 500,
                "keyRequired": self.service.keys.are_required,
                "language": shown,
                "suggestions": self.suggestions is not None,
                "supportedFilesFormat": [],
            }
        )

    async def spec(self, request: Request) -> Response:
        """The OpenAPI document, where LibreTranslate has it."""
        return JSONResponse(request.app.openapi())

    def _question(self, given: dict[str, Any]) -> Question:
        texts = given.get("q")
        if not texts:
            refuse("missing q parameter")
        is_list = isinstance(texts, list)
        if not (is_list and all(isinstance(text, str) for text in texts)) and not isinstance(texts, str):
            refuse("q parameter is not a string, nor a list of strings")
        source, target = _string(given, "source"), _string(given, "target")
        alternatives = _alternatives(given.get("alternatives"))
        texts = self.service.texts(texts)
        if source != "auto":
            self._known(source)
        self._known(target)
        kind = given.get("format") or "text"
        if kind not in FORMATS:
            raise Refusal(400, f"{_short(kind)} format is not supported")
        return Question(texts, is_list, source, target, kind, alternatives)

    def _known(self, code: str) -> None:
        if code not in self.service.models.languages:
            raise Refusal(400, f"{_short(code)} is not supported")

    async def _detected(self, question: Question) -> DetectedLanguage | None:
        """For `auto`: of the languages that are translated into the target, and the target itself."""
        if question.source != "auto":
            return None
        models, target = self.service.models, question.target
        able = [code for code in models.languages if code == target or LanguagePair(code, target) in models.pairs]
        text = "\n".join(question.texts)
        if question.format == "html":
            text = await asyncio.to_thread(markup.plain, text)
        return self.service.detector.detect(text, able)[0]

    def _model(self, source: str, target: str) -> ServedModel | None:
        """None: it is the same language."""
        if source == target:
            return None
        model = self.service.models.pairs.get(LanguagePair(source, target))
        if model is None:
            what = (
                f"{name_of(target)} ({target}) is not available as a target language from {name_of(source)} ({source})"
            )
            raise Refusal(400, what)
        return model

    async def _translated(self, question: Question, model: ServedModel | None) -> list[list[str]]:
        """For each text its translation and the alternatives."""
        ranks = range(question.alternatives + 1)
        if model is None:
            return [[text] for text in question.texts]
        options: dict[str, Any] = {}
        if question.alternatives:
            width = max(len(ranks), model.run.predictor.traits.beam or 1)
            options = {"num_best": len(ranks), "width": width}
        if question.format == "html":
            return await markup.translated(self.service, model, question.texts, len(ranks), **options)
        found = await translated(self.service, model, question.texts, **options)
        return [distinct([text_of(text, rank) for rank in ranks]) for text in found]

    def _translate_fields(self) -> dict[str, Any]:
        models = self.service.models
        return {
            "q": {"anyOf": [{"type": "string", "minLength": 1}, listed({"type": "string"})], "example": "Hello"},
            "source": {"type": "string", "enum": ["auto", *models.sources]},
            "target": {"type": "string", "enum": models.languages},
            "format": {"type": "string", "enum": list(FORMATS), "default": "text"},
            "alternatives": {"type": "integer", "minimum": 0, "maximum": MOST_ALTERNATIVES, "default": 0},
            "api_key": {"type": "string"},
        }

    def _fields(self, *names: str) -> dict[str, Any]:
        return {name: {"type": "string", "minLength": 1} for name in names} | {"api_key": {"type": "string"}}


def distinct(texts: Sequence[str]) -> list[str]:
    """Without those that came before."""
    return list(dict.fromkeys(texts))


def _string(given: dict[str, Any], name: str) -> str:
    value = given.get(name)
    if not value:
        refuse(f"missing {name} parameter")
    if not isinstance(value, str):
        refuse(f"{name} parameter is not a string")
    return value


def _alternatives(value: Any) -> int:
    try:
        number = max(0, int(value or 0))
    except (TypeError, ValueError, OverflowError):
        refuse("alternatives parameter is not a number")
    if number > MOST_ALTERNATIVES:
        refuse(f"alternatives parameter must be <= {MOST_ALTERNATIVES}")
    return number


def _short(value: Any) -> str:
    """What a client sent, in a message."""
    return str(value)[:32]
