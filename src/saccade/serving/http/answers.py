"""Answers and refusals, the same in every route: JSON, and {"error": message} where something is wrong."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any, NoReturn

from starlette.exceptions import HTTPException
from starlette.responses import Response

from saccade.serving.v1.schemas import Problem

CODES = {
    400: "The request is wrong: the message says what, and what is allowed.",
    403: "The API key is wrong.",
    408: "The body took too long to arrive.",
    413: "The body is too large.",
    429: "Too many wait already: come again after Retry-After seconds.",
    503: "The server is about to stop.",
    504: "It took too long.",
}


class Refusal(HTTPException):
    """An answer with an error: the status, one line, and headers."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status, message, headers)


def answer(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """JSON as a response; characters that no UTF-8 has are replaced."""
    return Response(encoded(content), status, headers, "application/json")


def encoded(content: Any) -> bytes:
    """JSON as bytes."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")


def error(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """One line that says what is wrong."""
    return answer({"error": message}, status, headers)


def refuse(message: str) -> NoReturn:
    """The client's mistake."""
    raise Refusal(400, f"Invalid request: {message}")


async def send_error(
    send: Callable[[MutableMapping[str, Any]], Awaitable[None]], status: int, message: str, retry: int | None = None
) -> None:
    """The same before any route is reached."""
    body = encoded({"error": message})
    headers = {"content-type": "application/json", "content-length": str(len(body)), "connection": "close"}
    headers |= {} if retry is None else {"retry-after": str(retry)}
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """What a route may answer when something is wrong, for the documentation."""
    return {status: {"description": CODES[status], "model": Problem} for status in statuses}


def said(errors: Sequence[Any]) -> str:
    """pydantic's first complaint in one line, without the value: it may be long, or no text at all."""
    first = errors[0]
    where = ".".join(str(part) for part in first["loc"] if part != "body" and not str(part).startswith("function-"))
    return f"{where or 'body'}: {first['msg']}"
