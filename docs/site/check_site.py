"""Checks built pages: every link leads somewhere, every anchor exists, and nothing is loaded from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {
    "script": ("src",),
    "link": ("href",),
    "img": ("src",),
    "iframe": ("src",),
    "source": ("src",),
    "audio": ("src",),
}
PLACES_OF_STYLES = re.compile(r"url\(\s*[\"']?((?:https?:)?//[^)\"']+)|@import\s+[\"']((?:https?:)?//[^\"']+)")
NAMED_ONLY = ("canonical", "alternate", "license")  # links that no browser fetches


class Page(HTMLParser):
    """What a page links to and loads, and its anchors."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors = {""}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep the addresses of a tag."""
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        if tag == "link" and found.get("rel") in NAMED_ONLY:
            return
        self.loaded += [found[name] for name in LOADED.get(tag, ()) if found.get(name)]


def find_problems(site: Path) -> Iterator[str]:
    """Yield a line for each dead link, each missing anchor, and whatever would be loaded from elsewhere."""

    @cache
    def read(path: Path) -> Page:
        return Page(path.read_text("utf-8"))

    for path in sorted(site.rglob("*.html")):
        page, name = read(path), path.relative_to(site)
        for address in dict.fromkeys([*page.links, *page.loaded]):
            parts = urlsplit(address)
            if parts.scheme or address.startswith("//"):
                if address in page.loaded and parts.scheme != "data":
                    yield f"{name}: loads {address}"
                continue
            target = path if not parts.path else _resolve(site, path, unquote(parts.path))
            if not target.is_file():
                yield f"{name}: nothing is at {address}"
            elif target.suffix == ".html" and unquote(parts.fragment) not in read(target).anchors:
                yield f"{name}: {address} has no such anchor"
    for path in sorted(site.rglob("*.css")):
        for found in PLACES_OF_STYLES.findall(path.read_text("utf-8")):
            yield f"{path.relative_to(site)}: loads {''.join(found)}"


def _resolve(site: Path, page: Path, address: str) -> Path:
    start = site if address.startswith("/") else page.parent
    target = (start / address.lstrip("/")).resolve()
    return target / "index.html" if target.is_dir() else target
