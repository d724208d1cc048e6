"""Pictures on the page, and what is shared from it."""

from __future__ import annotations

import io
import json
import xml.etree.ElementTree as ET
from base64 import b64decode
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from playwright.sync_api import Browser, FilePayload, Locator, Page, Response, Route, expect

from pages.browser import (
    TEXT,
    cells,
    choose,
    look,
    opened,
    output,
    ready,
    saved,
    shares,
    typed,
    words_of,
)
from servers import Serving


def painted(width: int = 30, height: int = 20) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(3).integers(0, 256, (height, width, 3), np.uint8)).save(file, "PNG")
    return file.getvalue()


def sent_by(answer: Response) -> Image.Image:
    """The picture that was asked about."""
    body: Any = answer.request.post_data_json
    return Image.open(io.BytesIO(b64decode(body["image"])))


def thickness(canvas: Locator) -> NDArray[np.uint8]:
    """How much of what lies below is hidden, [Y, X]."""
    url = canvas.evaluate("canvas => canvas.toDataURL()")
    with Image.open(io.BytesIO(b64decode(url.partition(",")[2]))) as picture:
        return np.asarray(picture.convert("RGBA"))[..., 3]


GIVE = """([bytes, kind]) => {
  const data = new DataTransfer();
  data.items.add(new File([new Uint8Array(bytes)], "picture.png", { type: "image/png" }));
  const event = kind === "drop" ? new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true })
                                : new ClipboardEvent("paste", { clipboardData: data, bubbles: true });
  document.body.dispatchEvent(event);
}"""


def test_a_caption_of_a_picture_that_one_gives(page: Page) -> None:
    page.get_by_label("Model", exact=True).select_option("shapes")
    ready(page)
    for number, way in enumerate(("chosen", "drop", "paste")):
        pixels = painted(30 + number, 20)
        with page.expect_response("**/v1/look") as answer:
            if way == "chosen":
                file: FilePayload = {"name": "picture.png", "mimeType": "image/png", "buffer": pixels}
                page.get_by_label("Choose a picture").set_input_files(file)
            else:
                page.evaluate(GIVE, [list(pixels), way])
        ready(page)
        expect(page.locator(".output")).to_have_text(answer.value.json()["answer"]["text"])
        assert page.locator("canvas.picture").evaluate("picture => [picture.width, picture.height]") == [
            30 + number,
            20,
        ]
        with Image.open(io.BytesIO(pixels)) as given:
            assert (np.asarray(sent_by(answer.value).convert("RGB")) == np.asarray(given)).all()


def test_a_caption_shows_where_each_word_looked(page: Page) -> None:
    with page.expect_response("**/v1/look") as answer:
        page.get_by_label("Model", exact=True).select_option("shapes")  # a picture is painted at once
    ready(page)
    insight = answer.value.json()
    shade = page.locator(".picture-input .shade")
    assert not thickness(shade).any()
    words_of(page).first.hover()
    weights = np.array(insight["attention"]["cross"]["weights"])[0, 0]
    rows, columns = insight["attention"]["cross"]["shape"]
    thick = thickness(shade)
    sizes = zip((rows, columns), thick.shape, strict=True)
    middles = [(2 * np.arange(count) + 1) * size // (2 * count) for count, size in sizes]
    assert (
        np.corrcoef(thick[np.ix_(*middles)].ravel(), weights[0])[0, 1] < -0.95
    )  # the more it read, the less is hidden
    page.mouse.move(5, 5)
    assert not thickness(shade).any()
    stills = page.get_by_label("Where each word looked").get_by_role("button")
    expect(stills).to_have_text([word for word in insight["sides"]["output"]["words"] if word != "</s>"])
    stills.nth(2).click()
    expect(page.get_by_label("Step by step").get_by_role("slider")).to_have_value("3")
    assert thickness(shade).any()
    expect(page.locator(".thumbnail[aria-pressed=true]")).to_have_count(1)


def test_another_picture_is_painted_and_what_is_none_is_said(page: Page) -> None:
    page.get_by_label("Model", exact=True).select_option("shapes")
    ready(page)
    pixels = "picture => picture.toDataURL()"
    first = page.locator("canvas.picture").evaluate(pixels)
    page.get_by_role("button", name="Random picture").click()
    ready(page)
    assert page.locator("canvas.picture").evaluate(pixels) != first
    page.get_by_label("Choose a picture").set_input_files({"name": "a.png", "mimeType": "image/png", "buffer": b"no"})
    expect(page.get_by_role("alert").first).to_have_text(
        "That file isn't a picture this browser can read. Try a PNG or a JPEG."
    )


def test_glimpses_are_a_path_and_one_may_draw(page: Page) -> None:
    with page.expect_response("**/v1/look") as answer:
        page.get_by_label("Model", exact=True).select_option("digits")
    ready(page)
    found = answer.value.json()["answer"]
    expect(page.locator(".path .stop")).to_have_count(5)
    places = page.locator(".path circle").evaluate_all(
        "dots => dots.map(dot => ['cx', 'cy'].map(at => Number(dot.getAttribute(at))))"
    )
    assert places == found["path"]
    expect(page.locator(".prediction strong")).to_have_text(found["label"])
    page.get_by_label("Glimpse by glimpse").get_by_role("slider").focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".path .stop")).to_have_count(2)
    expect(page.locator(".path rect")).to_have_attribute("width", "6")
    bars = dict(zip(page.locator(".bars span").all_text_contents(), shares(page.locator(".bars i")), strict=True))
    assert bars == pytest.approx(found["beliefs"][1], abs=1e-4)
    page.get_by_role("button", name="Clear").click()
    box = page.locator("canvas.picture").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 60, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 60, box["y"] + 240, steps=5)
    with page.expect_response("**/v1/look") as drawn:
        page.mouse.up()
    sent = sent_by(drawn.value)
    ink = np.asarray(sent.convert("L")) > 128
    rows, columns = np.nonzero(ink)
    assert np.ptp(rows) > 3 * np.ptp(columns) > 0  # a line downwards
    ready(page)


def test_glimpses_play_by_themselves_where_things_may_move(browser: Browser, site: Serving) -> None:
    with opened(browser, site, "#model=digits", reduced_motion="no-preference") as page:
        page.wait_for_function("() => 1 < document.querySelector('.playing + input')?.value")


def test_a_link_carries_everything(browser: Browser, page: Page, site: Serving) -> None:
    typed(page, TEXT)
    page.get_by_role("button", name="Compare").click()
    ready(page)
    choose(page, "Attention", "encoder")
    choose(page, "View", "weights")
    choose(page, "Layer", "0")
    choose(page, "Head", "1")
    choose(page, "Units", "pieces")
    wanted = cells(page)
    assert "#" not in page.url  # what is typed stays out of the history
    page.get_by_role("button", name="Share").click()
    page.get_by_role("button", name="Copy a link").click()
    expect(page.get_by_role("status")).to_contain_text("The link is copied.")
    link = page.evaluate("navigator.clipboard.readText()")
    assert link.startswith(f"{site.url}/#")
    assert "layer=0&head=1" in link
    with opened(browser, site, link.removeprefix(f"{site.url}/")) as other:
        ready(other)
        expect(other.get_by_label("Text to read")).to_have_value(TEXT)
        expect(other.get_by_label("Second model", exact=True)).to_have_value("words")
        assert cells(other) == wanted
        other.goto(f"{site.url}/#model=labels&text=a%20bird")  # in the same tab
        expect(other.get_by_label("Text to read")).to_have_value("a bird")


def test_it_is_saved(page: Page, site: Serving) -> None:
    page.get_by_label("Text to read").fill(TEXT)
    for model in ("pieces", "labels", "tags", "shapes", "digits"):
        page.get_by_label("Model", exact=True).select_option(model)
        ready(page)
        insight = json.loads(saved(page, "JSON"))
        drawing = ET.fromstring(saved(page, "SVG"))
        with Image.open(io.BytesIO(saved(page, "PNG"))) as picture:
            assert picture.size == (2 * int(drawing.get("width", 0)), 2 * int(drawing.get("height", 0)))
            assert len(np.unique(np.asarray(picture.convert("L")))) > 20
        text = " ".join(drawing.itertext())
        answer = insight["answer"]
        said = [answer.get("text") or answer.get("label"), *(span["kind"] for span in answer.get("spans", []))]
        assert any(filter(None, said))
        assert all(one in text for one in said if one)
        if model in ("shapes", "digits"):
            assert drawing.find(".//{http://www.w3.org/2000/svg}image") is not None
        else:
            assert insight == look(site, model=model)
            assert TEXT in text


def test_it_is_copied_where_the_page_is_not_secure_too(browser: Browser, site: Serving) -> None:
    with opened(browser, site) as page:
        page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
        typed(page, TEXT)
        page.get_by_role("button", name="Copy", exact=True).click()
        expect(page.get_by_role("status")).to_have_text("The answer is copied.")
        page.get_by_label("Text to read").fill("")
        page.get_by_label("Text to read").press("Control+V")
        expect(page.get_by_label("Text to read")).to_have_value(output(site, TEXT))


def test_there_is_nothing_to_share_before_there_is_an_answer(page: Page) -> None:
    page.get_by_role("button", name="Share").click()
    page.get_by_role("button", name="Save as JSON").click()
    expect(page.get_by_role("status")).to_have_text("There is nothing to share yet. Type something first.")


def test_what_is_said_while_the_page_begins_stays(page: Page) -> None:
    held = list[Route]()
    page.route("**/v1/models", lambda route: held.append(route))
    page.reload(wait_until="domcontentloaded")
    page.get_by_role("button", name="Share").click()
    page.get_by_role("button", name="Save as JSON").click()
    page.wait_for_function("document.querySelector('#notice').textContent")
    held[0].continue_()
    expect(page.get_by_role("button", name="Compare")).to_be_visible()
    expect(page.get_by_role("status")).to_have_text("There is nothing to share yet. Type something first.")
