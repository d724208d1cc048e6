"""The page of `saccade look --draw FILE.html`: whole in one file, safe with any text, every control in Chromium."""

from __future__ import annotations

import base64
import copy
import hashlib
import io
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from saccade.inspection.draw import caption as captions
from saccade.inspection.insight import Head, Insight, Map, TextSide, merge_pieces
from saccade.inspection.pages import viewer
from saccade.inspection.views.view import ViewChoice, with_views

LAYERS, HEADS, STEPS, LENGTH = 3, 2, 5, 7
NASTY = ["</script><script>document.title='gone'</script>", "<!--", "<img src=x onerror=document.title='gone'>"]


class Answer:
    """What a translation says of itself."""

    def __init__(self, text: str) -> None:
        self.text = text

    def line(self) -> str:
        return self.text

    def plain(self) -> dict[str, Any]:
        return {"text": self.text, "score": -1.25, "attention": "left out"}


def shares(*shape: int) -> torch.Tensor:
    return (2 * torch.randn(shape)).softmax(-1)


def insight(source: str = "ab cd efg", output: str = "uv wxy") -> Insight:
    sides = {
        "source": TextSide(source, list("abcdefg"), source.split(" "), [0, 0, 1, 1, 2, 2, 2]),
        "output": TextSide(output, list("uvwxy"), output.split(" "), [0, 0, 1, 1, 1]),
        "read": TextSide(output, list("<uvwx"), list("<uvwx"), [0, 1, 2, 3, 4]),
    }
    maps = {
        "cross": Map(
            "output", "source", shares(LAYERS, HEADS, STEPS, LENGTH), torch.rand(LAYERS, HEADS, STEPS, LENGTH)
        ),
        "encoder": Map("source", "source", shares(LAYERS, HEADS, LENGTH, LENGTH)),
        "decoder": Map("output", "read", shares(LAYERS, HEADS, STEPS, STEPS)),
    }
    return with_views(Insight("translate", Answer(output), sides, maps, Head(1, 0, 1)), ["rollout", "flow"])


def nasty() -> Insight:
    """Texts that would break a page that trusted them."""
    source = TextSide(" ".join(NASTY), NASTY, NASTY, [0, 1, 2])
    output = TextSide("مرحبا 東京\u2028", ["مرحبا", "東京", "\u2028"], ["مرحبا", "東京", "\u2028"], [0, 1, 2])
    maps = {"cross": Map("output", "source", torch.eye(3)[None, None])}
    return Insight("translate", Answer("مرحبا"), {"source": source, "output": output}, maps)


def test_nothing_is_loaded() -> None:
    page = viewer.page([insight().plain()], title="run")
    assert not re.findall(r"""(?:src|href)\s*=\s*["'](?!data:)""", page)
    assert not re.findall(r"url\(|@import|fetch\(|XMLHttpRequest|import\(|^import ", page, re.MULTILINE)
    addresses = set(re.findall(r"(?:https?:)?//[\w.-]+\.\w[^\s\"'`]*", page))
    assert addresses == {"http://www.w3.org/2000/svg"}  # a name, not an address


def test_only_its_own_style_and_script_may_run() -> None:
    page = viewer.page([insight().plain()], title="run")
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy
    parts = re.findall(r"<style>(.*?)</style>|<script type=\"module\">(.*?)</script>", page, re.DOTALL)
    style, script = (
        "sha256-" + base64.b64encode(hashlib.sha256("".join(part).encode()).digest()).decode() for part in parts
    )
    assert f"style-src '{style}'" in policy[1]
    assert f"script-src '{script}'" in policy[1]
    assert policy[1].startswith("default-src 'none'")
    assert "unsafe" not in policy[1]


def test_no_text_ends_the_data() -> None:
    page = viewer.page([nasty().plain()], title="</title><script>alert(1)</script>")
    data = re.search(r'id="insights">(.*?)</script>', page, re.DOTALL)
    assert data
    assert json.loads(data[1])[0]["sides"]["source"]["words"] == NASTY
    assert page.count("<script") == 4
    assert "<title>&lt;/title&gt;" in page


def test_half_a_character_does_not_spoil_the_file(tmp_path: Path) -> None:
    plain = copy.deepcopy(nasty().plain())
    plain["sides"]["source"]["words"][0] = "\ud800"
    viewer.write(tmp_path / "deep" / "page.html", [plain], title="run")
    assert 'id="insights">[{' in (tmp_path / "deep" / "page.html").read_text("utf-8")


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def troubles() -> list[str]:
    return []


@pytest.fixture
def opened(browser: Any, tmp_path: Path, troubles: list[str]) -> Iterator[Any]:
    """A function that opens insights as a page; what goes wrong there, or is loaded, is a trouble."""
    context = browser.new_context(viewport={"width": 1000, "height": 800}, color_scheme="light")

    def show(*insights: Insight, pictures: Sequence[str | None] = (), **start: Any) -> Any:
        path = tmp_path / "page.html"
        viewer.write(path, [one.plain() for one in insights], title="a run", start=start, pictures=pictures)
        page = context.new_page()
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("console", lambda message: troubles.append(message.text))
        page.on("request", lambda request: troubles.append(request.url) if request.url != path.as_uri() else None)
        page.goto(path.as_uri())
        return page

    yield show
    context.close()
    assert troubles == []


def cells(page: Any) -> list[list[int]]:
    of_row = "row => [...row.querySelectorAll('td')].map(cell => +cell.textContent)"
    return page.locator(".heatmap tbody tr").evaluate_all(f"rows => rows.map({of_row})")


def is_near(found: list[list[int]], weights: torch.Tensor) -> bool:
    """The page has weights rounded to four places."""
    return bool((torch.tensor(found) - 100 * weights).abs().max() < 0.51)


def by_words(seen: Insight, view: ViewChoice) -> torch.Tensor:
    found = view.of(seen)
    return merge_pieces(found.weight_LHTS[0, 0], seen.sides[found.queries], seen.sides[found.keys])


def test_it_opens_at_the_head_that_aligns(opened: Any) -> None:
    seen = insight()
    page = opened(seen)
    assert page.locator("h1").inner_text() == "a run"
    assert page.locator("#about").inner_text() == "translate, 3 layers of 2 heads"
    assert page.locator("#view").input_value() == "aligning"
    assert page.locator(".heatmap thead th").all_inner_texts() == ["ab", "cd", "efg"]
    assert page.locator(".heatmap tbody th").all_inner_texts() == ["uv", "wxy"]
    assert is_near(cells(page), by_words(seen, ViewChoice()))
    assert (
        page.locator(".tile[aria-pressed=true]").get_attribute("aria-label") == "Layer 1, head 0, the one that aligns"
    )


@pytest.mark.parametrize("kind", ["cross", "encoder", "decoder"])
def test_every_view_of_every_kind_shows_what_python_shows(kind: str, opened: Any) -> None:
    seen = insight()
    page = opened(seen)
    page.locator("#kind").select_option(kind)
    for view in (ViewChoice("weights", kind, 0, 1), ViewChoice("mean", kind, 1), ViewChoice("maximum", kind, 2)):
        page.locator("#view").select_option(view.name)
        page.locator("#layer").select_option(str(view.layer))
        assert page.locator("#head").is_enabled() == (view.head is not None)
        if view.head is not None:
            page.locator("#head").select_option(str(view.head))
        assert is_near(cells(page), by_words(seen, view)), view


def test_views_through_the_layers_are_of_their_own_kind(opened: Any) -> None:
    seen = insight()
    page = opened(seen)
    for name in ("rollout", "flow"):
        page.locator("#view").select_option(name)
        assert is_near(cells(page), by_words(seen, ViewChoice(name)))
        assert not page.locator("#layer").is_enabled()
        assert not page.locator("#head").is_enabled()
    assert page.locator("#most").inner_text() == f"{round(100 * float(by_words(seen, ViewChoice('flow')).max()))} %"
    page.locator("#kind").select_option("encoder")
    views = page.locator("#view option").evaluate_all("all => all.map(one => one.value)")
    assert views == ["weights", "mean", "maximum"]


def test_norms_and_pieces(opened: Any) -> None:
    seen = insight()
    page = opened(seen)
    page.locator("#view").select_option("norms")
    page.locator("#layer").select_option("2")
    page.locator("#head").select_option("1")
    assert is_near(cells(page), by_words(seen, ViewChoice("norms", layer=2, head=1)))
    page.get_by_text("Pieces").click()
    assert page.locator(".heatmap thead th").all_inner_texts() == list("abcdefg")
    assert is_near(cells(page), ViewChoice("norms", layer=2, head=1).of(seen).weight_LHTS[0, 0])


def test_it_opens_at_what_was_asked_for(opened: Any) -> None:
    seen = insight()
    page = opened(seen, kind="encoder", name="weights", layer=-1, head=1, byWords=False)
    assert page.locator("#kind").input_value() == "encoder"
    assert is_near(cells(page), ViewChoice(kind="encoder", layer=2, head=1).of(seen).weight_LHTS[0, 0])
    assert opened(seen, name="rollout").locator("#view").input_value() == "rollout"


def test_words_light_each_other_both_ways(opened: Any) -> None:
    weights = torch.tensor([[1.0, 0, 0, 0, 0, 0, 0]] * 2 + [[0, 0, 0, 0, 0.25, 0.25, 0.5]] * 3)
    seen = insight()
    maps = {"cross": Map("output", "source", weights.expand(LAYERS, HEADS, STEPS, LENGTH))}
    page = opened(replace(seen, maps=maps, aligning=None, views={}))
    lit = "all => all.map(one => +one.style.getPropertyValue('--share'))"
    page.locator("#queries .word").nth(1).hover()
    assert page.locator("#keys .word").evaluate_all(lit) == [0, 0, 1]
    assert page.locator("#readout").inner_text() == "wxy reads efg 100 %"
    assert page.locator(".heatmap td.lit").all_inner_texts() == ["0", "0", "100"]
    page.locator("#keys .word").first.hover()
    assert page.locator("#queries .word").evaluate_all(lit) == [1, 0]
    assert page.locator("#readout").inner_text() == "ab is read by uv 100 %"
    page.locator(".heatmap td").nth(3).hover()
    assert page.locator("#readout").inner_text() == "uv gives efg 0 %"
    page.mouse.move(5, 5)
    assert page.locator("#queries .word").evaluate_all(lit) == [0, 0]
    assert page.locator("#readout").inner_text() == "Point at a word, or at a cell."


def test_the_keyboard_reaches_everything(opened: Any) -> None:
    page = opened(insight())
    page.locator("#keys .word").first.focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#readout").inner_text().startswith("cd is read by")
    page.keyboard.press("End")
    assert page.evaluate("document.activeElement.textContent") == "efg"
    page.locator(".heatmap td[tabindex='0']").focus()
    for key, place in (
        ("ArrowRight", ("0", "1")),
        ("ArrowDown", ("1", "1")),
        ("End", ("1", "2")),
        ("Home", ("1", "0")),
    ):
        page.keyboard.press(key)
        assert page.evaluate("[document.activeElement.dataset.query, document.activeElement.dataset.key]") == [*place]
    assert page.locator("#readout").inner_text().startswith("wxy gives ab")
    assert page.locator(".heatmap td[tabindex='0']").count() == 1


def test_a_click_keeps_what_is_lit(opened: Any) -> None:
    page = opened(insight())
    page.locator("#queries .word").nth(1).click()
    page.mouse.move(5, 5)
    page.locator("#title").click()
    assert page.locator("#readout").inner_text().startswith("wxy reads")
    page.locator("#queries .word").nth(1).click()
    page.mouse.move(5, 5)
    page.evaluate("document.activeElement.blur()")
    assert page.locator("#readout").inner_text() == "Point at a word, or at a cell."


def test_small_maps_choose_a_head(opened: Any) -> None:
    seen = insight()
    page = opened(seen)
    assert page.locator("#heads .tile").count() == LAYERS * HEADS
    page.get_by_label("Layer 2, head 1").click()
    assert (page.locator("#layer").input_value(), page.locator("#head").input_value()) == ("2", "1")
    assert is_near(cells(page), by_words(seen, ViewChoice(layer=2, head=1)))


def test_several_sentences(opened: Any) -> None:
    page = opened(insight(), insight("pq rs tu", "kl mn"))
    page.get_by_label("The next sentence").click()
    assert page.locator("#keys").inner_text() == "pq rs tu"
    page.get_by_label("The next sentence").click()
    assert page.locator("#queries").inner_text() == "uv wxy"
    page.locator("#sentence").select_option("1")
    assert page.locator("#queries").inner_text() == "kl mn"
    assert not opened(insight()).locator("#sentences").is_visible()


def test_light_and_dark(opened: Any) -> None:
    page = opened(insight())
    paper = "getComputedStyle(document.documentElement).backgroundColor"
    light = page.evaluate(paper)
    page.get_by_role("button", name="Dark").click()
    dark = page.evaluate(paper)
    assert sum(map(int, re.findall(r"\d+", light))) > 600 > 150 > sum(map(int, re.findall(r"\d+", dark)))
    assert page.get_by_role("button", name="Dark").get_attribute("aria-pressed") == "true"
    page.get_by_role("button", name="Dark").click()
    assert page.evaluate(paper) == light
    page.evaluate("delete document.documentElement.dataset.theme")
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(paper) == dark


def test_what_is_saved_is_what_is_shown(opened: Any) -> None:
    seen = insight()
    page = opened(seen)
    saved = {}
    for name in ("PNG", "SVG", "JSON"):
        with page.expect_download() as download:
            page.get_by_role("button", name=name).click()
        saved[name] = (download.value.suggested_filename, Path(download.value.path()).read_bytes())
    assert [name for name, _ in saved.values()] == ["attention.png", "attention.svg", "insight.json"]
    assert saved["PNG"][1].startswith(b"\x89PNG")
    svg = saved["SVG"][1].decode()
    assert svg.count("<rect") == 1 + 2 * 3
    assert all(f">{word}</text>" in svg for word in ("ab", "efg", "uv", "wxy"))
    assert "Output reads source: the head that aligns" in svg
    assert json.loads(saved["JSON"][1]) == json.loads(json.dumps(seen.plain()))


def test_any_text_is_only_text(opened: Any) -> None:
    page = opened(nasty())
    assert page.title() == "a run"
    assert page.locator(".heatmap thead th").all_inner_texts() == NASTY
    assert page.locator("#keys .word").nth(2).inner_text() == NASTY[2]
    assert page.locator("#queries p").get_attribute("dir") == "auto"
    assert page.evaluate("getComputedStyle(document.querySelector('#queries p')).direction") == "rtl"
    with page.expect_download() as download:
        page.get_by_role("button", name="SVG").click()
    assert "&lt;/script&gt;" in Path(download.value.path()).read_text("utf-8")


def test_a_label_lights_its_text_at_once(opened: Any) -> None:
    source = TextSide("Not bad", ["not", "bad"], ["not", "bad"], [0, 1])  # this model reads small letters
    maps = {"pooling": Map("label", "source", torch.tensor([[[[0.25, 0.75]]]]))}
    seen = Insight(
        "classify", Answer("good"), {"source": source, "label": TextSide("good", ["good"], ["good"], [0])}, maps
    )
    page = opened(seen)
    assert page.locator("#readout").inner_text() == "good reads bad 75 %, not 25 %"
    assert page.locator("#keys").inner_text() == "not bad"
    assert not page.locator("#kind").is_visible()
    assert not page.locator("#unit").is_visible()


def caption() -> Insight:
    places = TextSide("", [str(cell) for cell in range(6)], [str(cell) for cell in range(6)], list(range(6)))
    output = TextSide("a dog", ["a", "dog"], ["a", "dog"], [0, 1])
    weights = torch.tensor([[[[0.5, 0.1, 0.1, 0.1, 0.1, 0.1], [0, 0, 0, 0.1, 0.9, 0]]]])
    maps = {"cross": Map("output", "picture", weights, shape=(2, 3))}
    return Insight("caption", Answer("a dog"), {"output": output, "picture": places}, maps)


def test_a_caption_without_its_picture_is_a_map_for_each_word(opened: Any) -> None:
    page = opened(caption())
    assert page.locator("#cells .tile").all_inner_texts() == ["a", "dog"]
    sizes = "all => all.map(one => [one.width, one.height])"
    assert page.locator("#cells canvas").evaluate_all(sizes) == [[3, 2], [3, 2]]
    page.locator("#queries .word").nth(1).hover()
    assert page.locator("#readout").inner_text() == "dog looks most at row 2, column 2"
    assert page.locator("#cells .tile[aria-pressed=true]").inner_text() == "dog"
    assert not page.locator("#heat").is_visible()
    assert not page.locator("#picture").is_visible()


def painted(canvas: Any) -> Any:
    """The pixels of a canvas, from 0 to 1."""
    url = canvas.evaluate("canvas => canvas.toDataURL()")
    with Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))) as picture:
        return np.asarray(picture.convert("RGB")) / 255


def test_a_caption_is_its_picture_for_each_word_light_where_it_looked(opened: Any) -> None:
    seen, pixels = caption(), np.random.default_rng(4).integers(0, 256, (3, 80, 120), np.uint8)
    page = opened(seen, caption(), pictures=[captions.encode_picture(pixels), None])
    weights = seen.maps["cross"].weight_LHTS[0, 0].unflatten(-1, (2, 3)).numpy()
    enlarged = pixels.repeat(4, 1).repeat(4, 2)
    stage, words = page.locator("#picture"), page.locator("#queries .word")
    assert stage.get_attribute("aria-label") == "The picture"
    np.testing.assert_allclose(painted(stage), np.moveaxis(enlarged, 0, -1) / 255, atol=1e-6)
    for word, name in enumerate(["a", "dog"]):
        wanted = captions.overlay(enlarged, weights[word])
        np.testing.assert_allclose(painted(page.locator("#cells canvas").nth(word)), wanted, atol=0.02)
        for pointed in (words, page.locator("#cells .tile")):
            page.mouse.move(5, 5)
            assert stage.get_attribute("aria-label") == "The picture"
            pointed.nth(word).hover()
            assert stage.get_attribute("aria-label") == f"Where {name} looked"
            np.testing.assert_allclose(painted(stage), wanted, atol=0.02)
    assert not page.locator("#scale").is_visible()
    page.get_by_label("The next sentence").click()
    assert not stage.is_visible()
    assert page.locator("#scale").is_visible()
    page.set_viewport_size({"width": 360, "height": 780})
    page.get_by_label("The sentence before").click()
    assert stage.bounding_box()["width"] < 340
    assert page.evaluate("document.documentElement.scrollWidth") == 360


def test_a_phone_scrolls_the_map_and_not_the_page(opened: Any) -> None:
    words = [f"word{number}" for number in range(30)]
    side = TextSide(" ".join(words), words, words, list(range(30)))
    maps = {"encoder": Map("source", "source", shares(6, 8, 30, 30))}
    page = opened(Insight("tag", Answer(""), {"source": side}, maps))
    page.set_viewport_size({"width": 360, "height": 780})
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    assert page.evaluate("document.querySelector('#heat').scrollWidth > 360")
    assert page.locator("#heads .tile").count() == 48


def test_screen_readers_find_a_table_with_headers(opened: Any) -> None:
    page = opened(insight())
    assert (
        page.locator("table[role=grid]").get_attribute("aria-label")
        == "Output reads source: the head that aligns, in percent"
    )
    assert page.locator("th[scope=col]").count() == 3
    assert page.locator("th[scope=row]").count() == 2
    for control in ("Attention", "View", "Layer", "Head"):
        assert page.get_by_role("combobox", name=control, exact=True).count() == 1
    assert page.locator("#readout").get_attribute("aria-live") == "polite"
    unnamed = "all => all.filter(one => !(one.labels?.length || one.ariaLabel || one.textContent.trim())).length"
    assert page.locator("button, select, input").evaluate_all(unnamed) == 0
