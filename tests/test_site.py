"""The site: built from the repository's pages, whole, without a network; read by keyboard, on a phone, in the dark."""

from __future__ import annotations

import functools
import http.server
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs" / "site"))
AXE = ROOT / ".node" / "node_modules" / "axe-core" / "axe.min.js"
PAGES = (
    "docs/course/02-look-back.html",
    "docs/course/05-search.html",
    "docs/course/08-heads-and-places.html",
    "docs/lab/gradients.html",
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole site, built elsewhere than `make docs` does."""
    pytest.importorskip("zensical")
    import build_site  # type: ignore[import-not-found]

    folder = tmp_path_factory.mktemp("site")
    patch = pytest.MonkeyPatch()
    for name, place in (("BUILD", folder), ("STAGE", folder / "pages"), ("SITE", folder / "site")):
        patch.setattr(build_site, name, place)
    problems = build_site.build()
    patch.undo()
    assert problems == []
    return folder / "site"


def test_every_page_is_there(site: Path) -> None:
    pages = [
        path for folder in ("docs", "docs/lab", "docs/scores", "docs/course") for path in (ROOT / folder).glob("*.md")
    ]
    for page in pages:
        name = "index" if page.stem == "README" else page.stem
        built = site / page.relative_to(ROOT).with_name(f"{name}.html")
        assert built.exists(), page
        assert f">{_title(page)}" in built.read_text("utf-8").replace("<code>", "").replace("</code>", ""), page
    assert "<h2" in (site / "docs" / "api" / "scores.html").read_text("utf-8")


def _title(page: Path) -> str:
    """The first word of a page's heading."""
    return page.read_text("utf-8").split("# ")[1].split()[0].strip("`")


def test_equations_are_mathml(site: Path) -> None:
    for page in sorted((site / "docs" / "course").glob("[01]*.html")):
        text = page.read_text("utf-8")
        assert 'display="block"' in text, page
        assert "$" not in text.split("<article")[1].split("</article>")[0], page
        equations = [one.split("</math>")[0] for one in text.split("<math")[1:]]
        assert not [one for one in equations if re.search(r"\\|\*|&amp;", one)], page  # what the converter doesn't know


def test_dead_links_and_what_is_loaded_are_found(tmp_path: Path) -> None:
    import check_site  # type: ignore[import-not-found]

    (tmp_path / "a.html").write_text(
        '<a href="b.html#there">1</a><a href="b.html#gone">2</a><a href="c.html">3</a><a href="https://example.org">4</a>'
        '<script src="https://cdn.example/x.js"></script><link rel="canonical" href="https://example.org">'
    )
    (tmp_path / "b.html").write_text('<h2 id="there">b</h2><img src="none.png"><link rel="stylesheet" href="s.css">')
    (tmp_path / "s.css").write_text("@font-face { src: url(https://fonts.example/f.woff2) }")
    assert list(check_site.find_problems(tmp_path)) == [
        "a.html: b.html#gone has no such anchor",
        "a.html: nothing is at c.html",
        "a.html: loads https://cdn.example/x.js",
        "b.html: nothing is at none.png",
        "s.css: loads https://fonts.example/f.woff2",
    ]


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Where the site is served."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: Any, **__: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        yield started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])


@pytest.fixture(params=[("light", 1280), ("dark", 390)], ids=["desktop", "dark phone"])
def page(request: pytest.FixtureRequest, browser: Any, address: str) -> Iterator[Any]:
    """A page that may ask nobody else and must not complain."""
    scheme, width = request.param
    context = browser.new_context(
        base_url=address, color_scheme=scheme, viewport={"width": width, "height": 900}, reduced_motion="reduce"
    )
    opened, said, gone = context.new_page(), list[str](), list[str]()
    opened.on("console", lambda message: said.append(message.text) if message.type in ("error", "warning") else None)
    opened.on("pageerror", lambda error: said.append(str(error)))
    opened.on("request", lambda asked: gone.append(asked.url))
    yield opened
    context.close()
    assert said == []
    assert [url for url in gone if not url.startswith((f"{address}/", "data:", f"blob:{address}"))] == []


def test_pages_have_no_violations(page: Any) -> None:
    if not AXE.exists():
        pytest.skip("there is no axe here; make test installs it")
    for path in PAGES:
        page.goto(f"/{path}")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
        page.add_script_tag(content=AXE.read_text("utf-8"))
        found = page.evaluate("axe.run().then(all => all.violations.map(one => [one.id, one.nodes[0].html]))")
        assert found == [], path


def test_a_beam_is_stepped_by_keyboard(page: Any) -> None:
    page.goto(f"/{PAGES[1]}")
    step = page.get_by_role("button", name="Step")
    step.focus()
    for _ in range(4):
        page.keyboard.press("Enter")
    figure = page.locator('[data-figure="beam"]')
    assert "“a cat sleeps”, p = 0.1188" in figure.get_by_role("status").inner_text()
    page.get_by_label("width of the beam").select_option("2")
    for _ in range(4):
        if step.is_enabled():
            step.press("Enter")
    assert "“the cat sleeps”, p = 0.2187" in figure.get_by_role("status").inner_text()
    assert figure.locator("li.finished").count() >= 1


def test_a_query_is_turned_by_keyboard_and_dragged(page: Any) -> None:
    page.goto(f"/{PAGES[0]}")
    figure = page.locator('[data-figure="attend"]')
    turn, cells = page.get_by_label("direction of the query"), figure.locator(".number")
    before = cells.all_inner_texts()
    turn.press("ArrowRight")
    turn.press("PageUp")
    turned = cells.all_inner_texts()
    assert turned != before
    assert abs(sum(map(float, turned)) - 1) < 0.03
    box = figure.locator("svg").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + box["height"] * 0.5)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.1, box["y"] + box["height"] * 0.6)
    page.mouse.up()
    dragged = [float(one) for one in cells.all_inner_texts()]
    assert dragged.index(max(dragged)) == 3  # towards D


def test_heads_and_positions_are_played_with_by_keyboard(page: Any) -> None:
    page.goto(f"/{PAGES[2]}")
    figure = page.locator('[data-figure="heads"]')
    said = figure.get_by_role("status")
    assert "head 1 reads cat (0.87); head 2 reads mat (0.87); one for both reads cat" in said.inner_text()
    page.get_by_label("head 1 looks by").press("ArrowRight")  # at itself
    page.get_by_label("word that asks").press("Home")
    assert said.inner_text().startswith("“the” asks: head 1 reads the (0.93); head 2 reads on (0.87)")
    page.get_by_label("length of the queries").press("Home")
    assert set(figure.locator(".number").all_inner_texts()) == {"0.14"}  # nobody is looked for
    places = page.locator('[data-figure="places"]').get_by_role("status")
    page.get_by_label("numbers of a position").press("Home")
    assert places.inner_text().startswith("2 numbers: a neighbour is 0.54 alike")
    page.get_by_label("numbers of a position").press("End")
    assert places.inner_text().startswith("256 numbers")


def test_code_in_docstrings_stays_code() -> None:
    import api_pages  # type: ignore[import-not-found]

    text = api_pages.write_pages()["saccade.md"]
    assert "```python\nlocal = LocalP(query_width, radius=5)\nattend(" in text
    assert "```python\nPredictive" not in text
