"""HTML through a translator: tags come back around the right words, and the output is well-formed."""

from __future__ import annotations

from html.parser import HTMLParser
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.data.text.sentences import SentenceSpan, split
from saccade.serving.html.carry_tags import carry_tags
from saccade.serving.html.inline import InlineText, write
from saccade.serving.html.markup import parts, plain_text
from saccade.serving.html.tree import VOID, parse, write_node
from saccade.serving.http.responses import Refusal
from saccade.serving.v1.word_links import AlignedWords


def translated(source: str, output: str, pairs: str) -> str:
    """One sentence with inline tags, aligned by hand: Pharaoh's pairs, source first; with a ?, less."""
    inline = InlineText()
    for child in parse(source).children:
        inline.add(child)
    sources, words = inline.text.split(), output.split()
    weights = [[0.0] * (len(sources) + 1) for _ in words]
    for row in weights:
        row[-1] = 0.1  # the end, where nothing else is read
    for pair in pairs.split():
        left, right = pair.rstrip("?").split("-")
        weights[int(right)][int(left)] = 0.4 if pair.endswith("?") else 1.0
    aligned = AlignedWords(sources, words, weights)
    items = carry_tags(inline, 0, SentenceSpan("", inline.text, ""), output, aligned)
    return inline.before + write(items) + inline.after


@pytest.mark.parametrize(
    ("source", "output", "pairs", "expected"),
    [
        ("the <b>black</b> cat", "le chat noir", "0-0 1-2 2-1", "le chat <b>noir</b>"),
        ("the <b>black</b> cat.", "le chat noir.", "0-0 1-2 2-1", "le chat <b>noir</b>."),
        ("the <b>cat</b>.", "le chat.", "0-0 1-1", "le <b>chat</b>."),
        ("the <b>cat.</b>", "le chat.", "0-0 1-1", "le <b>chat.</b>"),
        ("I do <b>not</b> see", "je ne vois pas", "0-0 2-1 3-2 2-3", "je <b>ne</b> vois <b>pas</b>"),
        ("<a href=x>not</a> see", "ne vois pas", "0-0 1-1 0-2", "<a href=x>ne vois pas</a>"),
        ("an <i>old <u>red</u> house</i>", "une vieille maison rouge", "0-0 1-1 3-2 2-3",
         "une <i>vieille maison <u>rouge</u></i>"),
        ("<i id=1>red</i> and <i>blue</i>", "bleu et rouge", "0-2 1-1 2-0", "<i>bleu</i> et <i id=1>rouge</i>"),
        ("<b id=1>not</b> see", "ne vois pas", "0-0 1-1 0-2", "<b id=1>ne</b> vois <b>pas</b>"),
        ("he <b>does</b> see", "il voit", "0-0 2-1 1-1?", "il <b>voit</b>"),  # nobody reads it most: it isn't lost
        ("see <img src=a> the cat", "vois le chat", "0-0 1-1 2-2", "vois <img src=a> le chat"),
        ("the cat<br/>", "le chat", "0-0 1-1", "le chat<br/>"),
        ("a <!-- remark -->b", "c d", "0-0 1-1", "c <!-- remark -->d"),
        ("use <code>x &lt; y</code> now", "utilise x < y maintenant", "0-0 1-1 2-2 3-3 4-4",
         "utilise <code>x &lt; y</code> maintenant"),
        ('<span translate="no">Big Ben</span> stands', "se dresse Grand Ben", "2-0 2-1 0-2 1-3",
         'se dresse <span translate="no">Big Ben</span>'),
        ("<b>a</b> &amp; c", "d & <f>", "0-0 1-1 2-2", "<b>d</b> &amp; &lt;f&gt;"),
        ("  <b>a</b>\n ", "d", "0-0", "  <b>d</b>\n "),
        ("<b>a</b> c", "d e f", "0-0 1-2", "<b>d</b> e f"),  # e reads nothing
        ("<b>a c</b>", "d e f", "0-0 1-2", "<b>d e f</b>"),
    ],
)  # fmt: skip
def test_tags_go_with_their_words(source: str, output: str, pairs: str, expected: str) -> None:
    assert translated(source, output, pairs) == expected


def shouted(source: str) -> str:
    """A document whose every text is shouted: what is text, and what isn't."""
    return "".join(part if isinstance(part, str) else shout(part) for part in parts(parse(source)))


def shout(part: InlineText) -> str:
    if part.is_uniform:
        return part.wrap(part.text.upper())
    assert not part.text
    return part.before + write(carry_tags(part, 0, SentenceSpan("", "", ""), None, None)) + part.after


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("<div>\n  <p class='x'> one </p>\n  two</div>", "<div>\n  <p class='x'> ONE </p>\n  TWO</div>"),
        ("<p>one<p>two", "<p>ONE</p><p>TWO</p>"),
        ("<ul><li>one<li>two</ul>three", "<ul><li>ONE</li><li>TWO</li></ul>THREE"),
        ("one<br>two<hr/>three", "ONE<br>TWO<hr/>THREE"),
        ("<!DOCTYPE html><html><head><title>one</title></head></html>",
         "<!DOCTYPE html><html><head><title>ONE</title></head></html>"),
        ("<b>one", "<b>ONE</b>"),
        ("<b><pre>x</", "<b><pre>x</pre></b>"),
        ("one</b></p>", "ONE"),
        ("<b><p>one</p></b>", "<b><p>ONE</p></b>"),
        ("<script>if (a < b) one()</script><style>p > b {}</style>", None),
        ("<pre>one\n  two &amp; <b>three</b></pre>", None),
        ("<p translate='no'>one<p>two</p>", "<p translate='no'>one</p><p>TWO</p>"),
        ("<div translate='no'>one <p>two</p></div>", None),
        ("<div class='a notranslate'><div>one</div> two</div>", None),
        ("<textarea>one</textarea><svg><text>two</text></svg>", None),
        ("1 &lt; 2 &amp; &copy; &#x41;", "1 &lt; 2 &amp; © A"),
    ],
)  # fmt: skip
def test_what_is_text_and_what_stays(source: str, expected: str | None) -> None:
    assert shouted(source) == (source if expected is None else expected)


class Balance(HTMLParser):
    """Whether every element is closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.is_good = True

    def handle_starttag(self, tag: str, attrs: object) -> None:
        del attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        self.handle_starttag(tag, attrs)  # for browsers the slash means nothing

    def handle_endtag(self, tag: str) -> None:
        self.is_good &= bool(self.open) and self.open.pop() == tag


PIECES = st.sampled_from(
    ["<b>", "</b>", "<i>", "</i>", "<a href='x'>", "</a>", "<p>", "</p>", "<li>", "<br>", "<img>", "<code>x</code>",
     "<span translate=no>two</span>", "</code>", "</span>", "one",
     "two.", " ", "\n", "&amp;", "&lt;", "<", "<!--x-->", "<em/>", "</", "<!", "<?", "&"]
)  # fmt: skip


def jumbled(source: str, chance: Random) -> str:
    """A document whose every sentence becomes three words that read its own by chance."""
    html = []
    for part in parts(parse(source)):
        if isinstance(part, str):
            html.append(part)
            continue
        items, place = [], 0
        for sentence in split(part.text):
            place += len(sentence.before)
            count = len(sentence.text.split())
            weights = [[chance.random() for _ in range(count + 1)] for _ in range(3)]
            aligned = AlignedWords(sentence.text.split(), ["x", "y", "z"], weights)
            items += carry_tags(part, place, sentence, "x y z" if count else None, aligned if count else None)
            place += len(sentence.text) + len(sentence.after)
        html.append(part.before + write(items) + part.after)
    return "".join(html)


@given(source=st.lists(PIECES, max_size=14).map("".join), chance=st.randoms())
def test_whatever_comes_in_is_well_formed_when_it_goes_out(source: str, chance: Random) -> None:
    balance = Balance()
    balance.feed(jumbled(source, chance))
    balance.close()
    assert balance.is_good
    assert balance.open == []


WHOLE = st.sampled_from(
    ["<b>", "</b>", "<p>", "<a href='x'>", "</a>", "one", "two. ", "Three.", " ", "<img>", "<!--x-->"]
)


@given(source=st.lists(WHOLE, max_size=14).map("".join), chance=st.randoms())
def test_images_and_remarks_are_not_lost(source: str, chance: Random) -> None:
    found = jumbled(source, chance)
    for thing in ("<img>", "<!--x-->"):
        assert found.count(thing) == source.count(thing)


@given(source=st.lists(PIECES, max_size=14).map("".join))
def test_a_tree_is_written_as_itself_the_second_time(source: str) -> None:
    once = write_node(parse(source))
    assert write_node(parse(once)) == once


def test_text_alone_and_too_deep() -> None:
    assert write_node(parse("<b><code><i>x")) == "<b><code><i>x</i></code></b>"
    assert plain_text("<p>one <b>two</b></p><script>three</script>").split() == ["one", "two"]
    assert write_node(parse("<![<![")) == "<![<![>"  # for browsers it is a comment
    with pytest.raises(Refusal, match="nested too deeply"):
        parse("<i>" * 101)
    assert plain_text("<br>" * 5000 + "<p>one" * 5000).split() == ["one"] * 5000
