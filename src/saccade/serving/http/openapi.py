"""The OpenAPI document: what may be asked of this server, with its models and languages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

KINDS = ("application/json", "application/x-www-form-urlencoded", "multipart/form-data")


def document(api: FastAPI, models: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Build FastAPI's document once, without status 422: wrong requests get 400 here.

    `models` has the models of each route that asks one: their names are documented, and routes without one are not.
    """
    if api.openapi_schema is None:
        found = get_openapi(title=api.title, version=api.version, description=api.description, routes=api.routes)
        for route in (route for routes in found["paths"].values() for route in routes.values()):
            route["responses"].pop("422", None)
        for path, names in models.items():
            _name_models(found, path, names)
        for name in ("HTTPValidationError", "ValidationError"):
            found["components"]["schemas"].pop(name, None)
        api.openapi_schema = found
    return api.openapi_schema


def _name_models(document: dict[str, Any], path: str, names: Sequence[str]) -> None:
    if not names:
        del document["paths"][path]
        return
    for content in document["paths"][path]["post"]["requestBody"]["content"].values():
        given = content["schema"]
        schema = document["components"]["schemas"][given["$ref"].rpartition("/")[2]] if "$ref" in given else given
        if "model" in schema["properties"]:
            schema["properties"]["model"] = {**schema["properties"]["model"], "enum": [*names, None]}


def describe_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the fields of a route as JSON and as forms."""
    required = [name for name in fields if name in ("q", "source", "target", "s")]
    schema = {"type": "object", "properties": dict(fields), "required": required}
    body = {"application/json": {"schema": schema}}
    forms = {kind: {"schema": {**schema, "properties": _flat(fields)}} for kind in KINDS[1:]}
    said = "JSON, or a form; fields that it lacks are read from the query string."
    return {"requestBody": {"description": said, "required": True, "content": {**body, **forms}}}


def list_of(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of a list of such values."""
    return {"type": "array", "minItems": 1, "items": dict(schema)}


def _flat(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Drop lists: forms have none."""
    return {name: one["anyOf"][0] if "anyOf" in one else one for name, one in fields.items()}
