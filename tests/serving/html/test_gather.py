"""Elements that may not be written twice: one link stays one link, wherever a model puts its words."""

from __future__ import annotations

import re
from random import Random

import pytest

from saccade.bench.html.structure import compare
from saccade.serving.html.gather import gather
from saccade.serving.html.inline import Item, write
from saccade.serving.html.tree import Element, VerbatimHtml

LINK, QUOTE, BOLD = (Element(tag, f"<{tag}>") for tag in ("a", "q", "b"))
IMAGE, CODE = "<img>", VerbatimHtml("<code>x</code>", is_break=False, content="x")


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([Item("x", (LINK,)), Item("y", ())], "<a>x</a>y"),
        ([Item("x", (LINK,)), Item(" ", None), Item("y", (LINK,))], "<a>x y</a>"),
        ([Item("x", (LINK,)), Item("y", (LINK,)), Item("z", ()), Item("v", (LINK,))], "<a>xy</a>zv"),
        ([Item("x", (LINK, BOLD)), Item("z", ()), Item("v", (LINK,)), Item("w", (LINK,))], "<b>x</b>z<a>vw</a>"),
        ([Item(IMAGE, (LINK,), may_move=True), Item("z", ()), Item("v", (LINK,))], "z<a>v<img></a>"),
        ([Item("v", (LINK,)), Item("z", ()), Item("x", (LINK, CODE))], "<a>v<code>x</code></a>z"),
        ([Item("v", (LINK,)), Item("z", ()), Item("x", (LINK, QUOTE))], "<a>v<q></q></a>zx"),
        ([Item("x", (BOLD,)), Item("z", ()), Item("y", (BOLD,))], "<b>x</b>z<b>y</b>"),
    ],
)
def test_by_hand(items: list[Item], expected: str) -> None:
    assert write(gather(items)) == expected


def test_whatever_the_order_every_element_is_there_once() -> None:
    chance = Random(1)
    whole = [Element(tag, f"<{tag}>") for tag in ("a", "q", "abbr", "label")]
    for _ in range(300):
        paths = [tuple(whole[: chance.randrange(5)]) for _ in range(6)]
        items = [Item(chance.choice("xyz"), path, may_move=chance.random() < 0.3) for path in paths]
        found = write(gather(items))
        used = {element.tag for path in paths for element in path}
        wanted = "".join(f"<{element.tag}>" for element in whole if element.tag in used)
        wanted += "".join(f"</{element.tag}>" for element in reversed(whole) if element.tag in used)
        assert compare(wanted, found) is None, found
        assert sorted(re.sub("<.*?>", "", found)) == sorted(item.html for item in items)
