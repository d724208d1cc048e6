"""What people insist on, typed into the page: placeholders come out unharmed, and a server's terms are written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from pages.browser import highlights, opened, output, shares, typed, words_of
from pages.oracle import read
from saccade.serving.models import ServedRun
from servers import Serving, predictor_of, serving

PLACEHOLDERS = ["{0}", "%s", "info@example.com", "https://example.com/a?b=1&c=%20d"]
TEXT = "the small {0} cat sees %s a bird . write to info@example.com or https://example.com/a?b=1&c=%20d the old dog ."


@pytest.fixture(scope="module")
def insisting(page_runs: list[ServedRun], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    terms: Path = tmp_path_factory.mktemp("terms") / "terms.tsv"
    terms.write_text("cat\tvieux oiseau\n", encoding="utf-8")
    first = page_runs[0]
    bound = first._replace(name="bound", predictor=predictor_of(first).with_glossary(terms))
    with serving([first, bound]) as site:
        yield site


@pytest.fixture
def page(browser: Browser, insisting: Serving) -> Iterator[Page]:
    with opened(browser, insisting) as found:
        yield found


def test_placeholders_are_read_unharmed(page: Page, insisting: Serving) -> None:
    typed(page, TEXT)
    shown = page.locator(".output").inner_text()
    for one in PLACEHOLDERS:
        assert shown.count(one) == 1, (one, shown)
    expect(page.get_by_label("Text to read")).to_have_value(TEXT)
    expect(page.locator("#live")).to_have_text(output(insisting, TEXT))


def test_a_placeholder_is_a_word_and_certain(page: Page, insisting: Serving) -> None:
    text = "the small {0} cat sees a bird ."
    typed(page, text)
    found = insisting.post("/v1/look", text=text, model="pieces").json()
    words = found["sides"]["output"]["words"][:-1]
    place = words.index("{0}")
    expect(words_of(page).nth(place)).to_have_text("{0}")
    words_of(page).nth(place).hover()
    lit = shares(highlights(page))
    wanted = read(found, place)
    assert lit.index(max(lit)) == int(wanted.argmax())
    assert page.locator(".answer-a .line").inner_text().startswith("{0}: 100")


def test_a_server_s_terms_are_on_the_page(page: Page, insisting: Serving) -> None:
    text = "the small cat sees a bird ."
    typed(page, text)
    assert "vieux oiseau" not in page.locator(".output").inner_text()
    page.get_by_label("Model", exact=True).select_option("bound")
    typed(page, text)
    expect(page.locator(".output")).to_contain_text("vieux oiseau")
    shown = page.locator(".output").inner_text()
    assert shown == insisting.post("/v1/translate", q=text, model="bound").json()["translations"][0]["text"]
