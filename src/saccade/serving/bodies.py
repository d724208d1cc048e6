"""What a request brings along: JSON, a form or a query string, in any of which LibreTranslate's clients ask."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qsl

from starlette.datastructures import UploadFile
from starlette.requests import Request

from saccade.serving.answers import Refusal, refuse

MOST_FIELDS = 32


async def fields(request: Request) -> dict[str, Any]:
    """All fields by name, the first of each; those of the body before those of the query."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    query = _first(request.query_params.multi_items())
    if kind == "application/json":
        return {**query, **json_object(await request.body())}
    if kind == "application/x-www-form-urlencoded":
        return {**query, **_form(await request.body())}
    if kind == "multipart/form-data":
        return {**query, **await _parts(request)}
    return query


def json_object(content: bytes) -> dict[str, Any]:
    """A JSON object; one that is too deep, or no UTF-8, is none."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        raise Refusal(400, "Invalid JSON format") from None
    if not isinstance(found, dict):
        raise Refusal(400, "Invalid JSON format")
    return found


def _form(content: bytes) -> dict[str, Any]:
    try:
        return _first(parse_qsl(content.decode("latin-1"), keep_blank_values=True, max_num_fields=MOST_FIELDS))
    except ValueError:
        refuse(f"more than {MOST_FIELDS} fields")


async def _parts(request: Request) -> dict[str, Any]:
    async with request.form(max_files=1, max_fields=MOST_FIELDS, max_part_size=1 << 20) as form:
        return {
            name: await value.read() if isinstance(value, UploadFile) else value
            for name, value in reversed(form.multi_items())
        }


def _first(items: list[tuple[str, str]]) -> dict[str, Any]:
    return dict(reversed(items))
