"""The page of a language model: a text grows while it is written, and each of its words shows what it read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect
from rich.console import Console

from pages.browser import names, opened, questions, ready, shares, typed, words_of
from saccade.runs import config as config_file
from saccade.runs import train
from saccade.serving.models import load_runs
from servers import Serving, serving

MODELS = {
    "writer": {"width": 16, "num_heads": 2, "hidden_width": 16, "num_layers": 2},
    "plain": {"kind": "recurrent", "width": 16, "embedding_width": 16},
}


@pytest.fixture(scope="module")
def writing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("writing")
    (folder / "text.txt").write_text("the cat sees the dog .\nthe dog hears a bird .\n" * 9, encoding="utf-8")
    for name, model in MODELS.items():
        content = {
            "task": "write",
            "device": "cpu",
            "data": {"train": str(folder / "text.txt"), "context": 32},
            "tokenizer": {"kind": "words"},
            "model": model,
            "training": {"max_steps": 60, "batch_size": 4, "learning_rate": 0.01, "precision": "float32"},
            "decoding": {"max_length": 12},
        }
        train.train(config_file.check_config(content, name), folder / name, Console(quiet=True))
    with serving(load_runs([Path(folder / name) for name in MODELS])) as found:
        yield found


@pytest.fixture
def page(browser: Browser, writing: Serving) -> Iterator[Page]:
    with opened(browser, writing) as found:
        yield found


def test_a_text_goes_on_and_its_words_show_what_they_read(page: Page, writing: Serving) -> None:
    looked, asked = questions(page), questions(page, "/v1/write")
    typed(page, "the cat")
    (answer,) = writing.post("/v1/write", q="the cat").json()["answers"]
    expect(page.locator(".answer-a .output")).to_have_text(answer["whole"])
    assert asked == [{"model": "writer", "q": "the cat", "stream": True}]
    assert [one["target"] for one in looked] == [answer["text"]]
    given = page.locator(".answer-a .output .word.given")
    assert given.all_text_contents() == ["the", "cat"]
    words = words_of(page)
    words.nth(3).hover()
    lit = shares(words)
    assert max(lit[:3]) > 0.1
    assert lit[3:] == [0] * len(lit[3:])
    seen = writing.post("/v1/look", text="the cat", target=answer["text"]).json()
    row = seen["attention"]["decoder"]["weights"][-1]
    mean = [(one + other) / 2 for one, other in zip(row[0][3], row[1][3], strict=True)]
    most = max(0.4, *mean)
    assert lit[:3] == pytest.approx([weight / most for weight in mean[1:4]], abs=2e-3)
    expect(page.locator(".answer-a .line")).to_contain_text(f"{seen['sides']['output']['words'][3]}: read")
    rows, columns = names(page)
    assert rows == seen["sides"]["output"]["words"]
    assert columns == ["<s>", *rows[:-1]]


def test_a_text_grows_while_it_is_written(page: Page) -> None:
    """The stream is held back after its second part."""
    page.evaluate(
        """() => {
            const real = window.fetch;
            window.fetch = (path, options) => {
                if (!String(path).endsWith("v1/write")) return real(path, options);
                const lines = (text) => `event: text\\ndata: ${JSON.stringify({ text })}\\n\\n`;
                const event = (text) => new TextEncoder().encode(lines(text));
                const begin = (stream) => [" the dog", " hears"].forEach((text) => stream.enqueue(event(text)));
                const body = new ReadableStream({ start: begin });
                return Promise.resolve(new Response(body, { headers: { "content-type": "text/event-stream" } }));
            };
        }"""
    )
    page.get_by_label("Text to read").fill("so ")
    expect(page.locator(".answer-a .output")).to_have_text("so the dog hears")
    expect(page.locator(".answer-a")).to_have_class("card answer answer-a waiting")


def test_a_model_without_attention_only_writes(page: Page, writing: Serving) -> None:
    page.get_by_label("Model", exact=True).select_option("plain")
    looked = questions(page)
    typed(page, "the dog")
    (answer,) = writing.post("/v1/write", q="the dog", model="plain").json()["answers"]
    expect(page.locator(".answer-a .output")).to_have_text(answer["whole"])
    assert looked == []
    expect(page.locator(".inside:visible")).to_have_count(0)


def test_what_is_refused_is_said(browser: Browser, writing: Serving) -> None:
    with opened(browser, writing, complains=True) as page:
        page.route("**/v1/write", lambda route: route.fulfill(status=400, json={"error": "Invalid request: so it is"}))
        page.get_by_label("Text to read").fill("the")
        expect(page.locator(".answer-a .error")).to_have_text("Invalid request: so it is")
        page.unroute("**/v1/write")
        page.get_by_label("Text to read").fill("the cat")
        ready(page)
