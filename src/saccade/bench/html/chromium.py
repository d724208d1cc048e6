"""The HTML tree of a real Chromium, to compare others with."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from saccade.bench.html.structure import MarkupCounts, compare_found
from saccade.errors import UserError

NOTHING_RUNS = "default-src 'none'"
WAYS = ("a document", "a part of one", "a part of one, with scripts")
Compare = Callable[[Sequence[tuple[str, str]]], list[str | None]]
FIND = """
texts => {
  const inert = document.implementation.createHTMLDocument("");
  const ways = {
    document: (html) => new DOMParser().parseFromString(html, "text/html"),
    part: (html) => Object.assign(inert.createElement("div"), { innerHTML: html }),
    scripted: (html) => Object.assign(document.createElement("div"), { innerHTML: html }),
  };
  const collect = (node, found) => {
    for (const child of node.childNodes) {
      if (child.nodeType === Node.COMMENT_NODE) found.comments.push(child.data);
      if (child.nodeType === Node.ELEMENT_NODE) {
        const names = [...child.attributes].map(({ name, value }) => [name, value]);
        found.elements.push([`${child.namespaceURI} ${child.localName}`, names]);
        if (child.content instanceof DocumentFragment) collect(child.content, found);
      }
      collect(child, found);
    }
    return found;
  };
  return texts.map((html) => Object.values(ways).map((read) => collect(read(html), { elements: [], comments: [] })));
}
"""


def find_chromium() -> str | None:
    """Return where a Chromium is that Playwright can start, or None."""
    return (shutil.which("chromium") or shutil.which("google-chrome")) if find_spec("playwright") else None


@contextmanager
def chromium() -> Iterator[Compare]:
    """Start a browser that compares HTML before and after."""
    if (path := find_chromium()) is None:
        raise UserError("--browser: there is no Chromium here; apt-get install chromium, pip install 'saccade[dev]'")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_page()
        page.set_content(f'<meta http-equiv="Content-Security-Policy" content="{NOTHING_RUNS}">')

        def compare(pairs: Sequence[tuple[str, str]]) -> list[str | None]:
            found = iter(page.evaluate(FIND, [one for pair in pairs for one in pair]))
            return [_compare(before, after) for before, after in zip(found, found, strict=True)]

        yield compare
        browser.close()


def _compare(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]) -> str | None:
    rows = zip(WAYS, before, after, strict=True)
    problems = (compare_found(_count_markup(one), _count_markup(other), f"Chromium, {way}") for way, one, other in rows)
    return next((problem for problem in problems if problem), None)


def _count_markup(given: Mapping[str, Any]) -> MarkupCounts:
    elements = ((tag.rpartition(" ")[2], tuple(sorted(map(tuple, names))), "") for tag, names in given["elements"])
    return MarkupCounts(Counter(elements), Counter(given["comments"]))
