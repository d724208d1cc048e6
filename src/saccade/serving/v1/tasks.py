"""The routes of tasks that answer texts or a picture: one for each task, made from its `Route`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from fastapi import APIRouter
from pydantic import BaseModel, ValidationError, create_model
from starlette.requests import Request
from starlette.responses import Response

from saccade.serving import work
from saccade.serving.http import bodies
from saccade.serving.http.responses import describe_error, error_responses, json_response, refuse
from saccade.serving.http.turns import run_in_thread
from saccade.serving.models import ServedModel
from saccade.serving.service import Service
from saccade.serving.v1 import schemas
from saccade.serving.v1.access import NEEDS_KEY, decode_picture
from saccade.serving.v1.streaming import AnswerStream
from saccade.serving.waiting import ModelCall
from saccade.tasks.base import Route, Traits

PICTURES = "a PNG or JPEG file; of a clip, GIF, PNG or WebP"
Call = Callable[..., Coroutine[Any, Any, Response]]
EVENTS = "Server-sent events, if `stream` is true: text (its parts), then done (the same as without), or error."
STREAMED: dict[int | str, dict[str, Any]] = {
    200: {"description": f"The answers. {EVENTS}", "content": {"text/event-stream": {"schema": {"type": "string"}}}}
}


class TaskRoute(NamedTuple):
    """A task that is served at /v1/<name>."""

    service: Service
    name: str
    route: Route

    def add_to(self, router: APIRouter) -> None:
        """Add it to the routes of /v1."""
        is_picture = self.route.reads == "picture"
        call = self._picture_call() if is_picture else self._texts_call()
        call.__name__, call.__doc__ = self.name, f"{self.route.title}."
        known = error_responses(400, 401, 403, 408, 413, 429, 503, 504)
        router.add_api_route(
            f"/{self.name}",
            call,
            methods=["POST"],
            response_model=schemas.Answers,
            responses={**(STREAMED if self.route.streams else {}), **known},
            dependencies=NEEDS_KEY,
            openapi_extra=describe_file("image", PICTURES, self.route.options) if is_picture else None,
        )

    def _texts_call(self) -> Call:
        service, name, route = self

        async def call(body: Any) -> Response:
            model = service.models.for_task(name, body.model)
            texts = service.texts(_write_words(body.q, model.run.predictor.traits) if route.by_word else body.q)
            if route.reads_whole:
                service.check_whole(model, *texts)
            options = _options(body, route, model.run.predictor.traits)
            if route.streams and body.stream:
                return await _stream(service, model, options, texts)
            found = await service.ask(model, ModelCall(work.answer, options), texts)
            return json_response({"model": model.run.name, "answers": [join_others(best) for best in found]})

        base: type[schemas.TextsRequest] = schemas.TextsRequest
        if route.streams or route.by_word:
            base = schemas.StreamedRequest if route.streams else schemas.WordsRequest
        call.__annotations__["body"] = self._request(base)  # where FastAPI looks for it
        return call

    def _picture_call(self) -> Call:
        service, name, route = self
        request_type = self._request(schemas.PictureRequest)

        async def call(request: Request) -> Response:
            try:
                body: Any = request_type.model_validate(await bodies.read_fields(request))
            except ValidationError as error:
                refuse(describe_error(error.errors()))
            model = service.models.for_task(name, body.model)
            options = _options(body, route, model.run.predictor.traits)
            pixels = await run_in_thread(decode_picture, body.image, model)
            (best,) = await service.ask(model, ModelCall(work.answer, options), [pixels])
            return json_response({"model": model.run.name, "answers": best})

        return call

    def _request(self, base: type[schemas.Request]) -> type[BaseModel]:
        """Make the type of a request: its inputs, and the options of the task."""
        return create_model(f"{self.name.title()}Request", __base__=(base, self.route.options))


async def _stream(
    service: Service, model: ServedModel, options: tuple[tuple[str, Any], ...], texts: list[str]
) -> Response:
    """Send the answer to one text while it is written."""
    if len(texts) != 1:
        refuse(f"q: {len(texts)} texts given; with stream there must be one")
    return await AnswerStream(service, model, options, texts[0]).respond()


def _write_words(given: Any, traits: Traits) -> list[str]:
    """Write texts that are given word by word as a model reads them: a line a word, or spaces between words."""
    names = ["words", *(traits.columns or ())]
    texts = given if isinstance(given, list) else [given]
    return [one if isinstance(one, str) else _write_text(one, names) for one in texts]


def _write_text(given: dict[str, list[str]], names: list[str]) -> str:
    if set(given) != set(names):
        refuse(f"q: {', '.join(given) or 'nothing'} given; this model reads {', '.join(names)}")
    for name in names:
        if len(given[name]) != len(given["words"]):
            refuse(f"q.{name}: {len(given[name])} given for {len(given['words'])} words; there must be one for each")
        if wrong := [value for value in given[name] if len(value.split()) != 1]:
            refuse(f"q.{name}: {wrong[0][:40]!r} given; each must be one word without spaces")
    rows = zip(*(given[name] for name in names), strict=True)
    return ("\n" if names[1:] else " ").join("\t".join(row) for row in rows)


def _options(body: BaseModel, route: Route, traits: Traits) -> tuple[tuple[str, Any], ...]:
    """Return the options of a request; the beam is at least as wide as `num_best`."""
    given = {name: getattr(body, name) for name in route.options.model_fields}
    if "num_best" in given and traits.beam is not None:
        given["width"] = max(given["num_best"], traits.beam)
    return tuple(sorted(given.items()))


def join_others(best: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the best answer as JSON, with the next best ones."""
    first, *others = best
    return {**first, "others": others} if others else first


def describe_file(field: str, kind: str, options: type[BaseModel]) -> dict[str, Any]:
    """Describe a body in OpenAPI: JSON with a file of this kind as base64, or a form with the file."""
    rest = {"model": {"type": "string"}, **options.model_json_schema().get("properties", {})}
    file = {
        "application/json": {"type": "string", "minLength": 1, "description": f"Base64 of {kind}."},
        "multipart/form-data": {"type": "string", "format": "binary"},
    }
    content = {
        kind: {"schema": {"type": "object", "required": [field], "properties": {field: one, **rest}}}
        for kind, one in file.items()
    }
    return {"requestBody": {"required": True, "content": content}}
