"""Inside the models of the page: heat map, lines, heads, steps; two models; labels and tags."""

from __future__ import annotations

import itertools
import re
from difflib import SequenceMatcher
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, Route, expect

from pages.browser import (
    TEXT,
    cells,
    choose,
    highlights,
    look,
    names,
    numbers,
    opened,
    ready,
    shares,
    stop_clock,
    typed,
    words_of,
)
from pages.oracle import by_words, read, shown
from saccade.serving.models import ServedRun, load_runs
from servers import Serving, serving


def test_the_heat_map_shows_every_kind_view_layer_and_head(page: Page, site: Serving) -> None:
    typed(page, TEXT)
    kinds = ("cross", "encoder", "decoder")
    insight = look(site, kinds=kinds)
    for kind, view, layer in itertools.product(kinds, ("mean", "maximum", "weights"), (0, 1)):
        choose(page, "Attention", kind)
        choose(page, "View", view)
        choose(page, "Layer", str(layer))
        if view == "weights":
            choose(page, "Head", "1")
        wanted = by_words(insight, kind, shown(insight, kind, view, layer, 1))
        np.testing.assert_allclose(cells(page), 100 * wanted, atol=0.51, err_msg=f"{kind} {view} {layer}")
    sides = (insight["sides"][name]["words"] for name in ("output", "read"))
    assert names(page) == tuple(sides)


def test_rollout_flow_and_pieces(page: Page, site: Serving) -> None:
    typed(page, TEXT)
    insight = look(site, views=["rollout", "flow"])
    for view in ("rollout", "flow"):
        choose(page, "View", view)
        assert page.locator(".inside-a").get_by_label("Layer", exact=True).is_disabled()
        np.testing.assert_allclose(
            cells(page), 100 * by_words(insight, "cross", shown(insight, "cross", view)), atol=0.51
        )
    choose(page, "Units", "pieces")
    np.testing.assert_allclose(cells(page), 100 * shown(insight, "cross", "flow"), atol=0.51)
    assert names(page) == (insight["sides"]["output"]["pieces"], insight["sides"]["source"]["pieces"])


def test_views_through_all_layers_are_coloured_by_what_they_are(page: Page) -> None:
    """A rollout of small weights is pale, and the page says what measures how far to trust it."""
    typed(page, TEXT)
    strongest = (
        "table => Math.max(...[...table.querySelectorAll('td')].map((td) => td.style.getPropertyValue('--share')))"
    )
    assert page.locator(".inside-a .heatmap").evaluate(strongest) == 1
    expect(page.get_by_text("saccade look RUN --trust")).to_be_hidden()
    choose(page, "View", "rollout")
    most = max(max(row) for row in cells(page)) / 100
    assert page.locator(".inside-a .heatmap").evaluate(strongest) == pytest.approx(most, abs=0.006)
    expect(page.get_by_text("saccade look RUN --trust")).to_be_visible()


def test_norms_are_those_of_one_head(page: Page, site: Serving) -> None:
    typed(page, TEXT)
    choose(page, "View", "norms")
    choose(page, "Head", "1")
    insight = look(site, norms=True)
    norms = np.array(insight["attention"]["cross"]["norms"])[-1, 1]
    wanted = by_words(insight, "cross", norms / norms.sum(1, keepdims=True))
    np.testing.assert_allclose(cells(page), 100 * wanted, atol=0.51)
    page.get_by_role("button", name="Layer 0, head 0").click()
    expect(page.locator(".inside-a").get_by_label("View", exact=True)).to_have_value("norms")


def test_all_heads_at_a_glance_choose_one(page: Page, site: Serving) -> None:
    typed(page, TEXT)
    expect(page.locator(".tile")).to_have_count(4)
    page.get_by_role("button", name="Layer 0, head 1").click()
    insight = look(site)
    np.testing.assert_allclose(
        cells(page), 100 * by_words(insight, "cross", shown(insight, "cross", "weights", 0, 1)), atol=0.51
    )
    chosen = [
        page.locator(".inside-a").get_by_label(name, exact=True).input_value() for name in ("View", "Layer", "Head")
    ]
    assert chosen == ["weights", "0", "1"]
    for name in ("Layer", "Head"):  # as `saccade look` counts them
        assert page.locator(".inside-a").get_by_label(name, exact=True).inner_text().split() == ["0", "1"]
    expect(page.locator(".tile[aria-pressed=true]")).to_have_count(1)


def test_the_heat_map_and_the_lines_light_the_texts(page: Page, site: Serving) -> None:
    typed(page, TEXT)
    insight = look(site)
    weights = by_words(insight, "cross", shown(insight, "cross"))
    assert page.locator(".link").count() == int((weights >= 0.04).sum())
    page.locator(".inside-a tbody tr").nth(2).locator("td").nth(3).hover()
    lit = shares(highlights(page))
    assert [index for index, share in enumerate(lit) if share] == ([3] if weights[2, 3] >= 5e-4 else [])
    expect(words_of(page).nth(2)).to_have_class(re.compile("here"))
    page.locator(".lines text[data-key='1']").hover()
    assert [index for index, share in enumerate(shares(highlights(page))) if share] == [1]
    page.locator(".lines text[data-query='4']").hover()
    expect(words_of(page).nth(4)).to_have_class(re.compile("here"))


def test_steps_are_walked_and_played(browser: Browser, site: Serving) -> None:
    insight = look(site)
    output, words = insight["sides"]["output"], insight["sides"]["source"]["words"]
    weights = shown(insight, "cross") @ np.eye(len(words))[insight["sides"]["source"]["word_of_piece"]]
    with opened(browser, site) as page:
        typed(page, TEXT)
        slider = page.get_by_label("Step by step").get_by_role("slider")
        slider.focus()
        page.keyboard.press("Home")
        for step in (0, 1, 2):
            word = output["word_of_piece"][step]
            assert words_of(page).evaluate_all("all => all.filter(one => !one.matches('.later')).length") == word + 1
            best = words[int(weights[step].argmax())]
            said = "the end" if best == "</s>" else best
            expect(page.locator(".answer-a .line")).to_contain_text(f"read {said} ")
            assert f"Step {step + 1} of {len(output['pieces'])}" in (slider.get_attribute("aria-valuetext") or "")
            np.testing.assert_allclose(
                shares(highlights(page)), weights[step] / max(0.4, weights[step].max()), atol=2e-3
            )
            page.keyboard.press("ArrowRight")
        page.keyboard.press("Escape")
        expect(page.locator(".word.later")).to_have_count(0)
        stop_clock(page)
        page.get_by_role("button", name="Play: step by step").click()
        expect(page.get_by_role("button", name="Pause")).to_be_visible()
        for _ in range(3):
            page.clock.run_for(750)
        expect(slider).to_have_value("4")
        page.get_by_role("button", name="Pause").click()
        page.clock.run_for(5000)
        expect(slider).to_have_value("4")
        page.get_by_role("button", name="Play: step by step").click()
        page.clock.run_for(750 * (len(output["pieces"]) + 3))
        expect(page.get_by_role("button", name="Play: step by step")).to_be_visible()
        expect(page.locator(".word.later")).to_have_count(0)


def test_two_models_side_by_side(page: Page, site: Serving) -> None:
    typed(page, TEXT)
    page.get_by_role("button", name="Compare").click()
    ready(page)
    insight = look(site, model="words")
    expect(page.get_by_label("Second model", exact=True)).to_have_value("words")
    expect(page.locator(".answer-b .output")).to_have_text(insight["answer"]["text"])
    expect(page.locator(".answer-a .output")).to_have_text(look(site)["answer"]["text"])
    assert names(page, "b")[0] == insight["sides"]["output"]["words"]
    expect(page.locator(".inside-b").get_by_label("View", exact=True)).to_have_value("aligning")
    wanted = by_words(insight, "cross", shown(insight, "cross", "aligning"))
    np.testing.assert_allclose(cells(page, "b"), 100 * wanted, atol=0.51)
    words_of(page, "b").nth(1).hover()
    row = read(insight, 1)
    np.testing.assert_allclose(shares(highlights(page)), row / max(0.4, row.max()), atol=2e-3)
    page.get_by_label("Second model", exact=True).select_option("labels")
    ready(page)
    expect(page.locator(".answer-b .prediction strong")).to_have_text(look(site, model="labels")["answer"]["label"])
    page.get_by_role("button", name="Close the second model").click()
    expect(page.locator(".answer-b")).to_have_count(0)
    expect(page.get_by_role("button", name="Compare")).to_be_focused()


def test_two_models_are_always_seen_alike(browser: Browser, page_runs: list[ServedRun], shared_folder: Path) -> None:
    (twin,) = load_runs([shared_folder / "page_runs" / "pieces"])
    with serving([page_runs[0], twin._replace(name="twin")]) as site, opened(browser, site) as page:
        typed(page, TEXT)
        choose(page, "View", "maximum")
        choose(page, "Layer", "0")
        page.get_by_role("button", name="Compare").click()
        ready(page)
        assert cells(page, "b") == cells(page)
        for slot, label, value in (("b", "Attention", "encoder"), ("a", "View", "weights"), ("b", "Units", "pieces")):
            choose(page, label, value, slot)
            assert cells(page, "b") == cells(page)
            assert names(page, "b") == names(page)
        expect(page.locator(".word.differs")).to_have_count(0)
        ends = [page.locator(f".inside-{slot} .lines .end").last.get_attribute("text-anchor") for slot in ("a", "b")]
        assert ends[0] == ends[1]


def test_words_in_which_two_outputs_differ_are_framed(page: Page, site: Serving) -> None:
    typed(page, TEXT)
    page.get_by_role("button", name="Compare").click()
    ready(page)
    one, other = (
        [word for word in look(site, model=model)["sides"]["output"]["words"] if word != "</s>"]
        for model in ("pieces", "words")
    )
    framed = [page.locator(f".answer-{slot} .word.differs").all_text_contents() for slot in ("a", "b")]
    kept = len(one) - len(framed[0])
    assert kept == len(other) - len(framed[1])
    assert framed[0] or framed[1]
    blocks = SequenceMatcher(None, one, other, autojunk=False).get_matching_blocks()
    assert kept >= sum(block.size for block in blocks)  # the longest common subsequence
    expect(page.get_by_text("Framed words differ").first).to_be_visible()
    page.get_by_role("button", name="Close the second model").click()
    expect(page.locator(".word.differs")).to_have_count(0)


def test_labels_and_the_weights_of_words(page: Page, site: Serving) -> None:
    page.get_by_label("Model", exact=True).select_option("labels")
    typed(page, "the small dog")
    insight = look(site, "the small dog", "labels")
    answer = insight["answer"]
    expect(page.locator(".prediction strong")).to_have_text(answer["label"])
    ranked = sorted(answer["probabilities"], key=lambda name: -answer["probabilities"][name])
    expect(page.locator(".bars span")).to_have_text(ranked)
    told = [numbers(text)[0] for text in page.locator(".bars b").all_text_contents()]
    np.testing.assert_allclose(told, [100 * answer["probabilities"][name] for name in ranked], atol=0.51)
    wanted = by_words(insight, "pooling", shown(insight, "pooling"))[0]
    np.testing.assert_allclose(shares(highlights(page)), wanted / max(0.4, wanted.max()), atol=2e-3)
    choose(page, "View", "weights")
    choose(page, "Head", "2")
    one = by_words(insight, "pooling", shown(insight, "pooling", "weights", -1, 2))[0]
    np.testing.assert_allclose(shares(highlights(page)), one / max(0.4, one.max()), atol=2e-3)
    choose(page, "Attention", "encoder")
    assert names(page) == (["the", "small", "dog"],) * 2


def test_tags_are_spans_with_their_kinds(page: Page, site: Serving) -> None:
    page.get_by_label("Model", exact=True).select_option("tags")
    typed(page, "Anna Lee sees Paris")
    expect(page.locator("mark")).to_have_text(["Anna LeePER", "ParisLOC"])
    expect(page.locator(".kinds li")).to_have_text(["PER · 1", "LOC · 1"])
    colours = page.locator("mark").evaluate_all("marks => marks.map(mark => getComputedStyle(mark).backgroundColor)")
    assert len(set(colours)) == 2
    page.locator(".token").first.focus()
    page.keyboard.press("ArrowRight")
    tags = look(site, "Anna Lee sees Paris", "tags")["answer"]["probabilities"][1]
    line = page.locator(".answer-a .line").inner_text()
    assert line.startswith("Lee: PER ")
    share = sum(share for tag, share in tags.items() if tag.endswith("-PER"))
    assert numbers(line)[0] == pytest.approx(100 * share, abs=0.51)
    assert [index for index, lit in enumerate(shares(highlights(page))) if lit] == [1]


def test_an_answer_that_the_page_has_no_view_for_is_shown_as_a_line(page: Page, site: Serving) -> None:
    def retitle(route: Route) -> None:
        found = route.fetch().json()
        for model in found["models"]:
            model |= {"answers": "line", "title": "Rate texts", "kinds": [], "views": []}
        route.fulfill(json=found)

    page.route("**/v1/models", retitle)
    page.reload()
    page.get_by_label("Model", exact=True).select_option("labels")
    typed(page, "the small dog")
    expect(page.locator(".answer-a .body")).to_have_text(look(site, "the small dog", "labels")["line"])
    expect(page.locator(".inside:visible")).to_have_count(0)
