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
ELEMENTS = "0.5 0.12 0.93"


def test_the_sentences_that_hops_read_light_up(browser: Browser, tmp_path: Path) -> None:
    dice = random.Random(1)
    lines = "".join(f"{json.dumps(draw_story(dice, 'one fact'))}\n" for _ in range(60))
    (tmp_path / "stories.jsonl").write_text(lines, "utf-8")
    data = dict.fromkeys(("train", "valid"), f"{tmp_path}/stories.jsonl")
    content: dict[str, Any] = {"task": "answer", "device": "cpu", "data": data, "training": TRAINING}
    content["model"] = {"width": 8, "num_hops": 2}
    train.train(config_file.check_config(content, "stories"), tmp_path / "run", Console(quiet=True))
    with serving(load_runs([tmp_path / "run"])) as site, opened(browser, site) as page:
        typed(page, TEXT)
        seen = look(site, TEXT, "run")
        expect(page.locator(".prediction strong")).to_have_text(seen["answer"]["label"])
        expect(page.locator(".document:visible")).to_have_count(0)
        lit = shares(highlights(page))
        first, second = (sum(hop[at] for hop in seen["attention"]["pooling"]["weights"][0][0]) for at in (0, 1))
        assert lit[0] / lit[1] == pytest.approx(first / second, rel=0.05)


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
