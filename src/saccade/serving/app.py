"""The server as one ASGI application."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import NamedTuple

import torch
from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response

import saccade
from saccade.errors import UserError
from saccade.serving.batcher import Batcher, RequestBatch
from saccade.serving.http import pages
from saccade.serving.http.callers import RateLimit
from saccade.serving.http.lifetimes import App, Readiness
from saccade.serving.http.logs import AccessLogMiddleware
from saccade.serving.http.metrics import Metrics
from saccade.serving.http.openapi import document
from saccade.serving.http.operations import Operations
from saccade.serving.http.origins import allowed_sites
from saccade.serving.http.responses import describe_error, error_response
from saccade.serving.http.security import Keys, LimitsMiddleware
from saccade.serving.libretranslate.detection import Detector
from saccade.serving.libretranslate.routes import LibreTranslate
from saccade.serving.libretranslate.suggestions import Suggestions
from saccade.serving.models import ModelSet, ServedRun
from saccade.serving.processes.workers import ModelWorkers, Workers
from saccade.serving.service import Service
from saccade.serving.settings import Settings
from saccade.serving.v1.access import NEEDS_KEY
from saccade.serving.v1.descriptions import describe
from saccade.serving.v1.routes import V1
from saccade.tasks import TASKS


class Application(NamedTuple):
    """The application, and the service behind it."""

    app: App
    service: Service


def build(runs: Sequence[ServedRun], settings: Settings, workers: Workers | None = None) -> Application:
    """Build an application that serves these runs; `workers` compute what is slow."""
    metrics = Metrics()
    models = ModelSet(runs, partial(_make_queue, settings=settings, metrics=metrics, workers=workers))
    if workers is not None:
        metrics.add_workers(workers)
    sites = allowed_sites(settings.host, settings.hosts, settings.cors)
    rates = RateLimit(settings.rate) if settings.rate else None
    readiness, keys = Readiness(), Keys(settings.keys, rates if settings.keys else None)
    metrics.in_flight.set_function(lambda: readiness.requests.total)
    service = Service(models, settings, metrics, keys, Detector(models.languages), readiness, sites, workers)
    api = FastAPI(
        title="saccade",
        version=saccade.__version__,
        description="Translate with your own models, and see what they looked at.",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=partial(_lifespan, service),
    )
    suggestions = None if settings.suggestions is None else Suggestions(settings.suggestions)
    ours = (LibreTranslate(service, suggestions), V1(service, [describe(run) for run in runs]), Operations(service))
    routers = [_with_head(routes.router()) for routes in ours]
    for router in routers:
        api.include_router(router)
    api.openapi = partial(document, api, _models_of_routes(models))  # type: ignore[method-assign]
    api.router.routes += pages.routes()
    for kind, call in HANDLERS.items():
        api.add_exception_handler(kind, call)
    return Application(
        _add_middleware(api, service, _paths_with_keys(routers), None if settings.keys else rates), service
    )


def _models_of_routes(models: ModelSet) -> dict[str, list[str]]:
    """Return the models that may be asked at each route: those of a task, those with languages, or all."""
    named = models.models
    texts = {name: model.run.task for name, model in named.items() if not model.run.hears}
    found = {f"/v1/{task}": [name for name, own in texts.items() if own == task] for task in TASKS}
    found["/v1/listen"] = [name for name in named if name not in texts]
    found |= {
        path: [model.run.name for model in models.pairs.values()] for path in ("/translate", "/detect", "/suggest")
    }
    return found | {"/v1/look": list(named)}


def _paths_with_keys(routers: Sequence[APIRouter]) -> frozenset[str]:
    routes = [route for router in routers for route in router.routes if isinstance(route, APIRoute)]
    return frozenset(route.path for route in routes if NEEDS_KEY[0] in route.dependencies)


def _with_head(router: APIRouter) -> APIRouter:
    """Answer HEAD wherever GET is answered, as HTTP has it; uvicorn leaves the body out."""
    for route in [route for route in router.routes if isinstance(route, APIRoute) and route.methods == {"GET"}]:
        path, needs = route.path.removeprefix(router.prefix), route.dependencies
        router.add_api_route(path, route.endpoint, methods=["HEAD"], dependencies=needs, include_in_schema=False)
    return router


def _make_queue(run: ServedRun, *, settings: Settings, metrics: Metrics, workers: Workers | None) -> Batcher:
    size, seconds = metrics.batches.labels(run.name), metrics.batch_seconds.labels(run.name)

    def observe(batch: RequestBatch) -> None:
        size.observe(batch.num_items)
        seconds.observe(batch.seconds)

    queue = Batcher(
        run.predictor,
        wait=settings.batch_wait,
        max_queue=settings.max_queue,
        max_wait=settings.timeout,
        on_batch=observe,
        on_begin=metrics.queue_seconds.labels(run.name).observe,
        prepare=lambda: torch.set_num_threads(settings.threads),
        workers=None if workers is None else ModelWorkers(workers, run.name),
    )
    metrics.add_queue(run.name, lambda: queue.num_waiting)
    return queue


@asynccontextmanager
async def _lifespan(service: Service, api: FastAPI) -> AsyncIterator[None]:
    del api
    queues = [model.batcher for model in service.models.models.values()]
    for queue in queues:
        queue.start()
    service.readiness.is_ready = True
    yield
    service.readiness.is_ready = False
    for queue in queues:
        queue.close()
    for queue in queues:
        queue.join(LAST_SECONDS)


def _add_middleware(api: App, service: Service, with_keys: frozenset[str], rates: RateLimit | None) -> App:
    settings = service.settings
    app: App = LimitsMiddleware(
        api,
        service.readiness,
        sites=service.sites,
        keys=service.keys,
        with_keys=with_keys,
        max_body=partial(_max_body, settings),
        max_values=settings.max_characters + settings.max_texts + OTHER_VALUES,
        timeout=settings.timeout,
        rates=rates,
    )
    if settings.cors:
        headers = ["Content-Type", "Authorization", "X-API-Key"]
        app = CORSMiddleware(app, settings.cors, allow_methods=["GET", "POST"], allow_headers=headers)
    return AccessLogMiddleware(app, service.metrics, service.readiness, quiet=settings.quiet)


def _max_body(settings: Settings, path: str) -> int:
    """Return the most bytes of a body: a character of a text is at most 12 in JSON or in a form, files take more."""
    texts = min(settings.max_body, 64 * 1024 + 16 * settings.max_characters)
    return settings.max_body if path in FILE_PATHS else texts


def _answer_refusal(request: Request, refusal: Exception) -> Response:
    assert isinstance(refusal, HTTPException)
    request.scope["refusal"] = getattr(refusal, "reason", "request")
    return error_response(refusal.status_code, refusal.detail, refusal.headers)


def _answer_invalid(request: Request, invalid: Exception) -> Response:
    assert isinstance(invalid, RequestValidationError)
    request.scope["refusal"] = "request"
    return error_response(400, f"Invalid request: {describe_error(invalid.errors())}")


def _answer_user_error(request: Request, mistake: Exception) -> Response:
    request.scope["refusal"] = "request"
    return error_response(400, f"Invalid request: {mistake}")


def _answer_failure(request: Request, failure: Exception) -> Response:
    del request, failure
    return error_response(500, "Internal error")


OTHER_VALUES = 1024  # commas of a request beside those in its texts, and between them
LAST_SECONDS = 1.0  # for models to come by a pause and end
FILE_PATHS = {
    "/v1/look",
    "/v1/listen",
    *(f"/v1/{name}" for name, task in TASKS.items() if task.route.reads == "picture"),
}
HANDLERS = {
    HTTPException: _answer_refusal,
    RequestValidationError: _answer_invalid,
    UserError: _answer_user_error,
    Exception: _answer_failure,
}
