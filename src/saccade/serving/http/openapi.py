"""The OpenAPI document; LibreTranslate's routes take the same fields in JSON, in a form, or in the query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

KINDS = ("application/json", "application/x-www-form-urlencoded", "multipart/form-data")


def document(api: FastAPI) -> dict[str, Any]:
    """As FastAPI makes it, made once; what it says of 422 is left out, since wrong requests are answered with 400."""
    if api.openapi_schema is None:
        found = get_openapi(title=api.title, version=api.version, description=api.description, routes=api.routes)
        for route in (route for routes in found["paths"].values() for route in routes.values()):
            route["responses"].pop("422", None)
        for name in ("HTTPValidationError", "ValidationError"):
            found["components"]["schemas"].pop(name, None)
        api.openapi_schema = found
    return api.openapi_schema


def described(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The three ways to ask; which fields are needed, the server says."""
    schema = {"type": "object", "properties": dict(fields)}
    required = [name for name in fields if name in ("q", "source", "target", "s")]
    body = {"application/json": {"schema": {**schema, "required": required}}}
    forms = {kind: {"schema": {**schema, "properties": _flat(fields)}} for kind in KINDS[1:]}
    query = [{"name": name, "in": "query", "required": False, "schema": one} for name, one in _flat(fields).items()]
    return {"requestBody": {"required": False, "content": {**body, **forms}}, "parameters": query}


def listed(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A list of these."""
    return {"type": "array", "minItems": 1, "items": dict(schema)}


def _flat(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Outside of JSON there are no lists."""
    return {name: one["anyOf"][0] if "anyOf" in one else one for name, one in fields.items()}
