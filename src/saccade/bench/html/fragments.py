"""Fragments of HTML by chance: as people write them, as they break them, and as attackers send them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

WORDS = str.split("The cat sees a black dog. Where is it? No, not x < y & z -- &lt;b&gt; &amp; &nbsp; é 日本 \0 5.")
INLINE = str.split("a b i em strong u s small sub sup span font cite mark del ins q abbr label button code kbd var tt")
BLOCKS = str.split(
    "p div h1 h2 ul ol li dl dt dd blockquote section article header table tr td th tbody caption form fieldset "
    "pre details summary figure center address main nav"
)
SPECIAL = str.split(
    "script style textarea title iframe noscript noembed noframes xmp plaintext template svg math select option "
    "object canvas video audio head body html frameset marquee ruby rt optgroup foreignobject desc mi mtext "
    "annotation-xml"
)
VOID = str.split("img br hr input wbr link meta base col embed source area param")
NAMES = str.split("id class title href src style name data-x onclick onerror lang dir translate alt ID =x a<b type")
VALUES = [
    *("x", "no", "notranslate", "a b", "javascript:alert(1)", "alert(1)", "&quot;&gt;<b>", "--><img src=x>"),
    *("x id=", "' id='y", '" onmouseover=alert(1) z="', "`", "</title>", "&amp;lt;", "1 > 2", "\n", "é", ""),
]
PIECES = [  # what breaks parsers, and what has broken sanitisers
    *("<!-- x -- > <img src=x onerror=alert(1)> -->", "<!--x-->", "<!-->", "<!--->", "<!--a--!>", "<!--<!--a-->"),
    *("<![CDATA[ a > b ]]>", "<?php echo ?>", "<!x>", "</ x>", "</>", "<", ">", "&", "&#x3c;", "&#0;", "<b", "<b x='"),
    *("</b>", "</p>", "</a>", "</div>", "</table>", "</svg>", "</math>", "</script>", "</style>", "</title>", "</br>"),
    *("<br/>", "<div/>", "<a name='top'/>", "<script/>", "<svg/>", "<iframe src='x' /></iframe>", "<i =x id=2 =y>"),
    *("<table><tr>The<td>cat", "<b><p>x</b>y</p>", "<a><a>", "<button><button>", "<form><form>", "<select><b>x"),
    *("<svg><p>x", "<svg><style><img src=x>", "<math><mtext><table><mglyph><style>", "<noscript><p title='</noscript>"),
    *("<template><b>x</template>", "<form><math><mtext></form><form><mglyph><style></math><img src=x>", "<li><li>"),
    *("<svg><foreignobject><b>x</b></foreignobject></svg>", "<math><annotation-xml encoding=text/html><p>x"),
    *("<span translate=no>two</span>", "<code>a</code><code>b</code>", "<ruby>a<rt>b", "<p>one<p>two", "\r\n", "\f"),
    *("<b title='x id=\"' class=\"' onmouseover=alert(1) z\">", "<img alt=' id=x ' id=y>", "<td>", "<tr>", "</tr>"),
]
DEEPEST = 4


def fragments(count: int, seed: int) -> Iterator[str]:
    """Yield fragments; the same for the same seed."""
    ways: list[Callable[[Random], str]] = [_soup, _tree, _tree, _spoil, _draw_mixture]
    for number in range(count):
        chance = Random(f"{seed} {number}")
        yield chance.choice(ways)(chance)


def _soup(chance: Random) -> str:
    return "".join(chance.choice([*PIECES, _tag(chance), *chance.choices(WORDS, k=3), " "]) for _ in _few(chance, 12))


def _draw_mixture(chance: Random) -> str:
    return "".join(chance.choice([_tree(chance), _soup(chance), chance.choice(PIECES)]) for _ in _few(chance, 3))


def _spoil(chance: Random) -> str:
    """Cut a tree, or take characters out of it, or put some in."""
    html = _tree(chance)
    for _ in _few(chance, 4):
        at, length = chance.randrange(len(html) + 1), chance.choice([0, 1, 1, 3, 9])
        html = html[:at] + chance.choice(["", "", "<", ">", '"', "'", "/", "-", " ", "\0"]) + html[at + length :]
    return html


def _tree(chance: Random, depth: int = 0) -> str:
    parts = [_text(chance)]
    for _ in range(chance.choice([0, 1, 1, 2, 3]) if depth else chance.choice([1, 2, 3])):
        parts += [_node(chance, depth), _text(chance)]
    return "".join(parts)


def _node(chance: Random, depth: int) -> str:
    kind = chance.random()
    if kind < 0.12:
        return f"<{chance.choice(VOID)}{_attributes(chance)}{chance.choice(['', '/', ' /'])}>"
    if kind < 0.2:
        return f"<!--{chance.choice(WORDS)}-->"
    tag = chance.choice(INLINE if kind < 0.75 else BLOCKS if kind < 0.93 else SPECIAL)
    inside = _tree(chance, depth + 1) if depth < DEEPEST else _text(chance)
    return f"<{tag}{_attributes(chance)}>{inside}</{tag}>"


def _tag(chance: Random) -> str:
    tag = chance.choice(chance.choice([INLINE, BLOCKS, SPECIAL, VOID]))
    return f"</{tag}>" if chance.random() < 0.35 else f"<{tag}{_attributes(chance)}>"


def _attributes(chance: Random) -> str:
    return "".join(f" {chance.choice(NAMES)}{_value(chance)}" for _ in range(chance.choice([0, 0, 0, 1, 1, 2, 3])))


def _value(chance: Random) -> str:
    quote = chance.choice(["", '"', '"', "'"])
    value = chance.choice(VALUES)
    return chance.choice(["", f"={quote}{value}{quote}", f"={quote}{value}{quote}", f" = {quote}{value}{quote}"])


def _text(chance: Random) -> str:
    return chance.choice(["", " ", "\n"]) + " ".join(chance.choices(WORDS, k=chance.choice([0, 1, 2, 3, 6])))


def _few(chance: Random, most: int) -> range:
    return range(chance.randint(1, most))
