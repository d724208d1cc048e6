"""Texts that are spoken, and sequences that are written back, on the page: a sound to play, and words that light up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, expect
from rich.console import Console

from pages.browser import highlights, look, opened, shares, typed, words_of
from pages.runs import TRAINING
from saccade.runs import config as config_file
from saccade.runs import train
from saccade.serving.models import load_runs
from servers import Serving, serving
from sounds import tone, write_wav

PLAY = """async player => {
  player.muted = true;
  await player.play();
  await new Promise(done => setTimeout(done, 300));
}"""
LIT = (
    "() => [...document.querySelectorAll('.speech .word')].map(word => Number(word.style.getPropertyValue('--share')))"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("speaking")
    for name, pitch in {"la": 300.0, "mi": 700.0}.items():
        write_wav(folder / f"{name}.wav", tone(pitch, 0.2))
    (folder / "list.tsv").write_text("la.wav mi.wav\tla mi\nmi.wav\tmi\n" * 4, encoding="utf-8")
    contents: dict[str, dict[str, Any]] = {
        "speaks": {
            "task": "speak",
            "data": dict.fromkeys(("train", "valid"), f"{folder}/list.tsv"),
            "model": {"width": 8, "prenet_width": 8},
            "decoding": {"max_seconds": 1.0, "rounds": 2},
        },
        "remembers": {
            "task": "remember",
            "data": {"width": 3, "lengths": [1, 2], "num_valid": 4, "num_test": 4, "test_lengths": [2]},
            "model": {"controller": "feed_forward", "width": 8, "places": 5, "cells": 4},
        },
    }
    for name, content in contents.items():
        whole = {"device": "cpu", "training": TRAINING, **content}
        train.train(config_file.check_config(whole, name), folder / name, Console(quiet=True))
    with serving(load_runs([folder / name for name in contents])) as found:
        yield found


def test_a_text_is_heard_and_what_is_read_lights_up(site: Serving, browser: Browser) -> None:
    with opened(browser, site) as page:
        typed(page, "la mi")
        seen = look(site, "la mi", "speaks")
        player = page.locator("audio")
        expect(player).to_have_attribute("src", f"data:audio/wav;base64,{seen['answer']['wav']}")
        assert [one.inner_text() for one in words_of(page).all()] == ["la", "mi"]
        words_of(page).nth(1).hover()
        assert shares(highlights(page)) == [0, 1]
        page.locator("#source-title").hover()
        player.evaluate(PLAY)
        assert player.evaluate("player => player.duration") == pytest.approx(seen["answer"]["seconds"], abs=0.05)
        assert sum(page.evaluate(LIT)) > 0.5
        typed(page, "mi")
        assert page.locator("audio").evaluate("player => player.paused")


def test_a_sequence_lights_what_each_vector_was_read_from(site: Serving, browser: Browser) -> None:
    with opened(browser, site, "#model=remembers") as page:
        typed(page, "110 010 x2")
        seen = look(site, "110 010 x2", "remembers")
        assert [one.inner_text() for one in words_of(page).all()] == seen["answer"]["pieces"]
        words_of(page).nth(3).hover()
        wanted = seen["attention"]["cross"]["weights"][0][0][3]
        lit = shares(highlights(page))
        assert lit[0] / lit[1] == pytest.approx(wanted[0] / wanted[1], rel=0.1)
