"""The page and the documentation: files of this package, read once; a request only ever names one of them."""

from __future__ import annotations

import hashlib
from importlib import resources
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

INDEX = "/static/index.html"
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".json": "application/json",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}


class Page(NamedTuple):
    """A file as it is sent."""

    content: bytes
    kind: str
    tag: str

    async def __call__(self, request: Request) -> Response:
        """The file, or that it is the same as before."""
        headers = {"ETag": self.tag, "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == self.tag:
            return Response(status_code=304, headers=headers)
        return Response(self.content, headers=headers, media_type=self.kind)


def routes() -> list[Route]:
    """A route for each file: the page's under /static (its index is /), those it shares with others under /shared."""
    found: dict[str, Page] = {}
    for room, prefix in (("serving", "/static"), ("inspection.pages", "/shared")):
        folder = resources.files(f"saccade.{room}") / "static"
        found |= _files(folder, prefix) if folder.is_dir() else {}
    found["/docs.css"] = page((resources.files("saccade.serving") / "documentation.css").read_bytes(), KINDS[".css"])
    return [Route("/" if name == INDEX else name, page.__call__) for name, page in found.items()]


def page(content: bytes, kind: str) -> Page:
    """Bytes as a file."""
    return Page(content, kind, f'"{hashlib.sha256(content).hexdigest()[:16]}"')


def _files(folder: Any, prefix: str) -> dict[str, Page]:
    found: dict[str, Page] = {}
    for child in sorted(folder.iterdir(), key=lambda child: child.name):
        ending = "." + child.name.rpartition(".")[2]
        if child.is_dir():
            found |= _files(child, f"{prefix}/{child.name}")
        elif ending in KINDS:
            found[f"{prefix}/{child.name}"] = page(child.read_bytes(), KINDS[ending])
    return found
