"""A question about a story on the page: the answer, and the sentences that were read; and elements put in order."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect
from rich.console import Console

from pages.browser import highlights, look, opened, shares, typed, words_of
from pages.runs import TRAINING
from saccade.datasets.made.stories import draw_story
from saccade.runs import config as config_file
from saccade.runs import train
from saccade.serving.models import load_runs
from servers import serving

TEXT = "Mary went to the cellar. John moved to the garden. Where is Mary?"
LONG_TEXT = f"Yesterday morning Mary went with her little brother to the cold dark cellar of the house. {TEXT}"
ELEMENTS = "0.5 0.12 0.93"


@pytest.fixture(scope="module")
def story_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stories")
    dice = random.Random(1)
    lines = "".join(f"{json.dumps(draw_story(dice, 'one fact'))}\n" for _ in range(60))
    (folder / "stories.jsonl").write_text(lines, "utf-8")
    data = dict.fromkeys(("train", "valid"), f"{folder}/stories.jsonl")
    content: dict[str, Any] = {"task": "answer", "device": "cpu", "data": data, "training": TRAINING}
    content["model"] = {"width": 8, "num_hops": 2}
    train.train(config_file.check_config(content, "stories"), folder / "run", Console(quiet=True))
    return folder / "run"


def test_the_sentences_that_hops_read_light_up(story_run: Path, browser: Browser) -> None:
    with serving(load_runs([story_run])) as site, opened(browser, site) as page:
        typed(page, TEXT)
        seen = look(site, TEXT, "run")
        expect(page.locator(".prediction strong")).to_have_text(seen["answer"]["label"])
        expect(page.locator(".document:visible")).to_have_count(0)
        lit = shares(highlights(page))
        first, second = (sum(hop[at] for hop in seen["attention"]["pooling"]["weights"][0][0]) for at in (0, 1))
        assert lit[0] / lit[1] == pytest.approx(first / second, rel=0.05)


def test_long_sentences_on_a_phone(story_run: Path, browser: Browser) -> None:
    with serving(load_runs([story_run])) as site, opened(browser, site, viewport={"width": 390, "height": 844}) as page:
        typed(page, LONG_TEXT)
        lines = highlights(page).first.locator("i")
        expect(lines).not_to_have_count(0)  # a sentence is lit in each of its lines
        script = "(line) => [line, line.parentElement].map((one) => one.getBoundingClientRect().top)"
        below, first = lines.last.evaluate(script)
        assert below > first
        words = page.locator(".diagram:visible text")
        assert min(words.evaluate_all("words => words.map(word => word.getBBox().x)")) >= -1
        assert (words.first.text_content() or "").endswith("…")


def test_elements_are_put_in_order(browser: Browser, tmp_path: Path) -> None:
    sizes = {"sizes": [3, 4], "test_sizes": [3], "num_valid": 2, "num_test": 2}
    content = {"task": "point", "device": "cpu", "data": sizes, "model": {"width": 8}, "training": TRAINING}
    train.train(config_file.check_config(content, "sort"), tmp_path / "run", Console(quiet=True))
    with serving(load_runs([tmp_path / "run"])) as site, opened(browser, site) as page:
        typed(page, ELEMENTS)
        seen = look(site, ELEMENTS, "run")
        expect(words_of(page)).to_have_text(seen["answer"]["text"].split())
        words_of(page).first.hover()
        expect(page.locator("#highlights .highlight").first).to_be_visible()
