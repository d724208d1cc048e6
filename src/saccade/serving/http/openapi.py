"""The OpenAPI document. LibreTranslate's routes take the same fields in JSON, in a form, or in the query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

KINDS = ("application/json", "application/x-www-form-urlencoded", "multipart/form-data")


def document(api: FastAPI) -> dict[str, Any]:
    """Build FastAPI's document once, without status 422: wrong requests get 400 here."""
    if api.openapi_schema is None:
        found = get_openapi(title=api.title, version=api.version, description=api.description, routes=api.routes)
        for route in (route for routes in found["paths"].values() for route in routes.values()):
            route["responses"].pop("422", None)
        for name in ("HTTPValidationError", "ValidationError"):
            found["components"]["schemas"].pop(name, None)
        api.openapi_schema = found
    return api.openapi_schema


def describe_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the fields of a route as JSON, as forms and as a query; only JSON names the required ones."""
    schema = {"type": "object", "properties": dict(fields)}
    required = [name for name in fields if name in ("q", "source", "target", "s")]
    body = {"application/json": {"schema": {**schema, "required": required}}}
    forms = {kind: {"schema": {**schema, "properties": _flat(fields)}} for kind in KINDS[1:]}
    query = [{"name": name, "in": "query", "required": False, "schema": one} for name, one in _flat(fields).items()]
    return {"requestBody": {"required": False, "content": {**body, **forms}}, "parameters": query}


def list_of(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a list of such values."""
    return {"type": "array", "minItems": 1, "items": dict(schema)}


def _flat(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Drop lists: forms and queries have none."""
    return {name: one["anyOf"][0] if "anyOf" in one else one for name, one in fields.items()}
