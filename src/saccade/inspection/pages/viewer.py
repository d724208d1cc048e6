"""Insights as one page that opens anywhere, offline, and loads nothing: everything to look at them with is inside."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from saccade.files import replace_file

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
    """The page as text. Its own style and script are allowed by their hashes, and nothing else.

    `insights` are their JSON (`Insight.plain()`); `pictures` what each of them is about, as data: addresses. `start` is
    what the page opens at: `kind`, `name` of a view, `layer`, `head`, `byWords`.
    """
    style = "".join(_read(name) for name in STYLES)
    script = bundle(MODULES)
    policy = f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; base-uri 'none'"
    body = _read("viewer.html").replace('dir="auto"></h1>', f'dir="auto">{escape(title)}</h1>')
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}; form-action 'none'; img-src data:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>{escape(title)}</title>
<style>{style}</style>
</head>
<body>
{body}<script type="application/json" id="insights">{_data(list(insights))}</script>
<script type="application/json" id="pictures">{_data(list(pictures) or [None] * len(insights))}</script>
<script type="application/json" id="start">{_data(dict(start or {}))}</script>
<script type="module">{script}</script>
</body>
</html>
"""


def bundle(names: Sequence[str]) -> str:
    """Modules as one, each in a scope of its own; those that others import come first."""
    return "const modules = {};\n" + "".join(_scoped(name, _read(name)) for name in names)


def _scoped(name: str, text: str) -> str:
    exported = ", ".join(EXPORT.findall(text))
    body = EXPORT.sub("", IMPORT.sub(r'const { \1 } = modules["\2"];', text))
    return f'modules["{name}"] = (() => {{\n{body}return {{ {exported} }};\n}})();\n'


def _data(content: Any) -> str:
    """JSON that no text in it can end."""
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def _read(name: str) -> str:
    return (STATIC / name).read_text("utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
