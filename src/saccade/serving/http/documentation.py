"""The OpenAPI document as a page to read: no script, nothing loaded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape

from saccade.inspection.pages.render import render

TEMPLATES = Path(__file__).with_name("templates")
Schema = Mapping[str, Any]


def page(document: Mapping[str, Any]) -> str:
    """Render every route with its fields and answers, then every type."""
    return render(
        "documentation.html",
        folder=TEMPLATES,
        info=document["info"],
        paths=document["paths"],
        types=document["components"]["schemas"],
        describe=_describe,
        describe_answer=_describe_answer,
    )


def _describe_answer(response: Mapping[str, Any]) -> Markup:
    schemas = [one["schema"] for one in response.get("content", {}).values() if "schema" in one]
    return Markup(", ").join(map(_describe, schemas))


def _describe(schema: Schema) -> Markup:
    """Describe a type in a word or two, with a link to those that have a name."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return Markup('<a href="#{0}">{0}</a>').format(name)
    if "anyOf" in schema:
        return Markup(" or ").join(map(_describe, schema["anyOf"]))
    if "enum" in schema or "const" in schema:
        return Markup(" | ").join(json.dumps(value) for value in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        return Markup("list of {}").format(_describe(schema.get("items", {})))
    limits = [f"{sign} {schema[key]}" for key, sign in (("minimum", "≥"), ("maximum", "≤")) if key in schema]
    return escape(" ".join([schema.get("type", "anything"), *limits]))
