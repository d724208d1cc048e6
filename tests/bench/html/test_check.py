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


def test_elements_inside_of_a_menu_stay_where_older_browsers_do_not_read_them(monkeypatch: pytest.MonkeyPatch) -> None:
    odd = ["<b>cat {0} <ins>No, {0}</ins> cat</b> not <input> black {0}", "<option><b>a {0} <i>cat</i> b</b><input>dog"]
    usual = "<div>A <b>cat</b><select><!-- x --><option>The cat {0}</option></select> <i>dog</i></div>"
    sources = [f"<div>A<select>{menu.format(number)}</select> dog</div>" for number in range(20) for menu in odd]
    sources += [usual.format(number) for number in range(20)]
    monkeypatch.setattr(check, "fragments", lambda count, seed: iter(sources))
    monkeypatch.setattr(check, "sanitizers", lambda: {"as it is": str})
    found = check_html(len(sources))
    assert found.bad == []
    assert found.places["moved"] == 20  # the usual ones


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
