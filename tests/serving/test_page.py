"""The page at /, in a real Chromium against a real server: every control, by pointer and by keyboard."""

from __future__ import annotations

import io
import itertools
import json
import re
import xml.etree.ElementTree as ElementTree
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from filelock import FileLock
from numpy.typing import NDArray
from PIL import Image

from page_oracle import by_words, confidence, read, shown
from page_runs import EXAMPLES, make_all
from pages import cells, names, numbers, opened, ready, shares, spots, typed, words_of
from saccade.serving.models import Run, load_runs
from servers import Serving, serving

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not there; pip install 'saccade[dev]'")
Browser, Locator, Page, Route = playwright.Browser, playwright.Locator, playwright.Page, playwright.Route
expect = playwright.expect

TEXT = "the small cat sees a bird ."
KEY = "open-sesame-7"


@pytest.fixture(scope="session")
def page_runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """Made once, by whichever process of the tests comes first."""
    folder = tmp_path_factory.getbasetemp().parent / "page_runs"
    with FileLock(f"{folder}.lock"):
        if not (folder / "folders.json").exists():
            folder.mkdir(exist_ok=True)
            (folder / "folders.json").write_text(json.dumps([str(path) for path in make_all(folder)]), encoding="utf-8")
    return load_runs([Path(path) for path in json.loads((folder / "folders.json").read_text("utf-8"))])


@pytest.fixture(scope="session")
def site(page_runs: list[Run]) -> Iterator[Serving]:
    with serving(page_runs) as found:
        yield found


@pytest.fixture(scope="session")
def browser(chromium: str) -> Iterator[Browser]:
    with playwright.sync_playwright() as started:
        yield started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])


@pytest.fixture
def page(browser: Browser, site: Serving) -> Iterator[Page]:
    with opened(browser, site) as found:
        yield found


def look(site: Serving, text: str = TEXT, model: str = "pieces", **body: Any) -> dict[str, Any]:
    answer = site.post("/v1/look", text=text, model=model, **body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def output(site: Serving, text: str) -> str:
    """What the page must show for a text: with others asked for, the beam is as wide."""
    found: str = look(site, text, num_best=4)["answer"]["text"]
    return found


def choose(page: Page, label: str, value: str, slot: str = "a") -> None:
    select = page.locator(f".inside-{slot}").get_by_label(label, exact=True)
    select.select_option(element=select.locator(f"option[value='{value}']").element_handle())  # its value, not its text
    ready(page)


# --- text


def test_before_anything_is_typed_there_are_examples_to_try(page: Page, site: Serving) -> None:
    expect(page.get_by_text("Type, and watch what it reads.")).to_be_visible()
    expect(page.locator(".inside:visible")).to_have_count(0)
    expect(page.get_by_label("Model", exact=True).locator("option").first).to_have_text("English → French · pieces")
    chips = page.locator("#examples button")
    expect(chips).to_have_text(EXAMPLES)
    chips.nth(1).click()
    expect(page.locator(".output")).to_have_text(look(site, EXAMPLES[1], num_best=4)["answer"]["text"])
    expect(page.get_by_label("Text to read")).to_have_value(EXAMPLES[1])


def test_the_output_appears_as_one_pauses_and_is_said(page: Page, site: Serving) -> None:
    asked = list[str]()
    page.on("request", lambda request: asked.append(request.post_data or "") if "look" in request.url else None)
    page.get_by_label("Text to read").press_sequentially("the cat sees a dog .", delay=2)
    expect(page.locator("#live")).to_have_text(output(site, "the cat sees a dog ."))
    expect(page.locator(".output")).to_have_text(output(site, "the cat sees a dog ."))
    assert [json.loads(body)["text"] for body in asked] == ["the cat sees a dog ."]
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
        page.wait_for_timeout(20)
    typed(page, "the bird likes a cat .")
    held[0].fulfill(status=200, json={"task": "translate"})
    expect(page.locator(".output")).to_have_text(output(site, "the bird likes a cat ."))


def test_sentences_are_asked_for_once_and_joined_as_they_stood(page: Page, site: Serving) -> None:
    asked = list[str]()
    page.on("request", lambda sent: asked.append(json.loads(sent.post_data)["text"]) if "look" in sent.url else None)
    one, two, three = "the cat sees a dog .", "a bird likes the cat .", "a bird likes the dog ."
    typed(page, f"{one}\n\n{two}")
    assert page.locator("#live").text_content() == f"{output(site, one)}\n\n{output(site, two)}"
    typed(page, f"{one}\n\n{three}")
    assert asked == [one, two, three]
    first, second = (look(site, text, num_best=4) for text in (one, three))
    start, words = (len(first["sides"]["output"]["words"]) - 1, second["sides"]["output"]["words"])
    words_of(page).nth(start + 1).hover()
    wanted = np.concatenate([np.zeros(len(first["sides"]["source"]["words"]) - 1), read(second, 1)])
    np.testing.assert_allclose(shares(spots(page)), wanted / max(0.4, wanted.max()), atol=2e-3)
    words_of(page).nth(start + 1).click()
    assert names(page)[0] == words  # the sentence that is looked into
    words_of(page).nth(0).click()
    assert names(page)[0] == first["sides"]["output"]["words"]


@pytest.mark.parametrize("way", ["pointer", "keyboard"])
def test_an_output_word_lights_what_it_read(page: Page, site: Serving, way: str) -> None:
    typed(page, TEXT)
    insight = look(site, num_best=4)
    words = insight["sides"]["output"]["words"][:-1]
    expect(words_of(page)).to_have_text(words)
    if way == "keyboard":
        words_of(page).first.focus()
        page.keyboard.press("ArrowRight")
    else:
        words_of(page).nth(1).hover()
    wanted = read(insight, 1)
    np.testing.assert_allclose(shares(spots(page)), wanted / max(0.4, wanted.max()), atol=2e-3)
    best = insight["sides"]["source"]["words"][int(wanted.argmax())]
    sure = confidence(insight)[1]
    line = page.locator(".answer-a .line").inner_text()
    assert line.startswith(f"{words[1]}: ")
    assert f"read {best} " in line
    assert numbers(line)[0] == pytest.approx(100 * sure, abs=0.51)
    assert page.locator("#gaze .arcs path").count() == min(6, int((wanted >= 0.05).sum()))
    expect(words_of(page).nth(1)).to_have_class(re.compile("here"))
    expect(page.locator(".inside-a tbody th.here")).to_have_text(words[1])
    expect(page.locator(".threads text.lit")).to_have_text([words[1]])
    if way == "keyboard":
        page.keyboard.press("Escape")
    else:
        page.mouse.move(5, 5)
    assert max(shares(spots(page))) == 0
    expect(page.locator("#gaze .arcs path")).to_have_count(0)


@pytest.mark.parametrize("way", ["pointer", "keyboard"])
def test_a_source_word_lights_who_read_it(page: Page, site: Serving, way: str) -> None:
    typed(page, TEXT)
    insight = look(site, num_best=4)
    if way == "keyboard":
        page.get_by_label("Text to read").press("Home")
        for _ in "the small":
            page.keyboard.press("ArrowRight")
    else:
        box = spots(page).nth(1).bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    wanted = by_words(insight, "cross", shown(insight, "cross"))[:-1, 1]
    expect(spots(page).nth(1)).to_have_class(re.compile("here"))
    np.testing.assert_allclose(shares(words_of(page)), wanted / max(0.4, wanted.max()), atol=2e-3)


def test_confidence_is_a_line_and_a_number_and_can_be_hidden(page: Page, site: Serving) -> None:
    typed(page, TEXT)
    wanted = confidence(look(site, num_best=4))[:-1]
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
    insight = look(site, num_best=4)
    others = page.locator(".others button")
    expect(others).to_have_text([other["text"] for other in insight["others"]])
    chosen = insight["others"][1]["text"]
    others.nth(1).click()
    expect(page.locator("#live")).to_have_text(chosen)
    expect(others).to_have_text([insight["answer"]["text"], insight["others"][0]["text"], insight["others"][2]["text"]])
    wanted = confidence(look(site, target=chosen))
    told = words_of(page).first.get_attribute("aria-description")
    assert numbers(told or "")[0] == pytest.approx(100 * wanted[0], abs=0.51)


# --- inside


def test_the_heat_map_shows_every_kind_view_layer_and_head(page: Page, site: Serving) -> None:
    typed(page, TEXT)
    kinds = ("cross", "encoder", "decoder")
    insight = look(site, kinds=kinds, num_best=4)
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
    insight = look(site, views=["rollout", "flow"], num_best=4)
    for view in ("rollout", "flow"):
        choose(page, "View", view)
        assert page.locator(".inside-a").get_by_label("Layer", exact=True).is_disabled()
        np.testing.assert_allclose(
            cells(page), 100 * by_words(insight, "cross", shown(insight, "cross", view)), atol=0.51
        )
    choose(page, "Units", "pieces")
    np.testing.assert_allclose(cells(page), 100 * shown(insight, "cross", "flow"), atol=0.51)
    assert names(page) == (insight["sides"]["output"]["pieces"], insight["sides"]["source"]["pieces"])


def test_all_heads_at_a_glance_choose_one(page: Page, site: Serving) -> None:
    typed(page, TEXT)
    expect(page.locator(".tile")).to_have_count(4)
    page.get_by_role("button", name="Layer 1, head 2").click()
    insight = look(site, num_best=4)
    np.testing.assert_allclose(
        cells(page), 100 * by_words(insight, "cross", shown(insight, "cross", "weights", 0, 1)), atol=0.51
    )
    chosen = [
        page.locator(".inside-a").get_by_label(name, exact=True).input_value() for name in ("View", "Layer", "Head")
    ]
    assert chosen == ["weights", "0", "1"]
    expect(page.locator(".tile[aria-pressed=true]")).to_have_count(1)


def test_the_heat_map_and_the_threads_light_the_texts(page: Page, site: Serving) -> None:
    typed(page, TEXT)
    insight = look(site, num_best=4)
    weights = by_words(insight, "cross", shown(insight, "cross"))
    assert page.locator(".thread").count() == int((weights >= 0.04).sum())
    page.locator(".inside-a tbody tr").nth(2).locator("td").nth(3).hover()
    lit = shares(spots(page))
    assert [index for index, share in enumerate(lit) if share] == ([3] if weights[2, 3] >= 5e-4 else [])
    expect(words_of(page).nth(2)).to_have_class(re.compile("here"))
    page.locator(".threads text[data-key='1']").hover()
    assert [index for index, share in enumerate(shares(spots(page))) if share] == [1]
    page.locator(".threads text[data-query='4']").hover()
    expect(words_of(page).nth(4)).to_have_class(re.compile("here"))


def test_steps_are_walked_and_played(browser: Browser, site: Serving) -> None:
    insight = look(site, num_best=4)
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
            expect(page.locator(".answer-a .line")).to_contain_text(f"read {best} ")
            assert f"Step {step + 1} of {len(output['pieces'])}" in (slider.get_attribute("aria-valuetext") or "")
            np.testing.assert_allclose(shares(spots(page)), weights[step] / max(0.4, weights[step].max()), atol=2e-3)
            page.keyboard.press("ArrowRight")
        page.keyboard.press("Escape")
        expect(page.locator(".word.later")).to_have_count(0)
        page.clock.install()
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
    insight = look(site, model="words", num_best=4)
    expect(page.get_by_label("Second model", exact=True)).to_have_value("words")
    expect(page.locator(".answer-b .output")).to_have_text(insight["answer"]["text"])
    expect(page.locator(".answer-a .output")).to_have_text(look(site, num_best=4)["answer"]["text"])
    assert names(page, "b")[0] == insight["sides"]["output"]["words"]
    words_of(page, "b").nth(1).hover()
    wanted = read(insight, 1)
    np.testing.assert_allclose(shares(spots(page)), wanted / max(0.4, wanted.max()), atol=2e-3)
    page.get_by_label("Second model", exact=True).select_option("labels")
    ready(page)
    expect(page.locator(".answer-b .verdict strong")).to_have_text(look(site, model="labels")["answer"]["label"])
    page.get_by_role("button", name="Close the second model").click()
    expect(page.locator(".answer-b")).to_have_count(0)
    expect(page.get_by_role("button", name="Compare")).to_be_focused()


def test_labels_and_the_weights_of_words(page: Page, site: Serving) -> None:
    page.get_by_label("Model", exact=True).select_option("labels")
    typed(page, "the small dog")
    insight = look(site, "the small dog", "labels")
    answer = insight["answer"]
    expect(page.locator(".verdict strong")).to_have_text(answer["label"])
    ranked = sorted(answer["probabilities"], key=lambda name: -answer["probabilities"][name])
    expect(page.locator(".bars span")).to_have_text(ranked)
    told = [numbers(text)[0] for text in page.locator(".bars b").all_text_contents()]
    np.testing.assert_allclose(told, [100 * answer["probabilities"][name] for name in ranked], atol=0.51)
    wanted = by_words(insight, "pooling", shown(insight, "pooling"))[0]
    np.testing.assert_allclose(shares(spots(page)), wanted / max(0.4, wanted.max()), atol=2e-3)
    choose(page, "View", "weights")
    choose(page, "Head", "2")
    one = by_words(insight, "pooling", shown(insight, "pooling", "weights", -1, 2))[0]
    np.testing.assert_allclose(shares(spots(page)), one / max(0.4, one.max()), atol=2e-3)
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
    assert [index for index, lit in enumerate(shares(spots(page))) if lit] == [1]


# --- pictures


def painted(width: int = 30, height: int = 20) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(3).integers(0, 256, (height, width, 3), np.uint8)).save(file, "PNG")
    return file.getvalue()


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


@pytest.mark.parametrize("way", ["chosen", "dropped", "pasted"])
def test_a_caption_of_a_picture_that_one_gives(page: Page, way: str) -> None:
    page.get_by_label("Model", exact=True).select_option("shapes")
    ready(page)
    with page.expect_response("**/v1/look") as answer:
        if way == "chosen":
            page.get_by_label("Choose a picture").set_input_files(
                {"name": "picture.png", "mimeType": "image/png", "buffer": painted()}
            )
        else:
            page.evaluate(GIVE, [list(painted()), "drop" if way == "dropped" else "paste"])
    ready(page)
    insight = answer.value.json()
    assert page.locator("canvas.picture").evaluate("picture => [picture.width, picture.height]") == [30, 20]
    expect(page.locator(".output")).to_have_text(insight["answer"]["text"])
    sent = Image.open(io.BytesIO(b64decode(json.loads(answer.value.request.post_data)["image"])))
    assert (np.asarray(sent.convert("RGB")) == np.asarray(Image.open(io.BytesIO(painted())))).all()


def test_a_caption_shows_where_each_word_looked(page: Page) -> None:
    with page.expect_response("**/v1/look") as answer:
        page.get_by_label("Model", exact=True).select_option("shapes")  # a picture is painted at once
    ready(page)
    insight = answer.value.json()
    shade = page.locator(".sight .shade")
    assert not thickness(shade).any()
    words_of(page).first.hover()
    weights = np.array(insight["attention"]["cross"]["weights"])[0, 0]
    rows, columns = insight["attention"]["cross"]["shape"]
    thick = thickness(shade)
    height, width = thick.shape
    places = (divmod(int(pick(weights[0])), columns) for pick in (np.argmax, np.argmin))
    bright, dark = (thick[(2 * y + 1) * height // (2 * rows), (2 * x + 1) * width // (2 * columns)] for y, x in places)
    assert bright < dark
    page.mouse.move(5, 5)
    assert not thickness(shade).any()
    stills = page.get_by_label("Where each word looked").get_by_role("button")
    expect(stills).to_have_text([word for word in insight["sides"]["output"]["words"] if word != "</s>"])
    stills.nth(2).click()
    expect(page.get_by_label("Step by step").get_by_role("slider")).to_have_value("3")
    assert thickness(shade).any()
    expect(page.locator(".still[aria-pressed=true]")).to_have_count(1)


def test_another_picture_is_painted_and_what_is_none_is_said(page: Page) -> None:
    page.get_by_label("Model", exact=True).select_option("shapes")
    ready(page)
    pixels = "picture => picture.toDataURL()"
    first = page.locator("canvas.picture").evaluate(pixels)
    page.get_by_role("button", name="Paint one by chance").click()
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
    expect(page.locator(".verdict strong")).to_have_text(found["label"])
    page.get_by_label("Glimpse by glimpse").get_by_role("slider").focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".path .stop")).to_have_count(2)
    expect(page.locator(".path rect")).to_have_attribute("width", "6")
    bars = dict(
        zip(page.locator(".bars span").all_text_contents(), page.locator(".bars b").all_text_contents(), strict=True)
    )
    for name, share in found["beliefs"][1].items():
        assert numbers(bars[name])[0] == pytest.approx(100 * share, abs=0.51)
    page.get_by_role("button", name="Wipe").click()
    box = page.locator("canvas.picture").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 60, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 60, box["y"] + 240, steps=5)
    with page.expect_response("**/v1/look") as drawn:
        page.mouse.up()
    sent = Image.open(io.BytesIO(b64decode(json.loads(drawn.value.request.post_data)["image"])))
    ink = np.asarray(sent.convert("L")) > 128
    rows, columns = np.nonzero(ink)
    assert np.ptp(rows) > 3 * np.ptp(columns) > 0  # a line downwards
    ready(page)


def test_glimpses_play_by_themselves_where_things_may_move(browser: Browser, site: Serving) -> None:
    with opened(browser, site, "#model=digits", reduced_motion="no-preference") as page:
        expect(page.get_by_role("button", name="Pause")).to_be_visible()
        expect(page.get_by_label("Glimpse by glimpse").get_by_role("slider")).to_have_value("2")


# --- share


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
    with opened(browser, site, link.removeprefix(f"{site.url}/")) as other:
        ready(other)
        expect(other.get_by_label("Text to read")).to_have_value(TEXT)
        expect(other.get_by_label("Second model", exact=True)).to_have_value("words")
        assert cells(other) == wanted


def saved(page: Page, way: str) -> bytes:
    page.get_by_role("button", name="Share").click()
    with page.expect_download() as download:
        page.get_by_role("button", name=f"Save as {way}").click()
    assert download.value.suggested_filename.endswith(f".{way.lower()}")
    return Path(download.value.path()).read_bytes()


@pytest.mark.parametrize("model", ["pieces", "labels", "tags", "shapes", "digits"])
def test_it_is_saved(browser: Browser, site: Serving, model: str) -> None:
    with opened(browser, site, f"#model={model}&text=the%20small%20cat%20sees%20a%20bird%20.") as page:
        ready(page)
        insight = json.loads(saved(page, "JSON"))
        drawing = ElementTree.fromstring(saved(page, "SVG"))
        with Image.open(io.BytesIO(saved(page, "PNG"))) as picture:
            assert picture.size == (2 * int(drawing.get("width", 0)), 2 * int(drawing.get("height", 0)))
            assert len(np.unique(np.asarray(picture.convert("L")))) > 20
    text = " ".join(drawing.itertext())
    if model in ("shapes", "digits"):
        assert drawing.find("{http://www.w3.org/2000/svg}image") is not None
    else:
        assert insight == look(site, model=model, **({"num_best": 4} if model == "pieces" else {}))
        assert TEXT in text
    assert (insight["answer"].get("text") or insight["answer"].get("label") or "PER") in text


def test_there_is_nothing_to_share_before_there_is_an_answer(page: Page) -> None:
    page.get_by_role("button", name="Share").click()
    page.get_by_role("button", name="Save as JSON").click()
    expect(page.get_by_role("status")).to_have_text("There is nothing to share yet. Type something first.")


# --- colours, keys, troubles


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


def test_a_key_is_asked_for_and_kept_in_the_tab(browser: Browser, page_runs: list[Run]) -> None:
    with serving(page_runs[1:2], keys=(KEY,)) as site, opened(browser, site, complains=True) as page:
        field = page.locator("#key")
        expect(field).to_be_focused()
        field.fill("wrong-key")
        page.keyboard.press("Enter")
        page.get_by_label("Text to read").fill(TEXT)
        expect(page.get_by_role("alert").first).to_contain_text("This server wants an API key.")
        expect(field).to_be_focused()
        field.fill(KEY)
        page.keyboard.press("Enter")
        expect(page.locator(".output .word").first).to_be_visible()
        expect(page.get_by_role("alert").first).to_have_text("")
        assert page.evaluate("Object.values(sessionStorage)") == [KEY]
        assert page.evaluate("JSON.stringify(localStorage) + document.cookie + location.href").count(KEY) == 0


def test_a_busy_server_is_asked_again(browser: Browser, site: Serving) -> None:
    with opened(browser, site, complains=True) as page:
        page.clock.install()
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
        expect(page.locator(".output")).to_have_text(look(site, num_best=4)["answer"]["text"])
        expect(page.get_by_role("status")).to_have_text("")


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (500, "The server stumbled. Try again; if it happens again, its log says why."),
        (503, "The server took too long or is shutting down. Try again in a moment."),
        (413, "That is more than this server takes. Try a shorter text or a smaller picture."),
        (None, "The server doesn't answer. Check that saccade serve is still running, then type again."),
    ],
)
def test_troubles_are_one_kind_line(browser: Browser, site: Serving, status: int | None, said: str) -> None:
    with opened(browser, site, complains=True) as page:
        page.route(
            "**/v1/look",
            lambda route: route.abort() if status is None else route.fulfill(status=status, json={"error": "x"}),
        )
        page.get_by_label("Text to read").fill(TEXT)
        expect(page.get_by_role("alert").first).to_have_text(said)
        page.unroute("**/v1/look")
        typed(page, f"{TEXT} ")
        expect(page.get_by_role("alert").first).to_have_text("")


def test_what_a_model_says_is_text(browser: Browser, site: Serving) -> None:
    evil = "<img/src=x/onerror=hacked=1>"

    def spoil(route: Route) -> None:
        insight = route.fetch().json()
        output = insight["sides"]["output"]
        output["words"] = [evil] * len(output["words"])
        output["text"] = insight["answer"]["text"] = " ".join(output["words"])
        insight["others"][0]["text"] = evil
        route.fulfill(json=insight)

    with opened(browser, site) as page:
        page.route("**/v1/look", spoil)
        typed(page, TEXT)
        words_of(page).first.hover()
        expect(words_of(page).first).to_have_text(evil)
        expect(page.locator(".answer-a .line")).to_contain_text(evil)
        expect(page.locator(".others button").first).to_have_text(evil)
        expect(page.locator(".threads text").last).to_have_text(evil)
        expect(page.locator(".inside-a tbody th").first).to_have_text(evil)
        assert evil in "".join(ElementTree.fromstring(saved(page, "SVG")).itertext())
        assert page.locator("img").count() == 0
        assert page.evaluate("typeof hacked") == "undefined"


# --- for everybody


NAMELESS = """() => [...document.querySelectorAll('button, select, input, textarea, a, section, [tabindex], [role=listbox], [role=grid], [role=img], [role=group]')].filter(one => {
  if (!one.checkVisibility() || one.closest('[aria-hidden=true]')) return false;
  const named = (one.getAttribute('aria-labelledby') || '').split(' ').map(id => document.getElementById(id)?.textContent ?? '').join('');
  const labels = [...(one.labels ?? [])].map(label => label.textContent).join('');
  const text = one.matches('select, input, textarea') ? '' : one.textContent;
  return !(one.getAttribute('aria-label') || named || labels || text).trim();
}).map(one => one.outerHTML.slice(0, 120))"""

# text against what lies behind it, as WCAG 2.2 counts (1.4.3); colours through a canvas, so that every notation is read
CONTRAST = """() => {
  const pen = Object.assign(document.createElement('canvas'), { width: 1, height: 1 }).getContext('2d', { willReadFrequently: true });
  const rgba = (colour) => { pen.clearRect(0, 0, 1, 1); pen.fillStyle = colour; pen.fillRect(0, 0, 1, 1); return [...pen.getImageData(0, 0, 1, 1).data].map((v, i) => i < 3 ? v : v / 255); };
  const over = (top, under) => [0, 1, 2].map(i => top[i] * top[3] + under[i] * (1 - top[3]));
  const light = (colour) => colour.slice(0, 3).map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (one) => {
    const layers = [];
    for (let up = one; up; up = up.parentElement) {
      const colour = rgba(getComputedStyle(up).backgroundColor);
      if (colour[3]) layers.push(colour);
      if (colour[3] === 1) break;
    }
    return layers.reduceRight((under, top) => over(top, under), [255, 255, 255]);
  };
  const found = [];
  for (const one of document.querySelectorAll('body *')) {
    const text = [...one.childNodes].filter(node => node.nodeType === 3).map(node => node.data.trim()).join('');
    const style = getComputedStyle(one);
    if (!text || !one.checkVisibility({ opacityProperty: true, visibilityProperty: true }) || one.matches('.unseen, :disabled, option, .mirror, .mirror *, .heatmap td, .path *')) continue;
    const ink = rgba(one instanceof SVGElement ? style.fill : style.color);
    if (!ink[3]) continue;
    const behind = ground(one instanceof SVGElement ? one.closest('svg').parentElement : one);
    const [a, b] = [light(over(ink, behind)), light(behind)].sort((x, y) => y - x);
    const isLarge = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 700);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < (isLarge ? 3 : 4.5)) found.push(`${text.slice(0, 30)} ${ratio.toFixed(2)} ${one.className.baseVal ?? one.className}`);
  }
  return found;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("model", ["pieces", "labels", "tags", "shapes", "digits"])
def test_everything_has_a_name_and_can_be_read(browser: Browser, site: Serving, model: str, scheme: str) -> None:
    text = "Anna%20Lee%20sees%20Paris" if model == "tags" else "the%20small%20cat%20sees%20a%20bird%20."
    with opened(browser, site, f"#model={model}&text={text}", color_scheme=scheme) as page:
        ready(page)
        page.get_by_role("button", name="Share").click()
        if model == "pieces":
            words_of(page).nth(1).hover()
        assert page.evaluate(NAMELESS) == []
        assert page.evaluate(CONTRAST) == []
        doubled = "() => [...document.querySelectorAll('[id]')].map(one => one.id).filter((id, at, all) => all.indexOf(id) !== at)"
        assert page.evaluate(doubled) == []
        levels = page.evaluate("() => [...document.querySelectorAll('h1, h2, h3')].map(one => Number(one.tagName[1]))")
        assert levels[0] == 1
        assert all(after - before <= 1 for before, after in itertools.pairwise(levels))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_lit_words_and_cells_can_be_read(browser: Browser, site: Serving, scheme: str) -> None:
    """Every strength of light: words over the glow, numbers over the heat."""
    with opened(browser, site, color_scheme=scheme) as page:
        typed(page, TEXT)
        for share in np.linspace(0, 1, 21):
            page.evaluate(
                """share => {
                  for (const word of document.querySelectorAll('.output .word')) word.style.setProperty('--share', share);
                  for (const spot of document.querySelectorAll('.spot')) spot.style.setProperty('--share', share);
                  document.querySelector('#mirror').style.color = getComputedStyle(document.querySelector('#text')).color;
                  document.querySelector('#mirror').className = '';
                }""",
                float(share),
            )
            assert page.evaluate(CONTRAST) == []
            low, high = heat_contrast(page, float(share))
            assert (high if share > 0.45 else low) >= 4.5, share


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
    name = "() => document.activeElement.getAttribute('aria-label') || document.activeElement.labels?.[0]?.textContent || document.activeElement.textContent"
    ring = "() => getComputedStyle(document.activeElement).outlineStyle"
    while not reached or reached[-1] != "API":
        page.keyboard.press("Tab")
        reached.append(page.evaluate(name))
        assert page.evaluate(ring) != "none", reached[-1]
        assert len(reached) < 60
    wanted = [*EXAMPLES, "Model", "Compare", "le", "Play: step by step", "Step by step", "Confidence", "Copy"]
    wanted += ["Attention", "View", "Layer", "Units", "All heads", "Layer 1, head 1", "Layer 2, head 2", "API"]
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


@pytest.mark.parametrize("model", ["pieces", "labels", "tags", "shapes", "digits"])
def test_it_fits_a_phone(browser: Browser, site: Serving, model: str) -> None:
    size = {"width": 360, "height": 740}
    text = "%20".join([*"the small cat sees a bird .".split()] * 2)
    with opened(browser, site, f"#model={model}&text={text}", viewport=size, has_touch=True) as page:
        ready(page)
        wide = """() => [...document.querySelectorAll('body *')].filter(one => one.checkVisibility() && !one.closest('.table, .unseen, .skip'))
          .filter(one => one.getBoundingClientRect().right > innerWidth + 1).map(one => one.outerHTML.slice(0, 100))"""
        assert page.evaluate(wide) == []
        assert page.evaluate("document.documentElement.scrollWidth") == 360
        if model == "pieces":
            words_of(page).nth(2).tap()
            assert max(shares(spots(page))) > 0
            expect(words_of(page).nth(2)).to_have_attribute("aria-selected", "true")


def test_files_name_nobody_outside_and_build_no_markup() -> None:
    folder = Path(__file__).parents[2] / "src" / "saccade" / "serving" / "static"
    for path in folder.iterdir():
        text = path.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?:|//[a-z]+\.[a-z]", text), path
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", text), path
        assert len(text.splitlines()) < 300, path
