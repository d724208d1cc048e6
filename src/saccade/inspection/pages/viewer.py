"""Insights as one page that opens anywhere, offline, and loads nothing."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from saccade.files import replace_file
from saccade.inspection.pages.render import render

STATIC = Path(__file__).with_name("static")
STYLES = ("viewer.css", "heatmap.css")
MODULES = (  # users last
    "palette.js", "insight.js", "heatmap.js", "words.js", "tiles.js", "overlay.js", "save.js", "viewer.js",
)  # fmt: skip
IMPORT = re.compile(r'^import \{ (.*) \} from "\./(.*)";$', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|class) (\w+))", re.MULTILINE)


def write(path: Path, insights: Sequence[Mapping[str, Any]], **options: Any) -> None:
    """Write the page; the options are those of `page`."""
    with replace_file(path) as draft:
        draft.write_bytes(page(insights, **options).encode("utf-8", "replace"))


def page(
    insights: Sequence[Mapping[str, Any]],
    *,
    title: str,
    start: Mapping[str, Any] | None = None,
    pictures: Sequence[str | None] = (),
) -> str:
    """Return the page as text. Its policy allows its own style and script, by their hashes, and nothing else.

    `insights` are given as JSON (`Insight.plain()`), `pictures` that they are about as data: addresses. `start` says
    what the page opens at: `kind`, `name` of a view, `layer`, `head`, `byWords`.
    """
    style = "".join(_read(name) for name in STYLES)
    script = bundle(MODULES)
    data = {
        "insights": list(insights),
        "pictures": list(pictures) or [None] * len(insights),
        "start": dict(start or {}),
    }
    return render(
        "viewer.html",
        title=title,
        style=Markup(style),
        style_hash=_hash(style),
        script=Markup(script),
        script_hash=_hash(script),
        data={name: _encode(content) for name, content in data.items()},
    )


def bundle(names: Sequence[str]) -> str:
    """Join modules into one script, each in a scope of its own; those that others import come first."""
    return "const modules = {};\n" + "".join(_scope(name, _read(name)) for name in names)


def _scope(name: str, text: str) -> str:
    exported = ", ".join(EXPORT.findall(text))
    body = EXPORT.sub("", IMPORT.sub(r'const { \1 } = modules["\2"];', text))
    return f'modules["{name}"] = (() => {{\n{body}return {{ {exported} }};\n}})();\n'


def _encode(content: Any) -> Markup:
    """Write JSON that no text in it can end."""
    return Markup(json.dumps(content, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c"))


def _read(name: str) -> str:
    return (STATIC / name).read_text("utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
