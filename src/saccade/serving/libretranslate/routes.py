"""LibreTranslate's interface, for its clients: JSON, form or query string; errors as {"error": ...}."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from saccade.data.text.languages import name_of
from saccade.serving.html import markup
from saccade.serving.http import bodies
from saccade.serving.http.openapi import describe_fields, list_of
from saccade.serving.http.responses import Refusal, error_responses, json_response, refuse
from saccade.serving.http.security import key_of
from saccade.serving.http.turns import run_in_thread
from saccade.serving.libretranslate.detection import DetectedLanguage
from saccade.serving.libretranslate.suggestions import Suggestions
from saccade.serving.models import LanguagePair, ServedModel
from saccade.serving.service import Service
from saccade.serving.translation import text_of, translate_texts
from saccade.serving.v1 import schemas
from saccade.serving.v1.schemas import MOST_TERMS, TERMS
from saccade.tasks.base import MOST_BEAM

FORMATS = ("text", "html")
WORD = re.compile(r"\w")
MAX_ALTERNATIVES = MOST_BEAM - 1
NUMBER = re.compile(r"-?[0-9]{1,99}")
ALTERNATIVES = {
    "anyOf": [
        {"type": "string", "pattern": "^(-[0-9]{1,99}|0{0,98}[0-9]|0{0,97}1[0-5])?$"},  # so it comes in forms
        {"type": "integer", "maximum": MAX_ALTERNATIVES},  # below 0 counts as 0
        {"type": "null"},
    ],
    "default": 0,
}
Q = {"anyOf": [{"type": "string", "minLength": 1}, list_of({"type": "string"})], "example": "Hello"}
KEY = {"anyOf": [{"type": "string"}, {"type": "null"}]}
NO_FILES = "Files translation are disabled on this server."


class TranslateQuery(NamedTuple):
    """The fields of a request to /translate."""

    texts: list[str]
    is_list: bool
    source: str
    target: str
    format: str
    alternatives: int
    glossary: tuple[tuple[str, str], ...] = ()


@final
@dataclass(frozen=True)
class LibreTranslate:
    """LibreTranslate's routes to a service."""

    service: Service
    suggestions: Suggestions | None

    def router(self) -> APIRouter:
        router = APIRouter(tags=["LibreTranslate"])
        known = error_responses(400, 403, 408, 413, 429, 503, 504)
        posts = (
            ("/translate", self.translate, schemas.LibreTranslation, describe_fields(self._translate_fields())),
            ("/detect", self.detect, list[schemas.LibreDetection], describe_fields({**self._fields(), "q": Q})),
            (
                "/suggest",
                self.suggest,
                schemas.LibreSuccess,
                describe_fields(self._fields("q", "s", "source", "target")),
            ),
        )
        for path, call, model, extra in posts:
            router.add_api_route(
                path, call, methods=["POST"], response_model=model, responses=known, openapi_extra=extra
            )
        router.add_api_route("/languages", self.languages, methods=["GET"], response_model=list[schemas.LibreLanguage])
        router.add_api_route("/frontend/settings", self.settings, methods=["GET"], response_model=schemas.LibreSettings)
        router.add_api_route("/spec", self.spec, methods=["GET"], include_in_schema=False)
        router.add_api_route("/translate_file", self.refuse_file, methods=["POST"], include_in_schema=False)
        router.add_api_route("/download_file/{name}", self.refuse_download, methods=["GET"], include_in_schema=False)
        return router

    async def translate(self, request: Request) -> Response:
        """Translate texts from one language to another."""
        fields = await bodies.read_fields(request)
        self._check_key(fields, request)
        self._check_languages()
        query = self._parse_query(fields)
        detected = await self._detect_source(query)
        source = query.source if detected is None else detected.language
        found = await self._translate(query, self._model(source, query.target))
        columns: dict[str, list[Any]] = {"translatedText": [best[0] for best in found]}
        if query.alternatives:
            columns["alternatives"] = [best[1:] for best in found]
        if detected is not None:
            shown = {"confidence": detected.confidence, "language": detected.language}
            columns["detectedLanguage"] = [shown] * len(found)
        if query.is_list:
            return json_response(columns)
        return json_response({name: column[0] for name, column in columns.items()})

    async def detect(self, request: Request) -> Response:
        """Detect the language of a text among those of this server, the most probable first."""
        fields = await bodies.read_fields(request)
        self._check_key(fields, request)
        self._check_languages()
        texts = self.service.texts(_texts(fields))
        found = self.service.detector.detect("\n".join(texts))
        return json_response([{"confidence": one.confidence, "language": one.language} for one in found])

    async def suggest(self, request: Request) -> Response:
        """Send a better translation to a server that collects them."""
        fields = await bodies.read_fields(request)
        self._check_key(fields, request)
        if self.suggestions is None:
            raise Refusal(403, "Suggestions are disabled on this server.")
        texts = {name: _string(fields, name) for name in ("q", "s", "source", "target")}
        self.service.texts([texts["q"], texts["s"]])
        languages = {name: self._find_language(texts[name]) for name in ("source", "target")}
        self.suggestions.add({**texts, **languages})
        return json_response({"success": True})

    async def languages(self) -> Response:
        """List all languages, and those that each is translated into; one that is only written has none."""
        models = self.service.models
        targets = {code: models.targets(code) if code in models.sources else [] for code in models.languages}
        return json_response([{"code": code, "name": name_of(code), "targets": targets[code]} for code in targets])

    async def settings(self) -> Response:
        """Return the settings for a front end."""
        pair = next(iter(self.service.models.pairs), None)
        shown = {
            side: {"code": code, "name": name_of(code)}
            for side, code in (pair._asdict() if pair is not None else {}).items()
        }
        return json_response(
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

    async def refuse_file(self) -> Response:
        """Say what LibreTranslate says where files are not translated."""
        raise Refusal(403, NO_FILES)

    async def refuse_download(self, name: str) -> Response:
        """Say so to who asks for a translated file."""
        del name
        raise Refusal(400, NO_FILES)

    async def spec(self, request: Request) -> Response:
        """Return the OpenAPI document at LibreTranslate's address."""
        return JSONResponse(request.app.openapi())

    def _parse_query(self, given: dict[str, Any]) -> TranslateQuery:
        asked, is_list = _texts(given), isinstance(given["q"], list)
        source, target = _string(given, "source"), _string(given, "target")
        alternatives = _alternatives(given.get("alternatives"))
        texts = self.service.texts(asked)
        source = source if source == "auto" else self._find_language(source)
        target = self._find_language(target)
        kind = "text" if given.get("format") in (None, "") else given["format"]
        if kind not in FORMATS:
            raise Refusal(400, f"{_short(kind)} format is not supported")
        glossary = _glossary(given.get("glossary"))
        return TranslateQuery(texts, is_list, source, target, kind, alternatives, glossary)

    def _check_key(self, fields: dict[str, Any], request: Request) -> None:
        key = fields.get("api_key")
        if not isinstance(key, str | None):
            refuse("api_key parameter is not a string")
        self.service.keys.check(key or key_of(request.headers))

    def _check_languages(self) -> None:
        if not self.service.models.languages:
            raise Refusal(400, "no model of this server has languages; see /v1/models, and POST to /v1/<task>")

    def _find_language(self, code: str) -> str:
        found = self.service.models.find_language(code)
        if found is None:
            raise Refusal(400, f"{_short(code)} is not supported")
        return found

    async def _detect_source(self, query: TranslateQuery) -> DetectedLanguage | None:
        """Detect the source for `auto`, among the languages with a model into the target, and the target itself."""
        if query.source != "auto":
            return None
        models, target = self.service.models, query.target
        able = [code for code in models.languages if code == target or LanguagePair(code, target) in models.pairs]
        text = "\n".join(query.texts)
        if query.format == "html":
            text = await run_in_thread(markup.plain_text, text)
        return self.service.detector.detect(text, able)[0]

    def _model(self, source: str, target: str) -> ServedModel | None:
        """Return the model of a pair of languages; None if both are the same."""
        if source == target:
            return None
        model = self.service.models.pairs.get(LanguagePair(source, target))
        if model is None:
            what = (
                f"{name_of(target)} ({target}) is not available as a target language from {name_of(source)} ({source})"
            )
            raise Refusal(400, what)
        return model

    async def _translate(self, query: TranslateQuery, model: ServedModel | None) -> list[list[str]]:
        """Return the translation of each text and its alternatives."""
        ranks = range(query.alternatives + 1)
        if model is None:
            return [[text] for text in query.texts]
        options: dict[str, Any] = {}
        if query.alternatives:
            width = max(len(ranks), model.run.predictor.traits.beam or 1)
            options = {"num_best": len(ranks), "width": width}
        if query.glossary:
            options["glossary"] = query.glossary
        if query.format == "html":
            return await markup.translate_html(self.service, model, query.texts, len(ranks), **options)
        found = await translate_texts(self.service, model, query.texts, **options)
        return [drop_repeats([text_of(text, rank) for rank in ranks]) for text in found]

    def _translate_fields(self) -> dict[str, Any]:
        models = self.service.models
        return {
            "q": Q,
            "source": {"type": "string", "enum": ["auto", *models.sources]},
            "target": {"type": "string", **({"enum": models.languages} if models.languages else {})},
            "format": {"anyOf": [{"type": "string", "enum": [*FORMATS, ""]}, {"type": "null"}], "default": "text"},
            "alternatives": ALTERNATIVES,
            "glossary": {"anyOf": [{"type": "object", "maxProperties": MOST_TERMS, **TERMS}, {"enum": ["", None]}]},
            "api_key": KEY,
        }

    def _fields(self, *names: str) -> dict[str, Any]:
        return {name: {"type": "string", "minLength": 1} for name in names} | {"api_key": KEY}


def drop_repeats(texts: Sequence[str]) -> list[str]:
    """Drop texts that came before."""
    return list(dict.fromkeys(texts))


def _texts(given: dict[str, Any]) -> str | list[str]:
    """Return the field q: a text, or a list of them."""
    texts = given.get("q")
    if not texts:
        refuse("missing q parameter")
    if not isinstance(texts, str) and not (isinstance(texts, list) and all(isinstance(text, str) for text in texts)):
        refuse("q parameter is not a string, nor a list of strings")
    return texts


def _string(given: dict[str, Any], name: str) -> str:
    value = given.get(name)
    if not value:
        refuse(f"missing {name} parameter")
    if not isinstance(value, str):
        refuse(f"{name} parameter is not a string")
    return value


def _alternatives(value: Any) -> int:
    """Read a number; some clients send it as a string, or none as an empty one."""
    if value is None or value == "":
        return 0
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and value == value // 1
    if not is_number and not (isinstance(value, str) and NUMBER.fullmatch(value)):
        refuse("alternatives parameter is not a whole number")
    if (number := max(0, int(value))) > MAX_ALTERNATIVES:
        refuse(f"alternatives parameter must be <= {MAX_ALTERNATIVES}")
    return number


def _glossary(value: Any) -> tuple[tuple[str, str], ...]:
    """Read terms: an object, or in a form or query string one in JSON."""
    if value is None or value == "":
        return ()
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            refuse("glossary parameter is not JSON")
    if not isinstance(value, dict) or not all(isinstance(target, str) for target in value.values()):
        refuse("glossary parameter is not an object of strings")
    if len(value) > MOST_TERMS:
        refuse(f"glossary parameter has {len(value)} terms; it must have {MOST_TERMS} or fewer")
    for term in value.items():
        for side, part in zip(("source", "target"), term, strict=True):
            if not WORD.search(part):
                what = "has no letter or digit" if part.strip() else "is blank"
                refuse(f"glossary: {term[0]!r}: its {side} {what}; both sides must have text")
    return tuple(value.items())


def _short(value: Any) -> str:
    """Shorten a client's value for a message."""
    return str(value)[:32]
