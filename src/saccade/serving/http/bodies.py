"""What a request brings along: JSON, a form or a query string, in any of which LibreTranslate's clients ask."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import Request

from saccade.serving.http.answers import Refusal, refuse

MOST_FIELDS = 32
BOUNDARY = re.compile(r"""boundary=(?:"([^"]{1,70})"|([^\s;"]{1,70}))""", re.IGNORECASE)
NAME = re.compile(rb'^content-disposition:[^\r\n]*?;\s*name="?([^";\r\n]*)', re.IGNORECASE | re.MULTILINE)
FILE = re.compile(rb"^content-disposition:[^\r\n]*?;\s*filename", re.IGNORECASE | re.MULTILINE)


async def fields(request: Request) -> dict[str, Any]:
    """All fields by name, the first of each; those of the body before those of the query."""
    header = request.headers.get("content-type", "")
    kind = header.partition(";")[0].strip().lower()
    query = _first(request.query_params.multi_items())
    if kind == "application/json":
        return {**query, **json_object(await request.body())}
    if kind == "application/x-www-form-urlencoded":
        return {**query, **_form(await request.body())}
    if kind == "multipart/form-data":
        return {**query, **_first(parts(header, await request.body()))}
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


def parts(header: str, content: bytes) -> list[tuple[str, str | bytes]]:
    """The fields of a multipart form: texts, and files as bytes. All in memory, whatever a file is called."""
    boundary = BOUNDARY.search(header)
    if boundary is None:
        refuse("a multipart body without its boundary")
    line = b"\r\n--" + (boundary[1] or boundary[2]).encode("latin-1", "replace")
    _, *sections = (b"\r\n" + content).split(line, MOST_FIELDS + 1)
    if len(sections) > MOST_FIELDS:
        refuse(f"more than {MOST_FIELDS} fields")
    return [found for section in sections if (found := _part(section)) is not None]


def _part(section: bytes) -> tuple[str, str | bytes] | None:
    """One field; None where there is no name, as behind the last boundary."""
    head, _, value = section.partition(b"\r\n\r\n")
    name = NAME.search(head)
    if name is None:
        return None
    return name[1].decode("utf-8", "replace"), value if FILE.search(head) else value.decode("utf-8", "replace")


def _form(content: bytes) -> dict[str, Any]:
    try:
        return _first(parse_qsl(content.decode("latin-1"), keep_blank_values=True, max_num_fields=MOST_FIELDS))
    except ValueError:
        refuse(f"more than {MOST_FIELDS} fields")


def _first(items: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    return dict(reversed(items))
