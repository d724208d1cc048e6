"""Elements on the page: the order, and which element each step pointed at."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Browser, expect
from rich.console import Console

from pages.browser import look, opened, typed, words_of
from pages.runs import TRAINING
from saccade.runs import config as config_file
from saccade.runs import train
from saccade.serving.models import load_runs
from servers import serving

TEXT = "0.5 0.12 0.93"


def test_elements_are_put_in_order(browser: Browser, tmp_path: Path) -> None:
    sizes = {"sizes": [3, 4], "test_sizes": [3], "num_valid": 2, "num_test": 2}
    content = {"task": "point", "device": "cpu", "data": sizes, "model": {"width": 8}, "training": TRAINING}
    train.train(config_file.check_config(content, "sort"), tmp_path / "run", Console(quiet=True))
    with serving(load_runs([tmp_path / "run"])) as site, opened(browser, site) as page:
        typed(page, TEXT)
        seen = look(site, TEXT, "run")
        expect(words_of(page)).to_have_text(seen["answer"]["text"].split())
        words_of(page).first.hover()
        expect(page.locator("#highlights .highlight").first).to_be_visible()
