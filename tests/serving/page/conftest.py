"""A server of small runs of every task, and a browser that opens its page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock
from playwright.sync_api import Browser, Page, sync_playwright

from pages.browser import opened
from pages.runs import PAGE_RUNS, make_all
from saccade.serving.models import ServedRun, load_runs
from servers import Serving, serving


@pytest.fixture(scope="session")
def page_runs(shared_folder: Path) -> list[ServedRun]:
    """Runs for the page. The first process of the tests makes them, the others wait for it."""
    folder = shared_folder / "page_runs"
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            make_all(folder)
    return load_runs([folder / name for name in PAGE_RUNS])


@pytest.fixture(scope="session")
def site(page_runs: list[ServedRun]) -> Iterator[Serving]:
    with serving(page_runs) as found:
        yield found


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    """A browser that stops with its file of tests: while Playwright runs, asyncio.run fails in the same thread."""
    with sync_playwright() as started:
        yield started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])


@pytest.fixture
def page(browser: Browser, site: Serving) -> Iterator[Page]:
    with opened(browser, site) as found:
        yield found
