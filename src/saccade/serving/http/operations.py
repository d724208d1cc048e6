"""Routes for operators: health, readiness, metrics and documentation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

from saccade.serving.http import documentation
from saccade.serving.http.responses import error_responses, json_response
from saccade.serving.service import Service
from saccade.serving.v1 import schemas
from saccade.serving.v1.access import NEEDS_KEY


@final
@dataclass(frozen=True)
class Operations:
    """Routes that tell how a service is."""

    service: Service

    def router(self) -> APIRouter:
        router = APIRouter(tags=["operations"])
        add = router.add_api_route
        add("/health", self.health, methods=["GET"], response_model=schemas.Status)
        add("/ready", self.ready, methods=["GET"], response_model=schemas.Status, responses=error_responses(503))
        text: dict[int | str, dict[str, Any]] = {
            200: {"description": "Prometheus' text format.", "content": {"text/plain": {}}}
        }
        responses = {**text, **error_responses(401, 403)}
        add(
            "/metrics",
            self.metrics,
            methods=["GET"],
            responses=responses,
            response_class=Response,
            dependencies=NEEDS_KEY,
        )
        add("/docs", self.documentation, methods=["GET"], include_in_schema=False)
        return router

    async def health(self) -> Response:
        """Say that the server is alive."""
        return json_response({"status": "ok"})

    async def ready(self) -> Response:
        """Say whether the server accepts requests; 503 while it starts and stops, and when a model is stuck."""
        readiness, timeout = self.service.readiness, self.service.settings.timeout
        if not readiness.is_ready or readiness.is_draining:
            return json_response({"error": "stopping" if readiness.is_draining else "starting"}, 503)
        for name, model in self.service.models.models.items():
            if (seconds := model.batcher.seconds_behind) > timeout:
                return json_response(
                    {"error": f"model {name} is stuck: it has answered nothing for {seconds:.0f} s"}, 503
                )
        return json_response({"status": "ok"})

    async def metrics(self) -> Response:
        """Report requests, their time, queues, batches and tokens."""
        return Response(self.service.tell_metrics(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def documentation(self, request: Request) -> Response:
        """Show every route on one page, which loads nothing."""
        return Response(documentation.page(request.app.openapi()), media_type="text/html")
