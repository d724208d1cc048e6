"""Sounds, and texts word by word, on the page."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from playwright.sync_api import Browser, expect
from rich.console import Console

from pages.browser import opened, ready, words_of
from saccade.runs import config as config_file
from saccade.runs import train
from saccade.serving.models import load_runs
from servers import Serving, serving
from sounds import make_hearing

DRAWN = "canvas => canvas.toDataURL()"


class Site(NamedTuple):
    """A server of a run that hears and of a tagger that reads a second column; and a sound."""

    serving: Serving
    sound: Path


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    sound = make_hearing(folder / "hears")[4]
    (folder / "rows").write_text("same up A\nsame down B\n\nsame down B\nsame up A\n\n" * 20, encoding="utf-8")
    content = {
        "task": "tag",
        "device": "cpu",
        "data": {"train": f"{folder}/rows", "valid": f"{folder}/rows", "feature_columns": [1]},
        "model": {"width": 16, "dropout": 0.0},
        "training": {"max_steps": 40, "validate_every": 40, "learning_rate": 0.02},
    }
    train.train(config_file.check_config(content, "tags"), folder / "tags", Console(quiet=True))
    with serving(load_runs([folder / "hears", folder / "tags"])) as found:
        yield Site(found, sound)


def test_a_sound_is_drawn_and_heard_and_its_words_show_when(site: Site, browser: Browser) -> None:
    with opened(browser, site.serving) as page:
        expect(page.locator("#source-title")).to_have_text("Sound")
        expect(page.locator("#writing")).to_be_hidden()
        with page.expect_response("**/v1/look") as answer:
            page.get_by_label("Choose a sound").set_input_files(site.sound)
        ready(page)
        sent: Any = answer.value.request.post_data_json
        assert base64.b64decode(sent["sound"]) == site.sound.read_bytes()
        insight = answer.value.json()
        expect(page.locator(".output")).to_have_text(insight["answer"]["text"])
        expect(page.locator("#sound-input .hint")).to_contain_text(site.sound.name)
        shade = page.locator("#sound-input .shade")
        before = shade.evaluate(DRAWN)
        words_of(page).first.hover()
        assert shade.evaluate(DRAWN) != before
        wave = page.locator("canvas.wave").evaluate(DRAWN)
        page.get_by_label("Choose a sound").set_input_files({"name": "a.wav", "mimeType": "audio/wav", "buffer": b"no"})
        expect(page.get_by_role("alert").first).to_contain_text("isn't a sound this browser can read")
        assert page.locator("canvas.wave").evaluate(DRAWN) == wave


def test_words_with_a_column_are_tagged_line_by_line(site: Site, browser: Browser) -> None:
    with opened(browser, site.serving, complains=True) as page:
        page.get_by_label("Model", exact=True).select_option("tags")
        area = page.get_by_label("Text to read")
        expect(area).to_have_attribute("placeholder", "On each line a word, and behind it: column 1.")
        with page.expect_response("**/v1/look") as answer:
            area.fill("same down\nsame up")
        ready(page)
        assert answer.value.json()["answer"]["tags"] == ["B", "A"]
        expect(page.locator(".spans .token")).to_have_text(["same", "same"])
        boxes = page.locator("#highlights .highlight").evaluate_all("all => all.map(one => one.offsetTop)")
        assert np.unique(boxes).size == 2  # the two first words of the lines
        area.fill("same")
        expect(page.get_by_role("alert").first).to_contain_text("this model reads a word, column 1")
