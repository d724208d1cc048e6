"""/v1: what LibreTranslate lacks: alignment, confidence, attention; labels, tags, captions, glimpses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from fastapi import APIRouter
from numpy.typing import NDArray
from starlette.responses import Response

import saccade
from saccade.data.pictures.images import Pixels
from saccade.serving import work
from saccade.serving.http.responses import error_responses, json_response, refuse
from saccade.serving.http.turns import run_in_thread
from saccade.serving.models import ServedModel
from saccade.serving.service import Service
from saccade.serving.v1 import schemas
from saccade.serving.v1.access import NEEDS_KEY, decode_picture, decode_sound, decoding_options
from saccade.serving.v1.descriptions import Description
from saccade.serving.v1.listen import ListenRoute
from saccade.serving.v1.tasks import TaskRoute
from saccade.serving.v1.translation import TranslationRoute
from saccade.serving.waiting import ModelCall
from saccade.tasks import TASKS


@final
@dataclass(frozen=True)
class V1:
    """The routes of /v1 to a service; `descriptions` are those of its models."""

    service: Service
    descriptions: list[Description]

    def router(self) -> APIRouter:
        """Make one route for each task, and those that are about models."""
        router = APIRouter(prefix="/v1", tags=["saccade"])
        for name, task in TASKS.items():
            if task.route.languages is None:
                TaskRoute(self.service, name, task.route).add_to(router)
            else:
                TranslationRoute(self.service, name).add_to(router)
        ListenRoute(self.service).add_to(router)
        known = error_responses(400, 401, 403, 408, 413, 429, 503, 504)
        router.add_api_route(
            "/look",
            self.look,
            methods=["POST"],
            response_model=schemas.LookResponse,
            responses=known,
            dependencies=NEEDS_KEY,
        )
        router.add_api_route("/models", self.models, methods=["GET"], response_model=schemas.ModelsResponse)
        return router

    async def models(self) -> Response:
        """List all models of this server and what each can do."""
        return json_response({"version": saccade.__version__, "models": [one.plain() for one in self.descriptions]})

    async def look(self, body: schemas.LookRequest) -> Response:
        """Show what a model read while it answered a text, a picture or a sound: the weights of layers and heads."""
        model = self.service.models.get(body.model)
        given, options = await self._input(body, model), _look_options(body, model)
        (found,) = await self.service.ask(model, ModelCall(work.look, tuple(sorted(options.items()))), [given])
        return Response(found, media_type="application/json")

    async def _input(self, body: schemas.LookRequest, model: ServedModel) -> str | Pixels | NDArray[np.float16]:
        """Return the text, the picture or the frames of a sound to look at."""
        if model.run.predictor.traits.reads == "sound":
            if body.sound is None:
                refuse("missing sound parameter: this model reads sounds")
            return await run_in_thread(decode_sound, body.sound, model)
        if model.run.predictor.traits.reads == "picture":
            if body.image is None:
                refuse("missing image parameter: this model reads pictures")
            return await run_in_thread(decode_picture, body.image, model)
        if body.text is None:
            refuse("missing text parameter: this model reads texts")
        self.service.check_whole(model, body.text, body.target or "")
        if not body.text.strip():
            refuse("text is blank: there is nothing to look at")
        return body.text


def _look_options(body: schemas.LookRequest, model: ServedModel) -> dict[str, Any]:
    """Return the options of the request that the model's `look` takes."""
    traits, chosen = model.run.predictor.traits, {"layers": body.layers, "heads": body.heads}
    options: dict[str, Any] = {name: tuple(given) for name, given in chosen.items() if given is not None}
    if traits.beam is not None:
        options |= decoding_options(body, model)
    if "kinds" in traits.look_options:
        options |= {"kinds": tuple(body.kinds)} if body.kinds is not None else {}
        options |= {"norms": True} if body.norms else {}
        options |= {"views": tuple(body.views)} if body.views else {}
    if "targets" in traits.look_options and body.target is not None:
        options["targets"] = body.target
    return options | {name: value for name, value in traits.evidence.items() if name in traits.look_options}
