"""Draw the pictures of docs/page.md: the page in Chromium, with trained runs that translate, tell and glimpse.

python docs/pictures_page.py runs/demo runs/shapes_soft runs/mnist_cluttered60
"""

from __future__ import annotations

import io
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, expect, sync_playwright

from saccade.serving.models import load_runs
from saccade.serving.server import listen, prepare
from saccade.serving.settings import Settings

DOCS = Path(__file__).parent
TEXT = "I do not send them a heavy flower."
WIDE, PHONE = {"width": 1180, "height": 620}, {"width": 360, "height": 740}


@contextmanager
def serving(folders: list[Path]) -> Iterator[str]:
    """The address of a server of these runs."""
    settings = Settings(port=0, quiet=True)
    server, listening = prepare(load_runs(folders), settings), listen(settings)
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


@contextmanager
def opened(browser: Browser, url: str, fragment: str, size: dict[str, int], scheme: str = "light") -> Iterator[Page]:
    """The page, with its answer."""
    page = browser.new_page(viewport=size, color_scheme=scheme, reduced_motion="reduce", device_scale_factor=2)
    page.goto(f"{url}/#{fragment}")
    expect(page.locator(".answer-a .body > :visible")).to_have_count(1)
    expect(page.locator(".waiting")).to_have_count(0)
    yield page
    page.close()


def grown(page: Page) -> None:
    """Make the window as high as the page: a screenshot larger than the window would hide the arcs."""
    height = page.evaluate("document.documentElement.scrollHeight")
    page.set_viewport_size({"width": WIDE["width"], "height": height})


def shoot(page: Page, name: str) -> None:
    """A picture of the window, with as many colours as it needs."""
    with Image.open(io.BytesIO(page.screenshot())) as picture:
        small = picture.convert("RGB").quantize(256, kmeans=1, dither=Image.Dither.NONE)
        small.save(DOCS / f"page-{name}.png", optimize=True)


def draw(browser: Browser, url: str, demo: str, others: list[str]) -> None:
    text = f"model={demo}&text={TEXT.replace(' ', '%20')}"
    for scheme, word, view in (("light", 4, "mean"), ("dark", 6, "rollout")):
        with opened(browser, url, f"{text}&view={view}", WIDE, scheme) as page:
            grown(page)
            page.locator(".output .word").nth(word).hover()
            shoot(page, scheme)
    with opened(browser, url, text, PHONE) as page:
        page.locator(".output .word").nth(4).click()
        shoot(page, "phone")
    for name, model in zip(("caption", "glimpse"), others, strict=True):
        with opened(browser, url, f"model={model}&example=3", WIDE) as page:
            page.locator(".steps input").fill("4")
            page.evaluate("document.activeElement.blur()")
            grown(page)
            shoot(page, name)


def main(folders: list[Path]) -> None:
    with serving(folders) as url, sync_playwright() as started:
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        draw(browser, url, folders[0].name, [folder.name for folder in folders[1:]])
        browser.close()


if __name__ == "__main__":
    main([Path(argument) for argument in sys.argv[1:]])
