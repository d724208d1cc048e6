"""The files of the page and of the documentation, read once; a request can only name one of them."""

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
    """A file as the server sends it."""

    content: bytes
    kind: str
    tag: str

    async def __call__(self, request: Request) -> Response:
        headers = {"ETag": self.tag, "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == self.tag:
            return Response(status_code=304, headers=headers)
        return Response(self.content, headers=headers, media_type=self.kind)


def routes() -> list[Route]:
    """Return a route for each file: the page's under /static (its index is /), the viewer's under /shared."""
    found: dict[str, Page] = {}
    for package, prefix in (("serving", "/static"), ("inspection.pages", "/shared")):
        folder = resources.files(f"saccade.{package}") / "static"
        found |= _read_files(folder, prefix) if folder.is_dir() else {}
    found["/docs.css"] = make_page(
        (resources.files("saccade.serving") / "documentation.css").read_bytes(), KINDS[".css"]
    )
    return [Route("/" if name == INDEX else name, page.__call__) for name, page in found.items()]


def make_page(content: bytes, kind: str) -> Page:
    """Make a file with a tag of its content."""
    return Page(content, kind, f'"{hashlib.sha256(content).hexdigest()[:16]}"')


def _read_files(folder: Any, prefix: str) -> dict[str, Page]:
    found: dict[str, Page] = {}
    for child in sorted(folder.iterdir(), key=lambda child: child.name):
        ending = "." + child.name.rpartition(".")[2]
        if child.is_dir():
            found |= _read_files(child, f"{prefix}/{child.name}")
        elif ending in KINDS:
            found[f"{prefix}/{child.name}"] = make_page(child.read_bytes(), KINDS[ending])
    return found
