"""Two languages: the way back, the language of the text, and a text that is cleared."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from pages.browser import TEXT, opened, output, ready, typed
from saccade.serving.models import LanguagePair, ServedRun
from servers import Serving, serving

ENGLISH, FRENCH, GERMAN = (
    "Where is the nearest railway station, please?",
    "Où est la gare la plus proche, s'il vous plaît ?",
    "Wo ist bitte der nächste Bahnhof?",
)


@pytest.fixture(scope="module")
def both_ways(page_runs: list[ServedRun]) -> Iterator[Serving]:
    back = page_runs[1]._replace(name="back", pair=LanguagePair("fr", "en"))
    with serving([page_runs[0], back]) as site:
        yield site


@pytest.fixture
def two(browser: Browser, both_ways: Serving) -> Iterator[Page]:
    with opened(browser, both_ways) as page:
        yield page


def test_languages_are_swapped_with_the_text(two: Page, both_ways: Serving) -> None:
    typed(two, TEXT)
    there = output(both_ways, TEXT)
    two.get_by_role("button", name="Swap: from French to English").click()
    ready(two)
    expect(two.get_by_label("Model", exact=True)).to_have_value("back")
    expect(two.get_by_label("Text to read")).to_have_value(there)
    expect(two.locator("#source-title")).to_have_text("French")
    two.get_by_role("button", name="Swap: from English to French").click()
    expect(two.get_by_label("Model", exact=True)).to_have_value("pieces")


def test_without_a_way_back_there_is_no_swap(page: Page) -> None:
    expect(page.get_by_label("Model", exact=True)).to_be_visible()
    expect(page.get_by_role("button", name="Swap")).to_have_count(0)


def test_the_language_of_a_text_is_told(two: Page) -> None:
    seems = two.locator("#detected")
    typed(two, ENGLISH)
    expect(seems).to_contain_text("looks like English, ")
    typed(two, GERMAN)
    expect(seems).to_have_text("does not look like English")
    typed(two, FRENCH)
    expect(seems).to_contain_text("looks like French: ")
    two.get_by_role("button", name="translate from French").click()
    ready(two)
    expect(two.get_by_label("Model", exact=True)).to_have_value("back")
    expect(two.get_by_label("Text to read")).to_have_value(FRENCH)
    expect(seems).to_contain_text("looks like French, ")
    typed(two, "a")
    expect(seems).to_have_text("")


def test_a_text_is_cleared(page: Page) -> None:
    expect(page.get_by_role("button", name="Clear the text")).to_have_count(0)
    typed(page, TEXT)
    page.get_by_role("button", name="Clear the text").click()
    expect(page.get_by_label("Text to read")).to_have_value("")
    expect(page.get_by_label("Text to read")).to_be_focused()
    expect(page.get_by_text("Type, and watch what it reads.")).to_be_visible()
    expect(page.get_by_role("button", name="Clear the text")).to_have_count(0)
