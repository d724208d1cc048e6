"""A page in a real Chromium, that may not ask anybody else and must not complain."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, Locator, Page, expect

from servers import Serving

PERMISSIONS = ["clipboard-read", "clipboard-write"]
BUSY = "Failed to load resource"  # what Chromium says of every answer that isn't a 200


@contextmanager
def opened(
    browser: Browser, site: Serving, fragment: str = "", *, complains: bool = False, **options: Any
) -> Iterator[Page]:
    """The page of a server, still (nothing moves by itself). Every request stays there, and nothing is said on the console."""
    settings = {"viewport": {"width": 1280, "height": 900}, "reduced_motion": "reduce", **options}
    context = browser.new_context(base_url=site.url, permissions=PERMISSIONS, **settings)
    page, said, gone = context.new_page(), list[str](), list[str]()
    page.on("console", lambda message: said.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda asked: gone.append(asked.url))
    page.goto(f"/{fragment}")
    try:
        yield page
    finally:
        context.close()
    assert [line for line in said if not (complains and line.startswith(BUSY))] == []
    assert [url for url in gone if not url.startswith((f"{site.url}/", "data:", f"blob:{site.url}"))] == []


def typed(page: Page, text: str) -> None:
    """A text, and its answer."""
    page.get_by_label("Text to read").fill(text)
    ready(page)


def ready(page: Page) -> None:
    """Nothing is being asked any more, and there is an answer."""
    expect(page.locator("#stage .waiting")).to_have_count(0)
    expect(page.locator(".answer-a .body > :visible")).to_have_count(1)


def words_of(page: Page, slot: str = "a") -> Locator:
    """The words of an answer."""
    return page.locator(f".answer-{slot} .output .word")


def shares(found: Locator) -> list[float]:
    """How much each of some words is lit."""
    return found.evaluate_all("spans => spans.map(span => Number(span.style.getPropertyValue('--share') || 0))")


def spots(page: Page) -> Locator:
    """The words of the source, in the mirror behind the text area."""
    return page.locator("#mirror .spot")


def cells(page: Page, slot: str = "a") -> list[list[int]]:
    """The numbers of the heat map."""
    script = (
        "table => [...table.tBodies[0].rows].map(row => [...row.cells].slice(1).map(cell => Number(cell.textContent)))"
    )
    found: list[list[int]] = page.locator(f".inside-{slot} .heatmap").evaluate(script)
    return found


def names(page: Page, slot: str = "a") -> tuple[list[str], list[str]]:
    """The names of the heat map's rows and columns."""
    table = page.locator(f".inside-{slot} .heatmap")
    return table.locator("tbody th").all_text_contents(), table.locator("thead th").all_text_contents()


def numbers(text: str) -> list[float]:
    """All numbers in a text."""
    return [float(found) for found in re.findall(r"\d+(?:\.\d+)?", text)]
