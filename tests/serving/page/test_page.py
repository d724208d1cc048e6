"""The page at /, in a real Chromium against a real server: what is typed, what is read, and what goes wrong."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, Route, expect

from pages.browser import (
    TEXT,
    highlights,
    look,
    names,
    numbers,
    opened,
    output,
    questions,
    saved,
    shares,
    stop_clock,
    typed,
    words_of,
)
from pages.oracle import by_words, confidence, read, shown
from pages.runs import EXAMPLES
from saccade.serving.models import ServedRun
from servers import Serving, serving

KEY = "open-sesame-7"


def test_before_anything_is_typed_there_are_examples_to_try(page: Page, site: Serving) -> None:
    expect(page.get_by_text("Type, and watch what it reads.")).to_be_visible()
    expect(page.locator(".inside:visible")).to_have_count(0)
    expect(page.get_by_label("Model", exact=True).locator("option").first).to_have_text("English → French · pieces")
    chips = page.locator("#examples button")
    expect(chips).to_have_text(EXAMPLES)
    chips.nth(1).click()
    expect(page.locator(".output")).to_have_text(look(site, EXAMPLES[1])["answer"]["text"])
    expect(page.get_by_label("Text to read")).to_have_value(EXAMPLES[1])
    assert page.locator("#text").get_attribute("lang") == "en"
    assert page.locator(".output").evaluate("element => element.closest('[lang]').lang") == "fr"


def test_the_output_appears_as_one_pauses_and_is_said(page: Page, site: Serving) -> None:
    expect(page.locator("#examples button").first).to_be_visible()
    asked = questions(page)
    stop_clock(page)
    page.get_by_label("Text to read").press_sequentially("the cat sees a dog .")
    page.clock.run_for(250)
    assert asked == []
    page.clock.run_for(100)
    expect(page.locator("#live")).to_have_text(output(site, "the cat sees a dog ."))
    expect(page.locator(".output")).to_have_text(output(site, "the cat sees a dog ."))
    assert [one["text"] for one in asked] == ["the cat sees a dog ."]
    page.clock.resume()
    page.get_by_label("Text to read").fill("")
    expect(page.get_by_text("Type, and watch what it reads.")).to_be_visible()
    expect(page.locator("#live")).to_have_text("")


def test_a_late_answer_is_dropped(page: Page, site: Serving) -> None:
    held = list[Route]()
    page.route(
        "**/v1/look",
        lambda route: held.append(route) if "a dog" in (route.request.post_data or "") else route.continue_(),
    )
    page.get_by_label("Text to read").fill("a dog sees a cat .")
    expect(page.locator(".answer.waiting")).to_have_count(1)
    while not held:
        page.wait_for_timeout(20)  # until it has been asked
    typed(page, "the bird likes a cat .")
    held[0].fulfill(status=200, json={"task": "translate"})
    expect(page.locator(".output")).to_have_text(output(site, "the bird likes a cat ."))


def test_sentences_are_asked_for_once_and_joined_as_they_stood(page: Page, site: Serving) -> None:
    asked, looked = questions(page, "/v1/translate"), questions(page)
    one, two, three = "the cat sees a dog .", "a bird likes the cat .", "a bird likes the dog ."
    typed(page, f"{one}\n\n{two}\n\n{one}")
    translated = [output(site, text) for text in (one, two)]
    assert page.locator("#live").text_content() == "\n\n".join([*translated, translated[0]])
    assert [question["q"] for question in asked if "tokens" in question] == [[one, two]]  # in one request, each once
    typed(page, f"{one}\n\n{three}")
    assert [question["q"] for question in asked if "tokens" in question] == [[one, two], [three]]
    assert {question["text"] for question in looked} == {one, three}  # where the caret was
    first, second = (look(site, text) for text in (one, three))
    start, words = (len(first["sides"]["output"]["words"]) - 1, second["sides"]["output"]["words"])
    words_of(page).nth(start + 1).hover()
    wanted = np.concatenate([np.zeros(len(first["sides"]["source"]["words"]) - 1), read(second, 1)])
    np.testing.assert_allclose(shares(highlights(page)), wanted / max(0.4, wanted.max()), atol=2e-3)
    words_of(page).nth(start + 1).click()
    assert names(page)[0] == words  # the sentence that is looked into
    words_of(page).nth(0).click()
    assert names(page)[0] == first["sides"]["output"]["words"]


@pytest.mark.parametrize("way", ["pointer", "keyboard"])
def test_an_output_word_lights_what_it_read(page: Page, site: Serving, way: str) -> None:
    typed(page, TEXT)
    insight = look(site)
    words = insight["sides"]["output"]["words"][:-1]
    expect(words_of(page)).to_have_text(words)
    if way == "keyboard":
        words_of(page).first.focus()
        page.keyboard.press("ArrowRight")
    else:
        words_of(page).nth(1).hover()
    wanted = read(insight, 1)
    np.testing.assert_allclose(shares(highlights(page)), wanted / max(0.4, wanted.max()), atol=2e-3)
    best = insight["sides"]["source"]["words"][int(wanted.argmax())]
    sure = confidence(insight)[1]
    line = page.locator(".answer-a .line").inner_text()
    assert line.startswith(f"{words[1]}: ")
    assert f"read {best} " in line
    assert numbers(line)[0] == pytest.approx(100 * sure, abs=0.51)
    assert page.locator("#arcs .curves path").count() == min(6, int((wanted >= 0.05).sum()))
    expect(words_of(page).nth(1)).to_have_class(re.compile("here"))
    expect(page.locator(".inside-a tbody th.here")).to_have_text(words[1])
    expect(page.locator(".lines text.lit")).to_have_text([words[1]])
    if way == "keyboard":
        page.keyboard.press("Escape")
    else:
        page.mouse.move(5, 5)
    assert max(shares(highlights(page))) == 0
    expect(page.locator("#arcs .curves path")).to_have_count(0)


@pytest.mark.parametrize("way", ["pointer", "keyboard"])
def test_a_source_word_lights_who_read_it(page: Page, site: Serving, way: str) -> None:
    typed(page, TEXT)
    insight = look(site)
    if way == "keyboard":
        page.get_by_label("Text to read").press("Home")
        for _ in "the small":
            page.keyboard.press("ArrowRight")
    else:
        box = highlights(page).nth(1).bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    wanted = by_words(insight, "cross", shown(insight, "cross"))[:-1, 1]
    expect(highlights(page).nth(1)).to_have_class(re.compile("here"))
    np.testing.assert_allclose(shares(words_of(page)), wanted / max(0.4, wanted.max()), atol=2e-3)


def test_confidence_is_a_line_and_a_number_and_can_be_hidden(page: Page, site: Serving) -> None:
    typed(page, TEXT)
    wanted = confidence(look(site))[:-1]
    sure = words_of(page).evaluate_all("words => words.map(word => Number(word.style.getPropertyValue('--sure')))")
    np.testing.assert_allclose(sure, wanted, atol=1e-3)
    told = words_of(page).evaluate_all("words => words.map(word => word.getAttribute('aria-description'))")
    np.testing.assert_allclose([numbers(line)[0] for line in told], [100 * one for one in wanted], atol=0.51)
    underlined = "word => getComputedStyle(word).textDecorationLine"
    assert words_of(page).first.evaluate(underlined) == "underline"
    page.get_by_label("Confidence").uncheck()
    assert words_of(page).first.evaluate(underlined) == "none"


def test_other_outputs_can_be_read_instead(page: Page, site: Serving) -> None:
    typed(page, TEXT)
    insight = look(site)
    others = page.locator(".others button")
    best = look(site, num_best=4)
    texts = [insight["answer"]["text"], best["answer"]["text"], *(other["text"] for other in best["others"])]
    texts = list(dict.fromkeys(texts))
    expect(others).to_have_text(texts[1:])
    chosen = texts[2]
    others.nth(1).click()
    expect(page.locator("#live")).to_have_text(chosen)
    expect(others).to_have_text([text for text in texts if text != chosen])
    wanted = confidence(look(site, target=chosen))
    told = words_of(page).first.get_attribute("aria-description")
    assert numbers(told or "")[0] == pytest.approx(100 * wanted[0], abs=0.51)


def test_colours_follow_the_system_and_a_switch_is_remembered(browser: Browser, site: Serving) -> None:
    ground = "() => getComputedStyle(document.documentElement).backgroundColor"
    with opened(browser, site, color_scheme="dark") as page:
        dark = page.evaluate(ground)
        page.emulate_media(color_scheme="light")
        expect(page.locator("html")).to_have_attribute("data-theme", "light")
        assert page.evaluate(ground) != dark
        switch = page.get_by_role("button", name="Dark colours")
        expect(switch).to_have_attribute("aria-pressed", "false")
        switch.click()
        assert page.evaluate(ground) == dark
        expect(switch).to_have_attribute("aria-pressed", "true")
        page.reload()
        assert page.evaluate(ground) == dark
        page.emulate_media(color_scheme="light")
        assert page.evaluate(ground) == dark


def test_a_key_is_asked_for_and_kept_in_the_tab(browser: Browser, page_runs: list[ServedRun]) -> None:
    with serving(page_runs[1:2], keys=(KEY,)) as site, opened(browser, site, complains=True) as page:
        field = page.locator("#key")
        expect(field).to_be_focused()
        field.fill("wrong-key")
        page.keyboard.press("Enter")
        page.get_by_label("Text to read").fill(TEXT)
        expect(page.get_by_role("alert").first).to_contain_text("This server needs an API key.")
        expect(field).to_be_focused()
        field.fill(KEY)
        page.keyboard.press("Enter")
        expect(page.locator(".output .word").first).to_be_visible()
        expect(page.get_by_role("alert").first).to_have_text("")
        assert page.evaluate("Object.values(sessionStorage)") == [KEY]
        assert page.evaluate("JSON.stringify(localStorage) + document.cookie + location.href").count(KEY) == 0


def test_a_busy_server_is_asked_again(browser: Browser, site: Serving) -> None:
    with opened(browser, site, complains=True) as page:
        stop_clock(page)
        times = iter([True, False])
        page.route(
            "**/v1/look",
            lambda route: (
                route.fulfill(status=429, headers={"Retry-After": "3"}, json={"error": "Slowdown"})
                if next(times)
                else route.continue_()
            ),
        )
        page.get_by_label("Text to read").fill(TEXT)
        page.clock.run_for(400)
        expect(page.get_by_role("status")).to_have_text("The server is busy; asking again in 3 s.")
        page.clock.run_for(3000)
        expect(page.locator(".output")).to_have_text(look(site)["answer"]["text"])
        expect(page.get_by_role("status")).to_have_text("")


def test_troubles_are_one_kind_line(browser: Browser, site: Serving) -> None:
    status = 0
    lines = {
        500: "The server had an error. Try again; if it happens again, read its log.",
        503: "The server is starting or stopping.",
        504: "The server took too long. Try a shorter text, or try again in a moment.",
        413: "This input is larger than the server allows. Try a shorter text or a smaller picture.",
        0: "The server doesn't answer. Check that saccade serve is still running.",
    }

    def spoil(route: Route) -> None:
        route.fulfill(status=status, json={"error": "x"}) if status else route.abort()

    with opened(browser, site, complains=True) as page:
        page.route("**/v1/look", spoil)
        for status, said in lines.items():
            page.get_by_label("Text to read").fill(f"{TEXT}{' ' * status}")
            expect(page.get_by_role("alert").first).to_have_text(said)
        page.unroute("**/v1/look")
        typed(page, TEXT)
        expect(page.get_by_role("alert").first).to_have_text("")


def test_what_a_model_says_is_text(browser: Browser, site: Serving) -> None:
    evil = "<img/src=x/onerror=hacked=1>"

    def spoil(route: Route) -> None:
        insight = route.fetch().json()
        output = insight["sides"]["output"]
        output["words"] = [evil] * len(output["words"])
        output["text"] = insight["answer"]["text"] = " ".join(output["words"])
        route.fulfill(json=insight)

    def spoil_others(route: Route) -> None:
        found = route.fetch().json()
        found["translations"][0]["sentences"][0]["others"][0]["text"] = f"{evil} 2"
        route.fulfill(json=found)

    with opened(browser, site) as page:
        page.route("**/v1/look", spoil)
        page.route("**/v1/translate", spoil_others)
        typed(page, TEXT)
        words_of(page).first.hover()
        expect(words_of(page).first).to_have_text(evil)
        expect(page.locator(".answer-a .line")).to_contain_text(evil)
        expect(page.locator(".others button", has_text=f"{evil} 2")).to_have_count(1)
        expect(page.locator(".lines text").last).to_have_text(evil)
        expect(page.locator(".inside-a tbody th").first).to_have_text(evil)
        assert evil in "".join(ET.fromstring(saved(page, "SVG")).itertext())
        assert page.locator("img").count() == 0
        assert page.evaluate("typeof hacked") == "undefined"
