"""HTML by chance through the server: html5lib finds the same before and after, and nothing is made up."""

from __future__ import annotations

import pytest

from saccade.bench.html import check
from saccade.bench.html.check import UNREADABLE, _compare, check_html
from saccade.bench.html.chromium import chromium as browsing
from saccade.bench.html.fragments import fragments
from saccade.bench.html.sanitizers import sanitizers
from saccade.bench.html.structure import compare


def test_whatever_a_model_writes_browsers_find_the_same() -> None:
    report = check_html(500)
    assert report.bad == []
    assert str(report).startswith("500 fragments of seed 1 (125 as it is, 125 nh3, ")
    assert report.ways.total() == 500
    assert report.refused + report.unreadable < 25
    assert report.places["moved"] > 350
    assert report.places["kept"] < 50


def test_what_html5lib_cannot_read_a_browser_compares(chromium: str, monkeypatch: pytest.MonkeyPatch) -> None:
    del chromium
    source, output = "<template><b>a</b></template>", "<template><i>a</i></template>"
    assert _compare([(source, output)]) == [UNREADABLE]
    with browsing() as compare_in_browser:
        assert compare_in_browser([(source, source)]) == [None]
        assert "lost" in (compare_in_browser([(source, output)])[0] or "")
        hidden = "<noscript><!--</noscript><i>a</i>-->", "<noscript><!--</noscript><i class=x>a</i>-->"
        assert compare_in_browser([hidden]) != [None]
    monkeypatch.setattr(check, "fragments", lambda count, seed: iter([source] * count))
    found = check_html(4)  # sanitisers take it out
    assert (found.browsed, found.unreadable, found.bad) == (1, 0, [])
    monkeypatch.setattr(check, "find_chromium", lambda: None)
    found = check_html(4)
    assert (found.browsed, found.unreadable) == (0, 1)


def test_the_sanitisers_are_there_and_a_seed_is_always_the_same() -> None:
    assert len(sanitizers()) == 4  # nh3 and bleach are installed for the tests
    assert list(fragments(30, 1)) == list(fragments(30, 1)) != list(fragments(30, 2))


def test_the_judge_sees_what_is_new_lost_or_changed() -> None:
    assert compare("<b id=x>a</b> c", "c <b id=x>a</b><b>d</b>") is None
    for source, output in (
        ("<b>a</b>", "a"),
        ("a", "<b>a</b>"),
        ("<a>a</a>", "<a>a</a><a>b</a>"),
        ("<b id=x>a</b>", "<b id=x>a</b><b id=x>b</b>"),
        ("<b title=x>a</b>", "<b title=y>a</b>"),
        ("<!--x-->a", "a"),
        ("<script>a</script>", "<script>b</script>"),
        ("<noscript><b>a</b></noscript>", "<noscript><b>b</b></noscript>"),
    ):
        assert compare(source, output) is not None, output
