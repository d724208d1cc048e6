"""A document on the page and in the viewer: a bar for each sentence, and its words lit by their weight."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect
from rich.console import Console

from pages.browser import look, numbers, opened, shares, typed
from pages.runs import ENGLISH, TRAINING
from saccade.inspection.pages import viewer
from saccade.runs import config as config_file
from saccade.runs import train
from saccade.serving.models import load_runs
from servers import Serving, serving

TEXT = "The small cat sees. It hears the old dog!\nA bird likes it"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("documents")
    rows = [
        f"{label}\tthe {word} cat. a {other} it.\n"
        for label, word in (("x", "small"), ("y", "old"))
        for other in ENGLISH
    ]
    (folder / "labels.tsv").write_text("".join(rows), encoding="utf-8")
    data: dict[str, Any] = {
        "train": f"{folder}/labels.tsv",
        "valid": f"{folder}/labels.tsv",
        "columns": {"label": 0, "text": 1},
    }
    data |= {"lowercase": True, "split_punctuation": True}
    model = {"kind": "bag", "embedding_width": 8, "sentences": {"width": 6}}
    content = {
        "task": "classify",
        "device": "cpu",
        "data": data,
        "model": model,
        "training": {**TRAINING, "learning_rate": 0.1},
    }
    train.train(config_file.check_config(content, "documents"), folder / "documents", Console(quiet=True))
    with serving(load_runs([folder / "documents"])) as found:
        yield found


def check(page: Page, seen: dict[str, Any], box: str) -> None:
    rows = page.locator(f"{box} .weighed")
    expect(rows).to_have_count(3)
    weights = [one["weight"] for one in seen["answer"]["sentences"]]
    told = rows.evaluate_all("all => all.map(one => one.dataset.weight)")
    np.testing.assert_allclose([numbers(text)[0] for text in told], [100 * one for one in weights], atol=0.051)
    bars = rows.evaluate_all("all => all.map(one => parseFloat(getComputedStyle(one, '::before').width))")
    np.testing.assert_allclose(np.array(bars) / max(bars), np.array(weights) / max(weights), atol=0.02)
    words = seen["sides"]["source"]["words"]
    cut = [words[one["first"] : one["end"]] for one in seen["answer"]["sentences"]]
    assert [row.locator(".word").all_text_contents() for row in rows.all()] == cut
    wanted = np.array(seen["attention"]["pooling"]["weights"][0][0][0])
    np.testing.assert_allclose(shares(page.locator(f"{box} .word")), wanted / wanted.max(), atol=2e-3)


def test_the_page_shows_both_levels(browser: Browser, site: Serving) -> None:
    with opened(browser, site) as page:
        typed(page, TEXT)
        check(page, look(site, TEXT, "documents"), ".answer-a .document")
        page.locator(".answer-a .document .word").nth(2).hover()
        expect(page.locator(".answer-a .line")).to_contain_text("cat: ")
        page.set_viewport_size({"width": 360, "height": 780})
        typed(page, TEXT)
        assert page.evaluate("document.documentElement.scrollWidth") == 360


def test_the_viewer_shows_both_levels(browser: Browser, site: Serving, tmp_path: Path) -> None:
    seen = look(site, TEXT, "documents")
    viewer.write(tmp_path / "look.html", [seen], title="documents")
    page = browser.new_page()
    page.goto((tmp_path / "look.html").as_uri())
    check(page, seen, "#keys")
    expect(page.locator("#queries .weighed")).to_have_count(0)
    page.close()
    assert seen["answer"]["words"] == seen["sides"]["source"]["words"]
