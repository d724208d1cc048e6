"""The OpenAPI document as a page to read: no script, nothing loaded."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

Schema = Mapping[str, Any]


def page(document: Mapping[str, Any]) -> str:
    """Every route with its fields and answers, then every type."""
    rows = [
        _route(method.upper(), path, route)
        for path, routes in document["paths"].items()
        for method, route in routes.items()
    ]
    types = [_type(name, schema) for name, schema in document["components"]["schemas"].items()]
    info = document["info"]
    title = escape(f"{info['title']} {info['version']}")
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<link rel="stylesheet" href="/docs.css">
<h1>{title}</h1>
<p>{escape(info["description"])} For programs: <a href="/openapi.json">/openapi.json</a>.</p>
<h2>Routes</h2>
{"".join(rows)}
<h2>Types</h2>
{"".join(types)}
</html>
"""


def _route(method: str, path: str, route: Mapping[str, Any]) -> str:
    parts = [f"<h3><code>{method} {escape(path)}</code></h3><p>{escape(route.get('description', ''))}</p>"]
    if parameters := route.get("parameters"):
        parts.append(_table((one["name"], one["schema"], one.get("description", one["in"])) for one in parameters))
    content = route.get("requestBody", {}).get("content", {})
    for kind, body in content.items():
        parts.append(f"<p>Body, <code>{escape(kind)}</code>: {_named(body['schema'])}</p>")
        if "properties" in body["schema"]:
            parts.append(_fields(body["schema"]))
    answers = "".join(
        f"<li>{status}: {escape(one['description'])} {_answer(one)}</li>" for status, one in route["responses"].items()
    )
    return "".join([*parts, f"<ul>{answers}</ul>"])


def _type(name: str, schema: Schema) -> str:
    name, said = escape(name), escape(schema.get("description", ""))
    return f'<h3 id="{name}"><code>{name}</code></h3><p>{said}</p>{_fields(schema)}'


def _fields(schema: Schema) -> str:
    return _table((name, one, one.get("description", "")) for name, one in schema.get("properties", {}).items())


def _table(rows: Iterator[tuple[str, Schema, str]]) -> str:
    lines = (
        f"<tr><th scope=row><code>{escape(name)}</code><td>{_named(schema)}<td>{escape(said)}"
        for name, schema, said in rows
    )
    return f"<table>{''.join(lines)}</table>"


def _answer(response: Mapping[str, Any]) -> str:
    return ", ".join(_named(one["schema"]) for one in response.get("content", {}).values() if "schema" in one)


def _named(schema: Schema) -> str:
    """A type in a word or two, with a link to those that have a name."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(map(_named, schema["anyOf"]))
    if "enum" in schema or "const" in schema:
        return " | ".join(escape(json.dumps(value)) for value in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        return f"list of {_named(schema.get('items', {}))}"
    limits = [f"{sign} {schema[key]}" for key, sign in (("minimum", "≥"), ("maximum", "≤")) if key in schema]
    return escape(" ".join([schema.get("type", "anything"), *limits]))
