"""The page for everybody: names, contrast, keyboard, phone; and nothing from outside."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from playwright.sync_api import Browser, Page, expect

from pages.browser import (
    TEXT,
    highlights,
    opened,
    ready,
    shares,
    typed,
    words_of,
)
from pages.runs import EXAMPLES
from servers import Serving

SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
CHECKS = Path(__file__).with_name("page_checks.js").read_text("utf-8")


def checked(page: Page, name: str) -> list[str]:
    """What one of the checks finds."""
    return list(page.evaluate(f"({CHECKS}).{name}()"))


def test_everything_has_a_name_and_can_be_read(page: Page) -> None:
    for model in ("pieces", "labels", "tags", "shapes", "digits"):
        page.get_by_label("Model", exact=True).select_option(model)
        if model in ("pieces", "tags"):
            typed(page, TEXT if model == "pieces" else "Anna Lee sees Paris")
        ready(page)
        if model == "pieces":
            page.get_by_role("button", name="Share").click()
            words_of(page).nth(1).hover()
        assert checked(page, "nameless") == []
        assert checked(page, "doubled") == []
        assert checked(page, "alike") == []
        levels = page.evaluate("() => [...document.querySelectorAll('h1, h2, h3')].map(one => Number(one.tagName[1]))")
        assert levels[0] == 1
        assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
        for scheme in SCHEMES:
            coloured(page, scheme)
            assert checked(page, "faint") == [], (model, scheme)


def test_lit_words_and_cells_can_be_read(page: Page) -> None:
    """Every strength of light: words over the glow, numbers over the heat."""
    typed(page, TEXT)
    for scheme, share in itertools.product(SCHEMES, (0, 0.2, 0.44, 0.46, 0.7, 1)):
        coloured(page, scheme)
        page.evaluate(f"({CHECKS}).lit({share})")
        assert checked(page, "faint") == []
        low, high = heat_contrast(page, share)
        assert (high if share > 0.45 else low) >= 4.5, (scheme, share)


def test_how_sure_a_word_is_can_be_seen(page: Page) -> None:
    typed(page, TEXT)
    unsettle = "sure => document.querySelectorAll('.word').forEach(word => word.style.setProperty('--sure', sure))"
    for scheme, sure in itertools.product(SCHEMES, (0, 0.5, 0.95, 1)):
        coloured(page, scheme)
        page.evaluate(unsettle, sure)
        assert checked(page, "thin") == [], (scheme, sure)
    thickness = "word => parseFloat(getComputedStyle(word).textDecorationThickness)"
    page.evaluate(unsettle, 1)
    surest = words_of(page).first.evaluate(thickness)
    page.evaluate(unsettle, 0)
    assert words_of(page).first.evaluate(thickness) > 2 * surest


def test_lights_lie_behind_their_words(page: Page) -> None:
    typed(page, " ".join([TEXT] * 9))
    expect(highlights(page)).to_have_count(9 * 7 + 1)
    for width in range(640, 1300, 30):
        page.set_viewport_size({"width": width, "height": 900})
        assert checked(page, "apart") == [], width
        page.wait_for_function(f"() => ({CHECKS}).astray().length === 0")  # they follow a resize in the next frame


def coloured(page: Page, scheme: Literal["light", "dark"]) -> None:
    """As a system that is light or dark."""
    page.emulate_media(color_scheme=scheme)
    expect(page.locator("html")).to_have_attribute("data-theme", scheme)


def heat_contrast(page: Page, share: float) -> tuple[float, float]:
    """Of the two inks on a cell of the heat map: that of weak cells, that of strong ones."""
    style = "name => getComputedStyle(document.documentElement).getPropertyValue(name)"
    stops = [tuple(bytes.fromhex(stop.strip()[1:])) for stop in page.evaluate(style, "--heat").split(",")]
    place = share * (len(stops) - 1)
    below = min(int(place), len(stops) - 2)
    ground = np.array(stops[below]) * (1 - place + below) + np.array(stops[below + 1]) * (place - below)
    inks = [tuple(bytes.fromhex(page.evaluate(style, name).strip()[1:])) for name in ("--on-cold", "--on-heat")]
    bright = [luminance(np.array(colour)) + 0.05 for colour in (ground, *inks)]
    return tuple(max(bright[0], ink) / min(bright[0], ink) for ink in bright[1:])  # type: ignore[return-value]


def luminance(colour: NDArray[Any]) -> float:
    share = colour / 255
    linear = np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def test_the_keyboard_reaches_everything(page: Page) -> None:
    expect(page.locator("#examples button").first).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.get_by_text("Skip to the text")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(page.get_by_label("Text to read")).to_be_focused()
    page.keyboard.type(TEXT)
    ready(page)
    reached = list[str]()
    name = "[document.activeElement].map(at => at.ariaLabel || at.labels?.[0]?.textContent || at.textContent)[0]"
    ring = "() => getComputedStyle(document.activeElement).outlineStyle"
    while not reached or reached[-1] != "API":
        page.keyboard.press("Tab")
        reached.append(page.evaluate(name))
        assert page.evaluate(ring) != "none", reached[-1]
        assert len(reached) < 60
    wanted = [*EXAMPLES, "Model", "Compare", "le", "Play: step by step", "Step by step", "Confidence", "Copy"]
    wanted += ["Attention", "View", "Layer", "Units", "All heads", "Layer 0, head 0", "Layer 1, head 1", "API"]
    assert [one for one in reached if one in wanted] == wanted
    page.keyboard.press("Shift+Tab")
    for _ in range(len(reached) + 3):
        page.keyboard.press("Shift+Tab")
    page.get_by_role("button", name="Share").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Copy a link")).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("button", name="Save as PNG")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Share")).to_be_focused()
    expect(page.get_by_role("button", name="Copy a link")).to_have_count(0)


def test_it_fits_a_phone(browser: Browser, site: Serving) -> None:
    with opened(browser, site, viewport={"width": 360, "height": 740}, has_touch=True) as page:
        for model in ("pieces", "labels", "tags", "shapes", "digits"):
            page.get_by_label("Model", exact=True).select_option(model)
            if model == "pieces":
                typed(page, f"{TEXT} {TEXT}")
            ready(page)
            assert checked(page, "wide") == []
            assert page.evaluate("document.documentElement.scrollWidth") == 360
            if model == "pieces":
                expect(page.get_by_text("Model", exact=True)).to_be_visible()
                heat = page.locator(".inside-a .table")
                expect(heat).to_have_class(re.compile("goes-on"))
                heat.evaluate("table => table.scrollTo(9999, 0)")
                expect(heat).not_to_have_class(re.compile("goes-on"))
                words_of(page).nth(2).tap()
                assert max(shares(highlights(page))) > 0
                expect(words_of(page).nth(2)).to_have_attribute("aria-selected", "true")


def test_files_name_nobody_outside_and_build_no_markup() -> None:
    folder = Path(__file__).parents[3] / "src" / "saccade" / "serving" / "static"
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert folder / "main.js" in files
    for path in files:
        text = path.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?:|//[a-z]+\.[a-z]", text), path
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", text), path
        assert len(text.splitlines()) < 300, path
