"""Responses of every route: JSON, and {"error": message} for errors."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any, NoReturn

from starlette.exceptions import HTTPException
from starlette.responses import Response

from saccade.serving.v1.schemas import Problem

CODES = {
    400: "The request is wrong: the message says what is wrong and what is allowed.",
    401: "An API key is missing.",
    403: "The API key is wrong, or a page of another site asks.",
    408: "The body took too long to arrive.",
    413: "The body is too large.",
    429: "Too many requests are waiting: try again after Retry-After seconds.",
    431: "The head of the request is too large.",
    503: "The server is stopping, or out of memory.",
    504: "The answer took too long.",
}


class Refusal(HTTPException):
    """An error response: the status, one line, and headers; `reason` names what is refused in the metrics."""

    def __init__(
        self, status: int, message: str, headers: Mapping[str, str] | None = None, *, reason: str = "request"
    ) -> None:
        super().__init__(status, message, headers)
        self.reason = reason


def json_response(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return JSON as a response; characters that UTF-8 cannot encode are replaced."""
    return Response(encode_json(content), status, headers, "application/json")


def encode_json(content: Any) -> bytes:
    """Encode JSON as compact UTF-8."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")


def error_response(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return an error response with one line."""
    return json_response({"error": message}, status, headers)


def refuse(message: str) -> NoReturn:
    """Refuse a request because of the client's mistake."""
    raise Refusal(400, f"Invalid request: {message}")


async def send_error(
    send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    status: int,
    message: str,
    headers: Mapping[str, str] | None = None,
) -> None:
    """Send an error response without a route."""
    body = encode_json({"error": message})
    own = {"content-type": "application/json", "content-length": str(len(body)), "connection": "close"}
    pairs = [(name.lower().encode(), value.encode()) for name, value in {**own, **(headers or {})}.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})


def error_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Describe the error responses of a route for the documentation."""
    return {status: {"description": CODES[status], "model": Problem} for status in statuses}


def describe_error(errors: Sequence[Any]) -> str:
    """Return pydantic's first error in one line, without the value, which may be long or no text."""
    first = errors[0]
    where = ".".join(str(part) for part in first["loc"] if part != "body" and not str(part).startswith("function-"))
    return f"{where or 'body'}: {first['msg']}"
