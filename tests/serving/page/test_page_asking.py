"""What the page asks of a server, and what stands there until it answers: long texts, slow servers, no servers."""

from __future__ import annotations

import itertools
import re
import time
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Request, Route, expect

from pages.browser import (
    TEXT,
    highlights,
    look,
    names,
    opened,
    output,
    questions,
    ready,
    shares,
    stop_clock,
    typed,
    words_of,
)
from pages.runs import ENGLISH
from saccade.serving.models import ServedRun
from servers import Serving, serving

SUBJECTS, VERBS = ("cat", "dog", "bird"), ("sees", "hears", "likes")
ANIMALS = [f"{size} {animal}" for size in ("small", "old") for animal in SUBJECTS] + list(SUBJECTS)
SENTENCES = [f"The {one} {verb} the {other} ." for one in ANIMALS for verb in VERBS for other in ANIMALS]


def text_of(count: int) -> str:
    """A text of this many sentences, all different."""
    assert len(SENTENCES) == len(set(SENTENCES)) >= count
    return "\n".join(SENTENCES[:count])


def answered(page: Page) -> list[list[str]]:
    """The sentences of each request for a whole text from now on."""
    found: list[list[str]] = []

    def note(request: Request) -> None:
        body: Any = request.post_data_json if request.url.endswith("/v1/translate") else {}
        if "tokens" in body:
            found.append(body["q"])

    page.on("request", note)
    return found


def test_a_long_text_takes_few_requests_and_one_more_sentence_takes_one(page: Page) -> None:
    asked, looked = answered(page), questions(page)
    typed(page, text_of(110))
    assert sorted(itertools.chain(*asked)) == sorted(SENTENCES[:110])
    assert 2 <= len(asked) <= 8
    assert len(asked[0]) <= 8  # something is there soon
    assert len(looked) == 1  # the sentence with the caret
    before = len(asked)
    typed(page, f"{text_of(110)}\n{SENTENCES[110]}\n{SENTENCES[0]}")
    assert list(itertools.chain(*asked[before:])) == [SENTENCES[110]]


def test_six_requests_at_a_time(page: Page) -> None:
    held = list[Route]()
    page.route("**/probe/*", lambda route: held.append(route))
    ask = "import('/static/parts/api.js').then(({ ask }) => { for (const at of Array(9).keys()) ask(`probe/${at}`); })"
    page.evaluate(ask)
    for answers in range(4):
        while len(held) < 6 + answers:
            page.wait_for_timeout(10)
        page.wait_for_timeout(50)
        assert len(held) == min(9, 6 + answers)
        held[answers].fulfill(json={})


def test_answers_appear_as_they_come(browser: Browser, site: Serving) -> None:
    held, is_free = list[Route](), [False]

    def hold(route: Route) -> None:
        is_first = SENTENCES[0] in (route.request.post_data or "")
        route.continue_() if is_first or is_free[0] else held.append(route)

    with opened(browser, site) as page:
        page.route("**/v1/translate", hold)
        page.get_by_label("Text to read").fill(text_of(20))
        expect(words_of(page).first).to_have_text(output(site, SENTENCES[0]).split()[0])
        expect(page.locator(".answer-a .word.pending")).to_have_count(12)
        expect(page.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "40")
        expect(page.get_by_text("8 of 20 sentences")).to_be_visible()
        expect(page.locator(".answer-a .body")).to_have_attribute("aria-busy", "true")
        expect(page.get_by_role("button", name="Copy", exact=True)).to_have_count(0)
        is_free[0] = True
        for route in held:
            route.continue_()
        ready(page)
        expect(page.locator(".answer-a .word.pending")).to_have_count(0)
        expect(page.locator(".answer-a .body")).to_have_attribute("aria-busy", "false")
        expect(page.get_by_role("button", name="Copy", exact=True)).to_have_count(1)


def test_the_answer_to_another_text_is_grey_and_is_not_copied(browser: Browser, site: Serving) -> None:
    with opened(browser, site, complains=True) as page:
        typed(page, TEXT)
        said = page.locator("#live").text_content()
        stop_clock(page)
        page.route("**/v1/look", lambda route: route.abort())
        page.get_by_label("Text to read").fill("a dog hears a bird .")
        expect(page.locator(".answer-a.stale")).to_have_count(1)
        page.clock.run_for(400)
        expect(page.get_by_role("alert").first).to_contain_text("The server doesn't answer.")
        expect(page.get_by_role("status")).to_have_text("This page asks again in 2 s.")
        expect(page.locator(".answer-a.stale .output")).to_have_text(said or "")
        assert float(page.locator(".answer-a .body").evaluate("body => getComputedStyle(body).opacity")) < 0.6
        expect(page.get_by_role("button", name="Copy", exact=True)).to_have_count(0)
        page.clock.run_for(2100)
        expect(page.get_by_role("status")).to_have_text("This page asks again in 4 s.")
        page.unroute("**/v1/look")
        page.clock.run_for(4100)  # the server is back, and nobody typed
        expect(page.locator(".output")).to_have_text(output(site, "a dog hears a bird ."))
        expect(page.locator(".stale")).to_have_count(0)
        expect(page.get_by_role("alert").first).to_have_text("")
        expect(page.get_by_role("status")).to_have_text("")


def test_a_page_that_opens_before_its_server_waits_for_it(browser: Browser, site: Serving) -> None:
    with opened(browser, site, complains=True) as page:
        stop_clock(page)
        page.route("**/v1/models", lambda route: route.abort())
        page.reload()
        expect(page.get_by_role("status")).to_have_text("This page asks again in 2 s.")
        page.unroute("**/v1/models")
        page.clock.run_for(2100)
        expect(page.get_by_label("Model", exact=True)).to_be_visible()


def test_a_text_over_the_limit_is_not_asked_about(browser: Browser, page_runs: list[ServedRun]) -> None:
    with serving(page_runs[:1], max_characters=50) as site, opened(browser, site) as page:
        typed(page, TEXT)
        asked = [questions(page, path) for path in ("/v1/look", "/v1/translate")]
        page.get_by_label("Text to read").fill("the cat sees a dog . " * 3)
        expect(page.get_by_role("alert").first).to_have_text(
            "This text has 63 characters; this server takes 50. Shorten it to go on."
        )
        expect(page.locator("#count.over")).to_have_text("63 of 50 characters")
        expect(page.locator(".answer-a.stale")).to_have_count(1)
        page.wait_for_timeout(500)
        assert asked == [[], []]
        typed(page, "the cat sees a bird .")
        expect(page.get_by_role("alert").first).to_have_text("")


def test_a_long_sentence_is_cut_as_the_interface_cuts_it(page: Page, site: Serving) -> None:
    long = " ".join(ENGLISH[number % 10] for number in range(300))
    typed(page, long)
    expect(page.get_by_role("alert").first).to_have_text("")
    found = site.post("/v1/translate", q=long, model="pieces").json()["translations"][0]
    assert len(found["sentences"]) > 2
    assert page.locator("#live").text_content() == found["text"]


def test_work_that_takes_long_is_seen(browser: Browser, site: Serving) -> None:
    held = list[Route]()
    with opened(browser, site, reduced_motion="no-preference") as page:
        page.route("**/v1/look", lambda route: held.append(route))
        page.get_by_label("Text to read").fill(TEXT)
        expect(page.get_by_role("progressbar", name="Model: working")).to_be_visible()
        expect(page.locator(".answer-a .body")).to_have_attribute("aria-busy", "true")
        until = time.monotonic() + 20
        while not held and time.monotonic() < until:
            page.wait_for_timeout(20)
        held[0].continue_()
        ready(page)
        expect(page.get_by_role("progressbar")).to_have_count(0)


@pytest.mark.parametrize("way", ["pointer", "keyboard", "source"])
def test_a_sentence_is_looked_into_when_somebody_looks_there(page: Page, site: Serving, way: str) -> None:
    asked = questions(page)
    typed(page, "\n".join(SENTENCES[:3]))
    assert [one["text"] for one in asked] == [SENTENCES[2]]
    first = look(site, SENTENCES[0])
    if way == "pointer":
        words_of(page).first.hover()
        expect(highlights(page).first).to_have_class(re.compile("lit"))
        assert names(page)[0] == look(site, SENTENCES[2])["sides"]["output"]["words"]
    elif way == "keyboard":
        words_of(page).first.focus()
        expect(page.locator(".inside-a tbody th").first).to_have_text(first["sides"]["output"]["words"][0])
        ready(page)
        expect(words_of(page).first).to_be_focused()
        assert names(page)[0] == first["sides"]["output"]["words"]
        expect(page.locator(".sentence-shown")).to_have_text(SENTENCES[0])
    else:
        page.get_by_label("Text to read").press("Control+Home")
        expect(highlights(page).first).to_have_class(re.compile("here"))
        lit = "words => words.some((one) => one.style.getPropertyValue('--share') > 0)"
        page.wait_for_function(f"() => ({lit})([...document.querySelectorAll('.output .word')])")
        assert max(shares(words_of(page))) > 0
    assert [one["text"] for one in asked] == [SENTENCES[2], SENTENCES[0]]
