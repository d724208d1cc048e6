"""A page in a real Chromium, that may not ask anybody else and must not complain."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Locator, Page, expect

from servers import Serving

PERMISSIONS = ["clipboard-read", "clipboard-write"]
TEXT = "the small cat sees a bird ."
expect.set_options(timeout=20_000)  # two busy cores
BUSY = "Failed to load resource"  # what Chromium says of every answer that isn't a 200


@contextmanager
def opened(
    browser: Browser, site: Serving, fragment: str = "", *, complains: bool = False, **options: Any
) -> Iterator[Page]:
    """The page of a server, where nothing moves by itself: every request stays there, the console says nothing."""
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


def stop_clock(page: Page) -> None:
    """Let the page's time pass by `run_for` alone, however long the machine takes meanwhile."""
    page.clock.install(time=0)
    page.clock.pause_at(3_600_000)


def questions(page: Page, path: str = "/v1/look") -> list[Any]:
    """What the page asks from now on: a list that grows."""
    found = list[Any]()
    page.on("request", lambda sent: found.append(sent.post_data_json) if sent.url.endswith(path) else None)
    return found


def typed(page: Page, text: str) -> None:
    """A text, and its answer."""
    page.get_by_label("Text to read").fill(text)
    ready(page)


def ready(page: Page) -> None:
    """Nothing is being asked any more, and there is an answer."""
    expect(page.locator("#cards .waiting, #cards .stale")).to_have_count(0)
    expect(page.locator(".answer-a .body > :visible")).to_have_count(1)


def words_of(page: Page, slot: str = "a") -> Locator:
    """The words of an answer."""
    return page.locator(f".answer-{slot} .output .word")


def shares(found: Locator) -> list[float]:
    """How much each of some words is lit."""
    return found.evaluate_all("spans => spans.map(span => Number(span.style.getPropertyValue('--share') || 0))")


def highlights(page: Page) -> Locator:
    """Return the highlights behind the words of the source."""
    return page.locator("#highlights .highlight")


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


def look(site: Serving, text: str = TEXT, model: str = "pieces", **body: Any) -> dict[str, Any]:
    """The JSON that the page must have seen."""
    answer = site.post("/v1/look", text=text, model=model, **body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def output(site: Serving, text: str) -> str:
    """What the page must show for a text: what the server answers to everybody."""
    found: str = look(site, text)["answer"]["text"]
    return found


def choose(page: Page, label: str, value: str, slot: str = "a") -> None:
    """One of the selectors inside; by its value, not by its text."""
    select = page.locator(f".inside-{slot}").get_by_label(label, exact=True)
    select.select_option(element=select.locator(f"option[value='{value}']").element_handle())
    ready(page)


def saved(page: Page, way: str) -> bytes:
    """What is saved as PNG, SVG or JSON."""
    page.get_by_role("button", name="Share").click()
    with page.expect_download() as download:
        page.get_by_role("button", name=f"Save as {way}").click()
    assert download.value.suggested_filename.endswith(f".{way.lower()}")
    return Path(download.value.path()).read_bytes()
