"""The route of models that hear: a sound in, a text out, whatever their task."""

from __future__ import annotations

from typing import Any, NamedTuple

from fastapi import APIRouter
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response

from saccade.serving import work
from saccade.serving.http import bodies
from saccade.serving.http.responses import describe_error, error_responses, json_response, refuse
from saccade.serving.http.turns import run_in_thread
from saccade.serving.service import Service
from saccade.serving.v1 import schemas
from saccade.serving.v1.access import NEEDS_KEY, decode_sound, decoding_options
from saccade.serving.v1.tasks import describe_file, join_others
from saccade.serving.waiting import ModelCall

PATH = "/listen"


class ListenRoute(NamedTuple):
    """The route `POST /v1/listen`."""

    service: Service

    def add_to(self, router: APIRouter) -> None:
        """Add it to the routes of /v1."""
        router.add_api_route(
            PATH,
            self.listen,
            methods=["POST"],
            response_model=schemas.Answers,
            responses=error_responses(400, 401, 403, 408, 413, 429, 503, 504),
            dependencies=NEEDS_KEY,
            openapi_extra=describe_file("sound", "a WAV file", schemas.Decoding),
        )

    async def listen(self, request: Request) -> Response:
        """Write what a model hears in a sound."""
        try:
            body = schemas.SoundRequest.model_validate(await bodies.read_fields(request))
        except ValidationError as error:
            refuse(describe_error(error.errors()))
        model = self.service.models.that_hears(body.model)
        options: dict[str, Any] = decoding_options(body, model)
        frames = await run_in_thread(decode_sound, body.sound, model)
        (best,) = await self.service.ask(model, ModelCall(work.answer, tuple(sorted(options.items()))), [frames])
        return json_response({"model": model.run.name, "answers": [join_others(best)]})
