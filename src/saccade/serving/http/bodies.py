"""The fields of a request: JSON, a form or a query string, as LibreTranslate's clients send them."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qsl

from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import Request

from saccade.serving.http.responses import Refusal, refuse

MOST_FIELDS = 32
LONGEST_BOUNDARY = 70  # RFC 2046, section 5.1.1

logging.getLogger("python_multipart").setLevel(logging.CRITICAL)  # else it logs bytes of every broken request


async def read_fields(request: Request) -> dict[str, Any]:
    """Read all fields by name, the first of each; those of the body go before those of the query."""
    header = request.headers.get("content-type", "")
    kind = header.partition(";")[0].strip().lower()
    query = _take_first(request.query_params.multi_items())
    if kind.endswith(("/json", "+json")):
        return {**query, **parse_json_object(await request.body())}
    if kind == "application/x-www-form-urlencoded":
        return {**query, **_parse_form(await request.body())}
    if kind == "multipart/form-data":
        return {**query, **_take_first(parse_multipart(header, await request.body()))}
    content = await request.body()  # of another type, or of none: JSON, if it looks like it
    return {**query, **(parse_json_object(content) if content.lstrip().startswith(b"{") else {})}


def parse_json_object(content: bytes) -> dict[str, Any]:
    """Parse a JSON object; refuse anything else, too deep nesting and bad UTF-8."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        raise Refusal(400, "Invalid JSON format") from None
    if not isinstance(found, dict):
        raise Refusal(400, "Invalid JSON format")
    return found


def parse_multipart(header: str, content: bytes) -> list[tuple[str, str | bytes]]:
    """Parse the fields of a multipart form in memory: texts as strings, files as bytes whatever their names."""
    boundary = parse_options_header(header)[1].get(b"boundary", b"")
    if not 0 < len(boundary) <= LONGEST_BOUNDARY:
        refuse("a multipart body without its boundary")
    content, delimiter = b"\r\n" + content, b"\r\n--" + boundary
    if content.count(delimiter) > MOST_FIELDS + 1:  # the last one closes the form
        refuse(f"more than {MOST_FIELDS} fields")
    _, found, form = content.partition(delimiter)  # a preamble may stand before the first one
    parts = _Parts()
    try:
        MultipartParser(boundary, parts.callbacks).write(found + form)
    except MultipartParseError:
        refuse("a broken multipart body")
    parts.end_part()  # of a body that was cut
    return parts.fields


class _Parts:
    """The fields of a multipart form, gathered from the parser's callbacks."""

    def __init__(self) -> None:
        self.fields: list[tuple[str, str | bytes]] = []
        self._header, self._disposition, self._value = b"", b"", b""
        self.callbacks: Any = {
            "on_header_begin": self._begin_header,
            "on_header_field": self._add_header,
            "on_header_value": self._add_disposition,
            "on_part_data": self._add_value,
            "on_part_end": self.end_part,
        }

    def _begin_header(self) -> None:
        self._header = b""

    def _add_header(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def _add_disposition(self, data: bytes, start: int, end: int) -> None:
        if self._header.lower() == b"content-disposition":
            self._disposition += data[start:end]

    def _add_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def end_part(self) -> None:
        """Keep the field; a part without a name is none."""
        _, options = parse_options_header(self._disposition)
        if b"name" in options:
            is_file = b"filename" in options or b"filename*=" in self._disposition
            value = self._value if is_file else self._value.decode("utf-8", "replace")
            self.fields.append((options[b"name"].decode("utf-8", "replace"), value))
        self._disposition, self._value = b"", b""


def _parse_form(content: bytes) -> dict[str, Any]:
    try:
        return _take_first(parse_qsl(content.decode("latin-1"), keep_blank_values=True, max_num_fields=MOST_FIELDS))
    except ValueError:
        refuse(f"more than {MOST_FIELDS} fields")


def _take_first(items: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    return dict(reversed(items))
